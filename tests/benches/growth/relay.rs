//! Streams with one destination each, and one stream with many destinations.

use satcast_tests::figures::Options;
use satcast_tests::figures::results::Results;
use satcast_tests::load::measure::measure;
use satcast_tests::load::servers::{Kind, Load};

const STREAMS: [usize; 4] = [1, 10, 100, 500];
const DESTINATIONS: [usize; 4] = [1, 3, 12, 50];

pub(crate) fn streams(options: Options, results: &mut Results) {
    let load = |streams| Load { streams, destinations: 1, read_batch_ms: None };
    run("growth of streams", STREAMS, load, options, results);
}

pub(crate) fn destinations(options: Options, results: &mut Results) {
    let load = |destinations| Load { streams: 1, destinations, read_batch_ms: None };
    run("growth of destinations", DESTINATIONS, load, options, results);
}

fn run(row: &str, steps: [usize; 4], load: impl Fn(usize) -> Load, options: Options, results: &mut Results) {
    for step in steps {
        let load = load(step);
        for repeat in 0..options.repeats {
            let measured = measure(Kind::Satcast, load, options.window);
            let streams = load.streams as f64;
            let figures = [
                ("cpu_minute", measured.cpu * streams),
                ("mib", measured.resident_kib * streams / 1024.0),
                ("p99_ms", measured.p99_ms),
            ];
            super::note(results, row, step as u64, repeat, figures);
        }
    }
}
