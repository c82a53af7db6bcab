//! What is said of pieces beside their bytes: how playlists are followed, where segments stand. As the host gets it.

use serde::{Deserialize, Serialize};

use crate::abi;
use crate::playback::is_asset_name;

/// What is to be known of a piece by who follows the stream: viewers of a playlist, and recordings that begin with what was before;
/// its names are checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Followed {
    /// How far behind the newest media players stay, in milliseconds; 0 = not said.
    pub hold_back_ms: u32,
    /// Viewers may wait for a later version.
    pub reload: Option<Reload>,
    /// It is a media segment.
    #[serde(default)]
    pub segment: Option<SegmentPlace>,
}

/// Where a media segment stands in its session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentPlace {
    /// Media sequence number; rises from segment to segment of an opening.
    pub number: u64,
    /// What is to be added to its decode times to have those of the packets, in nanoseconds.
    pub offset_ns: i64,
    /// Wall time of its start, in milliseconds since 1970.
    pub start_ms: i64,
    /// Name of the piece with its initialization segment.
    pub init: String,
}

/// What a version of a playlist lists, and what comes next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reload {
    /// Media sequence number of the first segment that is not whole in this version.
    pub next_sequence: u64,
    /// Parts of that segment which are listed.
    pub next_part: u32,
    /// Target duration in milliseconds.
    pub target_ms: u32,
    /// Name of the piece that has this version without old segments.
    pub delta: Option<String>,
    /// Name of the piece that comes next.
    pub hint: Option<String>,
}

impl Followed {
    /// True when its names are those of pieces.
    pub fn is_sound(&self) -> bool {
        let names = self.reload.iter().flat_map(|reload| [&reload.delta, &reload.hint]);
        let init = self.segment.iter().map(|segment| &segment.init);
        names.flatten().chain(init).all(|name| is_asset_name(name))
    }
}

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
    let segment = (raw.flags & abi::ASSET_SEGMENT != 0).then_some(SegmentPlace {
        number: raw.number,
        offset_ns: raw.offset_ns,
        start_ms: raw.start_ms,
        init,
    });
    Followed { hold_back_ms: raw.hold_back_ms, reload, segment }
}

/// A full-size copy of a driver's description; what an older driver does not have is empty. `None` when it is too short.
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
    use crate::abi::SatcastStr;
    use crate::host::assets::{AssetBody, Body, read_asset, unsound};

    #[test]
    fn the_asset_of_an_older_driver_is_read_without_what_it_lacks() {
        let size = std::mem::offset_of!(abi::SatcastAsset, flags);
        let mut asset = abi::SatcastAsset {
            size,
            name: SatcastStr::new("media.m3u8"),
            content_type: SatcastStr::new("x/y"),
            max_age_secs: 1,
            audience: abi::AUDIENCE_HOSTED,
            body: Body::from(bytes::Bytes::from_static(b"list")).leaked(),
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
        // SAFETY: the description lives, and so do its texts; its body is given back as often as it was made.
        let read = |asset: &abi::SatcastAsset| unsafe { copy_asset(asset).map(|copy| read_asset(copy)) };
        let old = read(&asset).unwrap().unwrap();
        assert_eq!(old.followed, Followed::default());
        assert!(matches!(&old.body, AssetBody::Memory(body) if body.as_ref() == b"list"));
        let again = |asset: &mut abi::SatcastAsset| {
            asset.body = Body::from(bytes::Bytes::from_static(b"list")).leaked()
        };
        again(&mut asset);
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
        again(&mut asset);
        asset.flags = abi::ASSET_SEGMENT;
        let place = SegmentPlace { number: 9, offset_ns: -40, start_ms: 1_000, init: "init.mp4".into() };
        assert_eq!(read(&asset).unwrap().unwrap().followed.segment, Some(place));
        again(&mut asset);
        asset.init = SatcastStr::new("");
        assert_eq!(read(&asset).unwrap().err(), Some(unsound("media.m3u8")));
        again(&mut asset);
        asset.flags = abi::ASSET_RELOAD;
        asset.delta = SatcastStr::new("../delta");
        assert_eq!(read(&asset).unwrap().err(), Some(unsound("media.m3u8")));
        asset.size = size - 1;
        assert!(read(&asset).is_none());
    }
}
