//! Health of a live stream, as its owner sees it.

use std::time::Duration;

use poem_openapi::{Enum, Object};

use super::app::App;
use super::null::Null;
use satcast_core::ids::StreamId;
use satcast_live::{self as live, IssueCode, LinkHealth, SrtStats};

/// Measured values of the encoder's media, and problems with it.
#[derive(Clone, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct StreamHealth {
    /// Video; null when no video arrives.
    video: Null<VideoHealth>,
    /// Audio; null when no audio arrives.
    audio: Null<AudioHealth>,
    /// Number of jumps of the encoder's clock in this session.
    timestamp_jumps: u64,
    /// How often the other encoder of the stream took over in this session; counted from 0 after a move to another node.
    failovers: u64,
    /// The SRT connection of the encoder; null by RTMP and WHIP.
    srt: Null<SrtHealth>,
    /// The WHIP connection of the encoder; null by RTMP and SRT.
    whip: Null<WhipHealth>,
    /// Current issues; empty when there are none. An issue is shown once it has lasted for some seconds.
    issues: Vec<HealthIssue>,
}

/// Video as received. Measured values cover the last seconds and are null until enough has arrived.
#[derive(Clone, Object)]
#[oai(rename_all = "camelCase")]
struct VideoHealth {
    /// `h264`, `hevc` or `av1`.
    codec: String,
    /// Width in pixels; null until the encoder has sent it.
    width: Null<u32>,
    /// Height in pixels; null until the encoder has sent it.
    height: Null<u32>,
    /// Frames per second.
    frame_rate: Null<f64>,
    /// Bits per second.
    bitrate: Null<u64>,
    /// Longest distance between the last keyframes, in seconds.
    keyframe_interval_seconds: Null<f64>,
    /// Whether the video has B-frames: frames arrive in another order than they are shown in.
    b_frames: bool,
}

/// Audio as received. Measured values cover the last seconds and are null until enough has arrived.
#[derive(Clone, Object)]
#[oai(rename_all = "camelCase")]
struct AudioHealth {
    /// `aac` or `opus`.
    codec: String,
    /// Samples per second; null until the encoder has sent it.
    sample_rate: Null<u32>,
    /// Channels; null until the encoder has sent it.
    channels: Null<u8>,
    /// Bits per second.
    bitrate: Null<u64>,
}

/// The SRT connection of the encoder. Counters begin with the connection.
#[derive(Clone, Object)]
#[oai(rename_all = "camelCase")]
struct SrtHealth {
    /// Round-trip time in milliseconds.
    rtt_ms: f64,
    /// Agreed latency in milliseconds.
    latency_ms: u64,
    /// Packets that were lost on the way, whether or not they came later.
    packets_lost: u64,
    /// Packets that the encoder sent again.
    packets_retransmitted: u64,
    /// Packets that did not come within the latency, so that media is missing.
    packets_dropped: u64,
}

/// The WHIP connection of the encoder. Counters begin with the connection.
#[derive(Clone, Object)]
#[oai(rename_all = "camelCase")]
struct WhipHealth {
    /// Round-trip time in milliseconds; null until the encoder has reported it.
    rtt_ms: Null<f64>,
    /// Packets that never came, so that media is missing.
    packets_lost: u64,
    /// Requests to the encoder to send packets again.
    nacks: u64,
}

/// Stable code of the issue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[oai(rename = "HealthIssueCode", rename_all = "snake_case")]
enum Code {
    /// The encoder is connected, but no media arrives.
    NothingArrives,
    /// No video arrives.
    VideoMissing,
    /// No audio arrives.
    AudioMissing,
    /// A platform does not accept the video codec.
    VideoCodec,
    /// A platform does not accept the audio codec.
    AudioCodec,
    /// Keyframes are further apart than a platform accepts.
    KeyframeInterval,
    /// The video bit rate is higher than a platform accepts.
    VideoBitrate,
    /// The audio bit rate is higher than a platform accepts.
    AudioBitrate,
    /// The frame rate is higher than a platform accepts.
    FrameRate,
    /// A platform does not accept B-frames.
    BFrames,
    /// The encoder's clock jumped within the last minute.
    TimestampJumps,
    /// The slate differs from the encoder's media, so it is not shown while the encoder is away.
    SlateMismatch,
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
            IssueCode::SlateMismatch => Code::SlateMismatch,
        }
    }
}

/// A problem with a live stream.
#[derive(Clone, Object)]
struct HealthIssue {
    /// Stable code of the issue.
    code: Code,
    /// Measured value, and the values that platforms ask for.
    text: String,
    /// Destination types of this stream that are affected; empty when all are.
    platforms: Vec<String>,
}

impl StreamHealth {
    /// Health of a stream; `None` unless its encoder is connected, or its slate is not shown because it does not match.
    pub(super) fn of(app: &App, stream: StreamId) -> Option<Self> {
        let live::Health { figures, issues, failovers, link } = app.live.health(stream)?;
        let issue = |issue: live::Issue| HealthIssue {
            code: issue.code.into(),
            text: issue.text,
            platforms: issue.platforms,
        };
        let (srt, whip) = match link {
            Some(LinkHealth::Srt(link)) => (Some(srt(link)), None),
            Some(LinkHealth::Whip(link)) => (None, Some(whip(link))),
            None => (None, None),
        };
        Some(Self {
            video: figures.video.map(video).into(),
            audio: figures.audio.map(audio).into(),
            timestamp_jumps: figures.timestamp_jumps,
            failovers,
            srt: srt.into(),
            whip: whip.into(),
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

fn srt(link: SrtStats) -> SrtHealth {
    SrtHealth {
        rtt_ms: millis(link.rtt),
        latency_ms: u64::try_from(link.latency.as_millis()).unwrap_or(u64::MAX),
        packets_lost: link.lost,
        packets_retransmitted: link.retransmitted,
        packets_dropped: link.dropped,
    }
}

fn whip(link: live::WhipLink) -> WhipHealth {
    let live::WhipLink { rtt, lost, nacks } = link;
    WhipHealth { rtt_ms: rtt.map(millis).into(), packets_lost: lost, nacks }
}

fn millis(time: Duration) -> f64 {
    hundredths(time.as_secs_f64() * 1_000.0)
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
