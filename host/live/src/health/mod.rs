//! How good a stream is: what its encoder sends, and what of it the platforms behind its destinations do not take.
//!
//! - [`gauge`]: figures, taken from packet headers on the encoder's own thread.
//! - [`verdict`]: figures and wishes to named issues.
//! - [`watch`]: which issues are shown and told, so that what flickers is not.
//!
//! All of it is pure: times are arguments. Nothing is enforced: a platform that is asked too much says so itself.

mod gauge;
mod verdict;
mod watch;
mod window;

pub(super) use gauge::Gauge;
pub(super) use verdict::{Wish, judge};
pub use watch::HealthNews;
pub(super) use watch::Watch;

use satcast_media::Kind;
use satcast_media::flv::ForeignCodec;

/// The pictures as they come.
#[derive(Clone, Debug, PartialEq)]
pub struct VideoHealth {
    /// Codec: `h264`, `hevc` or `av1`.
    pub codec: &'static str,
    /// Width and height in pixels; `None` until a configuration was read that says them.
    pub size: Option<(u32, u32)>,
    /// Pictures per second over the last seconds.
    pub frame_rate: Option<f64>,
    /// Bits per second over the last seconds.
    pub bitrate: Option<u64>,
    /// Longest distance of the last keyframes in seconds, the group that is not yet over included.
    pub keyframe_interval: Option<f64>,
    /// Pictures come in another order than they are shown in.
    pub b_frames: bool,
}

/// The sound as it comes.
#[derive(Clone, Debug, PartialEq)]
pub struct AudioHealth {
    /// Codec: `aac` or `opus`.
    pub codec: &'static str,
    /// Samples per second; `None` until a configuration was read that says them.
    pub sample_rate: Option<u32>,
    /// Channels; as `sample_rate`.
    pub channels: Option<u8>,
    /// Bits per second over the last seconds.
    pub bitrate: Option<u64>,
}

/// What comes from the encoder.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// `None` when no pictures come.
    pub video: Option<VideoHealth>,
    /// `None` when no sound comes.
    pub audio: Option<AudioHealth>,
    /// Times that the encoder's clock jumped in this session; its own return is none.
    pub timestamp_jumps: u64,
    /// The last of them was a moment ago.
    pub(super) jumped_lately: bool,
    /// Codecs of tracks that are left out, as nobody here takes them.
    pub(super) foreign: Vec<ForeignCodec>,
    /// Media has come for long enough to say that a track is missing.
    pub(super) is_settled: bool,
    /// Nothing at all came for a while.
    pub(super) is_silent: bool,
}

/// What is wrong, by a name that does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IssueCode {
    /// Nothing comes although the encoder is connected.
    NothingArrives,
    /// No pictures come.
    VideoMissing,
    /// No sound comes.
    AudioMissing,
    /// A platform does not take the video codec.
    VideoCodec,
    /// A platform does not take the audio codec.
    AudioCodec,
    /// Keyframes are too far apart.
    KeyframeInterval,
    /// More bits of video than a platform takes.
    VideoBitrate,
    /// More bits of audio than a platform takes.
    AudioBitrate,
    /// More pictures a second than a platform takes.
    FrameRate,
    /// A platform does not take B-frames.
    BFrames,
    /// The encoder's clock jumped.
    TimestampJumps,
}

impl IssueCode {
    /// Every code, in the order in which issues are shown.
    pub const ALL: [IssueCode; 11] = [
        IssueCode::NothingArrives,
        IssueCode::VideoMissing,
        IssueCode::AudioMissing,
        IssueCode::VideoCodec,
        IssueCode::AudioCodec,
        IssueCode::KeyframeInterval,
        IssueCode::VideoBitrate,
        IssueCode::AudioBitrate,
        IssueCode::FrameRate,
        IssueCode::BFrames,
        IssueCode::TimestampJumps,
    ];

    /// The name in the API and in events.
    pub fn as_str(self) -> &'static str {
        match self {
            IssueCode::NothingArrives => "nothing_arrives",
            IssueCode::VideoMissing => "video_missing",
            IssueCode::AudioMissing => "audio_missing",
            IssueCode::VideoCodec => "video_codec",
            IssueCode::AudioCodec => "audio_codec",
            IssueCode::KeyframeInterval => "keyframe_interval",
            IssueCode::VideoBitrate => "video_bitrate",
            IssueCode::AudioBitrate => "audio_bitrate",
            IssueCode::FrameRate => "frame_rate",
            IssueCode::BFrames => "b_frames",
            IssueCode::TimestampJumps => "timestamp_jumps",
        }
    }
}

/// Something that is wrong with a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// Its name.
    pub code: IssueCode,
    /// One sentence for people: the figure, and who wants what.
    pub text: String,
    /// Destination types of this stream that it breaks; none when it is bad for everyone.
    pub platforms: Vec<String>,
}

impl Issue {
    /// A track is left out for its codec, which nobody here takes.
    pub fn unsupported(codec: ForeignCodec) -> Self {
        let (code, track, instead, option) = match codec.kind {
            Kind::Video => (IssueCode::VideoCodec, "video", "H.264", "-c:v libx264"),
            Kind::Audio => (IssueCode::AudioCodec, "audio", "AAC", "-c:a aac"),
        };
        let text = format!(
            "{track} codec {codec} is not supported; set {instead} in the encoder (ffmpeg: {option})"
        );
        Self { code, text, platforms: Vec::new() }
    }
}

/// A stream's health at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    /// What comes.
    pub figures: Figures,
    /// What is wrong with it.
    pub issues: Vec<Issue>,
}
