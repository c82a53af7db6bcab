//! The removal of a node that never comes back, and what its data folder can do afterwards.

use super::nodes::{LATER, LEASE, Nodes, node};
use super::recoveries::{failed_report, running_report};
use super::*;
use crate::testing::inspector;
use crate::{
    ArchiveReport, ArchiveState, ClipCaps, EventType, NewClip, NewNode, Recorded, RecoveryBegun, RemovedNode,
};

const FEE: Msat = Msat(360_000);

/// Node a with a live session and a recording in each state, two of them with a paid retry.
struct Left {
    nodes: Nodes,
    session: SessionId,
}

impl Left {
    async fn new() -> Option<Self> {
        let nodes = Nodes::new().await?;
        let session = nodes.begin(&nodes.a.store).await.unwrap();
        let left = Self { nodes, session };
        let a = &left.nodes.a.store;
        left.record(a, left.running("recording.mp4")).await;
        left.record(a, left.uploading("uploading.mp4", 0)).await;
        left.record(a, ArchiveReport { state: ArchiveState::Ready, ..left.running("ready.mp4") }).await;
        left.record(a, left.failed("failed.mp4")).await;
        left.retry("asked.mp4").await;
        let opened = left.retry("opened.mp4").await;
        a.recovery_opened(opened, NOW).await.unwrap();
        left.record(a, left.uploading("opened.mp4", 1)).await;
        left.record(&left.nodes.b, left.running("other.mp4")).await;
        left.nodes.announce(vec![EventType::RecordingFailed, EventType::StreamEnded]).await;
        Some(left)
    }

    fn running(&self, file_name: &str) -> ArchiveReport {
        let report = running_report(self.nodes.destinations[0], self.session.clone());
        ArchiveReport { file_name: file_name.into(), ..report }
    }

    fn failed(&self, file_name: &str) -> ArchiveReport {
        let report = failed_report(self.nodes.destinations[0], self.session.clone());
        ArchiveReport { file_name: file_name.into(), ..report }
    }

    fn uploading(&self, file_name: &str, attempt: u32) -> ArchiveReport {
        let state = ArchiveState::Uploading;
        ArchiveReport { state, attempt, attempt_opened: attempt > 0, ..self.running(file_name) }
    }

    async fn record(&self, store: &Store, report: ArchiveReport) -> i64 {
        let recorded = store.record_archive(report, &|_| true, NOW).await.unwrap();
        let Recorded::Taken(id) = recorded else { panic!("{recorded:?}") };
        id
    }

    /// A failed recording with a paid retry, whose id is returned.
    async fn retry(&self, file_name: &str) -> i64 {
        let a = &self.nodes.a.store;
        let archive = self.record(a, self.failed(file_name)).await;
        let begun = a.begin_recovery(&by(self.nodes.account), archive, 0, FEE).await.unwrap();
        let RecoveryBegun::Begun(id) = begun else { panic!("{begun:?}") };
        id
    }

    async fn remove(&self, name: &str) -> Result<RemovedNode> {
        // As the command does it: by a store that is no node.
        let command = open_at(&self.nodes.a.path, 7).await;
        let removed = command.remove_node(name, LATER).await;
        command.close().await;
        removed
    }

    /// Name, state, and whether its node was removed, of each recording; oldest first.
    async fn recordings(&self) -> Vec<(String, ArchiveState, bool)> {
        let mut all = self.nodes.b.archives_of(self.nodes.account, ALL).await.unwrap();
        all.reverse();
        let shown = all.into_iter().map(|one| {
            let is_lost = one.is_without_node();
            (one.report.file_name, one.report.state, is_lost)
        });
        shown.collect()
    }

    /// Checks that everything is settled once.
    async fn assert_settled(&mut self) {
        let expected = [
            ("recording.mp4", ArchiveState::Failed, true),
            ("uploading.mp4", ArchiveState::Failed, true),
            ("ready.mp4", ArchiveState::Ready, true),
            ("failed.mp4", ArchiveState::Failed, true),
            ("asked.mp4", ArchiveState::Failed, true),
            ("opened.mp4", ArchiveState::Failed, true),
            ("other.mp4", ArchiveState::Recording, false),
        ];
        assert_eq!(
            self.recordings().await,
            expected.map(|(name, state, lost)| (name.to_owned(), state, lost))
        );
        self.nodes.assert_consistent(0).await;
        let last = self.nodes.b.last_session(self.nodes.stream).await.unwrap().unwrap();
        assert_eq!(last.end_reason, Some(EndReason::Interrupted));
        assert_eq!(
            self.nodes.intruder.event_bodies().await.len(),
            4,
            "one end and three failures, each once"
        );
    }
}

#[tokio::test]
async fn a_node_is_removed_after_its_lease_and_settled_once() {
    let Some(mut left) = Left::new().await else { return };
    let before = left.recordings().await;
    assert!(matches!(left.remove("a").await, Err(StoreError::NodeRuns(name)) if name == "a"));
    assert!(matches!(left.remove("nobody").await, Err(StoreError::NotFound("node"))));
    assert_eq!(left.recordings().await, before);
    left.nodes.intruder.end_lease("a").await;
    let removed = left.remove("a").await.unwrap();
    assert_eq!(removed, RemovedNode { sessions: 1, recordings: 3, refunds: 2 });
    left.assert_settled().await;
    assert!(matches!(left.remove("a").await, Err(StoreError::NotFound("node"))));
    let database = inspector(&left.nodes.a.path).await;
    let list = database.nodes().await.unwrap();
    database.close().await;
    assert_eq!(list.iter().map(|node| (node.name.as_str(), node.recordings)).collect::<Vec<_>>(), [("b", 1)]);
}

#[tokio::test]
async fn clips_in_the_making_follow_their_data_folder_and_are_ended_without_it() {
    if testing::server().is_none() {
        return;
    }
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    let (stream, destinations) = rig.stream(account, 1).await.unwrap();
    let session = new_session_id();
    let began =
        NewSession { id: session.clone(), stream_id: stream, started_at: NOW, terms: Terms::default() };
    rig.store.begin_session(began).await.unwrap();
    let (destination, driver) = (destinations[0], "archive".to_owned());
    let caps = ClipCaps { clips: 1, making: 1 };
    let (file_name, title) = ("1.mp4".to_owned(), String::new());
    let new = NewClip { stream, session, destination, driver, file_name, title, price: Msat(0), caps };
    rig.store.begin_clip(&by(account), &new).await.unwrap();
    // The first node has the data folder of the service that was alone.
    rig.store.take_node(&node("a", "first")).await.unwrap();
    let b = open_at(&rig.path, 7).await;
    b.take_node(&node("b", "second")).await.unwrap();
    let late = UnixMillis(i64::MAX);
    assert_eq!(rig.store.unreported_clips("archive").await.unwrap().len(), 1);
    assert_eq!(b.unreported_clips_before(late).await.unwrap().len(), 0);
    rig.store.release_node().await.unwrap();
    let command = open_at(&rig.path, 7).await;
    command.remove_node("a", LATER).await.unwrap();
    assert_eq!(b.unreported_clips_before(late).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_removal_that_was_interrupted_is_repeated() {
    let Some(mut left) = Left::new().await else { return };
    left.nodes.intruder.end_lease("a").await;
    for table in ["transfers", "webhook_events", "node_commands"] {
        left.nodes.intruder.hide(table, true).await;
        assert!(left.remove("a").await.is_err(), "without {table}");
        left.nodes.intruder.hide(table, false).await;
    }
    left.remove("a").await.unwrap();
    left.assert_settled().await;
}

#[tokio::test]
async fn a_removed_node_that_comes_back_is_a_new_one() {
    let Some(mut left) = Left::new().await else { return };
    left.nodes.intruder.end_lease("a").await;
    left.remove("a").await.unwrap();
    // A machine of the same name, and the old process, which was paused.
    let next = open_at(&left.nodes.a.path, 7).await;
    next.take_node(&NewNode { started_at: LATER, ..node("a", "third") }).await.unwrap();
    assert!(left.nodes.a.store.renew_node(LEASE).await.unwrap().is_none());
    assert!(matches!(left.nodes.begin(&left.nodes.a.store).await, Err(StoreError::OwnershipLost)));
    assert!(next.renew_node(LEASE).await.unwrap().is_some());
    next.release_node().await.unwrap();
    // The old data folder. It has uploaded its recordings after all.
    let back = open_at(&left.nodes.a.path, 7).await;
    back.take_node(&NewNode { started_at: LATER, ..node("a", "first") }).await.unwrap();
    assert!(back.known_archives("archive").await.unwrap().is_empty());
    assert!(back.asked_recoveries("archive").await.unwrap().is_empty());
    assert!(back.opened_recoveries().await.unwrap().is_empty());
    for name in ["recording.mp4", "uploading.mp4", "asked.mp4", "opened.mp4"] {
        for state in [ArchiveState::Uploading, ArchiveState::Ready] {
            let report = ArchiveReport { state, changed_at: LATER, ..left.uploading(name, 2) };
            assert_eq!(
                back.record_archive(report, &|_| true, LATER).await.unwrap(),
                Recorded::Late,
                "{name}"
            );
        }
    }
    left.assert_settled().await;
    left.record(&back, left.running("new.mp4")).await;
    assert_eq!(back.known_archives("archive").await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_data_folder_with_another_name_keeps_its_recordings() {
    let Some(left) = Left::new().await else { return };
    left.nodes.a.store.release_node().await.unwrap();
    let renamed = open_at(&left.nodes.a.path, 7).await;
    renamed.take_node(&NewNode { started_at: LATER, ..node("c", "first") }).await.unwrap();
    let before = left.recordings().await;
    let removed = left.remove("a").await.unwrap();
    assert_eq!(removed, RemovedNode { sessions: 1, recordings: 0, refunds: 0 });
    assert_eq!(left.recordings().await, before);
    assert_eq!(renamed.known_archives("archive").await.unwrap().len(), 6);
}
