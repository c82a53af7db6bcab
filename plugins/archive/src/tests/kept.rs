//! Finished files of the host become recordings, also when the process is killed on the way.

use std::fs;

use satcast_plugin_api::Class;
use satcast_plugin_api::driver::{FinishedFile, RecordingState};

use super::kit::{Kit, until};
use crate::config::Config;
use crate::entry::{Entry, State};
use crate::journal::Journal;
use crate::kept;

const NAME: &str = "clips/one.mp4";

fn bytes(count: usize) -> Vec<u8> {
    (0..count as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// A finished file of the host with these bytes.
fn given(kit: &Kit, name: &str, bytes: &[u8]) -> FinishedFile {
    let path = format!("clips/{}", name.rsplit('/').next().unwrap());
    fs::create_dir_all(kit.folder.path().join("clips")).unwrap();
    fs::write(kit.folder.path().join(&path), bytes).unwrap();
    let about = kit.order("s1").about;
    let (started_at_ms, duration_ms, audio_only) = (5_000, 30_500, true);
    FinishedFile { file_name: name.into(), path, about, started_at_ms, duration_ms, audio_only }
}

fn config() -> Config {
    serde_json::from_str("{}").unwrap()
}

#[test]
fn a_finished_file_is_uploaded_as_it_is() {
    let kit = Kit::new();
    let content = bytes(20 * 1024 * 1024 + 3);
    let file = given(&kit, NAME, &content);
    kit.answer(|core, answer| kept::keep(core, file.clone(), config(), answer)).unwrap();
    assert!(kit.files("clips").is_empty(), "the driver has taken the file");
    kit.until_all(RecordingState::Ready);
    let recording = kit.only();
    assert_eq!((recording.file_name.as_str(), recording.destination_id), (NAME, 7));
    assert_eq!((recording.started_at_ms, recording.duration_ms, recording.audio_only), (5_000, 30_500, true));
    assert_eq!((recording.size_bytes, recording.session_id.as_str()), (content.len() as u64, "s1"));
    kit.assert_whole(&content);
    assert_eq!(kit.server.objects()[0].0, format!("pre/fix/{NAME}"));
    // A repeat changes nothing, and needs no file.
    kit.answer(|core, answer| kept::keep(core, file, config(), answer)).unwrap();
    assert_eq!(kit.recordings().len(), 1);
    kit.answer(|core, answer| crate::actions::delete(core, NAME, true, answer)).unwrap();
    assert!(kit.server.objects().is_empty() && kit.recordings().is_empty());
}

#[test]
fn a_file_that_cannot_be_kept_stays_with_the_host() {
    let kit = Kit::new();
    let missing = FinishedFile { path: "clips/none.mp4".into(), ..given(&kit, NAME, b"x") };
    let empty = given(&kit, "clips/empty.mp4", b"");
    for file in [missing, empty] {
        let refused = kit.answer(|core, answer| kept::keep(core, file, config(), answer)).unwrap_err();
        assert_eq!(refused.class, Class::Internal);
    }
    let elsewhere: Config = serde_json::from_str(r#"{"bucket":"b"}"#).unwrap();
    let file = given(&kit, NAME, b"x");
    let refused = kit.answer(|core, answer| kept::keep(core, file, elsewhere, answer)).unwrap_err();
    assert_eq!(refused.class, Class::Config);
    assert_eq!(kit.files("clips"), ["empty.mp4", "one.mp4"]);
    assert!(kit.recordings().is_empty() && kit.files("spool").is_empty() && kit.files("journal").is_empty());
}

#[test]
fn a_kill_before_the_move_is_made_good() {
    let mut kit = Kit::new();
    let content = bytes(9_000_000);
    let file = given(&kit, NAME, &content);
    kit.kill();
    // The journal was written, the file was not moved.
    let journal = Journal::open(kit.folder.path().join("journal")).unwrap();
    let mut entry = Entry::new(NAME.into(), 5_000);
    entry.about = file.about;
    (entry.bytes, entry.given) = (content.len() as u64, Some(file.path));
    entry.state = State::Uploading { trouble: None, failing_ms: 0 };
    journal.save(&entry).unwrap();
    kit.load();
    kit.until_all(RecordingState::Ready);
    kit.assert_whole(&content);
    assert!(kit.files("clips").is_empty());
}

#[test]
fn a_kill_after_the_move_is_made_good() {
    let mut kit = Kit::new();
    kit.host.is_down.store(true, std::sync::atomic::Ordering::SeqCst);
    let content = bytes(9_000_000);
    let file = given(&kit, NAME, &content);
    kit.answer(|core, answer| kept::keep(core, file, config(), answer)).unwrap();
    kit.kill();
    kit.host.is_down.store(false, std::sync::atomic::Ordering::SeqCst);
    kit.load();
    assert!(until(|| kit.only().state == RecordingState::Ready));
    kit.assert_whole(&content);
}
