//! The media of an encoder that is on standby: measured, and kept from its newest keyframe on, so that the encoder can take
//! over there.

use std::sync::Arc;
use std::time::Duration;

use satcast_media::{Kind, NANOS_PER_MILLI, Packet};

use crate::group::{Configs, Group};
use crate::health::{Figures, Gauge};
use crate::hub::AUDIO_ONLY_AFTER_MS;
use crate::timeline::Timeline;

/// Media of one encoder while it is on standby. Pure: times are monotonic times of arrival. What it keeps is limited by
/// `GROUP_PACKETS_MAX` and `GROUP_BYTES_MAX`.
#[derive(Debug, Default)]
pub(super) struct Standby {
    timeline: Timeline,
    gauge: Gauge,
    group: Group,
    /// Arrival of the keyframe of `group`.
    begun_at: Duration,
    has_video: bool,
    /// Session time of the first media, for a stream without video.
    first_ns: Option<i64>,
    last_ns: i64,
}

/// The media with which an encoder takes over.
#[derive(Debug)]
pub(super) struct Start {
    /// Configurations, then the kept GOP, or the newest packets of a stream without video.
    pub(super) packets: Vec<Packet>,
    /// Arrival of the first media.
    pub(super) began: Duration,
}

impl Standby {
    pub(super) fn keep(&mut self, packet: &Packet, now: Duration) {
        let is_video = packet.kind() == Kind::Video;
        self.has_video |= is_video;
        if packet.is_config() {
            self.gauge.take(packet, false, now);
            return;
        }
        let placed = self.timeline.place(usize::from(is_video), packet.dts_ns, packet.pts_ns, now);
        let Some(placed) = placed else { return };
        let measured = Packet { dts_ns: placed.dts_ns, pts_ns: placed.pts_ns, ..packet.clone() };
        self.gauge.take(&measured, placed.discontinuity, now);
        self.first_ns.get_or_insert(placed.dts_ns);
        self.last_ns = placed.dts_ns;
        if is_video && packet.keyframe {
            self.begun_at = now;
        }
        // With the times of the encoder: the session's timeline places the packets when they are sent.
        self.group.push(&Arc::new(packet.clone()));
    }

    /// The configuration of the video changed: the kept GOP is from before it.
    pub(super) fn cut(&mut self) {
        self.group.clear();
    }

    /// Where the encoder can take over at `now`: at a keyframe that arrived after `after`, the last media that went out, so that
    /// nothing is shown twice. Without video: at each of its packets, of which `newest` have just arrived. `None`: later.
    pub(super) fn start(
        &self,
        configs: &Configs,
        newest: &[Packet],
        after: Option<Duration>,
        now: Duration,
    ) -> Option<Start> {
        let configs = configs.iter().map(|packet| Packet::clone(packet));
        if self.has_video {
            let is_later = self.begun_at == now || after.is_none_or(|after| self.begun_at > after);
            let mut kept = self.group.iter().map(|packet| Packet::clone(packet)).peekable();
            let begins = is_later && kept.peek().is_some();
            return begins.then(|| Start { packets: configs.chain(kept).collect(), began: self.begun_at });
        }
        let heard_ms = self.last_ns.saturating_sub(self.first_ns?) / NANOS_PER_MILLI;
        let newest = newest.iter().filter(|packet| !packet.is_config()).cloned();
        (heard_ms >= AUDIO_ONLY_AFTER_MS)
            .then(|| Start { packets: configs.chain(newest).collect(), began: now })
    }

    /// Measurements until the monotonic time `now`.
    pub(super) fn figures(&self, now: Duration) -> Figures {
        self.gauge.figures(now)
    }
}
