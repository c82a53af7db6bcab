//! Pure segmenter: packets in, initialization and media segments out.
//!
//! [`Segmenter`] cuts segments of about [`SEGMENT_NANOS`] at keyframes. It holds all packets until the groups of the first segment
//! are known and says the target duration then ([`Event::Started`]): no EXTINF may round to more
//! (RFC 8216, 4.3.3.1). A later group that is longer raises the target, once, to [`TARGET_SECONDS_MAX`]
//! ([`Event::TargetRaised`]), because a segment that does not start with a keyframe is worse: engines fail to
//! start at it or show a frozen picture. Only a group that is too long for that one as well is cut at a picture
//! that is no keyframe, and the segment is marked. Audio goes to the segment whose presentation time it has.
//!
//! A discontinuity comes with every change of a configuration record's bytes, of the set of tracks, after
//! [`Segmenter::gap`], at a jump of the time stamps, and where pictures are missing up to a keyframe and their
//! group would be too long with the hole in it. Decode times go on rising across it. The pictures before it that have no sound
//! of their own, as the last one may be a keyframe, stay with the segment before as far as its target allows.
//!
//! With parts ([`Segmenter::with_parts`]) pieces of about half a second of the open segment are out before it is whole, and the
//! segment is made of them, one after the other. They end between pictures, keyframe or not, and carry the sound that has come
//! by then. What is out cannot be cut otherwise any more, so that segments may end earlier, at a keyframe behind which the
//! longest group seen would not fit.
//!
//! Not here: I/O and clocks (the caller gives the wall time with each packet).

mod audio;
mod builder;
mod emit;
mod epoch;
mod parts;
mod probe;
mod segmenter;
#[cfg(test)]
mod tests;
mod video;

use bytes::Bytes;

pub use parts::PART_TARGET_NANOS_MAX;
pub use segmenter::Segmenter;

use crate::Kind;
use crate::fmp4::{Fmp4Error, TrackConfig};
use std::sync::Arc;

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// Length that segments should have, in nanoseconds.
pub const SEGMENT_NANOS: i64 = 2 * NANOS_PER_SECOND;
/// From this length on a segment ends at the next keyframe, in nanoseconds.
pub const SEGMENT_NANOS_MIN: i64 = 1_750_000_000;
/// Smallest target duration in seconds.
pub const TARGET_SECONDS_MIN: u32 = 2;
/// Largest target duration in seconds.
pub const TARGET_SECONDS_MAX: u32 = 10;
/// What a segment may be longer than the target, in nanoseconds: it still rounds to the target.
pub const TARGET_EXCESS_NANOS: i64 = 490_000_000;
/// Packets held before the target duration is fixed.
pub const HELD_PACKETS_MAX: usize = 8192;
/// Payload bytes held before the target duration is fixed.
pub const HELD_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Sound without any picture that makes a session audio only, in nanoseconds.
pub const AUDIO_ONLY_NANOS: i64 = 3 * NANOS_PER_SECOND;
/// Sound after the last picture that makes a session with video audio only, in nanoseconds.
pub const VIDEO_LOST_NANOS: i64 = 10 * NANOS_PER_SECOND;
/// Pictures after the last sound from which a segment no longer promises sound, in nanoseconds.
pub const AUDIO_LOST_NANOS: i64 = 3 * NANOS_PER_SECOND;
/// Step back in decode time that is a jump and not disorder, in nanoseconds.
pub const JUMP_BACK_NANOS: i64 = NANOS_PER_SECOND;
/// Step in decode time to a keyframe from which pictures are missing before it, in nanoseconds.
pub const PICTURES_LOST_NANOS: i64 = NANOS_PER_SECOND;
/// How long a finished segment waits for its last sound, in nanoseconds of video.
pub const AUDIO_WAIT_NANOS: i64 = NANOS_PER_SECOND;
/// Audio packets kept while a keyframe is waited for.
pub const WAITING_AUDIO_PACKETS_MAX: usize = 128;
/// Silence inside a session of sound only that is a jump, in nanoseconds; less is part of the sample before.
pub const AUDIO_GAP_NANOS_MAX: i64 = 300_000_000;
/// One access unit in bytes.
pub const SAMPLE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Times beyond this, either way, are refused, in nanoseconds (36 years).
pub const TIME_NANOS_MAX: i64 = 1 << 60;

/// Shortest that parts may be asked for, in nanoseconds.
pub const PART_NANOS_MIN: i64 = 100_000_000;

/// What the segmenter tells.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// First event, once: the target duration of the session in seconds.
    Started {
        /// [`TARGET_SECONDS_MIN`] to [`TARGET_SECONDS_MAX`].
        target_seconds: u32,
    },
    /// The target duration from now on, in seconds; at most once, and before the first segment that needs it.
    TargetRaised {
        /// [`TARGET_SECONDS_MAX`].
        target_seconds: u32,
    },
    /// A new initialization segment; comes before the first segment that needs it.
    Init(Init),
    /// A part of the segment that is being made; only with [`Segmenter::with_parts`].
    Part(Part),
    /// A finished segment.
    Segment(Segment),
    /// A track cannot be packaged until its encoder sends another configuration record.
    TrackRefused {
        /// The track.
        kind: Kind,
        /// Why, without any bytes of the record.
        error: Fmp4Error,
    },
}

/// Initialization segment of one configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Init {
    /// Counts up from 0 within the session.
    pub id: u32,
    /// `ftyp` and `moov`.
    pub bytes: Bytes,
    /// Video track.
    pub video: Option<Arc<TrackConfig>>,
    /// Audio track.
    pub audio: Option<Arc<TrackConfig>>,
}

/// A finished segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Media sequence number; rises by one with each segment.
    pub sequence: u64,
    /// Initialization segment it needs.
    pub init_id: u32,
    /// Duration in nanoseconds on the presentation time line: from its start to the start of what follows.
    pub duration_ns: i64,
    /// It starts with a keyframe, or has sound only.
    pub independent: bool,
    /// It does not continue the segment before.
    pub discontinuity: bool,
    /// Wall time of its start in milliseconds since 1970.
    pub program_date_time_ms: i64,
    /// What is to be added to its decode times to have those of its packets, in nanoseconds.
    pub offset_ns: i64,
    /// Pictures in it.
    pub video_samples: u32,
    /// `styp`, `moof` and `mdat`, for each part if it has any.
    pub bytes: Bytes,
}

/// A part of a segment that is not finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Media sequence number that its segment will have.
    pub sequence: u64,
    /// Its place in the segment, from 0 on.
    pub index: u32,
    /// Initialization segment it needs.
    pub init_id: u32,
    /// Duration in nanoseconds on the presentation time line; those of all parts are that of the segment.
    pub duration_ns: i64,
    /// It starts with a keyframe, or has sound only.
    pub independent: bool,
    /// The last of its segment, which is the next event: to be listed with it, as only the last may be short.
    pub is_last: bool,
    /// Its segment does not continue the one before.
    pub discontinuity: bool,
    /// Wall time of the start of its segment in milliseconds since 1970.
    pub program_date_time_ms: i64,
    /// `styp`, `moof` and `mdat`.
    pub bytes: Bytes,
}

/// What became of the packets; configuration records are not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SegmenterStats {
    /// Access units given.
    pub samples_in: u64,
    /// Access units in finished segments.
    pub samples_out: u64,
    /// Access units left out: before a keyframe, of a refused or changing track, lost with a gap, too early.
    pub samples_dropped: u64,
    /// Segments cut at a picture that is no keyframe.
    pub overlong_groups: u64,
    /// Times the audio clock and the packets were more than [`crate::fmp4::AUDIO_RESYNC_MILLIS`] apart.
    pub audio_resyncs: u64,
    /// Configuration records refused.
    pub records_refused: u64,
}
