//! Drivers written for each earlier minor version of the contract load and carry a stream, on threads and in processes.

use satcast_tests::author::lay;
use satcast_tests::encoder::Publish;
use satcast_tests::scene::{HOSTILE, Scene, built, compile, configuration};
use satcast_tests::service::Setup;
use satcast_tests::wait::{self, seconds};
use serde_json::json;

/// Minor versions before the current one.
const EARLIER: [u32; 5] = [0, 1, 2, 3, 4];
/// Length of the stream in seconds.
const STREAMED_SECS: u64 = 6;

#[test]
fn drivers_of_earlier_versions_get_every_packet() {
    get_every_packet("thread");
}

#[test]
fn drivers_of_earlier_versions_get_every_packet_in_processes() {
    get_every_packet("process");
}

fn get_every_packet(isolation: &str) {
    let folder = tempfile::tempdir().expect("a folder for drivers");
    let source = folder.path().join("earlier.c");
    std::fs::write(&source, include_str!("earlier_versions_driver.c")).expect("the source of the drivers");
    let names = EARLIER.map(|minor| format!("earlier-{minor}"));
    for (name, minor) in names.iter().zip(EARLIER) {
        let flags = [format!("-DMINOR={minor}"), format!("-DNAME=\"{name}\"")];
        compile(&[&source], &folder.path().join(format!("{name}.so")), &[&flags[0], &flags[1]]);
    }
    let current = built().join("libsatcast_test_driver.so");
    lay(&current, &folder.path().join(format!("{HOSTILE}.so")));
    let all: Vec<&str> = names.iter().map(String::as_str).chain([HOSTILE]).collect();
    let mut scene = Scene::with(folder, &all, isolation, Setup::default());
    let mut ids: Vec<i64> = names.iter().map(|name| scene.add_of(name, &json!({}))).collect();
    ids.push(scene.add_of(HOSTILE, &configuration("nowhere")));
    let url = scene.service.ingest_url(&scene.stream.key);
    let mut encoder = Publish::of(&scene.source).seconds(STREAMED_SECS).to(&url);
    for id in &ids {
        scene.api.wait_for_destination(&scene.stream, *id, "live");
    }
    encoder.finish(seconds(60));
    // All of them received the same bytes as the current one. The session waits for its encoder meanwhile; its figures end with it.
    wait::until_api("the same bytes for all destinations", || {
        let shown: Vec<_> = ids.iter().map(|id| scene.api.destination(&scene.stream, *id)).collect();
        let sent: Vec<u64> = shown.iter().filter_map(|shown| shown["bytesSent"].as_u64()).collect();
        let lost = shown.iter().any(|shown| shown["droppedPackets"] != 0);
        let same = sent.len() == ids.len() && sent.iter().all(|one| *one == sent[0] && *one > 500_000);
        if same && !lost { Ok(()) } else { Err(format!("{shown:?}")) }
    });
    scene.sink.wait_until_left();
    scene.service.assert_running();
}
