//! Reading and checking a driver's table before any of its functions is called.

use crate::abi::{self, SatcastDriver, SatcastDriverEntry};
use crate::manifest::{Manifest, ManifestError, is_name};

/// Why a table was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The entry returned null.
    #[error(
        "its entry offers no table for plugin API {}; install the driver of the same release as this host",
        abi::ABI_MAJOR
    )]
    NoTable,
    /// Not a Satcast table.
    #[error("its table does not begin with the Satcast magic; it is no Satcast driver")]
    Magic,
    /// Another major version.
    #[error(
        "it was built for plugin API {driver}, this host needs {}; install the driver of the same release as this host",
        abi::ABI_MAJOR
    )]
    Version {
        /// Major version of the driver.
        driver: u32,
    },
    /// The struct is too short for this major version.
    #[error(
        "its table has {size} bytes but needs {needed}; build the driver again with this release's plugin API"
    )]
    Short {
        /// Bytes it has.
        size: usize,
        /// Bytes a table of this major version has at least.
        needed: usize,
    },
    /// A mandatory function is missing.
    #[error("its table lacks the function {0}")]
    Missing(&'static str),
    /// The id is not a name.
    #[error("its id {0:?} must be 1 to 32 characters of a-z, 0-9 and -")]
    Id(String),
    /// The manifest is wrong.
    #[error("{0}")]
    Manifest(#[from] ManifestError),
}

/// A checked table.
#[derive(Clone)]
pub struct Table {
    raw: SatcastDriver,
    id: String,
    version: String,
    manifest: Manifest,
}

// SAFETY: the table is static data of a library that is never unloaded; its functions carry their own thread rules.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

/// The part of the table every version of this major has: up to and without `get_extension`.
const TABLE_BYTES_MIN: usize = std::mem::offset_of!(SatcastDriver, get_extension);

impl Table {
    /// Asks `entry` for the table and checks it.
    ///
    /// # Safety
    /// `entry` must be the entry of a driver library that stays loaded; it is called, so the library is trusted from here on.
    pub unsafe fn read(entry: SatcastDriverEntry) -> Result<Self, TableError> {
        // SAFETY: passed on from the caller.
        let table = unsafe { entry(abi::ABI_MAJOR) };
        if table.is_null() {
            return Err(TableError::NoTable);
        }
        // SAFETY: a driver's table has at least its 24 byte head.
        let (magic, major, size) = unsafe {
            (
                (&raw const (*table).magic).read(),
                (&raw const (*table).abi_major).read(),
                (&raw const (*table).size).read(),
            )
        };
        check_head(magic, major, size)?;
        // SAFETY: all-zero is a valid table: null pointers, absent functions.
        let mut raw: SatcastDriver = unsafe { std::mem::zeroed() };
        // SAFETY: both sides are valid for the smaller of the two sizes and do not overlap.
        unsafe {
            std::ptr::copy_nonoverlapping(
                table.cast::<u8>(),
                (&raw mut raw).cast::<u8>(),
                size.min(size_of::<SatcastDriver>()),
            );
        }
        check_functions(&raw)?;
        // SAFETY: the texts of a table are static.
        let (id, version, manifest) =
            unsafe { (raw.id.read(), raw.version.read(), raw.manifest_json.read()) };
        if !is_name(&id) {
            return Err(TableError::Id(id.chars().take(40).collect()));
        }
        let manifest = Manifest::parse(&manifest)?;
        let version = version.chars().filter(|c| !c.is_control()).take(64).collect();
        Ok(Self { raw, id: id.into_owned(), version, manifest })
    }

    /// Name of the driver.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its version.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Its destination types.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Panics of the driver unwind, so that it may run inside the host's process.
    pub fn panics_unwind(&self) -> bool {
        self.raw.flags & abi::FLAG_PANIC_UNWIND != 0
    }

    /// Packets must not be lost when a destination is slow: the host spools them.
    pub fn is_lossless(&self) -> bool {
        self.raw.flags & abi::FLAG_LOSSLESS != 0
    }

    pub(super) fn raw(&self) -> &SatcastDriver {
        &self.raw
    }
}

fn check_head(magic: u64, major: u32, size: usize) -> Result<(), TableError> {
    if magic != abi::MAGIC {
        return Err(TableError::Magic);
    }
    if major != abi::ABI_MAJOR {
        return Err(TableError::Version { driver: major });
    }
    if size < TABLE_BYTES_MIN {
        return Err(TableError::Short { size, needed: TABLE_BYTES_MIN });
    }
    Ok(())
}

fn check_functions(raw: &SatcastDriver) -> Result<(), TableError> {
    let present = [
        ("init", raw.init.is_some()),
        ("open", raw.open.is_some()),
        ("stop", raw.stop.is_some()),
        ("destroy", raw.destroy.is_some()),
        ("deinit", raw.deinit.is_some()),
    ];
    match present.iter().find(|(_, present)| !present) {
        Some((name, _)) => Err(TableError::Missing(name)),
        None => Ok(()),
    }
}
