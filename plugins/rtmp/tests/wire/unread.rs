//! Servers that accept and then do not read: never live, or at most once.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use satcast_driver_rtmp::timing::Timing;
use satcast_driver_rtmp::{Rtmp, refusal};
use satcast_plugin_api::driver::{BATCH_PACKETS_MAX, State};
use satcast_plugin_api::recording::About;
use satcast_plugin_api::testkit::{self, TestDestination};
use satcast_plugin_api::{Class, Codec, Error};
use serde_json::json;

use crate::refusals::{KEY, failure};
use crate::server::{QUICK, Quick, Server};

/// A server that accepts and then never reads; it ends when the sender is dropped.
fn deaf() -> (Server, mpsc::Sender<()>) {
    let (done, ended) = mpsc::channel::<()>();
    let server = Server::start(move |conn| {
        conn.accept();
        // An error is the expected end: the sender is dropped.
        let _ = ended.recv();
    });
    (server, done)
}

/// Pushes more than the socket buffers of loopback hold.
fn push_bulk(dest: &TestDestination, count: u64) {
    let payload = Bytes::from(vec![7; 64 * 1024]);
    for index in 0..count {
        dest.push(testkit::media(Codec::H264, index, index as i64, index == 0, payload.clone()));
    }
}

/// Whether it was reported live, however briefly.
fn was_live(dest: &TestDestination) -> bool {
    dest.report(|report| report.states.iter().any(|(state, _)| *state == State::Live))
}

fn wait_until_sent(dest: &TestDestination, bytes: u64) {
    let until = Instant::now() + testkit::WAIT_MAX;
    while dest.counter("bytes_sent") < bytes && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(dest.counter("bytes_sent") >= bytes);
}

#[test]
fn a_server_that_never_reads_is_never_live_and_given_up() {
    let kit = kit!(Quick);
    let (server, done) = deaf();
    let dest = kit.open("rtmp", &json!({ "url": server.url("/live"), "key": KEY })).unwrap();
    push_bulk(&dest, 1000);
    assert!(dest.wait_for_state(State::Connecting), "with a reason");
    let leased = dest.leased_packets();
    assert!((1..=BATCH_PACKETS_MAX as u64).contains(&leased), "the host's queue keeps the rest: {leased}");
    assert_eq!(failure(&dest), refusal::does_not_read(&server.target(), false));
    assert!(dest.counter("bytes_sent") > 0, "its system took some bytes");
    dest.report(|report| {
        let reasons: Vec<_> = report.states.iter().map(|(_, reason)| reason.as_ref()).collect();
        assert_eq!(reasons.len(), 1, "{report:?}");
        assert_eq!(reasons[0], Some(&refusal::stalled(&server.target(), false)));
    });
    assert!(!was_live(&dest));
    drop(done);
    server.finish();
}

#[test]
fn a_thin_stream_to_a_server_that_never_reads_is_live_once_and_not_at_each_attempt() {
    let kit = kit!(Quick);
    let about = About { destination_id: 7, session_id: "one".into(), ..About::default() };
    let other = About { session_id: "two".into(), ..about.clone() };
    for (about, is_live) in [(&about, true), (&about, false), (&about, false), (&other, true)] {
        let (server, done) = deaf();
        let config = json!({ "url": server.url("/live"), "key": KEY });
        let dest = kit.open_for(about, "rtmp", &config).unwrap();
        let mut thin = Thin::new(100);
        if is_live {
            // Its system takes everything, and nothing else is known. Less than any system buffers for a program that
            // does not read.
            thin.push_until(&dest, 60_000, &|| was_live(&dest));
        } else {
            thin.push_until(&dest, 10_000, &|| false);
        }
        push_bulk(&dest, 100);
        assert_eq!(failure(&dest), refusal::does_not_read(&server.target(), false));
        assert_eq!(was_live(&dest), is_live);
        drop(done);
        server.finish();
    }
    let server = Server::healthy();
    let dest = kit.open_for(&about, "rtmp", &json!({ "url": server.url("/live"), "key": KEY })).unwrap();
    push_bulk(&dest, 100);
    assert!(dest.wait_for_state(State::Live), "it reads and acknowledges again");
    dest.stop();
    dest.wait_for_end().unwrap();
    server.finish();
}

/// An audio stream, a hundred packets per second.
struct Thin {
    packet: Bytes,
    index: u64,
}

impl Thin {
    fn new(bytes: usize) -> Self {
        Thin { packet: vec![7; bytes].into(), index: 0 }
    }

    /// Pushes until `done` or until this many bytes.
    fn push_until(&mut self, dest: &TestDestination, bytes: usize, done: &dyn Fn() -> bool) {
        let last = self.index + (bytes / self.packet.len()) as u64;
        while self.index < last && !done() {
            let packet = self.packet.clone();
            dest.push(testkit::media(Codec::Aac, self.index, 10 * self.index as i64, true, packet));
            self.index += 1;
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_server_without_acknowledgements_is_live() {
    let kit = kit!(Rtmp);
    let server = Server::start(|conn| {
        conn.accept();
        conn.drain();
    });
    let dest = kit.open("rtmp", &json!({ "url": server.url("/live"), "key": KEY })).unwrap();
    push_bulk(&dest, 10);
    assert!(dest.wait_for_state(State::Live));
    dest.stop();
    dest.wait_for_end().unwrap();
    server.finish();
}

#[test]
fn a_stop_does_not_wait_for_a_server_that_never_reads() {
    let kit = kit!(Rtmp);
    let (server, done) = deaf();
    let dest = kit.open("rtmp", &json!({ "url": server.url("/live"), "key": KEY })).unwrap();
    push_bulk(&dest, 1000);
    wait_until_sent(&dest, 64 * 1024);
    std::thread::sleep(Duration::from_millis(200));
    let asked = Instant::now();
    dest.stop();
    let error = failure(&dest);
    assert!(
        asked.elapsed() < Timing::default().unread_max,
        "the stop waits until the connection is given up"
    );
    let left = error.message.split(' ').find_map(|word| word.parse().ok()).filter(|left| *left > 0);
    assert_eq!(error, refusal::not_taken(&server.target(), left.unwrap()));
    drop(done);
    server.finish();
}

#[test]
fn a_server_that_reads_in_rare_bursts_is_reported_as_slow() {
    let kit = kit!(Quick);
    let (done, ended) = mpsc::channel::<()>();
    let server = Server::start(move |conn| {
        conn.accept();
        conn.until(|seen| !seen.packets.is_empty());
        let mut block = vec![0; 1024 * 1024];
        // Longer than a stall, shorter than the time after which the connection is given up.
        let pause = QUICK.stalled + Duration::from_millis(400);
        while ended.recv_timeout(pause) == Err(mpsc::RecvTimeoutError::Timeout) {
            assert!(conn.stream.read(&mut block).unwrap() > 0);
        }
    });
    let dest = kit.open("rtmp", &json!({ "url": server.url("/live"), "key": KEY })).unwrap();
    push_bulk(&dest, 2000);
    assert!(dest.wait_for_state(State::Live), "it reads");
    let slow = refusal::slow(&server.target());
    // That the state stays is tested with a simulated clock: `watch::tests`.
    let until = Instant::now() + testkit::WAIT_MAX;
    while !said(&dest).contains(&slow) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(said(&dest)[0], refusal::stalled(&server.target(), false));
    assert!(said(&dest).contains(&slow));
    drop(done);
    server.finish();
    assert_eq!(failure(&dest).class, Class::Remote);
}

/// The reasons for not being live.
fn said(dest: &TestDestination) -> Vec<Error> {
    dest.report(|report| report.states.iter().filter_map(|(_, reason)| reason.clone()).collect())
}

#[test]
fn a_thin_stream_is_not_live_when_its_server_stops_reading_but_its_system_does_not() {
    let kit = kit!(Quick);
    let (stop, stopped) = mpsc::channel();
    let (done, ended) = mpsc::channel::<()>();
    let server = Server::start(move |conn| {
        conn.accept();
        while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) && conn.read() {}
        // An error is the expected end: the sender is dropped.
        let _ = ended.recv();
    });
    let dest = kit.open("rtmp", &json!({ "url": server.url("/live"), "key": KEY })).unwrap();
    // Too thin for another interval to be requested.
    let mut thin = Thin::new(120);
    thin.push_until(&dest, 60_000, &|| false);
    assert!(dest.wait_for_state(State::Live));
    stop.send(()).unwrap();
    let silent = refusal::stalled(&server.target(), true);
    // Less than any system buffers for a program that does not read.
    thin.push_until(&dest, 60_000, &|| said(&dest).contains(&silent));
    assert!(said(&dest).contains(&silent));
    drop(done);
    server.finish();
    dest.stop();
    let _ = failure(&dest);
}
