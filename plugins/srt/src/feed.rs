//! Makes payloads of media: seven packets of a transport stream each.

use std::sync::atomic::{AtomicU64, Ordering};

use satcast_media::srt::limits::SEND_BYTES;
use satcast_media::ts::{MuxError, Muxer};
use satcast_media::{Kind, Packet};
use satcast_plugin_api::Error;
use satcast_plugin_api::driver::Ctx;

use crate::refusal;

/// After this time without video a receiver may begin with audio: the encoder may have come back without video.
const VIDEO_GONE_NS: i64 = 10_000_000_000;

/// The transport stream of a destination.
pub(crate) struct Feed {
    muxer: Muxer,
    /// Transport stream packets that do not fill a payload yet.
    bytes: Vec<u8>,
    has_video: bool,
    /// Time of the newest video, or of the first audio after the codec configuration of video.
    video_at_ns: Option<i64>,
    sent: Option<&'static AtomicU64>,
    skipped: Option<&'static AtomicU64>,
}

impl Feed {
    pub(crate) fn new(ctx: &Ctx) -> Self {
        let (sent, skipped) = (ctx.counter("packets_sent"), ctx.counter("packets_skipped"));
        let mut muxer = Muxer::default();
        // A Satcast that gets this stream finds a loop by these marks, of 16 hexadecimal digits each.
        let marks = ctx.about().via.iter().filter_map(|mark| u64::from_str_radix(mark, 16).ok());
        muxer.set_note(&marks.flat_map(u64::to_be_bytes).collect::<Vec<u8>>());
        Self { muxer, bytes: Vec::new(), has_video: false, video_at_ns: None, sent, skipped }
    }

    /// Writes a packet. `put` gets full payloads, and whether a receiver may begin with them; the rest waits for the next
    /// packet or [`Feed::flush`].
    ///
    /// # Errors
    /// Class `Config`: the codec has no place in transport streams.
    pub(crate) fn take(&mut self, packet: &Packet, mut put: impl FnMut(&[u8], bool)) -> Result<(), Error> {
        // The other tracks of a stream with several.
        if packet.track != 0 {
            return Ok(());
        }
        let is_video = packet.kind() == Kind::Video;
        if packet.is_config() {
            if is_video {
                (self.has_video, self.video_at_ns) = (true, None);
            }
            return self.muxer.push(packet, &mut self.bytes).map_err(|error| refusal::not_carried(&error));
        }
        let newest = self.video_at_ns.filter(|_| !is_video).unwrap_or(packet.dts_ns);
        self.video_at_ns = Some(newest);
        let waits = self.has_video && packet.dts_ns.saturating_sub(newest) < VIDEO_GONE_NS;
        let begins = if waits { is_video && packet.keyframe } else { true };
        if begins {
            self.flush(&mut put);
        }
        match self.muxer.push(packet, &mut self.bytes) {
            Ok(()) => count(self.sent),
            Err(MuxError::AccessUnit | MuxError::TooLong(_) | MuxError::NoConfiguration(_)) => {
                count(self.skipped);
                return Ok(());
            }
            Err(error) => return Err(refusal::not_carried(&error)),
        }
        let full = self.bytes.len() / SEND_BYTES * SEND_BYTES;
        for (number, payload) in self.bytes[..full].chunks(SEND_BYTES).enumerate() {
            put(payload, begins && number == 0);
        }
        self.bytes.drain(..full);
        if begins && full == 0 {
            // A short keyframe: a receiver may begin with it all the same.
            put(&self.bytes, true);
            self.bytes.clear();
        }
        Ok(())
    }

    /// Gives what does not fill a payload.
    pub(crate) fn flush(&mut self, mut put: impl FnMut(&[u8], bool)) {
        if !self.bytes.is_empty() {
            put(&self.bytes, false);
            self.bytes.clear();
        }
    }
}

fn count(counter: Option<&'static AtomicU64>) {
    if let Some(counter) = counter {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use satcast_media::Codec;
    use satcast_media::fuzz::RECORDS;
    use satcast_plugin_api::testkit;

    use super::*;

    #[test]
    fn receivers_begin_with_audio_only_after_a_time_without_video() {
        let (muxer, bytes, sent, skipped) = (Muxer::default(), Vec::new(), None, None);
        let mut feed = Feed { muxer, bytes, has_video: false, video_at_ns: None, sent, skipped };
        let mut begins = |packet: Packet| {
            let mut any = false;
            feed.take(&packet, |_, may_begin| any |= may_begin).unwrap();
            any
        };
        for codec in [Codec::H264, Codec::Aac] {
            let record = RECORDS.iter().find(|(known, _)| *known == codec).unwrap().1;
            assert!(!begins(testkit::config(codec, record)));
        }
        let video = |at, keyframe| {
            testkit::media(Codec::H264, 1, at, keyframe, vec![0u8, 0, 0, 3, 0x65, 1, 7].into())
        };
        let audio = |at| testkit::media(Codec::Aac, 2, at, false, vec![0x21u8, 1, 3, 4, 5].into());
        assert!(begins(video(0, true)));
        assert!(!begins(video(40, false)) && !begins(audio(60)) && !begins(audio(10_039)));
        assert!(begins(audio(10_040)) && begins(audio(10_060)));
        assert!(!begins(video(10_080, false)) && !begins(audio(10_081)), "video is back");
        assert!(begins(video(10_120, true)));
    }
}
