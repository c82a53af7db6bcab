//! The multivariant playlist with its one rendition (RFC 8216, 4.3.4.2; VIDEO-RANGE: RFC 8216bis, 4.4.6.2).

use std::fmt::Write as _;

use super::{PlaylistError, Rates, VERSION, name_is_plain};
use crate::fmp4::{TrackDetails, VideoRange};
use crate::segment::Init;

/// Attributes of EXT-X-STREAM-INF for a rendition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Multivariant {
    /// Peak rate with headroom in bits per second.
    pub bandwidth: u64,
    /// Mean rate in bits per second.
    pub average_bandwidth: u64,
    /// Codec strings, separated by commas.
    pub codecs: String,
    /// Width and height after cropping.
    pub resolution: Option<(u32, u32)>,
    /// Thousandths of a frame per second.
    pub frame_rate_milli: Option<u64>,
    /// Dynamic range.
    pub video_range: Option<VideoRange>,
}

impl Multivariant {
    /// From the newest initialization segment and the measured rates of its segments.
    pub fn new(init: &Init, rates: &Rates) -> Self {
        let tracks = [&init.video, &init.audio];
        let codecs: Vec<&str> = tracks.into_iter().flatten().map(|track| track.codec_string()).collect();
        let video = init.video.as_ref().map(|track| track.details());
        let (resolution, video_range) = match video {
            Some(TrackDetails::Video { size, range }) => (Some((size.width, size.height)), Some(range)),
            _ => (None, None),
        };
        Multivariant {
            bandwidth: rates.bandwidth(),
            average_bandwidth: rates.average_bandwidth(),
            codecs: codecs.join(","),
            resolution,
            frame_rate_milli: rates.frame_rate_milli().filter(|_| resolution.is_some()),
            video_range,
        }
    }

    /// The playlist, with `media` as the relative URL of the media playlist. `independent`: every segment of the session
    /// starts with a keyframe.
    ///
    /// # Errors
    /// [`PlaylistError::Name`] for a URL with characters that are not allowed in names.
    pub fn render(&self, media: &str, independent: bool) -> Result<String, PlaylistError> {
        if !name_is_plain(media) {
            return Err(PlaylistError::Name);
        }
        let mut text = format!("#EXTM3U\n#EXT-X-VERSION:{VERSION}\n");
        if independent {
            text.push_str("#EXT-X-INDEPENDENT-SEGMENTS\n");
        }
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "#EXT-X-STREAM-INF:BANDWIDTH={},AVERAGE-BANDWIDTH={},CODECS=\"{}\"",
            self.bandwidth.max(1),
            self.average_bandwidth.max(1),
            self.codecs
        );
        if let Some((width, height)) = self.resolution {
            let _ = write!(text, ",RESOLUTION={width}x{height}");
        }
        if let Some(milli) = self.frame_rate_milli {
            let _ = write!(text, ",FRAME-RATE={}.{:03}", milli / 1000, milli % 1000);
        }
        if let Some(range) = self.video_range {
            let _ = write!(text, ",VIDEO-RANGE={},CLOSED-CAPTIONS=NONE", range.as_str());
        }
        let _ = write!(text, "\n{media}\n");
        Ok(text)
    }
}
