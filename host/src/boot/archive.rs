//! The account of recordings.

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::archive::Archive;
use crate::clock::Clock;
use crate::drivers::{Drivers, RecordingParts};
use crate::secret::Vault;
use crate::store::Store;

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
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Keeping {
    pub(super) fn begin(archive: &Archive) -> Self {
        let (stop, stopped) = watch::channel(false);
        Self { stop, task: tokio::spawn(archive.clone().keep(super::told(stopped))) }
    }

    /// Ends it after what was told by now.
    pub(super) async fn end(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the account of recordings ended early");
        }
    }
}
