//! The cost of a retry: charged once if it began, not at all if it did not, at whatever point a process dies.

use std::time::Duration;

use super::super::mirror::ASKED_MAX;
use super::*;
use satcast_core::config::Durability;
use satcast_drivers::RecordingsError;
use satcast_store::{NewNode, OpenOptions, RecoveryBegun, Store};

const FEE: Msat = Msat(360_000);

impl Rig {
    async fn recover(&self, archive: &ArchiveRecord) -> Result<(), RecoveryError> {
        self.archive.recover(&self.owner(), archive, FEE).await
    }

    /// Kinds and amounts of all entries but the initial credit, oldest first.
    async fn statement(&self) -> Vec<(String, i64)> {
        let entries = self.billed.store.statement(self.billed.account, Page::ALL).await.unwrap();
        let mut shown: Vec<_> = entries.into_iter().map(|entry| (entry.kind, entry.amount.0)).collect();
        shown.reverse();
        shown.split_off(1)
    }

    /// Asserts the posted entries and checks the ledger.
    async fn has_posted(&self, expected: &[(&str, i64)]) {
        let shown = self.statement().await;
        let shown: Vec<_> = shown.iter().map(|(kind, amount)| (kind.as_str(), *amount)).collect();
        assert_eq!(shown, expected);
        self.billed.check().await;
    }
}

const TAKEN: (&str, i64) = ("recovery", -360_000);
const GIVEN: (&str, i64) = ("refund", 360_000);

#[tokio::test]
async fn a_retry_that_begins_is_charged_once_and_one_at_a_time() {
    let rig = Rig::new(1_000).await;
    let failed = rig.known("a.mp4", RecordingState::Failed).await;
    rig.recover(&failed).await.unwrap();
    rig.has_posted(&[TAKEN]).await;
    assert!(rig.record("a.mp4").await.recovering);
    // The driver reports it as uploading; the mirror may not know yet.
    assert!(matches!(rig.recover(&failed).await, Err(RecoveryError::NotFailed)));
    rig.archive.save_reports().await;
    assert_eq!(rig.state("a.mp4").await, ArchiveState::Uploading);
    rig.deliver(testing::finish("a.mp4")).await;
    assert!(!rig.record("a.mp4").await.recovering);
    rig.has_posted(&[TAKEN]).await;
}

#[tokio::test]
async fn a_retry_that_does_not_begin_is_refunded() {
    let rig = Rig::new(400).await;
    let failed = rig.known("refused-a.mp4", RecordingState::Failed).await;
    for tries in 1..=3 {
        let error = rig.recover(&failed).await.unwrap_err();
        assert_eq!(error.to_string(), "the store said 503");
        let posted: Vec<_> = [TAKEN, GIVEN].into_iter().cycle().take(2 * tries).collect();
        rig.has_posted(&posted).await;
        assert!(!rig.record("refused-a.mp4").await.recovering);
    }
    assert_eq!(rig.billed.balance().await, 400_000);
    // A late report of those attempts does not apply to the next one.
    let late = journal("refused-a.mp4").unwrap();
    let next = rig.billed.store.begin_recovery(&rig.owner(), failed.id, late.attempt, FEE).await.unwrap();
    let RecoveryBegun::Begun(next) = next else { panic!("{next:?}") };
    rig.billed.store.recovery_opened(next, rig.billed.clock.now()).await.unwrap();
    rig.deliver(late).await;
    assert!(rig.record("refused-a.mp4").await.recovering);
}

/// The driver's report of the first attempt is saved before the answer is returned, so the next request need not wait.
#[tokio::test]
async fn another_retry_may_follow_at_once() {
    let rig = Rig::new(400).await;
    let failed = rig.known("refused-a.mp4", RecordingState::Failed).await;
    for tries in 1..=3 {
        rig.recover(&failed).await.unwrap_err();
        let known = rig.record("refused-a.mp4").await;
        assert_eq!((known.report.state, known.report.attempt), (ArchiveState::Failed, tries));
        assert!(!known.recovering);
    }
}

#[tokio::test]
async fn a_retry_is_free_when_the_store_already_has_the_object() {
    let rig = Rig::new(400).await;
    let failed = rig.known("there-a.mp4", RecordingState::Failed).await;
    rig.recover(&failed).await.unwrap();
    assert_eq!(rig.state("there-a.mp4").await, ArchiveState::Ready);
    assert!(!rig.record("there-a.mp4").await.recovering);
    rig.has_posted(&[TAKEN, GIVEN]).await;
    // The same when the answer was not saved.
    let failed = rig.known("b.mp4", RecordingState::Failed).await;
    let begun = rig.billed.store.begin_recovery(&rig.owner(), failed.id, 0, FEE).await.unwrap();
    assert!(matches!(begun, RecoveryBegun::Begun(_)));
    testing::change("b.mp4", |recording| recording.attempt = 1);
    testing::finish("b.mp4");
    rig.archive.compare_all().await;
    rig.has_posted(&[TAKEN, GIVEN, TAKEN, GIVEN]).await;
}

#[tokio::test]
async fn without_a_copy_nothing_is_charged_and_the_driver_is_not_asked() {
    let rig = Rig::new(1_000).await;
    let failed = rig.known("a.mp4", RecordingState::Failed).await;
    testing::change("a.mp4", |recording| recording.has_copy = false);
    assert!(matches!(rig.archive.check_copy(&failed).await, Err(RecoveryError::NoCopy)));
    let refused = rig.recover(&failed).await.unwrap_err();
    assert!(matches!(refused, RecoveryError::NoCopy), "{refused:?}");
    assert_eq!(journal("a.mp4").unwrap().attempt, 0);
    rig.has_posted(&[]).await;
}

#[tokio::test]
async fn a_retry_of_an_absent_driver_is_refunded_after_an_hour() {
    let rig = Rig::new(1_000).await;
    let failed = rig.recording("a.mp4", RecordingState::Failed);
    testing::lose("a.mp4");
    rig.reported_by("disabled", failed).await;
    let failed = rig.record("a.mp4").await;
    let begun = rig.billed.store.begin_recovery(&rig.owner(), failed.id, 0, FEE).await.unwrap();
    assert!(matches!(begun, RecoveryBegun::Begun(_)));
    rig.billed.clock.advance(ASKED_MAX);
    rig.archive.compare_all().await;
    rig.has_posted(&[TAKEN]).await;
    rig.billed.clock.advance(Duration::from_millis(1));
    for _ in 0..2 {
        rig.archive.compare_all().await;
        rig.has_posted(&[TAKEN, GIVEN]).await;
    }
    assert!(!rig.record("a.mp4").await.recovering);
}

#[tokio::test]
async fn an_insufficient_balance_begins_nothing() {
    let rig = Rig::new(359).await;
    let failed = rig.known("a.mp4", RecordingState::Failed).await;
    let refused = rig.recover(&failed).await.unwrap_err();
    assert!(matches!(refused, RecoveryError::Insufficient(Msat(359_000))), "{refused:?}");
    assert_eq!(journal("a.mp4").unwrap().attempt, 0, "the driver was not asked");
    rig.has_posted(&[]).await;
    // Without billing a retry is free.
    rig.archive.recover(&rig.owner(), &failed, Msat(0)).await.unwrap();
    assert_eq!(journal("a.mp4").unwrap().attempt, 1);
    rig.deliver(testing::fail("a.mp4", Class::Internal)).await;
    rig.has_posted(&[]).await;
}

#[tokio::test]
async fn internal_failures_are_refunded_and_store_failures_are_not() {
    let rig = Rig::new(5_000).await;
    let mut posted = Vec::new();
    for (index, class, is_ours) in [
        (0, Class::Internal, true),
        (1, Class::Panic, true),
        (2, Class::Network, false),
        (3, Class::Auth, false),
        (4, Class::Remote, false),
        (5, Class::Config, false),
    ] {
        let name = format!("{index}.mp4");
        let failed = rig.known(&name, RecordingState::Failed).await;
        rig.recover(&failed).await.unwrap();
        let report = testing::fail(&name, class);
        rig.deliver(report.clone()).await;
        rig.deliver(report).await;
        rig.archive.compare_all().await;
        posted.push(TAKEN);
        posted.extend(is_ours.then_some(GIVEN));
        rig.has_posted(&posted).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_ten_concurrent_retries_begins() {
    let rig = Arc::new(Rig::new(5_000).await);
    let failed = rig.known("silent-a.mp4", RecordingState::Failed).await;
    let tries: Vec<_> = (0..10)
        .map(|_| {
            let (rig, failed) = (rig.clone(), failed.clone());
            tokio::spawn(async move { rig.recover(&failed).await })
        })
        .collect();
    for _ in 0..2_000 {
        // Nine may be refused before the charge of the tenth is written.
        let refused = tries.iter().filter(|task| task.is_finished()).count();
        if refused == 9 && !rig.statement().await.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // During the request, a listing does not take it for an interrupted one.
    rig.archive.compare_all().await;
    rig.has_posted(&[TAKEN]).await;
    rig.deliver(testing::change("silent-a.mp4", testing::opened)).await;
    assert!(testing::answer("silent-a.mp4", Ok(())), "one was asked for");
    let mut begun = 0;
    for task in tries {
        match task.await.unwrap() {
            Ok(()) => begun += 1,
            Err(error) => assert!(matches!(error, RecoveryError::NotFailed), "{error:?}"),
        }
    }
    assert_eq!(begun, 1);
    rig.has_posted(&[TAKEN]).await;
    // Another process on the same database is also refused while one runs.
    let again = rig.billed.store.begin_recovery(&rig.owner(), failed.id, 0, FEE).await.unwrap();
    assert_eq!(again, RecoveryBegun::Running);
}

#[tokio::test]
async fn a_crash_during_a_retry_charges_exactly_the_opened_uploads() {
    let rig = Rig::new(5_000).await;
    let begin = async |name: &str| {
        let failed = rig.known(name, RecordingState::Failed).await;
        let begun = rig.billed.store.begin_recovery(&rig.owner(), failed.id, 0, FEE).await.unwrap();
        assert!(matches!(begun, RecoveryBegun::Begun(_)));
    };
    // Before the driver was asked; after it counted, before the store opened; after that; and after the end.
    begin("before.mp4").await;
    begin("counted.mp4").await;
    testing::change("counted.mp4", |recording| recording.attempt = 1);
    begin("opened.mp4").await;
    testing::change("opened.mp4", testing::opened);
    begin("ended.mp4").await;
    testing::change("ended.mp4", testing::opened);
    testing::finish("ended.mp4");
    begin("broken.mp4").await;
    testing::change("broken.mp4", testing::opened);
    testing::fail("broken.mp4", Class::Internal);
    begin("lost.mp4").await;
    testing::lose("lost.mp4");
    rig.has_posted(&[TAKEN; 6]).await;
    for _ in 0..2 {
        rig.archive.compare_all().await;
        rig.has_posted(&[TAKEN, TAKEN, TAKEN, TAKEN, TAKEN, TAKEN, GIVEN, GIVEN, GIVEN, GIVEN]).await;
    }
    let recovering = async |name: &str| rig.record(name).await.recovering;
    assert!(recovering("opened.mp4").await);
    for name in ["before.mp4", "counted.mp4", "ended.mp4", "broken.mp4", "lost.mp4"] {
        assert!(!recovering(name).await, "{name}");
    }
    rig.deliver(testing::finish("opened.mp4")).await;
    assert!(!recovering("opened.mp4").await);
    assert_eq!(rig.billed.balance().await, 5_000_000 - 2 * 360_000);
}

#[tokio::test]
async fn a_recovery_may_be_dropped_between_any_two_steps() {
    let rig = Rig::new(100_000).await;
    let mut ended = false;
    for polls in 0..2_000 {
        let name = format!("{polls}.mp4");
        let failed = rig.known(&name, RecordingState::Failed).await;
        let cut = satcast_money::billing::testing::chopped(rig.recover(&failed), polls).await;
        // The driver has answered the request by the time it lists.
        rig.archive.compare_all().await;
        let opened = journal(&name).unwrap().attempt == 1;
        let entries = rig.statement().await;
        let paid: i64 = entries.iter().map(|(_, amount)| amount).sum();
        let cost = if opened { -FEE.0 } else { 0 };
        let before = -FEE.0 * i64::from(rig.opened_before(&name).await);
        assert_eq!(paid, before + cost, "cut after {polls} polls");
        rig.archive.save_reports().await;
        if cut.is_some() {
            ended = true;
            break;
        }
    }
    assert!(ended, "it ends");
    rig.billed.check().await;
}

impl Rig {
    /// Attempts of other recordings that the driver began.
    async fn opened_before(&self, name: &str) -> u32 {
        let all = self.billed.store.archives_of(self.billed.account, Page::ALL).await.unwrap();
        let others = all.iter().filter(|archive| archive.report.file_name != name);
        others
            .filter_map(|archive| journal(&archive.report.file_name))
            .map(|recording| recording.attempt)
            .sum()
    }
}

#[tokio::test]
async fn a_silent_driver_times_out() {
    let rig = Rig::new(0).await;
    rig.recording("silent-b.mp4", RecordingState::Failed);
    let limit = Duration::from_millis(50);
    let error = drivers().retry_recording("keeper", "silent-b.mp4", limit).await.unwrap_err();
    assert_eq!(
        error,
        RecordingsError::Unavailable(
            "the driver gave no answer in 0 s, so its store may hang; check that the store can be reached"
                .into()
        )
    );
    assert!(testing::answer("silent-b.mp4", Ok(())), "a late answer harms nothing");
    let error = drivers().retry_recording("nobody", "x", limit).await.unwrap_err();
    assert_eq!(error.to_string(), "driver nobody is not loaded");
}

#[tokio::test]
async fn a_deleted_recording_keeps_its_charge() {
    let rig = Rig::new(1_000).await;
    let failed = rig.known("a.mp4", RecordingState::Failed).await;
    rig.recover(&failed).await.unwrap();
    rig.archive.save_reports().await;
    rig.archive.delete(&rig.owner(), &rig.record("a.mp4").await, true).await.unwrap();
    rig.deliver(Recording {
        state: RecordingState::Ready,
        ..rig.recording("a.mp4", RecordingState::Recording)
    })
    .await;
    rig.has_posted(&[TAKEN]).await;
    assert!(matches!(
        rig.billed.store.begin_recovery(&rig.owner(), failed.id, 1, FEE).await,
        Err(satcast_store::StoreError::NotFound("recording"))
    ));
}

/// Its upload had begun, and the operator disabled its driver for good.
#[tokio::test]
async fn an_upload_of_an_absent_driver_is_refunded_after_an_hour() {
    let rig = Rig::new(1_000).await;
    for (name, driver) in [("a.mp4", "disabled"), ("b.mp4", "keeper")] {
        let failed = rig.recording(name, RecordingState::Failed);
        rig.reported_by(driver, failed).await;
        let failed = rig.record(name).await;
        let begun = rig.billed.store.begin_recovery(&rig.owner(), failed.id, 0, FEE).await.unwrap();
        let RecoveryBegun::Begun(id) = begun else { panic!("{begun:?}") };
        rig.billed.store.recovery_opened(id, rig.billed.clock.now()).await.unwrap();
        testing::change(name, testing::opened);
    }
    testing::lose("a.mp4");
    // The hour begins when the driver is first seen as absent.
    rig.billed.clock.advance(2 * ASKED_MAX);
    rig.archive.compare_all().await;
    rig.billed.clock.advance(ASKED_MAX);
    rig.archive.compare_all().await;
    rig.has_posted(&[TAKEN, TAKEN]).await;
    rig.billed.clock.advance(Duration::from_millis(1));
    for _ in 0..2 {
        rig.archive.compare_all().await;
        rig.has_posted(&[TAKEN, TAKEN, GIVEN]).await;
    }
    assert!(!rig.record("a.mp4").await.recovering && rig.record("b.mp4").await.recovering);
    // Each line names its file, refunds too.
    let lines = rig.billed.store.statement(rig.billed.account, Page::ALL).await.unwrap();
    let names: Vec<_> = lines.iter().map(|line| line.file_name.as_deref()).collect();
    assert_eq!(names, [Some("a.mp4"), Some("b.mp4"), Some("a.mp4"), None]);
}

#[tokio::test]
async fn a_recording_that_disappears_during_a_retry_is_reported_as_lost() {
    let rig = Rig::new(1_000).await;
    let failed = rig.known("refused-a.mp4", RecordingState::Failed).await;
    testing::lose("refused-a.mp4");
    assert!(matches!(rig.archive.check_copy(&failed).await, Err(RecoveryError::Lost)));
    assert!(matches!(rig.recover(&failed).await, Err(RecoveryError::Lost)));
    rig.has_posted(&[]).await;
    // It was there at the check, and its copy was gone at the request.
    let failed = rig.known("vanishing-b.mp4", RecordingState::Failed).await;
    assert!(matches!(rig.recover(&failed).await, Err(RecoveryError::NoCopy)));
    rig.has_posted(&[TAKEN, GIVEN]).await;
}

async fn take(store: &Store, name: &str) {
    let node = NewNode {
        name: name.into(),
        holder: name.into(),
        advertise: String::new(),
        version: "1",
        lease: Duration::from_secs(600),
        started_at: START,
    };
    store.take_node(&node).await.unwrap();
}

#[tokio::test]
async fn a_recording_is_retried_at_the_node_that_has_it_and_nowhere_without_that_node() {
    if satcast_store::testing::server().is_none() {
        return;
    }
    let rig = Rig::new(1_000).await;
    let url = satcast_store::testing::url(&rig.billed.folder.path().join("t.db")).await;
    let (durability, vault) = (Durability::Normal, Vault::new(&[7; 32]));
    let other = satcast_store::open(OpenOptions { url, durability, vault, low_balance: Msat(0) });
    let other = other.await.unwrap();
    take(&rig.billed.store, "a").await;
    take(&other, "b").await;
    let failed = rig.known("node-a.mp4", RecordingState::Failed).await;
    // The driver of node b does not know it.
    testing::lose("node-a.mp4");
    let there = Archive::new(other.clone(), drivers(), reports(), rig.billed.clock.clone());
    there.check_copy(&failed).await.unwrap();
    let refused = there.recover(&rig.owner(), &failed, FEE).await.unwrap_err();
    assert!(matches!(refused, RecoveryError::Driver(RecordingsError::Unavailable(_))), "{refused:?}");
    rig.billed.intruder().await.end_lease("a").await;
    let refused = there.recover(&rig.owner(), &failed, FEE).await.unwrap_err();
    assert!(matches!(refused, RecoveryError::Driver(RecordingsError::Unavailable(_))), "{refused:?}");

    other.remove_node("a", rig.billed.clock.now()).await.unwrap();
    // The data folder comes back, and with it the file.
    take(&rig.billed.store, "a").await;
    rig.recording("node-a.mp4", RecordingState::Failed);
    let failed = rig.record("node-a.mp4").await;
    for archive in [&there, &rig.archive] {
        assert!(matches!(archive.check_copy(&failed).await, Err(RecoveryError::NoCopy)));
        let refused = archive.recover(&rig.owner(), &failed, FEE).await.unwrap_err();
        assert!(matches!(refused, RecoveryError::NoCopy), "{refused:?}");
    }
    rig.has_posted(&[]).await;
    rig.archive.delete(&rig.owner(), &failed, false).await.unwrap();
    assert!(journal("node-a.mp4").is_none());
}
