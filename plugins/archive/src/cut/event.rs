//! Output of the cutter, and its limits.

use std::sync::Arc;

use bytes::Bytes;
use satcast_media::Kind;
use satcast_media::fmp4::{Fmp4Error, TrackConfig};

pub(crate) const NANOS_PER_SECOND: i64 = 1_000_000_000;
/// Length of a fragment in nanoseconds. With the held frame, less than a second is not written.
pub(crate) const FRAGMENT_NANOS: i64 = 900_000_000;
/// Audio without video after which an audio-only file begins, in nanoseconds.
pub(crate) const AUDIO_ONLY_NANOS: i64 = 3 * NANOS_PER_SECOND;
/// A step back in decode time that counts as a jump and not as disorder, in nanoseconds.
pub(crate) const JUMP_BACK_NANOS: i64 = NANOS_PER_SECOND;
/// A step ahead that begins another file, in nanoseconds: longer than the time within which an encoder may reconnect.
pub(crate) const JUMP_AHEAD_NANOS: i64 = 310 * NANOS_PER_SECOND;
/// Audio older than this does not begin a file, in nanoseconds.
pub(crate) const AUDIO_RECENT_NANOS: i64 = 3 * NANOS_PER_SECOND;
/// Audio packets held during the wait for a keyframe.
pub(crate) const WAITING_PACKETS_MAX: usize = 256;
/// Largest access unit in bytes.
pub(crate) const SAMPLE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Largest absolute time that is accepted, in nanoseconds (36 years).
pub(crate) const TIME_NANOS_MAX: i64 = 1 << 60;

/// Output in this order: `Begin`, `Fragment`s, the next `Begin`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CutEvent {
    /// A new file begins.
    Begin {
        /// Its first bytes (`ftyp` and `moov`).
        init: Bytes,
        /// Its time 0 on the session's timeline, in nanoseconds.
        base_ns: i64,
        /// It has no video.
        audio_only: bool,
    },
    /// The next bytes of the file.
    Fragment {
        /// `styp`, `moof`, `mdat`.
        bytes: Bytes,
        /// Length of the file so far in nanoseconds.
        end_ns: i64,
    },
    /// A track cannot be recorded until its encoder sends another codec configuration.
    TrackRefused(Kind, Fmp4Error),
}

/// The same codec configuration, parsed once or twice.
pub(super) fn is_same(one: &Arc<TrackConfig>, other: &Arc<TrackConfig>) -> bool {
    Arc::ptr_eq(one, other) || one == other
}
