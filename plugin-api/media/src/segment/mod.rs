//! Pure segmenter: packets in, initialization and media segments out.
//!
//! [`Segmenter`] cuts segments of about [`SEGMENT_NANOS`] at keyframes. It holds all packets until it knows the GOPs of the
//! first segment, or until packets are lost, and then announces the target duration ([`Event::Started`]): no EXTINF may round
//! to more (RFC 8216, 4.3.3.1). A later, longer GOP raises the target, once, to [`TARGET_SECONDS_MAX`]
//! ([`Event::TargetRaised`]). The alternative is worse: players fail to start at a segment without a keyframe at its
//! start, or show a frozen frame. Only a GOP that exceeds this target too is cut at a frame that is not a
//! keyframe, and the segment is marked. Audio goes to the segment that covers its presentation time. If packets were lost
//! before the first GOP was complete, the target begins as the smallest, and is also raised when a whole GOP is known.
//!
//! A discontinuity follows every change of the bytes of a codec configuration or of the set of tracks,
//! [`Segmenter::gap`], a jump of the timestamps, and frames lost before a keyframe if their GOP would be too long with
//! the hole in it. Decode times keep rising across it. Frames before it that have no audio (the last one may be a
//! keyframe) stay in the segment before, as far as its target allows.
//!
//! With parts ([`Segmenter::with_parts`]) the open segment is emitted in parts of about half a second before it is
//! complete; the segment is their concatenation. A part ends between two frames, keyframe or not, and carries the audio
//! that has arrived by then. An emitted part cannot be cut again. Therefore a segment may end earlier, at a keyframe
//! after which the longest GOP seen so far would not fit. The first parts do not wait for the GOPs of the first segment:
//! the target duration is the smallest at first, and is raised to the length of these GOPs before the first segment.
//!
//! Deliberately absent: I/O and clocks (the caller passes the wall time with each packet).

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

/// Intended length of segments, in nanoseconds.
pub const SEGMENT_NANOS: i64 = 2 * NANOS_PER_SECOND;
/// A segment of at least this length ends at the next keyframe, in nanoseconds.
pub const SEGMENT_NANOS_MIN: i64 = 1_750_000_000;
/// Smallest target duration in seconds.
pub const TARGET_SECONDS_MIN: u32 = 2;
/// Largest target duration in seconds.
pub const TARGET_SECONDS_MAX: u32 = 10;
/// Maximum excess of a segment over the target, in nanoseconds: its duration still rounds to the target.
pub const TARGET_EXCESS_NANOS: i64 = 490_000_000;
/// Packets held before the target duration is fixed.
pub const HELD_PACKETS_MAX: usize = 8192;
/// Payload bytes held before the target duration is fixed.
pub const HELD_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Audio without any video after which a session becomes audio only, in nanoseconds.
pub const AUDIO_ONLY_NANOS: i64 = 3 * NANOS_PER_SECOND;
/// Audio after the last frame after which a session with video becomes audio only, in nanoseconds.
pub const VIDEO_LOST_NANOS: i64 = 10 * NANOS_PER_SECOND;
/// Video after the last audio after which new segments have no audio track, in nanoseconds.
pub const AUDIO_LOST_NANOS: i64 = 3 * NANOS_PER_SECOND;
/// A larger step back in decode time is a jump and not reordering, in nanoseconds.
pub const JUMP_BACK_NANOS: i64 = NANOS_PER_SECOND;
/// From this step in decode time to a keyframe, frames count as lost before it, in nanoseconds.
pub const FRAMES_LOST_NANOS: i64 = NANOS_PER_SECOND;
/// Longest time that a finished segment waits for its last audio, in nanoseconds of video.
pub const AUDIO_WAIT_NANOS: i64 = NANOS_PER_SECOND;
/// Audio packets kept while the segmenter waits for a keyframe.
pub const WAITING_AUDIO_PACKETS_MAX: usize = 128;
/// A longer gap in an audio-only session is a jump, in nanoseconds; a shorter one extends the sample before it.
pub const AUDIO_GAP_NANOS_MAX: i64 = 300_000_000;
/// Largest access unit, in bytes.
pub const SAMPLE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Packets with times beyond this, positive or negative, are refused, in nanoseconds (36 years).
pub const TIME_NANOS_MAX: i64 = 1 << 60;

/// Shortest part duration that a caller may request, in nanoseconds.
pub const PART_NANOS_MIN: i64 = 100_000_000;

/// Output of the segmenter.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// First event, once: the target duration of the session in seconds; with parts the smallest, see
    /// [`Event::TargetRaised`].
    Started {
        /// [`TARGET_SECONDS_MIN`] to [`TARGET_SECONDS_MAX`].
        target_seconds: u32,
    },
    /// New target duration in seconds, before the first segment that needs it; at most once, and with parts also
    /// until the GOPs of the first segment are known.
    TargetRaised {
        /// Higher than the one before, up to [`TARGET_SECONDS_MAX`].
        target_seconds: u32,
    },
    /// A new initialization segment; comes before the first segment that needs it.
    Init(Init),
    /// A part of the open segment; only with [`Segmenter::with_parts`].
    Part(Part),
    /// A finished segment.
    Segment(Segment),
    /// A track cannot be packaged until its encoder sends another codec configuration.
    TrackRefused {
        /// The track.
        kind: Kind,
        /// The reason, without any bytes of the codec configuration.
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
    /// Duration in nanoseconds on the presentation timeline: from its start to the start of the next segment.
    pub duration_ns: i64,
    /// It starts with a keyframe, or has audio only.
    pub independent: bool,
    /// It does not continue the segment before.
    pub discontinuity: bool,
    /// Wall time of its start in milliseconds since 1970.
    pub program_date_time_ms: i64,
    /// Add this to its decode times to get those of its packets, in nanoseconds.
    pub offset_ns: i64,
    /// Video frames in it.
    pub video_samples: u32,
    /// `styp`, `moof` and `mdat`; with parts, once for each part.
    pub bytes: Bytes,
}

/// A part of a segment that is not finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Media sequence number that its segment will have.
    pub sequence: u64,
    /// Index in the segment, from 0.
    pub index: u32,
    /// Initialization segment it needs.
    pub init_id: u32,
    /// Duration in nanoseconds on the presentation timeline; the durations of all parts add up to that of the segment.
    pub duration_ns: i64,
    /// It starts with a keyframe, or has audio only.
    pub independent: bool,
    /// The last of its segment. The segment is the next event; list both together, because only a last part may be short.
    pub is_last: bool,
    /// Its segment does not continue the one before.
    pub discontinuity: bool,
    /// Wall time of the start of its segment in milliseconds since 1970.
    pub program_date_time_ms: i64,
    /// `styp`, `moof` and `mdat`.
    pub bytes: Bytes,
}

/// Counters of packets; codec configurations are not counted as samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SegmenterStats {
    /// Access units passed in.
    pub samples_in: u64,
    /// Access units in finished segments.
    pub samples_out: u64,
    /// Access units dropped: before a keyframe, of a refused or changing track, at a gap, or too early.
    pub samples_dropped: u64,
    /// Segments cut at a frame that is not a keyframe.
    pub overlong_gops: u64,
    /// Times the audio clock and the packets were more than [`crate::fmp4::AUDIO_RESYNC_MILLIS`] apart.
    pub audio_resyncs: u64,
    /// Codec configurations refused.
    pub records_refused: u64,
}
