//! One asset and its bytes, the assets of one opening by name, and requests of viewers that a driver answers itself.

use std::collections::HashMap;
use std::fmt::Debug;
use std::io::Write as _;
use std::ops::Deref;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use parking_lot::RwLock;
use satcast_plugin_api::http::{IN_FLIGHT_MAX, REQUEST_TEXT_BYTES_MAX};
use satcast_plugin_api::playback::PLAYLIST_TYPE;
use satcast_plugin_api::{Asset, AssetBody, Error, HttpRequest, SegmentPosition};
use satcast_quota::{Key, Permit};

use super::cache::Slot;
use super::versions::Coming;

/// Compression of playlists: saves four times as many bytes per microsecond as level 9 (research on 1800 entries).
const GZIP_LEVEL: u32 = 4;

/// Most assets of one opening: an hour of segments and its grace time, twice.
pub(super) const ASSETS_MAX: usize = 8192;
const ASSET_MEMORY_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// The live edge of a playlist, as its reader finds it in the text.
#[derive(Debug, Default)]
pub struct Edge {
    /// The first playlist that it lists; `None` for a playlist of segments.
    pub playlist: Option<String>,
    /// The newest segment.
    pub segment: Option<String>,
    /// The init segment of the newest segment.
    pub init: Option<String>,
    /// Wall time of the end of the newest media, in milliseconds since 1970.
    pub end_ms: Option<i64>,
    /// Distance from the end that players keep, in milliseconds.
    pub distance_ms: Option<i64>,
}

/// A published asset, or an answer of a driver, which is sent like one.
#[derive(Debug)]
pub struct Published {
    /// Its media type is printable.
    asset: Asset,
    gzip: OnceLock<Option<Bytes>>,
    edge: OnceLock<Option<Edge>>,
    /// Of a file.
    slot: Option<Arc<Slot>>,
    /// Counts the memory of its part names, or its file; bytes in memory have a permit of their own.
    _permit: Option<Box<dyn Debug + Send + Sync>>,
}

impl Deref for Published {
    type Target = Asset;

    fn deref(&self) -> &Asset {
        &self.asset
    }
}

impl Published {
    /// An asset that counts in a quota until it is dropped.
    pub fn counted<K: Key + Send + Sync + 'static>(asset: Asset, permit: Permit<K>) -> Self {
        Self { _permit: Some(Box::new(permit)), ..Self::uncounted(asset) }
    }

    /// An asset of the host itself, which no driver's budget counts.
    pub fn uncounted(asset: Asset) -> Self {
        let slot = matches!(asset.body, AssetBody::File { .. }).then(Arc::default);
        Self { asset, gzip: OnceLock::new(), edge: OnceLock::new(), slot, _permit: None }
    }

    /// The place of a file in the [cache](super::Cache); `None` for anything else.
    pub fn slot(&self) -> Option<&Arc<Slot>> {
        self.slot.as_ref()
    }

    pub fn is_playlist(&self) -> bool {
        self.content_type == PLAYLIST_TYPE
    }

    /// The gzip form of a playlist, made at the first request. `None` for anything else, and when it is not smaller.
    pub fn gzip(&self) -> Option<Bytes> {
        self.gzip.get_or_init(|| self.compress()).clone()
    }

    /// The live edge of a playlist in memory, which `read` finds at the first request. `None` for anything else.
    pub fn edge(&self, read: impl FnOnce(&str) -> Edge) -> Option<&Edge> {
        let edge = self.edge.get_or_init(|| match &self.body {
            AssetBody::Memory(bytes) if self.is_playlist() => std::str::from_utf8(bytes).ok().map(read),
            _ => None,
        });
        edge.as_ref()
    }

    fn compress(&self) -> Option<Bytes> {
        let AssetBody::Memory(bytes) = &self.body else { return None };
        if !self.is_playlist() {
            return None;
        }
        let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::new(GZIP_LEVEL));
        encoder.write_all(bytes).ok()?;
        let packed = encoder.finish().ok()?;
        (packed.len() < bytes.len()).then(|| Bytes::from(packed))
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        memory_bytes(&self.body)
    }
}

/// Bytes of the service's memory that a body takes.
pub(super) fn memory_bytes(body: &AssetBody) -> u64 {
    match body {
        AssetBody::Memory(bytes) => bytes.len() as u64,
        AssetBody::Parts(names) => names.iter().map(|name| (name.len() + size_of::<String>()) as u64).sum(),
        AssetBody::File { .. } | AssetBody::Open { .. } => 0,
    }
}

/// A driver's body, with its file below `folder`.
pub(crate) fn placed(mut body: AssetBody, folder: &Path) -> AssetBody {
    if let AssetBody::File { path, .. } = &mut body {
        *path = folder.join(&path);
    }
    body
}

/// The assets of one opening by name, with the limits of one opening. Written by driver threads, read by every request
/// of a viewer. Dropping bytes may run foreign code, so nothing is dropped under the lock.
#[derive(Debug, Default)]
pub(super) struct ByName {
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    assets: HashMap<String, Arc<Published>>,
    memory_bytes: u64,
    coming: Coming,
}

impl ByName {
    /// Removes all assets in memory: the opening has ended, and others need the memory.
    pub(super) fn give_up_memory(&self) {
        let mut state = self.state.write();
        let gone: Vec<_> = state.assets.extract_if(|_, asset| asset.memory_bytes() > 0).collect();
        state.memory_bytes = 0;
        gone.iter().for_each(|(name, _)| state.coming.retracted(name));
        drop(state);
        drop(gone);
    }

    /// Returns the replaced asset, and whether viewers may be waiting for the new one.
    pub(super) fn put(&self, asset: Published) -> Result<(Option<Arc<Published>>, bool), Error> {
        let name = asset.name.clone();
        let size = asset.memory_bytes();
        let mut state = self.state.write();
        let earlier = state.assets.get(&name);
        if earlier.is_none() && state.assets.len() >= ASSETS_MAX {
            return Err(Error::internal(format!("more than {ASSETS_MAX} assets; retract old ones")));
        }
        let others = state.memory_bytes - earlier.map_or(0, |asset| asset.memory_bytes());
        if size > 0 && others + size > ASSET_MEMORY_BYTES_MAX {
            return Err(Error::internal(format!(
                "more than {ASSET_MEMORY_BYTES_MAX} bytes of assets in memory; retract old ones"
            )));
        }
        state.memory_bytes = others + size;
        let is_waited_for = state.coming.published(&name, &asset.followed);
        Ok((state.assets.insert(name, Arc::new(asset)), is_waited_for))
    }

    pub(super) fn retract(&self, name: &str) {
        let mut state = self.state.write();
        let removed = state.assets.remove(name);
        state.memory_bytes -= removed.as_ref().map_or(0, |asset| asset.memory_bytes());
        state.coming.retracted(name);
        drop(state);
        drop(removed);
    }

    pub(super) fn get(&self, name: &str) -> Option<Arc<Published>> {
        self.state.read().assets.get(name).cloned()
    }

    /// The media segments by rising number, from `number` on, with their names.
    pub(super) fn segments(&self, number: u64) -> Vec<(SegmentPosition, String)> {
        let state = self.state.read();
        let place = |asset: &Arc<Published>| asset.followed.segment.clone();
        let all = state.assets.iter().filter_map(|(name, asset)| Some((place(asset)?, name.clone())));
        let mut found: Vec<_> = all.filter(|(place, _)| place.number >= number).collect();
        found.sort_unstable_by_key(|(place, _)| place.number);
        found
    }

    pub(super) fn look_ahead<T>(&self, look: impl FnOnce(&Coming) -> T) -> T {
        look(&self.state.read().coming)
    }

    #[cfg(test)]
    pub(super) fn memory_bytes(&self) -> u64 {
        self.state.read().memory_bytes
    }
}

#[derive(Debug)]
pub struct Answer {
    /// 200, 204, or 400 to 599.
    pub status: u16,
    /// Further headers, checked.
    pub headers: Vec<(String, String)>,
    /// Media type, caching and bytes.
    pub asset: Arc<Published>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// There is no such route, or the opening has ended.
    #[error("no driver answers this path")]
    NoRoute,
    #[error("the path or the query is longer than {REQUEST_TEXT_BYTES_MAX} bytes")]
    TooLong,
    /// [`IN_FLIGHT_MAX`] requests are waiting.
    #[error("{IN_FLIGHT_MAX} requests already wait for the driver")]
    Busy,
    #[error("the driver did not answer in time")]
    TimedOut,
    /// The driver's answer breaks a rule, or the driver ended.
    #[error("the driver failed to answer")]
    Failed,
}

/// A pending answer. It may be dropped early.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Result<Answer, Unanswered>> + Send + 'a>>;

/// Passes the requests to one opening on to its driver.
pub trait Handler: Debug + Send + Sync {
    fn ask(&self, asked: HttpRequest) -> Answering<'_>;
}
