//! Streams with one destination each, one stream with many destinations, and nodes with the same number of streams each.

use satcast_tests::figures::Options;
use satcast_tests::figures::results::Results;
use satcast_tests::load::measure::{Figures, measure};
use satcast_tests::load::servers::{Kind, Load};

const STREAMS: [usize; 4] = [1, 10, 100, 500];
const DESTINATIONS: [usize; 4] = [1, 3, 12, 50];
const NODES: [usize; 2] = [1, 2];
/// Streams of each node.
const STREAMS_OF_A_NODE: usize = 20;

/// CPU of all nodes together, and that of their database. One of two destinations is free, so each stream has a charge every minute.
pub(crate) fn nodes(options: Options, results: &mut Results) {
    for repeat in 0..options.repeats {
        // In turns, because the speed of a machine drifts.
        for nodes in NODES {
            let load =
                Load { streams: nodes * STREAMS_OF_A_NODE, destinations: 2, read_batch_ms: None, srt: false };
            let measured = measure(Kind::Nodes(nodes), load, options.window);
            note(results, "growth of nodes", nodes, repeat, &measured, load);
            let database = [("cpu_minute", measured.database_cpu * load.streams as f64)];
            super::note(results, "growth of nodes, their PostgreSQL", nodes as u64, repeat, database);
        }
    }
}

pub(crate) fn streams(options: Options, results: &mut Results) {
    let load = |streams| Load { streams, destinations: 1, read_batch_ms: None, srt: false };
    run("growth of streams", STREAMS, load, options, results);
}

pub(crate) fn destinations(options: Options, results: &mut Results) {
    let load = |destinations| Load { streams: 1, destinations, read_batch_ms: None, srt: false };
    run("growth of destinations", DESTINATIONS, load, options, results);
}

fn run(row: &str, steps: [usize; 4], load: impl Fn(usize) -> Load, options: Options, results: &mut Results) {
    for step in steps {
        let load = load(step);
        for repeat in 0..options.repeats {
            let measured = measure(Kind::Satcast, load, options.window);
            note(results, row, step, repeat, &measured, load);
        }
    }
}

fn note(results: &mut Results, row: &str, step: usize, repeat: usize, measured: &Figures, load: Load) {
    let streams = load.streams as f64;
    let figures = [
        ("cpu_minute", measured.cpu * streams),
        ("mib", measured.resident_kib * streams / 1024.0),
        ("p99_ms", measured.p99_ms),
    ];
    super::note(results, row, step as u64, repeat, figures);
}
