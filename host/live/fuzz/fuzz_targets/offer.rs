#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| satcast_live::ingest::fuzz::offer(data));
