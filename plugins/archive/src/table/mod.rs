//! The recordings. Only this module changes, journals and reports a recording, and counts its share of disk and
//! journal.
//!
//! Other modules read a recording ([`Item::data`]) and ask this one for changes. The list has a lock and each recording
//! has one, so that writing a fragment waits for no other recording. It knows no store.

pub(crate) mod item;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use satcast_plugin_api::Error;
use satcast_plugin_api::driver::{Recording, RecordingState};
use satcast_quota::Quota;

use crate::disk::{blocking, is_file, private_folder, remove_if_there, unusable};
use crate::entry::{Bucket, Entry, Fate, Owner, State, Trouble};
use crate::full::{SPOOL_FULL, TOO_MANY, stopped, too_often};
use crate::journal::{self, Journal};
use crate::limits::Limits;
use crate::names::{self, stem};
use crate::outside::Outside;
use item::Held;
pub(crate) use item::{Data, Item};

/// Files of a destination younger than this count for [`Limits::files_per_minute`].
const MINUTE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Table {
    outside: Arc<dyn Outside>,
    files_per_minute: usize,
    /// Bytes of local copies.
    spooled: Quota<Owner>,
    /// Recordings in the journal.
    known: Quota<Owner>,
    journal: Journal,
    spool: PathBuf,
    items: Mutex<BTreeMap<String, Arc<Item>>>,
    folder: PathBuf,
    /// The folder's lock; `None` while an earlier instance holds it.
    lock: Mutex<Option<File>>,
}

impl Table {
    /// The recordings of a folder, which [`Table::take_up`] reads.
    ///
    /// # Errors
    /// `Internal` when the folders cannot be used.
    pub(crate) fn open(folder: &Path, limits: &Limits, outside: Arc<dyn Outside>) -> Result<Self, Error> {
        let failed = |error: io::Error| unusable(folder, &error);
        let journal = Journal::open(folder.join("journal")).map_err(failed)?;
        let spool = folder.join("spool");
        private_folder(&spool).map_err(failed)?;
        private_folder(&folder.join("index")).map_err(failed)?;
        Ok(Table {
            outside,
            files_per_minute: limits.files_per_minute,
            spooled: shared(limits.spool_quota),
            known: shared(limits.known),
            journal,
            spool,
            items: Mutex::default(),
            folder: folder.to_path_buf(),
            lock: Mutex::default(),
        })
    }

    /// Reads the journal once no other instance of the driver uses it; returns the unfinished recordings, or `None`
    /// until then.
    ///
    /// When the driver is replaced, the earlier instance finishes its recordings and uploads in the same folder. The
    /// new instance records too, and takes over the rest when the earlier one has ended; until then it only lists the
    /// journal's content.
    ///
    /// # Errors
    /// The lock or the journal cannot be read; the folder is unlocked then.
    pub(crate) fn take_up(&self) -> io::Result<Option<Vec<Arc<Item>>>> {
        let Some(lock) = journal::lock(&self.folder)? else { return Ok(None) };
        // A file that this instance is writing at this moment may be lost; the next change writes it again.
        let entries = self.journal.load(true)?;
        let unknown = entries.into_iter().filter(|entry| self.find(&entry.file_name).is_none());
        let unfinished = unknown.filter_map(|entry| self.resume(entry)).collect();
        *self.lock.lock() = Some(lock);
        Ok(Some(unfinished))
    }

    /// Releases the folder, as the system does when the process is killed.
    #[cfg(test)]
    pub(crate) fn give_back(&self) {
        self.lock.lock().take();
    }

    /// No earlier instance is running any more.
    pub(crate) fn is_alone(&self) -> bool {
        self.lock.lock().is_some()
    }

    /// Takes over a recording of an earlier process; returns it if there is work to do.
    fn resume(&self, mut entry: Entry) -> Option<Arc<Item>> {
        let path = self.path(&entry.file_name);
        self.fetch_given(&mut entry, &path);
        match &mut entry.state {
            State::Done { .. } => {
                // The journal said so first; the copy may have stayed.
                if let Err(error) = remove_if_there(&path) {
                    tracing::warn!(recording = entry.file_name, %error, "the local copy of an uploaded recording cannot be removed");
                }
            }
            State::Failed { has_copy, .. } => *has_copy = path.exists(),
            state @ State::Uploading { .. } if entry.attempt > 0 && !entry.attempt_opened => {
                let error =
                    Error::internal("the service ended before the store opened the upload; try again");
                *state = State::Failed { trouble: Trouble::new(&error), has_copy: true };
                entry.changed_at_ms = self.outside.now_ms().max(entry.changed_at_ms + 1);
                // If the save fails, the next start decides again.
                if let Err(error) = self.journal.save(&entry) {
                    tracing::warn!(recording = entry.file_name, %error, "the journal of a recording cannot be written");
                }
            }
            State::Recording { .. }
            | State::Uploading { .. }
            | State::Deleting { .. }
            | State::Gone { .. } => {}
        }
        let is_unfinished =
            !matches!(entry.state, State::Done { .. } | State::Failed { .. } | State::Gone { .. });
        let owner = entry.owner();
        let mut held = Held { slot: self.known.nothing(owner), bytes: self.spooled.nothing(owner) };
        held.slot.set(1);
        let item = Arc::new(Item::holding(entry, false, Some(held)));
        item.lock().count_bytes();
        self.items().insert(item.file_name.clone(), item.clone());
        is_unfinished.then_some(item)
    }

    fn items(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Item>>> {
        self.items.lock()
    }

    /// Adds a recording, which gets a unique number and name, and takes `bytes` of the quota.
    ///
    /// # Errors
    /// `Internal`: there is no space for another one; `Remote`: the encoder made too many recently.
    pub(crate) fn enter(&self, mut entry: Entry, bytes: u64) -> Result<Arc<Item>, Error> {
        let (owner, about, started_ms) = (entry.owner(), &entry.about, entry.started_at_ms);
        let bytes = self.spooled.try_take(owner, bytes).map_err(|_| stopped(SPOOL_FULL))?;
        let slot = self.known.try_take(owner, 1).map_err(|_| stopped(TOO_MANY))?;
        let mut items = self.items();
        let mut number = 0;
        // Ages of the destination's files of the last minute.
        let mut young = Vec::new();
        for item in items.values() {
            let data = item.data();
            if data.entry.about.destination_id == about.destination_id {
                let age = item.begun.map(|begun| begun.elapsed());
                young.extend(age.filter(|age| *age < MINUTE));
            }
            if data.entry.about.session_id == about.session_id {
                number = number.max(data.entry.number);
            }
        }
        // An encoder that keeps changing its configuration begins a file each time.
        let most = self.files_per_minute;
        if let Some(oldest) = young.iter().max().filter(|_| young.len() >= most) {
            return Err(too_often(most, MINUTE.saturating_sub(*oldest).max(Duration::from_secs(1))));
        }
        number = number.saturating_add(1);
        let mut name = names::file_name(&about.label, started_ms, &about.session_id, number);
        // Session ids may differ only in characters that names do not have.
        while items.contains_key(&name) || self.path(&name).exists() {
            number = number.saturating_add(1);
            name = names::file_name(&about.label, started_ms, &about.session_id, number);
        }
        (entry.number, entry.file_name) = (number, name.clone());
        let item = Arc::new(Item::holding(entry, true, Some(Held { slot, bytes })));
        items.insert(name, item.clone());
        Ok(item)
    }

    /// Adds a whole recording that has its name; `None` if it is known.
    ///
    /// # Errors
    /// `Internal`: there is no space for another one.
    pub(crate) fn enter_whole(&self, entry: Entry) -> Result<Option<Arc<Item>>, Error> {
        let owner = entry.owner();
        let bytes = self.spooled.try_take(owner, entry.bytes).map_err(|_| Error::internal(SPOOL_FULL))?;
        let slot = self.known.try_take(owner, 1).map_err(|_| Error::internal(TOO_MANY))?;
        let mut items = self.items();
        if items.contains_key(&entry.file_name) {
            return Ok(None);
        }
        let item = Arc::new(Item::holding(entry, false, Some(Held { slot, bytes })));
        items.insert(item.file_name.clone(), item.clone());
        Ok(Some(item))
    }

    /// Moves a finished file to the spool, if a crash came before that.
    fn fetch_given(&self, entry: &mut Entry, path: &Path) {
        let Some(given) = entry.given.take() else { return };
        let moved = if is_file(path) { Ok(()) } else { std::fs::rename(self.folder.join(given), path) };
        // Without the file the upload fails, which says so.
        if let Err(error) = moved.and_then(|()| self.journal.save(entry)) {
            tracing::warn!(recording = entry.file_name, %error, "a finished file cannot be moved to the spool");
        }
    }

    /// The driver's folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// All recordings, sorted by name.
    pub(crate) fn all(&self) -> Vec<Arc<Item>> {
        self.items().values().cloned().collect()
    }

    pub(crate) fn find(&self, file_name: &str) -> Option<Arc<Item>> {
        self.items().get(file_name).cloned()
    }

    /// All recordings; those of an earlier instance as its journal has them.
    ///
    /// # Errors
    /// `Internal` when that journal cannot be read.
    pub(crate) fn recordings(&self) -> Result<Vec<Recording>, Error> {
        let mut all: Vec<Recording> = self.all().iter().map(|item| self.listed(item)).collect();
        if !self.is_alone() {
            let entries = self.journal.load(false);
            let entries = entries.map_err(|error| {
                Error::internal(format!("the journal of recordings cannot be read: {error}"))
            })?;
            let theirs = entries.into_iter().filter(|entry| self.find(&entry.file_name).is_none());
            all.extend(theirs.map(|entry| self.listed(&Item::new(entry, false))));
        }
        Ok(all)
    }

    /// The report of a recording, after a check that its copy exists: it may have been removed by hand.
    fn listed(&self, item: &Item) -> Recording {
        let mut recording = item.data().recording(self.outside.now_ms());
        if recording.state == RecordingState::Failed && recording.has_copy {
            recording.has_copy = is_file(&self.path(&item.file_name));
        }
        recording
    }

    pub(crate) fn path(&self, file_name: &str) -> PathBuf {
        self.spool.join(format!("{}.mp4", stem(file_name)))
    }

    /// Where the index of a recording is.
    pub(crate) fn index_path(&self, file_name: &str) -> PathBuf {
        self.folder.join("index").join(stem(file_name))
    }

    pub(crate) fn spool(&self) -> &Path {
        &self.spool
    }

    /// See [`Journal::keep_reserve`].
    pub(crate) fn keep_reserve(&self) {
        self.journal.keep_reserve();
    }

    /// Changes a recording, saves the change, and reports it to the host.
    ///
    /// # Errors
    /// `Internal` when the journal cannot be written; in memory the change holds.
    pub(crate) async fn change<R>(
        self: &Arc<Self>,
        item: &Arc<Item>,
        change: impl FnOnce(&mut Data) -> R,
    ) -> Result<R, Error> {
        let (outcome, recording) = {
            let mut data = item.lock();
            let outcome = change(&mut data);
            (outcome, self.stamp(&mut data))
        };
        let saved = self.save(item).await;
        if saved.is_ok() {
            // Reported before the next step, which reports its own change.
            self.report(recording);
        }
        item.changed.notify_one();
        saved.map(|()| outcome)
    }

    /// Changes a recording in memory only; reports it to the host when `is_reported`.
    pub(crate) fn touch(&self, item: &Item, is_reported: bool, change: impl FnOnce(&mut Data)) {
        let recording = {
            let mut data = item.lock();
            change(&mut data);
            if is_reported { self.stamp(&mut data) } else { None }
        };
        self.report(recording);
        item.changed.notify_one();
    }

    /// Saves a failure, with the time without progress from which the next process continues, and reports it if it is a
    /// new one; returns the time without progress.
    pub(crate) async fn failed(self: &Arc<Self>, item: &Arc<Item>, error: &Error) -> Option<u64> {
        let (now, now_ms) = (self.outside.elapsed(), self.outside.now_ms());
        let (failing_ms, is_known) = {
            let mut data = item.lock();
            let before = data.recording(now_ms).error;
            (data.failed(now, error), data.recording(now_ms).error == before)
        };
        let saved = if is_known { self.save(item).await } else { self.change(item, |_| ()).await };
        if let Err(error) = saved {
            tracing::warn!(recording = item.file_name, %error, "the journal of a recording cannot be written");
        }
        failing_ms
    }

    /// Notes that the store is asked to delete the recording, which is reported as before until the store has done so.
    ///
    /// # Errors
    /// `Internal` when the journal cannot be written.
    pub(crate) async fn begin_deletion(
        self: &Arc<Self>,
        item: &Arc<Item>,
        object: Fate,
    ) -> Result<(), Error> {
        {
            let mut data = item.lock();
            let deleting = State::Deleting { object, failing_ms: 0 };
            data.before = Some(std::mem::replace(&mut data.entry.state, deleting));
        }
        self.save(item).await
    }

    /// The store did not delete it: restores the earlier state.
    pub(crate) async fn undo_deletion(self: &Arc<Self>, item: &Arc<Item>) {
        {
            let mut data = item.lock();
            if let Some(before) = data.before.take() {
                data.entry.state = before;
            }
        }
        if let Err(error) = self.save(item).await {
            tracing::warn!(recording = item.file_name, %error, "a recording that could not be deleted is deleted at the next start");
        }
    }

    /// Gives every change its own time, later than the previous one, whatever the clock does. Returns no report for a
    /// deleted recording: its deletion is answered first, and the list reports it if the answer is lost.
    fn stamp(&self, data: &mut Data) -> Option<Recording> {
        data.count_bytes();
        let now_ms = self.outside.now_ms();
        data.entry.changed_at_ms = now_ms.max(data.entry.changed_at_ms + 1);
        (!data.is_deleted()).then(|| data.recording(now_ms))
    }

    fn report(&self, recording: Option<Recording>) {
        if let Some(recording) = recording {
            self.outside.report(&recording);
        }
    }

    /// Saves a recording durably.
    ///
    /// # Errors
    /// `Internal` when the journal cannot be written.
    async fn save(self: &Arc<Self>, item: &Arc<Item>) -> Result<(), Error> {
        let (table, item) = (self.clone(), item.clone());
        blocking(move || table.save_now(&item)).await
    }

    /// The same, blocking.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub(crate) fn save_now(&self, item: &Item) -> io::Result<()> {
        let _one_at_a_time = item.saving.lock();
        // A forgotten recording must not come back.
        let entry = {
            let data = item.lock();
            data.held.is_some().then(|| data.entry.clone())
        };
        entry.map_or(Ok(()), |entry| self.journal.save(&entry))
    }

    /// Removes a deleted recording. A note stays in the journal for some time, so that the host learns of the deletion
    /// even if the answer is lost.
    ///
    /// # Errors
    /// `Internal` when the note cannot be written or the file cannot be removed.
    pub(crate) async fn bury(self: &Arc<Self>, item: &Arc<Item>) -> Result<(), Error> {
        self.change(item, |data| {
            data.before = None;
            let entry = &mut data.entry;
            (entry.bucket, entry.at_store) = (Bucket::Operators(None), None);
            entry.crcs = Vec::new();
            entry.state = State::Gone { is_deleted: true };
        })
        .await?;
        self.remove_index(item).await?;
        self.remove_local(item).await
    }

    /// Forgets a recording completely.
    ///
    /// # Errors
    /// `Internal` when a file cannot be removed.
    pub(crate) async fn forget(self: &Arc<Self>, item: &Arc<Item>) -> Result<(), Error> {
        item.lock().held = None;
        self.items().remove(&item.file_name);
        let (table, item) = (self.clone(), item.clone());
        blocking(move || {
            let _one_at_a_time = item.saving.lock();
            remove_if_there(&table.index_path(&item.file_name))?;
            remove_if_there(&table.path(&item.file_name))?;
            table.journal.remove(&item.file_name)
        })
        .await
    }

    /// Removes the local copy.
    ///
    /// # Errors
    /// `Internal` when it cannot be removed.
    pub(crate) async fn remove_local(self: &Arc<Self>, item: &Item) -> Result<(), Error> {
        let path = self.path(&item.file_name);
        blocking(move || remove_if_there(&path)).await
    }

    /// Removes the index of a recording that nobody can watch any more.
    ///
    /// # Errors
    /// `Internal` when it cannot be removed.
    pub(crate) async fn remove_index(self: &Arc<Self>, item: &Item) -> Result<(), Error> {
        let path = self.index_path(&item.file_name);
        blocking(move || remove_if_there(&path)).await
    }
}

/// A limit of which one owner may use three quarters; the last quarter is for the others.
fn shared(total: u64) -> Quota<Owner> {
    Quota::new(total, total - total / 4)
}
