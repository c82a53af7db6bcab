//! Lists of servers under the testkit's host: fetched when needed, cached, and missing.
#![allow(clippy::unwrap_used)] // A failed step is a failed test.

mod server;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use satcast_driver_platform::Platforms;
use satcast_driver_platform::ingests::LIST_BYTES_MAX;
use satcast_plugin_api::abi::SatcastDriver;
use satcast_plugin_api::driver::State;
use satcast_plugin_api::testkit::{Options, Testkit};
use serde_json::json;

use server::{push, server};

/// Behaviour of a list server.
enum Listing {
    Answer(String),
    /// Takes the connection and sends nothing.
    Hang,
}

/// Serves a list; returns its address and the number of requests.
fn listing(listing: Listing) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/ingests", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            count.fetch_add(1, Ordering::SeqCst);
            let Listing::Answer(answer) = &listing else {
                held.push(socket);
                continue;
            };
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && socket.read(&mut byte).unwrap() == 1 {
                head.push(byte[0]);
            }
            assert!(head.starts_with(b"GET /ingests HTTP/1.1\r\n"), "{}", String::from_utf8_lossy(&head));
            // The client may have enough before the end.
            let _ = socket.write_all(answer.as_bytes());
        }
    });
    (url, asked)
}

fn ok(body: &str) -> Listing {
    Listing::Answer(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
}

fn list_of(server: &str) -> Listing {
    let template = format!("{server}/{{stream_key}}");
    ok(&json!({ "ingests": [{ "url_template": template, "availability": 1.0 }] }).to_string())
}

/// A driver whose Twitch server is `server` unless the list at `ingests` names another.
fn kit(
    entry: extern "C" fn(u32) -> *const SatcastDriver,
    folder: &Path,
    server: &str,
    ingests: &str,
) -> Testkit {
    let settings = json!({ "types": { "twitch": { "server": server, "ingests": ingests } } });
    let options = Options { settings, data_dir: Some(folder.to_owned()) };
    Testkit::start_with(entry, options).unwrap()
}

/// Publishes once; true when it went live.
fn publishes(kit: &Testkit) -> bool {
    let dest = kit.open("twitch", &json!({ "key": "sesame" })).unwrap();
    push(&dest);
    let is_live = dest.wait_for_state(State::Live);
    dest.stop();
    dest.wait_for_end().unwrap();
    is_live
}

satcast_plugin_api::driver_entry!(first, Platforms);
satcast_plugin_api::driver_entry!(second, Platforms);
satcast_plugin_api::driver_entry!(third, Platforms);

#[test]
fn the_nearest_server_is_cached_and_a_configured_server_comes_first() {
    let folder = tempfile::tempdir().unwrap();
    let (usual, at_usual) = server();
    let (near, at_near) = server();
    let (list, asked) = listing(list_of(&near));
    let kit = kit(first, folder.path(), &usual, &list);
    assert!(publishes(&kit) && publishes(&kit));
    assert_eq!((at_near.count(), at_usual.count(), asked.load(Ordering::SeqCst)), (2, 0, 1));
    let own = kit.open("twitch", &json!({ "key": "sesame", "server": usual })).unwrap();
    push(&own);
    assert!(own.wait_for_state(State::Live));
    assert_eq!(at_usual.count(), 1, "a configured server replaces the list");
    own.stop();
    own.wait_for_end().unwrap();
    kit.shut_down();

    // The next process uses the cache.
    let again = self::kit(second, folder.path(), &usual, &list);
    assert!(publishes(&again));
    assert_eq!((at_near.count(), asked.load(Ordering::SeqCst)), (3, 1));
    again.shut_down();
    // The cache of another list is not used.
    let other = self::kit(third, folder.path(), &usual, "http://127.0.0.1:1/ingests");
    assert!(publishes(&other));
    assert_eq!((at_near.count(), at_usual.count()), (3, 2));
}

satcast_plugin_api::driver_entry!(hung, Platforms);
satcast_plugin_api::driver_entry!(failed, Platforms);
satcast_plugin_api::driver_entry!(large, Platforms);
satcast_plugin_api::driver_entry!(gone, Platforms);

#[test]
fn without_a_list_the_usual_server_is_used_and_the_list_is_not_fetched_again_soon() {
    let too_large = ok(&format!("{{\"ingests\":[],\"x\":\"{}\"}}", "x".repeat(LIST_BYTES_MAX)));
    let error = Listing::Answer("HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n".into());
    for (entry, list) in
        [(hung as extern "C" fn(u32) -> _, Listing::Hang), (failed, error), (large, too_large)]
    {
        let folder = tempfile::tempdir().unwrap();
        let (usual, at_usual) = server();
        let (list, asked) = listing(list);
        let kit = kit(entry, folder.path(), &usual, &list);
        assert!(publishes(&kit) && publishes(&kit));
        assert_eq!((at_usual.count(), asked.load(Ordering::SeqCst)), (2, 1));
        kit.shut_down();
    }
    // If the nearest server is down, the usual one is used.
    let folder = tempfile::tempdir().unwrap();
    let (usual, at_usual) = server();
    let (list, _asked) = listing(list_of("rtmp://127.0.0.1:1/app"));
    let kit = kit(gone, folder.path(), &usual, &list);
    assert!(publishes(&kit));
    assert_eq!(at_usual.count(), 1);
}
