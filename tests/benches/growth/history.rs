//! The newest page of a growing history.

use std::time::Instant;

use satcast_tests::database::Database;
use satcast_tests::figures::Options;
use satcast_tests::figures::results::Results;
use satcast_tests::hosted::Hosted;
use satcast_tests::service::{ACCOUNT, Setup};

/// Entries of the history: two for each session.
const ENTRIES: [i64; 4] = [1_000, 100_000, 1_000_000, 10_000_000];
/// Begin of the generated history, 2020-01-01 in Unix milliseconds. One session begins each half minute from then on.
const FIRST_MS: i64 = 1_577_836_800_000;
const EVERY_MS: i64 = 30_000;
const PATH: &str = "/api/stream-history?limit=100";
/// Requests of one measurement. A key may read 300 times a minute.
const REQUESTS: usize = 200;

pub(crate) fn run(options: Options, results: &mut Results) {
    let mut service = Setup::default().start();
    let mut there = 0;
    for entries in ENTRIES {
        let hosted = Hosted::new(&service, "growth");
        let _ = service.stop();
        let (began, sessions) = (Instant::now(), (entries - there) / 2);
        let mut database = Database::of(service.folder());
        let first_ms = FIRST_MS + there / 2 * EVERY_MS;
        database.make_history(&hosted.stream, hosted.destination, sessions, first_ms, EVERY_MS);
        drop(database);
        there = entries;
        println!("{entries} entries of history, made in {:.1} s", began.elapsed().as_secs_f64());
        service.start();
        for repeat in 0..options.repeats {
            let api = service.api_of(ACCOUNT);
            let (mut times, cpu) = (Vec::new(), service.process().cpu());
            for _ in 0..REQUESTS {
                let asked = Instant::now();
                let answer = api.get(PATH).ok();
                times.push(asked.elapsed().as_secs_f64() * 1_000.0);
                assert!(answer.is_array() || answer.is_object(), "an answer");
            }
            times.sort_by(f64::total_cmp);
            let cpu_ms = (service.process().cpu() - cpu).as_secs_f64() * 1_000.0 / REQUESTS as f64;
            let mib = service.process().resident_kib() as f64 / 1_024.0;
            let p99_ms = times[(times.len() - 1) * 99 / 100];
            let figures = [("cpu_ms", cpu_ms), ("mib", mib), ("p99_ms", p99_ms)];
            let step = u64::try_from(entries).expect("a count");
            super::note(results, "growth of the history", step, repeat, figures);
        }
    }
}
