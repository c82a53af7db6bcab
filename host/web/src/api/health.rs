//! How good a live stream is, as its owner sees it.

use poem_openapi::{Enum, Object};

use super::app::App;
use super::null::Null;
use satcast_core::ids::StreamId;
use satcast_live::{self as live, IssueCode};

/// What comes from the encoder, and what of it the platforms of this stream do not take.
#[derive(Clone, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct StreamHealth {
    /// The pictures; null when none come.
    video: Null<VideoHealth>,
    /// The sound; null when none comes.
    audio: Null<AudioHealth>,
    /// Times that the encoder's clock jumped in this session.
    timestamp_jumps: u64,
    /// What is wrong; empty when nothing is. An issue is shown once it has lasted for some seconds.
    issues: Vec<HealthIssue>,
}

/// The pictures as they come; figures are those of the last seconds, and null until there are some.
#[derive(Clone, Object)]
#[oai(rename_all = "camelCase")]
struct VideoHealth {
    /// `h264`, `hevc` or `av1`.
    codec: String,
    /// Width in pixels; null until the encoder has said it.
    width: Null<u32>,
    /// Height in pixels; null until the encoder has said it.
    height: Null<u32>,
    /// Pictures a second.
    frame_rate: Null<f64>,
    /// Bits per second.
    bitrate: Null<u64>,
    /// Longest distance of the last keyframes in seconds.
    keyframe_interval_seconds: Null<f64>,
    /// Pictures come in another order than they are shown in.
    b_frames: bool,
}

/// The sound as it comes; figures are those of the last seconds, and null until there are some.
#[derive(Clone, Object)]
#[oai(rename_all = "camelCase")]
struct AudioHealth {
    /// `aac` or `opus`.
    codec: String,
    /// Samples per second; null until the encoder has said it.
    sample_rate: Null<u32>,
    /// Channels; null until the encoder has said it.
    channels: Null<u8>,
    /// Bits per second.
    bitrate: Null<u64>,
}

/// What is wrong, as a name that does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[oai(rename = "HealthIssueCode", rename_all = "snake_case")]
enum Code {
    /// The encoder is connected, but nothing comes.
    NothingArrives,
    /// No pictures come.
    VideoMissing,
    /// No sound comes.
    AudioMissing,
    /// A platform does not take the video codec.
    VideoCodec,
    /// A platform does not take the audio codec.
    AudioCodec,
    /// Keyframes are further apart than a platform takes.
    KeyframeInterval,
    /// More bits of video than a platform takes.
    VideoBitrate,
    /// More bits of audio than a platform takes.
    AudioBitrate,
    /// More pictures a second than a platform takes.
    FrameRate,
    /// A platform does not take B-frames.
    BFrames,
    /// The encoder's clock jumped within the last minute.
    TimestampJumps,
}

impl From<IssueCode> for Code {
    fn from(code: IssueCode) -> Self {
        match code {
            IssueCode::NothingArrives => Code::NothingArrives,
            IssueCode::VideoMissing => Code::VideoMissing,
            IssueCode::AudioMissing => Code::AudioMissing,
            IssueCode::VideoCodec => Code::VideoCodec,
            IssueCode::AudioCodec => Code::AudioCodec,
            IssueCode::KeyframeInterval => Code::KeyframeInterval,
            IssueCode::VideoBitrate => Code::VideoBitrate,
            IssueCode::AudioBitrate => Code::AudioBitrate,
            IssueCode::FrameRate => Code::FrameRate,
            IssueCode::BFrames => Code::BFrames,
            IssueCode::TimestampJumps => Code::TimestampJumps,
        }
    }
}

/// Something that is wrong with a stream.
#[derive(Clone, Object)]
struct HealthIssue {
    /// What is wrong, as a name that does not change.
    code: Code,
    /// The figure, and who wants what.
    text: String,
    /// Destination types of this stream that it breaks; empty when it is bad for everyone.
    platforms: Vec<String>,
}

impl StreamHealth {
    /// That of a stream; `None` unless its encoder is there.
    pub(super) fn of(app: &App, stream: StreamId) -> Option<Self> {
        let live::Health { figures, issues } = app.live.health(stream)?;
        let issue = |issue: live::Issue| HealthIssue {
            code: issue.code.into(),
            text: issue.text,
            platforms: issue.platforms,
        };
        Some(Self {
            video: figures.video.map(video).into(),
            audio: figures.audio.map(audio).into(),
            timestamp_jumps: figures.timestamp_jumps,
            issues: issues.into_iter().map(issue).collect(),
        })
    }
}

fn video(video: live::VideoHealth) -> VideoHealth {
    VideoHealth {
        codec: video.codec.to_owned(),
        width: video.size.map(|(width, _)| width).into(),
        height: video.size.map(|(_, height)| height).into(),
        frame_rate: video.frame_rate.map(hundredths).into(),
        bitrate: video.bitrate.into(),
        keyframe_interval_seconds: video.keyframe_interval.map(hundredths).into(),
        b_frames: video.b_frames,
    }
}

fn audio(audio: live::AudioHealth) -> AudioHealth {
    AudioHealth {
        codec: audio.codec.to_owned(),
        sample_rate: audio.sample_rate.into(),
        channels: audio.channels.into(),
        bitrate: audio.bitrate.into(),
    }
}

fn hundredths(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use poem_openapi::types::ToJSON;
    use serde_json::json;

    use super::*;

    #[test]
    fn codes_have_the_same_name_everywhere() {
        for code in IssueCode::ALL {
            assert_eq!(Code::from(code).to_json(), Some(json!(code.as_str())));
        }
    }
}
