//! The request to open a destination, of hosts older and newer than this driver.

use crate::Error;
use crate::abi::SatcastOpen;

/// A full-size copy of the host's request; fields that an older host does not have are empty.
///
/// # Safety
/// `request` must be valid for its own size for the call.
pub(super) unsafe fn read_open(request: *const SatcastOpen) -> Result<SatcastOpen, Error> {
    // SAFETY: `size` is the first field of every request.
    let size = unsafe { (&raw const (*request).size).read() };
    if size < std::mem::offset_of!(SatcastOpen, about_json) {
        return Err(Error::internal(format!("the host's request to open has {size} bytes only")));
    }
    // SAFETY: all-zero is a valid request: null pointers, empty texts.
    let mut full: SatcastOpen = unsafe { std::mem::zeroed() };
    let known = size.min(size_of::<SatcastOpen>());
    // SAFETY: both sides are valid for the smaller of the two sizes and do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(request.cast::<u8>(), (&raw mut full).cast::<u8>(), known) };
    Ok(full)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A failed step is a failed test.
mod tests {
    use std::mem::offset_of;

    use super::*;
    use crate::abi::{SatcastMedia, SatcastStr};

    /// The request as hosts of minor version 1 make it, and drivers of that version read it.
    #[repr(C)]
    struct First {
        size: usize,
        dest: u64,
        source: u64,
        type_name: SatcastStr,
        config_json: SatcastStr,
        media: *mut SatcastMedia,
    }

    #[test]
    fn missing_fields_of_an_older_hosts_request_are_empty() {
        let first = First {
            size: size_of::<First>(),
            dest: 7,
            source: 8,
            type_name: SatcastStr::new("t"),
            config_json: SatcastStr::new("{}"),
            media: std::ptr::dangling_mut::<u8>().cast(),
        };
        // SAFETY: valid for its own size.
        let read = unsafe { read_open((&raw const first).cast()) }.unwrap();
        assert_eq!((read.dest, read.source, read.media), (7, 8, first.media));
        // SAFETY: the texts are static.
        unsafe {
            assert_eq!((&*read.type_name.read(), &*read.config_json.read()), ("t", "{}"));
            assert_eq!(read.about_json.read(), "");
        }
        let short = First { size: size_of::<First>() - 1, ..first };
        // SAFETY: valid for its own size.
        assert!(unsafe { read_open((&raw const short).cast()) }.is_err());
    }

    #[test]
    fn fields_keep_their_offsets_for_older_drivers() {
        assert_eq!(size_of::<First>(), offset_of!(SatcastOpen, about_json));
        assert_eq!(offset_of!(First, dest), offset_of!(SatcastOpen, dest));
        assert_eq!(offset_of!(First, config_json), offset_of!(SatcastOpen, config_json));
        assert_eq!(offset_of!(First, media), offset_of!(SatcastOpen, media));
    }

    #[test]
    fn unknown_fields_of_a_newer_hosts_request_are_ignored() {
        #[repr(C)]
        struct Newer {
            known: SatcastOpen,
            appended: [u64; 4],
        }
        let empty = SatcastStr::new("");
        let known = SatcastOpen {
            size: size_of::<Newer>(),
            dest: 1,
            source: 2,
            type_name: empty,
            config_json: empty,
            media: std::ptr::null_mut(),
            about_json: SatcastStr::new("{}"),
        };
        let newer = Newer { known, appended: [u64::MAX; 4] };
        // SAFETY: valid for its own size.
        let read = unsafe { read_open((&raw const newer).cast()) }.unwrap();
        // SAFETY: the text is static.
        assert_eq!((read.dest, &*unsafe { read.about_json.read() }), (1, "{}"));
    }
}
