//! What comes from an encoder, in figures.

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
    pub(crate) jumped_lately: bool,
    /// Codecs of tracks that are left out, as nobody here takes them.
    pub(crate) foreign: Vec<ForeignCodec>,
    /// Media has come for long enough to say that a track is missing.
    pub(crate) is_settled: bool,
    /// Nothing at all came for a while.
    pub(crate) is_silent: bool,
}
