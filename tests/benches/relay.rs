//! CPU of one stream to one and to three servers, Satcast beside nginx-rtmp in the same run.
//!
//! `cargo xtask bench relay [--repeats N] [--seconds S]`. In each repeat both servers take their turn, one after
//! the other, with the same encoder (ffmpeg, real time, no transcoding) and sinks; a ratio is made inside one repeat
//! only, since the machine's speed drifts between them. CPU is user and system time of the server's processes.

use std::time::{Duration, Instant};

use satcast_tests::encoder::Publish;
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
    let (repeats, window) = options();
    let source = Source::shared();
    println!(
        "one stream of 3 Mbit/s, {repeats} repeats of {} s; CPU seconds for each stream-minute",
        window.as_secs()
    );
    println!("{:>12}  {:>28}  {:>28}  {:>24}", "destinations", "satcast", "nginx-rtmp", "ratio");
    for destinations in DESTINATIONS {
        let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for repeat in 0..repeats {
            // The order changes, so that neither always finds the warmer machine.
            let (mine, peer) = if repeat % 2 == 0 {
                let mine = satcast(&source, destinations, window);
                (mine, nginx(&source, destinations, window))
            } else {
                let peer = nginx(&source, destinations, window);
                (satcast(&source, destinations, window), peer)
            };
            ours.push(mine);
            theirs.push(peer);
            ratios.push(mine / peer);
        }
        println!(
            "{destinations:>12}  {:>28}  {:>28}  {:>24}",
            summary(&mut ours),
            summary(&mut theirs),
            summary(&mut ratios)
        );
    }
}

/// `--repeats N` and `--seconds S`; cargo's own `--bench` is passed over.
fn options() -> (usize, Duration) {
    let (mut repeats, mut window) = (REPEATS, WINDOW_SECONDS);
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    while let Some(argument) = arguments.next() {
        let value = arguments.next().and_then(|value| value.parse().ok()).filter(|value| *value > 0);
        match (argument.as_str(), value) {
            ("--repeats", Some(value)) => repeats = usize::try_from(value).unwrap_or(REPEATS),
            ("--seconds", Some(value)) => window = value,
            _ => panic!("cannot read {argument}; the options are --repeats N and --seconds S"),
        }
    }
    (repeats, seconds(window))
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

/// Median, least and greatest.
fn summary(values: &mut [f64]) -> String {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let median = if values.len().is_multiple_of(2) {
        (values[middle - 1] + values[middle]) / 2.0
    } else {
        values[middle]
    };
    format!("{median:.3} ({:.3}-{:.3})", values[0], values[values.len() - 1])
}
