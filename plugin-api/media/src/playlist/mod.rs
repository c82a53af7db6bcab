//! HLS playlists (RFC 8216 and its successor draft-pantos-hls-rfc8216bis): text only, no I/O.
//!
//! [`MediaPlaylist`] has the DVR window, [`PreviewPlaylist`] has groups of three segments over a short window,
//! and [`Multivariant`] has one entry with the codecs and rates, which [`Rates`] measures. File names
//! are relative, contain no key, and are the same for every viewer: [`segment_name`], [`part_name`],
//! [`init_name`], [`preview_name`].

mod date;
mod media;
mod multivariant;
mod parts;
mod preview;
mod rates;
mod render;
#[cfg(test)]
mod tests;

pub use date::program_date_time;
pub use media::{Entry, MediaPlaylist};
pub use multivariant::Multivariant;
pub use parts::{PartEntry, PartRules};
pub use preview::{PreviewGroup, PreviewPlaylist};
pub use rates::Rates;

/// EXT-X-VERSION of playlists without parts: EXT-X-MAP outside of I-frame playlists needs 6 (RFC 8216, section 7), and
/// players refuse 11 and more.
pub const VERSION: u32 = 7;
/// EXT-X-VERSION of media playlists with parts: EXT-X-SKIP needs 9 (RFC 8216bis, section 8).
pub const PARTS_VERSION: u32 = 9;
/// HOLD-BACK in target durations, and the smallest PART-HOLD-BACK in part target durations (RFC 8216bis, 4.4.3.8).
pub const HOLD_BACK_TARGETS: u32 = 3;
/// CAN-SKIP-UNTIL in target durations (RFC 8216bis, 4.4.3.8).
pub const SKIP_TARGETS: u32 = 6;
/// Number of newest complete segments whose parts are listed. Together with the parts of the open segment, all listed parts are within
/// three target durations of the end (RFC 8216bis, 4.4.4.9).
pub const PARTED_SEGMENTS: usize = 2;
/// Longest window in seconds.
pub const WINDOW_SECONDS_MAX: u32 = 3600;
/// Shortest window, in target durations (RFC 8216, 6.2.2: at least three must stay after a removal).
pub const WINDOW_TARGETS_MIN: u32 = 3;
/// Most entries of one playlist, independent of their durations.
pub const ENTRIES_MAX: usize = 4096;
/// Window of a preview playlist in seconds.
pub const PREVIEW_WINDOW_SECONDS: u32 = 60;
/// Segments in one entry of a preview playlist.
pub const PREVIEW_GROUP_SEGMENTS: usize = 3;
/// Name of the missing segment (EXT-X-GAP) of a playlist with parts alone; there is no such file.
pub const GAP_NAME: &str = "gap.m4s";
/// Longest file name, in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// Reasons for which an entry is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlaylistError {
    /// The media sequence number is not the last one plus one.
    #[error("segment {given} cannot follow segment {last}; list every segment in order")]
    Sequence {
        /// Last listed sequence number.
        last: u64,
        /// Refused sequence number.
        given: u64,
    },
    /// The duration rounds to more than the target duration, or is not positive.
    #[error("segment of {duration_ns} ns does not fit the target duration of {target_seconds} s")]
    Duration {
        /// Duration of the segment.
        duration_ns: i64,
        /// Target duration of the playlist.
        target_seconds: u32,
    },
    /// A name that is empty, too long, or has characters that are not allowed in a playlist line.
    #[error("file name cannot stand in a playlist; use letters, digits, dots, dashes and underscores")]
    Name,
    /// The playlist has ended.
    #[error("segment cannot be listed after the end of its playlist")]
    Ended,
}

/// Name of a media segment.
pub fn segment_name(sequence: u64) -> String {
    format!("{sequence}.m4s")
}

/// Name of a part, from the first media sequence number of its session and a number that counts up across segments. The name
/// of the next part is therefore known before its segment is known.
pub fn part_name(first: u64, number: u64) -> String {
    format!("l{first}-{number}.m4s")
}

/// Name of an initialization segment; `first` is the first media sequence number of its session, which makes the name
/// unique among all sessions under one URL.
pub fn init_name(first: u64, id: u32) -> String {
    format!("i{first}-{id}.mp4")
}

/// Name of a preview segment: `count` concatenated media segments from `first` on.
pub fn preview_name(first: u64, count: usize) -> String {
    format!("p{first}-{count}.m4s")
}

/// Rounded to the nearest second, halves up (RFC 8216, 4.3.3.1).
fn rounded_seconds(duration_ns: i64) -> i64 {
    (duration_ns + 500_000_000).div_euclid(1_000_000_000)
}

fn name_is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_/".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain)
}
