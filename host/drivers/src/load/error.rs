//! Why a driver is not loaded.

use std::path::{Path, PathBuf};

use satcast_plugin_api::abi;
use satcast_plugin_api::host::TableError;

/// Largest driver library in bytes.
pub(crate) const LIBRARY_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Most images of one library in this process.
pub(crate) const IMAGES_OF_ONE_MAX: usize = 8;

impl LoadError {
    /// The same with the operator's `file` in place of our `copy` of it, which was looked at.
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
    /// Others than its owner may change it.
    #[error(
        "{path} is writable by its group or by everyone (mode {mode:o}), so others could put code of theirs into the service; run: chmod \
         go-w {path} (files that are made with umask 022 are right from the start)"
    )]
    WritableByOthers {
        /// The file or folder.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It is another user's.
    #[error(
        "{path} belongs to user {owner}, who is neither root nor the user of this service ({user}), and could put code of theirs into it; \
         run: chown root {path}"
    )]
    Owner {
        /// The file or folder.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who runs this.
        user: u32,
    },
    /// Over [`LIBRARY_BYTES_MAX`].
    #[error("has more than {LIBRARY_BYTES_MAX} bytes")]
    TooLarge,
    /// Not the file the operator pinned.
    #[error("has SHA-256 {actual}, but [driver.{id}] sha256 pins {pinned}")]
    Pin {
        /// Driver id.
        id: String,
        /// Hash of the file.
        actual: String,
        /// Hash in the configuration.
        pinned: String,
    },
    /// The private copy cannot be made.
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
    /// It lacks the entry.
    #[error("is no Satcast driver: it does not export {}", abi::ENTRY_SYMBOL)]
    NoEntry,
    /// Its table was refused.
    #[error("{0}")]
    Table(#[from] TableError),
    /// It is not named after its driver.
    #[error("holds driver {id}; rename the file to {id}.so")]
    Name {
        /// Id in the table.
        id: String,
    },
    /// Its probe died.
    #[error("{0}")]
    Probe(String),
    /// Panics would abort the host.
    #[error(
        "was compiled with panic = \"abort\", so a panic would end the service; compile it with unwinding panics, or run it in \
         a process of its own (isolation = \"process\")"
    )]
    PanicAbort,
    /// Another driver has its type.
    #[error("serves type {0}, which another driver serves already")]
    TypeTaken(String),
    /// It runs too many times.
    #[error(
        "runs {IMAGES_OF_ONE_MAX} times already, with earlier settings, for destinations that are open; wait until some of them have \
         ended, or restart the service at a quiet time"
    )]
    Images,
    /// Its start failed.
    #[error("{0}")]
    Start(String),
}
