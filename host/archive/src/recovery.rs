//! Paid retry of a failed upload: charged first, then requested, and refunded when the upload does not begin.

use satcast_plugin_api::recording::{Recording, RecordingState};

use super::account::{Archive, Asking, OPEN_LIMIT};
use satcast_core::ids::Msat;
use satcast_drivers::RecordingsError;
use satcast_store::{Actor, ArchiveRecord, ArchiveState, RecoveryBegun, StoreError};

/// Why an upload was not retried; nothing is charged then.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    #[error("the recording has not failed, or an upload of it is already running again")]
    NotFailed,
    #[error("the local copy of the recording is gone, so it cannot be uploaded again")]
    NoCopy,
    #[error("the driver that made the recording no longer knows it, so it cannot be uploaded again")]
    Lost,
    /// The balance of the account.
    #[error("the balance of {0:?} is too low")]
    Insufficient(Msat),
    #[error(transparent)]
    Driver(#[from] RecordingsError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Archive {
    /// Charges `fee`, asks the driver for another upload, and waits at most [`OPEN_LIMIT`] until the store has opened
    /// it; the rest goes on in the background. One at a time for each recording. Run the future to its end: a retry
    /// that was dropped is settled only at the next listing of the driver.
    ///
    /// # Errors
    /// The upload did not begin.
    pub async fn recover(
        &self,
        actor: &Actor,
        archive: &ArchiveRecord,
        fee: Msat,
    ) -> Result<(), RecoveryError> {
        self.check_here(archive).await?;
        if archive.is_without_node() {
            // Also at a node that has the data folder again: the list would not follow the upload.
            return Err(RecoveryError::NoCopy);
        }
        let _asking = Asking::begin(self, archive.id).ok_or(RecoveryError::NotFailed)?;
        let (store, drivers) = (&self.inner.store, &self.inner.drivers);
        let (driver, file_name) = (archive.report.driver.as_str(), archive.report.file_name.as_str());
        // The database may be a moment old, and the driver's count tells this attempt from the previous one.
        let attempt = self.counted(driver, file_name).await?;
        let id = match store.begin_recovery(actor, archive.id, attempt, fee).await? {
            RecoveryBegun::Begun(id) => id,
            RecoveryBegun::NotFailed(_) | RecoveryBegun::Running => return Err(RecoveryError::NotFailed),
            RecoveryBegun::Insufficient(balance) => return Err(RecoveryError::Insufficient(balance)),
        };
        let asked = drivers.retry_recording(driver, file_name, OPEN_LIMIT).await;
        let now = self.inner.clock.now();
        let noted = match &asked {
            Ok(()) => self.note_answer(id, archive, attempt).await,
            Err(error) => {
                tracing::warn!(recovery = id, driver, file_name, %error, "a recovery did not begin");
                store.recovery_refused(id, now).await.map(drop)
            }
        };
        if let Err(error) = noted {
            // The next listing of the driver settles it.
            tracing::error!(recovery = id, %error, "the outcome of a recovery was not saved");
        }
        // The next request sees the state that the driver has.
        self.save_reports().await;
        match asked {
            Ok(()) => Ok(()),
            // The copy may have disappeared since the check.
            Err(error) => Err(self.check_copy(archive).await.err().unwrap_or(RecoveryError::Driver(error))),
        }
    }

    /// Saves a retry that the driver accepted: charged when the store opened an upload, refunded when the store already
    /// had the whole recording, so that no upload began.
    async fn note_answer(&self, id: i64, archive: &ArchiveRecord, attempt: u32) -> Result<(), StoreError> {
        let (store, now) = (&self.inner.store, self.inner.clock.now());
        self.save_reports().await;
        let found = store.archive_report(archive.id).await?;
        let was_there = found.is_some_and(|report| {
            report.state == ArchiveState::Ready && report.attempt > attempt && !report.attempt_opened
        });
        match was_there {
            true => store.recovery_refused(id, now).await.map(drop),
            false => store.recovery_opened(id, now).await,
        }
    }

    /// Checks, as far as the driver can be asked, that a recording can be uploaded again.
    ///
    /// # Errors
    /// Only [`RecoveryError::NoCopy`] and [`RecoveryError::Lost`].
    pub async fn check_copy(&self, archive: &ArchiveRecord) -> Result<(), RecoveryError> {
        if archive.is_without_node() {
            return Err(RecoveryError::NoCopy);
        }
        if !self.inner.store.has_file_of(archive) {
            // The driver of this node knows nothing of it.
            return Ok(());
        }
        match self.counted(&archive.report.driver, &archive.report.file_name).await {
            Err(error @ (RecoveryError::NoCopy | RecoveryError::Lost)) => Err(error),
            _ => Ok(()),
        }
    }

    /// The driver's attempt count of a failed recording.
    async fn counted(&self, driver: &str, file_name: &str) -> Result<u32, RecoveryError> {
        let listed = self.inner.drivers.recordings(driver).await?.unwrap_or_default();
        let is_it = |recording: &Recording| recording.file_name == file_name && !recording.gone;
        let lost = match listed.complaint() {
            None => RecoveryError::Lost,
            // It may be among the refused entries.
            Some(complaint) => RecordingsError::Unavailable(format!(
                "driver {driver} lists invalid recordings, so it is unknown whether the driver has this one: {complaint}"
            ))
            .into(),
        };
        let recording = listed.recordings.into_iter().find(is_it).ok_or(lost)?;
        match recording.state {
            RecordingState::Failed if !recording.has_copy => Err(RecoveryError::NoCopy),
            RecordingState::Failed => Ok(recording.attempt),
            _ => Err(RecoveryError::NotFailed),
        }
    }
}
