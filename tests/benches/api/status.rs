//! The status of a stream that is live and of one that is not, beside the bare handler.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use satcast_tests::api::key_like;
use satcast_tests::crowd::{Crowd, Paths};
use satcast_tests::database::Database;
use satcast_tests::encoder::Publish;
use satcast_tests::figures::{Options, Pairs};
use satcast_tests::hosted::{Hosted, STATUS};
use satcast_tests::ports::Port;
use satcast_tests::process::Process;
use satcast_tests::service::{Service, Setup};
use satcast_tests::source::Source;
use satcast_tests::wait::{self, seconds};

use super::peer;

/// Connections that poll.
const POLLERS: usize = 32;
/// Keys of one repeat. A page polls about once a second, so each key is asked many times, and never more than the 60 times a
/// minute that it may.
const KEYS: usize = 6_000;
/// From the first request to the beginning of the window.
const WARM_UP: Duration = Duration::from_secs(1);
/// Longest wait for the stream to be ready.
const READY_LIMIT: Duration = Duration::from_secs(30);

pub(crate) fn run(options: Options) {
    println!(
        "status, {POLLERS} connections, {} repeats of {} s; thousand answers for each CPU second; median (range)",
        options.repeats,
        options.window.as_secs()
    );
    println!("{:>12}  {:>28}  {:>28}  {:>24}", "stream", "satcast", "bare poem handler", "ratio");
    for live in [false, true] {
        let service = Setup::default().start();
        let hosted = Hosted::new(&service, "bench");
        let paths = paths(&service, &hosted, options.repeats);
        let source = Source::shared();
        let _encoder = live.then(|| {
            let encoder = Publish::of(&source).endless().to(&service.ingest_url(&hosted.stream.key));
            hosted.ready(READY_LIMIT);
            encoder
        });
        let answer = hosted.status().to_string();
        let mut pairs = Pairs::default();
        for (repeat, paths) in paths.iter().enumerate() {
            pairs.measure(
                repeat,
                || measure(service.process(), split(&service.base()), paths, options.window),
                || bare(&answer, paths, options.window),
            );
        }
        let [ours, theirs, ratio] = pairs.summaries();
        let name = if live { "live" } else { "offline" };
        println!("{name:>12}  {ours:>28}  {theirs:>28}  {ratio:>24}");
    }
}

/// The status with as many keys as no real destination has, others for each repeat.
fn paths(service: &Service, hosted: &Hosted, repeats: usize) -> Vec<Paths> {
    let keys: Vec<String> = (0..KEYS * repeats).map(|number| key_like("pk_", number)).collect();
    Database::of(service.folder()).add_public_keys(hosted.destination, &keys);
    let path = |key: &String| format!("{STATUS}?apiKey={key}");
    keys.chunks(KEYS).map(|keys| Arc::new(RwLock::new(keys.iter().map(path).collect()))).collect()
}

fn split(base: &str) -> std::net::SocketAddr {
    base.trim_start_matches("http://").parse().expect("an address")
}

fn bare(answer: &str, paths: &Paths, window: Duration) -> f64 {
    let port = Port::lease();
    let folder = tempfile::tempdir().expect("a folder for the log");
    let command = peer::command(port.address().port(), answer);
    let peer = Process::start("the bare handler", command, &folder.path().join("log"));
    wait::until("the bare handler", seconds(10), || {
        std::net::TcpStream::connect(port.address()).map(drop).map_err(|error| error.to_string())
    });
    measure(&peer, port.address(), paths, window)
}

/// Thousand answers for each second of the server's CPU, none of which was an error.
fn measure(server: &Process, address: std::net::SocketAddr, paths: &Paths, window: Duration) -> f64 {
    let crowd = Crowd::start(address, POLLERS, paths);
    std::thread::sleep(WARM_UP);
    let (cpu, answers, began) = (server.cpu(), crowd.answers(), Instant::now());
    std::thread::sleep(window.saturating_sub(began.elapsed()));
    let (cpu, answers) = (server.cpu() - cpu, crowd.answers() - answers);
    assert_eq!(crowd.failures(), 0, "every answer is 200");
    assert!(answers > 0, "nothing was answered");
    answers as f64 / 1_000.0 / cpu.as_secs_f64()
}
