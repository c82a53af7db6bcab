//! Kills at every point: the result is one whole object.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::kit::{Kit, until};
use super::media::{self, AVC, video_of};
use super::server::{Act, Ask};
use crate::actions;
use crate::disk::disk_failed;
use crate::entry::State;
use crate::journal::Journal;
use crate::upload::send::lost;
use satcast_plugin_api::driver::RecordingState;

const HOUR_MS: i64 = 3_600_000;

/// Three parts.
fn stream() -> Vec<satcast_media::Packet> {
    video_of(AVC, 0, 500, 50, 40_000)
}

/// Kills the driver when the store was asked for the `number`th time: before it hears of it, or when it has done it and the
/// answer has not come. The journal is written beside the requests, so it may not have the latest answers yet. True when the
/// upload was over before.
fn killed_at(number: u64, is_done_first: bool) -> bool {
    let mut kit = Kit::new();
    let hit = Arc::new(AtomicBool::new(false));
    let seen = hit.clone();
    kit.server.script(move |count, _| match count {
        count if count < number => Act::Pass,
        count if count == number && is_done_first => Act::LoseAnswer,
        _ => {
            seen.store(true, Ordering::SeqCst);
            Act::Hang
        }
    });
    let packets = stream();
    let expected = media::files(packets.clone());
    kit.record("s1", packets);
    let is_over = || kit.recordings().iter().all(|recording| recording.state == RecordingState::Ready);
    assert!(until(|| hit.load(Ordering::SeqCst) || is_over()));
    let was_over = is_over();
    kit.kill();
    kit.server.script(|_, _| Act::Pass);
    kit.load();
    kit.until_all(RecordingState::Ready);
    kit.assert_whole(&expected[0]);
    assert!(until(|| kit.server.leftovers().is_empty()), "{number}: {:?}", kit.server.leftovers());
    let ended = |ask: &Ask| *ask == Ask::Open;
    assert!(kit.server.asked().iter().filter(|ask| ended(ask)).count() <= 1);
    was_over
}

#[test]
fn a_kill_at_any_request_ends_in_one_object() {
    for is_done_first in [false, true] {
        let last = (0..20).find(|number| killed_at(*number, is_done_first));
        // Look, open, three parts, complete, look.
        assert!(last.is_some_and(|last| last >= 6), "{last:?}");
    }
}

#[test]
fn a_kill_while_it_is_recorded_keeps_all_but_the_last_second() {
    let mut kit = Kit::new();
    for (round, torn) in [0_usize, 1, 8, 100, 5000].into_iter().enumerate() {
        let packets = video_of(AVC, 0, 300, 50, 40_000);
        let session = format!("s{round}");
        let mut recorder = kit.recorder(kit.order(&session));
        kit.run(async {
            for packet in packets.clone() {
                recorder.push(packet);
                recorder.write().await.unwrap();
            }
        });
        std::mem::forget(recorder);
        kit.kill();
        let name = kit.files("spool").into_iter().find(|name| name.contains(&session)).unwrap();
        let path = kit.folder.path().join("spool").join(name);
        // Half of the next fragment, as the kill left it.
        let mut bytes = std::fs::read(&path).unwrap();
        let written = bytes.len();
        let next = media::files(packets.clone()).remove(0);
        assert!(written < next.len());
        bytes.extend_from_slice(&next[written..written + torn]);
        std::fs::write(&path, &bytes).unwrap();
        kit.load();
        assert!(until(|| kit.server.objects().len() == round + 1), "{:?}", kit.recordings());
        kit.until_all(RecordingState::Ready);
        let object = kit.server.objects().into_iter().find(|(key, _)| key.contains(&session)).unwrap();
        assert!(object.1 == next[..written], "{torn}: up to the last whole fragment");
        let recordings = kit.recordings();
        let recording = recordings.iter().find(|recording| recording.session_id == session).unwrap();
        assert!(recording.duration_ms >= 11_000, "{recording:?}");
    }
    assert!(kit.server.leftovers().is_empty());
}

#[test]
fn a_dropped_recorder_is_closed_as_after_a_crash() {
    let kit = Kit::new();
    let packets = video_of(AVC, 0, 300, 50, 1000);
    let mut recorder = kit.recorder(kit.order("s1"));
    kit.run(async {
        for packet in packets {
            recorder.push(packet);
            recorder.write().await.unwrap();
        }
    });
    assert_eq!(kit.only().state, RecordingState::Recording);
    drop(recorder);
    kit.until_all(RecordingState::Ready);
    assert!(kit.only().duration_ms >= 11_000);
}

/// The session is cut in the middle of a file's first write.
#[test]
fn a_recorder_that_is_dropped_at_its_first_file_leaves_no_ghost() {
    let kit = Kit::new();
    for polls in 1..8 {
        let mut recorder = kit.recorder(kit.order(&format!("s{polls}")));
        kit.run(async {
            for packet in video_of(AVC, 0, 60, 50, 1000) {
                recorder.push(packet);
            }
            let mut writing = Box::pin(recorder.write());
            for _ in 0..polls {
                if futures_util::poll!(&mut writing).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        });
        drop(recorder);
    }
    let is_settled = || kit.recordings().iter().all(|recording| recording.state == RecordingState::Ready);
    assert!(until(is_settled), "{:?}", kit.recordings());
    let left = || (kit.files("spool").len(), kit.server.objects().len() == kit.recordings().len());
    assert!(until(|| left() == (0, true)), "{:?} {:?}", left(), kit.recordings());
}

/// The deadline of a day stays a day, however often the service restarts.
#[test]
fn the_time_without_progress_continues_over_restarts() {
    let mut kit = Kit::new();
    kit.host.is_down.store(true, Ordering::SeqCst);
    // Shorter than a part: nothing is tried, and so nothing fails, before its end is in the journal.
    kit.record("s1", video_of(AVC, 0, 100, 50, 1000));
    let item = |kit: &Kit| kit.core().table.all().remove(0);
    let journal = Journal::open(kit.folder.path().join("journal")).unwrap();
    for round in 1..=2_i64 {
        assert!(until(|| item(&kit).data().failed_at.is_some()));
        kit.host.ahead_ms.fetch_add(13 * HOUR_MS, Ordering::SeqCst);
        if round == 1 {
            // Written down by the next failure.
            let noted = |entry: crate::entry::Entry| matches!(entry.state, State::Uploading { failing_ms, .. } if failing_ms >= 13 * HOUR_MS as u64);
            assert!(until(|| journal.load(false).unwrap().into_iter().all(noted)));
            assert_eq!(kit.only().state, RecordingState::Uploading);
            kit.kill();
            // Nobody tries while nothing runs.
            kit.host.ahead_ms.fetch_add(72 * HOUR_MS, Ordering::SeqCst);
            kit.load();
        }
    }
    kit.until_all(RecordingState::Failed);
}

/// What is set is the clock of the wall.
#[test]
fn clock_changes_do_not_affect_the_deadline() {
    for set_ms in [10 * 24 * HOUR_MS, -10 * 24 * HOUR_MS] {
        let kit = Kit::new();
        kit.host.is_down.store(true, Ordering::SeqCst);
        kit.record("s1", video_of(AVC, 0, 100, 50, 1000));
        let item = kit.core().table.all().remove(0);
        let failed_at = || item.data().failed_at;
        assert!(until(|| failed_at().is_some()));
        kit.host.set_ms.store(set_ms, Ordering::SeqCst);
        let then = failed_at();
        assert!(until(|| failed_at() > then), "the upload is still tried");
        assert_eq!(kit.only().state, RecordingState::Uploading);
        kit.host.ahead_ms.store(25 * HOUR_MS, Ordering::SeqCst);
        kit.until_all(RecordingState::Failed);
    }
}

/// The settings name another store: unfinished uploads end where they began, and objects are looked for where they are.
#[test]
fn recordings_stay_with_the_store_they_began_with() {
    let mut kit = Kit::new();
    kit.server.add_bucket("another");
    kit.record("ready", stream());
    kit.until_all(RecordingState::Ready);
    kit.host.is_down.store(true, Ordering::SeqCst);
    kit.record("waits", stream());
    kit.until_failing();
    kit.kill();
    (kit.settings.bucket, kit.settings.prefix) = (Some("another".into()), None);
    kit.load();
    kit.host.is_down.store(false, Ordering::SeqCst);
    kit.until_all(RecordingState::Ready);
    assert_eq!(kit.server.objects().len(), 2, "both in the bucket of the beginning");
    kit.record("new", stream());
    kit.until_all(RecordingState::Ready);
    assert_eq!((kit.server.objects().len(), kit.server.objects_in("another").len()), (2, 1));
    let ready = kit.of("ready").remove(0);
    let url = actions::sign(kit.core(), &ready.file_name, std::time::Duration::from_secs(60)).unwrap();
    assert!(url.contains("/recordings/pre/fix/"), "{url}");
    kit.answer(|core, answer| actions::delete(core, &ready.file_name, true, answer)).unwrap();
    assert_eq!(kit.server.objects().len(), 1);
    assert!(super::kit::is_nowhere(kit.folder.path(), super::server::SECRET_KEY));
}

/// New keys for the same bucket also apply to recordings that began with the old ones.
#[test]
fn new_keys_of_the_operators_store_hold_for_what_began_before() {
    let mut kit = Kit::new();
    kit.kill();
    kit.settings.secret_key = Some(satcast_plugin_api::Secret::new("not-the-secret".into()));
    kit.load();
    kit.record("s1", stream());
    kit.until_failing();
    kit.kill();
    kit.settings.secret_key = Some(satcast_plugin_api::Secret::new(super::server::SECRET_KEY.into()));
    kit.settings.prefix = Some("other".into());
    kit.load();
    kit.until_all(RecordingState::Ready);
    kit.assert_whole(&media::files(stream())[0]);
    assert!(kit.server.objects()[0].0.starts_with("pre/fix/"), "the name is as it was");
}

#[test]
fn a_missing_file_fails_with_a_reason() {
    let mut kit = Kit::new();
    kit.host.is_down.store(true, Ordering::SeqCst);
    kit.record("s1", stream());
    kit.kill();
    let name = kit.files("spool").remove(0);
    std::fs::remove_file(kit.folder.path().join("spool").join(name)).unwrap();
    kit.host.is_down.store(false, Ordering::SeqCst);
    kit.load();
    kit.until_all(RecordingState::Failed);
    let recording = kit.only();
    assert_eq!(recording.error_class, Some(satcast_plugin_api::Class::Internal));
    let no_file = std::io::Error::from_raw_os_error(nix::errno::Errno::ENOENT as i32);
    assert_eq!(recording.error, Some(lost(disk_failed(no_file)).to_string()));
}

#[test]
fn empty_recordings_leave_nothing() {
    let mut kit = Kit::new();
    kit.record("s1", vec![media::record(AVC)]);
    assert!(kit.recordings().is_empty() && kit.files("journal").is_empty());
    // A crash between the note and the first bytes.
    let mut recorder = kit.recorder(kit.order("s2"));
    kit.run(async {
        for packet in video_of(AVC, 0, 100, 50, 1000) {
            recorder.push(packet);
            recorder.write().await.unwrap();
        }
    });
    std::mem::forget(recorder);
    kit.kill();
    let name = kit.files("spool").remove(0);
    std::fs::write(kit.folder.path().join("spool").join(name), b"").unwrap();
    kit.load();
    assert!(until(|| kit.recordings().is_empty() && kit.files("journal").is_empty()));
    assert!(kit.files("spool").is_empty() && kit.server.objects().is_empty());
}

/// As when an operator replaces the driver: the earlier instance records on, in the same folder.
#[test]
fn a_later_instance_takes_up_what_an_earlier_one_did_when_that_is_gone() {
    let mut kit = Kit::new();
    kit.server.script(|_, _| Act::Answer(503));
    let packets = stream();
    let expected = media::files(packets.clone());
    kit.record("s1", packets);
    kit.until_all(RecordingState::Uploading);
    let earlier = kit.replace();
    assert_eq!(kit.recordings().len(), 1, "it tells of it");
    let name = kit.recordings()[0].file_name.clone();
    let refused = kit.answer(|core, answer| actions::delete(core, &name, true, answer)).unwrap_err();
    assert_eq!(refused, actions::Refusal::Elsewhere.of(&name));
    assert!(!kit.core().table.is_alone());
    kit.server.script(|_, _| Act::Pass);
    earlier.end();
    kit.until_all(RecordingState::Ready);
    kit.assert_whole(&expected[0]);
    assert!(kit.core().table.is_alone());
}

#[test]
fn a_recording_starts_when_its_first_frame_came() {
    let kit = Kit::new();
    let mut recorder = kit.recorder(kit.order("s1"));
    // A GOP of four seconds comes at one time, as from the hub.
    media::video(101, 100).into_iter().for_each(|packet| recorder.push(packet));
    let before_ms = kit.core().outside.now_ms();
    kit.run(recorder.write()).unwrap();
    let after_ms = kit.core().outside.now_ms();
    kit.run(recorder.finish()).unwrap();
    let started_ms = kit.only().started_at_ms;
    assert!((before_ms - 4_000..=after_ms - 4_000).contains(&started_ms), "{started_ms} {before_ms}");
}
