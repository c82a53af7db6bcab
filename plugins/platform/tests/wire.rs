//! The driver under the testkit's host: the chosen server, refusals, and the wait after a failure.
#![allow(clippy::unwrap_used)] // A failed step is a failed test.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use satcast_driver_platform::data::platform;
use satcast_driver_platform::{Platforms, RETRY_FLOOR};
use satcast_media::rtmp::server::{ServerConfig, ServerEvent, ServerSession};
use satcast_plugin_api::driver::State;
use satcast_plugin_api::testkit::{self, TestDestination};
use satcast_plugin_api::{Class, Codec, Error};
use serde_json::json;

const KEY: &str = "live_sesame?bandwidthtest=true&x=1";

/// Takes one publisher, or refuses it. Returns the address for `server`, and a receiver of the requested stream name.
fn server(refusal: Option<&'static str>) -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("rtmp://{}/app", listener.local_addr().unwrap());
    let (sender, asked) = mpsc::channel();
    std::thread::spawn(move || {
        let mut socket = listener.accept().unwrap().0;
        let (mut session, mut block) = (ServerSession::new(ServerConfig::default()), [0; 65536]);
        while let Ok(count @ 1..) = socket.read(&mut block) {
            session.input(Bytes::copy_from_slice(&block[..count])).unwrap();
            while let Some(event) = session.poll_event() {
                let ServerEvent::PublishRequested { id, stream_key, query, .. } = event else { continue };
                sender.send(format!("{stream_key}?{}", query.unwrap_or_default())).unwrap();
                match refusal {
                    None => session.accept_publish(id).unwrap(),
                    Some(code) => session.reject_publish(id, code, "no"),
                }
            }
            // A client that has gone is seen at the next read.
            let _ = socket.write_all(&session.take_output());
        }
    });
    (url, asked)
}

fn push(dest: &TestDestination, codec: Codec) {
    dest.push(testkit::config(codec, b"record"));
    for index in 0..20 {
        dest.push(testkit::media(codec, index, index as i64 * 40, index == 0, Bytes::from_static(&[7; 900])));
    }
}

fn failure(dest: &TestDestination) -> Error {
    let error = dest.wait_for_end().unwrap_err();
    assert!(!error.message.contains("sesame"), "{error}");
    error
}

satcast_plugin_api::driver_entry!(entry, Platforms);

#[test]
fn a_platform_publishes_waits_after_failures_and_refuses() {
    let kit = testkit::Testkit::start(entry).unwrap();
    let (url, asked) = server(None);
    // With the white space of a pasted key.
    let dest = kit.open("twitch", &json!({ "key": format!(" {KEY}\r\n"), "server": url })).unwrap();
    push(&dest, Codec::H264);
    assert!(dest.wait_for_state(State::Live));
    dest.stop();
    dest.wait_for_end().unwrap();
    assert_eq!(asked.recv().unwrap(), KEY);

    let (url, _asked) = server(Some("NetStream.Publish.Denied"));
    let dest = kit.open("youtube", &json!({ "key": KEY, "server": url })).unwrap();
    push(&dest, Codec::H264);
    let error = failure(&dest);
    assert_eq!((error.class, error.retry_after), (Class::Auth, Some(Duration::from_secs(60))), "{error}");

    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = json!({ "key": KEY, "server": format!("rtmp://{nobody}/app") });
    let dest = kit.open("trovo", &config).unwrap();
    push(&dest, Codec::H264);
    let error = failure(&dest);
    assert_eq!((error.class, error.retry_after), (Class::Network, Some(RETRY_FLOOR)), "{error}");

    let (url, asked) = server(None);
    let dest = kit.open("twitch", &json!({ "key": KEY, "server": url })).unwrap();
    push(&dest, Codec::Hevc);
    let error = failure(&dest);
    assert!(asked.try_recv().is_err(), "no broadcast is started for it");
    assert_eq!(error.class, Class::Config, "not tried again until something changes: {error}");
    assert!(error.message.contains("Twitch") && error.message.contains("HEVC"), "{error}");

    let refused = |name: &str, server, key| platform(name).unwrap().targets(server, key).unwrap_err();
    let (no_key, no_address) = (refused("twitch", None, ""), refused("twitch", Some("http://a"), "k"));
    let control = refused("twitch", None, "\u{7}");
    let has_space = kit.validate("twitch", &json!({ "key": "a b" })).unwrap_err().message;
    assert!(has_space.starts_with("key: ") && has_space != no_key && has_space != control, "{has_space}");
    for (name, config, refusal) in [
        ("kick", json!({ "key": KEY }), Some(refused("kick", None, "k"))),
        ("twitch", json!({ "key": "" }), Some(no_key.clone())),
        ("twitch", json!({ "key": " \n" }), Some(no_key)),
        ("twitch", json!({ "key": "a sesame" }), Some(has_space.clone())),
        ("twitch", json!({ "key": "a\nsesame" }), Some(has_space.clone())),
        ("twitch", json!({ "key": "sesame\u{7}" }), Some(control)),
        ("twitch", json!({ "key": "sesame\u{202e}\u{2028}x" }), Some(has_space)),
        ("twitch", json!({ "key": KEY, "server": "http://sesame" }), Some(no_address)),
        // The host reports the missing field.
        ("twitch", json!({}), None),
    ] {
        let error = kit.validate(name, &config).unwrap_err();
        assert_eq!(error.class, Class::Config, "{error}");
        match refusal {
            Some(refusal) => assert_eq!(error.message, refusal),
            None => assert!(!["key:", "server:"].iter().any(|field| error.message.starts_with(field))),
        }
        assert!(!error.message.contains("sesame"), "{error}");
    }
    kit.validate("youtube", &json!({ "key": KEY })).unwrap();
}
