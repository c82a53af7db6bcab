//! The published assets of one opening of a destination: assets by name, the entry for viewers, and the paths that
//! viewers may request.
//!
//! A look-up is one read lock and one shared pointer.

use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use satcast_plugin_api::{Asset, AssetBody, Error, Playback, SegmentPosition};
use satcast_quota::Permit;

use super::asset::{ByName, Handler, Published, memory_bytes, placed};
use super::budget::Budget;
use super::counted::counted;
use super::versions::{Coming, Versions, Waiter};

const CONTENT_TYPE_BYTES_MAX: usize = 128;

/// The driver's latest playback facts: where viewers enter and what they can see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaybackFacts {
    pub playback: Playback,
    /// Monotonic time until which this is valid; `None` when no player could start.
    pub fresh_until: Option<Duration>,
}

impl Deref for PlaybackFacts {
    type Target = Playback;

    fn deref(&self) -> &Playback {
        &self.playback
    }
}

#[derive(Debug, Default)]
pub struct Assets {
    by_name: Arc<ByName>,
    playback: Mutex<Option<Arc<PlaybackFacts>>>,
    handler: Mutex<Option<Arc<dyn Handler>>>,
    versions: Arc<Versions>,
    /// The account that the assets count for, and the budget that counts them with all others of the driver.
    charged: OnceLock<(Arc<Budget>, i64)>,
    /// Playlists stay as they are.
    is_continued: AtomicBool,
}

impl Assets {
    /// Publishes an asset under its name and replaces an earlier one; `folder` is the driver's data folder.
    ///
    /// # Errors
    /// An invalid media type, an open file, or a limit reached; the earlier asset stays.
    pub fn publish(&self, mut asset: Asset, folder: &Path) -> Result<(), Error> {
        let printable = asset.content_type.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if !printable || !(1..=CONTENT_TYPE_BYTES_MAX).contains(&asset.content_type.len()) {
            return Err(Error::internal(format!("asset {} has a malformed media type", asset.name)));
        }
        if matches!(asset.body, AssetBody::Open { .. }) {
            return Err(Error::internal(format!(
                "asset {} is an open file, which only answers may be",
                asset.name
            )));
        }
        let permit;
        (asset.body, permit) = self.counted(placed(asset.body, folder))?;
        let published = match permit {
            Some(permit) => Published::counted(asset, permit),
            None => Published::uncounted(asset),
        };
        if published.is_playlist() && self.is_continued.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (replaced, is_waited_for) = self.by_name.put(published)?;
        if is_waited_for {
            self.wake();
        }
        drop(replaced);
        Ok(())
    }

    /// The session goes on at another node: playlists stay as they are from now on, because the driver is about to end them, and a
    /// player that reads an end stops for good.
    pub fn continue_elsewhere(&self) {
        self.is_continued.store(true, Ordering::Relaxed);
    }

    /// Counts its assets with those of all openings of the driver.
    pub(crate) fn charge(&self, budget: &Arc<Budget>, account: i64) {
        self.charged.get_or_init(|| (budget.clone(), account));
    }

    /// The opening has ended: where others need memory, its assets go first.
    pub(crate) fn end(&self) {
        if let Some((budget, account)) = self.charged.get() {
            budget.ended(*account, &self.by_name);
        }
    }

    fn counted(&self, body: AssetBody) -> Result<(AssetBody, Option<Permit<i64>>), Error> {
        let Some((budget, account)) = self.charged.get() else { return Ok((body, None)) };
        Ok(match (budget.take(*account, memory_bytes(&body))?, body) {
            (Some(permit), AssetBody::Memory(bytes)) => (AssetBody::Memory(counted(permit, bytes)), None),
            (permit, body) => (body, permit),
        })
    }

    pub fn retract(&self, name: &str) {
        self.by_name.retract(name);
    }

    pub fn get(&self, name: &str) -> Option<Arc<Published>> {
        self.by_name.get(name)
    }

    /// The media segments by rising number, from `number` on, with their names.
    pub fn segments(&self, number: u64) -> Vec<(SegmentPosition, String)> {
        self.by_name.segments(number)
    }

    /// How many milliseconds players stay behind live, as the driver last said with a followed playlist; `None` when
    /// it has not.
    pub fn hold_back_ms(&self) -> Option<u32> {
        self.by_name.look_ahead(Coming::hold_back_ms)
    }

    /// How long a viewer may wait for the asset of that name, if it is announced as next; `None` when it is not.
    pub fn coming(&self, name: &str) -> Option<Duration> {
        self.by_name.look_ahead(|coming| coming.wait_of(name))
    }

    /// A slot for a waiting viewer; `None` when all are taken.
    pub fn wait(&self) -> Option<Waiter> {
        self.versions.enter()
    }

    /// Number of waiting viewers.
    pub fn waiting(&self) -> usize {
        self.versions.waiting()
    }

    /// Lets waiting viewers check again.
    pub fn wake(&self) {
        self.versions.wake();
    }

    /// The handler for requests that the driver answers itself; `None` when it answers none, or has ended.
    pub fn handler(&self) -> Option<Arc<dyn Handler>> {
        self.handler.lock().clone()
    }

    pub(crate) fn set_handler(&self, handler: Option<Arc<dyn Handler>>) {
        *self.handler.lock() = handler;
    }

    /// Takes the driver's playback facts at the monotonic time `now`.
    pub fn set_playback(&self, playback: Playback, now: Duration) {
        let fresh_until =
            (playback.fresh_ms > 0).then(|| now + Duration::from_millis(u64::from(playback.fresh_ms)));
        *self.playback.lock() = Some(Arc::new(PlaybackFacts { playback, fresh_until }));
    }

    /// The driver's latest facts.
    pub fn playback(&self) -> Option<Arc<PlaybackFacts>> {
        self.playback.lock().clone()
    }
}

#[cfg(test)]
mod tests;
