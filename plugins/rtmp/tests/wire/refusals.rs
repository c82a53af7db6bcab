//! Servers that refuse, disconnect, stall or send garbage, and configurations that are refused.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::server::{QUICK, Quick, Server, push_all, stream};
use satcast_driver_rtmp::target::{Target, TargetError};
use satcast_driver_rtmp::timing::Timing;
use satcast_driver_rtmp::{Rtmp, refusal};
use satcast_plugin_api::testkit::{self, TestDestination};
use satcast_plugin_api::{Class, Error};
use serde_json::json;

pub(crate) const KEY: &str = "live_sesame9876543210";

/// Waits for the end and checks the rules for every failure.
pub(crate) fn failure(dest: &TestDestination) -> Error {
    let error = dest.wait_for_end().unwrap_err();
    assert_eq!(dest.leased_packets(), 0, "{error}");
    assert!(!error.message.contains(KEY) && !error.message.contains("sesame"), "{error}");
    dest.report(|report| {
        assert_eq!(report.ends, 1);
        assert!(!format!("{report:?}").contains("sesame"), "{report:?}");
    });
    testkit::assert_not_logged("sesame");
    error
}

#[test]
fn a_refused_publish_is_for_the_owner_to_fix() {
    let kit = kit!(Rtmp);
    for (code, description) in [
        ("NetStream.Publish.Rejected", "no live_sesame9876543210?sig=hunter2 here"),
        ("NetStream.Publish.Denied", "sesame987654321 is no key"),
        ("NetStream.Publish.Unauthorized", ""),
    ] {
        let server = Server::start(move |conn| {
            let id = conn.requested();
            conn.session.reject_publish(id, code, description);
            conn.flush();
            conn.read_out();
        });
        let url = server.url(&format!("/live/{KEY}?sig=hunter2"));
        let dest = kit.open("rtmp", &json!({ "url": url })).unwrap();
        push_all(&dest, &stream(0, 10));
        let error = failure(&dest);
        assert_eq!((error.class, error.retry_after), (Class::Auth, Some(Duration::from_secs(60))), "{error}");
        assert!(error.message.contains(code), "{error}");
        assert!(!error.message.contains("hunter2"), "{error}");
        assert!(server.finish().packets.is_empty());
        dest.report(|report| assert!(report.states.is_empty(), "never live: {report:?}"));
    }
}

#[test]
fn a_name_in_use_is_retried_soon() {
    let kit = kit!(Rtmp);
    let server = Server::start(|conn| {
        let id = conn.requested();
        conn.session.reject_publish(
            id,
            "NetStream.Publish.BadName",
            "Already publishing live_sesame9876543210",
        );
        conn.flush();
        conn.read_out();
    });
    let dest = kit.open("rtmp", &json!({ "url": server.url("/live"), "key": KEY })).unwrap();
    let error = failure(&dest);
    assert_eq!((error.class, error.retry_after), (Class::Remote, Some(Duration::from_secs(10))), "{error}");
    assert!(error.message.contains("NetStream.Publish.BadName"), "{error}");
    server.finish();
}

#[test]
fn a_publish_ended_by_the_server_is_reported() {
    let kit = kit!(Rtmp);
    let why = "taken over";
    for (code, class) in [("NetStream.Publish.Denied", Class::Auth), ("NetStream.Failed", Class::Remote)] {
        let server = Server::start(move |conn| {
            conn.accept();
            conn.until(|seen| seen.packets.len() > 5);
            conn.session.end_publish(code, why);
            conn.flush();
            conn.read_out();
        });
        let dest = kit.open("rtmp", &json!({ "url": server.url("/live"), "key": KEY })).unwrap();
        push_all(&dest, &stream(0, 100));
        let error = failure(&dest);
        assert_eq!(error.class, class, "{error}");
        assert!(error.message.contains(why), "{error}");
        server.finish();
    }
}

/// The server closed the connection after it had accepted the stream, at once or, on a slow machine, later.
pub(crate) fn assert_closed(error: &Error, target: &Target) {
    let closed = refusal::closed(target);
    let soon = refusal::soon(target, closed.clone(), Duration::ZERO);
    assert!(*error == closed || *error == soon, "{error:?}");
}

#[test]
fn a_server_that_closes_is_a_remote_failure() {
    let kit = kit!(Rtmp);
    let at_once = Server::start(|_| {});
    let before_answer = Server::start(|conn| {
        conn.requested();
    });
    let later = Server::start(|conn| {
        conn.accept();
        conn.until(|seen| seen.packets.len() > 50);
    });
    for (server, early) in [(at_once, true), (before_answer, true), (later, false)] {
        let dest = kit.open("rtmp", &json!({ "url": server.url("/live"), "key": KEY })).unwrap();
        push_all(&dest, &stream(0, 500));
        let error = failure(&dest);
        match early {
            true => assert_eq!(error, refusal::closed_early(&server.target())),
            false => assert_closed(&error, &server.target()),
        }
        server.finish();
    }
}

#[test]
fn the_reason_of_a_server_that_closes_is_reported() {
    let kit = kit!(Rtmp);
    let server = Server::start(|conn| {
        conn.accept();
        conn.until(|seen| seen.packets.len() > 5);
        conn.session.end_publish("NetStream.Publish.Denied", "quota");
        conn.flush();
    });
    let dest = kit.open("rtmp", &json!({ "url": server.url("/live"), "key": KEY })).unwrap();
    push_all(&dest, &stream(0, 6));
    server.finish();
    stream(60, 200).into_iter().for_each(|packet| dest.push(packet));
    let error = failure(&dest);
    assert!(error.message.contains("quota"), "{error}");
}

#[test]
fn garbage_from_a_server_is_a_remote_failure() {
    let kit = kit!(Rtmp);
    let http = Server::start(|conn| {
        conn.stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").unwrap();
        conn.drain();
    });
    let garbage = Server::start(|conn| {
        conn.accept();
        conn.until(|seen| seen.packets.len() > 5);
        let noise: Vec<u8> = (0..50_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        // The client closes in the middle of it.
        let _ = conn.stream.write_all(&noise);
        conn.drain();
    });
    let tls = Server::start(|conn| {
        conn.stream.write_all(&[21, 3, 3, 0, 2, 2, 10]).unwrap();
        conn.drain();
    });
    for (server, first) in [(http, Some(&b"HTTP/"[..])), (garbage, None), (tls, Some(&[21, 3, 3]))] {
        let dest = kit.open("rtmp", &json!({ "url": server.url("/live"), "key": KEY })).unwrap();
        push_all(&dest, &stream(0, 100));
        let error = failure(&dest);
        assert_eq!(error.class, Class::Remote, "{error}");
        if let Some(first) = first {
            assert_eq!(Some(error), refusal::foreign(&server.target(), first));
        }
        server.finish();
    }
}

#[test]
fn a_server_that_floods_is_disconnected() {
    let kit = kit!(Rtmp);
    let server = Server::start(|conn| {
        conn.accept();
        // An unknown message of 100 bytes on chunk stream 3, again and again.
        let mut message = vec![3, 0, 0, 0, 0, 0, 100, 99, 0, 0, 0, 0];
        message.resize(112, 0);
        let block = message.repeat(600);
        let until = Instant::now() + testkit::WAIT_MAX;
        while conn.stream.write_all(&block).is_ok() && Instant::now() < until {}
    });
    let dest = kit.open("rtmp", &json!({ "url": server.url("/live"), "key": KEY })).unwrap();
    push_all(&dest, &stream(0, 10));
    let error = failure(&dest);
    assert_eq!(error, refusal::floods(&server.target()));
    server.finish();
}

#[test]
fn a_silent_server_is_given_up_and_a_stop_does_not_wait_for_it() {
    let (quick, patient) = (kit!(Quick), kit!(Rtmp));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("rtmp://{}/live", listener.local_addr().unwrap());
    let config = json!({ "url": url, "key": KEY });
    let dest = quick.open("rtmp", &config).unwrap();
    let target = Target::parse(&url, Some(KEY)).unwrap();
    assert_eq!(failure(&dest), refusal::late(&target, QUICK.setup));

    let dest = patient.open("rtmp", &config).unwrap();
    let mut stream = listener.accept().unwrap().0;
    stream.read_exact(&mut [0; 100]).unwrap();
    let asked = Instant::now();
    dest.stop();
    dest.wait_for_end().unwrap();
    assert!(asked.elapsed() < Timing::default().setup, "the stop does not wait for the server");
}

#[test]
fn a_closed_port_is_a_network_failure() {
    let kit = kit!(Rtmp);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("rtmp://u:sesame@127.0.0.1:{port}/live/{KEY}");
    let dest = kit.open("rtmp", &json!({ "url": url })).unwrap();
    assert_eq!(failure(&dest).class, Class::Network);
}

#[test]
fn configurations_are_refused_with_the_field_and_without_the_value() {
    let kit = kit!(Rtmp);
    for (config, refusal) in [
        (json!({ "url": format!("rtmpt://a.example/live/{KEY}") }), Some(TargetError::Scheme)),
        (json!({ "url": format!("https://a.example/{KEY}") }), Some(TargetError::Scheme)),
        (json!({ "url": format!("rtmp://{KEY}@a.example") }), Some(TargetError::App)),
        (
            json!({ "url": "rtmp://a.example/live", "key": format!("{KEY}\n") }),
            Some(TargetError::BadCharacter("key")),
        ),
        (json!({ "url": "rtmp://a.example", "key": null }), Some(TargetError::App)),
        // A schema error, which the host reports.
        (json!({ "url": "rtmp://a.example/live", "keys": KEY }), None),
        (json!({ "url": 5 }), None),
        (json!({}), None),
    ] {
        let error = kit.validate("rtmp", &config).unwrap_err();
        assert_eq!(error.class, Class::Config, "{config}");
        match refusal {
            Some(refusal) => assert_eq!(error.message, refusal.to_string()),
            None => {
                assert!(!["url:", "key:"].iter().any(|field| error.message.starts_with(field)), "{error}")
            }
        }
        assert!(!error.message.contains("sesame"), "{error}");
        assert_eq!(kit.open("rtmp", &config).err().unwrap(), error, "opening refuses it with the same error");
    }
    kit.validate("rtmp", &json!({ "url": "rtmp://a.example/live", "key": KEY })).unwrap();
    kit.validate("rtmp", &json!({ "url": format!("rtmp://a.example/live/{KEY}") })).unwrap();
}
