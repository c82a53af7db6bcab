//! Playback beside nginx in the same run: how soon a stream can be watched, what packaging it costs, and what many
//! viewers of it cost.
//!
//! `cargo xtask bench playback [start] [package] [viewers] [--repeats N] [--seconds S]`; `bench package` and `bench viewers` are
//! the parts of that name. CPU is user and system time of the server's process; both
//! servers take turns inside a repeat with the same encoder (ffmpeg, real time, no transcoding) and the same bytes.

mod crowds;
mod packaging;
mod start;

use satcast_tests::figures::Options;
use satcast_tests::source::Source;

const REPEATS: usize = 5;
const WINDOW_SECONDS: u64 = 10;

fn main() {
    let (options, parts) = Options::with_names(REPEATS, WINDOW_SECONDS, &["start", "package", "viewers"]);
    let source = Source::shared();
    println!(
        "one stream of 3 Mbit/s with a keyframe every 2 s, {} repeats of {} s; median (range)",
        options.repeats,
        options.window.as_secs()
    );
    for part in parts {
        match part {
            "start" => start::run(&source, options),
            "package" => packaging::run(&source, options),
            _ => crowds::run(&source, options),
        }
    }
}
