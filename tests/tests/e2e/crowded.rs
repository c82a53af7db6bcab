//! Many destinations of one driver: a slow one among a hundred does not affect the others, and repeated openings leak nothing.

use std::collections::BTreeMap;

use satcast_tests::api::{Stream, stream_of};
use satcast_tests::encoder::Publish;
use satcast_tests::said;
use satcast_tests::scene::{Scene, children, configuration};
use satcast_tests::service::Setup;
use satcast_tests::sink::Sink;
use satcast_tests::soak;
use satcast_tests::usage::Usage;
use satcast_tests::wait::{self, seconds};
use serde_json::{Value, json};

/// Destinations of one stream.
const CROWD: usize = 100;
/// Seconds of media: twice the capacity of a destination's queue.
const CROWD_SECONDS: u64 = 12;
/// Destinations that are opened and ended together.
const TOGETHER: usize = 25;
/// Seconds of each session.
const SESSION_SECONDS: u64 = 1;
/// Accepted growth after the first sessions: descriptors, threads (pools change in size), and KiB of memory. A leak of one per
/// opening would be a hundred at least.
const GROWN_FILES_MAX: usize = 12;
const GROWN_THREADS_MAX: usize = 12;
const GROWN_KIB_MAX: u64 = 24 * 1024;

#[test]
fn one_slow_destination_of_a_hundred_loses_packets_alone() {
    one_is_slow("thread");
}

#[test]
fn one_slow_destination_of_a_hundred_in_a_process_loses_packets_alone() {
    one_is_slow("process");
}

fn one_is_slow(isolation: &str) {
    let setup = Setup::default().set("SATCAST_LIMITS__DESTINATIONS_PER_STREAM", "200");
    let mut scene = Scene::hostile(isolation, setup);
    let places = (0..CROWD).map(|number| if number == CROWD / 2 { "crawl" } else { "nowhere" });
    let (stream, sink) = crowd(&scene, places);
    let url = scene.service.ingest_url(&stream.key);
    let mut encoder = Publish::of(&scene.source).seconds(CROWD_SECONDS).to(&url);
    encoder.finish(seconds(4 * CROWD_SECONDS));
    sink.wait_until_left();
    let list = wait::until_api("the others to have everything", || {
        let list = scene.api.get(&format!("/api/streams/{}/destinations", stream.id)).ok();
        let sent: Vec<u64> = figures(&list, "bytesSent").into_iter().skip(1).collect();
        let most = sent.iter().copied().max().unwrap_or_default();
        let all = sent.iter().filter(|sent| **sent == most).count();
        if all == CROWD - 1 && most > 1_000_000 { Ok(list) } else { Err(format!("{sent:?}")) }
    });
    let lost = figures(&list, "droppedPackets");
    assert!(lost[1 + CROWD / 2] > 100, "the slow one: {lost:?}");
    assert_eq!(lost.iter().filter(|lost| **lost > 0).count(), 1, "{lost:?}");
    satcast_tests::record::assert_media_run("the rtmp destination", scene.source.records(), &sink.records());
    scene.service.assert_running();
}

#[test]
fn soak_repeated_openings_leak_nothing() {
    cycles("thread");
}

#[test]
fn soak_repeated_openings_in_a_process_leak_nothing() {
    cycles("process");
}

fn cycles(isolation: &str) {
    let setup = Setup::default().set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "0");
    let mut scene = Scene::hostile(isolation, setup);
    let (stream, sink) = crowd(&scene, (0..TOGETHER).map(|_| "nowhere"));
    let session = |number: usize| {
        let url = scene.service.ingest_url(&stream.key);
        let mut encoder = Publish::of(&scene.source).seconds(SESSION_SECONDS).to(&url);
        encoder.finish(seconds(60));
        wait::until("the end of the session", || {
            let ended = scene.service.log().lines().filter(|line| line.contains(said::SESSION_ENDED)).count();
            if ended > number { Ok(()) } else { Err(format!("{ended} of {}", number + 1)) }
        });
        sink.wait_until_left();
    };
    // Pools and caches fill in the first ones.
    session(0);
    session(1);
    let mut pids = children(&scene.service);
    pids.push(i32::try_from(scene.service.process().id()).expect("a process id"));
    let before: Vec<Usage> = pids.iter().map(|pid| Usage::of(*pid)).collect();
    // A hundred openings, a thousand in the long form.
    let sessions = usize::try_from(soak::rounds(20) / 5).expect("a number of sessions");
    (2..2 + sessions).for_each(session);
    for (pid, before) in pids.iter().zip(&before) {
        let after = Usage::of(*pid);
        println!("{isolation}, {} openings: {before:?}, then {after:?}", sessions * TOGETHER);
        assert_eq!(after.drivers, before.drivers, "threads of drivers");
        assert!(after.threads <= before.threads + GROWN_THREADS_MAX, "{before:?}, then {after:?}");
        assert!(after.files <= before.files + GROWN_FILES_MAX, "{before:?}, then {after:?}");
        assert!(after.kib <= before.kib + GROWN_KIB_MAX, "{before:?}, then {after:?}");
    }
    assert_eq!(sink.publishes(), sessions + 2);
    scene.service.assert_running();
}

/// A stream of its own with an rtmp destination and one for each of `places`.
fn crowd<'a>(scene: &Scene, places: impl Iterator<Item = &'a str>) -> (Stream, Sink) {
    let sink = Sink::recording();
    let rtmp = json!({ "type": "rtmp", "config": { "url": sink.url(), "key": "copy" } });
    let others = places.map(|place| json!({ "type": "panic", "config": configuration(place) }));
    let destinations: Vec<Value> = [rtmp].into_iter().chain(others).collect();
    let body =
        scene.api.post("/api/streams", &json!({ "label": "crowd", "destinations": destinations })).ok();
    (stream_of(&body), sink)
}

/// One figure of each destination, in the order of their making.
fn figures(list: &Value, name: &str) -> Vec<u64> {
    let entries = list.as_array().expect("a list");
    let by_id: BTreeMap<i64, u64> =
        entries.iter().filter_map(|entry| Some((entry["id"].as_i64()?, entry[name].as_u64()?))).collect();
    by_id.into_values().collect()
}
