//! Measurements of the encoder's media.

use satcast_media::flv::ForeignCodec;

/// Measurements of the video track.
#[derive(Clone, Debug, PartialEq)]
pub struct VideoHealth {
    /// Codec: `h264`, `hevc` or `av1`.
    pub codec: &'static str,
    /// Width and height in pixels; `None` until a configuration with them was read.
    pub size: Option<(u32, u32)>,
    /// Frames per second over the last seconds.
    pub frame_rate: Option<f64>,
    /// Bits per second over the last seconds.
    pub bitrate: Option<u64>,
    /// Longest of the last keyframe intervals in seconds, including the unfinished GOP.
    pub keyframe_interval: Option<f64>,
    /// Frames arrive in an order that differs from presentation order.
    pub b_frames: bool,
}

/// Measurements of the audio track.
#[derive(Clone, Debug, PartialEq)]
pub struct AudioHealth {
    /// Codec: `aac` or `opus`.
    pub codec: &'static str,
    /// Samples per second; `None` until a configuration with them was read.
    pub sample_rate: Option<u32>,
    /// Channels; as `sample_rate`.
    pub channels: Option<u8>,
    /// Bits per second over the last seconds.
    pub bitrate: Option<u64>,
}

/// Measurements of one session's media.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// `None` when no video arrives.
    pub video: Option<VideoHealth>,
    /// `None` when no audio arrives.
    pub audio: Option<AudioHealth>,
    /// Jumps of the encoder's clock in this session; a reconnect is not counted.
    pub timestamp_jumps: u64,
    /// The last jump is recent.
    pub(crate) jumped_lately: bool,
    /// Codecs of tracks that are left out because they are not supported.
    pub(crate) foreign: Vec<ForeignCodec>,
    /// Enough media arrived to decide whether a track is missing.
    pub(crate) is_settled: bool,
    /// No media arrived for a while.
    pub(crate) is_silent: bool,
}
