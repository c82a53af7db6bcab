//! Why a driver is not loaded.

use std::path::{Path, PathBuf};

use satcast_plugin_api::abi;
use satcast_plugin_api::host::TableError;

/// Largest driver library in bytes.
pub(crate) const LIBRARY_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Most images of one library in this process.
pub(crate) const IMAGES_OF_ONE_MAX: usize = 8;

impl LoadError {
    /// Names the operator's `file` instead of our `copy` of it, which was checked.
    pub(crate) fn of_file(self, copy: &Path, file: &Path) -> Self {
        match self {
            Self::Probe(text) => Self::Probe(text.replace(&*copy.to_string_lossy(), &file.to_string_lossy())),
            other => other,
        }
    }
}

/// Why a file is not loaded. The text follows "driver FILE: ".
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Read(std::io::Error),
    /// A folder, pipe or device.
    #[error("is no regular file")]
    NoFile,
    /// Its group or everyone may change it.
    #[error(
        "{path} is writable by its group or by everyone (mode {mode:o}), so others could put code into the service; run: chmod \
         go-w {path} (files that are made with umask 022 are right from the start)"
    )]
    WritableByOthers {
        path: PathBuf,
        /// Permission bits.
        mode: u32,
    },
    /// It belongs to another user.
    #[error(
        "{path} belongs to user {owner} and not to root or the user of this service ({user}), so user {owner} could put code into the service; \
         run: chown root {path}"
    )]
    Owner {
        path: PathBuf,
        /// Uid of the owner.
        owner: u32,
        /// Uid of the service.
        user: u32,
    },
    /// Over [`LIBRARY_BYTES_MAX`].
    #[error("has more than {LIBRARY_BYTES_MAX} bytes")]
    TooLarge,
    /// The hash differs from the one that the operator pinned.
    #[error(
        "has SHA-256 {actual}, but [driver.{id}] sha256 pins {pinned}; install the pinned file, or change the pin"
    )]
    Pin {
        /// Driver id.
        id: String,
        /// Hash of the file.
        actual: String,
        /// Hash in the configuration.
        pinned: String,
    },
    #[error("cannot be copied to {path}: {source}")]
    Copy {
        /// Where to.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The dynamic linker refused it.
    #[error("cannot be opened: {0}")]
    Open(String),
    #[error("is no Satcast driver: it does not export {}", abi::ENTRY_SYMBOL)]
    NoEntry,
    #[error("{0}")]
    Table(#[from] TableError),
    /// The file name differs from the driver id.
    #[error("holds driver {id}; rename the file to {id}.so")]
    Name {
        /// Id in the table.
        id: String,
    },
    /// Its probe failed.
    #[error("{0}")]
    Probe(String),
    /// A panic would abort the host.
    #[error(
        "was compiled with panic = \"abort\", so a panic would end the service; compile it with unwinding panics, or run it in \
         a process of its own (isolation = \"process\")"
    )]
    PanicAbort,
    #[error("serves type {0}, which another driver serves already; disable one of the two")]
    TypeTaken(String),
    /// [`IMAGES_OF_ONE_MAX`] images of it are in use.
    #[error(
        "runs {IMAGES_OF_ONE_MAX} times already, with earlier settings, for destinations that are open; wait until some of them have \
         ended, or restart the service when no stream is live"
    )]
    Images,
    #[error("{0}")]
    Start(String),
}
