//! Many publishers to one and to three servers each: Satcast beside nginx-rtmp and node-media-server in the same run.
//!
//! `cargo xtask bench relay [CASE...] [--repeats N] [--seconds S] [--short]`, for instance `cargo xtask bench relay 10x1 --repeats 1`. A
//! case is PUBLISHERSxDESTINATIONS; with `-soon` and `-now` Satcast reads its encoders every 5 ms and as bytes come
//! (`read_batch_ms`). The streams of
//! `srt-1x1` and `srt-10x1` are published and forwarded by SRT, beside srt-live-transmit. In each repeat the servers take their turn, one after the other, with the same load
//! (`satcast_tests::load`). A frame that Satcast loses, repeats or sends to the wrong place ends the run; faults of a peer are shown.
//! The short form has one peer.

mod cases;

use satcast_tests::figures::results::Results;
use satcast_tests::figures::{Options, turns};
use satcast_tests::load::measure::measure;
use satcast_tests::load::servers::Kind;

use cases::{CASES, Case};

const REPEATS: usize = 5;
const WINDOW_SECONDS: u64 = 10;
/// The servers of the short form.
const FEW: [Kind; 2] = [Kind::Satcast, Kind::Nginx];

fn main() {
    let names = CASES.map(|case| case.name);
    let (options, names) = Options::with_names(REPEATS, WINDOW_SECONDS, &names);
    println!(
        "streams of 3.05 Mbit/s (720p30, 77 messages a second), {} repeats of {} s",
        options.repeats,
        options.window.as_secs()
    );
    let mut results = Results::new();
    for case in CASES.iter().filter(|case| names.contains(&case.name)) {
        run(case, options, &mut results);
    }
    results.print();
}

fn run(case: &Case, options: Options, results: &mut Results) {
    let row = format!("relay {}", case.name);
    let servers: &[Kind] = match (case.load.srt, options.short) {
        (true, _) => &Kind::SRT,
        (false, true) => &FEW,
        (false, false) => &Kind::ALL,
    };
    for repeat in 0..options.repeats {
        for kind in turns(repeat, servers.len()).map(|turn| servers[turn]) {
            println!("{row}, repeat {}: {}", repeat + 1, kind.name());
            for (figure, value) in measure(kind, case.load, options.window).named() {
                results.note(&row, figure, kind.name(), repeat, value);
            }
        }
    }
}
