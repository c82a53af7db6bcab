//! Wrong keys and hostile bytes are refused, leave no secret in the log, and disturb no other stream.

use satcast_tests::caller::{self, Call, Outcome};
use satcast_tests::encoder::Publish;
use satcast_tests::record::assert_complete;
use satcast_tests::said;
use satcast_tests::service::{Service, Setup};
use satcast_tests::sink::Sink;
use satcast_tests::source::Source;
use satcast_tests::wait::seconds;

/// Longest time that the service may wait for a peer without progress; its own limit for a handshake is 10 s.
const PATIENCE_SECONDS: u64 = 30;
const WRONG_KEY: &str = "live_0123456789abcdefghijklmnopqrstuv";

#[test]
fn hostile_peers_are_refused_while_others_stream() {
    let source = Source::shared();
    let sink = Sink::recording();
    let mut service = Setup::default().set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "2").start();
    let api = service.api();
    let stream = api.create_stream("untouched");
    let destination_key = "destination-secret";
    api.add_destination(&stream, &sink.url(), destination_key);
    let mut encoder = Publish::until_end(&source).to(&service.ingest_url(&stream.key));
    sink.wait_for_media(100);

    let address = service.rtmp_address();
    let slow = std::thread::spawn(move || caller::trickle(address, seconds(PATIENCE_SECONDS)));
    let silent = std::thread::spawn(move || caller::closed_after(address, b"", seconds(PATIENCE_SECONDS)));
    wrong_keys_are_refused(&service, &source);
    second_publisher_is_refused(&service, &stream.key);
    broken_bytes_are_refused(&service);
    let took = slow.join().expect("the slow handshake was cut off");
    println!("a handshake of a byte at a time was cut off after {took:?}");
    let took = silent.join().expect("the silent connection was cut off");
    println!("a silent connection was cut off after {took:?}");

    let sent = encoder.end();
    api.wait_for_stream(&stream, "idle");
    sink.wait_until_left();
    assert_complete("the other stream's server", &sent, &sink.records());
    service.assert_running();
    let log = service.log();
    for reason in said::REFUSED_PUBLISHERS {
        let line = log.lines().find(|line| line.contains(reason));
        assert!(
            line.is_some_and(|line| line.contains("peer=")),
            "no log line has \"{reason}\" and the name of the driver"
        );
    }
    service.assert_not_logged(&[
        ("the stream key", &stream.key),
        ("a wrong stream key", WRONG_KEY),
        ("a key hidden in the app", "app-secret"),
        ("the API key", service.key()),
        ("the key of a destination", destination_key),
    ]);
}

fn wrong_keys_are_refused(service: &Service, source: &Source) {
    for (app, key) in
        [("live", WRONG_KEY), ("live", ""), ("live/app-secret", "x"), ("live", "a?key=app-secret")]
    {
        let (_, outcome) = Call::publish(service.rtmp_address(), app, key);
        let Outcome::Rejected { code, description } = outcome else {
            panic!("a publish with a wrong key ended as {outcome:?}");
        };
        assert!(code.starts_with("NetStream.Publish."), "{code}");
        assert!(!description.is_empty() && !description.contains(WRONG_KEY), "{description}");
        assert!(!description.contains("secret"), "{description}");
    }
    let mut encoder = Publish::of(source).to(&service.ingest_url(WRONG_KEY));
    assert!(!encoder.wait(seconds(60)).success(), "ffmpeg published with a wrong key");
}

fn second_publisher_is_refused(service: &Service, stream_key: &str) {
    let (_, outcome) = Call::publish(service.rtmp_address(), "live", stream_key);
    let Outcome::Rejected { code, description } = outcome else {
        panic!("a second publish ended as {outcome:?}")
    };
    assert_eq!(code, "NetStream.Publish.BadName");
    assert!(description.to_lowercase().contains("already"), "{description}");
}

fn broken_bytes_are_refused(service: &Service) {
    let address = service.rtmp_address();
    let limit = seconds(PATIENCE_SECONDS);
    let garbage: Vec<u8> =
        (0..100_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut after_handshake = caller::handshake();
    after_handshake.extend(&garbage);
    for (what, bytes) in [
        ("an HTTP request", b"GET /api/streams HTTP/1.1\r\nHost: satcast\r\n\r\n".to_vec()),
        ("a TLS greeting", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec()),
        ("garbage", garbage),
        ("garbage after a handshake", after_handshake),
        ("objects nested 20,000 deep", caller::deep_connect(20_000)),
    ] {
        let took = caller::closed_after(address, &bytes, limit);
        println!("{what}: closed after {took:?}");
    }
}
