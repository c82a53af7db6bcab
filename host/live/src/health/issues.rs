//! What may be wrong with a stream, by name.

use satcast_media::Kind;
use satcast_media::flv::ForeignCodec;

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
