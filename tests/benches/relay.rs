//! CPU of one stream to one and to three servers, Satcast beside nginx-rtmp in the same run.
//!
//! `cargo xtask bench relay [--repeats N] [--seconds S]`. In each repeat both servers take their turn, one after
//! the other, with the same encoder (ffmpeg, real time, no transcoding) and sinks; a ratio is made inside one repeat
//! only, since the machine's speed drifts between them. CPU is user and system time of the server's processes.

use std::time::{Duration, Instant};

use satcast_tests::encoder::Publish;
use satcast_tests::figures::{Options, Pairs};
use satcast_tests::nginx::Nginx;
use satcast_tests::process::Process;
use satcast_tests::service::Setup;
use satcast_tests::sink::{Behaviour, Sink};
use satcast_tests::source::Source;
use satcast_tests::wait::{self, seconds};

const REPEATS: usize = 5;
const WINDOW_SECONDS: u64 = 15;
/// From the first byte at every sink to the beginning of the window.
const WARM_UP: Duration = Duration::from_secs(3);
const DESTINATIONS: [usize; 2] = [1, 3];
/// A sink that got less than this share of what the best one got was not served, so the figure means nothing.
const SERVED_SHARE_MIN: f64 = 0.9;

fn main() {
    let Options { repeats, window } = Options::from_arguments(REPEATS, WINDOW_SECONDS);
    let source = Source::shared();
    println!(
        "one stream of 3 Mbit/s, {repeats} repeats of {} s; CPU seconds for each stream-minute",
        window.as_secs()
    );
    println!("{:>12}  {:>28}  {:>28}  {:>24}", "destinations", "satcast", "nginx-rtmp", "ratio");
    for destinations in DESTINATIONS {
        let mut pairs = Pairs::default();
        for repeat in 0..repeats {
            pairs.measure(
                repeat,
                || satcast(&source, destinations, window),
                || nginx(&source, destinations, window),
            );
        }
        let [ours, theirs, ratio] = pairs.summaries();
        println!("{destinations:>12}  {ours:>28}  {theirs:>28}  {ratio:>24}");
    }
}

fn satcast(source: &Source, destinations: usize, window: Duration) -> f64 {
    let sinks = sinks(destinations);
    let service = Setup::default().start();
    let api = service.api();
    let stream = api.create_stream("bench");
    for sink in &sinks {
        api.add_destination(&stream, &sink.url(), "bench");
    }
    let _encoder = Publish::of(source).endless().to(&service.ingest_url(&stream.key));
    measure(service.process(), &sinks, window)
}

fn nginx(source: &Source, destinations: usize, window: Duration) -> f64 {
    let sinks = sinks(destinations);
    let targets: Vec<String> = sinks.iter().map(|sink| format!("{}/bench", sink.url())).collect();
    let nginx = Nginx::relaying(&targets);
    let _encoder = Publish::of(source).endless().to(&format!("{}/bench", nginx.url()));
    measure(nginx.process(), &sinks, window)
}

fn sinks(count: usize) -> Vec<Sink> {
    (0..count).map(|_| Sink::start(Behaviour::Discard)).collect()
}

/// CPU seconds for each minute, over a window in which every sink is served.
fn measure(server: &Process, sinks: &[Sink], window: Duration) -> f64 {
    for sink in sinks {
        wait::until("media at every sink", seconds(30), || {
            if sink.bytes() > 100_000 { Ok(()) } else { Err(format!("{} bytes", sink.bytes())) }
        });
    }
    std::thread::sleep(WARM_UP);
    let bytes_before: Vec<u64> = sinks.iter().map(Sink::bytes).collect();
    let (cpu_before, began) = (server.cpu(), Instant::now());
    std::thread::sleep(window);
    let (cpu, took) = (server.cpu() - cpu_before, began.elapsed());
    let bytes: Vec<u64> =
        sinks.iter().zip(bytes_before).map(|(sink, before)| sink.bytes() - before).collect();
    let most = bytes.iter().copied().max().unwrap_or_default() as f64;
    assert!(most > 0.0, "no sink got anything in the window");
    assert!(
        bytes.iter().all(|bytes| *bytes as f64 >= SERVED_SHARE_MIN * most),
        "the sinks were not served alike: {bytes:?} bytes"
    );
    cpu.as_secs_f64() * 60.0 / took.as_secs_f64()
}
