//! The analytics over a million entries of history and a year of metered hours, by every filter.

use std::time::Instant;

use satcast_tests::api::Api;
use satcast_tests::database::Database;
use satcast_tests::figures::Options;
use satcast_tests::figures::results::{OURS, Results};
use satcast_tests::hosted::Hosted;
use satcast_tests::service::Setup;

/// Entries of the history: two for each session.
const ENTRIES: i64 = 1_000_000;
/// Begin of the generated history, 2025-01-01 in Unix milliseconds. One session begins each minute from then on.
const FIRST_MS: i64 = 1_735_689_600_000;
const MINUTE_MS: i64 = 60_000;

pub(crate) fn run(options: Options, results: &mut Results) {
    let service = Setup::default().start();
    let hosted = Hosted::new(&service, "bench");
    let rare = Hosted::new(&service, "rare");
    let began = Instant::now();
    let mut database = Database::of(service.folder());
    database.make_history(&hosted.stream, hosted.destination, ENTRIES / 2, FIRST_MS, MINUTE_MS);
    database.make_history(&rare.stream, rare.destination, 5, FIRST_MS, MINUTE_MS);
    println!("\n{ENTRIES} entries of history made in {:.1} s", began.elapsed().as_secs_f64());
    let middle = FIRST_MS + ENTRIES / 4 * MINUTE_MS;
    let (day, rare) = (24 * 60 * MINUTE_MS, rare.stream.id);
    let requests = [
        ("newest 100", "/api/stream-history?limit=100".to_owned()),
        ("newest 1000", "/api/stream-history".to_owned()),
        ("after 500,000", format!("/api/stream-history?limit=100&cursor={}", ENTRIES / 2)),
        ("one day", format!("/api/stream-history?startDate={middle}&endDate={}", middle + day)),
        ("one platform", "/api/stream-history?limit=100&platform=rtmp".to_owned()),
        ("no such platform", "/api/stream-history?limit=100&platform=twitch".to_owned()),
        ("a rare stream", format!("/api/stream-history?streamKeyId={rare}")),
        ("dear ones", "/api/stream-history?limit=100&minCost=99".to_owned()),
        ("dashboard, year", "/api/dashboard/stats?filter=year".to_owned()),
        ("dashboard, all", "/api/dashboard/stats?filter=all".to_owned()),
        ("bandwidth, all", "/api/bandwidth/usage?filter=all".to_owned()),
    ];
    for (name, path) in requests {
        for repeat in 0..options.repeats {
            let row = format!("history, {name}");
            results.note(&row, "answer_ms", OURS, repeat, time(&service.api(), &path));
        }
    }
}

fn time(api: &Api, path: &str) -> f64 {
    let began = Instant::now();
    let answer = api.get(path).ok();
    assert!(answer.is_array() || answer.is_object(), "an answer");
    began.elapsed().as_secs_f64() * 1_000.0
}
