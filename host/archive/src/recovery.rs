//! A failed upload tried again: charged first, then asked for, and given back when it does not begin.

use satcast_plugin_api::recording::{Recording, RecordingState};

use super::account::{Archive, Asking, OPEN_LIMIT};
use satcast_core::ids::Msat;
use satcast_drivers::RecordingsError;
use satcast_store::{Actor, ArchiveRecord, ArchiveState, RecoveryBegun, StoreError};

/// Why an upload was not tried again; nothing is charged then.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// It has not failed, or is tried again already.
    #[error("the recording has not failed, or is uploaded again already")]
    NotFailed,
    /// Its driver has no copy of it any more.
    #[error("the copy of the recording that was kept here is gone, so it cannot be uploaded again")]
    NoCopy,
    /// Its driver does not know it any more.
    #[error("the driver that made the recording no longer knows it")]
    Lost,
    /// The account has only so much.
    #[error("the balance of {0:?} is too little")]
    Insufficient(Msat),
    /// The driver, or the store it uploads to.
    #[error(transparent)]
    Driver(#[from] RecordingsError),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Archive {
    /// Charges `fee`, asks the driver for another upload, and waits at most [`OPEN_LIMIT`] until the store has opened it; the rest
    /// goes on in the background. One at a time for each recording. Run it to its end: what is cut off is made up for only when
    /// the driver is listed next.
    ///
    /// # Errors
    /// It did not begin.
    pub async fn recover(
        &self,
        actor: &Actor,
        archive: &ArchiveRecord,
        fee: Msat,
    ) -> Result<(), RecoveryError> {
        let _asking = Asking::begin(self, archive.id).ok_or(RecoveryError::NotFailed)?;
        let (store, drivers) = (&self.inner.store, &self.inner.drivers);
        let (driver, file_name) = (archive.report.driver.as_str(), archive.report.file_name.as_str());
        // What is written down may be a moment old, and the driver's count tells this attempt from the one before.
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
                tracing::warn!(recovery = id, driver, file_name, %error, "an upload was not opened again");
                store.recovery_refused(id, now).await.map(drop)
            }
        };
        if let Err(error) = noted {
            // The next list of the driver's recordings makes up for it.
            tracing::error!(recovery = id, %error, "what became of a recovery was not written down");
        }
        // Who asks again at once finds it as the driver has it.
        self.write_down().await;
        match asked {
            Ok(()) => Ok(()),
            // What a retry needs may have gone since it was looked at.
            Err(error) => Err(self.check_copy(archive).await.err().unwrap_or(RecoveryError::Driver(error))),
        }
    }

    /// What the store has of a retry that its driver answered well: charged for the upload it opened, and given back where it had the
    /// whole recording already, so that no upload began.
    async fn note_answer(&self, id: i64, archive: &ArchiveRecord, attempt: u32) -> Result<(), StoreError> {
        let (store, now) = (&self.inner.store, self.inner.clock.now());
        self.write_down().await;
        let found = store.archive_report(archive.id).await?;
        let was_there = found.is_some_and(|report| {
            report.state == ArchiveState::Ready && report.attempt > attempt && !report.attempt_opened
        });
        match was_there {
            true => store.recovery_refused(id, now).await.map(drop),
            false => store.recovery_opened(id, now).await,
        }
    }

    /// Whether a recording could be uploaded again, as far as its driver can be asked: what a charge would be for.
    ///
    /// # Errors
    /// [`RecoveryError::NoCopy`] and [`RecoveryError::Lost`] alone.
    pub async fn check_copy(&self, archive: &ArchiveRecord) -> Result<(), RecoveryError> {
        match self.counted(&archive.report.driver, &archive.report.file_name).await {
            Err(error @ (RecoveryError::NoCopy | RecoveryError::Lost)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Retries of a failed recording that its driver has counted.
    async fn counted(&self, driver: &str, file_name: &str) -> Result<u32, RecoveryError> {
        let listed = self.inner.drivers.recordings(driver).await?.unwrap_or_default();
        let is_it = |recording: &Recording| recording.file_name == file_name && !recording.gone;
        let lost = match listed.complaint() {
            None => RecoveryError::Lost,
            // It may be among those that were refused.
            Some(complaint) => RecordingsError::Unavailable(format!(
                "driver {driver} lists recordings that break the rules, so it is not known whether it has this one: {complaint}"
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
