//! The encoders of a session: which of them is active, and when the other one takes over.
//!
//! Pure: times are arguments. The caller holds the lock of the session.

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use satcast_media::flv::ForeignCodec;
use satcast_media::{Kind, Packet};
use tokio::sync::watch;

use super::standby::{Standby, Start};
use crate::codes::{self, Closed};
use crate::group::Configs;
use crate::health::LinkHealth;
use crate::shown::{EncoderRole, EncoderSnapshot};
use crate::via::Via;
use satcast_core::ids::UnixMillis;

/// When the encoders of a stream change places.
#[derive(Clone, Copy, Debug)]
pub struct FailoverTimes {
    /// An active encoder without media for this long has failed.
    pub stall: Duration,
    /// The primary encoder takes over again after it published for this long without a stall; `None`: never.
    pub failback: Option<Duration>,
}

impl Default for FailoverTimes {
    fn default() -> Self {
        Self { stall: Duration::from_secs(2), failback: Some(Duration::from_secs(10)) }
    }
}

/// Why another encoder became active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The connection of the active encoder ended.
    #[default]
    Disconnected,
    /// The active encoder ended its publish.
    Unpublished,
    /// The active encoder sent no media.
    Stalled,
    /// The primary encoder has published for long enough.
    Returned,
}

impl Reason {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Reason::Disconnected => "disconnected",
            Reason::Unpublished => "unpublished",
            Reason::Stalled => "stalled",
            Reason::Returned => "returned",
        }
    }
}

/// Another encoder became active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failover {
    pub(super) from: EncoderRole,
    pub(super) to: EncoderRole,
    pub(super) reason: Reason,
}

/// An encoder that connects.
pub(super) struct Arrival {
    pub(super) role: EncoderRole,
    /// `None` if not known.
    pub(super) address: Option<IpAddr>,
    /// The streams that its media has passed through.
    pub(super) via: Via,
    pub(super) at: UnixMillis,
}

/// An accepted encoder.
pub(super) struct Entered {
    pub(super) number: u64,
    pub(super) is_active: bool,
    pub(super) closed: watch::Receiver<Option<Closed>>,
}

/// An encoder that left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    pub(super) was_active: bool,
    /// No encoder is connected any more.
    pub(super) was_last: bool,
}

/// What happens with packets.
#[derive(Debug)]
pub(super) enum Turn {
    /// They go out.
    Active,
    /// They are kept.
    Standby,
    /// The encoder is active from now on, beginning with the kept packets.
    TakesOver(Box<TakeOver>),
}

/// What an encoder brings when it takes over.
#[derive(Debug)]
pub(super) struct TakeOver {
    pub(super) start: Start,
    /// `None` when the same encoder, or none before, has sent media.
    pub(super) failover: Option<Failover>,
    pub(super) via: Via,
    /// Its tracks that are not supported.
    pub(super) foreign: Vec<ForeignCodec>,
}

#[derive(Default)]
pub(super) struct Encoders {
    slots: [Option<Encoder>; 2],
    active: Option<EncoderRole>,
    /// Number of the slate that takes the place of an active encoder. Every encoder is on standby then.
    slate: Option<u64>,
    /// The encoder whose media went out last, and when.
    sent: Option<(EncoderRole, Duration)>,
    /// Why no encoder is active.
    left: Reason,
    numbers: u64,
    failovers: u64,
}

struct Encoder {
    number: u64,
    address: Option<IpAddr>,
    via: Via,
    connected_at: UnixMillis,
    close: watch::Sender<Option<Closed>>,
    /// Its connection by SRT or WHIP.
    link: Option<LinkHealth>,
    /// Time of its last media, or of its connection.
    media_at: Duration,
    /// Begin of its media without a stall.
    steady_since: Option<Duration>,
    configs: Configs,
    foreign: Vec<ForeignCodec>,
    /// Its media while it is on standby.
    standby: Standby,
}

impl Encoders {
    /// Accepts an encoder. It replaces one of the same role that was silent for `silent` (the other gets the notice), and is on
    /// standby while an encoder of the other role is connected, or the slate is on air. `None` if an encoder of the role sends media.
    pub(super) fn enter(&mut self, arrival: Arrival, silent: Duration, now: Duration) -> Option<Entered> {
        let role = arrival.role;
        if let Some(before) = &self.slots[role.index()] {
            if now.saturating_sub(before.media_at) < silent {
                return None;
            }
            before.close.send_replace(Some(codes::took_over()));
        }
        self.numbers += 1;
        let number = self.numbers;
        let (close, closed) = watch::channel(None);
        self.slots[role.index()] = Some(Encoder {
            number,
            address: arrival.address,
            via: arrival.via,
            connected_at: arrival.at,
            close,
            link: None,
            media_at: now,
            steady_since: None,
            configs: Configs::default(),
            foreign: Vec::new(),
            standby: Standby::default(),
        });
        let is_alone = self.slots[role.other().index()].is_none();
        let is_active = self.slate.is_none() && (self.active == Some(role) || is_alone);
        if is_active {
            self.active = Some(role);
        }
        Some(Entered { number, is_active, closed })
    }

    /// `unpublished`: it ended its publish. `None` if it was replaced or disconnected before.
    pub(super) fn leave(&mut self, role: EncoderRole, number: u64, unpublished: bool) -> Option<Left> {
        self.slots[role.index()].take_if(|encoder| encoder.number == number)?;
        let was_active = self.active == Some(role);
        if was_active {
            self.active = None;
        }
        // The last one that stops during the slate ends it, though the slate had its place.
        if was_active || (unpublished && self.slate.is_some() && self.is_empty()) {
            self.left = if unpublished { Reason::Unpublished } else { Reason::Disconnected };
        }
        Some(Left { was_active, was_last: self.is_empty() })
    }

    /// The media of an encoder has passed through these streams; whether it is the active one.
    pub(super) fn came_through(&mut self, role: EncoderRole, number: u64, via: &Via) -> bool {
        let is_active = self.active == Some(role);
        let encoder = self.encoder(role, number);
        encoder.map(|encoder| encoder.via = via.clone()).is_some() && is_active
    }

    /// Takes packets of an encoder, and decides whether it is or becomes active.
    pub(super) fn take(
        &mut self,
        (role, number): (EncoderRole, u64),
        packets: &[Packet],
        now: Duration,
        times: FailoverTimes,
    ) -> Turn {
        let is_active = self.active == Some(role);
        let Some(encoder) = self.encoder(role, number) else { return Turn::Standby };
        let has_media = encoder.note(packets, now, times.stall);
        for packet in packets {
            encoder.note_config(packet);
            if !is_active {
                encoder.standby.keep(packet, now);
            }
        }
        if is_active {
            if has_media {
                self.sent = Some((role, now));
            }
            return Turn::Active;
        }
        let Some(reason) = self.reason(role, now, times).filter(|_| has_media) else { return Turn::Standby };
        let sent = self.sent;
        let Some(encoder) = self.encoder(role, number) else { return Turn::Standby };
        let after = sent.map(|(_, at)| at);
        let Some(start) = encoder.standby.start(&encoder.configs, packets, after, now) else {
            return Turn::Standby;
        };
        encoder.standby = Standby::default();
        let (via, foreign) = (encoder.via.clone(), encoder.foreign.clone());
        let failover = sent.filter(|(from, _)| *from != role);
        let failover = failover.map(|(from, _)| Failover { from, to: role, reason });
        self.failovers += u64::from(failover.is_some());
        (self.active, self.sent, self.slate) = (Some(role), Some((role, now)), None);
        Turn::TakesOver(Box::new(TakeOver { start, failover, via, foreign }))
    }

    /// Why the encoder of this role, which is on standby, should be active.
    fn reason(&self, role: EncoderRole, now: Duration, times: FailoverTimes) -> Option<Reason> {
        let Some(active) = self.active else { return Some(self.left) };
        let silent_for = |encoder: &Encoder| now.saturating_sub(encoder.media_at);
        if self.slots[active.index()].as_ref().is_none_or(|active| silent_for(active) >= times.stall) {
            return Some(Reason::Stalled);
        }
        let steady = self.slots[role.index()].as_ref()?.steady_since?;
        let is_back = times.failback.is_some_and(|failback| now.saturating_sub(steady) >= failback);
        (role == EncoderRole::Primary && is_back).then_some(Reason::Returned)
    }

    /// A track of the encoder has an unsupported codec. Returns whether the encoder is active.
    pub(super) fn foreign(&mut self, role: EncoderRole, number: u64, codec: ForeignCodec) -> bool {
        let is_active = self.active == Some(role);
        match self.encoder(role, number) {
            Some(encoder) => {
                encoder.foreign.push(codec);
                is_active
            }
            None => false,
        }
    }

    /// New numbers of an encoder's connection.
    pub(super) fn link(&mut self, role: EncoderRole, number: u64, link: LinkHealth) {
        if let Some(encoder) = self.encoder(role, number) {
            encoder.link = Some(link);
        }
    }

    /// Numbers of the active encoder's connection; `None` by RTMP.
    pub(super) fn active_link(&self) -> Option<LinkHealth> {
        self.slots[self.active?.index()].as_ref()?.link
    }

    fn encoder(&mut self, role: EncoderRole, number: u64) -> Option<&mut Encoder> {
        self.slots[role.index()].as_mut().filter(|encoder| encoder.number == number)
    }

    /// No encoder is connected.
    pub(super) fn is_empty(&self) -> bool {
        self.slots.iter().all(Option::is_none)
    }

    /// Time of the last media of the encoder with this role, or of the later one of both; `None` if it is not connected.
    pub(super) fn media_at(&self, role: Option<EncoderRole>) -> Option<Duration> {
        EncoderRole::ALL
            .into_iter()
            .filter(|of| role.is_none_or(|role| role == *of))
            .filter_map(|of| Some(self.slots[of.index()].as_ref()?.media_at))
            .max()
    }

    /// Disconnects all encoders.
    pub(super) fn close(&mut self, closed: &Closed) {
        self.active = None;
        for encoder in self.slots.iter_mut().filter_map(Option::take) {
            encoder.close.send_replace(Some(closed.clone()));
        }
    }

    /// Disconnects the encoders whose address is such a one. Returns whether the active one, or the last one, was disconnected.
    pub(super) fn close_if(&mut self, closed: &Closed, is_such: impl Fn(IpAddr) -> bool) -> bool {
        let mut ends = false;
        for role in EncoderRole::ALL {
            let slot = &mut self.slots[role.index()];
            let Some(encoder) = slot.take_if(|encoder| encoder.address.is_some_and(&is_such)) else {
                continue;
            };
            encoder.close.send_replace(Some(closed.clone()));
            ends |= self.active.take_if(|active| *active == role).is_some() || self.is_empty();
        }
        ends
    }

    /// The connected encoders, the primary one first, with the measurements of those on standby.
    pub(super) fn snapshots(&self, now: Duration) -> Vec<EncoderSnapshot> {
        let of = |role: EncoderRole| {
            let encoder = self.slots[role.index()].as_ref()?;
            let (is_active, figures) = (self.active == Some(role), encoder.standby.figures(now));
            Some(EncoderSnapshot { role, is_active, connected_at: encoder.connected_at, figures })
        };
        EncoderRole::ALL.into_iter().filter_map(of).collect()
    }

    /// When no encoder will have sent media for `stall`; at once without an encoder. `None` if the last one ended its publish.
    pub(super) fn lost_at(&self, stall: Duration) -> Option<Duration> {
        match self.media_at(None) {
            Some(at) => Some(at.saturating_add(stall)),
            None => (self.left != Reason::Unpublished).then_some(Duration::ZERO),
        }
    }

    /// Time of the last media that went out of an encoder.
    pub(super) fn sent_at(&self) -> Option<Duration> {
        self.sent.map(|(_, at)| at)
    }

    /// Gives the slate the place of the active encoder; its number. `None` if an encoder has sent media within `stall`.
    pub(super) fn begin_slate(&mut self, now: Duration, stall: Duration) -> Option<u64> {
        self.lost_at(stall).filter(|lost| *lost <= now)?;
        if self.active.take().is_some() {
            self.left = Reason::Stalled;
        }
        self.numbers += 1;
        self.slate = Some(self.numbers);
        self.slate
    }

    /// Ends the slate with this number; false if an encoder took over before.
    pub(super) fn end_slate(&mut self, number: u64) -> bool {
        self.slate.take_if(|slate| *slate == number).is_some()
    }

    /// The slate with this number is on air, and no encoder has ended its publish since as the last one.
    pub(super) fn plays_slate(&self, number: u64) -> bool {
        self.slate == Some(number) && self.lost_at(Duration::ZERO).is_some()
    }

    pub(super) fn has_slate(&self) -> bool {
        self.slate.is_some()
    }

    /// How often another encoder became active.
    pub(super) fn failovers(&self) -> u64 {
        self.failovers
    }
}

impl Encoder {
    /// Keeps a configuration, also of an active encoder, which may be on standby later.
    fn note_config(&mut self, packet: &Packet) {
        if packet.is_config() && self.configs.changes(packet) {
            self.configs.replace(&Arc::new(packet.clone()));
            if packet.kind() == Kind::Video {
                self.standby.cut();
            }
        }
    }

    /// Notes the time of the media. Returns whether there is any.
    fn note(&mut self, packets: &[Packet], now: Duration, stall: Duration) -> bool {
        let has_media = packets.iter().any(|packet| !packet.is_config());
        if has_media {
            let is_steady = now.saturating_sub(self.media_at) < stall;
            self.steady_since = self.steady_since.filter(|_| is_steady).or(Some(now));
            self.media_at = now;
        }
        has_media
    }
}
