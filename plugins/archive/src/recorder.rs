//! Records one opening of a destination: packets in, spooled files out. It knows no store.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Arc;

use bytes::Bytes;
use satcast_media::Packet;
use satcast_plugin_api::Error;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::config::Own;
use crate::core::Core;
use crate::crc::Growing;
use crate::cut::{CutEvent, Cutter};
use crate::disk::{blocking, remove_if_there, sync_folder};
use crate::entry::Entry;
use crate::full::{check_disk, stopped};
use crate::index::Following;
use crate::limits::TRACK_REFUSALS_LOGGED_MAX;
use crate::parts;
use crate::rules::Rules;
use crate::table::Item;
use crate::upload;
use satcast_plugin_api::driver::About;

/// Most media that may have come before a file begins: a GOP, in nanoseconds.
const HELD_NANOS_MAX: i64 = 30_000_000_000;

/// Owner and destination of a recording.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub(crate) about: About,
    pub(crate) own: Own,
    pub(crate) rules: Rules,
}

#[derive(Debug)]
pub(crate) struct Recorder {
    core: Arc<Core>,
    order: Order,
    cutter: Cutter,
    open: Option<Open>,
    refusals: u32,
    spooled: u64,
    /// The packets are backfill, from before the destination.
    is_backfill: bool,
    /// Newest decode time of the packets, in nanoseconds.
    newest_ns: i64,
}

impl Recorder {
    pub(crate) fn new(core: Arc<Core>, order: Order) -> Self {
        Recorder {
            core,
            order,
            cutter: Cutter::default(),
            open: None,
            refusals: 0,
            spooled: 0,
            is_backfill: false,
            newest_ns: i64::MIN,
        }
    }

    /// Payload bytes that are not written yet.
    pub(crate) fn held_bytes(&self) -> usize {
        self.cutter.held_bytes()
    }

    /// Bytes written so far.
    pub(crate) fn spooled(&self) -> u64 {
        self.spooled
    }

    pub(crate) fn gap(&mut self) {
        self.cutter.gap();
    }

    pub(crate) fn push(&mut self, packet: Packet) {
        self.newest_ns = self.newest_ns.max(packet.dts_ns);
        self.cutter.push(packet);
    }

    /// Sets whether the following packets are backfill.
    pub(crate) fn set_backfill(&mut self, is_backfill: bool) {
        self.is_backfill = is_backfill;
    }

    /// No packets came for a while.
    pub(crate) fn flush(&mut self) {
        self.cutter.flush();
    }

    /// Writes all complete fragments.
    ///
    /// # Errors
    /// `Internal`: no space, or the disk failed. The recording so far is closed and will be uploaded; recording may
    /// start again.
    pub(crate) async fn write(&mut self) -> Result<(), Error> {
        let outcome = self.write_events().await;
        if outcome.is_err() {
            self.cutter.abandon();
            self.close().await;
        }
        outcome
    }

    /// Writes and closes everything that was taken.
    ///
    /// # Errors
    /// As [`Recorder::write`].
    pub(crate) async fn finish(&mut self) -> Result<(), Error> {
        self.cutter.finish();
        let outcome = self.write().await;
        self.close().await;
        tracing::debug!(dropped = self.cutter.dropped(), bytes = self.spooled, "recording ended");
        outcome
    }

    async fn write_events(&mut self) -> Result<(), Error> {
        while let Some(event) = self.cutter.poll() {
            match event {
                CutEvent::Begin { init, base_ns, audio_only } => {
                    self.close().await;
                    let length = init.len() as u64;
                    self.open = Some(self.begin(init, base_ns, audio_only).await?);
                    self.spooled += length;
                }
                CutEvent::Fragment { bytes, end_ns } => {
                    let Some(open) = &mut self.open else { continue };
                    let length = bytes.len() as u64;
                    let limits = &self.core.limits;
                    open.append(&self.core, bytes, end_ns).await?;
                    self.spooled += length;
                    if open.bytes >= limits.file_bytes || end_ns >= limits.file_ns {
                        self.cutter.roll();
                    }
                }
                CutEvent::TrackRefused(kind, error) => {
                    self.refusals += 1;
                    if self.refusals <= TRACK_REFUSALS_LOGGED_MAX {
                        tracing::warn!(?kind, %error, "a track cannot be recorded, because its codec configuration is not usable");
                    }
                }
            }
        }
        Ok(())
    }

    /// Begins a file in its own task: the caller may be dropped at any moment, and the file is closed then.
    async fn begin(&self, init: Bytes, base_ns: i64, audio_only: bool) -> Result<Open, Error> {
        let (core, order) = (self.core.clone(), self.order.clone());
        let mut entry = Entry::new(String::new(), self.started_ms(base_ns));
        entry.audio_only = audio_only;
        let begun = tokio::spawn(async move { Open::begin(&core, &order, entry, init).await });
        begun.await.map_err(|_| Error::internal("the start of a recording was interrupted"))?
    }

    /// Wall time of the start of a file that begins at `base_ns`: the newest packet came now. For backfill a time on the
    /// session's timeline.
    fn started_ms(&self, base_ns: i64) -> i64 {
        let (now_ms, session_ms) = (self.core.outside.now_ms(), self.order.about.session_started_ms);
        if !self.is_backfill || session_ms == 0 {
            let held_ms = self.newest_ns.saturating_sub(base_ns).clamp(0, HELD_NANOS_MAX) / 1_000_000;
            return now_ms.saturating_sub(held_ms);
        }
        session_ms.saturating_add(base_ns / 1_000_000).min(now_ms)
    }

    async fn close(&mut self) {
        if let Some(open) = self.open.take() {
            open.close(&self.core).await;
        }
    }
}

/// The file that is written.
#[derive(Debug)]
struct Open {
    item: Arc<Item>,
    file: Arc<File>,
    bytes: u64,
    crcs: Growing,
    index: Following,
    duration_ms: u64,
    syncing: Option<JoinHandle<()>>,
    synced: Instant,
    reported: Option<Instant>,
}

impl Open {
    /// Creates a new file with its journal entry, and starts its upload task.
    async fn begin(core: &Arc<Core>, order: &Order, mut entry: Entry, init: Bytes) -> Result<Self, Error> {
        entry.about.clone_from(&order.about);
        entry.set_rules(order.rules);
        entry.bucket = core.bucket(&order.own);
        let mut crcs = Growing::default();
        entry.crcs = crcs.add(&init);
        let item = core.table.enter(entry, init.len() as u64)?;
        let (task_core, entered) = (core.clone(), item.clone());
        let (path, index) = (core.table.path(&item.file_name), core.table.index_path(&item.file_name));
        let made = blocking(move || {
            check_disk(task_core.table.spool(), task_core.limits.free_min, init.len() as u64)?;
            // The journal entry comes before the file, so that no file is without one.
            task_core.table.save_now(&entered)?;
            let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
            let written = file.and_then(|file| {
                task_core.outside.write_at(&file, &init, 0)?;
                sync_folder(task_core.table.spool())?;
                Ok((file, init.len() as u64, Following::begin(&index, &init)))
            });
            if written.is_err() {
                let _ = remove_if_there(&path);
            }
            written
        });
        match made.await {
            Ok((file, bytes, index)) => {
                tracing::info!(recording = item.file_name, "recording begins");
                upload::spawn(core, &item);
                let synced = Instant::now();
                Ok(Open {
                    item,
                    file: Arc::new(file),
                    bytes,
                    crcs,
                    index,
                    duration_ms: 0,
                    syncing: None,
                    synced,
                    reported: None,
                })
            }
            Err(error) => {
                let _ = core.table.forget(&item).await;
                Err(stopped(&error.message))
            }
        }
    }

    async fn append(&mut self, core: &Arc<Core>, bytes: Bytes, end_ns: i64) -> Result<(), Error> {
        let (at, end) = (self.bytes, self.bytes + bytes.len() as u64);
        if parts::part(parts::PARTS_MAX - 1).is_none_or(|last| end > last.offset) {
            return Err(Error::internal(
                "a recording without keyframes grew too large for a store; another file begins",
            ));
        }
        self.item.reserve(end)?;
        let (task_core, file) = (core.clone(), self.file.clone());
        let (mut crcs, mut index) = (self.crcs.clone(), self.index.clone());
        let written = blocking(move || {
            check_disk(task_core.table.spool(), task_core.limits.free_min, bytes.len() as u64)?;
            task_core.outside.write_at(&file, &bytes, at)?;
            // Before the bytes count as written: a viewer who sees them finds them in the index.
            index.add(&bytes);
            let completed = crcs.add(&bytes);
            Ok((crcs, completed, index))
        });
        let (crcs, completed, index) = written.await.map_err(|error| stopped(&error.message))?;
        (self.bytes, self.crcs, self.index) = (end, crcs, index);
        self.duration_ms = u64::try_from(end_ns / 1_000_000).unwrap_or(0);
        let is_reported = self.reported.is_none_or(|reported| reported.elapsed() >= core.limits.report_every);
        if is_reported {
            self.reported = Some(Instant::now());
        }
        core.table.touch(&self.item, is_reported, |data| {
            data.entry.bytes = end;
            data.entry.crcs.extend(completed);
            data.entry.duration_ms = self.duration_ms;
        });
        self.sync(core);
        Ok(())
    }

    /// Syncs written media now and then, beside the writing.
    fn sync(&mut self, core: &Core) {
        let is_free = self.syncing.as_ref().is_none_or(JoinHandle::is_finished);
        if !is_free || self.synced.elapsed() < core.limits.sync_every {
            return;
        }
        self.synced = Instant::now();
        let file = self.file.clone();
        self.syncing = Some(tokio::task::spawn_blocking(move || {
            if let Err(error) = file.sync_data() {
                tracing::warn!(%error, "a recording cannot be synced to the disk");
            }
        }));
    }

    async fn close(self, core: &Arc<Core>) {
        let (file, bytes, index) = (self.file.clone(), self.bytes, self.index.clone());
        // A failed write may have left half a fragment behind the valid end.
        let synced = blocking(move || {
            index.finish();
            file.set_len(bytes)?;
            file.sync_all()
        });
        if let Err(error) = synced.await {
            tracing::warn!(recording = self.item.file_name, %error, "the end of a recording could not be synced and may be lost in a crash");
        }
        let closed = core.table.change(&self.item, |data| {
            data.is_live = false;
            data.entry.crcs.extend(self.crcs.last());
            data.entry.close();
        });
        if let Err(error) = closed.await {
            tracing::warn!(recording = self.item.file_name, %error, "the journal of a recording cannot be written");
        }
        tracing::info!(recording = self.item.file_name, bytes = self.bytes, "recording closed");
        upload::spawn_if_idle(core, &self.item);
    }
}

impl Drop for Open {
    /// The recorder was dropped: continue as after a crash.
    fn drop(&mut self) {
        self.item.left();
    }
}
