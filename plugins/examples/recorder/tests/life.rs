//! The recorder driven through its life without the service.

use std::time::Duration;

use bytes::Bytes;
use satcast_example_recorder::Recorder;
use satcast_plugin_api::HttpRequest;
use satcast_plugin_api::driver::{Method, State};
use satcast_plugin_api::testkit::{self, Clock, HostCall, Options, TestDestination, Testkit};
use satcast_plugin_api::{Audience, Class, Codec, Error, driver_entry};
use serde_json::json;

driver_entry!(entry, Recorder);

fn feed(dest: &TestDestination, packets: u64) {
    dest.push(testkit::config(Codec::H264, b"avcC"));
    dest.push(testkit::config(Codec::Aac, b"asc"));
    for sequence in 0..packets {
        let payload = Bytes::from(vec![7; 1000]);
        dest.push(testkit::media(Codec::H264, sequence, sequence as i64 * 40, sequence == 0, payload));
    }
}

// One driver has one slot in a process, so this is one test; each step is a function.
#[test]
fn a_recorders_life() {
    let settings = json!({ "file_mib_max": 1 });
    let clock = Clock::default();
    let options = Options { settings, ..Options::default() };
    let kit = Testkit::start_at(entry, options, &clock).expect("a start");
    records_and_shows(&kit);
    takes_and_refuses_changes(&kit);
    goes_to_the_disk_now_and_then(&kit, &clock);
    ends_at_the_largest_size(&kit);
    fails_when_the_host_takes_nothing(&kit);
    kit.shut_down();
}

fn records_and_shows(kit: &Testkit) {
    let dest = kit.open("recording", &json!({ "name": "talk" })).expect("an opening");
    feed(&dest, 10);
    assert!(dest.wait_for_state(State::Live));
    dest.stop();
    dest.wait_for_end().expect("a clean end");
    let file = std::fs::read(kit.data_dir().expect("a folder").join("talk.flv")).expect("the recording");
    assert_eq!(&file[..9], b"FLV\x01\x05\0\0\0\x09");
    let video_tag = |bytes: usize| 11 + 5 + bytes + 4;
    assert_eq!(file.len(), 13 + video_tag(4) + (11 + 2 + 3 + 4) + 10 * video_tag(1000));
    let last = video_tag(1000) - 4;
    assert_eq!(file[file.len() - 4..], (last as u32).to_be_bytes(), "a tag ends with its size");
    dest.report(|report| {
        assert_eq!(report.assets["recording.flv"].bytes().expect("the asset"), file);
        let list = report.assets["index.m3u8"].bytes().expect("the playlist");
        assert_eq!(String::from_utf8_lossy(&list), "#EXTM3U\n#EXTINF:-1,talk.flv\nrecording.flv\n");
        let playback = report.playback.as_ref().expect("a playback");
        assert_eq!((playback.window_ms, playback.ended), (360, true));
        assert_eq!(report.events[0].0, "recording.ready");
    });
    assert_eq!(dest.counter("bytes_sent"), file.len() as u64 - 13);
    let again = kit.open("recording", &json!({ "name": "talk" })).expect("an opening");
    again.stop();
    again.wait_for_end().expect("a clean end");
    assert!(kit.data_dir().expect("a folder").join("talk-2.flv").is_file(), "nothing is overwritten");
}

fn takes_and_refuses_changes(kit: &Testkit) {
    let dest = kit.open("recording", &json!({ "name": "changed" })).expect("an opening");
    feed(&dest, 1);
    assert!(kit.wait_until(&dest, |report| report.assets.contains_key("recording.flv")));
    let info = HttpRequest {
        method: Method::Get,
        path: "info.json".into(),
        query: String::new(),
        audience: Audience::Hosted,
    };
    let answer = kit.get(&dest, &info).expect("an answer");
    assert_eq!(answer.body.expect("a body"), br#"{"bytesMax":1048576,"name":"changed"}"#);
    assert!(!dest.reconfigure(&json!({ "name": "other" })).expect("an answer"), "another file");
    assert!(dest.reconfigure(&json!({ "name": "changed", "listed": false })).expect("an answer"));
    feed(&dest, 1);
    assert!(kit.wait_until(&dest, |report| report.assets.is_empty()), "viewers no longer see it");
    assert_eq!(kit.get(&dest, &info).expect("an answer").status, 404);
    dest.stop();
    dest.wait_for_end().expect("a clean end");
}

/// Two minutes of the test's clock.
fn goes_to_the_disk_now_and_then(kit: &Testkit, clock: &Clock) {
    let dest = kit.open("recording", &json!({ "name": "synced" })).expect("an opening");
    feed(&dest, 1);
    assert!(dest.wait_for_state(State::Live));
    let begin = clock.now();
    for _ in 0..4 {
        assert_eq!(clock.skip(), Some(Duration::from_secs(30)));
    }
    assert_eq!(clock.now() - begin, Duration::from_secs(120));
    // It sleeps again only after its fourth pass.
    assert!(clock.skip().is_some() && dest.counter("syncs") >= 4);
    dest.stop();
    dest.wait_for_end().expect("a clean end");
}

fn ends_at_the_largest_size(kit: &Testkit) {
    let dest = kit.open("recording", &json!({ "name": "large" })).expect("an opening");
    feed(&dest, 1100);
    let error = dest.wait_for_end().expect_err("an end at 1 MiB");
    assert_eq!(error.class, Class::Config);
    let bytes =
        std::fs::metadata(kit.data_dir().expect("a folder").join("large.flv")).expect("the file").len();
    assert!((1 << 19..=1 << 20).contains(&bytes), "{bytes}");
}

fn fails_when_the_host_takes_nothing(kit: &Testkit) {
    kit.fail(HostCall::Publish, Error::internal("no room"));
    let dest = kit.open("recording", &json!({ "name": "unshown" })).expect("an opening");
    feed(&dest, 1);
    assert_eq!(dest.wait_for_end().expect_err("a failure").message, "no room");
    kit.heal(HostCall::Publish);
}
