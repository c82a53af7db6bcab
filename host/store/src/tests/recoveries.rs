//! Paid retries on the real database: one at a time, also with races, and a check that detects tampering.

use super::*;
use crate::ledger::check::check;
use crate::{ArchiveReport, ArchiveState, Recorded, RecoveryBegun};

const FEE: Msat = Msat(360_000);

struct Failed {
    rig: Rig,
    account: AccountId,
    report: ArchiveReport,
    archive: i64,
}

/// A recording that could not be uploaded.
pub(super) fn failed_report(destination_id: DestinationId, session_id: SessionId) -> ArchiveReport {
    ArchiveReport {
        driver: "archive".into(),
        destination_id,
        session_id,
        file_name: "a.mp4".into(),
        state: ArchiveState::Failed,
        size_bytes: 5,
        uploaded_bytes: 9,
        duration_ms: 1,
        error: Some("the store is down".into()),
        error_class: Some("network".into()),
        url: None,
        started_at: NOW,
        changed_at: NOW,
        attempt: 0,
        attempt_opened: false,
        expires_at: None,
        notice: None,
        audio_only: false,
    }
}

/// A recording that is being made.
pub(super) fn running_report(destination_id: DestinationId, session_id: SessionId) -> ArchiveReport {
    let failed = failed_report(destination_id, session_id);
    ArchiveReport {
        state: ArchiveState::Recording,
        uploaded_bytes: 0,
        error: None,
        error_class: None,
        ..failed
    }
}

impl Failed {
    /// A failed recording, of an account with this balance.
    async fn new(credit: i64) -> Self {
        let rig = Rig::new().await;
        let account = rig.account("me", credit).await.unwrap();
        let (stream_id, destinations) = rig.stream(account, 1).await.unwrap();
        let session = new_session_id();
        let new = NewSession { id: session.clone(), stream_id, started_at: NOW, terms: Terms::default() };
        rig.store.begin_session(new).await.unwrap();
        let report = failed_report(destinations[0], session);
        let recorded = rig.store.record_archive(report.clone(), &|_| true, NOW).await.unwrap();
        let Recorded::Taken(archive) = recorded else { panic!("{recorded:?}") };
        Self { rig, account, report, archive }
    }

    async fn begin(&self) -> RecoveryBegun {
        self.rig.store.begin_recovery(&by(self.account), self.archive, 0, FEE).await.unwrap()
    }

    /// The first retry failed through a fault of the service.
    async fn tell_our_failure(&self) {
        let ours = ArchiveReport {
            error_class: Some("internal".into()),
            attempt: 1,
            attempt_opened: true,
            changed_at: UnixMillis(NOW.0 + 1),
            ..self.report.clone()
        };
        self.rig.store.record_archive(ours, &|_| true, NOW).await.unwrap();
    }

    /// A retry that was opened, and refunded because of a fault of the service.
    async fn one_given_back(&self) {
        let RecoveryBegun::Begun(id) = self.begin().await else { panic!("it begins") };
        self.rig.store.recovery_opened(id, NOW).await.unwrap();
        self.tell_our_failure().await;
    }

    async fn faults(&self) -> Vec<String> {
        let report = check(&self.rig.store.0.readers).await.unwrap();
        report.faults.iter().map(ToString::to_string).collect()
    }
}

#[tokio::test]
async fn uploaded_bytes_are_at_most_the_recorded_bytes() {
    let failed = Failed::new(0).await;
    let found = failed.rig.store.archive(failed.account, failed.archive).await.unwrap().unwrap();
    assert_eq!(found.report, ArchiveReport { uploaded_bytes: 5, ..failed.report });
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_several_racing_services_starts_and_is_charged() {
    let failed = std::sync::Arc::new(Failed::new(10 * FEE.0).await);
    let racing = (0..10).map(|_| {
        let failed = failed.clone();
        tokio::spawn(async move { failed.begin().await })
    });
    let outcomes = futures_util::future::join_all(racing).await;
    let begun = outcomes.iter().filter(|outcome| matches!(outcome, Ok(RecoveryBegun::Begun(_)))).count();
    let running = outcomes.iter().filter(|outcome| matches!(outcome, Ok(RecoveryBegun::Running))).count();
    assert_eq!((begun, running), (1, 9));
    assert_eq!(failed.rig.store.balance(failed.account).await.unwrap(), Msat(9 * FEE.0));
    assert_eq!(failed.faults().await, [""; 0]);
}

#[tokio::test]
async fn an_answer_is_recorded_once() {
    let failed = Failed::new(FEE.0).await;
    let RecoveryBegun::Begun(id) = failed.begin().await else { panic!("it begins") };
    assert_eq!(failed.begin().await, RecoveryBegun::Running);
    assert!(failed.rig.store.recovery_refused(id, NOW).await.unwrap());
    assert!(!failed.rig.store.recovery_refused(id, NOW).await.unwrap());
    failed.rig.store.recovery_opened(id, NOW).await.unwrap();
    assert_eq!(failed.rig.store.balance(failed.account).await.unwrap(), FEE, "refunded once");
    assert!(failed.rig.store.asked_recoveries("archive").await.unwrap().is_empty());
    assert!(failed.rig.store.refund("recovery:1:1", NOW).await.is_ok_and(|done| !done));
    failed.one_given_back().await;
    assert_eq!(failed.rig.store.balance(failed.account).await.unwrap(), FEE);
    assert_eq!(failed.faults().await, [""; 0]);
}

#[tokio::test]
async fn an_end_reported_before_the_start_counts() {
    let failed = Failed::new(FEE.0).await;
    let RecoveryBegun::Begun(id) = failed.begin().await else { panic!("it begins") };
    failed.tell_our_failure().await;
    assert_eq!(
        failed.rig.store.balance(failed.account).await.unwrap(),
        Msat(0),
        "the retry in that state answers"
    );
    for _ in 0..2 {
        failed.rig.store.recovery_opened(id, NOW).await.unwrap();
        assert_eq!(failed.rig.store.balance(failed.account).await.unwrap(), FEE);
    }
    assert_eq!(failed.faults().await, [""; 0]);
}

#[tokio::test]
async fn the_check_sees_retries_that_were_tampered_with() {
    let trigger = "the trigger transfers_are_never_changed is missing";
    for (sql, seen) in [
        (
            "UPDATE archive_recoveries SET state = 'ended'",
            vec!["recovery 1 was refunded 0 msat, and its transfer moves 360000 msat"],
        ),
        (
            "UPDATE archive_recoveries SET charged_msat = 1",
            vec![
                "recovery 1 was charged 1 msat, and its transfer moves 360000 msat",
                "recovery 1 was refunded 1 msat, and its transfer moves 360000 msat",
            ],
        ),
        (
            "DELETE FROM archive_recoveries",
            vec![
                "transfer 2 moves 360000 msat for a recovery that does not exist",
                "transfer 3 moves 360000 msat for a recovery that does not exist",
            ],
        ),
        (
            "UPDATE transfers SET idem = 'x' WHERE kind = 'recovery'",
            vec![
                "recovery 1 was charged 360000 msat, and its transfer moves 0 msat",
                "transfer 2 moves 360000 msat for a recovery that does not exist",
                trigger,
            ],
        ),
    ] {
        let failed = Failed::new(FEE.0).await;
        failed.one_given_back().await;
        assert_eq!(failed.faults().await, [""; 0]);
        if sql.contains("transfers") {
            let drop = match failed.rig.store.0.writer {
                Pool::Sqlite(_) => "DROP TRIGGER transfers_are_never_changed",
                Pool::Postgres(_) => "DROP TRIGGER transfers_are_never_changed ON transfers",
            };
            script(&failed.rig.store.0.writer, drop).await.unwrap();
        }
        script(&failed.rig.store.0.writer, sql).await.unwrap();
        assert_eq!(failed.faults().await, seen, "{sql}");
    }
}
