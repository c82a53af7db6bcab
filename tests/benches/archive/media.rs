//! The stream that is recorded: 6 Mbit/s.

use std::time::Duration;

use bytes::Bytes;
use satcast_driver_archive::TYPE;
use satcast_media::fuzz::RECORDS;
use satcast_plugin_api::Codec;
use satcast_plugin_api::driver::About;
use satcast_plugin_api::testkit::{TestDestination, Testkit, config, media};
use serde_json::json;

/// Video frames, every sixtieth a keyframe; about 47 AAC packets a second.
const FRAME_BYTES: usize = 23_600;
const KEYFRAME_BYTES: usize = 100_000;
const AUDIO_BYTES: usize = 427;

/// Records so many minutes as fast as the disk takes them.
pub(crate) fn record(kit: &Testkit, minutes: i64) {
    let about = About { session_id: "bench".into(), ..About::default() };
    let destination = kit.open_for(&about, TYPE, &json!({})).expect("the destination opens");
    destination.push(config(Codec::H264, RECORDS[0].1));
    destination.push(config(Codec::Aac, RECORDS[2].1));
    for second in 0..minutes * 60 {
        push(&destination, second * 1000);
        // Media comes much faster than its time here; the disk must keep up. What is not written is two seconds at most.
        let floor = u64::try_from((second - 2).max(0)).unwrap_or(0) * 29 * FRAME_BYTES as u64;
        while destination.counter("bytes_sent") < floor {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    destination.stop_within(30_000);
    destination.wait_for_end().expect("a good end");
}

/// A second from `start_ms` on.
fn push(destination: &TestDestination, start_ms: i64) {
    let payload = |bytes: usize| Bytes::from(vec![0x5a; bytes]);
    let mut audio_ms = start_ms;
    for frame in 0..30 {
        let dts_ms = start_ms + frame * 100 / 3;
        let is_key = frame == 0 && start_ms % 2000 == 0;
        let bytes = if is_key { KEYFRAME_BYTES } else { FRAME_BYTES };
        destination.push(media(Codec::H264, 0, dts_ms, is_key, payload(bytes)));
        while audio_ms < dts_ms + 33 {
            destination.push(media(Codec::Aac, 0, audio_ms, false, payload(AUDIO_BYTES)));
            audio_ms += 64 / 3;
        }
    }
}
