//! What a destination publishes for viewers.

use std::any::Any;
use std::ffi::c_void;
use std::path::PathBuf;

use bytes::Bytes;

use super::ctx::missing;
use super::hostref::HostRef;
use crate::Error;
use crate::abi::{self, SatcastBody, SatcastStr};
use crate::playback::Audience;
use crate::wire::ErrorSlot;

/// A piece the host serves to viewers by name.
pub struct Asset<'a> {
    /// `a-z A-Z 0-9 . _ -`, at most 128 bytes. A name with a cache time must never come back with other bytes.
    pub name: &'a str,
    /// Media type; [`PLAYLIST_TYPE`](crate::playback::PLAYLIST_TYPE) marks playlists.
    pub content_type: &'a str,
    /// Seconds a cache may keep it; 0 = not at all.
    pub max_age_secs: u32,
    /// Who may fetch it.
    pub audience: Audience,
    /// The bytes.
    pub body: AssetBody,
}

/// Where the bytes of a piece are.
pub enum AssetBody {
    /// In memory, shared with the host.
    Memory(Bytes),
    /// In a file below the driver's data folder that does not change any more.
    File {
        /// Path relative to the folder, without `..` and symbolic links.
        path: PathBuf,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Dropped on a thread of the host when nobody needs the file any more; must not block.
        keep: Box<dyn Any + Send + Sync>,
    },
    /// In other pieces of the destination, one after the other, by name; at most
    /// [`ASSET_PARTS_MAX`](crate::playback::ASSET_PARTS_MAX).
    Parts(Vec<String>),
}

/// What is to be known of a piece by who follows the stream: viewers of a playlist, and recordings that begin with what was before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Followed<'a> {
    /// How far behind the newest media players stay, in milliseconds; 0 = not said.
    pub hold_back_ms: u32,
    /// Viewers may wait for a later version.
    pub reload: Option<Reload<'a>>,
    /// It is a media segment: fragmented MP4 whose samples are the payloads of packets.
    pub segment: Option<SegmentPlace<'a>>,
}

/// Where a media segment stands in its session: destinations that want what was before them are given it from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentPlace<'a> {
    /// Media sequence number; rises from segment to segment of an opening.
    pub number: u64,
    /// What is to be added to its decode times to have those of the packets, in nanoseconds.
    pub offset_ns: i64,
    /// Wall time of its start, in milliseconds since 1970.
    pub start_ms: i64,
    /// Name of the piece with its initialization segment; publish it first.
    pub init: &'a str,
}

/// What the host must know of a version of a playlist to let viewers wait for the next one (RFC 8216bis, section 6.2.5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reload<'a> {
    /// Media sequence number of the first segment that is not whole in this version.
    pub next_sequence: u64,
    /// Parts of that segment which are listed.
    pub next_part: u32,
    /// Target duration in milliseconds.
    pub target_ms: u32,
    /// Name of the piece that has this version without old segments; publish it first.
    pub delta: Option<&'a str>,
    /// Name of the piece that comes next: who asks for it waits.
    pub hint: Option<&'a str>,
}

/// Where viewers enter and what they can see.
#[derive(Debug, Clone, Copy)]
pub struct Playback<'a> {
    /// Name of the playlist that viewers with a key get first; its URIs are names of pieces.
    pub entry: &'a str,
    /// The same for viewers of the preview.
    pub preview: Option<&'a str>,
    /// Wall time of the oldest media listed, in milliseconds since 1970.
    pub first_ms: i64,
    /// Media listed, in milliseconds.
    pub window_ms: u64,
    /// Longest window as configured, in milliseconds; 0 = no rewind.
    pub window_max_ms: u64,
    /// For so long after this report the playback is ready, in milliseconds.
    pub fresh_ms: u32,
    /// The playlists say that no more will come.
    pub ended: bool,
}

/// Frees what `release_owner` gets.
type Owner = Box<dyn Any + Send + Sync>;

/// A body as the host takes it, which owns it from then on.
pub(super) struct RawBody {
    pub(super) body: SatcastBody,
    /// Path or names.
    pub(super) source: String,
}

impl RawBody {
    pub(super) fn of(body: AssetBody) -> Result<Self, Error> {
        let (kind, offset, len, source, bytes, owner): (_, _, _, _, _, Owner) = match body {
            AssetBody::Memory(bytes) => {
                (abi::BODY_MEMORY, 0, bytes.len() as u64, String::new(), bytes.clone(), Box::new(bytes))
            }
            AssetBody::File { path, offset, len, keep } => {
                let path = path.into_os_string().into_string();
                let path =
                    path.map_err(|_| Error::internal("the path of a file for viewers is not UTF-8"))?;
                (abi::BODY_FILE, offset, len, path, Bytes::new(), keep)
            }
            AssetBody::Parts(names) => (abi::BODY_PARTS, 0, 0, names.join("\n"), Bytes::new(), Box::new(())),
        };
        let body = SatcastBody {
            // The bytes stay where they are for as long as `owner` holds its share of them.
            data: bytes.as_ptr(),
            owner: Box::into_raw(Box::new(owner)).cast(),
            release: Some(release_owner),
            ..Self::outside(kind, offset, len).body
        };
        Ok(Self { body, source })
    }

    /// One whose bytes are neither in memory nor to be given back.
    pub(super) fn outside(kind: u32, offset: u64, len: u64) -> Self {
        let (data, owner) = (std::ptr::null(), std::ptr::null_mut());
        let body = SatcastBody { kind, reserved: 0, offset, len, data, owner, release: None };
        Self { body, source: String::new() }
    }
}

pub(super) fn publish(
    host: &HostRef,
    dest: u64,
    asset: Asset<'_>,
    followed: &Followed<'_>,
) -> Result<(), Error> {
    let publish = extension(host)?.publish.ok_or_else(|| missing(abi::EXT_ASSETS))?;
    let RawBody { body, source } = RawBody::of(asset.body)?;
    let raw = abi::SatcastAsset {
        size: size_of::<abi::SatcastAsset>(),
        name: SatcastStr::new(asset.name),
        content_type: SatcastStr::new(asset.content_type),
        max_age_secs: asset.max_age_secs,
        audience: asset.audience as u32,
        body,
        source: SatcastStr::new(&source),
        flags: flag(followed.reload.is_some(), abi::ASSET_RELOAD)
            | flag(followed.segment.is_some(), abi::ASSET_SEGMENT),
        hold_back_ms: followed.hold_back_ms,
        next_sequence: followed.reload.map_or(0, |reload| reload.next_sequence),
        next_part: followed.reload.map_or(0, |reload| reload.next_part),
        target_ms: followed.reload.map_or(0, |reload| reload.target_ms),
        delta: SatcastStr::new(followed.reload.and_then(|reload| reload.delta).unwrap_or_default()),
        hint: SatcastStr::new(followed.reload.and_then(|reload| reload.hint).unwrap_or_default()),
        number: followed.segment.map_or(0, |segment| segment.number),
        offset_ns: followed.segment.map_or(0, |segment| segment.offset_ns),
        start_ms: followed.segment.map_or(0, |segment| segment.start_ms),
        init: SatcastStr::new(followed.segment.map_or("", |segment| segment.init)),
    };
    let mut slot = ErrorSlot::new();
    let errors = slot.sink();
    // SAFETY: the description lives for the call; the host owns the body from here on.
    match unsafe { publish(host.ctx(), dest, &raw const raw, &raw const errors) } {
        abi::OK => Ok(()),
        _ => Err(slot.take("the host refused the asset")),
    }
}

fn flag(is: bool, flag: u32) -> u32 {
    if is { flag } else { 0 }
}

pub(super) fn retract(host: &HostRef, dest: u64, name: &str) {
    if let Some(retract) = extension(host).ok().and_then(|extension| extension.retract) {
        // SAFETY: the name lives for the call.
        unsafe { retract(host.ctx(), dest, SatcastStr::new(name)) };
    }
}

pub(super) fn playback(host: &HostRef, dest: u64, playback: &Playback<'_>) -> Result<(), Error> {
    let call = extension(host)?.playback.ok_or_else(|| missing(abi::EXT_ASSETS))?;
    let raw = abi::SatcastPlayback {
        size: size_of::<abi::SatcastPlayback>(),
        entry: SatcastStr::new(playback.entry),
        preview: SatcastStr::new(playback.preview.unwrap_or_default()),
        first_ms: playback.first_ms,
        window_ms: playback.window_ms,
        window_max_ms: playback.window_max_ms,
        fresh_ms: playback.fresh_ms,
        flags: if playback.ended { abi::PLAYBACK_ENDED } else { 0 },
    };
    let mut slot = ErrorSlot::new();
    let errors = slot.sink();
    // SAFETY: the description lives for the call.
    match unsafe { call(host.ctx(), dest, &raw const raw, &raw const errors) } {
        abi::OK => Ok(()),
        _ => Err(slot.take("the host refused the playback")),
    }
}

fn extension(host: &HostRef) -> Result<abi::SatcastAssets, Error> {
    // SAFETY: `SatcastAssets` is the struct of this name.
    unsafe { host.extension::<abi::SatcastAssets>(abi::EXT_ASSETS) }.ok_or_else(|| missing(abi::EXT_ASSETS))
}

/// # Safety
/// `owner` must be the boxed owner of an asset, passed here once.
unsafe extern "C" fn release_owner(owner: *mut c_void) {
    // SAFETY: see above.
    let owner = unsafe { Box::from_raw(owner.cast::<Owner>()) };
    // A panic of the author's drop must not unwind into the host.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(owner)));
}
