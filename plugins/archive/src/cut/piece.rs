//! What the cutter gives out, and its limits.

use std::sync::Arc;

use bytes::Bytes;
use satcast_media::Kind;
use satcast_media::fmp4::{Fmp4Error, TrackConfig};

pub(crate) const NANOS_PER_SECOND: i64 = 1_000_000_000;
/// Length of a fragment in nanoseconds. With the picture that waits for its duration, less than a second is not written.
pub(crate) const FRAGMENT_NANOS: i64 = 900_000_000;
/// Sound without any picture that begins a file of sound alone, in nanoseconds.
pub(crate) const AUDIO_ONLY_NANOS: i64 = 3 * NANOS_PER_SECOND;
/// A step back in decode time that is a jump and not disorder, in nanoseconds.
pub(crate) const JUMP_BACK_NANOS: i64 = NANOS_PER_SECOND;
/// A step ahead that begins another file, in nanoseconds: longer than an encoder may be away and come back.
pub(crate) const JUMP_AHEAD_NANOS: i64 = 310 * NANOS_PER_SECOND;
/// Sound that is older does not begin a file for its sake, in nanoseconds.
pub(crate) const AUDIO_RECENT_NANOS: i64 = 3 * NANOS_PER_SECOND;
/// Packets of sound kept while a keyframe is waited for.
pub(crate) const WAITING_PACKETS_MAX: usize = 256;
/// One access unit in bytes.
pub(crate) const SAMPLE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Times beyond this, either way, are refused, in nanoseconds (36 years).
pub(crate) const TIME_NANOS_MAX: i64 = 1 << 60;

/// What comes out, in this order: `Begin`, `Fragment`s, the next `Begin`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Piece {
    /// A new file begins.
    Begin {
        /// Its first bytes (`ftyp` and `moov`).
        init: Bytes,
        /// Its time 0 on the session's time line, in nanoseconds.
        base_ns: i64,
    },
    /// The next bytes of the file.
    Fragment {
        /// `styp`, `moof`, `mdat`.
        bytes: Bytes,
        /// Length of the file so far in nanoseconds.
        end_ns: i64,
    },
    /// A track cannot be recorded until its encoder sends another configuration record.
    TrackRefused(Kind, Fmp4Error),
}

/// The same record, read twice or once.
pub(super) fn is_same(one: &Arc<TrackConfig>, other: &Arc<TrackConfig>) -> bool {
    Arc::ptr_eq(one, other) || one == other
}
