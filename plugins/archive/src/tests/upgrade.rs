//! Journal files written by version 1 of the driver: unfinished uploads continue after an upgrade.
//!
//! `version1.json` holds one file for each state in which a kill left a recording.

use std::collections::BTreeMap;
use std::path::Path;

use satcast_plugin_api::Class;
use satcast_plugin_api::driver::RecordingState;
use serde_json::Value;

use super::kit::{Kit, until};
use super::media::{self, AVC, video_of};
use crate::entry::{Bucket, Entry, Fate, State, Trouble, VERSION};
use crate::journal::Journal;
use crate::names::stem;
use crate::outside::Outside as _;

fn kept(name: &str) -> Value {
    let all: BTreeMap<String, Value> = serde_json::from_str(include_str!("version1.json")).unwrap();
    all[name].clone()
}

fn put(journal: &Path, file: &Value) {
    let name = format!("{}.json", stem(file["fileName"].as_str().unwrap()));
    std::fs::write(journal.join(name), file.to_string()).unwrap();
}

fn read(name: &str) -> Entry {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path().join("journal")).unwrap();
    put(&folder.path().join("journal"), &kept(name));
    let entry = journal.load(true).unwrap().remove(0);
    // As it is written now, it is read again.
    journal.save(&entry).unwrap();
    assert_eq!(journal.load(true).unwrap(), std::slice::from_ref(&entry));
    entry
}

#[test]
fn every_kept_file_has_its_state() {
    let uploading = |trouble, failing_ms| State::Uploading { trouble, failing_ms };
    let trouble = |class, error: &Value| Trouble { error: error.as_str().unwrap().to_owned(), class };
    let down = trouble(Class::Network, &kept("waiting")["error"]);
    let busy = trouble(Class::Remote, &kept("failed")["error"]);
    let url = kept("ready")["url"].as_str().unwrap().to_owned();
    let deleting = |object, failing_ms| State::Deleting { object, failing_ms };
    // What may be at the store: parts of an open upload, earlier uploads, and whether a checksum is known.
    let table = [
        ("recording", State::Recording { trouble: None }, Some((2, 0, false))),
        ("waiting", uploading(Some(down), 272), None),
        ("completing", uploading(None, 0), Some((3, 0, true))),
        ("removing", deleting(Fate::GoesIfOurs, 0), Some((3, 0, true))),
        ("ready", State::Done { url }, Some((0, 0, true))),
        ("removing-ready", deleting(Fate::Goes, 0), Some((0, 0, true))),
        ("deleted", State::Gone { is_deleted: true }, None),
        ("failed", State::Failed { trouble: busy, has_copy: true }, Some((0, 0, true))),
        ("retried", uploading(None, 0), Some((0, 0, true))),
        ("leaving", deleting(Fate::Stays, 261), Some((0, 1, true))),
        ("expired", State::Gone { is_deleted: false }, None),
    ];
    for (name, state, at_store) in table {
        let (entry, old) = (read(name), kept(name));
        let found = entry.at_store.as_ref();
        let found = found.map(|one| (entry.parts(), one.stale.len(), one.sum.is_some()));
        assert_eq!((&entry.state, found), (&state, at_store), "{name}");
        assert_eq!(entry.at_store.map(|one| one.key), at_store.and(old["key"].as_str().map(str::to_owned)));
        assert_eq!(
            (entry.version, entry.about.destination_id, entry.about.account_id, entry.number),
            (VERSION, 7, 3, 1)
        );
        assert_eq!((entry.about.session_id.as_str(), entry.about.label.as_str()), ("s1", "My stream"));
        assert_eq!(Value::from(entry.bytes), old["bytes"]);
        assert_eq!(Value::from(entry.started_at_ms), old["startedAtMs"]);
        assert_eq!(Value::from(entry.changed_at_ms), old["changedAtMs"]);
        assert_eq!(Value::from(entry.retention_days), old["retentionDays"]);
        assert_eq!(Value::from(entry.attempt), old["attempt"]);
        assert_eq!(Value::from(entry.attempt_opened), old["attemptOpened"]);
        let is_own = matches!(entry.bucket, Bucket::Own(_));
        assert_eq!(is_own, name == "waiting");
    }
}

#[test]
fn unfinished_uploads_are_completed() {
    for (name, stream) in [
        ("waiting", video_of(AVC, 0, 100, 50, 1000)),
        ("recording", video_of(AVC, 0, 500, 50, 40_000)),
        ("completing", video_of(AVC, 0, 500, 50, 40_000)),
    ] {
        let mut kit = Kit::new();
        kit.kill();
        let mut file = kept(name);
        let sealed = kit.host.unseal(file["sealed"].as_str().unwrap()).unwrap();
        let mut target: Value = serde_json::from_str(&sealed).unwrap();
        target["endpoint"] = Value::from(format!("http://{}", kit.server.address));
        file["sealed"] = Value::from(kit.host.seal(&target.to_string()).unwrap());
        let whole = media::files(stream).remove(0);
        // The present version cuts other fragments.
        file["bytes"] = Value::from(whole.len());
        put(&kit.folder.path().join("journal"), &file);
        let spooled = format!("{}.mp4", stem(file["fileName"].as_str().unwrap()));
        std::fs::write(kit.folder.path().join("spool").join(spooled), &whole).unwrap();
        kit.load();
        kit.until_all(RecordingState::Ready);
        kit.assert_whole(&whole);
        assert!(until(|| kit.server.leftovers().is_empty()), "{name}");
    }
}
