//! The records of recordings.

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use satcast_archive::Archive;
use satcast_core::clock::Clock;
use satcast_core::secret::Vault;
use satcast_drivers::{Drivers, RecordingParts};
use satcast_store::Store;

/// Services for drivers with recordings.
pub(super) fn parts(vault: &Vault) -> RecordingParts {
    RecordingParts { vault: Some(vault.clone()), ..RecordingParts::default() }
}

/// The store of their reports.
pub(super) fn account(store: &Store, drivers: &Drivers, parts: &RecordingParts, clock: &Clock) -> Archive {
    Archive::new(store.clone(), drivers.clone(), parts.reports.clone(), clock.clone())
}

/// The task that stores reports of drivers.
pub(super) struct Keeping {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Keeping {
    pub(super) fn begin(archive: &Archive) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(archive.clone().keep(stop.clone().cancelled_owned()));
        Self { stop, task }
    }

    /// Ends it after the reports received so far.
    pub(super) async fn end(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the recording task ended early");
        }
    }
}
