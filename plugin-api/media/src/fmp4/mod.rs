//! Fragmented MP4 (ISO/IEC 14496-12, CMAF style): initialization segments and media segments.
//!
//! [`TrackConfig`] turns a codec configuration into a sample entry and the track details for playlists,
//! [`init_segment`] writes `ftyp` and `moov`, [`media_segment`] one `styp`, `moof` and `mdat`. [`AudioClock`]
//! counts samples, [`Reach`] finds the end of a file of such segments, and [`Reader`] reads their packets back. [`ClipSource`]
//! cuts an ordinary MP4 out of such segments. The rules of playlists and keyframes are not here but in [`crate::segment`].
//!
//! Times: video runs at [`VIDEO_TIMESCALE`], audio at its sample rate. Segments have no edit list: with B-frames
//! the first frame is presented a few frames after decode time 0, and Opus pre-skip is only announced in
//! `dOps`.

mod clip;
mod clock;
mod fragment;
mod in_band;
mod init;
mod poster;
mod read;
mod scan;
mod track;

pub use clip::{CLIP_BYTES_MAX, CLIP_SAMPLES_MAX, Clip, ClipSource, MOOF_BYTES_MAX, SourceRange};
pub use clock::{AudioClock, Placed, opus_samples};
pub use clock::{nanos_to_ticks, ticks_to_nanos};
pub use fragment::{Sample, TrackRun, media_segment, write_fragment};
pub use in_band::InBand;
pub use init::init_segment;
pub use poster::{FirstFrame, first_frame, first_poster, poster};
pub use read::{INIT_BYTES_MAX, READ_BYTES_MAX, ReadSegment, Reader};
pub(crate) use read::{opus_head, signed_nanos};
pub use scan::{BOX_HEADER_BYTES, BoxHeader, FragmentMedia, Reach};
pub use track::{TrackConfig, TrackDetails, VideoRange};

use crate::codec::CodecError;

/// Ticks per second of video tracks; a millisecond is 90 of them.
pub const VIDEO_TIMESCALE: u32 = 90_000;
/// Track id of the video track.
pub const VIDEO_TRACK_ID: u32 = 1;
/// Track id of the audio track.
pub const AUDIO_TRACK_ID: u32 = 2;
/// Tracks of one rendition: at most one of each kind.
pub const TRACKS_MAX: usize = 2;
/// Most samples of one track in one segment.
pub const SEGMENT_SAMPLES_MAX: usize = 8192;
/// Largest payload of one segment in bytes, all tracks together; 10 s at 50 Mbit/s fit.
pub const SEGMENT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Largest codec configuration in bytes that is accepted for a sample entry.
pub const RECORD_BYTES_MAX: usize = 64 * 1024;
/// Largest distance of presentation time from decode time, in nanoseconds; larger ones are clamped.
pub const COMPOSITION_NANOS_MAX: i64 = 10_000_000_000;
/// Distance of an audio packet's time from the counted time above which the clock resyncs, in milliseconds.
pub const AUDIO_RESYNC_MILLIS: u32 = 100;

/// Reasons for which a track or segment cannot be written or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fmp4Error {
    /// The codec configuration is broken.
    #[error("track cannot be packaged: {0}; the encoder must send a valid configuration record")]
    Record(#[from] CodecError),
    /// The codec configuration is over [`RECORD_BYTES_MAX`].
    #[error("codec configuration record of {0} bytes is over the limit of {RECORD_BYTES_MAX}")]
    RecordTooLong(usize),
    /// A valid codec configuration of a kind that is not packaged.
    #[error("track cannot be packaged: {0}; choose another setting in the encoder")]
    Unsupported(&'static str),
    /// No track, more than [`TRACKS_MAX`], or two of one kind.
    #[error("a segment needs one or two tracks of different kinds; fix the caller")]
    Tracks,
    /// More than [`SEGMENT_SAMPLES_MAX`] samples or [`SEGMENT_BYTES_MAX`] bytes.
    #[error("segment of {samples} samples and {bytes} bytes is over the limit; cut earlier")]
    TooLarge {
        /// Samples of the largest track.
        samples: usize,
        /// Payload bytes of all tracks.
        bytes: usize,
    },
    /// No sample lies in the range of a clip, or no keyframe before its end.
    #[error("there is no media with a keyframe in this range; choose another range")]
    NoMedia,
    /// More than [`CLIP_SAMPLES_MAX`] samples or [`CLIP_BYTES_MAX`] bytes.
    #[error(
        "the clip is over the limit of {CLIP_SAMPLES_MAX} samples or {CLIP_BYTES_MAX} bytes; choose a shorter range"
    )]
    ClipTooLarge,
    /// A box cannot be written or read.
    #[error("mp4 box cannot be written or read: {0}")]
    Box(String),
}

impl From<mp4_atom::Error> for Fmp4Error {
    fn from(error: mp4_atom::Error) -> Self {
        Fmp4Error::Box(error.to_string())
    }
}

#[cfg(test)]
pub(crate) mod tests;
