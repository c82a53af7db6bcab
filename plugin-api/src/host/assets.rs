//! Reads the assets that drivers publish for viewers.

use std::ffi::c_void;
use std::path::{Component, PathBuf};

use bytes::Bytes;
use satcast_types::{Asset, AssetBody, Playback};

use super::followed::{copy_asset, read_followed};
use super::services::with;
use crate::Error;
use crate::abi::{self, SatcastBody, SatcastStr};
use crate::playback::{ASSET_NAME_BYTES_MAX, ASSET_PARTS_MAX, Audience, is_asset_name};
use crate::wire::report;

/// Longest path of a file in bytes.
const PATH_BYTES_MAX: usize = 1024;
/// Longest list of parts in bytes.
const PARTS_BYTES_MAX: usize = ASSET_PARTS_MAX * (ASSET_NAME_BYTES_MAX + 1);

/// A body that belongs to a driver. Dropping it runs the driver's release function.
#[derive(Debug)]
pub(super) struct Body {
    raw: SatcastBody,
}

// SAFETY: the contract makes bodies immutable and their release callable from any thread.
unsafe impl Send for Body {}
// SAFETY: as above.
unsafe impl Sync for Body {}

impl Body {
    pub(super) fn own(raw: SatcastBody) -> Self {
        Self { raw }
    }

    fn is_memory(&self) -> bool {
        let is_readable = !self.raw.data.is_null() && isize::try_from(self.raw.len).is_ok();
        self.raw.kind == abi::BODY_MEMORY && (is_readable || self.raw.len == 0)
    }
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        if !self.is_memory() || self.raw.len == 0 {
            return &[];
        }
        // SAFETY: the contract keeps `len` bytes alive until release; `is_memory` checked pointer and length.
        unsafe { std::slice::from_raw_parts(self.raw.data, self.raw.len as usize) }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if let Some(release) = self.raw.release {
            // SAFETY: called exactly once, here.
            unsafe { release(self.raw.owner) };
        }
    }
}

/// # Safety
/// `raw` must be the description of a running call; its body passes to us.
pub(super) unsafe fn read_asset(raw: abi::SatcastAsset) -> Result<Asset, Error> {
    // Owned from here on, so that an error releases it, too.
    let body = Body::own(raw.body);
    // SAFETY: text lives for the call.
    let (name, content_type, source) =
        unsafe { (raw.name.read(), raw.content_type.read(), raw.source.read()) };
    if !is_asset_name(&name) {
        return Err(Error::internal(format!(
            "an asset's name must be 1 to {ASSET_NAME_BYTES_MAX} of a-z A-Z 0-9 . _ - and not begin with a dot"
        )));
    }
    let audience = Audience::from_number(raw.audience)
        .ok_or_else(|| Error::internal(format!("asset {name} has no audience; set at least one")))?;
    let body = read_body(&name, body, &source)?;
    // SAFETY: as above.
    let followed = unsafe { read_followed(&raw) };
    if !followed.is_valid() {
        return Err(invalid_names(&name));
    }
    let (name, content_type) = (name.into_owned(), content_type.into_owned());
    Ok(Asset { name, content_type, max_age_secs: raw.max_age_secs, audience, body, followed })
}

pub(super) fn invalid_names(name: &str) -> Error {
    Error::internal(format!("the delta, hint and init of asset {name} must be asset names"))
}

fn outside(name: &str) -> Error {
    Error::internal(format!(
        "asset {name} must give a relative path to a file below the driver's data folder"
    ))
}

fn invalid_parts(name: &str) -> Error {
    Error::internal(format!("asset {name} must be made of 1 to {ASSET_PARTS_MAX} asset names"))
}

/// The body of asset `name`, or `of an answer`; `source` is its path or the names of its parts.
pub(super) fn read_body(name: &str, body: Body, source: &str) -> Result<AssetBody, Error> {
    match body.raw.kind {
        abi::BODY_MEMORY if body.is_memory() => Ok(AssetBody::Memory(Bytes::from_owner(body))),
        abi::BODY_FILE => {
            let (offset, len) = (body.raw.offset, body.raw.len);
            let path = plain_path(source).filter(|_| offset.checked_add(len).is_some());
            let path = path.ok_or_else(|| outside(name))?;
            Ok(AssetBody::File { path, offset, len, keep: Some(Box::new(body)) })
        }
        abi::BODY_PARTS => {
            let parts = part_names(source).ok_or_else(|| invalid_parts(name))?;
            Ok(AssetBody::Parts(parts))
        }
        _ => Err(Error::internal(format!("asset {name} has an unknown kind of body; use a newer host"))),
    }
}

/// The path, if it is relative and has only plain components.
fn plain_path(text: &str) -> Option<PathBuf> {
    let path = PathBuf::from(text);
    let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    (plain && (1..=PATH_BYTES_MAX).contains(&text.len()) && !text.contains('\0')).then_some(path)
}

fn part_names(text: &str) -> Option<Vec<String>> {
    if text.len() > PARTS_BYTES_MAX {
        return None;
    }
    let names: Vec<String> = text.split('\n').map(str::to_owned).collect();
    (names.len() <= ASSET_PARTS_MAX && names.iter().all(|name| is_asset_name(name))).then_some(names)
}

/// # Safety
/// As [`abi::SatcastAssets::publish`].
pub(super) unsafe extern "C" fn publish(
    ctx: *mut c_void,
    dest: u64,
    asset: *const abi::SatcastAsset,
    errors: *const abi::SatcastErrorSink,
) -> i32 {
    // SAFETY: the description lives for the call; the body passes to us.
    unsafe {
        with(ctx, abi::ERR, |context| {
            let Some(asset) = copy_asset(asset) else {
                report(errors, &Error::internal("the driver's asset is malformed"));
                return abi::ERR;
            };
            answer(errors, read_asset(asset).and_then(|asset| context.services.publish(dest, asset)))
        })
    }
}

/// # Safety
/// As [`abi::SatcastAssets::retract`].
pub(super) unsafe extern "C" fn retract(ctx: *mut c_void, dest: u64, name: SatcastStr) -> i32 {
    // SAFETY: the name lives for the call.
    unsafe {
        with(ctx, abi::ERR, |context| {
            context.services.retract(dest, &name.read());
            abi::OK
        })
    }
}

/// # Safety
/// As [`abi::SatcastAssets::playback`].
pub(super) unsafe extern "C" fn playback(
    ctx: *mut c_void,
    dest: u64,
    playback: *const abi::SatcastPlayback,
    errors: *const abi::SatcastErrorSink,
) -> i32 {
    // SAFETY: the description lives for the call.
    unsafe {
        with(ctx, abi::ERR, |context| {
            if playback.is_null() || (*playback).size < size_of::<abi::SatcastPlayback>() {
                report(errors, &Error::internal("the driver's playback is malformed"));
                return abi::ERR;
            }
            let raw = *playback;
            let read = Playback {
                entry: raw.entry.read().into_owned(),
                preview: Some(raw.preview.read().into_owned()).filter(|name| !name.is_empty()),
                first_ms: raw.first_ms,
                window_ms: raw.window_ms,
                window_max_ms: raw.window_max_ms,
                fresh_ms: raw.fresh_ms,
                ended: raw.flags & abi::PLAYBACK_ENDED != 0,
            };
            let good = [Some(&read.entry), read.preview.as_ref()]
                .into_iter()
                .flatten()
                .all(|name| is_asset_name(name));
            if !good {
                report(
                    errors,
                    &Error::internal("the entry and the preview of a playback must be asset names"),
                );
                return abi::ERR;
            }
            answer(errors, context.services.playback(dest, read))
        })
    }
}

/// # Safety
/// The sink must live for the call.
unsafe fn answer(errors: *const abi::SatcastErrorSink, outcome: Result<(), Error>) -> i32 {
    match outcome {
        Ok(()) => abi::OK,
        Err(error) => {
            // SAFETY: see above.
            unsafe { report(errors, &error) };
            abi::ERR
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below_the_folder() {
        for bad in ["", "/etc/passwd", "../x", "a/../b", "./a", "a\0b", &"p".repeat(PATH_BYTES_MAX + 1)] {
            assert_eq!(plain_path(bad), None, "{bad:?}");
        }
        assert_eq!(plain_path("dvr/1/2.m4s"), Some(PathBuf::from("dvr/1/2.m4s")));
    }

    #[test]
    fn refused_bodies_give_the_reason() {
        let body = |kind| {
            let empty = SatcastBody {
                kind,
                reserved: 0,
                offset: 0,
                len: 1,
                data: std::ptr::null(),
                owner: std::ptr::null_mut(),
                release: None,
            };
            Body { raw: empty }
        };
        for (kind, source, error) in [
            (abi::BODY_FILE, "../x", outside("a")),
            (abi::BODY_FILE, "", outside("a")),
            (abi::BODY_PARTS, "../x", invalid_parts("a")),
            (abi::BODY_PARTS, "", invalid_parts("a")),
        ] {
            assert_eq!(read_body("a", body(kind), source).err(), Some(error), "{source}");
        }
    }

    #[test]
    fn refusals_texts() {
        for (error, text) in [
            (invalid_names("a"), "the delta, hint and init of asset a must be asset names"),
            (outside("a"), "asset a must give a relative path to a file below the driver's data folder"),
            (invalid_parts("a"), "asset a must be made of 1 to 64 asset names"),
        ] {
            assert_eq!(error, Error::internal(text));
        }
    }

    #[test]
    fn parts_are_names_within_the_limit() {
        assert_eq!(part_names("a\nb"), Some(vec!["a".to_owned(), "b".to_owned()]));
        let most = vec!["n"; ASSET_PARTS_MAX].join("\n");
        assert!(part_names(&most).is_some());
        for bad in
            [format!("{most}\nn"), String::new(), "a\n".into(), "a/b".into(), "x".repeat(PARTS_BYTES_MAX + 1)]
        {
            assert_eq!(part_names(&bad), None);
        }
    }
}
