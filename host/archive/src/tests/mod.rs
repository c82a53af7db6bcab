//! The account of recordings against a real store and a driver behind the C table.

mod events;
mod money;
mod refused;
mod told;

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
        // The second is that of the destinations of a rig.
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

/// An account with a session, and the account of its recordings.
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

    /// The journal's recording of that name, new in a state.
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
        };
        put(recording.clone());
        recording
    }

    /// The same, known to the mirror.
    async fn known(&self, file_name: &str, state: RecordingState) -> ArchiveRecord {
        reports().put("keeper", self.recording(file_name, state));
        self.archive.write_down().await;
        self.record(file_name).await
    }

    async fn tell(&self, recording: Recording) {
        reports().put("keeper", recording);
        self.archive.write_down().await;
    }

    /// A driver that was loaded has told of it.
    async fn told_by(&self, driver: &str, recording: Recording) {
        let report = super::mirror::report(driver, recording);
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
async fn reports_and_lists_come_to_the_same() {
    let rig = Rig::new(0).await;
    let told = rig.known("a.mp4", RecordingState::Recording).await;
    assert_eq!((told.report.state, told.report.driver.as_str()), (ArchiveState::Recording, "keeper"));
    assert_eq!(told.report.duration_ms, 61_500);
    rig.recording("b.mp4", RecordingState::Uploading);
    rig.archive.compare_all().await;
    assert_eq!(rig.state("b.mp4").await, ArchiveState::Uploading, "found by the list");
    testing::finish("a.mp4");
    rig.archive.compare_all().await;
    let ready = rig.record("a.mp4").await.report;
    assert_eq!((ready.state, ready.url.as_deref()), (ArchiveState::Ready, Some("s3://bucket/a.mp4")));
    // A report that was overtaken changes nothing.
    rig.tell(Recording { changed_at_ms: START.0, ..journal("a.mp4").unwrap() }).await;
    assert_eq!(rig.record("a.mp4").await.report, ready);
}

#[tokio::test]
async fn what_a_driver_has_lost_has_failed_and_what_it_finds_again_is_as_it_says() {
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
    // A list that fails is no empty list.
    rig.recording("unlisted", RecordingState::Uploading);
    testing::lose("d.mp4");
    rig.archive.compare_all().await;
    assert_eq!(rig.state("a.mp4").await, ArchiveState::Uploading);
    testing::lose("unlisted");
}

#[tokio::test]
async fn reports_about_what_is_nobodys_are_left_out() {
    let rig = Rig::new(0).await;
    let good = rig.recording("a.mp4", RecordingState::Recording);
    testing::lose("a.mp4");
    rig.tell(Recording { destination_id: 999, ..good.clone() }).await;
    rig.tell(Recording { session_id: "ses_nobody".into(), ..good.clone() }).await;
    assert!(rig.billed.store.archives_of(rig.billed.account, Page::ALL).await.unwrap().is_empty());
    reports().put("keeper", good.clone());
    // Another driver may not speak of it.
    reports().put("other", Recording { state: RecordingState::Ready, changed_at_ms: START.0 + 9, ..good });
    rig.archive.write_down().await;
    assert_eq!(rig.state("a.mp4").await, ArchiveState::Recording);
}

#[tokio::test]
async fn the_task_lists_at_its_start_and_writes_down_what_comes_and_what_came_last() {
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
async fn a_deleted_recording_is_forgotten_by_its_driver_first() {
    let rig = Rig::new(0).await;
    let ready = rig.known("a.mp4", RecordingState::Uploading).await;
    rig.archive.delete(&rig.owner(), &ready, true).await.unwrap();
    assert_eq!(journal("a.mp4"), None);
    assert!(rig.billed.store.archive(rig.billed.account, ready.id).await.unwrap().is_none());
    // A late report does not bring it back.
    rig.tell(rig.recording("a.mp4", RecordingState::Ready)).await;
    rig.archive.compare_all().await;
    assert!(rig.billed.store.archives_of(rig.billed.account, Page::ALL).await.unwrap().is_empty());
    let stuck = rig.known("stuck-b.mp4", RecordingState::Uploading).await;
    let error = rig.archive.delete(&rig.owner(), &stuck, false).await.unwrap_err();
    assert_eq!(error.to_string(), "the store is down");
    assert_eq!(rig.state("stuck-b.mp4").await, ArchiveState::Uploading, "it is shown still");
}

/// Its days at the store were over: no address that leads nowhere is shown.
#[tokio::test]
async fn what_is_not_in_its_store_any_more_is_shown_no_more() {
    let rig = Rig::new(0).await;
    for name in ["told.mp4", "listed.mp4", "stays.mp4"] {
        rig.known(name, RecordingState::Uploading).await;
        rig.tell(testing::finish(name)).await;
    }
    let gone = |recording: &mut Recording| (recording.gone, recording.url) = (true, None);
    rig.tell(testing::change("told.mp4", gone)).await;
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
    assert_eq!(names, [Some("told.mp4"), Some("listed.mp4")], "each once");
    assert!(expired.iter().all(|entry| entry.by == By::Service));
    // Another driver's word does not remove it.
    let stays = Recording { gone: true, changed_at_ms: START.0 + 99, ..journal("stays.mp4").unwrap() };
    reports().put("other", stays);
    rig.archive.write_down().await;
    assert_eq!(rig.state("stays.mp4").await, ArchiveState::Ready);
}

#[tokio::test]
async fn a_file_into_which_nothing_came_is_no_failed_recording() {
    let rig = Rig::new(0).await;
    for name in ["told.mp4", "unheard.mp4"] {
        rig.tell(Recording {
            size_bytes: 0,
            uploaded_bytes: 0,
            ..rig.recording(name, RecordingState::Uploading)
        })
        .await;
    }
    let gone = |recording: &mut Recording| {
        (recording.gone, recording.size_bytes, recording.uploaded_bytes) = (true, 0, 0);
    };
    rig.tell(testing::change("told.mp4", gone)).await;
    for name in ["told.mp4", "unheard.mp4"] {
        testing::lose(name);
    }
    rig.archive.compare_all().await;
    assert!(rig.billed.store.archives_of(rig.billed.account, Page::ALL).await.unwrap().is_empty());
    let filter = AuditFilter { account: Some(rig.billed.account), ..AuditFilter::default() };
    let entries = rig.billed.store.audit(filter, Page::ALL).await.unwrap();
    assert!(entries.iter().all(|entry| entry.action != "archive.expired"), "nothing was there to expire");
}

#[tokio::test]
async fn only_what_is_uploaded_and_can_be_signed_is_signed() {
    let rig = Rig::new(0).await;
    for name in ["a.mp4", "unsigned-b.mp4", "c.mp4"] {
        rig.known(name, RecordingState::Uploading).await;
    }
    for name in ["a.mp4", "unsigned-b.mp4"] {
        rig.tell(testing::finish(name)).await;
    }
    let mut archives = rig.billed.store.archives_of(rig.billed.account, Page::ALL).await.unwrap();
    rig.archive.sign(&mut archives).await;
    let urls: Vec<_> = archives.iter().map(|archive| archive.report.url.as_deref()).collect();
    let signed = Some("https://store.example/a.mp4?valid=3600");
    assert_eq!(urls, [None, Some("s3://bucket/unsigned-b.mp4"), signed]);
}

/// A store that refuses is no secret, and no failure.
#[tokio::test]
async fn why_an_upload_waits_is_shown_until_it_goes_on() {
    let rig = Rig::new(0).await;
    let why = Some("the store refused it; it is tried again".to_owned());
    let waits =
        |recording: Recording| Recording { error: why.clone(), error_class: Some(Class::Auth), ..recording };
    rig.tell(waits(rig.recording("a.mp4", RecordingState::Recording))).await;
    let shown = rig.record("a.mp4").await.report;
    assert_eq!((shown.state, &shown.error, shown.error_class), (ArchiveState::Recording, &why, None));
    let uploading = testing::change("a.mp4", |recording| recording.state = RecordingState::Uploading);
    rig.tell(waits(uploading.clone())).await;
    let shown = rig.record("a.mp4").await.report;
    assert_eq!((shown.state, &shown.error), (ArchiveState::Uploading, &why));
    rig.tell(Recording { changed_at_ms: uploading.changed_at_ms + 1, ..uploading }).await;
    assert_eq!(rig.record("a.mp4").await.report.error, None);
    rig.tell(waits(testing::change("a.mp4", |_| ()))).await;
    testing::lose("a.mp4");
    rig.archive.compare_all().await;
    let lost = rig.record("a.mp4").await.report;
    assert_eq!((lost.state, lost.error.as_deref()), (ArchiveState::Failed, Some(LOST)));
    let found = rig.recording("a.mp4", RecordingState::Uploading);
    put(Recording { changed_at_ms: START.0 + 9, ..found });
    rig.tell(testing::finish("a.mp4")).await;
    assert_eq!(rig.record("a.mp4").await.report.error, None);
}

/// The process died between the store's answer and the row, so that nobody was told.
#[tokio::test]
async fn a_deletion_that_was_cut_off_is_made_up_for_and_one_that_runs_is_left_alone() {
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
    assert_eq!(rig.state("a.mp4").await, ArchiveState::Uploading, "who asked writes it down");
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
