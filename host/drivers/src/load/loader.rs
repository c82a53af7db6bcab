//! From a file in the drivers folder to a checked table. All `unsafe` code of the host is here and in `probe`.
//!
//! A file is first checked in a child process (`probe`), because a truncated library or a constructor that aborts
//! kills the process that opens it. It is then opened from a private copy named by its hash: the file in the folder
//! may be replaced at any time, and overwriting a mapped file is a fatal signal for its readers. It is never
//! unloaded: one of its threads may still be returning through its code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use satcast_plugin_api::abi;
use satcast_plugin_api::host::Table;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::error::{LIBRARY_BYTES_MAX, LoadError};

pub const LIBRARIES_MAX: usize = 64;
/// Name of the list of our own libraries in the same folder.
const MANIFEST_FILE_NAME: &str = "manifest.json";
/// Write permission for group or everyone.
const OTHERS_WRITE: u32 = 0o022;
/// Root may change everything anyway.
const ROOT: u32 = 0;
/// Extension of the file beside a private copy that stores the result of its probe.
pub(crate) const KNOWN_EXTENSION: &str = "known";
const IMAGE_MODE: u32 = 0o400;
/// Mode of the folder of private copies.
const IMAGES_FOLDER_MODE: u32 = 0o700;
/// Block size for comparing a private copy.
const COMPARED_BYTES: usize = 64 * 1024;

#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) file: PathBuf,
    /// File name without `.so`; must be the id of the driver.
    pub(crate) id: String,
}

/// The `*.so` files of `folder`: first those that were built together with this host, so that no other can take a
/// type from them, then by name.
pub(crate) fn scan(folder: &Path) -> Result<Vec<Found>, LoadError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(LoadError::Read)? {
        let file = entry.map_err(LoadError::Read)?.path();
        let Some(id) =
            file.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".so"))
        else {
            continue;
        };
        found.push(Found { id: id.to_string(), file: file.clone() });
    }
    let own = own_hashes(folder);
    found.sort_by_cached_key(|found| (!own.contains_key(&format!("{}.so", found.id)), found.id.clone()));
    if found.len() > LIBRARIES_MAX {
        tracing::warn!(folder = %folder.display(), files = found.len(), "more than {LIBRARIES_MAX} libraries in the drivers folder, the rest is ignored");
        found.truncate(LIBRARIES_MAX);
    }
    refuse_of_others(folder)?;
    Ok(found)
}

/// Hashes of the libraries that were built together with this host, by file name.
pub(crate) fn own_hashes(folder: &Path) -> BTreeMap<String, String> {
    #[derive(Deserialize)]
    struct Listed {
        files: BTreeMap<String, String>,
    }
    let path = folder.join(MANIFEST_FILE_NAME);
    let Ok(text) = fs::read_to_string(&path) else { return BTreeMap::new() };
    if let Err(error) = refuse_of_others(&path) {
        tracing::warn!(%error, "list of own drivers not used; all drivers count as third-party");
        return BTreeMap::new();
    }
    match serde_json::from_str::<Listed>(&text) {
        Ok(listed) => listed.files,
        Err(error) => {
            tracing::warn!(%error, "drivers/{MANIFEST_FILE_NAME} cannot be read; all drivers count as third-party");
            BTreeMap::new()
        }
    }
}

/// The content of a library file and its SHA-256 in hexadecimal.
pub(crate) fn read_library(file: &Path) -> Result<(Vec<u8>, String), LoadError> {
    // Checked through one handle and opened without blocking: opening a pipe of that name would never return.
    let mut options = fs::OpenOptions::new();
    let opened = options.read(true).custom_flags(libc::O_NONBLOCK).open(file).map_err(LoadError::Read)?;
    let metadata = opened.metadata().map_err(LoadError::Read)?;
    if !metadata.is_file() {
        return Err(LoadError::NoFile);
    }
    refuse_if_of_others(file, &metadata)?;
    // Allocated at once: a growing buffer leaves memory behind in the allocator.
    let expected = metadata.len().min(LIBRARY_BYTES_MAX) + 1;
    let mut bytes = Vec::with_capacity(usize::try_from(expected).unwrap_or_default());
    opened.take(LIBRARY_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(LoadError::Read)?;
    if bytes.len() as u64 > LIBRARY_BYTES_MAX {
        return Err(LoadError::TooLarge);
    }
    let hash = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((bytes, hash))
}

fn refuse_of_others(path: &Path) -> Result<(), LoadError> {
    refuse_if_of_others(path, &fs::metadata(path).map_err(LoadError::Read)?)
}

fn refuse_if_of_others(path: &Path, metadata: &fs::Metadata) -> Result<(), LoadError> {
    let user = rustix::process::geteuid().as_raw();
    judge(path, metadata.permissions().mode(), metadata.uid(), user)
}

/// Only root and the user of the service may be able to change code that runs in the service.
fn judge(path: &Path, mode: u32, owner: u32, user: u32) -> Result<(), LoadError> {
    let path = path.to_path_buf();
    if ![ROOT, user].contains(&owner) {
        return Err(LoadError::Owner { path, owner, user });
    }
    if mode & OTHERS_WRITE != 0 {
        return Err(LoadError::WritableByOthers { path, mode: mode & 0o7777 });
    }
    Ok(())
}

/// Writes the private copy, if it is missing, and returns its absolute path.
pub(crate) fn private_copy(folder: &Path, bytes: &[u8], hash: &str) -> Result<PathBuf, LoadError> {
    let path = folder.join(format!("{hash}.so"));
    write_copy(folder, &path, bytes).map_err(|source| LoadError::Copy { path: path.clone(), source })?;
    // The linker would search for a relative name without a slash in the library path.
    path.canonicalize().map_err(|source| LoadError::Copy { path, source })
}

fn write_copy(folder: &Path, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(IMAGES_FOLDER_MODE).create(folder)?;
    if holds(path, bytes).unwrap_or(false) {
        return Ok(());
    }
    let partial = path.with_extension("partial");
    let _ = fs::remove_file(&partial);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(IMAGE_MODE).open(&partial)?;
    // Not synchronized: a copy that a power cut has damaged differs, and is made again.
    file.write_all(bytes)?;
    fs::rename(&partial, path)
}

fn holds(path: &Path, bytes: &[u8]) -> std::io::Result<bool> {
    let mut file = fs::File::open(path)?;
    if file.metadata()?.len() != bytes.len() as u64 {
        return Ok(false);
    }
    let mut block = vec![0; COMPARED_BYTES];
    for expected in bytes.chunks(COMPARED_BYTES) {
        let there = &mut block[..expected.len()];
        file.read_exact(there)?;
        if there != expected {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes private copies whose hash is not in `kept`: those of replaced drivers. Only the one process that uses
/// `folder` may call this. A mapped copy stays usable without its name.
pub(crate) fn remove_old_copies(folder: &Path, kept: &BTreeSet<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let endings = ["so", "partial", "probe", KNOWN_EXTENSION];
        let is_copy = path.extension().is_some_and(|ending| endings.iter().any(|known| ending == *known));
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let is_kept = kept.contains(stem)
            && path.extension().is_some_and(|ending| ending == "so" || ending == KNOWN_EXTENSION);
        if is_copy
            && !is_kept
            && let Err(error) = fs::remove_file(&path)
        {
            tracing::warn!(file = %path.display(), %error, "cannot remove an old copy of a driver");
        }
    }
}

/// Opens the library at the absolute `path` for the life of the process and checks its table.
#[allow(unsafe_code)] // Runs code of the library.
pub fn open(path: &Path) -> Result<Table, LoadError> {
    // All symbols are bound now: a missing symbol must fail here and not at its first call.
    let flags = RTLD_NOW | RTLD_LOCAL | libc::RTLD_NODELETE;
    // SAFETY: constructors of the library run; the operator put it into the drivers folder, and a child ran them before.
    let library = unsafe { Library::open(Some(path), flags) }.map_err(|error| {
        // The display form only says that it failed; the reason is in the source.
        let source = std::error::Error::source(&error).map(ToString::to_string);
        LoadError::Open(source.unwrap_or_else(|| error.to_string()))
    })?;
    // SAFETY: the contract gives this name this type, and the table check comes before any other call.
    let entry = unsafe { library.get::<abi::SatcastDriverEntry>(abi::ENTRY_SYMBOL.as_bytes()) }
        .map_err(|_| LoadError::NoEntry)?;
    // SAFETY: the library is never closed, see below.
    let table = unsafe { Table::read(*entry) };
    std::mem::forget(library);
    Ok(table?)
}

/// Checks the table of a driver that is linked into this binary.
///
/// # Errors
/// As for a library.
#[cfg(any(test, feature = "testing"))]
#[allow(unsafe_code)] // Calls an entry of this binary.
pub(crate) fn linked(entry: abi::SatcastDriverEntry) -> Result<Table, LoadError> {
    // SAFETY: the entry is code of this binary.
    Ok(unsafe { Table::read(entry) }?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_not_drivers_have_clear_errors() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("text.so");
        fs::write(&text, "hello").unwrap();
        assert!(matches!(open(&text), Err(LoadError::Open(why)) if why.contains("text.so")));
        let missing = folder.path().join("missing.so");
        let said = LoadError::Probe(open(&missing).err().unwrap().to_string());
        let said = said.of_file(&missing, Path::new("/drivers/a.so")).to_string();
        assert!(said.contains("/drivers/a.so") && !said.contains("missing.so"), "{said}");
        let libc =
            ["/lib/x86_64-linux-gnu/libm.so.6", "/lib/aarch64-linux-gnu/libm.so.6", "/lib64/libm.so.6"];
        if let Some(library) = libc.iter().map(Path::new).find(|path| path.exists()) {
            assert!(matches!(open(library), Err(LoadError::NoEntry)));
        }
    }

    #[test]
    fn writable_files_are_refused_and_copies_are_private() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.so");
        fs::write(&file, "x").unwrap();
        for mode in [0o646, 0o664, 0o775] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            let error = read_library(&file).unwrap_err();
            assert!(matches!(error, LoadError::WritableByOthers { mode: of, .. } if of == mode), "{error}");
        }
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let (bytes, hash) = read_library(&file).unwrap();
        assert_eq!(hash, "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881");
        assert!(matches!(read_library(folder.path()), Err(LoadError::NoFile)));
        let images = folder.path().join("images");
        let copy = private_copy(&images, &bytes, &hash).unwrap();
        assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, IMAGE_MODE);
        assert_eq!(private_copy(&images, &bytes, &hash).unwrap(), copy);
        private_copy(&images, b"older", "00").unwrap();
        fs::write(images.join("note.txt"), "not a copy").unwrap();
        remove_old_copies(&images, &BTreeSet::from([hash]));
        assert!(copy.exists() && images.join("note.txt").exists() && !images.join("00.so").exists());
    }

    #[test]
    fn a_folder_that_everyone_can_write_to_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(scan(folder.path()), Err(LoadError::WritableByOthers { mode: 0o777, .. })));
    }

    #[test]
    fn only_root_and_the_service_user_may_own_a_library() {
        let path = Path::new("/drivers/a.so");
        assert!(judge(path, 0o755, 0, 1000).is_ok() && judge(path, 0o755, 1000, 1000).is_ok());
        let error = judge(path, 0o755, 1001, 1000).unwrap_err();
        assert!(
            matches!(&error, LoadError::Owner { path: of, owner: 1001, user: 1000 } if of == path),
            "{error}"
        );
    }

    #[test]
    fn libraries_of_the_host_come_first_whatever_the_names() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("manifest.json"), r#"{"files":{"rtmp.so":"00","hls.so":"11"}}"#)
            .unwrap();
        for id in ["acme", "rtmp", "zz", "hls"] {
            fs::write(folder.path().join(format!("{id}.so")), "x").unwrap();
        }
        let ids: Vec<String> = scan(folder.path()).unwrap().into_iter().map(|found| found.id).collect();
        assert_eq!(ids, ["hls", "rtmp", "acme", "zz"]);
    }

    #[test]
    fn scan_returns_only_libraries_up_to_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("manifest.json"), r#"{"files":{"b.so":"00"}}"#).unwrap();
        for n in 0..=LIBRARIES_MAX {
            fs::write(folder.path().join(format!("d{n:03}.so")), "x").unwrap();
        }
        let found = scan(folder.path()).unwrap();
        assert_eq!(found.len(), LIBRARIES_MAX);
        assert_eq!(found[0].id, "d000");
        assert_eq!(own_hashes(folder.path())["b.so"], "00");
    }
}
