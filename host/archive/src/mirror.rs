//! Saves the reports of drivers about their recordings: each report in one transaction, with its event.
//!
//! Reports can be lost: the queue is full, the database fails, the service dies. Listing makes up for them: once a
//! minute, and after every change of the loaded drivers.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use satcast_plugin_api::Class;
use satcast_plugin_api::host::Listing;
use satcast_plugin_api::recording::{EXPIRY_NOTICE_MS, Recording, RecordingState};
use tracing::Instrument as _;

use super::account::{Archive, Inner};
use super::objections::Objections;
use satcast_core::ids::{DestinationId, SessionId, UnixMillis};
use satcast_store::{ArchiveReport, ArchiveState, AskedRecovery, KnownArchive, Recorded, StoreError};

/// Time between two listings.
const LIST_PAUSE: Duration = Duration::from_secs(60);
/// How often the version of the loaded drivers is checked.
const LOOK_PAUSE: Duration = Duration::from_secs(2);
/// How long a paid retry waits for a report of its driver before its fee is refunded; a store is waited for some
/// seconds.
pub(super) const ASKED_MAX: Duration = Duration::from_secs(60 * 60);
/// Error of a recording that its driver lost.
pub(super) const LOST: &str = "the driver that made the recording no longer knows it";

impl Archive {
    /// Saves reports of drivers until `stop` resolves, and those that arrived by then.
    pub async fn keep(self, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        let mut seen = None;
        let mut listed = tokio::time::Instant::now();
        loop {
            let is_incomplete = self.save_reports().await;
            let version = self.inner.drivers.version();
            let is_new = is_incomplete || seen != Some(version);
            if is_new || listed.elapsed() >= LIST_PAUSE {
                self.compare_all().await;
                // After the lists, so that the destinations with recordings are known. Another node tells this one of no change.
                if self.take_unnotified() || is_new || self.inner.store.is_node() {
                    self.notify_all().await;
                }
                (seen, listed) = (Some(version), tokio::time::Instant::now());
            }
            tokio::select! {
                () = &mut stop => break,
                () = self.inner.reports.arrived() => {}
                () = tokio::time::sleep(LOOK_PAUSE) => {}
            }
        }
        self.save_reports().await;
    }

    /// Saves all waiting reports; true when some are missing.
    pub async fn save_reports(&self) -> bool {
        // The caller expects that reports which another call took just before are saved, too.
        let _one_at_a_time = self.inner.writing.lock().await;
        let waiting = self.inner.reports.take();
        let mut is_incomplete = waiting.is_incomplete;
        let mut objections = Objections::default();
        for (driver, recording) in waiting.reports {
            is_incomplete |= !self.record(&driver, recording, &mut objections).await;
        }
        objections.log(&self.inner.drivers);
        is_incomplete
    }

    /// False when the database failed, so that the driver must be listed again.
    async fn record(&self, driver: &str, recording: Recording, objections: &mut Objections) -> bool {
        let Inner { store, drivers, clock, .. } = &*self.inner;
        let (is_gone, now) = (recording.gone, clock.now());
        let report = report(driver, recording, now);
        let may_report = |kind: &str| drivers.may_report(driver, kind);
        let saving = async {
            match is_gone {
                true => store.archive_gone(report.clone(), now).await.map(|()| Recorded::Late),
                false => store.record_archive(report.clone(), &may_report, now).await,
            }
        };
        let recorded = saving.instrument(self.inner.uploads.span(&report, is_gone)).await;
        if let Ok(Recorded::Taken(id)) = recorded {
            self.show_trouble(&report);
            self.confirm_notice(id, &report).await;
        }
        objections.add(&report, &recorded);
        match recorded {
            Ok(_) | Err(StoreError::NotFound(_)) => true,
            Err(error) => {
                let file_name = report.file_name;
                tracing::error!(driver, file_name, %error, "the state of a recording was not saved");
                false
            }
        }
    }

    /// Confirms to the driver that the owner of a recording is told of its deletion, if the driver asked for it. If this
    /// fails, the driver asks again in its next list.
    async fn confirm_notice(&self, archive: i64, report: &ArchiveReport) {
        let Inner { store, drivers, .. } = &*self.inner;
        if report.notice.is_none() {
            return;
        }
        let (driver, file_name) = (&report.driver, &report.file_name);
        match store.told_expiry(archive).await {
            Ok(Some(told)) => {
                if let Err(error) = drivers.announce_expiry(driver, file_name, told.0).await {
                    tracing::warn!(driver, file_name, %error, "a driver did not take the notice of a recording's deletion; trying again");
                }
            }
            Ok(None) => {}
            Err(error) => {
                tracing::error!(driver, file_name, %error, "the notice of a recording's deletion was not read; trying again");
            }
        }
    }

    /// During recording and upload, a trouble of the store is shown at the destination as well.
    fn show_trouble(&self, report: &ArchiveReport) {
        let is_under_way = matches!(report.state, ArchiveState::Recording | ArchiveState::Uploading);
        self.note_trouble(report.destination_id, report.error.clone().filter(|_| is_under_way));
    }

    /// Compares the list of every driver with the database, and ends retries whose driver cannot be asked.
    pub(crate) async fn compare_all(&self) {
        for driver in self.inner.drivers.loaded_ids() {
            let asking = self.asking().clone();
            let listed = match self.inner.drivers.recordings(&driver).await {
                Ok(Some(listed)) => listed,
                Ok(None) => continue,
                Err(error) => {
                    tracing::warn!(driver, %error, "a driver failed to list its recordings");
                    continue;
                }
            };
            if let Some(complaint) = listed.complaint()
                && self.inner.drivers.may_log_of(&driver, complaint.len())
            {
                tracing::warn!(
                    driver,
                    "a driver lists invalid recordings; they are ignored, and missing recordings do not count as lost until \
                     the list is valid again: {complaint}"
                );
            }
            if let Err(error) = self.compare(&driver, listed, &asking).await {
                tracing::error!(driver, %error, "recordings were not compared with the database");
            }
        }
        if let Err(error) = self.end_unanswered().await {
            tracing::error!(%error, "unanswered recoveries were not looked up");
        }
        if let Err(error) = self.end_unreported_clips().await {
            tracing::error!(%error, "interrupted clips were not looked up");
        }
    }

    /// Refunds retries for which no driver has reported anything for [`ASKED_MAX`], because the driver is disabled or
    /// cannot list. Uploads that had begun are refunded, too, when their driver has not been loaded for that time.
    async fn end_unanswered(&self) -> Result<(), StoreError> {
        let (store, now) = (&self.inner.store, self.inner.clock.now());
        for opened in store.opened_recoveries().await? {
            if self.is_absent(&opened.driver) {
                tracing::warn!(
                    recovery = opened.id,
                    driver = opened.driver,
                    file_name = opened.file_name,
                    "the driver of a recovery is not loaded; the fee is refunded"
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
                    "a recovery got no answer; the fee is refunded"
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

    /// `asking`: recordings whose driver was being asked for a retry when the list was made.
    async fn compare(&self, driver: &str, listing: Listing, asking: &HashSet<i64>) -> Result<(), StoreError> {
        let store = &self.inner.store;
        let asked = store.asked_recoveries(driver).await?;
        // A missing recording may be one that was refused for a bad name, so a list with refused entries proves no
        // loss.
        let is_whole = listing.is_whole();
        let listed = listing.recordings;
        let by_name: HashMap<&str, &Recording> =
            listed.iter().map(|recording| (recording.file_name.as_str(), recording)).collect();
        for recovery in asked {
            let is_asked = asking.contains(&recovery.archive) || self.asking().contains(&recovery.archive);
            let listed = by_name.get(recovery.file_name.as_str()).copied();
            if !is_asked && (is_whole || listed.is_some()) {
                self.settle(&recovery, listed).await?;
            }
        }
        let known = store.known_archives(driver).await?;
        let names: HashSet<String> = listed.iter().map(|recording| recording.file_name.clone()).collect();
        let by_name: HashMap<&str, &KnownArchive> =
            known.iter().map(|known| (known.file_name.as_str(), known)).collect();
        let mut objections = Objections::default();
        for recording in listed {
            let known = by_name.get(recording.file_name.as_str());
            // The task that deletes the recording saves that itself.
            let is_awaited = |known: &&KnownArchive| {
                recording.gone && (asking.contains(&known.id) || self.asking().contains(&known.id))
            };
            if known.copied().is_some_and(|known| is_awaited(&known)) {
                continue;
            }
            // A recording that is gone and not shown needs no report.
            let has_news = known.map_or(!recording.gone, |known| is_news(known, &recording));
            if has_news {
                self.record(driver, recording, &mut objections).await;
            }
        }
        objections.log(&self.inner.drivers);
        self.settle_clips(driver, is_whole.then_some(&names)).await?;
        if !is_whole {
            return Ok(());
        }
        self.inner.uploads.keep(driver, &names);
        self.lose(driver, &known, &names).await
    }

    /// Marks recordings that a driver no longer lists as lost.
    async fn lose(
        &self,
        driver: &str,
        known: &[KnownArchive],
        names: &HashSet<String>,
    ) -> Result<(), StoreError> {
        let store = &self.inner.store;
        let is_lost = |known: &&KnownArchive| {
            let goes_on = matches!(known.state, ArchiveState::Recording | ArchiveState::Uploading);
            // A recording that is being deleted disappears from its driver first.
            goes_on && !names.contains(&known.file_name) && !self.asking().contains(&known.id)
        };
        for lost in known.iter().filter(is_lost) {
            // An empty file whose last report was lost.
            let empty = store.archive_report(lost.id).await?;
            if let Some(report) =
                empty.filter(|report| lost.state == ArchiveState::Uploading && report.size_bytes == 0)
            {
                store.archive_gone(report, self.inner.clock.now()).await?;
                continue;
            }
            tracing::error!(driver, file_name = lost.file_name, "a driver no longer has a recording");
            store.lose_archive(lost.id, LOST, self.inner.clock.now()).await?;
        }
        Ok(())
    }

    /// Settles a paid retry whose answer was not saved: the fee is kept when the store opened the upload, else
    /// refunded.
    async fn settle(&self, asked: &AskedRecovery, listed: Option<&Recording>) -> Result<(), StoreError> {
        let (store, now) = (&self.inner.store, self.inner.clock.now());
        let opened = listed.is_some_and(|recording| was_opened(asked.driver_attempt, recording));
        tracing::warn!(recovery = asked.id, opened, "a recovery was interrupted and is settled now");
        if opened {
            store.recovery_opened(asked.id, now).await
        } else {
            store.recovery_refused(asked.id, now).await.map(drop)
        }
    }
}

/// Whether the store opened the upload of a retry; `before` is the driver's attempt count when the retry was requested.
fn was_opened(before: u32, recording: &Recording) -> bool {
    recording.attempt > before && recording.attempt_opened
}

fn is_news(known: &KnownArchive, recording: &Recording) -> bool {
    recording.gone
        || recording.asks_notice
        || known.changed_at.0 != recording.changed_at_ms
        || known.state != state(recording.state)
}

fn state(state: RecordingState) -> ArchiveState {
    match state {
        RecordingState::Recording => ArchiveState::Recording,
        RecordingState::Uploading => ArchiveState::Uploading,
        RecordingState::Ready => ArchiveState::Ready,
        RecordingState::Failed => ArchiveState::Failed,
    }
}

pub(super) fn report(driver: &str, recording: Recording, now: UnixMillis) -> ArchiveReport {
    let class = recording.error_class.map(Class::name);
    // A notice that comes late postpones the deletion.
    let soonest = now.0.saturating_add(EXPIRY_NOTICE_MS);
    let notice =
        recording.expires_at_ms.filter(|_| recording.asks_notice).map(|at| UnixMillis(at.max(soonest)));
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
        expires_at: recording.expires_at_ms.map(UnixMillis),
        notice,
        audio_only: recording.audio_only,
    }
}
