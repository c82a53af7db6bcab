//! CPU of many viewers who read the same segments as fast as they can.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use satcast_tests::crowd::{Crowd, Paths};
use satcast_tests::encoder::Publish;
use satcast_tests::figures::{Options, Pairs};
use satcast_tests::hls::Viewer;
use satcast_tests::hosted::Hosted;
use satcast_tests::http::split_url;
use satcast_tests::nginx::Nginx;
use satcast_tests::process::Process;
use satcast_tests::service::{Service, Setup};
use satcast_tests::source::Source;
use satcast_tests::wait::seconds;

const VIEWERS: usize = 200;
/// Segments that viewers go through in turn.
const SEGMENTS: usize = 3;
/// Segments behind the newest that are in no memory of the service any more.
const OLD_SEGMENTS: usize = 20;
const WARM_UP: Duration = Duration::from_secs(2);

pub(crate) fn run(source: &Source, options: Options) {
    let service = Setup::default().start();
    let hosted = Hosted::new(&service, "bench");
    let _encoder = Publish::of(source).endless().to(&service.ingest_url(&hosted.stream.key));
    let mut viewer = hosted.viewer(seconds(30));
    let media =
        viewer.media_when("a window", seconds(120), |media| media.segments.len() >= OLD_SEGMENTS + SEGMENTS);
    // The same bytes for nginx.
    let folder = tempfile::tempdir().expect("a folder for nginx");
    let files: Vec<String> = viewer
        .pieces(&media.segments[..SEGMENTS])
        .iter()
        .map(|piece| {
            std::fs::write(folder.path().join(&piece.entry.name), &piece.bytes).expect("a segment");
            format!("/{}", piece.entry.name)
        })
        .collect();
    let files: Paths = Arc::new(RwLock::new(files));

    // First of all: memory that an earlier crowd used is not given back.
    memory(&service, &mut viewer);
    println!(
        "\nGbit for each CPU second of the server, {VIEWERS} viewers (nginx: the same segments, sendfile)"
    );
    println!("{:>8}  {:>24}  {:>24}  {:>24}", "segments", "satcast", "nginx", "ratio");
    for (name, from_end) in [("newest", 0), ("old", OLD_SEGMENTS)] {
        let mut pairs = Pairs::default();
        for repeat in 0..options.repeats {
            pairs.measure(
                repeat,
                || satcast(&service, &mut viewer, from_end, options),
                || {
                    let nginx = Nginx::serving(folder.path());
                    measure(nginx.process(), nginx.address(), &files, options)
                },
            );
        }
        let [ours, theirs, ratio] = pairs.summaries();
        println!("{name:>8}  {ours:>24}  {theirs:>24}  {ratio:>24}");
    }
}

/// The newest segments, or old ones: what they are changes while the stream goes on.
fn listed(viewer: &mut Viewer, from_end: usize) -> Vec<String> {
    let mut names: Vec<String> = viewer.media().segments.into_iter().map(|segment| segment.name).collect();
    names.truncate(names.len() - from_end);
    names.split_off(names.len() - SEGMENTS).iter().map(|name| viewer.path(name)).collect()
}

fn satcast(service: &Service, viewer: &mut Viewer, from_end: usize, options: Options) -> f64 {
    let (address, _) = split_url(&service.base());
    let paths: Paths = Arc::new(RwLock::new(listed(viewer, from_end)));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(500));
                *paths.write().unwrap_or_else(PoisonError::into_inner) = listed(viewer, from_end);
            }
        });
        let rate = measure(service.process(), address, &paths, options);
        over.store(true, Ordering::Relaxed);
        rate
    })
}

/// Gbit for each CPU second.
fn measure(server: &Process, address: SocketAddr, paths: &Paths, options: Options) -> f64 {
    let crowd = Crowd::start(address, VIEWERS, paths);
    std::thread::sleep(WARM_UP);
    let (bytes, cpu) = (crowd.bytes(), server.cpu());
    std::thread::sleep(options.window);
    let (bytes, cpu) = (crowd.bytes() - bytes, server.cpu() - cpu);
    assert_eq!(crowd.failures(), 0, "viewers were not served");
    bytes as f64 * 8.0 / 1e9 / cpu.as_secs_f64()
}

/// What a busy viewer costs in memory.
fn memory(service: &Service, viewer: &mut Viewer) {
    let (address, _) = split_url(&service.base());
    let paths: Paths = Arc::new(RwLock::new(listed(viewer, OLD_SEGMENTS)));
    let before = service.process().resident_kib();
    let crowd = Crowd::start(address, VIEWERS, &paths);
    std::thread::sleep(WARM_UP);
    let busy = service.process().resident_kib();
    drop(crowd);
    println!(
        "\nKiB of memory for each of {VIEWERS} busy viewers: {}",
        busy.saturating_sub(before) / VIEWERS as u64
    );
}
