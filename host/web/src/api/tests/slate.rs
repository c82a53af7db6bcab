//! The slate of a stream: upload, what is refused, what is shown, and the end.

use bytes::Bytes;
use poem::Request;
use poem::http::Method;
use satcast_media::fuzz::RECORDS;
use satcast_media::mp4::made::File;
use satcast_media::{Codec, NANOS_PER_MILLI, Packet};
use serde_json::{Value, json};

use super::{Answer, Rig};
use satcast_core::ids::StreamId;

impl Rig {
    async fn upload(&self, path: &str, file: &File) -> Answer {
        let request = Request::builder().method(Method::PUT).uri_str(path).header("X-API-Key", &self.key);
        self.send(request.content_type("video/mp4").body(file.bytes())).await
    }
}

#[tokio::test]
async fn a_slate_is_uploaded_shown_replaced_and_deleted() {
    let rig = Rig::new().await;
    let id = rig.stream().await;
    let (path, stream) = (format!("/api/streams/{id}/slate"), format!("/api/streams/{id}"));
    let shown = async || rig.get(&stream).await.ok();
    let set = rig.upload(&path, &File::default()).await.ok();
    let slate = json!({
        "seconds": 2.005, "bytes": File::default().bytes().len(), "videoCodec": "h264", "width": 1280, "height": 720,
        "frameRate": 25.0, "audioCodec": "aac", "sampleRate": 48_000, "channels": 2, "maxSeconds": 300,
        "uploadedAt": 1_800_000_000_000_i64
    });
    assert_eq!((&set, &shown().await["slate"]), (&slate, &slate));
    let silent = File { audio: None, ..File::default() };
    let set = rig.upload(&format!("{path}?maxSeconds=3600"), &silent).await.ok();
    assert_eq!((&set["audioCodec"], &set["maxSeconds"]), (&Value::Null, &json!(3_600)));
    assert_eq!(shown().await["slate"], set);
    for secs in ["0", "3601", "-1", "1.5"] {
        let refused = rig.upload(&format!("{path}?maxSeconds={secs}"), &silent).await;
        refused.error(400, "malformed_parameter");
    }
    rig.delete(&path).await.ok();
    assert_eq!(shown().await["slate"], Value::Null);
    rig.delete(&path).await.error(404, "not_found");

    rig.upload(&path, &silent).await.ok();
    rig.delete(&stream).await.ok();
    assert_eq!(rig.app.store.slate(StreamId(id)).await.unwrap(), None, "it goes with its stream");
    rig.upload(&path, &silent).await.error(404, "not_found");
}

#[tokio::test]
async fn each_fault_of_a_file_has_its_code() {
    let rig = Rig::new().await;
    let path = format!("/api/streams/{}/slate", rig.stream().await);
    let file = File::default;
    for (file, code) in [
        (File { fragmented: true, ..file() }, "slate_unreadable"),
        (File { frames: 0, audio: None, ..file() }, "slate_no_video"),
        (File { codes: [*b"mp4v", *b"mp4a"], ..file() }, "slate_codec"),
        (File { keyframes: Some(vec![2]), ..file() }, "slate_first_frame"),
        (File { edits: vec![(1_000, 0, 1)], ..file() }, "slate_edits"),
        (File { frames: 10, audio: None, ..file() }, "slate_length"),
        (File { frames: 500, ..file() }, "slate_length"),
    ] {
        rig.upload(&path, &file).await.error(422, code);
    }
}

/// Six seconds of media as in [`File`], without audio.
fn programme() -> Vec<Packet> {
    let (codec, record) = RECORDS[0];
    let mut packets = vec![Packet::configuration(codec, Bytes::from_static(record))];
    for frame in 0..150 {
        let at = frame * 40 * NANOS_PER_MILLI;
        packets.push(Packet::media(Codec::H264, frame % 25 == 0, at, at, Bytes::from_static(&[7; 9])));
    }
    packets
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slate_is_compared_with_the_live_encoder_and_shown_while_it_is_on_air() {
    let rig = Rig::new().await;
    let id = rig.stream().await;
    let path = format!("/api/streams/{id}/slate");
    let record = rig.app.store.stream(StreamId(id)).await.unwrap().unwrap();
    let mut publisher = rig.app.live.publish(record).await.unwrap();
    publisher.push(&mut programme());
    rig.upload(&path, &File::default()).await.error(422, "slate_mismatch");
    rig.upload(&path, &File { audio: None, ..File::default() }).await.ok();
    assert_eq!(rig.get(&format!("/api/streams/{id}")).await.ok()["slateSince"], Value::Null);
    drop(publisher);
    let end = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        let shown = rig.get(&format!("/api/streams/{id}")).await.ok();
        // The slate may be on air a moment before the session is shown as without its encoder.
        if shown["slateSince"] == json!(1_800_000_000_000_i64) && shown["state"] == "reconnecting" {
            assert_eq!(shown["encoders"], json!([]));
            break;
        }
        assert!(tokio::time::Instant::now() < end, "{shown}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    rig.delete(&path).await.ok();
    assert_eq!(rig.get(&format!("/api/streams/{id}")).await.ok()["slateSince"], Value::Null);
}
