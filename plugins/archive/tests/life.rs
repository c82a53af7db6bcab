//! The driver under the testkit's host, with a store that checks signatures.
#![allow(clippy::unwrap_used)] // A failed step is a failed test.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use satcast_driver_archive::{Archive, TYPE};
use satcast_media::fuzz::RECORDS;
use satcast_plugin_api::driver::{About, RecordingState, State};
use satcast_plugin_api::testkit::{HostCall, Options, TestDestination, Testkit, config, media};
use satcast_plugin_api::{Codec, Error, Packet, driver_entry};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

driver_entry!(entry, Archive);

const SECRET: &str = "verysecretvalue";

/// An S3 server in this process.
fn serve(runtime: &Runtime, root: &Path) -> SocketAddr {
    let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(root).unwrap());
    builder.set_auth(SimpleAuth::from_single("testkey", SECRET));
    let service = builder.build();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), service.clone()));
        }
    });
    address
}

fn about(session: &str) -> About {
    About { destination_id: 3, session_id: session.into(), label: "Talk".into(), ..About::default() }
}

/// Video with 25 frames a second, a keyframe every two seconds.
fn video(count: i64) -> Vec<Packet> {
    let frame = |number: i64| {
        let payload = Bytes::from(vec![number as u8; 1000]);
        media(Codec::H264, number as u64, number * 40, number % 50 == 0, payload)
    };
    std::iter::once(config(Codec::H264, RECORDS[0].1)).chain((0..count).map(frame)).collect()
}

fn record(kit: &Testkit, session: &str, config: &Value) -> TestDestination {
    let destination = kit.open_for(&about(session), TYPE, config).unwrap();
    video(250).into_iter().for_each(|packet| destination.push(packet));
    assert!(destination.wait_for_state(State::Live), "live with the first fragment on disk");
    destination
}

fn ready(kit: &Testkit, session: &str) -> satcast_plugin_api::driver::Recording {
    let is_met = |recording: &satcast_plugin_api::driver::Recording| {
        recording.session_id == session && recording.state == RecordingState::Ready
    };
    kit.wait_for_recording(is_met).unwrap()
}

// One driver has one slot in a process, so its whole life is one test.
#[test]
fn a_drivers_life() {
    let root = tempfile::tempdir().unwrap();
    for bucket in ["operator", "own"] {
        std::fs::create_dir(root.path().join(bucket)).unwrap();
    }
    let runtime = Runtime::new().unwrap();
    let address = serve(&runtime, root.path());
    let settings = json!({
        "endpoint": format!("http://{address}"), "bucket": "operator", "accessKey": "testkey", "secretKey": SECRET,
        "prefix": "live", "retryHours": 1, "freeBytesMin": 0,
    });
    let kit = Testkit::start_with(entry, Options { settings, data_dir: None }).unwrap();
    let manifest = kit.table().manifest().types[0].clone();
    assert_eq!((manifest.name.as_str(), manifest.playback), (TYPE, false));
    refuses_bad_configurations(&kit);

    let destination = record(&kit, "ses1", &json!({}));
    destination.stop();
    destination.wait_for_end().unwrap();
    assert_eq!(destination.leased_packets(), 0);
    let first = ready(&kit, "ses1");
    assert!(first.file_name.starts_with("talk/") && first.file_name.ends_with("Z-ses1-1.mp4"), "{first:?}");
    assert_eq!((first.destination_id, first.duration_ms), (3, 10_000));
    assert_eq!(destination.counter("bytes_sent"), first.size_bytes);
    let object = root.path().join("operator/live").join(&first.file_name);
    assert_eq!(std::fs::metadata(&object).unwrap().len(), first.size_bytes);
    assert_eq!(first.url, Some(format!("s3://operator/live/{}", first.file_name)));

    // A store of the destination's own, that cannot be reached at first: it is live all the same.
    kit.fail(HostCall::Connect, Error::network("the store is down"));
    let own = json!({
        "endpoint": format!("http://{address}"), "bucket": "own", "accessKey": "testkey", "secretKey": SECRET,
        "retentionDays": 7,
    });
    let destination = record(&kit, "ses2", &own);
    destination.stop();
    destination.wait_for_end().unwrap();
    let journal = kit.data_dir().unwrap().join("journal");
    for file in std::fs::read_dir(&journal).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        assert!(!text.contains(SECRET) && !text.contains("testkey"), "{text}");
    }
    kit.heal(HostCall::Connect);
    let second = ready(&kit, "ses2");
    assert!(root.path().join("own").join(&second.file_name).exists());

    assert_eq!(kit.recordings().unwrap().len(), 2);
    let url = kit.sign_recording(&second.file_name, Duration::from_secs(3600)).unwrap();
    assert!(url.starts_with(&format!("http://{address}/own/talk/")) && !url.contains(SECRET), "{url}");
    assert!(kit.retry_recording(&second.file_name).is_err(), "the recording is already uploaded");
    keys_are_mended_without_a_stream(&kit, &own, root.path());
    kit.delete_recording(&first.file_name, true).unwrap();
    assert!(!object.exists());
    kit.delete_recording(&second.file_name, false).unwrap();
    assert!(root.path().join("own").join(&second.file_name).exists());
    assert!(kit.recordings().unwrap().iter().all(|recording| recording.gone));
    kit.shut_down();
}

/// The secret is wrong while it is recorded; the right one comes when nothing is live.
fn keys_are_mended_without_a_stream(kit: &Testkit, config: &Value, root: &Path) {
    let mut wrong = config.clone();
    wrong["secretKey"] = json!("not-the-secret");
    let destination = record(kit, "ses3", &wrong);
    destination.stop();
    destination.wait_for_end().unwrap();
    let is_refused = |recording: &satcast_plugin_api::driver::Recording| {
        recording.session_id == "ses3"
            && recording.state == RecordingState::Uploading
            && recording.error.as_ref().is_some_and(|error| error.contains("secretKey"))
    };
    let _ = kit.wait_for_recording(is_refused).unwrap();
    assert!(kit.configure_recordings(3, TYPE, Some(&json!({ "bucket": "own" }))).is_err());
    kit.configure_recordings(3, TYPE, None).unwrap();
    kit.configure_recordings(3, TYPE, Some(config)).unwrap();
    let third = ready(kit, "ses3");
    assert_eq!(third.error, None);
    assert!(root.join("own").join(&third.file_name).exists());
    kit.delete_recording(&third.file_name, true).unwrap();
}

fn refuses_bad_configurations(kit: &Testkit) {
    kit.validate(TYPE, &json!({})).unwrap();
    kit.validate(TYPE, &json!({ "retentionDays": 30 })).unwrap();
    let bad = json!({ "endpoint": "https://s3.example.org", "bucket": "b", "accessKey": "a" });
    let refused = kit.validate(TYPE, &bad).unwrap_err();
    assert!(refused.message.starts_with("secretKey: "), "{refused}");
    for bad in [json!({ "unknown": 1 }), json!({ "retentionDays": 0 }), json!({ "prefix": "x" })] {
        assert!(kit.validate(TYPE, &bad).is_err() && kit.open(TYPE, &bad).is_err(), "{bad}");
    }
}
