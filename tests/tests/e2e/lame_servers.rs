//! Servers that die, stall or refuse: each affects only its own destination, which recovers without help.

use std::io::Read as _;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use satcast_tests::encoder::Publish;
use satcast_tests::record::{assert_complete, assert_run_from_keyframe};
use satcast_tests::said;
use satcast_tests::service::Setup;
use satcast_tests::sink::{Behaviour, Sink};
use satcast_tests::source::Source;
use satcast_tests::wait::{self, seconds};

/// Longest time until a server that takes nothing is shown as stalled: five seconds, one check, and the first media before them.
const STALLED_WAIT_MAX: Duration = Duration::from_secs(12);
/// Time for which the encoder is suspended; it then sends the missed media at once.
const STALL: Duration = Duration::from_secs(12);
/// The missed media, and six seconds more.
const CAUGHT_UP_PACKETS: usize = 1_390;
/// Far above the memory of one stream, far below that of an unbounded queue.
const RESIDENT_KIB_MAX: u64 = 256 * 1024;

#[test]
fn a_dead_and_a_stalled_server_harm_no_others() {
    let source = Source::shared();
    let healthy = Sink::recording();
    let mut dying = Sink::recording();
    let stalling = Sink::start(Behaviour::Stall);
    let service = Setup::default().set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "2").start();
    let api = service.api();
    let stream = api.create_stream("lame servers");
    let to_healthy = api.add_destination(&stream, &healthy.url(), "healthy");
    let to_dying = api.add_destination(&stream, &dying.url(), "dying-secret-key");
    let to_stalling = api.add_destination(&stream, &stalling.url(), "stalling");
    let (silent, resetting) = (listener(false), listener(true));
    let refusing = Sink::start(refusal("NetStream.Publish.Rejected", "not today"));
    let worse = [
        (format!("rtmp://{silent}/app"), said::NOT_ACCEPTED_IN_TIME),
        (format!("rtmp://{resetting}/app"), said::CONNECTION_CLOSED),
        ("rtmp://no-such-host.invalid/app".to_owned(), said::NAME_UNKNOWN),
        ("rtmp://127.0.0.1:1/app".to_owned(), said::CONNECTION_REFUSED),
        (refusing.url(), "not today"),
    ]
    .map(|(url, words)| (api.add_destination(&stream, &url, "other-secret-key"), words));

    let mut encoder = Publish::until_end(&source).to(&service.ingest_url(&stream.key));
    dying.wait_for_media(200);
    api.wait_for_destination(&stream, to_dying, "live");

    let shown = wait::within_api("the stalled server to be shown", STALLED_WAIT_MAX, || {
        let shown = api.destination(&stream, to_stalling);
        let is_shown = shown["state"] != "live" && shown["error"].is_string();
        if is_shown { Ok(shown) } else { Err(shown.to_string()) }
    });
    assert!(shown["error"].as_str().is_some_and(|error| error.contains(said::TAKES_NOTHING)), "{shown}");

    dying.kill();
    let retrying = api.wait_for_destination(&stream, to_dying, "retrying");
    assert!(retrying["attempt"].as_i64() >= Some(1), "{retrying}");
    let live_since = api.destination(&stream, to_healthy)["liveSince"].as_i64();
    assert!(live_since.is_some(), "the healthy server is live");
    assert!(retrying["nextRetryAt"].as_i64() > live_since, "{retrying}");
    let error = retrying["error"].as_str().expect("the error says what happened");
    assert!(!error.is_empty() && !error.contains("dying-secret-key"), "{error}");

    dying.restart();
    let again = api.wait_for_destination(&stream, to_dying, "live");
    assert!(again["nextRetryAt"].is_null() && again["error"].is_null(), "{again}");

    wait::until_api("the stalled server to be noticed", || {
        let shown = api.destination(&stream, to_stalling);
        if shown["droppedPackets"].as_i64() > Some(0) { Ok(()) } else { Err(shown.to_string()) }
    });
    assert_eq!(api.destination(&stream, to_healthy)["droppedPackets"], 0);
    for (id, words) in worse {
        // Between two attempts the reason of the last failure stays.
        wait::until_api(words, || {
            let shown = api.destination(&stream, id);
            let is_said = shown["error"].as_str().is_some_and(|error| error.contains(words));
            if is_said && shown["state"] != "live" { Ok(()) } else { Err(shown.to_string()) }
        });
    }

    let sent = encoder.end();
    api.wait_for_stream(&stream, "idle");
    healthy.wait_until_left();
    assert_run_from_keyframe("the restarted server", &sent, &dying.records_of(dying.publishes()));
    assert_complete("the healthy server", &sent, &healthy.records());
    assert_eq!(healthy.publishes(), 1);
    let resident = service.process().resident_kib();
    assert!(resident < RESIDENT_KIB_MAX, "the service holds {resident} KiB");
    service.assert_not_logged(&[
        ("the key of a destination", "dying-secret-key"),
        ("the key of a destination", "other-secret-key"),
    ]);
}

/// A port that accepts connections and never answers, or that resets them by closing with unread bytes.
fn listener(resets: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for mut socket in listener.incoming().map_while(Result::ok) {
            if resets {
                let _ = socket.read(&mut [0]);
            } else {
                held.push(socket);
            }
        }
    });
    address
}

#[test]
fn a_slow_server_loses_packets_alone() {
    let source = Source::shared();
    let healthy = Sink::recording();
    // 100 kbit/s, far below the stream.
    let slow = Sink::start(Behaviour::Slow(12_500));
    let service = Setup::default().set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "2").start();
    let api = service.api();
    let stream = api.create_stream("slow");
    let to_healthy = api.add_destination(&stream, &healthy.url(), "healthy");
    let to_slow = api.add_destination(&stream, &slow.url(), "slow");

    let mut encoder = Publish::until_end(&source).to(&service.ingest_url(&stream.key));
    api.wait_for_destination(&stream, to_slow, "live");
    wait::until_api("packets to be dropped", || {
        let shown = api.destination(&stream, to_slow);
        if shown["droppedPackets"].as_i64() > Some(0) { Ok(()) } else { Err(shown.to_string()) }
    });
    let shown = api.destination(&stream, to_slow);
    assert_eq!(shown["state"], "live", "a server that reads slowly was reconnected: {shown}");
    // The reason appears with the next check.
    let error = shown["error"].as_str();
    assert!(error.is_none_or(|error| error.contains(said::TAKES_LESS)), "{shown}");
    assert_eq!(api.destination(&stream, to_healthy)["droppedPackets"], 0);

    let sent = encoder.end();
    api.wait_for_stream(&stream, "idle");
    healthy.wait_until_left();
    assert_complete("the healthy server", &sent, &healthy.records());
    // Dropped packets are not sent after the end.
    wait::within("the end of the slow connection", seconds(60), || slow.left());
}

#[test]
fn an_encoder_that_catches_up_loses_no_packet() {
    let source = Source::shared();
    let sink = Sink::recording();
    let service = Setup::default().set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "2").start();
    let api = service.api();
    let stream = api.create_stream("caught up");
    let id = api.add_destination(&stream, &sink.url(), "copy");
    let mut encoder = Publish::until_end(&source).to(&service.ingest_url(&stream.key));
    sink.wait_for_media(300);
    encoder.freeze();
    std::thread::sleep(STALL);
    let before = sink.wait_for_media(0);
    encoder.thaw();
    sink.wait_for_media(before + CAUGHT_UP_PACKETS);
    let sent = encoder.end();
    api.wait_for_stream(&stream, "idle");
    sink.wait_until_left();
    assert_complete("the server", &sent, &sink.records());
    assert_eq!(api.destination(&stream, id)["droppedPackets"], 0);
}

#[test]
fn a_server_that_refuses_is_shown_and_retried_slowly() {
    let source = Source::shared();
    let denying = Sink::start(refusal("NetStream.Publish.Denied", "key is not known here"));
    // The answer of a server that still holds the connection from before a break.
    let taken = Sink::start(refusal("NetStream.Publish.BadName", "already publishing"));
    let healthy = Sink::recording();
    let service = Setup::default().start();
    let api = service.api();
    let stream = api.create_stream("refused");
    let to_denying = api.add_destination(&stream, &denying.url(), "wrong-secret-key");
    let to_taken = api.add_destination(&stream, &taken.url(), "taken-secret-key");
    api.add_destination(&stream, &healthy.url(), "right");

    let _encoder = Publish::of(&source).to(&service.ingest_url(&stream.key));
    let shown = api.wait_for_destination(&stream, to_denying, "retrying");
    let error = shown["error"].as_str().expect("the error says what happened");
    assert!(error.contains("NetStream.Publish.Denied") && !error.contains("wrong-secret-key"), "{error}");
    let started = api.wait_for_stream(&stream, "live")["startedAt"].as_i64().expect("a start");
    // A refused login is not retried within a minute. Half a minute allows for the time that has passed already.
    assert!(shown["nextRetryAt"].as_i64() > Some(started + 30_000), "{shown}");

    let shown = api.wait_for_destination(&stream, to_taken, "retrying");
    assert!(shown["nextRetryAt"].as_i64() > Some(started + 2_000), "{shown}");
    wait::until("a second attempt with the name in use", || match taken.attempts() {
        0 | 1 => Err("none".to_owned()),
        _ => Ok(()),
    });
    healthy.wait_for_media(300);
    assert_eq!((denying.attempts(), healthy.publishes()), (1, 1));
    service.assert_not_logged(&[
        ("the key of a destination", "wrong-secret-key"),
        ("the key of a destination", "taken-secret-key"),
    ]);
}

fn refusal(code: &'static str, description: &'static str) -> Behaviour {
    Behaviour::Refuse { code, description }
}
