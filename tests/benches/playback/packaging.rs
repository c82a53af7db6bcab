//! CPU of ingest and packaging, without viewers.

use std::time::Instant;

use satcast_tests::encoder::Publish;
use satcast_tests::figures::{Options, Pairs};
use satcast_tests::hosted::Hosted;
use satcast_tests::nginx::Nginx;
use satcast_tests::process::Process;
use satcast_tests::service::Setup;
use satcast_tests::source::Source;
use satcast_tests::wait::{self, seconds};

/// Streams at a time: one alone, and enough to show the cost that streams share.
const STREAMS: [usize; 3] = [1, 10, 50];
/// Highest ratio to nginx-rtmp's cost for ten and more streams.
const TARGET: f64 = 0.60;
const TARGET_STREAMS: usize = 10;

pub(crate) fn run(source: &Source, options: Options) {
    println!("\nCPU seconds for each stream-minute of ingest and packaging (nginx-rtmp: MPEG-TS, hls on)");
    println!("{:>8}  {:>24}  {:>24}  {:>24}", "streams", "satcast", "nginx-rtmp", "ratio");
    for streams in STREAMS {
        let mut pairs = Pairs::default();
        for repeat in 0..options.repeats {
            pairs.measure(repeat, || satcast(source, streams, options), || nginx(source, streams, options));
        }
        let [ours, theirs, ratio] = pairs.summaries();
        println!("{streams:>8}  {ours:>24}  {theirs:>24}  {ratio:>24}");
        if streams >= TARGET_STREAMS {
            let verdict = if pairs.ratio() <= TARGET { "met" } else { "MISSED" };
            println!("{:>8}  target: at most {TARGET:.2} of nginx-rtmp: {verdict}", "");
        }
    }
}

fn satcast(source: &Source, streams: usize, options: Options) -> f64 {
    let service = Setup::default().start();
    let hosted = Hosted::many(&service, streams);
    let publish = |hosted: &Hosted| Publish::of(source).endless().to(&service.ingest_url(&hosted.stream.key));
    let _encoders: Vec<_> = hosted.iter().map(publish).collect();
    let mut viewers: Vec<_> = hosted.iter().map(|hosted| hosted.viewer(seconds(30))).collect();
    let mut newest =
        || -> Vec<u64> { viewers.iter_mut().map(|viewer| viewer.media().newest().sequence).collect() };
    let before = newest();
    let cost = cpu_per_minute(service.process(), options) / streams as f64;
    let made: Vec<u64> = newest().iter().zip(before).map(|(after, before)| after - before).collect();
    assert_made(&made, options);
    cost
}

fn nginx(source: &Source, streams: usize, options: Options) -> f64 {
    let nginx = Nginx::packaging();
    let publish = |number: usize| Publish::of(source).endless().to(&format!("{}/bench{number}", nginx.url()));
    let _encoders: Vec<_> = (0..streams).map(publish).collect();
    let newest = || -> Vec<u64> {
        let playlist = |number: usize| nginx.packaged(&format!("bench{number}.m3u8"));
        let segments = |number| {
            let text = wait::until("nginx's playlist", seconds(30), || {
                std::fs::read_to_string(playlist(number)).map_err(|error| error.to_string())
            });
            text.lines().filter(|line| line.starts_with("#EXTINF")).count() as u64
        };
        (0..streams).map(segments).collect()
    };
    let before = newest();
    let cost = cpu_per_minute(nginx.process(), options) / streams as f64;
    let made: Vec<u64> = newest().iter().zip(before).map(|(after, before)| after - before).collect();
    assert_made(&made, options);
    cost
}

/// Expects that every stream was packaged all the time; otherwise the figure would be wrong.
fn assert_made(made: &[u64], options: Options) {
    let least = options.window.as_secs() / 2 - 1;
    assert!(made.iter().all(|count| *count >= least), "{made:?} segments were made of {least} at least");
}

fn cpu_per_minute(server: &Process, options: Options) -> f64 {
    let (before, began) = (server.cpu(), Instant::now());
    std::thread::sleep(options.window);
    (server.cpu() - before).as_secs_f64() * 60.0 / began.elapsed().as_secs_f64()
}
