//! Reads the facts about assets beside their bytes: how viewers follow playlists, where segments stand in the session.

use satcast_types::{Followed, Reload, SegmentPosition};

use crate::abi;

/// # Safety
/// The text of `raw` must live for the call.
pub(super) unsafe fn read_followed(raw: &abi::SatcastAsset) -> Followed {
    // SAFETY: see above.
    let (delta, hint) = unsafe { (raw.delta.read().into_owned(), raw.hint.read().into_owned()) };
    let reload = (raw.flags & abi::ASSET_RELOAD != 0).then(|| Reload {
        next_sequence: raw.next_sequence,
        next_part: raw.next_part,
        target_ms: raw.target_ms,
        delta: Some(delta).filter(|name| !name.is_empty()),
        hint: Some(hint).filter(|name| !name.is_empty()),
    });
    // SAFETY: see above.
    let init = unsafe { raw.init.read().into_owned() };
    let segment = (raw.flags & abi::ASSET_SEGMENT != 0).then_some(SegmentPosition {
        number: raw.number,
        offset_ns: raw.offset_ns,
        start_ms: raw.start_ms,
        init,
    });
    Followed { hold_back_ms: raw.hold_back_ms, reload, segment }
}

/// A full-size copy of a driver's description; fields that an older driver does not have are empty. `None` when it is too short.
///
/// # Safety
/// `asset` must be null or valid for its own size for the call.
pub(super) unsafe fn copy_asset(asset: *const abi::SatcastAsset) -> Option<abi::SatcastAsset> {
    if asset.is_null() {
        return None;
    }
    // SAFETY: `size` is the first field of every description.
    let size = unsafe { (&raw const (*asset).size).read() };
    if size < std::mem::offset_of!(abi::SatcastAsset, flags) {
        return None;
    }
    // SAFETY: all-zero is a valid description: null pointers, empty texts, no function.
    let mut full: abi::SatcastAsset = unsafe { std::mem::zeroed() };
    let known = size.min(size_of::<abi::SatcastAsset>());
    // SAFETY: both sides are valid for the smaller of the two sizes and do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(asset.cast::<u8>(), (&raw mut full).cast::<u8>(), known) };
    Some(full)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A failed step is a failed test.
mod tests {
    use super::*;
    use crate::AssetBody;
    use crate::abi::SatcastStr;
    use crate::host::assets::{invalid_names, read_asset};

    /// A body of static bytes without a release function.
    fn list() -> abi::SatcastBody {
        abi::SatcastBody {
            kind: abi::BODY_MEMORY,
            reserved: 0,
            offset: 0,
            len: 4,
            data: b"list".as_ptr(),
            owner: std::ptr::null_mut(),
            release: None,
        }
    }

    #[test]
    fn missing_fields_of_an_older_drivers_asset_are_empty() {
        let size = std::mem::offset_of!(abi::SatcastAsset, flags);
        let mut asset = abi::SatcastAsset {
            size,
            name: SatcastStr::new("media.m3u8"),
            content_type: SatcastStr::new("x/y"),
            max_age_secs: 1,
            audience: abi::AUDIENCE_HOSTED,
            body: list(),
            source: SatcastStr::new(""),
            flags: abi::ASSET_RELOAD,
            hold_back_ms: 2000,
            next_sequence: 7,
            next_part: 3,
            target_ms: 2000,
            delta: SatcastStr::new("delta.m3u8"),
            hint: SatcastStr::new(""),
            number: 9,
            offset_ns: -40,
            start_ms: 1_000,
            init: SatcastStr::new("init.mp4"),
        };
        // SAFETY: the description lives, and so do its texts; its body is released as often as it was made.
        let read = |asset: &abi::SatcastAsset| unsafe { copy_asset(asset).map(|copy| read_asset(copy)) };
        let old = read(&asset).unwrap().unwrap();
        assert_eq!(old.followed, Followed::default());
        assert!(matches!(&old.body, AssetBody::Memory(body) if body.as_ref() == b"list"));
        asset.size = size_of::<abi::SatcastAsset>();
        let reload = Reload {
            next_sequence: 7,
            next_part: 3,
            target_ms: 2000,
            delta: Some("delta.m3u8".into()),
            hint: None,
        };
        let new = read(&asset).unwrap().unwrap();
        assert_eq!(new.followed, Followed { hold_back_ms: 2000, reload: Some(reload), segment: None });
        asset.flags = abi::ASSET_SEGMENT;
        let place = SegmentPosition { number: 9, offset_ns: -40, start_ms: 1_000, init: "init.mp4".into() };
        assert_eq!(read(&asset).unwrap().unwrap().followed.segment, Some(place));
        asset.init = SatcastStr::new("");
        assert_eq!(read(&asset).unwrap().err(), Some(invalid_names("media.m3u8")));
        asset.flags = abi::ASSET_RELOAD;
        asset.delta = SatcastStr::new("../delta");
        assert_eq!(read(&asset).unwrap().err(), Some(invalid_names("media.m3u8")));
        asset.size = size - 1;
        assert!(read(&asset).is_none());
    }
}
