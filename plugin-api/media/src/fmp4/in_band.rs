//! Parameter sets in keyframes, for players that keep the first initialization segment.

use std::sync::Arc;

use bytes::Bytes;

use super::TrackConfig;
use crate::Codec;
use crate::codec::avc::in_band;

/// The video configurations of a session, in order.
#[derive(Debug, Default)]
pub struct InBand {
    first: Option<Arc<TrackConfig>>,
    has_changed: bool,
}

impl InBand {
    /// Parameter sets to repeat in the keyframes of the next configuration: for H.264, from the second one of a session on.
    /// ffmpeg's demuxer, which mpv uses, keeps the first initialization segment and would show broken frames. None for HEVC:
    /// `hvc1` allows them only in the sample entry.
    pub fn next(&mut self, config: &Arc<TrackConfig>) -> Option<Bytes> {
        let first = self.first.get_or_insert_with(|| config.clone());
        self.has_changed |= first != config;
        if self.has_changed && config.codec() == Codec::H264 { in_band(config.record()) } else { None }
    }
}
