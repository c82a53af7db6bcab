//! The numbers of an onMetaData message.

use super::amf0::Value;
use crate::packet::Codec;

/// Summary of onMetaData: numbers only, no text of the publisher. `None` where absent or not usable.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Metadata {
    /// Picture width in pixels, 1 to 65,535.
    pub width: Option<u32>,
    /// Picture height in pixels, 1 to 65,535.
    pub height: Option<u32>,
    /// Pictures per second, above 0, at most 1,000.
    pub frame_rate: Option<f64>,
    /// Video bit rate in kilobits per second.
    pub video_kbps: Option<f64>,
    /// Audio bit rate in kilobits per second.
    pub audio_kbps: Option<f64>,
    /// Audio sample rate in hertz.
    pub audio_sample_rate: Option<u32>,
    /// Audio channels, 1 to 255.
    pub audio_channels: Option<u32>,
    /// Video codec: FLV number 7 or a FourCC as number or text.
    pub video_codec: Option<Codec>,
    /// Audio codec: FLV number 10 or a FourCC as number or text.
    pub audio_codec: Option<Codec>,
}
