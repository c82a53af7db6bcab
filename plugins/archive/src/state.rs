//! What everything in the driver shares: the recordings, their journal and spool, and the way to the host.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::{Mutex, MutexGuard};
use satcast_plugin_api::{Class, Error};
use satcast_quota::Quota;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::Instant;

use crate::config::Settings;
use crate::entry::{Bucket, Entry, Owner, State, Trouble};
use crate::follow::Wanted;
use crate::full::{SPOOL_FULL, TOO_MANY, no_room, too_often};
use crate::item::{Data, Held, Item};
use crate::journal::{self, Journal, private_folder, remove_if_there};
use crate::limits::Limits;
use crate::names::{self, stem};
use crate::outside::Outside;
use crate::places::Operator;
use crate::recorder::Order;
use crate::upload::permits::Permits;
use crate::upload::sockets::Sockets;
use crate::{keeper, upload};
use satcast_plugin_api::driver::{Recording, RecordingState};

/// Files of a destination that are younger count for [`Limits::files_per_minute`].
const MINUTE: Duration = Duration::from_secs(60);

/// The driver without its contract.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) outside: Arc<dyn Outside>,
    pub(crate) limits: Limits,
    /// One for each request to a store.
    pub(crate) requests: Permits,
    /// One for each MiB of parts in memory.
    pub(crate) memory: Permits,
    pub(crate) operator: Operator,
    /// Bytes of local copies.
    spooled: Quota<Owner>,
    /// Recordings in the journal.
    known: Quota<Owner>,
    pub(crate) sockets: Arc<Sockets>,
    pub(crate) started: Instant,
    pub(crate) wanted: Wanted,
    journal: Journal,
    spool: PathBuf,
    items: Mutex<BTreeMap<String, Arc<Item>>>,
    folder: PathBuf,
    /// The folder's lock; `None` while an earlier instance has it.
    lock: Mutex<Option<File>>,
}

impl Core {
    /// Reads the journal below `data` and goes on with what is unfinished, in tasks of the running runtime.
    ///
    /// # Errors
    /// `Config` for a bad store in the settings, `Internal` when the folders cannot be used.
    pub(crate) fn start(
        data: &Path,
        settings: &Settings,
        limits: Limits,
        outside: Arc<dyn Outside>,
    ) -> Result<Arc<Self>, Error> {
        let failed = |error: io::Error| {
            Error::internal(format!("the archive driver cannot use its folder {}: {error}", data.display()))
        };
        let journal = Journal::open(data.join("journal")).map_err(failed)?;
        let spool = data.join("spool");
        private_folder(&spool).map_err(failed)?;
        let core = Arc::new(Core {
            folder: data.to_path_buf(),
            lock: Mutex::default(),
            operator: Operator::new(settings, &*outside)?,
            requests: Permits::new(limits.requests_at_once),
            memory: Permits::new(limits.parts_mib),
            spooled: shared(limits.spool_quota),
            known: shared(limits.known),
            sockets: Arc::new(Sockets::new(outside.clone(), limits.times)),
            started: Instant::now(),
            wanted: Wanted::default(),
            items: Mutex::default(),
            outside,
            limits,
            journal,
            spool,
        });
        if !core.take_up().map_err(failed)? {
            tracing::info!(
                "an earlier instance of the driver is still at work; its recordings are taken up when it is gone"
            );
        }
        keeper::start(Arc::downgrade(&core));
        Ok(core)
    }

    /// Goes on with what is in the journal, once no other instance of the driver does; true from then on.
    ///
    /// When the driver is replaced, the earlier instance goes on with what it records and uploads, in the same folder. The later one
    /// records too, and takes the rest up when the earlier one is gone; until then it only tells what the journal says of it.
    ///
    /// # Errors
    /// The lock or the journal cannot be read; the folder stays free then.
    pub(crate) fn take_up(self: &Arc<Self>) -> io::Result<bool> {
        if self.is_alone() {
            return Ok(true);
        }
        let Some(lock) = journal::lock(&self.folder)? else { return Ok(false) };
        // What this instance writes in this moment may lose its half-written file; it is written again with its next change.
        let entries = self.journal.load(true)?;
        let mut unfinished = 0;
        for entry in entries {
            if self.find(&entry.file_name).is_none() {
                unfinished += u32::from(self.resume(entry));
            }
        }
        *self.lock.lock() = Some(lock);
        tracing::info!(recordings = self.items().len(), unfinished, "the journal of recordings was read");
        Ok(true)
    }

    /// Gives the folder back, as the system does when the process is killed.
    #[cfg(test)]
    pub(crate) fn give_back(&self) {
        self.lock.lock().take();
    }

    /// No earlier instance is at work any more.
    pub(crate) fn is_alone(&self) -> bool {
        self.lock.lock().is_some()
    }

    /// Takes up what an earlier process left; true when there is something to do.
    fn resume(self: &Arc<Self>, mut entry: Entry) -> bool {
        let path = self.path(&entry.file_name);
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
                // Decided anew at the next start should it not be saved.
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
        let mut held = Held { place: self.known.nothing(owner), bytes: self.spooled.nothing(owner) };
        held.place.set(1);
        let item = Arc::new(Item::new(entry, false, Some(held)));
        item.data().count_bytes();
        self.items().insert(item.file_name.clone(), item.clone());
        if is_unfinished {
            self.spawn(&item);
        }
        is_unfinished
    }

    /// Begins the task that brings a recording to its end.
    pub(crate) fn spawn(self: &Arc<Self>, item: &Arc<Item>) {
        self.spawn_in(item, &mut item.data());
    }

    /// The same, unless it is at work.
    pub(crate) fn spawn_if_idle(self: &Arc<Self>, item: &Arc<Item>) {
        let mut data = item.data();
        if data.task.as_ref().is_none_or(JoinHandle::is_finished) {
            self.spawn_in(item, &mut data);
        }
    }

    fn spawn_in(self: &Arc<Self>, item: &Arc<Item>, data: &mut Data) {
        let (core, item) = (self.clone(), item.clone());
        data.task = Some(tokio::spawn(async move {
            let run = AssertUnwindSafe(upload::run(&core, &item)).catch_unwind();
            if run.await.is_err() {
                let error = Error::new(Class::Panic, "the driver failed at this recording");
                upload::fail(&core, &item, &error).await;
            }
        }));
    }

    pub(crate) fn items(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Item>>> {
        self.items.lock()
    }

    /// A new recording in the list, under a name nobody had, that began at `started_ms` and takes `bytes` at once.
    ///
    /// # Errors
    /// `Internal`: there is no room for another one; `Remote`: the encoder made too many of late.
    pub(crate) fn enter(&self, order: &Order, started_ms: i64, bytes: u64) -> Result<Arc<Item>, Error> {
        let about = &order.about;
        let owner = Owner::new(about.account_id, about.destination_id);
        let bytes = self.spooled.try_take(owner, bytes).map_err(|_| no_room(SPOOL_FULL))?;
        let place = self.known.try_take(owner, 1).map_err(|_| no_room(TOO_MANY))?;
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
        // An encoder that changes its configuration all the time begins one each time.
        let most = self.limits.files_per_minute;
        if let Some(oldest) = young.iter().max().filter(|_| young.len() >= most) {
            return Err(too_often(most, MINUTE.saturating_sub(*oldest).max(Duration::from_secs(1))));
        }
        number = number.saturating_add(1);
        let mut name = names::file_name(&about.label, started_ms, &about.session_id, number);
        // Sessions whose ids differ only in letters that names do not have.
        while items.contains_key(&name) || self.path(&name).exists() {
            number = number.saturating_add(1);
            name = names::file_name(&about.label, started_ms, &about.session_id, number);
        }
        let mut entry = Entry::new(name.clone(), started_ms);
        entry.about.clone_from(about);
        entry.number = number;
        entry.retention_days = order.retention_days;
        entry.bucket = self.bucket(&order.own);
        let item = Arc::new(Item::new(entry, true, Some(Held { place, bytes })));
        items.insert(name, item.clone());
        Ok(item)
    }

    /// All recordings, in the order of their names.
    pub(crate) fn all(&self) -> Vec<Arc<Item>> {
        self.items().values().cloned().collect()
    }

    pub(crate) fn find(&self, file_name: &str) -> Option<Arc<Item>> {
        self.items().get(file_name).cloned()
    }

    /// All recordings, those of an earlier instance as its journal has them.
    ///
    /// # Errors
    /// `Internal` when that cannot be read.
    pub(crate) fn recordings(&self) -> Result<Vec<Recording>, Error> {
        let mut all: Vec<Recording> = self.all().iter().map(|item| self.listed(item)).collect();
        if !self.is_alone() {
            let entries = self.journal.load(false);
            let entries = entries.map_err(|error| {
                Error::internal(format!("the journal of recordings cannot be read: {error}"))
            })?;
            let theirs = entries.into_iter().filter(|entry| self.find(&entry.file_name).is_none());
            all.extend(theirs.map(|entry| self.listed(&Item::new(entry, false, None))));
        }
        Ok(all)
    }

    /// A recording as it is told, with a look at whether what a retry needs is there: somebody may have removed it by hand.
    fn listed(&self, item: &Item) -> Recording {
        let mut recording = item.data().recording();
        if recording.state == RecordingState::Failed && recording.has_copy {
            recording.has_copy = is_file(&self.path(&item.file_name));
        }
        recording
    }

    /// The spooled file of a recording.
    pub(crate) fn path(&self, file_name: &str) -> PathBuf {
        self.spool.join(format!("{}.mp4", stem(file_name)))
    }

    pub(crate) fn spool(&self) -> &Path {
        &self.spool
    }

    pub(crate) fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Changes a recording, makes that durable, and tells the host.
    ///
    /// # Errors
    /// `Internal` when the journal cannot be written; in memory the change holds.
    pub(crate) async fn change<R>(
        self: &Arc<Self>,
        item: &Arc<Item>,
        change: impl FnOnce(&mut Data) -> R,
    ) -> Result<R, Error> {
        let (outcome, recording) = {
            let mut data = item.data();
            let outcome = change(&mut data);
            (outcome, self.stamp(&mut data))
        };
        let saved = self.save(item).await;
        if saved.is_ok() {
            // Before anyone acts on it, who would tell of what comes next.
            self.tell(recording);
        }
        item.changed.notify_one();
        saved.map(|()| outcome)
    }

    /// Changes a recording in memory alone, and tells the host when `is_told`.
    pub(crate) fn touch(&self, item: &Item, is_told: bool, change: impl FnOnce(&mut Data)) {
        let recording = {
            let mut data = item.data();
            change(&mut data);
            if is_told { self.stamp(&mut data) } else { None }
        };
        self.tell(recording);
        item.changed.notify_one();
    }

    /// Every change has a time of its own, later than the one before, whatever the clock does. What is to be told is `None` for one that
    /// is deleted: who asked for that hears of it first, and should he not, the list tells.
    fn stamp(&self, data: &mut Data) -> Option<Recording> {
        data.count_bytes();
        data.entry.changed_at_ms = self.outside.now_ms().max(data.entry.changed_at_ms + 1);
        (!data.is_deleted()).then(|| data.recording())
    }

    fn tell(&self, recording: Option<Recording>) {
        if let Some(recording) = recording {
            self.outside.report(&recording);
        }
    }

    /// Makes what is known of a recording durable.
    ///
    /// # Errors
    /// `Internal` when the journal cannot be written.
    pub(crate) async fn save(self: &Arc<Self>, item: &Arc<Item>) -> Result<(), Error> {
        let (core, item) = (self.clone(), item.clone());
        blocking(move || {
            let _one_at_a_time = item.saving.lock();
            let (entry, is_gone) = {
                let data = item.data();
                (data.entry.clone(), data.is_gone)
            };
            if is_gone { Ok(()) } else { core.journal.save(&entry) }
        })
        .await
    }

    /// Tells that there never was anything of a recording that was told of; what is left of it is to be forgotten.
    pub(crate) fn withdraw(&self, item: &Item) {
        let told = {
            let mut data = item.data();
            data.entry.state = State::Gone { is_deleted: false };
            self.stamp(&mut data)
        };
        self.tell(told);
    }

    /// A recording is deleted: nothing of it is left here but a note, for some time, so that the host hears of it whatever happens to
    /// the word of who asked.
    ///
    /// # Errors
    /// `Internal` when the note cannot be written or the file not be removed.
    pub(crate) async fn bury(self: &Arc<Self>, item: &Arc<Item>) -> Result<(), Error> {
        {
            let mut data = item.data();
            data.before = None;
            let entry = &mut data.entry;
            (entry.bucket, entry.at_store) = (Bucket::Operators(None), None);
            entry.state = State::Gone { is_deleted: true };
            self.stamp(&mut data);
        }
        self.save(item).await?;
        self.remove_local(item).await
    }

    /// Forgets a recording: nothing of it is left here.
    ///
    /// # Errors
    /// `Internal` when a file cannot be removed.
    pub(crate) async fn forget(self: &Arc<Self>, item: &Arc<Item>) -> Result<(), Error> {
        {
            let mut data = item.data();
            (data.is_gone, data.held) = (true, None);
        }
        self.items().remove(&item.file_name);
        let (core, item) = (self.clone(), item.clone());
        blocking(move || {
            let _one_at_a_time = item.saving.lock();
            remove_if_there(&core.path(&item.file_name))?;
            core.journal.remove(&item.file_name)
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
}

/// A limit of which one owner may have three quarters: the last quarter is for the others.
fn shared(total: u64) -> Quota<Owner> {
    Quota::new(total, total - total / 4)
}

/// Runs file work beside the runtime.
///
/// # Errors
/// `Internal`, with what the system says.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Error> {
    let done = spawn_blocking(work).await;
    done.map_err(|error| Error::internal(format!("file work ended early: {error}")))?.map_err(disk_failed)
}

/// What the system says of the local disk.
pub(crate) fn disk_failed(error: io::Error) -> Error {
    Error::internal(format!("the local disk failed: {error}"))
}

/// The core, while the driver lives.
pub(crate) type WeakCore = Weak<Core>;

/// True when the file is there.
pub(crate) fn is_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file())
}
