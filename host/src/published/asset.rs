//! One published asset.

use std::io::Write as _;
use std::path::Path;
use std::sync::OnceLock;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use satcast_plugin_api::playback::PLAYLIST_TYPE;
use satcast_plugin_api::{AssetBody, Audience, Followed};
use satcast_quota::Permit;

/// Compression of playlists: four times the bytes of level 9 saved per microsecond (research on 1800 entries).
const GZIP_LEVEL: u32 = 4;

/// One of the published assets.
#[derive(Debug)]
pub struct Published {
    /// Media type; printable.
    pub content_type: String,
    /// Seconds a cache may keep it.
    pub max_age_secs: u32,
    /// Who may fetch it.
    pub audience: Audience,
    /// The bytes.
    pub body: AssetBody,
    /// What viewers who follow the stream are told by it.
    pub followed: Followed,
    gzip: OnceLock<Option<Bytes>>,
    /// What counts for the names of its parts; bytes in memory have their own.
    _permit: Option<Permit<i64>>,
}

impl Published {
    /// An asset, or an answer of a driver, which is sent like one.
    pub(crate) fn new(content_type: String, max_age_secs: u32, audience: Audience, body: AssetBody) -> Self {
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
        let AssetBody::Memory(bytes) = &self.body else { return None };
        if !self.is_playlist() {
            return None;
        }
        let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::new(GZIP_LEVEL));
        encoder.write_all(bytes).ok()?;
        let packed = encoder.finish().ok()?;
        (packed.len() < bytes.len()).then(|| Bytes::from(packed))
    }

    /// Counts the names of its parts until it goes.
    pub(super) fn counted_by(mut self, permit: Option<Permit<i64>>) -> Self {
        self._permit = permit;
        self
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        memory_bytes(&self.body)
    }
}

/// What a body takes of the service's memory.
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
