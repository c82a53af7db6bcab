//! The status of a stream that is live and of one that is not, beside the bare handler.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use satcast_tests::api::key_like;
use satcast_tests::crowd::{Crowd, Paths};
use satcast_tests::database::Database;
use satcast_tests::encoder::Publish;
use satcast_tests::figures::results::{OURS, Results};
use satcast_tests::figures::{Options, turns};
use satcast_tests::hosted::{Hosted, STATUS};
use satcast_tests::http::split_url;
use satcast_tests::peer::Peer;
use satcast_tests::process::Process;
use satcast_tests::service::{Service, Setup};
use satcast_tests::source::Source;

const SIDES: [&str; 2] = [OURS, "poem"];
/// Connections that poll.
const POLLERS: usize = 32;
/// Keys of one repeat. A page polls about once a second, so each key is asked many times, and never more than the 60 times a
/// minute that it may: enough for 85,000 answers a second with the default window.
const KEYS: usize = 13_000;
/// From the first request to the beginning of the window.
const WARM_UP: Duration = Duration::from_secs(1);

pub(crate) fn run(options: Options, live: bool, results: &mut Results) {
    let row = if live { "status live" } else { "status offline" };
    let service = Setup::default().start();
    let hosted = Hosted::new(&service, "bench");
    let paths = paths(&service, &hosted, options.repeats);
    let source = Source::shared();
    let _encoder = live.then(|| {
        let encoder = Publish::of(&source).endless().to(&service.ingest_url(&hosted.stream.key));
        hosted.ready();
        encoder
    });
    let answer = hosted.status().to_string();
    for (repeat, paths) in paths.iter().enumerate() {
        for side in turns(repeat, SIDES.len()).map(|turn| SIDES[turn]) {
            println!("{row}, repeat {}: {side}", repeat + 1);
            let rate = if side == OURS {
                measure(service.process(), split_url(&service.base()).0, paths, options.window)
            } else {
                let peer = Peer::start("the bare handler", &answer);
                measure(peer.process(), peer.address(), paths, options.window)
            };
            results.note(row, "kanswers_per_cpu_s", side, repeat, rate);
        }
    }
}

/// The status with as many keys as no real destination has, others for each repeat.
fn paths(service: &Service, hosted: &Hosted, repeats: usize) -> Vec<Paths> {
    let keys: Vec<String> = (0..KEYS * repeats).map(|number| key_like("pk_", number)).collect();
    Database::of(service.folder()).add_public_keys(hosted.destination, &keys);
    let path = |key: &String| format!("{STATUS}?apiKey={key}");
    keys.chunks(KEYS).map(|keys| Arc::new(RwLock::new(keys.iter().map(path).collect()))).collect()
}

/// Thousand answers for each second of the server's CPU, none of which was an error.
fn measure(server: &Process, address: SocketAddr, paths: &Paths, window: Duration) -> f64 {
    let crowd = Crowd::start(address, POLLERS, paths);
    std::thread::sleep(WARM_UP);
    let (cpu, answers, began) = (server.cpu(), crowd.answers(), Instant::now());
    std::thread::sleep(window.saturating_sub(began.elapsed()));
    let (cpu, answers) = (server.cpu() - cpu, crowd.answers() - answers);
    assert_eq!(crowd.failures(), 0, "every answer is 200");
    assert!(answers > 0, "nothing was answered");
    answers as f64 / 1_000.0 / cpu.as_secs_f64()
}
