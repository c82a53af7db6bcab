//! Publishes a destination's assets for viewers.

use std::any::Any;
use std::ffi::c_void;
use std::os::fd::IntoRawFd as _;
use std::sync::Arc;

use satcast_types::{Asset, AssetBody, Playback};

use super::ctx::missing;
use super::hostref::HostRef;
use crate::Error;
use crate::abi::{self, SatcastBody, SatcastStr};
use crate::wire::ErrorSlot;

/// Owner of the bytes, freed by `release_owner`.
type Owner = Box<dyn Any + Send + Sync>;

/// A body in the form of the C table. The host owns it after the call.
pub(super) struct RawBody {
    pub(super) body: SatcastBody,
    /// Path or names.
    pub(super) source: String,
    /// The open file, or -1.
    pub(super) descriptor: i32,
}

impl RawBody {
    pub(super) fn of(body: AssetBody) -> Result<Self, Error> {
        let mut raw = SatcastBody {
            kind: abi::BODY_MEMORY,
            reserved: 0,
            offset: 0,
            len: 0,
            data: std::ptr::null(),
            owner: std::ptr::null_mut(),
            release: None,
        };
        let (mut source, mut descriptor, mut owner) = (String::new(), -1, None);
        match body {
            AssetBody::Memory(bytes) => {
                // The bytes do not move while the owner holds a reference.
                (raw.data, raw.len) = (bytes.as_ptr(), bytes.len() as u64);
                owner = Some(Box::new(bytes) as Owner);
            }
            AssetBody::File { path, offset, len, keep } => {
                (raw.kind, raw.offset, raw.len, owner) = (abi::BODY_FILE, offset, len, keep);
                let path = path.into_os_string().into_string();
                source = path.map_err(|_| Error::internal("the path of a file for viewers is not UTF-8"))?;
            }
            AssetBody::Open { file, offset, len } => {
                (raw.kind, raw.offset, raw.len) = (abi::BODY_DESCRIPTOR, offset, len);
                let file = file.ok_or_else(|| Error::internal("an answer has no file"))?;
                let file = Arc::try_unwrap(file).or_else(|shared| shared.try_clone());
                let file =
                    file.map_err(|error| Error::internal(format!("no file for an answer: {error}")))?;
                descriptor = file.into_raw_fd();
            }
            AssetBody::Parts(names) => (raw.kind, source) = (abi::BODY_PARTS, names.join("\n")),
        }
        if let Some(owner) = owner {
            raw.owner = Box::into_raw(Box::new(owner)).cast();
            raw.release = Some(release_owner);
        }
        Ok(Self { body: raw, source, descriptor })
    }
}

pub(super) fn publish(host: &HostRef, dest: u64, asset: Asset) -> Result<(), Error> {
    let publish = extension(host)?.publish.ok_or_else(|| missing(abi::EXT_ASSETS))?;
    if matches!(asset.body, AssetBody::Open { .. }) {
        return Err(Error::internal(format!(
            "asset {} is an open file, but only answers may use open files; publish a file below the data folder",
            asset.name
        )));
    }
    let RawBody { body, source, .. } = RawBody::of(asset.body)?;
    let (reload, segment) = (asset.followed.reload.as_ref(), asset.followed.segment.as_ref());
    let name_of = |name: Option<&String>| SatcastStr::new(name.map_or("", String::as_str));
    let raw = abi::SatcastAsset {
        size: size_of::<abi::SatcastAsset>(),
        name: SatcastStr::new(&asset.name),
        content_type: SatcastStr::new(&asset.content_type),
        max_age_secs: asset.max_age_secs,
        audience: asset.audience as u32,
        body,
        source: SatcastStr::new(&source),
        flags: flag(reload.is_some(), abi::ASSET_RELOAD) | flag(segment.is_some(), abi::ASSET_SEGMENT),
        hold_back_ms: asset.followed.hold_back_ms,
        next_sequence: reload.map_or(0, |reload| reload.next_sequence),
        next_part: reload.map_or(0, |reload| reload.next_part),
        target_ms: reload.map_or(0, |reload| reload.target_ms),
        delta: name_of(reload.and_then(|reload| reload.delta.as_ref())),
        hint: name_of(reload.and_then(|reload| reload.hint.as_ref())),
        number: segment.map_or(0, |segment| segment.number),
        offset_ns: segment.map_or(0, |segment| segment.offset_ns),
        start_ms: segment.map_or(0, |segment| segment.start_ms),
        init: name_of(segment.map(|segment| &segment.init)),
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

pub(super) fn playback(host: &HostRef, dest: u64, playback: &Playback) -> Result<(), Error> {
    let call = extension(host)?.playback.ok_or_else(|| missing(abi::EXT_ASSETS))?;
    let raw = abi::SatcastPlayback {
        size: size_of::<abi::SatcastPlayback>(),
        entry: SatcastStr::new(&playback.entry),
        preview: SatcastStr::new(playback.preview.as_deref().unwrap_or_default()),
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
