//! Bodies by themselves: frames, reads, and files that change under them.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::Version;
use hyper::body::Body as _;
use satcast_plugin_api::{Asset, AssetBody, Audience};

use crate::playback::body::{
    COUNTED_FRAME_BYTES_MAX, FRAME_BYTES_MAX, MEMORY_FRAME_BYTES_MAX, ResponseBody, Slice,
    WAITING_READ_BYTES_MAX,
};
use satcast_drivers::published::{Assets, Published};

fn published(folder: &Path, body: AssetBody) -> Arc<Published> {
    let (name, content_type) = ("a".to_owned(), "video/mp4".to_owned());
    let followed = Default::default();
    let asset = Asset { name, content_type, max_age_secs: 1, audience: Audience::Both, body, followed };
    let assets = Assets::default();
    assets.publish(asset, folder).unwrap();
    assets.get("a").unwrap()
}

/// Tells when it is dropped.
struct Keep(Arc<AtomicBool>);

impl AsRef<[u8]> for Keep {
    fn as_ref(&self) -> &[u8] {
        &[]
    }
}

impl Drop for Keep {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn file(folder: &Path, bytes: &[u8], dropped: &Arc<AtomicBool>) -> Arc<Published> {
    std::fs::write(folder.join("f"), bytes).unwrap();
    let keep = Some(Box::new(Keep(dropped.clone())) as _);
    published(folder, AssetBody::File { path: "f".into(), offset: 0, len: bytes.len() as u64, keep })
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index / 7) as u8).collect()
}

/// The frames up to the end, none over `most` bytes, or the error.
async fn frames(mut body: ResponseBody, most: usize) -> io::Result<Vec<Bytes>> {
    let mut frames = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame?.into_data().unwrap();
        assert!((1..=most).contains(&frame.len()));
        frames.push(frame);
        assert_eq!(body.is_end_stream(), body.left() == 0);
    }
    Ok(frames)
}

#[tokio::test]
async fn memory_is_sent_in_frames_without_a_copy() {
    const SIZE: usize = 2 * MEMORY_FRAME_BYTES_MAX;
    let bytes = Bytes::from(pattern(SIZE));
    let asset = published(Path::new("/"), AssetBody::Memory(bytes.clone()));
    let body = || ResponseBody::new(Slice::of(&asset, 1, SIZE as u64 - 2), None);
    assert_eq!((body().left(), body().size_hint().exact()), (SIZE as u64 - 2, Some(SIZE as u64 - 2)));
    for (version, most) in
        [(Version::HTTP_11, MEMORY_FRAME_BYTES_MAX), (Version::HTTP_2, COUNTED_FRAME_BYTES_MAX)]
    {
        let frames = frames(body().with_frames_of(version), most).await.unwrap();
        assert_eq!(frames.concat(), bytes[1..SIZE - 1]);
        assert_eq!(frames[0].as_ptr(), bytes[1..].as_ptr(), "the driver's own memory");
        // The last one is counted before it is sent.
        let sizes = (frames[0].len(), frames[frames.len() - 1].len());
        assert_eq!(sizes, (most, COUNTED_FRAME_BYTES_MAX), "{version:?}");
    }
    assert!(ResponseBody::new([], None).is_end_stream());
    assert!(Slice::of(&asset, 1, SIZE as u64).is_none() && Slice::of(&asset, u64::MAX, 2).is_none());
}

#[tokio::test]
async fn files_are_sent_whole_cached_or_not_opened_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = pattern(2 * WAITING_READ_BYTES_MAX + 1_000);
    let asset = file(folder.path(), &bytes, &Arc::default());
    for (opened, cached) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut slice = Slice::of(&asset, 10, bytes.len() as u64 - 20).unwrap();
        if opened {
            slice.open().await.unwrap();
        }
        if !cached {
            let file = File::open(folder.path().join("f")).unwrap();
            file.sync_all().unwrap();
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        }
        let frames = frames(ResponseBody::new([slice], None), FRAME_BYTES_MAX).await.unwrap();
        assert!(frames.concat() == bytes[10..bytes.len() - 10], "opened {opened}, cached {cached}");
    }
}

#[tokio::test]
async fn a_truncated_file_ends_the_body_with_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = pattern(2 * WAITING_READ_BYTES_MAX);
    let asset = file(folder.path(), &bytes, &Arc::default());
    let mut slice = Slice::of(&asset, 0, bytes.len() as u64).unwrap();
    slice.open().await.unwrap();
    let mut body = ResponseBody::new([slice], None);
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(first, bytes[..FRAME_BYTES_MAX]);
    let file = File::options().write(true).open(folder.path().join("f")).unwrap();
    file.set_len(WAITING_READ_BYTES_MAX as u64 + 5).unwrap();
    let error = frames(body, FRAME_BYTES_MAX).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    let mut gone = Slice::of(&asset, 0, bytes.len() as u64).unwrap();
    assert_eq!(gone.open().await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn a_file_is_held_until_its_bytes_are_sent() {
    let folder = tempfile::tempdir().unwrap();
    let dropped = Arc::new(AtomicBool::new(false));
    let asset = file(folder.path(), &pattern(100), &dropped);
    let body = ResponseBody::new(Slice::of(&asset, 0, 100), None);
    drop(asset);
    assert!(!dropped.load(Ordering::SeqCst), "a viewer still needs it");
    frames(body, FRAME_BYTES_MAX).await.unwrap();
    assert!(dropped.load(Ordering::SeqCst));
}
