//! The C table: every type and function that crosses the boundary between host and driver.
//!
//! Nothing but fixed-width integers, pointers and `#[repr(C)]` structs made of them appears here, so a compiler of any
//! language can be used on either side. The C header `include/satcast_driver.h` is generated from this module; constants have the prefix
//! `SATCAST_` there. Rules that hold for all of it:
//!
//! - Text (`SatcastStr`) is UTF-8, not terminated, borrowed for the call only: the receiver copies the text if it keeps it.
//! - No side frees memory of the other side. A buffer that outlives a call carries its own release function.
//! - Structs begin with their size. A reader uses no more than `min(size, its own size)` bytes of a struct; neither side writes
//!   beyond the size of a struct that the other side allocated. Within one major version fields are only appended.
//! - Unknown flag bits are ignored, unused ones are zero.
//! - New abilities are extensions looked up by name, `name/N`. A changed one is a new `N`; an extension named `draft.*` may still
//!   change.
//! - Another major version is refused; another minor version never is.
//! - No unwinding crosses the boundary, in either direction: C++ functions are `noexcept`, Rust ones catch panics.
//!
//! Thread marks begin the description of each function. `[control]`: the host calls it on the one control thread of the driver, never two
//! at once; a call that does not return in time makes the host abandon the driver. `[pump]`: the host calls it on the one thread that
//! wakes the driver, which may be a thread of the driver itself (`SatcastPump`). `[any]`: from any thread, from several at once. The
//! text after the mark says when in the life of the driver or of the destination it may be called.

mod driver;
mod ext;
mod host;
mod http;
mod media;
mod recordings;

use std::ffi::c_void;

pub use driver::*;
pub use ext::*;
pub use host::*;
pub use http::*;
pub use media::*;
pub use recordings::*;

/// First eight bytes of every driver table: the text `SATCAST` and a format number, as a little-endian number.
pub const MAGIC: u64 = 0x0154_5341_4354_4153;
/// Drivers of another major version are refused.
pub const ABI_MAJOR: u32 = 1;
/// Grows with every appended field or extension; never a reason to refuse.
pub const ABI_MINOR: u32 = 9;
/// The one symbol a driver library exports, of type `SatcastDriverEntry`.
pub const ENTRY_SYMBOL: &str = "satcast_driver_entry";

/// Driver flag: a panic stays inside the driver, because the library was compiled with unwinding panics, or in a language without
/// them. A driver without the flag does not run inside the host's process.
pub const FLAG_PANIC_UNWIND: u64 = 1;

/// Driver flag, since minor version 4: packets must not be lost when a destination is slow. The host spools them to disk, up to the operator's
/// limit, instead of dropping them.
pub const FLAG_LOSSLESS: u64 = 1 << 1;

/// Host flag: the driver is linked into the host binary; it must not install process-wide hooks or log subscribers.
pub const HOST_FLAG_STATIC: u32 = 1;

/// Packet can be decoded without an earlier packet of its track.
pub const PACKET_KEYFRAME: u32 = 1;
/// `data` is the codec configuration record of the track, not media.
pub const PACKET_CONFIG: u32 = 1 << 1;
/// Packets before this one are missing (dropped for this destination, or the encoder was away).
pub const PACKET_DISCONTINUITY: u32 = 1 << 2;

/// `kind` of a video packet.
pub const KIND_VIDEO: u32 = 1;
/// `kind` of an audio packet.
pub const KIND_AUDIO: u32 = 2;

/// `codec`: H.264, length-prefixed NAL units; configuration is an `AVCDecoderConfigurationRecord`.
pub const CODEC_H264: u32 = 1;
/// `codec`: HEVC, length-prefixed NAL units; configuration is an `HEVCDecoderConfigurationRecord`.
pub const CODEC_HEVC: u32 = 2;
/// `codec`: AV1, OBUs without temporal delimiters; configuration is an `AV1CodecConfigurationRecord`.
pub const CODEC_AV1: u32 = 3;
/// `codec`: raw AAC frames; configuration is an `AudioSpecificConfig`.
pub const CODEC_AAC: u32 = 4;
/// `codec`: Opus packets; configuration is an `OpusHead` (RFC 7845).
pub const CODEC_OPUS: u32 = 5;

/// Destination state: connecting, or connected without media flowing.
pub const STATE_CONNECTING: u32 = 1;
/// Destination state: media was written or acknowledged within the last five seconds.
pub const STATE_LIVE: u32 = 2;

/// Return code: done.
pub const OK: i32 = 0;
/// Return code of `SatcastReconfigure.reconfigure`: only a new opening can take the configuration.
pub const REOPEN: i32 = 1;
/// Return code: refused; the reason was reported to the error sink.
pub const ERR: i32 = -1;
/// Return code: this table has no such function or the object is closed.
pub const ERR_CLOSED: i32 = -2;
/// Return code: the driver panicked inside the call; the message was reported to the error sink.
pub const ERR_PANIC: i32 = -3;

/// Error class: the configuration is wrong; not tried again until it changes.
pub const CLASS_CONFIG: u32 = 1;
/// Error class: the other side refused the login; tried again slowly.
pub const CLASS_AUTH: u32 = 2;
/// Error class: network failure; tried again with back-off.
pub const CLASS_NETWORK: u32 = 3;
/// Error class: the other side misbehaved or closed; tried again with back-off.
pub const CLASS_REMOTE: u32 = 4;
/// Error class: fault of the driver or host.
pub const CLASS_INTERNAL: u32 = 5;
/// Error class: the driver panicked.
pub const CLASS_PANIC: u32 = 6;

/// Borrowed UTF-8 text, valid for the call only. `ptr` may be null when `len` is 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastStr {
    /// First byte.
    pub ptr: *const u8,
    /// Bytes.
    pub len: usize,
}

impl SatcastStr {
    /// Borrows `text` for the duration of a call.
    pub const fn new(text: &str) -> Self {
        Self { ptr: text.as_ptr(), len: text.len() }
    }
}

/// One field of a log line.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastKv {
    /// Field name.
    pub key: SatcastStr,
    /// Value as text.
    pub value: SatcastStr,
}

/// An error: the reason, whether to try again, and when.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastError {
    /// Size of this struct in bytes.
    pub size: u32,
    /// `CLASS_*`.
    pub error_class: u32,
    /// Minimum wait before the next try in milliseconds; 0 = the host decides.
    pub retry_ms: u32,
    /// Zero.
    pub reserved: u32,
    /// One sentence for the owner of the destination, without secrets.
    pub message: SatcastStr,
}

/// Takes the error of a call. A null sink ignores it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastErrorSink {
    /// Passed back to `put`.
    pub data: *mut c_void,
    /// `[any]`, during the call that received the sink, at most once. Copies before it returns. May be null.
    pub put: Option<unsafe extern "C" fn(data: *mut c_void, error: *const SatcastError)>,
}

/// Takes a text from a function.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastTextSink {
    /// Passed back to `put`.
    pub data: *mut c_void,
    /// During the call that received the sink, at most once unless that call allows more. Copies before it returns.
    pub put: Option<unsafe extern "C" fn(data: *mut c_void, text: SatcastStr)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver_state::State;
    use crate::http::Method;
    use crate::{Audience, Class, Codec, Kind};

    #[test]
    fn the_magic_is_readable_in_a_dump() {
        assert_eq!(&MAGIC.to_le_bytes(), b"SATCAST\x01");
    }

    #[test]
    fn the_types_have_the_numbers_of_the_table() {
        let codecs = [CODEC_H264, CODEC_HEVC, CODEC_AV1, CODEC_AAC, CODEC_OPUS];
        assert_eq!(Codec::ALL.map(|codec| codec as u32), codecs);
        assert_eq!([Kind::Video as u32, Kind::Audio as u32], [KIND_VIDEO, KIND_AUDIO]);
        let classes = [CLASS_CONFIG, CLASS_AUTH, CLASS_NETWORK, CLASS_REMOTE, CLASS_INTERNAL, CLASS_PANIC];
        assert_eq!(classes.map(|class| Class::from_number(class) as u32), classes);
        assert_eq!([State::Connecting as u32, State::Live as u32], [STATE_CONNECTING, STATE_LIVE]);
        assert_eq!([Method::Get as u32, Method::Head as u32], [HTTP_GET, HTTP_HEAD]);
        let audiences = [Audience::Hosted as u32, Audience::Preview as u32];
        assert_eq!(audiences, [AUDIENCE_HOSTED, AUDIENCE_PREVIEW]);
    }
}
