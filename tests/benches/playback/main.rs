//! Playback compared with nginx in the same run: the time until a stream can be watched, the cost of packaging, and the cost of many
//! viewers.
//!
//! `cargo xtask bench playback [start] [package] [viewers] [recorded] [--repeats N] [--seconds S] [--short]`; `bench package`,
//! `bench viewers` and `bench recorded` are the parts of that name, `newest`, `old` and `playlist` are parts of `viewers`. CPU is user and system time of the server's
//! process; the servers take turns inside a repeat with the same streams and the same bytes.

mod bare;
mod crowds;
mod packaging;
mod recorded;
mod start;

use crowds::What;
use satcast_tests::figures::Options;
use satcast_tests::figures::results::Results;
use satcast_tests::peer::asked_for;
use satcast_tests::source::Source;

const REPEATS: usize = 5;
const WINDOW_SECONDS: u64 = 10;
const PARTS: [&str; 4] = ["start", "package", "viewers", "recorded"];

fn main() {
    if let Some((port, folder)) = asked_for() {
        return bare::serve(port, &folder);
    }
    let names: Vec<&str> = PARTS.into_iter().chain(What::ALL.map(What::name)).collect();
    let (options, asked) = Options::with_names(REPEATS, WINDOW_SECONDS, &names);
    let source = Source::shared();
    println!(
        "streams of 3 Mbit/s with a keyframe every 2 s, {} repeats of {} s",
        options.repeats,
        options.window.as_secs()
    );
    let mut results = Results::new();
    if asked.contains(&"start") {
        start::run(options, &mut results);
    }
    if asked.contains(&"package") {
        packaging::run(options, &mut results);
    }
    let measurements =
        What::ALL.into_iter().filter(|what| asked.contains(&"viewers") || asked.contains(&what.name()));
    let measurements: Vec<What> = measurements.collect();
    if !measurements.is_empty() {
        crowds::run(&source, options, &measurements, &mut results);
    }
    if asked.contains(&"recorded") {
        recorded::run(&source, options, &mut results);
    }
    results.print();
}
