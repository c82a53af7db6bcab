//! Files and folders of the local disk.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use satcast_plugin_api::Error;
use tokio::task::spawn_blocking;

/// Runs file work off the runtime's threads.
///
/// # Errors
/// `Internal`, with the system's message.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Error> {
    let done = spawn_blocking(work).await;
    done.map_err(|error| Error::internal(format!("file work ended early: {error}")))?.map_err(disk_failed)
}

pub(crate) fn disk_failed(error: io::Error) -> Error {
    Error::internal(format!("the local disk failed: {error}"))
}

/// Free bytes on the disk of a folder for unprivileged users.
///
/// # Errors
/// The system cannot tell.
pub(crate) fn free_bytes(folder: &Path) -> io::Result<u64> {
    let stat = nix::sys::statvfs::statvfs(folder).map_err(io::Error::from)?;
    Ok(stat.blocks_available().saturating_mul(stat.fragment_size()))
}

/// Makes a folder that only this user can read.
///
/// # Errors
/// It cannot be made.
pub(crate) fn private_folder(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Syncs a folder, so that created, renamed and removed entries are durable.
///
/// # Errors
/// The sync failed.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Removes a file; a missing one is no error.
///
/// # Errors
/// It cannot be removed.
pub(crate) fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

pub(crate) fn is_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file())
}

/// The folder cannot be used.
pub(crate) fn unusable(folder: &Path, error: &io::Error) -> Error {
    Error::internal(format!("the archive driver cannot use its folder {}: {error}", folder.display()))
}
