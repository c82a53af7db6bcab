//! The journal: one small file for each recording, so that uploads continue after a crash.
//!
//! A file is written under another name, synced and renamed, and its folder is synced: a crash leaves the earlier state
//! or the new one, never half of one. Keys of stores are in it only as the host has encrypted them.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::disk::{private_folder, remove_if_there, sync_folder};
use crate::entry::{Entry, VERSION};
use crate::names::stem;
use crate::version1;

/// Largest journal file that is read; the ETags and checksums of 10,000 parts need less than half of it.
const ENTRY_BYTES_MAX: u64 = 2 * 1024 * 1024;
/// Reserve for a full disk: no upload continues without its journal, and uploads are what frees space.
const RESERVE_BYTES: usize = 1024 * 1024;

/// The folder of the journal.
#[derive(Debug, Clone)]
pub(crate) struct Journal {
    folder: PathBuf,
    reserve: PathBuf,
}

impl Journal {
    /// The journal in `folder`, which is created if needed.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub(crate) fn open(folder: PathBuf) -> io::Result<Self> {
        private_folder(&folder)?;
        let journal = Journal { reserve: folder.with_extension("reserve"), folder };
        journal.keep_reserve();
        Ok(journal)
    }

    /// Allocates the reserve for a full disk, unless it exists.
    pub(crate) fn keep_reserve(&self) {
        if !self.reserve.exists()
            && let Err(error) = write_fresh(&self.reserve, &vec![0; RESERVE_BYTES])
        {
            let _ = remove_if_there(&self.reserve);
            tracing::debug!(%error, "there is no space for the journal reserve");
        }
    }

    /// Reads every valid entry. `is_ours`: no other instance writes here, so an invalid entry is set aside and logged,
    /// and half-written files of a crash are removed.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub(crate) fn load(&self, is_ours: bool) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for found in fs::read_dir(&self.folder)? {
            let path = found?.path();
            match path.extension().and_then(|ending| ending.to_str()) {
                Some("json") => match read(&path) {
                    Ok(entry) => entries.push(entry),
                    Err(error) if is_ours => put_aside(&path, &error),
                    // It was removed at this moment.
                    Err(_) => {}
                },
                Some("new") if is_ours => fs::remove_file(&path)?,
                _ => {}
            }
        }
        Ok(entries)
    }

    /// Writes an entry, which then survives a crash of the machine.
    ///
    /// # Errors
    /// It cannot be written; the earlier one stays.
    pub(crate) fn save(&self, entry: &Entry) -> io::Result<()> {
        let path = self.path(&entry.file_name);
        let fresh = path.with_extension("new");
        let text = serde_json::to_string(entry).map_err(io::Error::other)?;
        let mut written = write_fresh(&fresh, text.as_bytes());
        if written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::StorageFull) {
            remove_if_there(&self.reserve)?;
            written = write_fresh(&fresh, text.as_bytes());
        }
        if let Err(error) = written {
            // Half a file only takes space.
            let _ = remove_if_there(&fresh);
            return Err(error);
        }
        fs::rename(&fresh, &path)?;
        sync_folder(&self.folder)
    }

    /// Removes an entry; a missing one is no error.
    ///
    /// # Errors
    /// It cannot be removed.
    pub(crate) fn remove(&self, file_name: &str) -> io::Result<()> {
        remove_if_there(&self.path(file_name))?;
        sync_folder(&self.folder)
    }

    fn path(&self, file_name: &str) -> PathBuf {
        self.folder.join(format!("{}.json", stem(file_name)))
    }
}

fn write_fresh(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn read(path: &Path) -> io::Result<Entry> {
    if fs::metadata(path)?.len() > ENTRY_BYTES_MAX {
        return Err(io::Error::other("the file is too long"));
    }
    let mut text: Value = serde_json::from_str(&fs::read_to_string(path)?).map_err(io::Error::other)?;
    match text["version"].as_u64() {
        Some(1) => text = version1::upgraded(&text),
        Some(version) if version != u64::from(VERSION) => {
            return Err(io::Error::other(format!("the file has the unknown version {version}")));
        }
        _ => {}
    }
    let entry: Entry = serde_json::from_value(text).map_err(io::Error::other)?;
    match path.file_stem().and_then(|name| name.to_str()) == Some(stem(&entry.file_name)) {
        true => Ok(entry),
        false => Err(io::Error::other("the file belongs to another recording")),
    }
}

fn put_aside(path: &Path, error: &io::Error) {
    tracing::error!(file = %path.display(), %error, "a journal file of a recording cannot be read; the file is set aside, and the spooled media stays");
    if let Err(error) = fs::rename(path, path.with_extension("bad")) {
        tracing::error!(file = %path.display(), %error, "a journal file cannot be set aside");
    }
}

/// Locks a folder for this instance of the driver; `None` while another one holds the lock. The system releases it when
/// the file is closed, also by a crash.
///
/// # Errors
/// The lock file cannot be used.
pub(crate) fn lock(folder: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600).open(folder.join("lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::entry::{AtStore, State, Upload};

    fn entry(number: u32) -> Entry {
        let mut entry = Entry::new(format!("label/2026-11-22T081500Z-s-{number}.mp4"), 1);
        let upload = Upload { id: "u".into(), parts: vec!["\"e\"".into()], has_sums: true, takes_crcs: true };
        entry.at_store = Some(AtStore { upload: Some(upload), ..AtStore::new("k".into()) });
        entry
    }

    #[test]
    fn saved_entries_are_loaded_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path().join("journal")).unwrap();
        journal.save(&entry(1)).unwrap();
        let changed = Entry { state: State::Gone { is_deleted: true }, bytes: 7, ..entry(1) };
        journal.save(&changed).unwrap();
        journal.save(&entry(2)).unwrap();
        journal.remove("label/2026-11-22T081500Z-s-2.mp4").unwrap();
        journal.remove("never/there.mp4").unwrap();
        assert_eq!(journal.load(true).unwrap(), [changed]);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder.path().join("journal")), 0o700);
        assert_eq!(mode(&folder.path().join("journal/2026-11-22T081500Z-s-1.json")), 0o600);
    }

    #[test]
    fn unreadable_entries_are_set_aside() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path().to_path_buf()).unwrap();
        journal.save(&entry(1)).unwrap();
        let newer = Entry { version: VERSION + 1, ..entry(2) };
        journal.save(&newer).unwrap();
        fs::write(folder.path().join("cut.json"), "{\"version\":1").unwrap();
        let whole = serde_json::to_string(&entry(1)).unwrap();
        fs::write(folder.path().join("other-name.json"), whole).unwrap();
        fs::write(folder.path().join("long.json"), vec![b' '; ENTRY_BYTES_MAX as usize + 1]).unwrap();
        fs::write(folder.path().join("half.new"), "{").unwrap();
        assert_eq!(journal.load(true).unwrap(), [entry(1)]);
        assert_eq!(journal.load(true).unwrap().len(), 1);
        let bad = fs::read_dir(folder.path())
            .unwrap()
            .filter(|found| found.as_ref().unwrap().path().extension().is_some_and(|ending| ending == "bad"));
        assert_eq!(bad.count(), 4);
        assert!(!folder.path().join("half.new").exists());
    }
}
