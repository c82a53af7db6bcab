//! The API under load: the status that every viewer's page polls, beside a bare poem handler that answers the same bytes,
//! and the analytics over a million entries of history.
//!
//! `cargo xtask bench api [--repeats N] [--seconds S]`. CPU is user and system time of the server's process.

mod history;
mod peer;
mod status;

use satcast_tests::figures::Options;

const REPEATS: usize = 5;
const WINDOW_SECONDS: u64 = 8;

fn main() {
    if let Some(port) = peer::asked_for() {
        return peer::serve(port);
    }
    let options = Options::from_arguments(REPEATS, WINDOW_SECONDS);
    status::run(options);
    history::run(options);
}
