//! Clips of a DVR window and of a recording: cut, kept by the driver, ready or failed, and what an interrupted one leaves.

use std::time::Duration;

use satcast_plugin_api::recording::{About, FinishedFile};
use serde_json::json;

use super::*;
use crate::testing::{WINDOW_SECS, file, fill_window};
use crate::{ClipOrder, ClipPlan, ClipRange, NoClip};
use satcast_drivers::published::Opening;
use satcast_store::{ArchiveReport, ClipBegun, ClipCaps, ClipRecord, ClipState, NewClip};

/// Looks for a state that comes soon.
const LOOKS_MAX: usize = 3_000;

impl Rig {
    /// An opening with a DVR window.
    fn window(&self) -> Opening {
        let opening = Opening::new(self.billed.destinations[0], self.session.clone(), START);
        fill_window(&opening, START.0, std::path::Path::new("/nowhere"));
        opening
    }

    fn plan(&self, range: ClipRange) -> ClipPlan {
        ClipPlan::of(&self.window(), range).unwrap()
    }

    async fn row(&self, file_name: &str) -> i64 {
        let new = NewClip {
            stream: self.billed.stream,
            session: self.session.clone(),
            destination: self.billed.destinations[0],
            driver: "keeper".into(),
            file_name: file_name.into(),
            title: String::new(),
            price: Msat(0),
            caps: ClipCaps { clips: 100, making: 100 },
        };
        let begun = self.billed.store.begin_clip(&self.owner(), &new).await.unwrap();
        let ClipBegun::Begun(id) = begun else { panic!("{begun:?}") };
        id
    }

    /// Begins a clip of the window; the label decides what the driver does.
    async fn clip(&self, file_name: &str, label: &str, range: ClipRange) -> i64 {
        self.make(file_name, label, self.plan(range)).await
    }

    async fn make(&self, file_name: &str, label: &str, plan: ClipPlan) -> i64 {
        let slot = self.archive.clip_slot(file_name).unwrap();
        let id = self.row(file_name).await;
        let about = About {
            destination_id: self.billed.destinations[0].0,
            session_id: self.session.to_string(),
            label: label.into(),
            ..About::default()
        };
        let order = ClipOrder {
            id,
            account: self.billed.account,
            driver: "keeper".into(),
            kind: "kept".into(),
            config: json!({}),
            file: FinishedFile { file_name: file_name.into(), about, ..FinishedFile::default() },
        };
        self.archive.make_clip(slot, order, plan);
        id
    }

    /// A recording of the media of the window, from the same time on.
    async fn filmed(&self, name: &str) -> ArchiveRecord {
        testing::fill_recording(name);
        let duration_ms = WINDOW_SECS.unsigned_abs() * 1_000;
        let recording = Recording { duration_ms, ..self.recording(name, RecordingState::Uploading) };
        put(recording.clone());
        self.deliver(recording).await;
        self.record(name).await
    }

    async fn shown(&self, id: i64) -> ClipRecord {
        self.billed.store.clip(self.billed.account, id).await.unwrap().expect("a clip")
    }

    async fn until(&self, id: i64, is_met: impl Fn(&ClipRecord) -> bool) -> ClipRecord {
        for _ in 0..LOOKS_MAX {
            let shown = self.shown(id).await;
            if is_met(&shown) {
                return shown;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{:?}", self.shown(id).await)
    }
}

fn left_over() -> Vec<String> {
    let folder = drivers().data_dir("keeper").unwrap().join("clips");
    let Ok(files) = std::fs::read_dir(folder) else { return Vec::new() };
    files.map(|file| file.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clip_of_the_window_is_kept_and_becomes_ready() {
    let rig = Rig::new(0).await;
    let id = rig.clip("clips/ready.mp4", "label", ClipRange::Last(5)).await;
    let shown = rig.until(id, |clip| clip.archive.is_some()).await;
    let end_ms = START.0 + WINDOW_SECS * 1_000;
    assert_eq!((shown.state, shown.started_at), (ClipState::Making, Some(UnixMillis(end_ms - 5_000))));
    let bytes = file("clips/ready.mp4").unwrap();
    assert_eq!((shown.size_bytes, &bytes[4..8]), (Some(bytes.len() as u64), &b"ftyp"[..]));
    let duration_ms = shown.duration_ms.unwrap();
    assert!((4_950..5_100).contains(&duration_ms), "{duration_ms}");
    let moov = bytes.windows(4).position(|kind| kind == b"moov").unwrap();
    assert!(moov < bytes.windows(4).position(|kind| kind == b"mdat").unwrap(), "moov before the media");
    rig.deliver(testing::finish("clips/ready.mp4")).await;
    let shown = rig.shown(id).await;
    assert_eq!((shown.state, shown.url.as_deref()), (ClipState::Ready, Some("s3://bucket/clips/ready.mp4")));
    let mut clips = [shown];
    rig.archive.sign_clips(&mut clips).await;
    assert_eq!(clips[0].url.as_deref(), Some("https://store.example/clips/ready.mp4?valid=3600"));
    rig.archive.delete_clip(&rig.owner(), &clips[0], true).await.unwrap();
    assert!(journal("clips/ready.mp4").is_none());
    assert!(rig.billed.store.clip(rig.billed.account, id).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_begins_at_the_keyframe_before_it() {
    let rig = Rig::new(0).await;
    let (from, to) = (START.0 + 7_300, START.0 + 9_900);
    let id = rig.clip("clips/range.mp4", "label", ClipRange::Between(from, to)).await;
    let shown = rig.until(id, |clip| clip.archive.is_some()).await;
    assert_eq!(shown.started_at, Some(UnixMillis(START.0 + 7_000)));
    assert!((2_850..3_000).contains(&shown.duration_ms.unwrap()), "{shown:?}");
    let window = rig.window();
    let of = |from: i64, to: i64| ClipPlan::of(&window, ClipRange::Between(from, to)).map(drop);
    assert_eq!(of(START.0 - 9_000, START.0 - 1), Err(NoClip::NoMedia));
    assert_eq!(of(START.0 + WINDOW_SECS * 1_000, i64::MAX), Err(NoClip::NoMedia));
    assert_eq!(of(START.0 - 600_000, START.0 + 1), Err(NoClip::TooLong));
    let bare = Opening::new(rig.billed.destinations[0], rig.session.clone(), START);
    assert_eq!(ClipPlan::of(&bare, ClipRange::Last(5)).map(drop), Err(NoClip::NoMedia));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clip_of_a_recording_is_that_of_the_window() {
    let rig = Rig::new(0).await;
    let record = rig.filmed("filmed.mp4").await;
    let (from, to) = (START.0 + 7_300, START.0 + 9_900);
    let plan = ClipPlan::of_recording(&record, from, to).unwrap();
    assert_eq!(plan.has_ms(), to - from);
    let of_recording = rig.make("clips/recorded.mp4", "label", plan).await;
    let of_window = rig.clip("clips/windowed.mp4", "label", ClipRange::Between(from, to)).await;
    let recorded = rig.until(of_recording, |clip| clip.archive.is_some()).await;
    let windowed = rig.until(of_window, |clip| clip.archive.is_some()).await;
    let facts = |clip: &ClipRecord| (clip.started_at, clip.duration_ms, clip.size_bytes);
    assert_eq!(facts(&recorded), facts(&windowed));
    assert_eq!(recorded.started_at, Some(UnixMillis(START.0 + 7_000)));
    assert!(file("clips/recorded.mp4") == file("clips/windowed.mp4"), "the same file");
    assert!(!left_over().contains(&format!("{of_recording}.source")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recording_has_what_it_has_of_a_range() {
    let rig = Rig::new(0).await;
    let record = rig.filmed("ranges.mp4").await;
    let end = START.0 + WINDOW_SECS * 1_000;
    let has = |from: i64, to: i64| ClipPlan::of_recording(&record, from, to).map(|plan| plan.has_ms());
    for ((from, to), expected) in [
        ((START.0 - 5_000, START.0), None),
        ((end, end + 5_000), None),
        ((START.0 - 5_000, START.0 + 1_500), Some(1_500)),
        ((end - 700, end + 5_000), Some(700)),
        ((i64::MIN, i64::MAX), Some(WINDOW_SECS * 1_000)),
    ] {
        assert_eq!(has(from, to), expected, "{from} to {to}");
    }
    let window = rig.window();
    let has = |range| ClipPlan::of(&window, range).map(|plan| plan.has_ms());
    assert_eq!(has(ClipRange::Between(end - 700, end + 5_000)), Ok(700));
    assert_eq!(has(ClipRange::Between(START.0 - 5_000, i64::MAX)), Ok(WINDOW_SECS * 1_000));
    assert_eq!(has(ClipRange::Between(START.0 - 5_000, START.0 + 1_500)), Ok(1_500));
    assert_eq!(has(ClipRange::Last(7)), Ok(7_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clip_of_a_recording_that_cannot_be_read_fails() {
    let rig = Rig::new(0).await;
    let record = rig.filmed("lost.mp4").await;
    let plan = || ClipPlan::of_recording(&record, START.0, START.0 + 3_000).unwrap();
    testing::lose("lost.mp4");
    let id = rig.make("clips/lost.mp4", "label", plan()).await;
    assert!(rig.until(id, |clip| clip.state == ClipState::Failed).await.error.is_some());
    // The row says more than there is.
    let rest = ArchiveReport { duration_ms: 600_000, ..rig.filmed("short.mp4").await.report };
    let record = ArchiveRecord { report: rest, ..record.clone() };
    let behind = ClipPlan::of_recording(&record, START.0 + 100_000, START.0 + 103_000).unwrap();
    let id = rig.make("clips/behind.mp4", "label", behind).await;
    assert!(rig.until(id, |clip| clip.state == ClipState::Failed).await.error.is_some());
    assert!(!left_over().iter().any(|name| name.ends_with(".source")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clip_waits_for_a_store_that_is_down() {
    let rig = Rig::new(0).await;
    let record = rig.filmed("down.mp4").await;
    let plan = ClipPlan::of_recording(&record, START.0, START.0 + 3_000).unwrap();
    testing::fail_reads("down.mp4", 4);
    let id = rig.make("clips/down.mp4", "label", plan).await;
    let shown = rig.until(id, |clip| clip.archive.is_some() || clip.state == ClipState::Failed).await;
    assert_eq!((shown.state, shown.error, shown.started_at), (ClipState::Making, None, Some(START)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_clip_leaves_its_place_while_its_store_is_down() {
    let rig = Rig::new(0).await;
    let (down, there) = (rig.filmed("never.mp4").await, rig.filmed("there.mp4").await);
    let plan = |record| ClipPlan::of_recording(record, START.0, START.0 + 3_000).unwrap();
    testing::fail_reads("never.mp4", u32::MAX);
    let waiting = rig.make("clips/never.mp4", "label", plan(&down)).await;
    let next = rig.make("clips/next.mp4", "label", plan(&there)).await;
    rig.billed.store.delete_clip(&rig.owner(), waiting).await.unwrap();
    rig.until(next, |clip| clip.archive.is_some()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_refuses_a_file_fails_the_clip() {
    let rig = Rig::new(0).await;
    let id = rig.clip("clips/no.mp4", "refused-", ClipRange::Last(2)).await;
    let shown = rig.until(id, |clip| clip.state == ClipState::Failed).await;
    assert_eq!(shown.error.as_deref(), Some("the disk is full"));
    assert!(!left_over().contains(&format!("{id}.mp4")));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_clips_at_one_time_are_all_made() {
    let rig = Rig::new(0).await;
    let mut ids = Vec::new();
    for number in 0..20_i64 {
        let from = START.0 + number * 700;
        let name = format!("clips/many-{number}.mp4");
        ids.push(rig.clip(&name, "label", ClipRange::Between(from, from + 3_000)).await);
    }
    for id in ids {
        rig.until(id, |clip| clip.archive.is_some()).await;
    }
}

#[tokio::test]
async fn a_clip_that_nobody_makes_was_interrupted() {
    let rig = Rig::new(0).await;
    let (made, lost, kept) = ("clips/made.mp4", "clips/lost.mp4", "clips/kept.mp4");
    let (made_id, lost_id, kept_id) = (rig.row(made).await, rig.row(lost).await, rig.row(kept).await);
    let slot = rig.archive.clip_slot(made).unwrap();
    rig.recording(kept, RecordingState::Uploading);
    let folder = drivers().data_dir("keeper").unwrap().join("clips");
    std::fs::create_dir_all(&folder).unwrap();
    for ending in ["part", "mp4", "source"] {
        std::fs::write(folder.join(format!("{lost_id}.{ending}")), b"half").unwrap();
    }
    rig.archive.compare_all().await;
    assert_eq!(rig.shown(made_id).await.state, ClipState::Making, "this process makes it");
    assert_eq!(rig.shown(kept_id).await.state, ClipState::Making, "the driver has it");
    assert!(rig.shown(kept_id).await.archive.is_some());
    assert_eq!(rig.shown(lost_id).await.state, ClipState::Failed);
    drop(slot);
    rig.archive.compare_all().await;
    assert_eq!(rig.shown(made_id).await.state, ClipState::Failed);
    assert!(left_over().iter().all(|name| !name.starts_with(&format!("{lost_id}."))), "{:?}", left_over());
}

#[tokio::test]
async fn the_file_of_a_clip_that_is_gone_is_removed() {
    let rig = Rig::new(0).await;
    let (deleted, failed) = ("clips/deleted.mp4", "clips/failed.mp4");
    let (deleted_id, failed_id) = (rig.row(deleted).await, rig.row(failed).await);
    rig.billed.store.delete_clip(&rig.owner(), deleted_id).await.unwrap();
    for name in [deleted, failed] {
        rig.deliver(rig.recording(name, RecordingState::Uploading)).await;
    }
    rig.deliver(testing::fail(failed, Class::Network)).await;
    assert_eq!(rig.shown(failed_id).await.state, ClipState::Failed);
    rig.archive.compare_all().await;
    // It does not hold up the reports.
    drop(rig.archive.inner.making.discarding.lock().await);
    assert!(journal(deleted).is_none() && journal(failed).is_none());
    assert!(rig.billed.store.discarded_clips("keeper").await.unwrap().is_empty());
}

#[tokio::test]
async fn clips_that_wait_are_limited() {
    let rig = Rig::new(0).await;
    let name = |number: usize| format!("clips/{number}.mp4");
    let mut slots: Vec<_> =
        (0..crate::CLIPS_WAITING_MAX).map(|number| rig.archive.clip_slot(&name(number)).unwrap()).collect();
    assert!(rig.archive.clip_slot("clips/more.mp4").is_none());
    slots.pop();
    assert!(rig.archive.clip_slot("clips/more.mp4").is_some());
}
