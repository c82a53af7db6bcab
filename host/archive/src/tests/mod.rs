//! The recordings module against a real store and a driver behind the C table.

mod clips;
mod events;
mod expiry;
mod money;
mod notify;
mod refused;

use std::sync::{Arc, OnceLock};

use satcast_plugin_api::driver::{
    Config, Ctx, Destination, Driver, DriverInfo, DynDestination, Host, Media, Recording, RecordingState,
    Recordings,
};
use satcast_plugin_api::{Class, DestType, Error, driver_entry};

use super::mirror::LOST;
use super::testing::{self, Kept, journal, put, reports};
use super::{Archive, RecoveryError};
use satcast_core::ids::{Msat, SessionId, UnixMillis};
use satcast_core::secret::Vault;
use satcast_drivers::{Drivers, RecordingParts};
use satcast_money::billing::testing::{Rig as Billed, START};
use satcast_store::{Actor, ArchiveRecord, ArchiveState, AuditFilter, By, Page, Recorded};

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

struct Keeper(Kept);

struct Sink;

impl Driver for Keeper {
    const INFO: DriverInfo = DriverInfo { id: "keeper", version: "1.0.0", title: "Keeper" };

    fn types() -> Vec<DestType> {
        // The second type is that of the rig's destinations.
        vec![DestType::of::<Nothing>("kept"), DestType::of::<Nothing>("script")]
    }

    fn load(host: &Host) -> Result<Self, Error> {
        let sealed = host.seal("hunter2")?;
        assert_eq!(host.unseal(&sealed)?, "hunter2");
        Ok(Self(Kept(host.clone())))
    }

    fn open(&self, _: Config<'_>) -> Result<Arc<dyn DynDestination>, Error> {
        Ok(Arc::new(Sink))
    }

    fn recordings(&self) -> Option<&dyn Recordings> {
        Some(&self.0)
    }
}

impl Destination for Sink {
    async fn run(self: Arc<Self>, _: Ctx, mut media: Media) -> Result<(), Error> {
        while media.recv_batch(&mut Vec::new()).await {}
        Ok(())
    }
}

driver_entry!(keeper_entry, Keeper);

fn drivers() -> Drivers {
    static DRIVERS: OnceLock<Drivers> = OnceLock::new();
    let parts = || RecordingParts { reports: reports(), vault: Some(Vault::new(&[7; 32])) };
    DRIVERS.get_or_init(|| satcast_drivers::testing::start_with(keeper_entry, parts())).clone()
}

/// An account with a session, and its recordings.
struct Rig {
    billed: Billed,
    session: SessionId,
    archive: Archive,
}

impl Rig {
    async fn new(sats: i64) -> Self {
        let billed = Billed::new(sats).await;
        let session = billed.begin(None).await.id;
        let archive = Archive::new(billed.store.clone(), drivers(), reports(), billed.clock.clone());
        Self { billed, session, archive }
    }

    /// A new recording of this name and state in the journal.
    fn recording(&self, file_name: &str, state: RecordingState) -> Recording {
        let failed = state == RecordingState::Failed;
        let recording = Recording {
            file_name: file_name.into(),
            destination_id: self.billed.destinations[0].0,
            session_id: self.session.to_string(),
            state,
            size_bytes: 5_000_000,
            uploaded_bytes: 1_000_000,
            duration_ms: 61_500,
            error: failed.then(|| "the store is down".into()),
            error_class: failed.then_some(Class::Network),
            url: None,
            started_at_ms: START.0,
            changed_at_ms: START.0,
            attempt: 0,
            attempt_opened: false,
            has_copy: true,
            gone: false,
            expires_at_ms: None,
            asks_notice: false,
            audio_only: false,
        };
        put(recording.clone());
        recording
    }

    /// The same, already mirrored.
    async fn known(&self, file_name: &str, state: RecordingState) -> ArchiveRecord {
        reports().put("keeper", self.recording(file_name, state));
        self.archive.save_reports().await;
        self.record(file_name).await
    }

    async fn deliver(&self, recording: Recording) {
        reports().put("keeper", recording);
        self.archive.save_reports().await;
    }

    /// A report of a driver that was loaded earlier.
    async fn reported_by(&self, driver: &str, recording: Recording) {
        let report = super::mirror::report(driver, recording, START);
        let recorded = self.billed.store.record_archive(report, &|_| true, START).await.unwrap();
        assert!(matches!(recorded, Recorded::Taken(_)), "{recorded:?}");
    }

    async fn record(&self, file_name: &str) -> ArchiveRecord {
        let found = self.billed.store.archive_by_name(self.billed.account, file_name).await.unwrap();
        found.expect("a recording of that name")
    }

    async fn state(&self, file_name: &str) -> ArchiveState {
        self.record(file_name).await.report.state
    }

    fn owner(&self) -> Actor {
        Actor::command(self.billed.account, self.billed.clock.now())
    }
}

#[tokio::test]
async fn reports_and_lists_agree() {
    let rig = Rig::new(0).await;
    let shown = rig.known("a.mp4", RecordingState::Recording).await;
    assert_eq!((shown.report.state, shown.report.driver.as_str()), (ArchiveState::Recording, "keeper"));
    assert_eq!(shown.report.duration_ms, 61_500);
    rig.recording("b.mp4", RecordingState::Uploading);
    rig.archive.compare_all().await;
    assert_eq!(rig.state("b.mp4").await, ArchiveState::Uploading, "found by the list");
    testing::finish("a.mp4");
    rig.archive.compare_all().await;
    let ready = rig.record("a.mp4").await.report;
    assert_eq!((ready.state, ready.url.as_deref()), (ArchiveState::Ready, Some("s3://bucket/a.mp4")));
    // A late report changes nothing.
    rig.deliver(Recording { changed_at_ms: START.0, ..journal("a.mp4").unwrap() }).await;
    assert_eq!(rig.record("a.mp4").await.report, ready);
}

#[tokio::test]
async fn lost_recordings_fail_and_found_ones_are_restored() {
    let rig = Rig::new(0).await;
    for (name, state) in [
        ("a.mp4", RecordingState::Recording),
        ("b.mp4", RecordingState::Uploading),
        ("c.mp4", RecordingState::Failed),
    ] {
        rig.known(name, state).await;
        testing::lose(name);
    }
    put(Recording { state: RecordingState::Ready, ..rig.recording("d.mp4", RecordingState::Recording) });
    rig.archive.compare_all().await;
    for name in ["a.mp4", "b.mp4"] {
        let lost = rig.record(name).await.report;
        assert_eq!((lost.state, lost.error.as_deref()), (ArchiveState::Failed, Some(LOST)), "{name}");
    }
    assert_eq!(rig.record("c.mp4").await.report.error.as_deref(), Some("the store is down"), "as it was");
    rig.recording("a.mp4", RecordingState::Uploading);
    rig.archive.compare_all().await;
    assert_eq!(rig.state("a.mp4").await, ArchiveState::Uploading);
    // A failed list is not an empty list.
    rig.recording("unlisted", RecordingState::Uploading);
    testing::lose("d.mp4");
    rig.archive.compare_all().await;
    assert_eq!(rig.state("a.mp4").await, ArchiveState::Uploading);
    testing::lose("unlisted");
}

#[tokio::test]
async fn reports_of_unknown_recordings_are_ignored() {
    let rig = Rig::new(0).await;
    let good = rig.recording("a.mp4", RecordingState::Recording);
    testing::lose("a.mp4");
    rig.deliver(Recording { destination_id: 999, ..good.clone() }).await;
    rig.deliver(Recording { session_id: "ses_nobody".into(), ..good.clone() }).await;
    assert!(rig.billed.store.archives_of(rig.billed.account, Page::ALL).await.unwrap().is_empty());
    reports().put("keeper", good.clone());
    // Another driver may not report it.
    reports().put("other", Recording { state: RecordingState::Ready, changed_at_ms: START.0 + 9, ..good });
    rig.archive.save_reports().await;
    assert_eq!(rig.state("a.mp4").await, ArchiveState::Recording);
}

#[tokio::test]
async fn the_task_lists_at_start_and_saves_all_reports_until_it_stops() {
    let rig = Rig::new(0).await;
    rig.recording("a.mp4", RecordingState::Uploading);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let task = tokio::spawn(rig.archive.clone().keep(async { drop(stopped.await) }));
    let is = async |name: &str, state: ArchiveState| {
        for _ in 0..2_000 {
            let found = rig.billed.store.archive_by_name(rig.billed.account, name).await.unwrap();
            if found.is_some_and(|found| found.report.state == state) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        panic!("{name} is not {state:?}");
    };
    is("a.mp4", ArchiveState::Uploading).await;
    reports().put("keeper", rig.recording("b.mp4", RecordingState::Recording));
    is("b.mp4", ArchiveState::Recording).await;
    stop.send(()).unwrap();
    reports().put("keeper", testing::finish("b.mp4"));
    task.await.unwrap();
    assert_eq!(rig.state("b.mp4").await, ArchiveState::Ready);
}

#[tokio::test]
async fn a_deleted_recording_is_removed_from_its_driver_first() {
    let rig = Rig::new(0).await;
    let ready = rig.known("a.mp4", RecordingState::Uploading).await;
    rig.archive.delete(&rig.owner(), &ready, true).await.unwrap();
    assert_eq!(journal("a.mp4"), None);
    assert!(rig.billed.store.archive(rig.billed.account, ready.id).await.unwrap().is_none());
    // A late report does not restore it.
    rig.deliver(rig.recording("a.mp4", RecordingState::Ready)).await;
    rig.archive.compare_all().await;
    assert!(rig.billed.store.archives_of(rig.billed.account, Page::ALL).await.unwrap().is_empty());
    let stuck = rig.known("stuck-b.mp4", RecordingState::Uploading).await;
    let error = rig.archive.delete(&rig.owner(), &stuck, false).await.unwrap_err();
    assert_eq!(error.to_string(), "the store is down");
    assert_eq!(rig.state("stuck-b.mp4").await, ArchiveState::Uploading, "the recording is still shown");
}

/// The retention time is over: no dead address is shown.
#[tokio::test]
async fn expired_recordings_are_not_shown() {
    let rig = Rig::new(0).await;
    for name in ["reported.mp4", "listed.mp4", "stays.mp4"] {
        rig.known(name, RecordingState::Uploading).await;
        rig.deliver(testing::finish(name)).await;
    }
    let gone = |recording: &mut Recording| (recording.gone, recording.url) = (true, None);
    rig.deliver(testing::change("reported.mp4", gone)).await;
    testing::change("listed.mp4", gone);
    for _ in 0..2 {
        rig.archive.compare_all().await;
        let shown = rig.billed.store.archives_of(rig.billed.account, Page::ALL).await.unwrap();
        let names: Vec<_> = shown.iter().map(|archive| archive.report.file_name.as_str()).collect();
        assert_eq!(names, ["stays.mp4"]);
    }
    let filter = AuditFilter { account: Some(rig.billed.account), ..AuditFilter::default() };
    let entries = rig.billed.store.audit(filter, Page::ALL).await.unwrap();
    let mut expired: Vec<_> = entries.into_iter().filter(|entry| entry.action == "archive.expired").collect();
    expired.sort_by_key(|entry| entry.id);
    let names: Vec<_> = expired.iter().map(|entry| entry.detail["fileName"].as_str()).collect();
    assert_eq!(names, [Some("reported.mp4"), Some("listed.mp4")], "each once");
    assert!(expired.iter().all(|entry| entry.by == By::Service));
    // A report of another driver does not remove it.
    let stays = Recording { gone: true, changed_at_ms: START.0 + 99, ..journal("stays.mp4").unwrap() };
    reports().put("other", stays);
    rig.archive.save_reports().await;
    assert_eq!(rig.state("stays.mp4").await, ArchiveState::Ready);
}

#[tokio::test]
async fn an_empty_file_is_not_a_failed_recording() {
    let rig = Rig::new(0).await;
    for name in ["reported.mp4", "unreported.mp4"] {
        rig.deliver(Recording {
            size_bytes: 0,
            uploaded_bytes: 0,
            ..rig.recording(name, RecordingState::Uploading)
        })
        .await;
    }
    let gone = |recording: &mut Recording| {
        (recording.gone, recording.size_bytes, recording.uploaded_bytes) = (true, 0, 0);
    };
    rig.deliver(testing::change("reported.mp4", gone)).await;
    for name in ["reported.mp4", "unreported.mp4"] {
        testing::lose(name);
    }
    rig.archive.compare_all().await;
    assert!(rig.billed.store.archives_of(rig.billed.account, Page::ALL).await.unwrap().is_empty());
    let filter = AuditFilter { account: Some(rig.billed.account), ..AuditFilter::default() };
    let entries = rig.billed.store.audit(filter, Page::ALL).await.unwrap();
    assert!(entries.iter().all(|entry| entry.action != "archive.expired"), "nothing was there to expire");
}

#[tokio::test]
async fn only_uploaded_recordings_with_keys_are_signed() {
    let rig = Rig::new(0).await;
    for name in ["a.mp4", "unsigned-b.mp4", "c.mp4"] {
        rig.known(name, RecordingState::Uploading).await;
    }
    for name in ["a.mp4", "unsigned-b.mp4"] {
        rig.deliver(testing::finish(name)).await;
    }
    let mut archives = rig.billed.store.archives_of(rig.billed.account, Page::ALL).await.unwrap();
    rig.archive.sign(&mut archives).await;
    let urls: Vec<_> = archives.iter().map(|archive| archive.report.url.as_deref()).collect();
    let signed = Some("https://store.example/a.mp4?valid=3600");
    assert_eq!(urls, [None, Some("s3://bucket/unsigned-b.mp4"), signed]);
}

/// A refusal by the store is shown, and the recording has not failed.
#[tokio::test]
async fn the_reason_of_a_waiting_upload_is_shown_until_it_continues() {
    let rig = Rig::new(0).await;
    let why = Some("the store refused it; it is tried again".to_owned());
    let waits =
        |recording: Recording| Recording { error: why.clone(), error_class: Some(Class::Auth), ..recording };
    rig.deliver(waits(rig.recording("a.mp4", RecordingState::Recording))).await;
    let shown = rig.record("a.mp4").await.report;
    assert_eq!((shown.state, &shown.error, shown.error_class), (ArchiveState::Recording, &why, None));
    let uploading = testing::change("a.mp4", |recording| recording.state = RecordingState::Uploading);
    rig.deliver(waits(uploading.clone())).await;
    let shown = rig.record("a.mp4").await.report;
    assert_eq!((shown.state, &shown.error), (ArchiveState::Uploading, &why));
    rig.deliver(Recording { changed_at_ms: uploading.changed_at_ms + 1, ..uploading }).await;
    assert_eq!(rig.record("a.mp4").await.report.error, None);
    rig.deliver(waits(testing::change("a.mp4", |_| ()))).await;
    testing::lose("a.mp4");
    rig.archive.compare_all().await;
    let lost = rig.record("a.mp4").await.report;
    assert_eq!((lost.state, lost.error.as_deref()), (ArchiveState::Failed, Some(LOST)));
    let found = rig.recording("a.mp4", RecordingState::Uploading);
    put(Recording { changed_at_ms: START.0 + 9, ..found });
    rig.deliver(testing::finish("a.mp4")).await;
    assert_eq!(rig.record("a.mp4").await.report.error, None);
}

/// The process died between the store's answer and the row, so no report was sent.
#[tokio::test]
async fn an_interrupted_deletion_is_completed_and_a_running_one_is_left_alone() {
    let rig = Rig::new(0).await;
    let gone = |recording: &mut Recording| {
        (recording.state, recording.gone, recording.url) = (RecordingState::Ready, true, None);
        (recording.error, recording.error_class) = (Some("it was deleted".into()), Some(Class::Config));
    };
    let asked = rig.known("a.mp4", RecordingState::Uploading).await;
    rig.known("b.mp4", RecordingState::Failed).await;
    for name in ["a.mp4", "b.mp4"] {
        testing::change(name, gone);
    }
    let asking = super::account::Asking::begin(&rig.archive, asked.id).unwrap();
    rig.archive.compare_all().await;
    assert_eq!(rig.state("a.mp4").await, ArchiveState::Uploading, "the task that deletes it saves that");
    let found = rig.billed.store.archive_by_name(rig.billed.account, "b.mp4").await.unwrap();
    assert_eq!(found, None);
    drop(asking);
    rig.archive.compare_all().await;
    assert!(rig.billed.store.archives_of(rig.billed.account, Page::ALL).await.unwrap().is_empty());
    let filter = AuditFilter { account: Some(rig.billed.account), ..AuditFilter::default() };
    let entries = rig.billed.store.audit(filter, Page::ALL).await.unwrap();
    let deleted: Vec<_> = entries.iter().filter(|entry| entry.action == "archive.deleted").collect();
    assert!(deleted.len() == 2 && deleted.iter().all(|entry| entry.by == By::Service), "{entries:?}");
    assert_eq!(deleted[0].detail["why"], "it was deleted");
}
