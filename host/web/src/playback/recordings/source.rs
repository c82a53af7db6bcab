//! Where the file of a recording is read: by the driver of this node, or at the node that has it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use satcast_plugin_api::Class;
use satcast_plugin_api::host::{checked_range, is_signed_address, read_index};
use satcast_plugin_api::recording::RecordingIndex;

use super::super::relay::{Part, Peer, Relay};
use crate::base::ApiError;
use satcast_core::clock::Clock;
use satcast_core::ids::AccountId;
use satcast_core::log_limit::LogLimits;
use satcast_drivers::{Drivers, RecordingsError};
use satcast_store::{ArchiveReport, WatchedArchive};

/// Between two log lines about recordings of one account.
const FAULTS_EVERY: Duration = Duration::from_secs(60);

/// How long a signed address of the store works. Each request for a part gets a new one.
const SIGNED_FOR: Duration = Duration::from_secs(3_600);

/// The file of a recording.
#[derive(Clone)]
pub(super) struct Source {
    pub(super) id: i64,
    driver: String,
    file_name: String,
    place: Place,
    /// The owner.
    pub(super) account: AccountId,
    faults: FaultLog,
}

/// Log lines about recordings that cannot be read: one of each account in [`FAULTS_EVERY`].
#[derive(Clone)]
pub(super) struct FaultLog {
    clock: Clock,
    limits: Arc<LogLimits<AccountId>>,
}

impl FaultLog {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, limits: Arc::new(LogLimits::new(FAULTS_EVERY)) }
    }

    fn note(&self, account: AccountId, recording: i64, error: &RecordingsError) {
        if let Some(left_out) = self.limits.admit(account, self.clock.monotonic()) {
            tracing::warn!(%error, account = account.0, recording, left_out, "a recording cannot be read");
        }
    }
}

#[derive(Clone)]
enum Place {
    Here(Drivers),
    /// At another node.
    There(Arc<Relay>, Peer),
}

impl Source {
    /// Read by the driver of this node.
    pub(super) fn here(drivers: &Drivers, faults: &FaultLog, watched: &WatchedArchive) -> Self {
        Self::at(Place::Here(drivers.clone()), faults, watched)
    }

    /// Read at another node.
    pub(super) fn there(relay: &Arc<Relay>, peer: Peer, faults: &FaultLog, watched: &WatchedArchive) -> Self {
        Self::at(Place::There(relay.clone(), peer), faults, watched)
    }

    fn at(place: Place, faults: &FaultLog, watched: &WatchedArchive) -> Self {
        let ArchiveReport { driver, file_name, .. } = &watched.record.report;
        let (driver, file_name) = (driver.clone(), file_name.clone());
        Self {
            id: watched.record.id,
            driver,
            file_name,
            place,
            account: watched.account,
            faults: faults.clone(),
        }
    }

    /// A page of the index, from fragment `first` on.
    ///
    /// # Errors
    /// 404 for a recording that cannot be played at all, 503 if it cannot be read now.
    pub(super) async fn index(&self, first: u64) -> Result<RecordingIndex, ApiError> {
        match &self.place {
            Place::Here(drivers) => {
                let page = drivers.index_recording(&self.driver, &self.file_name, first).await;
                page.map_err(|error| self.failure(&error))
            }
            Place::There(relay, peer) => {
                let page = relay.part(peer, self.account, self.id, Part::Index { first }).await?;
                read_index(&page).map_err(|error| self.failure(&RecordingsError::Refused(error)))
            }
        }
    }

    /// `len` bytes from `offset` on.
    ///
    /// # Errors
    /// As [`Source::index`].
    pub(super) async fn read(&self, offset: u64, len: u32) -> Result<Bytes, ApiError> {
        match &self.place {
            Place::Here(drivers) => {
                let bytes = drivers.read_recording(&self.driver, &self.file_name, offset, len).await;
                bytes.map_err(|error| self.failure(&error))
            }
            Place::There(relay, peer) => {
                let bytes = relay.part(peer, self.account, self.id, Part::Bytes { offset, len }).await?;
                checked_range(bytes, len).map_err(|error| self.failure(&RecordingsError::Refused(error)))
            }
        }
    }

    /// A signed address of the store; `None` without one.
    pub(super) async fn sign(&self) -> Option<String> {
        match &self.place {
            Place::Here(drivers) => {
                let names = vec![self.file_name.clone()];
                let signed = drivers.sign_recordings(&self.driver, names, SIGNED_FOR).await;
                signed.ok()?.into_iter().next().flatten()
            }
            Place::There(relay, peer) => {
                let signed = relay.part(peer, self.account, self.id, Part::Signed).await.ok()?;
                String::from_utf8(signed.into()).ok().filter(|address| is_signed_address(address))
            }
        }
    }

    /// The error for a viewer: 404 for a recording that cannot be played at all.
    fn failure(&self, error: &RecordingsError) -> ApiError {
        match error {
            RecordingsError::Refused(error) if error.class == Class::Config => {
                ApiError::not_found("recording")
            }
            _ => {
                self.faults.note(self.account, self.id, error);
                ApiError::asset_unreadable()
            }
        }
    }
}
