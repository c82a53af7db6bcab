//! One instance of the driver at a time does what the journal asks for.
//!
//! When the driver is replaced, the earlier instance goes on with what it records and uploads, in the same folder. The later one records
//! too, and takes the rest up when the earlier one is gone; until then it only tells what the journal says of it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::sleep;

use crate::keeper;
use crate::state::{WeakCore, blocking};

/// How often it is looked whether the earlier instance is gone.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Takes the folder; `None` while another instance has it. The system gives it back when the file is closed, however that comes.
///
/// # Errors
/// The file of the lock cannot be used.
pub(crate) fn take(folder: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600).open(folder.join("lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Waits until the folder is free, then goes on with all that is in it.
pub(crate) async fn succeed(core: WeakCore, folder: PathBuf) {
    tracing::info!(
        "an earlier instance of the driver is still at work; its recordings are taken up when it is gone"
    );
    loop {
        sleep(LOOK_EVERY).await;
        let Some(core) = core.upgrade() else { return };
        let place = folder.clone();
        match blocking(move || take(&place)).await {
            Ok(None) => {}
            Ok(Some(lock)) => match core.take_over(lock).await {
                Ok(taken) => {
                    tracing::info!(taken, "the recordings of the earlier instance are taken up");
                    let core = std::sync::Arc::downgrade(&core);
                    return keeper::start(core);
                }
                Err(error) => {
                    tracing::error!(%error, "the journal of recordings cannot be read; tried again")
                }
            },
            Err(error) => tracing::error!(%error, "the folder of recordings cannot be taken; tried again"),
        }
    }
}
