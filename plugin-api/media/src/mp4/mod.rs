//! Ordinary MP4 files (ISO/IEC 14496-12: `moov` before or behind the media, no fragments), read into packets.
//!
//! The file is untrusted: nothing is allocated for a count before its bytes are seen, tables are walked once, and every sample
//! lies inside the file. Boxes that are not needed are skipped.

mod entry;
#[doc(hidden)]
pub mod made;
mod tables;

use bytes::Bytes;

use self::tables::Track;
use crate::fmp4::{BoxHeader, TrackConfig};
use crate::{Kind, NANOS_PER_MILLI, Packet};

/// Most samples of a file, all tracks together; each takes less than 200 bytes of memory.
pub const SAMPLES_MAX: usize = 32_768;
/// Shortest video that is read, in milliseconds.
pub const LENGTH_MILLIS_MIN: i64 = 500;
/// Longest track that is read, in milliseconds.
pub const LENGTH_MILLIS_MAX: i64 = 120_000;
/// Most milliseconds that an edit list may hide at the begin or the end of a track, such as the priming of audio, or leave empty
/// before it. What is hidden is played: nothing is encoded again.
pub const HIDDEN_MILLIS_MAX: i64 = 250;
/// Largest distance between the ends of audio and video, in milliseconds.
pub const APART_MILLIS_MAX: i64 = 500;

/// Highest average bit rate of a file, in bits per second.
pub const BIT_RATE_MAX: i64 = 50_000_000;
/// Most frames per second on average, audio and video together.
pub const FRAMES_PER_SECOND_MAX: i64 = 1_000;

/// Reasons for which a file is not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mp4Error {
    /// No `moov`, or boxes that do not fit into each other.
    #[error("the file is not an MP4 that can be read: {0}")]
    NotMp4(&'static str),
    /// The media is in fragments.
    #[error("the MP4 is fragmented; write it as an ordinary file (ffmpeg: -movflags +faststart)")]
    Fragmented,
    /// No video track.
    #[error("the MP4 has no video")]
    NoVideo,
    /// Two tracks of one kind, or a track with two codec configurations.
    #[error(
        "the MP4 has more than one {0}; keep one video and at most one audio track with one setting each"
    )]
    Several(&'static str),
    /// A codec that is not relayed, by the code of its sample entry; or one whose configuration cannot be read.
    #[error("the {0} codec of the MP4 is not supported ({1}); use H.264, HEVC or AV1, with AAC or Opus")]
    Codec(&'static str, String),
    /// Video with 4:2:2 or 4:4:4, or more than 8 bits, which not every player decodes.
    #[error(
        "not every player takes the pixel format of the video; encode it with 4:2:0 and 8 bits (ffmpeg: -pix_fmt yuv420p)"
    )]
    PixelFormat,
    /// The first frame is no keyframe.
    #[error("the video does not begin with a keyframe; encode it again, or cut it at a keyframe")]
    FirstFrame,
    /// An edit list that hides media, or plays it at another rate.
    #[error("the MP4 has an edit list that cuts, repeats or delays media; export it again without edits")]
    Edits,
    /// Under [`LENGTH_MILLIS_MIN`] or over [`LENGTH_MILLIS_MAX`].
    #[error("the media lasts {0} ms; it must last {LENGTH_MILLIS_MIN} to {LENGTH_MILLIS_MAX} ms")]
    Length(i64),
    /// Audio and video end, or begin, more than [`APART_MILLIS_MAX`] apart.
    #[error("audio and video of the MP4 differ by {0} ms in length; make them equal (ffmpeg: -shortest)")]
    Apart(i64),
    /// More than [`SAMPLES_MAX`] samples.
    #[error("the MP4 has more than {SAMPLES_MAX} frames; make it shorter")]
    Samples,
    /// Over [`BIT_RATE_MAX`] or [`FRAMES_PER_SECOND_MAX`].
    #[error(
        "the MP4 has more than {} Mbit/s or more than {FRAMES_PER_SECOND_MAX} frames in a second; encode it with a lower rate",
        BIT_RATE_MAX / 1_000_000
    )]
    Rate,
}

/// Media of a file.
#[derive(Debug, Clone)]
pub struct Movie {
    /// The tracks, video first.
    pub tracks: Vec<TrackConfig>,
    /// Frames per second, on average.
    pub frame_rate: f64,
    /// Access units by rising decode time; those of one track stay in order. Each payload is a slice of the file.
    pub packets: Vec<Packet>,
    /// Length of the longest track in nanoseconds: the media can begin again after it, and no time of a track goes back.
    pub length_ns: i64,
}

impl Movie {
    /// Reads a whole file.
    ///
    /// # Errors
    /// Any [`Mp4Error`].
    pub fn read(file: &Bytes) -> Result<Self, Mp4Error> {
        let moov = moov(file)?;
        if child(moov, b"mvex").is_some() {
            return Err(Mp4Error::Fragmented);
        }
        let mvhd = child(moov, b"mvhd").ok_or(Mp4Error::NotMp4("it has no movie header"))?;
        let movie_scale = timescale(mvhd)?;
        let mut tracks: Vec<Track> = Vec::new();
        for (_, trak) in children(moov).filter(|(kind, _)| kind == b"trak") {
            let Some(track) = Track::read(trak, movie_scale, file)? else { continue };
            if tracks.iter().any(|known| known.kind() == track.kind()) {
                return Err(Mp4Error::Several(name(track.kind())));
            }
            tracks.push(track);
            if tracks.iter().map(|track| track.packets.len()).sum::<usize>() > SAMPLES_MAX {
                return Err(Mp4Error::Samples);
            }
        }
        tracks.sort_by_key(|track| track.kind() == Kind::Audio);
        Self::of(tracks)
    }

    fn of(tracks: Vec<Track>) -> Result<Self, Mp4Error> {
        let video = tracks.first().filter(|track| track.kind() == Kind::Video).ok_or(Mp4Error::NoVideo)?;
        let first = video.packets.first().ok_or(Mp4Error::NoVideo)?;
        if !first.keyframe {
            return Err(Mp4Error::FirstFrame);
        }
        let length_ns = tracks.iter().map(Track::length_ns).max().unwrap_or(0);
        for length in [video.length_ns(), length_ns] {
            if !(LENGTH_MILLIS_MIN..=LENGTH_MILLIS_MAX).contains(&(length / NANOS_PER_MILLI)) {
                return Err(Mp4Error::Length(length / NANOS_PER_MILLI));
            }
        }
        for other in &tracks[1..] {
            let begins = first.dts_ns.abs_diff(other.packets.first().map_or(0, |packet| packet.dts_ns));
            let ends = video.end_ns.abs_diff(other.end_ns);
            let apart = i64::try_from(begins.max(ends)).unwrap_or(i64::MAX) / NANOS_PER_MILLI;
            if apart > APART_MILLIS_MAX {
                return Err(Mp4Error::Apart(apart));
            }
        }
        let frame_rate = video.packets.len() as f64 * 1e9 / video.length_ns() as f64;
        let (configs, media): (Vec<_>, Vec<_>) =
            tracks.into_iter().map(|track| (track.config, track.packets)).unzip();
        let mut packets: Vec<Packet> = media.into_iter().flatten().collect();
        // The sort is stable: video comes first at the same time.
        packets.sort_by_key(|packet| packet.dts_ns);
        let millis = length_ns / NANOS_PER_MILLI;
        let bits = 8 * packets.iter().map(|packet| packet.payload.len() as i64).sum::<i64>();
        if bits * 1_000 > BIT_RATE_MAX * millis
            || packets.len() as i64 * 1_000 > FRAMES_PER_SECOND_MAX * millis
        {
            return Err(Mp4Error::Rate);
        }
        Ok(Self { tracks: configs, frame_rate, packets, length_ns })
    }

    /// The codec configurations, video first.
    pub fn configs(&self) -> impl Iterator<Item = Packet> {
        self.tracks.iter().map(|track| Packet::configuration(track.codec(), track.record().clone()))
    }
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Video => "video track",
        Kind::Audio => "audio track",
    }
}

/// What is inside the `moov` of a file.
fn moov(file: &[u8]) -> Result<&[u8], Mp4Error> {
    if let Some(moov) = child(file, b"moov") {
        return Ok(moov);
    }
    match child(file, b"moof") {
        Some(_) => Err(Mp4Error::Fragmented),
        None => Err(Mp4Error::NotMp4("it has no complete movie box")),
    }
}

/// Kind and content of each complete box in these bytes, up to the first one that is cut off.
fn children(mut bytes: &[u8]) -> impl Iterator<Item = ([u8; 4], &[u8])> {
    std::iter::from_fn(move || {
        let header = BoxHeader::parse(bytes)?;
        // A 64-bit size adds eight bytes to the header.
        let begin = if bytes.starts_with(&[0, 0, 0, 1]) { 16 } else { 8 };
        let end = usize::try_from(header.bytes).ok()?;
        let content = bytes.get(begin..end)?;
        bytes = &bytes[end..];
        Some((header.kind, content))
    })
}

fn child<'a>(bytes: &'a [u8], kind: &[u8; 4]) -> Option<&'a [u8]> {
    children(bytes).find(|(own, _)| own == kind).map(|(_, content)| content)
}

/// Content of the box at the end of a path.
fn inside<'a>(bytes: &'a [u8], path: &[&[u8; 4]]) -> Option<&'a [u8]> {
    path.iter().try_fold(bytes, |bytes, kind| child(bytes, kind))
}

/// Ticks per second in a movie header or media header (8.2.2, 8.4.2), never 0.
fn timescale(header: &[u8]) -> Result<u32, Mp4Error> {
    // Version and flags, then two times of 32 or, in version 1, of 64 bits.
    let at = if header.first() == Some(&1) { 20 } else { 12 };
    number(header, at).filter(|scale| *scale > 0).ok_or(Mp4Error::NotMp4("a track has no time scale"))
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|four| u32::from_be_bytes(*four))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|eight| u64::from_be_bytes(*eight))
}

#[cfg(test)]
mod tests;
