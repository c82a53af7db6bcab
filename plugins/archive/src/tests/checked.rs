//! What is proved of an upload: by CRC-64/NVME, by MD5 where the store knows none, and against the recording itself.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use object_store::PutPayload;
use ring::digest::{SHA256, digest};
use satcast_plugin_api::Class;
use satcast_plugin_api::driver::RecordingState;

use super::kit::{Kit, until};
use super::media::{self, AVC, video_of};
use super::server::{Act, Ask, SECRET_KEY, Support};
use crate::crc::{Crc, Summing};
use crate::parts::part;
use crate::upload::fault::{Fault, Kind};
use crate::upload::send::damaged;
use crate::upload::store::{Labels, Sending, Store};
use crate::upload::sums::is_crc;
use crate::upload::wire::Payload;

/// Three parts.
fn stream() -> Vec<satcast_media::Packet> {
    video_of(AVC, 0, 500, 50, 40_000)
}

fn crc(bytes: &[u8]) -> Crc {
    let mut sum = Summing::default();
    sum.add(bytes);
    sum.sum()
}

fn is_refused<T>(outcome: Result<T, Fault>) -> bool {
    outcome.is_err_and(|fault| fault.kind == Kind::Other && fault.to_string().contains("BadDigest"))
}

#[test]
fn a_store_refuses_wrong_checksums_and_repeats_right_ones() {
    let kit = Kit::new();
    let store = Store::new(kit.own(SECRET_KEY).0, kit.core().sockets.clone());
    let labels = Labels { title: String::new(), session: "s1".into(), started: String::new() };
    let bytes = Bytes::from_static(b"a part");
    let signed = Payload::Sha256(digest(&SHA256, &bytes).as_ref().try_into().unwrap());
    let (right, wrong) = (crc(&bytes), crc(b"another"));
    let sending = |payload, crc| Sending { bytes: PutPayload::from(bytes.clone()), payload, crc: Some(crc) };
    kit.run(async {
        let opened = store.open("k", &labels).await.unwrap();
        assert!(opened.takes_crcs);
        for payload in [signed, Payload::Unsigned] {
            assert!(is_refused(store.part("k", &opened.id, 0, sending(payload, wrong)).await));
            let (etag, repeated) = store.part("k", &opened.id, 0, sending(payload, right)).await.unwrap();
            assert_eq!((etag.is_empty(), repeated), (false, Some(right.text())));
            let parts = vec![etag];
            assert!(is_refused(store.complete("k", &opened.id, parts, Some(wrong)).await));
        }
        let (etag, _) = store.part("k", &opened.id, 0, sending(signed, right)).await.unwrap();
        store.complete("k", &opened.id, vec![etag], Some(right)).await.unwrap();
        let found = store.find("k", Some(&right.text())).await.unwrap().unwrap();
        assert_eq!(found.sums.like(&right.text()), Some(right.text().as_str()));
    });
}

/// Records while the store completes nothing, and returns what is known then: whether the store takes checksums of parts,
/// whether each ETag was an MD5, and whether the whole is compared by CRC.
fn known(kit: &Kit) -> (bool, bool, bool) {
    kit.server.script(|_, ask| if ask == Ask::Complete { Act::Answer(503) } else { Act::Pass });
    kit.record("s1", stream());
    let item = kit.core().table.all().remove(0);
    assert!(until(|| item.data().entry.sum().is_some()), "{:?}", kit.server.asked());
    let data = item.data();
    assert_eq!(data.entry.crcs.len(), 3);
    let upload = data.entry.upload().unwrap();
    (upload.takes_crcs, upload.has_sums, data.entry.sum().is_some_and(is_crc))
}

#[test]
fn every_store_is_checked_by_what_it_supports() {
    for (support, expected, opens) in [
        (Support::Full, (true, false, true), 1),
        (Support::Ignores, (true, true, false), 1),
        (Support::Refuses, (false, true, false), 2),
    ] {
        let kit = Kit::new();
        kit.server.support(support);
        assert_eq!(known(&kit), expected, "{support:?}");
        assert_eq!(kit.server.asked().iter().filter(|ask| **ask == Ask::Open).count(), opens, "{support:?}");
        kit.server.script(|_, _| Act::Pass);
        kit.until_all(RecordingState::Ready);
        kit.assert_whole(&media::files(stream())[0]);
        assert!(until(|| kit.server.leftovers().is_empty()), "{support:?}");
    }
}

#[test]
fn a_store_without_checksums_takes_no_bytes_that_change_on_the_way() {
    let kit = Kit::new();
    kit.server.support(Support::Ignores);
    kit.server.on(Ask::Part(2), 1, Act::Corrupt);
    kit.record("s1", stream());
    kit.until_all(RecordingState::Ready);
    kit.assert_whole(&media::files(stream())[0]);
}

/// Changes a byte of the only local copy, in its second part; returns the copy's name and content.
fn damage(kit: &Kit) -> (PathBuf, Vec<u8>) {
    let path = kit.folder.path().join("spool").join(kit.files("spool").remove(0));
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    (path, bytes)
}

#[test]
fn a_damaged_local_copy_is_never_confirmed() {
    for support in [Support::Full, Support::Ignores] {
        let kit = Kit::new();
        kit.server.support(support);
        kit.host.is_down.store(true, Ordering::SeqCst);
        kit.record("s1", stream());
        kit.until_failing();
        let (path, _) = damage(&kit);
        kit.host.is_down.store(false, Ordering::SeqCst);
        kit.until_all(RecordingState::Failed);
        let recording = kit.only();
        assert_eq!(recording.error_class, Some(Class::Internal));
        assert_eq!(recording.error, Some(damaged(part(1).unwrap()).to_string()));
        assert!(kit.server.objects().is_empty() && path.exists());
        assert!(until(|| kit.server.leftovers().is_empty()), "{support:?}");
    }
}

/// A crash of the machine may change what was not synced. The checksums of it are not kept beyond the crash.
#[test]
fn what_a_crash_left_of_a_running_recording_is_uploaded() {
    let mut kit = Kit::new();
    kit.host.is_down.store(true, Ordering::SeqCst);
    let mut recorder = kit.recorder(kit.order("s1"));
    kit.run(async {
        for packet in stream() {
            recorder.push(packet);
            recorder.write().await.unwrap();
        }
    });
    let item = kit.core().table.all().remove(0);
    // The journal has checksums of parts that the store does not have.
    assert_eq!(item.data().entry.crcs.len(), 2);
    kit.run(kit.core().table.change(&item, |_| ())).unwrap();
    std::mem::forget(recorder);
    kit.kill();
    let (_, bytes) = damage(&kit);
    kit.host.is_down.store(false, Ordering::SeqCst);
    kit.load();
    kit.until_all(RecordingState::Ready);
    kit.assert_whole(&bytes);
}
