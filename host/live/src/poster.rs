//! Posters: the newest keyframe of a stream as a video of one frame, in the codec of the encoder. Nothing is decoded.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use satcast_media::fmp4::{
    Fmp4Error, Sample, TrackConfig, TrackRun, VIDEO_TIMESCALE, VIDEO_TRACK_ID, init_segment, write_fragment,
};
use satcast_plugin_api::{Asset, AssetBody, Audience, Packet};

use super::live::Live;
use super::session::Session;
use satcast_core::ids::StreamId;
use satcast_drivers::published::Published;

/// Name of a poster.
pub const POSTER_NAME: &str = "poster.mp4";
/// A poster is made at most once in this time, in seconds.
pub const POSTER_SECS: u32 = 5;
/// There is no poster of a larger keyframe: slow readers hold it in memory, which no budget counts.
pub(super) const KEYFRAME_BYTES_MAX: usize = 1024 * 1024;

impl Live {
    /// The poster of a stream; `None` without a session, without video, before the first keyframe of its encoder, and
    /// when the newest one is larger than a megabyte.
    pub fn poster(&self, stream: StreamId) -> Option<Arc<Published>> {
        self.find(stream)?.poster(self.inner.clock.monotonic())
    }
}

impl Session {
    fn poster(&self, now: Duration) -> Option<Arc<Published>> {
        // Held while a poster is made: requests that come in this time get the same one.
        let mut kept = self.poster.lock();
        let age = Duration::from_secs(u64::from(POSTER_SECS));
        if let Some((made_at, poster)) = &*kept
            && now < *made_at + age
        {
            return Some(poster.clone());
        }
        *kept = None;
        let (config, keyframe) = self.hub.newest_keyframe()?;
        if keyframe.payload.len() > KEYFRAME_BYTES_MAX {
            return None;
        }
        match poster(&config, &keyframe) {
            Ok(bytes) => {
                let poster = Arc::new(Published::uncounted(asset(bytes)));
                *kept = Some((now, poster.clone()));
                Some(poster)
            }
            Err(error) => {
                tracing::debug!(session = %self.id, stream = %self.stream.id, %error, "cannot make a poster");
                None
            }
        }
    }
}

fn asset(bytes: Bytes) -> Asset {
    Asset {
        name: POSTER_NAME.to_owned(),
        content_type: "video/mp4".to_owned(),
        max_age_secs: POSTER_SECS,
        audience: Audience::Both,
        body: AssetBody::Memory(bytes),
        followed: Default::default(),
    }
}

/// A video of one second with this keyframe.
fn poster(config: &Packet, keyframe: &Packet) -> Result<Bytes, Fmp4Error> {
    let track = TrackConfig::parse(config.codec, &config.payload)?;
    let payload = keyframe.payload.clone();
    let sample = Sample { duration: VIDEO_TIMESCALE, composition: 0, sync: true, payload };
    let run = TrackRun { track_id: VIDEO_TRACK_ID, decode_time: 0, samples: vec![sample] };
    let mut video = init_segment(&[&track])?.to_vec();
    write_fragment(&mut video, 1, &[run])?;
    Ok(video.into())
}
