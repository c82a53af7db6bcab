//! Viewers that play the live edge in real time, and DVR windows of growing length with some viewers each.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use satcast_tests::crowd::{Crowd, Paths};
use satcast_tests::encoder::Publish;
use satcast_tests::figures::Options;
use satcast_tests::figures::results::Results;
use satcast_tests::hosted::Hosted;
use satcast_tests::http::split_url;
use satcast_tests::service::{Service, Setup};
use satcast_tests::source::{Recipe, Source};
use satcast_tests::wait::seconds;
use serde_json::json;

/// A low rate, so that the network of this machine is no limit.
const RECIPE: Recipe = Recipe::SCREEN;
const VIEWERS: [usize; 4] = [1, 50, 1_000, 5_000];
/// Windows in seconds.
const WINDOWS: [u64; 3] = [60, 600, 3_600];
/// Viewers of a window.
const WINDOW_VIEWERS: usize = 50;
/// A player asks once for each segment.
const EVERY: Duration = seconds(2);
/// Pause between two looks for a newer segment.
const RELOAD: Duration = Duration::from_millis(500);
/// Least share of the answers that are due. With less the service did not keep up.
const SERVED_SHARE_MIN: f64 = 0.8;
/// Factor to real time of filling a window.
const FASTER: u32 = 40;

pub(crate) fn viewers(options: Options, results: &mut Results) {
    let source = Source::of(RECIPE);
    for viewers in VIEWERS {
        for repeat in 0..options.repeats {
            let service = Setup::default().start();
            let hosted = Hosted::new(&service, "growth");
            let _encoder = Publish::of(&source).endless().to(&service.ingest_url(&hosted.stream.key));
            let mut viewer = hosted.viewer();
            let figures = measure(&service, viewers, options.window, || {
                let name = viewer.media().newest().name.clone();
                viewer.path(&name)
            });
            super::note(results, "growth of viewers", viewers as u64, repeat, figures);
        }
    }
}

pub(crate) fn window(options: Options, results: &mut Results) {
    let source = Source::of(RECIPE);
    for length in WINDOWS {
        for repeat in 0..options.repeats {
            let service = Setup::default().start();
            let hosted = Hosted::with(&service, "growth", &json!({ "dvrSeconds": length }));
            let url = service.ingest_url(&hosted.stream.key);
            let mut filling = Publish::of(&source).faster(FASTER).endless().seconds(length + 60).to(&url);
            filling.finish(seconds(length / u64::from(FASTER) * 4 + 30));
            let _encoder = Publish::of(&source).endless().to(&url);
            let mut viewer = hosted.viewer();
            let newest = viewer.media().newest().sequence;
            let _ = viewer.media_when("the encoder that goes on", |media| media.newest().sequence > newest);
            let figures = measure(&service, WINDOW_VIEWERS, options.window, || viewer.playlist());
            super::note(results, "growth of the DVR window in seconds", length, repeat, figures);
        }
    }
}

/// CPU, memory and p99 of the service while viewers ask for the newest of `path` at their pace.
fn measure(
    service: &Service,
    viewers: usize,
    window: Duration,
    mut path: impl FnMut() -> String,
) -> [(&'static str, f64); 3] {
    let (address, _) = split_url(&service.base());
    let paths: Paths = Arc::new(RwLock::new(vec![path()]));
    let crowd = Crowd::paced(address, viewers, &paths, EVERY);
    let mut watch = |time: Duration| {
        let began = Instant::now();
        while began.elapsed() < time {
            let newest = vec![path()];
            *paths.write() = newest;
            std::thread::sleep(RELOAD.min(time.saturating_sub(began.elapsed())));
        }
    };
    // Every viewer has its connection after the first round.
    watch(EVERY * 2);
    let (times, answers) = (crowd.times(), crowd.answers());
    let (cpu, began) = (service.process().cpu(), Instant::now());
    watch(window);
    let (cpu, took) = (service.process().cpu() - cpu, began.elapsed());
    let (mib, p99_ms) = (service.process().resident_kib() as f64 / 1024.0, crowd.p99_ms(&times));
    let (came, failed) = (crowd.answers() - answers, crowd.failures());
    let due = viewers as f64 * took.as_secs_f64() / EVERY.as_secs_f64();
    assert_eq!(failed, 0, "viewers were not served");
    assert!(came as f64 >= SERVED_SHARE_MIN * due, "{came} of {due:.0} answers came in time");
    [("cpu_minute", cpu.as_secs_f64() * 60.0 / took.as_secs_f64()), ("mib", mib), ("p99_ms", p99_ms)]
}
