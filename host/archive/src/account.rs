//! Access to all recordings: troubles, deletion, signed addresses.

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

/// Longest wait for a driver to delete a recording.
pub const DELETE_LIMIT: Duration = Duration::from_secs(20);
/// Longest wait for a store to open the upload of a paid retry.
pub const OPEN_LIMIT: Duration = Duration::from_secs(20);
/// How long a signed address is valid.
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
    /// Recordings whose driver is being asked for a paid retry or a deletion.
    pub(super) asking: Mutex<HashSet<i64>>,
    /// Held while reports are saved.
    pub(super) writing: tokio::sync::Mutex<()>,
    /// Held while a driver is notified of a destination.
    pub(super) notifying: tokio::sync::Mutex<()>,
    /// A driver was not notified of a destination's configuration.
    pub(super) unnotified: AtomicBool,
    /// Drivers with paid uploads that are not loaded, and since when (monotonic clock).
    pub(super) absent: Mutex<HashMap<String, Duration>>,
    /// Current troubles with the stores of destinations.
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
    #[error(transparent)]
    Driver(#[from] RecordingsError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Archive {
    /// Mirrors the reports that arrive through `reports`.
    pub fn new(store: Store, drivers: Drivers, reports: Reports, clock: Clock) -> Self {
        let (asking, unnotified) = (Mutex::default(), AtomicBool::default());
        let (writing, notifying) = (tokio::sync::Mutex::default(), tokio::sync::Mutex::default());
        let (absent, troubles) = (Mutex::default(), Troubles::default());
        let inner = Inner {
            store,
            drivers,
            reports,
            clock,
            asking,
            writing,
            notifying,
            unnotified,
            absent,
            troubles,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Trouble with the store of a destination: the store was not reachable when the destination was created, or an
    /// upload waits for it.
    pub fn trouble(&self, destination: DestinationId) -> Option<String> {
        self.inner.troubles.of(destination).map(|trouble| trouble.what)
    }

    /// Sets the trouble of a destination's store; `None` clears it.
    pub fn note_trouble(&self, destination: DestinationId, what: Option<String>) {
        match what {
            Some(what) => self.inner.troubles.note(destination, what, self.inner.clock.now()),
            None => self.inner.troubles.forget(destination),
        }
    }

    /// Has the driver forget a recording, with `remote` also delete its object at the store, and no longer shows it.
    ///
    /// # Errors
    /// The driver failed and may still know the recording, which is shown as before; or the database failed.
    pub async fn delete(
        &self,
        actor: &Actor,
        archive: &ArchiveRecord,
        remote: bool,
    ) -> Result<(), DeleteError> {
        self.check_here(archive).await?;
        let report = &archive.report;
        // A running retry holds the recording already.
        let _asking = Asking::begin(self, archive.id);
        let Inner { drivers, store, .. } = &*self.inner;
        drivers.delete_recording(&report.driver, &report.file_name, remote, DELETE_LIMIT).await?;
        Ok(store.delete_archive(actor, archive.id, remote).await?)
    }

    /// Replaces the addresses of uploaded recordings with addresses that need no login for [`SIGNED_FOR`]. An address
    /// that cannot be signed stays as it is.
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
                Err(error) => {
                    tracing::warn!(driver, %error, "download addresses of recordings cannot be signed")
                }
            }
        }
    }

    /// Whether the driver of this node has the file of a recording.
    pub(super) async fn check_here(&self, archive: &ArchiveRecord) -> Result<(), RecordingsError> {
        let store = &self.inner.store;
        if store.has_file_of(archive) {
            return Ok(());
        }
        // The name is only for the message.
        let why = match store.node_on(&archive.holder).await {
            Ok(Some((node, true))) => format!("node {node} has the recording; ask that node"),
            Ok(Some((node, false))) => format!(
                "node {node} has the recording and does not run; ask the operator of the service to start or remove that node"
            ),
            _ => "another node has the recording; ask that node".to_owned(),
        };
        Err(RecordingsError::Unavailable(why))
    }

    pub(super) fn asking(&self) -> MutexGuard<'_, HashSet<i64>> {
        self.inner.asking.lock()
    }
}

/// Exclusive use of one recording.
pub(super) struct Asking<'a> {
    archives: &'a Archive,
    id: i64,
}

impl<'a> Asking<'a> {
    pub(super) fn begin(archives: &'a Archive, id: i64) -> Option<Self> {
        // Created only on success, because dropping an `Asking` releases the recording.
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
