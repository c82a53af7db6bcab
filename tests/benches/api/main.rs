//! The API under load: the status that every viewer's page polls, beside a bare poem handler that answers the same bytes,
//! and the analytics over a million entries of history.
//!
//! `cargo xtask bench api [offline] [live] [history] [--repeats N] [--seconds S]`; `offline` and `live` are the status of such a stream.

mod history;
mod peer;
mod status;

use satcast_tests::figures::Options;
use satcast_tests::figures::results::Results;
use satcast_tests::peer::asked_for;

const REPEATS: usize = 5;
const WINDOW_SECONDS: u64 = 8;
const PARTS: [&str; 3] = ["offline", "live", "history"];

fn main() {
    if let Some((port, answer)) = asked_for() {
        return peer::serve(port, answer);
    }
    let (options, asked) = Options::with_names(REPEATS, WINDOW_SECONDS, &PARTS);
    let mut results = Results::new();
    for (name, live) in [("offline", false), ("live", true)] {
        if asked.contains(&name) {
            status::run(options, live, &mut results);
        }
    }
    if asked.contains(&"history") {
        history::run(options, &mut results);
    }
    results.print();
}
