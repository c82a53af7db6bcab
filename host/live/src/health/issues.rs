//! The health issues of a stream, by code.

use satcast_media::Kind;
use satcast_media::flv::ForeignCodec;

/// Stable code of an issue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IssueCode {
    /// The encoder is connected but sends nothing.
    NothingArrives,
    /// No video arrives.
    VideoMissing,
    /// No audio arrives.
    AudioMissing,
    /// A platform does not accept the video codec.
    VideoCodec,
    /// A platform does not accept the audio codec.
    AudioCodec,
    /// Keyframes are too far apart.
    KeyframeInterval,
    /// The video bitrate is higher than a platform accepts.
    VideoBitrate,
    /// The audio bitrate is higher than a platform accepts.
    AudioBitrate,
    /// The frame rate is higher than a platform accepts.
    FrameRate,
    /// A platform does not accept B-frames.
    BFrames,
    /// The encoder's clock jumped.
    TimestampJumps,
    /// The slate differs from the encoder's media, and is not shown.
    SlateMismatch,
}

impl IssueCode {
    /// Every code, in the order in which issues are shown.
    pub const ALL: [IssueCode; 12] = [
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
        IssueCode::SlateMismatch,
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
            IssueCode::SlateMismatch => "slate_mismatch",
        }
    }
}

/// A health issue of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    pub code: IssueCode,
    /// One sentence for users: the measurement, and the requirement of each platform.
    pub text: String,
    /// Affected destination types of this stream; empty when the issue affects all.
    pub platforms: Vec<String>,
}

impl Issue {
    /// A track is left out because its codec is not supported.
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
