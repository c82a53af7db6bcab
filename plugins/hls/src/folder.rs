//! Layout of the files: `<data folder>/dvr/<boot id>/<first number of the opening>/<number>.m4s`. Only the owner can
//! read the folders.
//!
//! Files of an earlier process are found at load: their highest number is the floor for new numbers, and their folders
//! are renamed to `trash-*` at once, so that they cannot be mistaken for current ones while they are deleted in the
//! background. An earlier instance of the driver that still serves, for example after a change of its settings, holds a
//! lock on its folder, which stays.

use std::ffi::OsStr;
use std::fs::{DirBuilder, DirEntry, File, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use satcast_media::playlist::segment_name;

use crate::disk::{Write, WriteFailed};
use crate::janitor::Janitor;
use crate::numbers::{self, LAST_FILE};

const FOLDER_MODE: u32 = 0o700;
/// Prefix of a folder that is to be deleted.
const TRASH: &str = "trash-";
/// Entries scanned for their numbers: about two hundred full windows. Entries beyond it can only make the floor lower,
/// and the clock compensates for that.
const SCAN_ENTRIES_MAX: usize = 500_000;

pub(crate) fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path)
}

/// The folders of this process.
#[derive(Debug)]
pub(crate) struct Root {
    data: PathBuf,
    /// `dvr/<boot id>`.
    boot: PathBuf,
}

/// State of the disk at load.
pub(crate) struct Found {
    /// Highest number that was used.
    pub(crate) floor: u64,
    /// Folders to be deleted.
    pub(crate) trash: Vec<PathBuf>,
    /// The lock on our own folder, held while the folder is used; `None` when the disk failed.
    pub(crate) held: Option<File>,
}

impl Root {
    /// The folder `name` below `data` for the process with this boot id.
    pub(crate) fn new(data: &Path, name: &str, boot_id: &str) -> Self {
        Root { data: data.to_owned(), boot: Path::new(name).join(boot_id) }
    }

    pub(crate) fn boot(&self) -> PathBuf {
        self.data.join(&self.boot)
    }

    /// The folder of all processes.
    pub(crate) fn all(&self) -> PathBuf {
        self.data.join(self.boot.parent().unwrap_or(Path::new("")))
    }

    /// The folder of an opening; the first write creates it.
    pub(crate) fn opening(&self, first: u64, janitor: Janitor) -> Arc<Folder> {
        let relative = self.boot.join(first.to_string());
        Arc::new(Folder { path: self.data.join(&relative), relative, janitor })
    }

    /// Scans the folders of earlier processes and sets them aside. A disk failure is only logged, because playback from
    /// memory works without the disk.
    pub(crate) fn take_stock(&self) -> Found {
        let all = self.all();
        let mut found = Found { floor: 0, trash: Vec::new(), held: None };
        if let Err(error) = make(&all) {
            tracing::warn!(%error, folder = %all.display(), "cannot make the folder for rewind; check the disk");
        }
        if let Ok(text) = std::fs::read(all.join(LAST_FILE)) {
            found.floor = numbers::parse(&text).unwrap_or(0);
        }
        let mut left = SCAN_ENTRIES_MAX;
        for entry in folders_in(&all) {
            found.floor = found.floor.max(highest(&entry.path(), &mut left));
            if !is_held(&entry.path()) {
                found.trash.push(put_aside(&entry));
            }
        }
        found.held = hold(&self.boot()).ok();
        found
    }
}

/// Makes a folder and locks it until the file is closed, also by a crash.
fn hold(path: &Path) -> io::Result<File> {
    make(path)?;
    let folder = File::open(path)?;
    folder.try_lock()?;
    Ok(folder)
}

/// Another instance of the driver uses the folder.
fn is_held(path: &Path) -> bool {
    File::open(path).is_ok_and(|folder| matches!(folder.try_lock(), Err(TryLockError::WouldBlock)))
}

fn folders_in(path: &Path) -> impl Iterator<Item = DirEntry> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    // Links are not followed: this driver makes none.
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
}

/// Highest number of a file in the openings of a boot folder.
fn highest(boot: &Path, left: &mut usize) -> u64 {
    let mut highest = 0;
    for opening in folders_in(boot) {
        for entry in std::fs::read_dir(opening.path()).into_iter().flatten().flatten() {
            if *left == 0 {
                return highest;
            }
            *left -= 1;
            highest = highest.max(number(&entry.file_name()).unwrap_or(0));
        }
    }
    highest
}

/// The number in `<number>.m4s`, or in `<number>.m4s.tmp`.
fn number(name: &OsStr) -> Option<u64> {
    let end = name.as_bytes().iter().position(|byte| *byte == b'.')?;
    name.as_bytes()[end..].starts_with(b".m4s").then(|| numbers::parse(&name.as_bytes()[..end]))?
}

fn put_aside(entry: &DirEntry) -> PathBuf {
    let (path, name) = (entry.path(), entry.file_name());
    if name.as_bytes().starts_with(TRASH.as_bytes()) {
        return path;
    }
    let mut aside = std::ffi::OsString::from(TRASH);
    aside.push(&name);
    let aside = path.with_file_name(aside);
    // If the rename fails (the name is taken), the folder is deleted where it is.
    std::fs::rename(&path, &aside).map_or(path, |()| aside)
}

/// Folder of one opening; removed after its last file.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    relative: PathBuf,
    janitor: Janitor,
}

impl Folder {
    /// Writes a segment. Blocks.
    ///
    /// # Errors
    /// Those of `write`.
    pub(crate) fn write(
        self: &Arc<Self>,
        write: Write,
        sequence: u64,
        bytes: &[u8],
    ) -> Result<SegmentFile, WriteFailed> {
        match write(&self.path, sequence, bytes) {
            Ok(()) => Ok(SegmentFile::new(self.clone(), sequence, bytes.len())),
            Err(failed) => Err(WriteFailed { going_bytes: self.janitor.going_bytes(), ..failed }),
        }
    }

    #[cfg(test)]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.janitor.remove_folder(std::mem::take(&mut self.path));
    }
}

/// A written segment. Its file is removed when this is dropped, which does not block.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    folder: Arc<Folder>,
    name: String,
    bytes: u64,
}

impl SegmentFile {
    /// The file of a segment of `bytes` bytes, which exists in `folder`.
    pub(crate) fn new(folder: Arc<Folder>, sequence: u64, bytes: usize) -> Self {
        SegmentFile { folder, name: segment_name(sequence), bytes: bytes as u64 }
    }

    /// Path relative to the data folder.
    pub(crate) fn relative(&self) -> PathBuf {
        self.folder.relative.join(&self.name)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for SegmentFile {
    fn drop(&mut self) {
        // The folder is dropped after this, so its removal is queued after the file's.
        self.folder.janitor.remove_file(self.folder.path.join(&self.name), self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn lay(data: &Path, path: &str) {
        let path = data.join(path);
        make(path.parent().unwrap()).unwrap();
        std::fs::write(path, b"x").unwrap();
    }

    #[test]
    fn files_of_earlier_processes_are_set_aside_and_numbers_continue() {
        let data = tempfile::tempdir().unwrap();
        let data = data.path();
        lay(data, "dvr/old/100/105.m4s");
        lay(data, "dvr/old/100/107.m4s.tmp");
        lay(data, "dvr/trash-older/90/91.m4s");
        lay(data, "dvr/old/100/900.mp4");
        lay(data, "dvr/old/100/99999999999999999999.m4s");
        lay(data, "outside/300.m4s");
        std::os::unix::fs::symlink(data.join("outside"), data.join("dvr/link")).unwrap();
        let found = Root::new(data, "dvr", "new").take_stock();
        assert_eq!(found.floor, 107);
        let mut trash: Vec<_> = found.trash.iter().map(|path| path.file_name().unwrap()).collect();
        trash.sort();
        assert_eq!(trash, ["trash-old", "trash-older"]);
        assert!(data.join("dvr/trash-old/100/105.m4s").exists() && !data.join("dvr/old").exists());
        assert!(data.join("outside/300.m4s").exists());
        std::fs::write(data.join("dvr").join(LAST_FILE), "400").unwrap();
        assert_eq!(Root::new(data, "dvr", "newer").take_stock().floor, 400);
    }

    #[test]
    fn folders_in_use_by_an_earlier_instance_stay() {
        let data = tempfile::tempdir().unwrap();
        let earlier = Root::new(data.path(), "dvr", "earlier").take_stock();
        lay(data.path(), "dvr/earlier/100/105.m4s");
        let later = Root::new(data.path(), "dvr", "later").take_stock();
        assert_eq!((later.floor, later.trash.len()), (105, 0));
        assert!(data.path().join("dvr/earlier/100/105.m4s").exists());
        drop(earlier);
        let last = Root::new(data.path(), "dvr", "last").take_stock();
        assert_eq!((last.floor, last.trash), (105, vec![data.path().join("dvr/trash-earlier")]));
        assert!(later.held.is_some() && data.path().join("dvr/later").exists());
    }

    #[test]
    fn folders_are_private() {
        let data = tempfile::tempdir().unwrap();
        make(&data.path().join("a/b")).unwrap();
        for folder in ["a", "a/b"] {
            let mode = std::fs::metadata(data.path().join(folder)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700);
        }
    }

    #[test]
    fn the_scan_is_bounded() {
        let data = tempfile::tempdir().unwrap();
        for number in 0..5 {
            lay(data.path(), &format!("boot/1/{number}.m4s"));
        }
        let mut left = 3;
        highest(&data.path().join("boot"), &mut left);
        assert_eq!(left, 0);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_tolerated() {
        let data = tempfile::tempdir().unwrap();
        std::fs::write(data.path().join("dvr"), "a file").unwrap();
        let found = Root::new(data.path(), "dvr", "new").take_stock();
        assert_eq!((found.floor, found.trash.len()), (0, 0));
    }
}
