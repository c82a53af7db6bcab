//! Posters of live streams.

use satcast_plugin_api::AssetBody;

use super::*;
use crate::poster::{KEYFRAME_BYTES_MAX, POSTER_SECS};

/// An H.264 configuration of 1280 by 720.
const RECORD: &[u8] =
    b"\x01\x64\0\x1f\xff\xe1\0\x1a\x67\x64\0\x1f\xac\xd9\x40\x50\x05\xbb\x01\x10\0\0\x03\0\x10\0\0\x03\
    \x03\xc0\xf1\x83\x19\x60\x01\0\x06\x68\xeb\xe3\xcb\x22\xc0\xfd\xf8\xf8\0";
const AGE: Duration = Duration::from_secs(POSTER_SECS as u64);

fn frame(dts_ms: i64, keyframe: bool, byte: u8) -> Packet {
    let at = dts_ms * NANOS_PER_MILLI;
    Packet::media(Codec::H264, keyframe, at, at, Bytes::from(vec![byte; 1000]))
}

/// The end of a video whose only frame is `payload`.
fn only_frame(payload: &[u8]) -> Vec<u8> {
    [&(payload.len() as u32 + 8).to_be_bytes()[..], b"mdat", payload].concat()
}

impl Rig {
    fn poster(&self) -> Option<Bytes> {
        let poster = self.live.poster(self.stream.id)?;
        assert_eq!(poster.content_type, "video/mp4");
        let AssetBody::Memory(bytes) = &poster.body else { panic!("{poster:?}") };
        Some(bytes.clone())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poster_is_the_newest_keyframe_and_made_once_in_its_time() {
    let rig = Rig::new(&[], Duration::from_secs(30)).await;
    assert!(rig.poster().is_none(), "offline");
    let mut publisher = rig.publish().await.unwrap();
    let config = Packet::configuration(Codec::H264, Bytes::from_static(RECORD));
    publisher.push(&mut vec![config, frame(0, true, 1), frame(33, false, 2)]);
    rig.until_session(SessionState::Live).await;
    let first = rig.poster().unwrap();
    assert!(first.ends_with(&only_frame(&[1; 1000])));
    publisher.push(&mut vec![frame(66, true, 3)]);
    rig.clock.advance(AGE - Duration::from_millis(1));
    assert_eq!(rig.poster().unwrap().as_ptr(), first.as_ptr(), "the same one, without a copy");
    rig.clock.advance(Duration::from_millis(1));
    assert!(rig.poster().unwrap().ends_with(&only_frame(&[3; 1000])));
    // The next encoder may send another video.
    drop(publisher);
    rig.until_session(SessionState::Reconnecting).await;
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut vec![frame(0, false, 4)]);
    rig.clock.advance(AGE);
    assert!(rig.poster().is_none(), "no keyframe yet");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_keyframe_has_no_poster() {
    let rig = Rig::new(&[], Duration::from_secs(30)).await;
    let mut publisher = rig.publish().await.unwrap();
    let config = Packet::configuration(Codec::H264, Bytes::from_static(RECORD));
    let keyframe = |at_ms: i64, size| {
        let at = at_ms * NANOS_PER_MILLI;
        Packet::media(Codec::H264, true, at, at, Bytes::from(vec![1; size]))
    };
    publisher.push(&mut vec![config, keyframe(0, KEYFRAME_BYTES_MAX)]);
    rig.until_session(SessionState::Live).await;
    assert!(rig.poster().is_some());
    publisher.push(&mut vec![keyframe(33, KEYFRAME_BYTES_MAX + 1)]);
    rig.clock.advance(AGE);
    assert!(rig.poster().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_without_readable_video_has_no_poster() {
    let rig = Rig::new(&[], Duration::from_secs(30)).await;
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());
    rig.until_session(SessionState::Live).await;
    assert!(rig.poster().is_none());
}
