//! The slate of a stream, as its owner sees it.

use poem_openapi::Object;

use super::null::Null;
use satcast_store::SlateRecord;

/// The slate of a stream.
#[derive(Clone, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct StreamSlate {
    /// Length of the clip in seconds.
    seconds: f64,
    /// Bytes of the file.
    bytes: i64,
    /// `h264`, `hevc` or `av1`.
    video_codec: String,
    /// Width in pixels.
    width: u32,
    /// Height in pixels.
    height: u32,
    /// Frames per second.
    frame_rate: f64,
    /// `aac` or `opus`; null without audio.
    audio_codec: Null<String>,
    /// Samples per second; null without audio.
    sample_rate: Null<u32>,
    /// Channels; null without audio.
    channels: Null<u8>,
    /// Seconds for which it plays at most.
    max_seconds: u32,
    /// Time of the upload, Unix milliseconds.
    uploaded_at: i64,
}

impl From<SlateRecord> for StreamSlate {
    fn from(slate: SlateRecord) -> Self {
        let audio = slate.audio.as_ref();
        Self {
            seconds: slate.length_ms as f64 / 1_000.0,
            bytes: slate.bytes,
            width: slate.size.0,
            height: slate.size.1,
            frame_rate: f64::from(slate.frame_rate_milli) / 1_000.0,
            audio_codec: audio.map(|audio| audio.codec.clone()).into(),
            sample_rate: audio.map(|audio| audio.sample_rate).into(),
            channels: audio.map(|audio| audio.channels).into(),
            video_codec: slate.video_codec,
            max_seconds: slate.max_seconds,
            uploaded_at: slate.uploaded_at.0,
        }
    }
}
