//! Servers that accept and then do not read: never live, or not twice.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use satcast_driver_rtmp::{Rtmp, refusal};
use satcast_plugin_api::driver::{BATCH_PACKETS_MAX, State};
use satcast_plugin_api::recording::About;
use satcast_plugin_api::testkit::{self, TestDestination};
use satcast_plugin_api::{Class, Codec};
use serde_json::json;

use crate::refusals::{KEY, failure};
use crate::server::{QUICK, Quick, Server};

/// A server that accepts and then never reads; it goes when the sender is dropped.
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
    push(dest, count, 64 * 1024);
}

fn push(dest: &TestDestination, count: u64, bytes: usize) {
    let payload = Bytes::from(vec![7; bytes]);
    for index in 0..count {
        dest.push(testkit::media(Codec::H264, index, index as i64, index == 0, payload.clone()));
    }
}

/// Whether it was reported live, however shortly.
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
    assert!(dest.wait_for_state(State::Connecting), "and it is said why");
    let leased = dest.leased_packets();
    assert!((1..=BATCH_PACKETS_MAX as u64).contains(&leased), "the host's queue keeps the rest: {leased}");
    assert_eq!(failure(&dest), refusal::does_not_read(&server.target(), false));
    assert!(dest.counter("bytes_sent") > 0, "its system took some");
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
fn a_thin_stream_to_a_server_that_never_reads_is_live_once_and_not_at_each_try() {
    let kit = kit!(Quick);
    let about = About { destination_id: 7, session_id: "one".into(), ..About::default() };
    let other = About { session_id: "two".into(), ..about.clone() };
    for (about, is_live) in [(&about, true), (&about, false), (&about, false), (&other, true)] {
        let (server, done) = deaf();
        let config = json!({ "url": server.url("/live"), "key": KEY });
        let dest = kit.open_for(about, "rtmp", &config).unwrap();
        push(&dest, 30, 500);
        if is_live {
            assert!(dest.wait_for_state(State::Live), "its system took all, and nothing else is known");
        } else {
            wait_until_sent(&dest, 30 * 500);
            std::thread::sleep(Duration::from_millis(400));
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
    assert!(dest.wait_for_state(State::Live), "it reads again, and says so");
    dest.stop();
    dest.wait_for_end().unwrap();
    server.finish();
}

#[test]
fn a_server_that_says_nothing_of_what_it_reads_is_live_all_the_same() {
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
    assert!(asked.elapsed() < Duration::from_millis(1900), "{:?}", asked.elapsed());
    let left = error.message.split(' ').find_map(|word| word.parse().ok()).filter(|left| *left > 0);
    assert_eq!(error, refusal::not_taken(&server.target(), left.unwrap()));
    drop(done);
    server.finish();
}

#[test]
fn a_server_that_reads_a_lump_now_and_then_is_shown_in_one_state_with_the_reason() {
    const LUMPS: usize = 5;
    let kit = kit!(Quick);
    let (lump, lumps) = mpsc::channel();
    let server = Server::start(move |conn| {
        conn.accept();
        conn.until(|seen| !seen.packets.is_empty());
        let mut block = vec![0; 1024 * 1024];
        for _ in 0..LUMPS {
            // Longer than a stall, shorter than what it is given up for.
            std::thread::sleep(QUICK.stalled + Duration::from_millis(400));
            let _ = lump.send(conn.stream.read(&mut block).unwrap());
        }
    });
    let dest = kit.open("rtmp", &json!({ "url": server.url("/live"), "key": KEY })).unwrap();
    push_bulk(&dest, 2000);
    assert!(dest.wait_for_state(State::Live), "it reads");
    let read: Vec<usize> = lumps.iter().collect();
    assert!(read.len() == LUMPS && read.iter().all(|bytes| *bytes > 0), "{read:?}");
    let target = server.target();
    server.finish();
    let error = failure(&dest);
    assert_eq!(error.class, Class::Remote, "{error}");
    dest.report(|report| {
        let states: Vec<_> = report.states.iter().map(|(state, _)| *state).collect();
        assert_eq!(states, [State::Live, State::Connecting, State::Connecting], "{report:?}");
        assert_eq!(report.states[1].1, Some(refusal::stalled(&target, false)));
        assert_eq!(report.states[2].1, Some(refusal::slow(&target)));
    });
}

#[test]
fn a_thin_stream_is_not_live_when_its_server_stops_reading_and_its_system_does_not() {
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
    let sound = Bytes::from(vec![7; 400]);
    let mut index = 0;
    // 40 kB a second, until `done` or so many bytes.
    let mut push_until = |bytes: u64, done: &dyn Fn() -> bool| {
        let last = index + bytes / 400;
        while index < last && !done() {
            dest.push(testkit::media(Codec::Aac, index, 10 * index as i64, true, sound.clone()));
            index += 1;
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    push_until(40_000, &|| false);
    assert!(dest.wait_for_state(State::Live));
    stop.send(()).unwrap();
    let is_waiting =
        || dest.report(|report| report.states.last().is_some_and(|(state, _)| *state != State::Live));
    // Less than any system keeps for a program that does not read.
    push_until(60_000, &is_waiting);
    assert!(is_waiting());
    dest.report(|report| {
        assert_eq!(report.states.last().unwrap().1, Some(refusal::stalled(&server.target(), false)));
    });
    drop(done);
    server.finish();
    dest.stop();
    let _ = failure(&dest);
}
