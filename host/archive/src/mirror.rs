//! What drivers tell of their recordings, written down: each report in one transaction, with its event.
//!
//! Reports may be lost (more than may wait, a database that fails, a service that dies); lists make up for them, after every
//! change of what is loaded and once a minute.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use satcast_plugin_api::Class;
use satcast_plugin_api::host::Listing;
use satcast_plugin_api::recording::{Recording, RecordingState};

use super::account::{Archive, Inner};
use super::objections::Objections;
use satcast_core::ids::{DestinationId, SessionId, UnixMillis};
use satcast_store::{ArchiveReport, ArchiveState, AskedRecovery, KnownArchive, Recorded, StoreError};

/// Time between two lists.
const LIST_PAUSE: Duration = Duration::from_secs(60);
/// How often it is looked whether other drivers are loaded.
const LOOK_PAUSE: Duration = Duration::from_secs(2);
/// How long a paid retry waits for a word of its driver before it is given back; a store is waited for some seconds.
pub(super) const ASKED_MAX: Duration = Duration::from_secs(60 * 60);
/// What is said of a recording that its driver lost.
pub(super) const LOST: &str = "its driver no longer knows it";

impl Archive {
    /// Writes down what drivers tell until `stop` resolves, and what they told by then.
    pub async fn keep(self, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        let mut seen = None;
        let mut listed = tokio::time::Instant::now();
        loop {
            let is_short = self.write_down().await;
            let version = self.inner.drivers.version();
            let is_new = is_short || seen != Some(version);
            if is_new || listed.elapsed() >= LIST_PAUSE {
                self.compare_all().await;
                // After the lists, so that it is known which destinations have recordings.
                if self.take_untold() || is_new {
                    self.tell_all().await;
                }
                (seen, listed) = (Some(version), tokio::time::Instant::now());
            }
            tokio::select! {
                () = &mut stop => break,
                () = self.inner.reports.arrived() => {}
                () = tokio::time::sleep(LOOK_PAUSE) => {}
            }
        }
        self.write_down().await;
    }

    /// Writes all waiting reports down; true when some are missing.
    pub async fn write_down(&self) -> bool {
        // Who waits for this wants to have read what another one took just before.
        let _one_at_a_time = self.inner.writing.lock().await;
        let told = self.inner.reports.take();
        let mut is_short = told.is_short;
        let mut objections = Objections::default();
        for (driver, recording) in told.reports {
            is_short |= !self.record(&driver, recording, &mut objections).await;
        }
        objections.say(&self.inner.drivers);
        is_short
    }

    /// False when the database failed, so that it must be listed again.
    async fn record(&self, driver: &str, recording: Recording, objections: &mut Objections) -> bool {
        let Inner { store, drivers, clock, .. } = &*self.inner;
        let is_gone = recording.gone;
        let (report, now) = (report(driver, recording), clock.now());
        let may_tell_of = |kind: &str| drivers.may_tell_of(driver, kind);
        let recorded = match is_gone {
            true => store.archive_gone(report.clone(), now).await.map(|()| Recorded::Late),
            false => store.record_archive(report.clone(), &may_tell_of, now).await,
        };
        if matches!(recorded, Ok(Recorded::Taken(_))) {
            self.show_trouble(&report);
        }
        objections.add(&report, &recorded);
        match recorded {
            Ok(_) | Err(StoreError::NotFound(_)) => true,
            Err(error) => {
                let file_name = report.file_name;
                tracing::error!(driver, file_name, %error, "a recording's state was not written down");
                false
            }
        }
    }

    /// While it is recorded or uploaded, what is wrong with its store stands at the destination as well.
    fn show_trouble(&self, report: &ArchiveReport) {
        let is_under_way = matches!(report.state, ArchiveState::Recording | ArchiveState::Uploading);
        self.note_trouble(report.destination_id, report.error.clone().filter(|_| is_under_way));
    }

    /// Compares what every driver lists with what is written down, and ends retries whose driver cannot be asked.
    pub(crate) async fn compare_all(&self) {
        for driver in self.inner.drivers.loaded_ids() {
            let asking = self.asking().clone();
            let listed = match self.inner.drivers.recordings(&driver).await {
                Ok(Some(listed)) => listed,
                Ok(None) => continue,
                Err(error) => {
                    tracing::warn!(driver, %error, "a driver does not list its recordings");
                    continue;
                }
            };
            if let Some(complaint) = listed.complaint()
                && self.inner.drivers.may_log_of(&driver, complaint.len())
            {
                tracing::warn!(
                    driver,
                    "a driver lists recordings that break the rules; they are left out, and none that is missing counts as lost until \
                     they are gone: {complaint}"
                );
            }
            if let Err(error) = self.compare(&driver, listed, &asking).await {
                tracing::error!(driver, %error, "recordings were not compared with what is known of them");
            }
        }
        if let Err(error) = self.end_unanswered().await {
            tracing::error!(%error, "retries that nobody answers were not looked for");
        }
    }

    /// Gives back what was paid for retries of which no driver has told anything for [`ASKED_MAX`]: it is disabled, or cannot list. So it
    /// is with uploads that had begun, once their driver has not been loaded for so long: nobody goes on with them.
    async fn end_unanswered(&self) -> Result<(), StoreError> {
        let (store, now) = (&self.inner.store, self.inner.clock.now());
        for opened in store.opened_recoveries().await? {
            if self.is_absent(&opened.driver) {
                tracing::warn!(
                    recovery = opened.id,
                    driver = opened.driver,
                    file_name = opened.file_name,
                    "nobody goes on with a recovery; it is given back"
                );
                store.recovery_abandoned(opened.id, now).await?;
            }
        }
        let limit = i64::try_from(ASKED_MAX.as_millis()).unwrap_or(i64::MAX);
        for asked in store.unanswered_recoveries(UnixMillis(now.0.saturating_sub(limit))).await? {
            if !self.asking().contains(&asked.archive) {
                tracing::warn!(
                    recovery = asked.id,
                    file_name = asked.file_name,
                    "nobody answers for a recovery; it is given back"
                );
                store.recovery_refused(asked.id, now).await?;
            }
        }
        Ok(())
    }

    /// Whether a driver has not been loaded for [`ASKED_MAX`], as far as this process has seen.
    fn is_absent(&self, driver: &str) -> bool {
        let now = self.inner.clock.monotonic();
        let is_loaded = self.inner.drivers.loaded_ids().iter().any(|id| id == driver);
        let mut absent = self.inner.absent.lock();
        if is_loaded {
            absent.remove(driver);
            return false;
        }
        let since = *absent.entry(driver.to_owned()).or_insert(now);
        now.saturating_sub(since) > ASKED_MAX
    }

    /// `asking` are recordings whose driver was being asked for a retry when the list was made.
    async fn compare(&self, driver: &str, listing: Listing, asking: &HashSet<i64>) -> Result<(), StoreError> {
        let store = &self.inner.store;
        let asked = store.asked_recoveries(driver).await?;
        // One that is missing may be one that was refused, as its name may be what is wrong with it: then nothing follows from it.
        let is_whole = listing.is_whole();
        let listed = listing.recordings;
        let by_name: HashMap<&str, &Recording> =
            listed.iter().map(|recording| (recording.file_name.as_str(), recording)).collect();
        for recovery in asked {
            let is_asked = asking.contains(&recovery.archive) || self.asking().contains(&recovery.archive);
            let told = by_name.get(recovery.file_name.as_str()).copied();
            if !is_asked && (is_whole || told.is_some()) {
                self.make_up(&recovery, told).await?;
            }
        }
        let known = store.known_archives(driver).await?;
        let names: HashSet<String> = listed.iter().map(|recording| recording.file_name.clone()).collect();
        let by_name: HashMap<&str, &KnownArchive> =
            known.iter().map(|known| (known.file_name.as_str(), known)).collect();
        let mut objections = Objections::default();
        for recording in listed {
            let known = by_name.get(recording.file_name.as_str());
            // Who has it deleted at this moment writes that down.
            let is_awaited = |known: &&KnownArchive| {
                recording.gone && (asking.contains(&known.id) || self.asking().contains(&known.id))
            };
            if known.copied().is_some_and(|known| is_awaited(&known)) {
                continue;
            }
            // What is gone, and not shown, is as it should be.
            let is_told = known.map_or(!recording.gone, |known| is_news(known, &recording));
            if is_told {
                self.record(driver, recording, &mut objections).await;
            }
        }
        objections.say(&self.inner.drivers);
        if is_whole { self.lose(driver, &known, &names).await } else { Ok(()) }
    }

    /// Ends what a driver does not list any more.
    async fn lose(
        &self,
        driver: &str,
        known: &[KnownArchive],
        names: &HashSet<String>,
    ) -> Result<(), StoreError> {
        let store = &self.inner.store;
        let is_lost = |known: &&KnownArchive| {
            let goes_on = matches!(known.state, ArchiveState::Recording | ArchiveState::Uploading);
            // One that is being deleted is gone at its driver first.
            goes_on && !names.contains(&known.file_name) && !self.asking().contains(&known.id)
        };
        for lost in known.iter().filter(is_lost) {
            // A file into which nothing came, of which the last word was not heard.
            let empty = store.archive_report(lost.id).await?;
            if let Some(report) =
                empty.filter(|report| lost.state == ArchiveState::Uploading && report.size_bytes == 0)
            {
                store.archive_gone(report, self.inner.clock.now()).await?;
                continue;
            }
            tracing::error!(driver, file_name = lost.file_name, "a driver has lost a recording");
            store.lose_archive(lost.id, LOST, self.inner.clock.now()).await?;
        }
        Ok(())
    }

    /// Ends a paid retry whose answer nobody wrote down: kept when the store opened the upload, else given back.
    async fn make_up(&self, asked: &AskedRecovery, told: Option<&Recording>) -> Result<(), StoreError> {
        let (store, now) = (&self.inner.store, self.inner.clock.now());
        let opened = told.is_some_and(|recording| was_opened(asked.driver_attempt, recording));
        tracing::warn!(recovery = asked.id, opened, "a recovery was cut off; it is made up for");
        if opened {
            store.recovery_opened(asked.id, now).await
        } else {
            store.recovery_refused(asked.id, now).await.map(drop)
        }
    }
}

/// Whether the store opened the upload of a retry that was asked for when the driver had counted `before`.
fn was_opened(before: u32, recording: &Recording) -> bool {
    recording.attempt > before && recording.attempt_opened
}

fn is_news(known: &KnownArchive, recording: &Recording) -> bool {
    recording.gone || known.changed_at.0 != recording.changed_at_ms || known.state != state(recording.state)
}

fn state(state: RecordingState) -> ArchiveState {
    match state {
        RecordingState::Recording => ArchiveState::Recording,
        RecordingState::Uploading => ArchiveState::Uploading,
        RecordingState::Ready => ArchiveState::Ready,
        RecordingState::Failed => ArchiveState::Failed,
    }
}

pub(super) fn report(driver: &str, recording: Recording) -> ArchiveReport {
    let class = recording.error_class.map(Class::name);
    ArchiveReport {
        driver: driver.to_owned(),
        destination_id: DestinationId(recording.destination_id),
        session_id: SessionId(recording.session_id),
        state: state(recording.state),
        file_name: recording.file_name,
        size_bytes: recording.size_bytes,
        uploaded_bytes: recording.uploaded_bytes,
        duration_ms: recording.duration_ms,
        error: recording.error,
        error_class: class.map(str::to_owned),
        url: recording.url,
        started_at: UnixMillis(recording.started_at_ms),
        changed_at: UnixMillis(recording.changed_at_ms),
        attempt: recording.attempt,
        attempt_opened: recording.attempt_opened,
    }
}
