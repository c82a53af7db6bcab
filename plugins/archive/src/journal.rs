//! The journal: one small file for each recording, so that uploads go on after a crash where they were.
//!
//! A file is written whole under another name, made durable, renamed, and its folder made durable: a crash leaves the state before or
//! the one after, never half of one. Keys of stores stand in it only as the host has encrypted them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use satcast_plugin_api::Class;
use serde::{Deserialize, Serialize};

use crate::names::stem;
use crate::share::Owner;

/// Largest journal file that is read: one with the ETags of 10,000 parts has less than half of it.
const ENTRY_BYTES_MAX: u64 = 2 * 1024 * 1024;
const VERSION: u32 = 1;

/// Where a recording stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Stage {
    /// It grows. Found at the start: a crash cut it off.
    Recording,
    /// It is whole and goes to the store.
    Uploading,
    /// The store has confirmed it; there is no local copy.
    Ready,
    /// Given up; the local copy is kept for a while.
    Failed,
    /// Deleted; something at the store is still to be ended.
    Leaving,
    /// Its days at the store were over, or it was deleted. Kept for a while, so that the host hears of it.
    Gone,
}

/// An upload that the store has opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Upload {
    /// The store's id of it.
    pub(crate) id: String,
    /// ETags of the parts it has, in order, as it wrote them.
    pub(crate) parts: Vec<String>,
    /// Every one of them was the MD5 of its part.
    pub(crate) has_sums: bool,
}

/// All that is known of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    pub(crate) version: u32,
    pub(crate) file_name: String,
    pub(crate) destination_id: i64,
    pub(crate) session_id: String,
    pub(crate) label: String,
    /// Number of the file in its session.
    pub(crate) number: u32,
    pub(crate) started_at_ms: i64,
    pub(crate) changed_at_ms: i64,
    /// Whose the stream was; 0 = the host did not say.
    #[serde(default)]
    pub(crate) account_id: i64,
    /// The store, encrypted. `None` = the operator's, as the settings name it.
    pub(crate) sealed: Option<String>,
    /// It is the operator's: keys of the settings are for it as long as they name the same bucket.
    #[serde(default)]
    pub(crate) of_operator: bool,
    pub(crate) retention_days: Option<u32>,
    pub(crate) stage: Stage,
    /// Whole bytes on disk; what a running recording has is only known from its file.
    pub(crate) bytes: u64,
    pub(crate) duration_ms: u64,
    /// When it was closed.
    pub(crate) closed_at_ms: Option<i64>,
    /// Name in the bucket, once an upload was asked for: from then on the store may have one that we did not hear of.
    pub(crate) key: Option<String>,
    pub(crate) upload: Option<Upload>,
    /// Ids of earlier uploads of the same key that are still to be ended.
    pub(crate) stale: Vec<String>,
    /// The checksum that the whole object has, once the store was asked to make it. Whether it did may not have been heard.
    #[serde(default)]
    pub(crate) sum: Option<String>,
    /// Since when nothing has worked.
    pub(crate) failing_since_ms: Option<i64>,
    pub(crate) error: Option<String>,
    pub(crate) error_class: Option<Class>,
    pub(crate) url: Option<String>,
    pub(crate) attempt: u32,
    pub(crate) attempt_opened: bool,
    /// The local copy is there.
    pub(crate) is_local: bool,
    /// It is being deleted, and an object of it shall go too.
    #[serde(default)]
    pub(crate) remove_object: bool,
    /// The store opened an upload of it at some time.
    #[serde(default)]
    pub(crate) begun: bool,
    /// Its destination was given another store, and it stays in the one where it began.
    #[serde(default)]
    pub(crate) stays: bool,
    /// Milliseconds for which nothing has worked, counted while the driver runs.
    #[serde(default)]
    pub(crate) failing_ms: u64,
}

impl Entry {
    /// A recording that begins.
    pub(crate) fn new(file_name: String, started_at_ms: i64) -> Self {
        Entry {
            version: VERSION,
            file_name,
            destination_id: 0,
            session_id: String::new(),
            label: String::new(),
            number: 0,
            started_at_ms,
            changed_at_ms: started_at_ms,
            account_id: 0,
            sealed: None,
            of_operator: false,
            retention_days: None,
            stage: Stage::Recording,
            bytes: 0,
            duration_ms: 0,
            closed_at_ms: None,
            key: None,
            upload: None,
            stale: Vec::new(),
            sum: None,
            failing_since_ms: None,
            error: None,
            error_class: None,
            url: None,
            attempt: 0,
            attempt_opened: false,
            is_local: true,
            remove_object: false,
            begun: false,
            stays: false,
            failing_ms: 0,
        }
    }

    /// Something of it may be at its store; earlier versions did not note that, but what follows from it.
    pub(crate) fn has_begun(&self) -> bool {
        let has_traces = self.upload.is_some() || !self.stale.is_empty() || self.sum.is_some();
        self.begun || self.attempt_opened || has_traces
    }

    /// Whose it is.
    pub(crate) fn owner(&self) -> Owner {
        Owner::new(self.account_id, self.destination_id)
    }
}

/// Kept for a full disk: without a line in the journal no upload goes on, and it is uploads that make room again.
const RESERVE_BYTES: usize = 1024 * 1024;

/// The folder of the journal.
#[derive(Debug, Clone)]
pub(crate) struct Journal {
    folder: PathBuf,
    reserve: PathBuf,
}

impl Journal {
    /// The journal in `folder`, which is made if it is not there.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub(crate) fn open(folder: PathBuf) -> io::Result<Self> {
        private_folder(&folder)?;
        let journal = Journal { reserve: folder.with_extension("reserve"), folder };
        journal.keep_reserve();
        Ok(journal)
    }

    /// Takes the reserve for a full disk, unless it is there.
    pub(crate) fn keep_reserve(&self) {
        if !self.reserve.exists()
            && let Err(error) = write_fresh(&self.reserve, &vec![0; RESERVE_BYTES])
        {
            let _ = remove_if_there(&self.reserve);
            tracing::debug!(%error, "there is no room for a reserve");
        }
    }

    /// Every entry that can be read. One that cannot is put aside and told. For who alone writes here.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub(crate) fn load(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for found in fs::read_dir(&self.folder)? {
            let path = found?.path();
            match path.extension().and_then(|ending| ending.to_str()) {
                Some("json") => match read(&path) {
                    Ok(entry) => entries.push(entry),
                    Err(error) => put_aside(&path, &error),
                },
                // Half a file of a crash.
                Some("new") => fs::remove_file(&path)?,
                _ => {}
            }
        }
        Ok(entries)
    }

    /// Every entry that can be read now, while another instance writes; changes nothing.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub(crate) fn look(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for found in fs::read_dir(&self.folder)? {
            let path = found?.path();
            if path.extension().is_some_and(|ending| ending == "json") {
                // One that goes in this moment is gone.
                entries.extend(read(&path).ok());
            }
        }
        Ok(entries)
    }

    /// Writes an entry; afterwards it survives a crash of the machine.
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
            // Half a file is in the way of everything else.
            let _ = remove_if_there(&fresh);
            return Err(error);
        }
        fs::rename(&fresh, &path)?;
        sync_folder(&self.folder)
    }

    /// Removes an entry; one that is not there is removed too.
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
        return Err(io::Error::other("it is too long"));
    }
    let entry: Entry = serde_json::from_str(&fs::read_to_string(path)?).map_err(io::Error::other)?;
    let is_ours = path.file_stem().and_then(|name| name.to_str()) == Some(stem(&entry.file_name));
    match entry.version {
        VERSION if is_ours => Ok(entry),
        VERSION => Err(io::Error::other("it is that of another recording")),
        version => Err(io::Error::other(format!("it has version {version}, which is not known"))),
    }
}

fn put_aside(path: &Path, error: &io::Error) {
    tracing::error!(file = %path.display(), %error, "a journal file of a recording cannot be read; it is put aside, and its spooled file stays");
    if let Err(error) = fs::rename(path, path.with_extension("bad")) {
        tracing::error!(file = %path.display(), %error, "a journal file cannot be put aside");
    }
}

/// Makes a folder that only this user can read.
///
/// # Errors
/// It cannot be made.
pub(crate) fn private_folder(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Makes what was created, renamed and removed in a folder durable.
///
/// # Errors
/// The system cannot do it.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Removes a file, if it is there.
///
/// # Errors
/// It cannot be removed.
pub(crate) fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn entry(number: u32) -> Entry {
        let mut entry = Entry::new(format!("label/2026-11-22T081500Z-s-{number}.mp4"), 1);
        entry.upload = Some(Upload { id: "u".into(), parts: vec!["\"e\"".into()], has_sums: true });
        entry
    }

    #[test]
    fn what_is_saved_is_loaded_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path().join("journal")).unwrap();
        journal.save(&entry(1)).unwrap();
        let changed = Entry { stage: Stage::Failed, bytes: 7, ..entry(1) };
        journal.save(&changed).unwrap();
        journal.save(&entry(2)).unwrap();
        journal.remove("label/2026-11-22T081500Z-s-2.mp4").unwrap();
        journal.remove("never/there.mp4").unwrap();
        assert_eq!(journal.load().unwrap(), [changed]);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder.path().join("journal")), 0o700);
        assert_eq!(mode(&folder.path().join("journal/2026-11-22T081500Z-s-1.json")), 0o600);
    }

    #[test]
    fn what_cannot_be_read_is_put_aside() {
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
        assert_eq!(journal.load().unwrap(), [entry(1)]);
        assert_eq!(journal.load().unwrap().len(), 1);
        let bad = fs::read_dir(folder.path())
            .unwrap()
            .filter(|found| found.as_ref().unwrap().path().extension().is_some_and(|ending| ending == "bad"));
        assert_eq!(bad.count(), 4);
        assert!(!folder.path().join("half.new").exists());
    }
}
