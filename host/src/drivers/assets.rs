//! What one opening of a destination has for viewers: pieces by name, where viewers enter, and where they may ask.
//!
//! Written by driver threads, read by every request of a viewer: a look-up is one read lock and one shared pointer.

pub(super) mod budget;
mod segments;

use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use parking_lot::{Mutex, RwLock};
use satcast_plugin_api::host::{Asset, AssetBody, Body, Followed, Playback};
use satcast_plugin_api::playback::PLAYLIST_TYPE;
use satcast_plugin_api::{Audience, Error};
use satcast_quota::Permit;

use self::budget::{Budget, counted};
use super::http::Door;
use super::versions::{Coming, Versions};

/// Most pieces of one opening: an hour of segments and its grace time, twice.
pub(super) const ASSETS_MAX: usize = 8192;
/// Most bytes of one opening's pieces in memory.
pub(super) const ASSET_MEMORY_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Longest media type in bytes.
const CONTENT_TYPE_BYTES_MAX: usize = 128;
/// Compression of playlists: four times the bytes of level 9 saved per microsecond (research on 1800 entries).
const GZIP_LEVEL: u32 = 4;

/// One published piece.
#[derive(Debug)]
pub struct Published {
    /// Media type; printable.
    pub content_type: String,
    /// Seconds a cache may keep it.
    pub max_age_secs: u32,
    /// Who may fetch it.
    pub audience: Audience,
    /// The bytes.
    pub body: PublishedBody,
    /// What is to be known of it by who follows the stream.
    pub followed: Followed,
    gzip: OnceLock<Option<Bytes>>,
    /// What counts for the names of its parts; bytes in memory have their own.
    _permit: Option<Permit<i64>>,
}

/// Where the bytes of a piece are.
#[derive(Debug)]
pub enum PublishedBody {
    /// In memory, shared with the driver.
    Memory(Bytes),
    /// In a file that stays as it is while this piece is held.
    File {
        /// Absolute path, below the driver's data folder.
        path: PathBuf,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Given back to the driver when the piece goes.
        keep: Body,
    },
    /// In an open file that does not get shorter.
    Open {
        /// The file.
        file: Arc<File>,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// In other pieces, one after the other.
    Parts(Vec<String>),
}

impl Published {
    /// A piece, or an answer of a driver, which is sent like one.
    pub(super) fn new(
        content_type: String,
        max_age_secs: u32,
        audience: Audience,
        body: PublishedBody,
    ) -> Self {
        let followed = Followed::default();
        Self { content_type, max_age_secs, audience, body, followed, gzip: OnceLock::new(), _permit: None }
    }

    /// It is a playlist.
    pub fn is_playlist(&self) -> bool {
        self.content_type == PLAYLIST_TYPE
    }

    /// The gzip form of a playlist, made by the first who asks. `None` for anything else, and when it is not smaller.
    pub fn gzip(&self) -> Option<Bytes> {
        self.gzip.get_or_init(|| self.compress()).clone()
    }

    fn compress(&self) -> Option<Bytes> {
        let PublishedBody::Memory(bytes) = &self.body else { return None };
        if !self.is_playlist() {
            return None;
        }
        let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::new(GZIP_LEVEL));
        encoder.write_all(bytes).ok()?;
        let packed = encoder.finish().ok()?;
        (packed.len() < bytes.len()).then(|| Bytes::from(packed))
    }

    fn memory_bytes(&self) -> u64 {
        self.body.memory_bytes()
    }
}

impl PublishedBody {
    fn memory_bytes(&self) -> u64 {
        match self {
            PublishedBody::Memory(bytes) => bytes.len() as u64,
            PublishedBody::Parts(names) => {
                names.iter().map(|name| (name.len() + size_of::<String>()) as u64).sum()
            }
            PublishedBody::File { .. } | PublishedBody::Open { .. } => 0,
        }
    }

    /// A driver's body, with its file below `folder`.
    pub(super) fn of(body: AssetBody, folder: &Path) -> Self {
        match body {
            AssetBody::Memory(body) => PublishedBody::Memory(Bytes::from_owner(body)),
            AssetBody::File { path, offset, len, keep } => {
                PublishedBody::File { path: folder.join(path), offset, len, keep }
            }
            AssetBody::Parts(names) => PublishedBody::Parts(names),
        }
    }
}

/// Where viewers enter and what they can see, as the driver said last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaybackFacts {
    /// Playlist that viewers with a key get first.
    pub entry: String,
    /// The same for viewers of the preview.
    pub preview: Option<String>,
    /// Wall time of the oldest media listed, in milliseconds since 1970.
    pub first_ms: i64,
    /// Media listed, in milliseconds.
    pub window_ms: u64,
    /// Longest window as configured, in milliseconds; 0 = no rewind.
    pub window_max_ms: u64,
    /// Monotonic time until which this counts; `None` when no player could start.
    pub fresh_until: Option<Duration>,
    /// No more will come.
    pub ended: bool,
}

/// The pieces of one opening of a destination.
#[derive(Debug, Default)]
pub struct Assets {
    pieces: RwLock<Pieces>,
    playback: Mutex<Option<Arc<PlaybackFacts>>>,
    door: Mutex<Option<Arc<Door>>>,
    versions: Versions,
    /// Whose they are, and what counts them with all others of the driver.
    charged: OnceLock<(Arc<Budget>, i64)>,
}

#[derive(Debug, Default)]
struct Pieces {
    by_name: HashMap<String, Arc<Published>>,
    memory_bytes: u64,
    coming: Coming,
}

impl Assets {
    /// Puts a piece under its name, in place of an earlier one; `folder` is the driver's data folder.
    ///
    /// # Errors
    /// A media type that no header can carry, or a limit reached; the earlier piece stays.
    pub fn publish(&self, asset: Asset, folder: &Path) -> Result<(), Error> {
        let printable = asset.content_type.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if !printable || !(1..=CONTENT_TYPE_BYTES_MAX).contains(&asset.content_type.len()) {
            return Err(Error::internal(format!("asset {} has a malformed media type", asset.name)));
        }
        let (body, permit) = self.counted(PublishedBody::of(asset.body, folder))?;
        let mut piece = Published::new(asset.content_type, asset.max_age_secs, asset.audience, body);
        piece.followed = asset.followed;
        piece._permit = permit;
        let (replaced, is_waited_for) = self.put(asset.name, piece)?;
        if is_waited_for {
            self.wake();
        }
        // Foreign code runs when the bytes go: not under the lock.
        drop(replaced);
        Ok(())
    }

    /// Counts its pieces with those of all openings of the driver.
    pub(super) fn charge(&self, budget: &Arc<Budget>, account: i64) {
        self.charged.get_or_init(|| (budget.clone(), account));
    }

    fn counted(&self, body: PublishedBody) -> Result<(PublishedBody, Option<Permit<i64>>), Error> {
        let Some((budget, account)) = self.charged.get() else { return Ok((body, None)) };
        Ok(match (budget.take(*account, body.memory_bytes())?, body) {
            (Some(permit), PublishedBody::Memory(bytes)) => {
                (PublishedBody::Memory(counted(permit, bytes)), None)
            }
            (permit, body) => (body, permit),
        })
    }

    /// Takes away all that is in memory: it has ended, and others need the room.
    fn give_up_memory(&self) {
        let mut pieces = self.pieces.write();
        let gone: Vec<_> = pieces.by_name.extract_if(|_, piece| piece.memory_bytes() > 0).collect();
        pieces.memory_bytes = 0;
        gone.iter().for_each(|(name, _)| pieces.coming.retracted(name));
        drop(pieces);
        // Foreign code may run when bytes go: not under the lock.
        drop(gone);
    }

    /// Gives the piece it stands in place of, and whether somebody may wait for it.
    fn put(&self, name: String, piece: Published) -> Result<(Option<Arc<Published>>, bool), Error> {
        let size = piece.memory_bytes();
        let mut pieces = self.pieces.write();
        let earlier = pieces.by_name.get(&name);
        if earlier.is_none() && pieces.by_name.len() >= ASSETS_MAX {
            return Err(Error::internal(format!("more than {ASSETS_MAX} assets; retract old ones")));
        }
        let others = pieces.memory_bytes - earlier.map_or(0, |piece| piece.memory_bytes());
        if size > 0 && others + size > ASSET_MEMORY_BYTES_MAX {
            return Err(Error::internal(format!(
                "more than {ASSET_MEMORY_BYTES_MAX} bytes of assets in memory; retract old ones"
            )));
        }
        pieces.memory_bytes = others + size;
        let is_waited_for = pieces.coming.published(&name, &piece.followed);
        Ok((pieces.by_name.insert(name, Arc::new(piece)), is_waited_for))
    }

    /// Takes a piece away.
    pub fn retract(&self, name: &str) {
        let mut pieces = self.pieces.write();
        let removed = pieces.by_name.remove(name);
        pieces.memory_bytes -= removed.as_ref().map_or(0, |piece| piece.memory_bytes());
        pieces.coming.retracted(name);
        drop(pieces);
        // Foreign code runs when the bytes go: not under the lock.
        drop(removed);
    }

    /// The piece of that name.
    pub fn get(&self, name: &str) -> Option<Arc<Published>> {
        self.pieces.read().by_name.get(name).cloned()
    }

    pub(super) fn versions(&self) -> &Versions {
        &self.versions
    }

    pub(super) fn look_ahead<T>(&self, look: impl FnOnce(&Coming) -> T) -> T {
        look(&self.pieces.read().coming)
    }

    /// Where requests go that the driver answers itself; `None` when it does not, or any more.
    pub fn door(&self) -> Option<Arc<Door>> {
        self.door.lock().clone()
    }

    pub(super) fn set_door(&self, door: Option<Door>) {
        *self.door.lock() = door.map(Arc::new);
    }

    /// Takes what the driver says at the monotonic time `now`.
    pub fn set_playback(&self, told: Playback, now: Duration) {
        let facts = PlaybackFacts {
            entry: told.entry,
            preview: told.preview,
            first_ms: told.first_ms,
            window_ms: told.window_ms,
            window_max_ms: told.window_max_ms,
            fresh_until: (told.fresh_ms > 0).then(|| now + Duration::from_millis(u64::from(told.fresh_ms))),
            ended: told.ended,
        };
        *self.playback.lock() = Some(Arc::new(facts));
    }

    /// What the driver said last.
    pub fn playback(&self) -> Option<Arc<PlaybackFacts>> {
        self.playback.lock().clone()
    }
}

#[cfg(test)]
mod tests;
