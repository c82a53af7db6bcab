//! The account of recordings.

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use satcast_archive::Archive;
use satcast_core::clock::Clock;
use satcast_core::secret::Vault;
use satcast_drivers::{Drivers, RecordingParts};
use satcast_store::Store;

/// What drivers with recordings are given.
pub(super) fn parts(vault: &Vault) -> RecordingParts {
    RecordingParts { vault: Some(vault.clone()), ..RecordingParts::default() }
}

/// The account of what they tell.
pub(super) fn account(store: &Store, drivers: &Drivers, parts: &RecordingParts, clock: &Clock) -> Archive {
    Archive::new(store.clone(), drivers.clone(), parts.reports.clone(), clock.clone())
}

/// The task that writes down what drivers tell.
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

    /// Ends it after what was told by now.
    pub(super) async fn end(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the account of recordings ended early");
        }
    }
}
