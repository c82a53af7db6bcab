//! Slates: one for each stream, of its account only, gone with the stream.

use super::*;
use crate::slates::SLATES_MIB_MAX;
use crate::{AuditFilter, SlateAudio, SlateRecord};

pub(super) fn slate() -> SlateRecord {
    SlateRecord {
        max_seconds: 60,
        length_ms: 10_005,
        bytes: 0,
        video_codec: "h264".into(),
        size: (1_280, 720),
        frame_rate_milli: 29_970,
        audio: Some(SlateAudio { codec: "aac".into(), sample_rate: 48_000, channels: 2 }),
        uploaded_at: UnixMillis(0),
    }
}

/// The file itself is not needed to fill an account: what its other slates take is added up from their rows.
#[tokio::test]
async fn the_slates_of_an_account_have_a_limit_together() {
    let rig = Rig::new().await;
    let (me, you) = (rig.account("me", 0).await.unwrap(), rig.account("you", 0).await.unwrap());
    let ((first, _), (second, _)) = (rig.stream(me, 0).await.unwrap(), rig.stream(me, 0).await.unwrap());
    let (other, _) = rig.stream(you, 0).await.unwrap();
    rig.store.set_slate(&by(me), first, slate(), vec![1]).await.unwrap();
    let full = (SLATES_MIB_MAX << 20) - 1;
    let fill = engine::query("UPDATE slates SET media_bytes = $1").bind(full);
    fill.execute(&rig.store.0.writer).await.unwrap();
    rig.store.set_slate(&by(me), second, slate(), vec![1]).await.unwrap();
    let refused = rig.store.set_slate(&by(me), second, slate(), vec![1, 2]).await;
    assert!(matches!(refused, Err(StoreError::CapReached { limit: SLATES_MIB_MAX, .. })));
    rig.store.set_slate(&by(you), other, slate(), vec![1, 2]).await.unwrap();
    // Its own file does not count when it is replaced.
    rig.store.set_slate(&by(me), first, slate(), vec![1, 2]).await.unwrap();
    rig.store.set_slate(&by(me), second, slate(), vec![1, 2]).await.unwrap();
}

#[tokio::test]
async fn a_stream_has_one_slate_that_its_account_sets_and_deletes() {
    let rig = Rig::new().await;
    let (me, you) = (rig.account("me", 0).await.unwrap(), rig.account("you", 0).await.unwrap());
    let (stream, _) = rig.stream(me, 0).await.unwrap();
    let missing = |result: Result<()>| matches!(result, Err(StoreError::NotFound(_)));
    assert_eq!(rig.store.slate(stream).await.unwrap(), None);
    assert!(missing(rig.store.delete_slate(&by(me), stream).await));
    let refused = rig.store.set_slate(&by(you), stream, slate(), vec![1]).await;
    assert!(missing(refused.map(drop)));

    // Also bytes that are no text.
    let media: Vec<u8> = (0..=255).cycle().take(1_000_000).collect();
    let set = rig.store.set_slate(&by(me), stream, slate(), media.clone()).await.unwrap();
    assert_eq!(set, SlateRecord { bytes: 1_000_000, uploaded_at: NOW, ..slate() });
    assert_eq!(rig.store.slate(stream).await.unwrap(), Some(set.clone()));
    assert_eq!(rig.store.slate_media(stream).await.unwrap(), Some((set, media)));
    let silent = SlateRecord { audio: None, max_seconds: 5, ..slate() };
    let set = rig.store.set_slate(&by(me), stream, silent, vec![7]).await.unwrap();
    assert_eq!(rig.store.slate_media(stream).await.unwrap(), Some((set, vec![7])));

    assert!(missing(rig.store.delete_slate(&by(you), stream).await));
    rig.store.delete_slate(&by(me), stream).await.unwrap();
    assert_eq!(rig.store.slate_media(stream).await.unwrap(), None);
    rig.store.set_slate(&by(me), stream, slate(), vec![7]).await.unwrap();
    rig.store.delete_stream(&by(me), stream).await.unwrap();
    assert_eq!(rig.store.slate(stream).await.unwrap(), None);
    let filter = AuditFilter { account: Some(me), ..AuditFilter::default() };
    let log = rig.store.audit(filter, ALL).await.unwrap();
    let of_slates = log.iter().map(|entry| entry.action.as_str()).filter(|name| name.contains("slate"));
    let actions = ["stream.slate_set", "stream.slate_deleted", "stream.slate_set", "stream.slate_set"];
    assert_eq!(of_slates.collect::<Vec<_>>(), actions);
}
