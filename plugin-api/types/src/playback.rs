//! Playback: assets and reports that a driver publishes for viewers, as both sides use them.

use std::any::Any;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Media type of a playlist (RFC 8216, section 4). The host compresses such assets and keeps them out of byte ranges.
pub const PLAYLIST_TYPE: &str = "application/vnd.apple.mpegurl";
/// Longest name of an asset in bytes.
pub const ASSET_NAME_BYTES_MAX: usize = 128;
/// Most parts of one asset.
pub const ASSET_PARTS_MAX: usize = 64;

/// Who may fetch an asset. The numbers are flags of the C table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Audience {
    /// Viewers with a key, whose bytes are metered.
    Hosted = 1,
    /// Viewers of the preview.
    Preview = 2,
    /// Either.
    Both = 3,
}

impl Audience {
    /// The audience of flags of the C table; `None` when the flags name no known audience.
    pub fn from_number(flags: u32) -> Option<Self> {
        let all = [Audience::Hosted, Audience::Preview, Audience::Both];
        all.into_iter().find(|audience| *audience as u32 == flags & Audience::Both as u32)
    }

    /// Viewers with a key may fetch it.
    pub fn is_hosted(self) -> bool {
        self != Audience::Preview
    }

    /// Viewers of the preview may fetch it.
    pub fn is_preview(self) -> bool {
        self != Audience::Hosted
    }
}

/// An asset that the host serves to viewers by name. Between processes its bytes are sent separately.
#[derive(Debug, Serialize, Deserialize)]
pub struct Asset {
    /// `a-z A-Z 0-9 . _ -`, at most [`ASSET_NAME_BYTES_MAX`] bytes. A name with a cache time must never be reused for other bytes.
    pub name: String,
    /// Media type; [`PLAYLIST_TYPE`] marks playlists.
    pub content_type: String,
    /// Seconds that caches may keep it; 0 = not at all.
    pub max_age_secs: u32,
    /// Who may fetch it.
    pub audience: Audience,
    /// The bytes.
    pub body: AssetBody,
    /// Facts for viewers and backfills that follow the stream. A host before minor version 4 ignores them.
    pub followed: Followed,
}

impl Asset {
    /// An asset without caching and without facts in `followed`.
    pub fn new(
        name: impl Into<String>,
        content_type: impl Into<String>,
        audience: Audience,
        body: AssetBody,
    ) -> Self {
        let (name, content_type, followed) = (name.into(), content_type.into(), Followed::default());
        Self { name, content_type, max_age_secs: 0, audience, body, followed }
    }

    /// Lets caches keep it for `secs` seconds.
    pub fn max_age(mut self, secs: u32) -> Self {
        self.max_age_secs = secs;
        self
    }
}

/// Held while a file is needed and then dropped, on a thread of the host; the drop must not block.
pub type Keep = Option<Box<dyn Any + Send + Sync>>;

/// Where the bytes of an asset or of an answer are.
#[derive(Debug, Serialize, Deserialize)]
pub enum AssetBody {
    /// In memory, shared.
    Memory(#[serde(skip)] Bytes),
    /// In a file below the driver's data folder that does not change while `keep` is held.
    File {
        /// Path relative to the folder, without `..` and symbolic links; absolute once the host has taken it.
        path: PathBuf,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Dropped when the file is no longer needed.
        #[serde(skip)]
        keep: Keep,
    },
    /// In an open regular file that does not get shorter. For answers only.
    Open {
        /// The file; `None` only between processes.
        #[serde(skip)]
        file: Option<Arc<File>>,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Names of other assets of the destination, concatenated; at most [`ASSET_PARTS_MAX`].
    Parts(Vec<String>),
}

/// Facts about an asset for those that follow the stream: viewers of a playlist, and recordings that begin with a backfill.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Followed {
    /// How far behind the newest media players stay, in milliseconds; 0 = unknown.
    pub hold_back_ms: u32,
    /// Viewers may wait for a later version.
    pub reload: Option<Reload>,
    /// It is a media segment: fragmented MP4 whose samples are the payloads of packets.
    pub segment: Option<SegmentPosition>,
}

/// Position of a media segment in its session; backfills are read from such segments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentPosition {
    /// Media sequence number; rises with each segment of an opening.
    pub number: u64,
    /// Offset from its decode times to those of the packets, in nanoseconds (packet = segment + offset).
    pub offset_ns: i64,
    /// Wall time of its start, in milliseconds since 1970.
    pub start_ms: i64,
    /// Name of the asset with its initialization segment; publish it first.
    pub init: String,
}

/// Facts about a version of a playlist with which the host lets viewers wait for the next one (RFC 8216bis, section 6.2.5.2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reload {
    /// Media sequence number of the first segment that is incomplete in this version.
    pub next_sequence: u64,
    /// Number of listed parts of that segment.
    pub next_part: u32,
    /// Target duration in milliseconds.
    pub target_ms: u32,
    /// Name of the asset with the delta update of this version (without old segments); publish it first.
    pub delta: Option<String>,
    /// Name of the next asset: a request for it waits.
    pub hint: Option<String>,
}

impl Followed {
    /// True when its names are asset names.
    pub fn is_valid(&self) -> bool {
        let names = self.reload.iter().flat_map(|reload| [&reload.delta, &reload.hint]);
        let init = self.segment.iter().map(|segment| &segment.init);
        names.flatten().chain(init).all(|name| is_asset_name(name))
    }
}

/// Where viewers start and what they can see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Playback {
    /// Name of the first playlist for viewers with a key; its URIs are asset names.
    pub entry: String,
    /// The same for viewers of the preview.
    pub preview: Option<String>,
    /// Wall time of the oldest media listed, in milliseconds since 1970.
    pub first_ms: i64,
    /// Media listed, in milliseconds.
    pub window_ms: u64,
    /// Configured maximum of the DVR window, in milliseconds; 0 = no rewind.
    pub window_max_ms: u64,
    /// How long the playback counts as ready after this report, in milliseconds.
    pub fresh_ms: u32,
    /// The playlists are complete, no more media follows.
    pub ended: bool,
}

/// True for an asset name: 1 to [`ASSET_NAME_BYTES_MAX`] of `a-z A-Z 0-9 . _ -`, not beginning with a dot.
pub fn is_asset_name(name: &str) -> bool {
    (1..=ASSET_NAME_BYTES_MAX).contains(&name.len())
        && !name.starts_with('.')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_flags_change_no_audience() {
        for audience in [Audience::Hosted, Audience::Preview, Audience::Both] {
            assert_eq!(Audience::from_number(audience as u32 | 0x8000_0000), Some(audience));
        }
        assert_eq!([0, 4, 8].map(Audience::from_number), [None; 3]);
    }
}
