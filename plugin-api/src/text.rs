//! Reading borrowed text of the other side.

use std::borrow::Cow;

use crate::abi::SatcastStr;

/// Longest text read from the other side, in bytes; the rest is cut.
pub(crate) const TEXT_BYTES_MAX: usize = 2 * 1024 * 1024;

impl SatcastStr {
    /// The text; invalid UTF-8 is replaced, not refused, so that a driver's bad log line still appears.
    ///
    /// # Safety
    /// `ptr` must be null or valid for `len` bytes as long as the result lives.
    pub unsafe fn read<'a>(self) -> Cow<'a, str> {
        // SAFETY: passed on to the caller.
        unsafe { self.read_up_to(TEXT_BYTES_MAX) }
    }

    /// The first `bytes_max` bytes of the text.
    ///
    /// # Safety
    /// As [`SatcastStr::read`].
    pub unsafe fn read_up_to<'a>(self, bytes_max: usize) -> Cow<'a, str> {
        if self.ptr.is_null() || self.len == 0 {
            return Cow::Borrowed("");
        }
        // SAFETY: the caller vouches for pointer and length.
        let bytes = unsafe { std::slice::from_raw_parts(self.ptr, self.len.min(bytes_max)) };
        String::from_utf8_lossy(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_empty_broken_and_good_text() {
        let null = SatcastStr { ptr: std::ptr::null(), len: 9 };
        // SAFETY: null is allowed; the others borrow live values.
        unsafe {
            assert_eq!(null.read(), "");
            assert_eq!(SatcastStr::new("häuser").read(), "häuser");
            assert_eq!(SatcastStr::new("häuser").read_up_to(3), "hä");
            let broken = [b'a', 0xff];
            assert_eq!(SatcastStr { ptr: broken.as_ptr(), len: 2 }.read(), "a\u{fffd}");
        }
    }
}
