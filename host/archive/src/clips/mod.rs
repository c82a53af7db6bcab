//! Clips: cuts a part of a stream into a file, and gives the file to the driver that keeps the stream's recordings.
//!
//! The media is in a DVR window ([`window`]) or in a recording ([`recorded`]), which is copied before it is cut ([`file`]).
//! The row of a clip is written first, then the file, then the driver takes it over: from then on the clip is a recording
//! that is uploaded, and [`mirror`](super::mirror) makes it ready. A clip that this process does not make, and that no
//! driver has, was interrupted and fails.

mod file;
mod recorded;
mod window;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use satcast_plugin_api::recording::{FinishedFile, KEEP_SECS};
use satcast_plugin_api::{Class, Error};
use serde_json::Value;

use super::account::{Archive, Asking, DELETE_LIMIT, DeleteError};
use super::mirror::ASKED_MAX;
use satcast_core::ids::{AccountId, UnixMillis};
use satcast_drivers::RecordingsError;
use satcast_store::{Actor, ClipRecord, ClipState, MakingClip, StoreError};

use self::file::{HeldSegments, Source, Written};
use self::window::PlannedSource;
pub use self::window::{CLIP_SECS_MAX, ClipPlan, ClipRange, NoClip};

/// Most clips that are cut or wait for it; each holds its segments.
pub const CLIPS_WAITING_MAX: usize = 200;
/// Longest wait for a driver to take a file over. It reads the whole file for its checksums.
const KEEP_LIMIT: Duration = Duration::from_secs(KEEP_SECS + 5);
/// Tries to give a file to a driver that does not answer, and the wait between two.
const KEEP_TRIES_MAX: u32 = 5;
const KEEP_PAUSE: Duration = Duration::from_secs(2);
/// Time between looks whether a clip was deleted, while its media is copied.
const WANTED_EVERY: Duration = Duration::from_secs(2);
/// Most files of deleted and failed clips that are removed at a time.
const DISCARDED_AT_ONCE: usize = 8;
/// Folder below that of the driver.
const FOLDER: &str = "clips";
/// Error of a clip that its process did not finish.
const INTERRUPTED: &str = "the service ended while the clip was made; make the clip again";
const DELETED: &str = "the clip was deleted";

/// A clip to be made. Not for `Debug`: the configuration holds secrets.
pub struct ClipOrder {
    pub id: i64,
    pub account: AccountId,
    /// The driver that keeps it, and the type and configuration of the destination for which.
    pub driver: String,
    pub kind: String,
    pub config: Value,
    /// Its name, destination and session; path, start and duration follow from the file.
    pub file: FinishedFile,
}

/// The right to make a clip of this name. While it is held, no look at the driver takes the clip for interrupted.
pub struct ClipSlot {
    archive: Archive,
    name: String,
}

impl Drop for ClipSlot {
    fn drop(&mut self) {
        self.archive.inner.making.names.lock().remove(&self.name);
    }
}

impl Archive {
    /// A slot for a new clip, to be taken before its row is written; `None` when [`CLIPS_WAITING_MAX`] wait.
    pub fn clip_slot(&self, file_name: &str) -> Option<ClipSlot> {
        let mut names = self.inner.making.names.lock();
        if names.len() >= CLIPS_WAITING_MAX {
            return None;
        }
        names.insert(file_name.to_owned());
        Some(ClipSlot { archive: self.clone(), name: file_name.to_owned() })
    }

    /// Makes a clip whose row exists. Does not wait: a failure is in its row.
    pub fn make_clip(&self, slot: ClipSlot, order: ClipOrder, plan: ClipPlan) {
        let archive = self.clone();
        tokio::spawn(async move {
            if let Err(error) = archive.make(&order, plan).await {
                tracing::warn!(clip = order.id, %error, "a clip was not made");
                archive.give_up(order.id, &error.message).await;
            }
            // Before the slot is free: a clip without a slot and without a report was interrupted.
            archive.save_reports().await;
            drop(slot);
        });
    }

    async fn make(&self, order: &ClipOrder, plan: ClipPlan) -> Result<(), Error> {
        let folder = self.clips_folder(&order.driver)?;
        let paths = Paths::of(&folder, order.id);
        let cut = self.cut(order, plan, &paths).await;
        let given = match cut {
            Ok(written) => self.give(order, &written, &paths).await,
            Err(error) => Err(error),
        };
        // The driver has moved it when it took it over.
        paths.remove();
        given
    }

    /// Writes the file of a clip.
    async fn cut(&self, order: &ClipOrder, plan: ClipPlan, paths: &Paths) -> Result<Written, Error> {
        let (making, range) = (&self.inner.making, (plan.from_ms, plan.to_ms));
        // A copy is on the disk until the clip is cut.
        let (_copy, held) = match plan.source {
            PlannedSource::Window(held) => (None, Held::Window(held)),
            PlannedSource::Recording(media) => {
                let permit = making.copies.take(order.account, 1).await;
                self.check_wanted(order.id).await?;
                let path = file::copied(&paths.whole);
                // A deleted clip leaves its place, also while its store is down.
                let copied = tokio::select! {
                    copied = media.copy(&self.inner.drivers, range, path) => copied?,
                    deleted = self.until_deleted(order.id) => return Err(deleted),
                };
                (Some(permit), Held::Copy(copied))
            }
        };
        let _permit = making.at_once.take(order.account, 1).await;
        self.check_wanted(order.id).await?;
        let target = paths.whole.clone();
        let cut = tokio::task::spawn_blocking(move || match held {
            Held::Window(held) => file::write(&Source::of_window(&held)?, range, &target),
            Held::Copy(source) => file::write(&source, range, &target),
        });
        cut.await.unwrap_or_else(|_| Err(Error::internal("the making of the clip was interrupted")))
    }

    /// Gives a file to its driver.
    async fn give(&self, order: &ClipOrder, written: &Written, paths: &Paths) -> Result<(), Error> {
        self.check_wanted(order.id).await?;
        let file = FinishedFile {
            path: format!("{FOLDER}/{}", paths.name),
            started_at_ms: written.started_at_ms,
            duration_ms: written.duration_ms,
            audio_only: written.audio_only,
            ..order.file.clone()
        };
        let mut tries = 0;
        loop {
            let (kind, config) = (&order.kind, &order.config);
            let kept = self.inner.drivers.keep_file(&order.driver, kind, config, &file, KEEP_LIMIT).await;
            tries += 1;
            match kept {
                Ok(()) => {
                    tracing::info!(clip = order.id, bytes = written.bytes, "a clip was made and is uploaded");
                    return Ok(());
                }
                Err(RecordingsError::Refused(error)) => return Err(error),
                // A repeat is harmless: the driver knows the name.
                Err(RecordingsError::Unavailable(why)) if tries >= KEEP_TRIES_MAX => {
                    return Err(Error::new(Class::Internal, why));
                }
                Err(RecordingsError::Unavailable(_)) => tokio::time::sleep(KEEP_PAUSE).await,
            }
        }
    }

    async fn check_wanted(&self, clip: i64) -> Result<(), Error> {
        match self.inner.store.is_clip_wanted(clip).await {
            Ok(false) => Err(Error::config(DELETED)),
            // The database may be away for a moment, and the row is checked again later.
            Ok(true) | Err(_) => Ok(()),
        }
    }

    /// Returns the error of [`Archive::check_wanted`] once there is one.
    async fn until_deleted(&self, clip: i64) -> Error {
        loop {
            tokio::time::sleep(WANTED_EVERY).await;
            if let Err(deleted) = self.check_wanted(clip).await {
                return deleted;
            }
        }
    }

    async fn give_up(&self, clip: i64, why: &str) {
        if let Err(error) = self.inner.store.fail_clip(clip, why, self.inner.clock.now()).await {
            // The next look at its driver finds it.
            tracing::error!(clip, %error, "the failure of a clip was not saved");
        }
    }

    fn clips_folder(&self, driver: &str) -> Result<PathBuf, Error> {
        let folder =
            self.inner.drivers.data_dir(driver).map_err(|error| Error::internal(error.to_string()))?;
        Ok(folder.join(FOLDER))
    }

    /// Replaces the locations of ready clips with addresses that need no login for [`SIGNED_FOR`](super::account::SIGNED_FOR).
    pub async fn sign_clips(&self, clips: &mut [ClipRecord]) {
        let ready = clips.iter_mut().filter(|clip| clip.state == ClipState::Ready);
        let (mut files, mut of) = (Vec::new(), Vec::new());
        for clip in ready {
            let Some(archive) = clip.archive else { continue };
            if let Ok(Some(file)) = self.inner.store.clip_archive(archive).await {
                files.push(file);
                of.push(clip);
            }
        }
        self.sign(&mut files).await;
        for (clip, file) in of.into_iter().zip(files) {
            clip.url = file.report.url;
        }
    }

    /// Deletes a clip, with its file if it has one; with `remote`, the object at the store first.
    ///
    /// # Errors
    /// The driver or the store failed, and the clip is still there; or the database failed.
    pub async fn delete_clip(
        &self,
        actor: &Actor,
        clip: &ClipRecord,
        remote: bool,
    ) -> Result<(), DeleteError> {
        let file = match clip.archive {
            Some(archive) => self.inner.store.clip_archive(archive).await?,
            None => None,
        };
        if let Some(file) = file {
            self.delete(actor, &file, remote).await?;
            // That has hidden the clip, too.
            return Ok(());
        }
        Ok(self.inner.store.delete_clip(actor, clip.id).await?)
    }

    /// After a list of a driver: fails the clips that were interrupted, and begins to remove the files of clips that were
    /// deleted or have failed. `names`: all that it has; `None` if the list is not whole.
    pub(super) async fn settle_clips(
        &self,
        driver: &str,
        names: Option<&HashSet<String>>,
    ) -> Result<(), StoreError> {
        let store = &self.inner.store;
        if let Some(names) = names {
            for clip in store.unreported_clips(driver).await? {
                if !names.contains(&clip.file_name) {
                    self.fail_interrupted(&clip).await?;
                }
            }
            self.sweep(driver);
        }
        let discarded = store.discarded_clips(driver).await?;
        // A store that does not answer must not hold up the reports of others, nor may rounds pile up.
        if let (false, Ok(one)) =
            (discarded.is_empty(), self.inner.making.discarding.clone().try_lock_owned())
        {
            let (archive, driver) = (self.clone(), driver.to_owned());
            tokio::spawn(async move {
                let _one_round = one;
                stream::iter(discarded)
                    .for_each_concurrent(DISCARDED_AT_ONCE, |id| archive.discard(&driver, id))
                    .await;
            });
        }
        Ok(())
    }

    async fn discard(&self, driver: &str, id: i64) {
        let discarded = async {
            let Some(file) = self.inner.store.clip_archive(id).await? else { return Ok(()) };
            let Some(_asking) = Asking::begin(self, id) else { return Ok(()) };
            let (name, wait) = (&file.report.file_name, DELETE_LIMIT);
            self.inner.drivers.delete_recording(driver, name, true, wait).await?;
            Ok(self.inner.store.forget_clip_file(id, self.inner.clock.now()).await?)
        };
        let discarded: Result<(), DeleteError> = discarded.await;
        if let Err(error) = discarded {
            tracing::debug!(driver, archive = id, %error, "the file of a clip cannot be removed; it is tried again");
        }
    }

    /// Fails clips of drivers that are not loaded or cannot list, after the time that a paid retry has.
    pub(super) async fn end_unreported_clips(&self) -> Result<(), StoreError> {
        let limit = i64::try_from(ASKED_MAX.as_millis()).unwrap_or(i64::MAX);
        let before = UnixMillis(self.inner.clock.now().0.saturating_sub(limit));
        for clip in self.inner.store.unreported_clips_before(before).await? {
            self.fail_interrupted(&clip).await?;
        }
        Ok(())
    }

    async fn fail_interrupted(&self, clip: &MakingClip) -> Result<(), StoreError> {
        if self.inner.making.names.lock().contains(&clip.file_name) {
            return Ok(());
        }
        if self.inner.store.fail_interrupted_clip(clip.id, INTERRUPTED, self.inner.clock.now()).await? {
            tracing::warn!(clip = clip.id, "a clip was interrupted");
        }
        Ok(())
    }

    /// Removes what interrupted clips have left, while no clip is made. The driver has moved the files that it took over.
    fn sweep(&self, driver: &str) {
        // Held, so that no clip begins meanwhile.
        let names = self.inner.making.names.lock();
        let Ok(folder) = self.clips_folder(driver) else { return };
        let Ok(left) = std::fs::read_dir(folder) else { return };
        if names.is_empty() {
            left.flatten().for_each(|file| remove(&file.path()));
        }
    }
}

/// Media that is ready to be cut.
enum Held {
    Window(HeldSegments),
    Copy(Source),
}

/// Where a clip is written.
struct Paths {
    name: String,
    whole: PathBuf,
}

impl Paths {
    fn of(folder: &Path, clip: i64) -> Self {
        let name = format!("{clip}.mp4");
        Self { whole: folder.join(&name), name }
    }

    /// Removes what is left of it; files that are not there are no error.
    fn remove(&self) {
        let paths = [&self.whole, &file::part(&self.whole), &file::copied(&self.whole)];
        paths.into_iter().for_each(|path| remove(path));
    }
}

fn remove(path: &Path) {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(file = %path.display(), %error, "the file of a clip cannot be removed");
        }
        _ => {}
    }
}
