//! The account of all recordings: looked at, deleted, signed for.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use satcast_core::clock::Clock;
use satcast_core::ids::DestinationId;
use satcast_core::troubles::Troubles;
use satcast_drivers::{Drivers, RecordingsError, Reports};
use satcast_store::{Actor, ArchiveRecord, ArchiveState, Store, StoreError};

/// Longest a driver is waited for when it deletes a recording.
pub const DELETE_LIMIT: Duration = Duration::from_secs(20);
/// Longest a store is waited for until it has opened the upload of a paid retry.
pub const OPEN_LIMIT: Duration = Duration::from_secs(20);
/// How long a signed address may be used.
pub const SIGNED_FOR: Duration = Duration::from_secs(60 * 60);

/// The account of all recordings; cheap to clone.
#[derive(Clone)]
pub struct Archive {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) store: Store,
    pub(super) drivers: Drivers,
    pub(super) reports: Reports,
    pub(super) clock: Clock,
    /// Recordings whose driver is being asked for a paid retry, or to delete them.
    pub(super) asking: Mutex<HashSet<i64>>,
    /// Held while reports are written down.
    pub(super) writing: tokio::sync::Mutex<()>,
    /// Held while a driver is told of a destination.
    pub(super) telling: tokio::sync::Mutex<()>,
    /// A driver has not heard of a destination's configuration.
    pub(super) untold: AtomicBool,
    /// Drivers with paid uploads that are not loaded, and since when, on the monotonic clock.
    pub(super) absent: Mutex<HashMap<String, Duration>>,
    /// What is wrong with the stores of destinations, while it is.
    pub(super) troubles: Troubles<DestinationId, String>,
}

impl std::fmt::Debug for Archive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Archive").finish_non_exhaustive()
    }
}

/// Why a recording was not deleted.
#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    /// Its driver.
    #[error(transparent)]
    Driver(#[from] RecordingsError),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Archive {
    /// An account of what drivers tell through `reports`.
    pub fn new(store: Store, drivers: Drivers, reports: Reports, clock: Clock) -> Self {
        let (asking, untold) = (Mutex::default(), AtomicBool::default());
        let (writing, telling) = (tokio::sync::Mutex::default(), tokio::sync::Mutex::default());
        let (absent, troubles) = (Mutex::default(), Troubles::default());
        let inner =
            Inner { store, drivers, reports, clock, asking, writing, telling, untold, absent, troubles };
        Self { inner: Arc::new(inner) }
    }

    /// What is wrong with the store of a destination: it could not be reached when the destination was made, or an upload waits for it.
    pub fn trouble(&self, destination: DestinationId) -> Option<String> {
        self.inner.troubles.of(destination).map(|trouble| trouble.what)
    }

    /// The store of a destination could not be reached, or with `None` it is as it should be.
    pub fn note_trouble(&self, destination: DestinationId, what: Option<String>) {
        match what {
            Some(what) => self.inner.troubles.note(destination, what, self.inner.clock.now()),
            None => self.inner.troubles.forget(destination),
        }
    }

    /// Has a recording forgotten by its driver, with `remote` its object in the store, too, and shows it no more.
    ///
    /// # Errors
    /// The driver may know it still, and it is shown as before; or the database failed.
    pub async fn delete(
        &self,
        actor: &Actor,
        archive: &ArchiveRecord,
        remote: bool,
    ) -> Result<(), DeleteError> {
        let report = &archive.report;
        // Beside a retry there is one turn already.
        let _asking = Asking::begin(self, archive.id);
        let Inner { drivers, store, .. } = &*self.inner;
        drivers.delete_recording(&report.driver, &report.file_name, remote, DELETE_LIMIT).await?;
        Ok(store.delete_archive(actor, archive.id, remote).await?)
    }

    /// Puts addresses that may be fetched without a login for [`SIGNED_FOR`] in place of those of uploaded recordings. What
    /// cannot be signed stays as it is.
    pub async fn sign(&self, archives: &mut [ArchiveRecord]) {
        let drivers: HashSet<String> =
            archives.iter().filter(|archive| is_there(archive)).map(|it| it.report.driver.clone()).collect();
        for driver in drivers {
            let of_driver =
                |archive: &&mut ArchiveRecord| is_there(archive) && archive.report.driver == driver;
            let mut theirs: Vec<&mut ArchiveRecord> = archives.iter_mut().filter(of_driver).collect();
            let names = theirs.iter().map(|archive| archive.report.file_name.clone()).collect();
            match self.inner.drivers.sign_recordings(&driver, names, SIGNED_FOR).await {
                Ok(signed) => {
                    for (archive, address) in theirs.iter_mut().zip(signed) {
                        archive.report.url = address.or_else(|| archive.report.url.take());
                    }
                }
                Err(error) => tracing::warn!(driver, %error, "addresses of recordings cannot be signed"),
            }
        }
    }

    pub(super) fn asking(&self) -> MutexGuard<'_, HashSet<i64>> {
        self.inner.asking.lock()
    }
}

/// The turn of one recording.
pub(super) struct Asking<'a> {
    archives: &'a Archive,
    id: i64,
}

impl<'a> Asking<'a> {
    pub(super) fn begin(archives: &'a Archive, id: i64) -> Option<Self> {
        // Made only where it is ours: to drop one ends the turn.
        let is_ours = archives.asking().insert(id);
        is_ours.then(|| Self { archives, id })
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.archives.asking().remove(&self.id);
    }
}

fn is_there(archive: &ArchiveRecord) -> bool {
    archive.report.state == ArchiveState::Ready
}
