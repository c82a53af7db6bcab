//! Limits: of the disk, of failed recordings, of the journal.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::kit::{DOWN, Kit, disk_full, limits, until};
use super::media::{AVC, video_of};
use crate::actions::Refusal;
use crate::disk::disk_failed;
use crate::full::{SPOOL_FULL, TOO_MANY, check_disk, stopped, too_little_free};
use crate::keeper::{COPIES_TOO_LARGE, copy_deleted};
use crate::limits::Limits;
use satcast_plugin_api::Error;
use satcast_plugin_api::driver::RecordingState;

const DAY_MS: i64 = 24 * 3600 * 1000;

fn stream() -> Vec<satcast_media::Packet> {
    video_of(AVC, 0, 300, 50, 10_000)
}

/// Records until it is refused; returns why.
fn until_refused(kit: &Kit, session: &str) -> Error {
    let mut recorder = kit.recorder(kit.order(session));
    kit.run(async {
        for packet in stream() {
            recorder.push(packet);
            if let Err(error) = recorder.write().await {
                return error;
            }
        }
        panic!("never refused");
    })
}

#[test]
fn a_full_disk_stops_the_recording_and_keeps_the_recorded_part() {
    let kit = Kit::with(Limits { spool_quota: 2_000_000, ..limits() });
    assert_eq!(until_refused(&kit, "s1"), stopped(SPOOL_FULL));
    kit.until_all(RecordingState::Ready);
    let recording = kit.only();
    // Three quarters of it are one account's.
    assert!((1_200_000..1_500_000).contains(&recording.size_bytes), "{recording:?}");
    assert!(recording.duration_ms > 4500);
    assert_eq!(kit.server.objects()[0].1.len() as u64, recording.size_bytes);
    let kit = Kit::with(Limits { free_min: u64::MAX / 2, ..limits() });
    assert_eq!(until_refused(&kit, "s1"), stopped(&disk_failed(too_little_free()).message));
    assert!(kit.recordings().is_empty() && kit.files("spool").is_empty() && kit.files("journal").is_empty());
}

#[test]
fn without_a_reserve_recording_continues_until_the_disk_is_full() {
    let kit = Kit::with(Limits { free_min: 1, ..limits() });
    let full = check_disk(kit.core().table.spool(), kit.core().limits.free_min, u64::MAX).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    let kit = Kit::with(Limits { free_min: 0, ..limits() });
    check_disk(kit.core().table.spool(), kit.core().limits.free_min, u64::MAX).unwrap();
    kit.host.is_full.store(true, Ordering::SeqCst);
    assert_eq!(until_refused(&kit, "s1"), disk_full());
}

#[test]
fn long_recordings_go_on_in_another_file() {
    let kit = Kit::with(Limits { file_bytes: 1_000_000, ..limits() });
    kit.record("s1", stream());
    kit.until_all(RecordingState::Ready);
    let recordings = kit.recordings();
    assert_eq!(recordings.len(), 3, "{recordings:?}");
    assert_eq!(recordings.iter().map(|recording| recording.duration_ms).sum::<u64>(), 12_000);
    let kit = Kit::with(Limits { file_ns: 4_000_000_000, ..limits() });
    kit.record("s1", stream());
    kit.until_all(RecordingState::Ready);
    assert_eq!(kit.recordings().len(), 3);
}

/// Three that have failed, one a second on the clock.
fn three_failed(limits: Limits) -> Kit {
    let kit = Kit::with(limits);
    kit.host.is_down.store(true, Ordering::SeqCst);
    for round in 0..3 {
        kit.record(&format!("s{round}"), stream());
        kit.until_failing();
        kit.host.ahead_ms.fetch_add(DAY_MS + 1000, Ordering::SeqCst);
        kit.until_all(RecordingState::Failed);
    }
    kit
}

#[test]
fn failed_copies_beyond_the_quota_go_the_oldest_first() {
    let kit = three_failed(Limits { failed_quota: 7_000_000, ..limits() });
    assert!(until(|| kit.files("spool").len() == 2), "{:?}", kit.files("spool"));
    assert!(kit.files("spool").iter().all(|name| !name.contains("-s0-")));
    let first = kit.recordings().into_iter().find(|recording| recording.session_id == "s0").unwrap();
    assert_eq!(first.error, Some(copy_deleted(DOWN, COPIES_TOO_LARGE)));
    let gone = kit.answer(|core, answer| crate::actions::retry(core, &first.file_name, answer)).unwrap_err();
    assert_eq!(gone, Refusal::CopyGone.of(&first.file_name));
}

#[test]
fn failed_copies_go_after_their_time() {
    let kit = three_failed(limits());
    assert_eq!(kit.files("spool").len(), 3);
    kit.host.ahead_ms.fetch_add(6 * DAY_MS, Ordering::SeqCst);
    assert!(until(|| kit.files("spool").len() == 1), "{:?}", kit.files("spool"));
    kit.host.ahead_ms.fetch_add(2 * DAY_MS, Ordering::SeqCst);
    assert!(until(|| kit.files("spool").is_empty()));
    assert!(kit.recordings().iter().all(|recording| recording.state == RecordingState::Failed));
}

#[test]
fn the_journal_forgets_the_oldest_that_are_safe() {
    let kit = Kit::with(Limits { known: 4, keep_every: Duration::from_secs(600), ..limits() });
    for round in 0..3 {
        kit.record(&format!("s{round}"), stream());
    }
    kit.until_all(RecordingState::Ready);
    assert_eq!(until_refused(&kit, "s3"), stopped(TOO_MANY));
    let smaller = Kit::with(Limits { known: 20, ..limits() });
    for round in 0..19 {
        smaller.record(&format!("s{round}"), video_of(AVC, 0, 30, 25, 100));
        smaller.until_all(RecordingState::Ready);
        assert!(until(|| smaller.recordings().len() <= 12), "{}", smaller.recordings().len());
    }
    assert_eq!(smaller.recordings().len(), 12);
    assert!(smaller.recordings().iter().all(|recording| recording.session_id != "s0"));
    assert_eq!(smaller.server.objects().len(), 19, "at the store they stay");
}
