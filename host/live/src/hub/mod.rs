//! Fan-out of a session: puts the encoder's packets on one timeline, and into the queue of every destination.
//!
//! Runs on the encoder's task, under one lock that is held only for a short time. Destinations read their queues on their own. Nothing
//! here waits, and no payload is copied.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use satcast_media::flv::ForeignCodec;
use satcast_plugin_api::host::DriverWaker;
use satcast_plugin_api::{Codec, Kind, NANOS_PER_MILLI, Packet};
use tokio::sync::watch;

use super::group::{Configs, Group};
use super::health::{Figures, Gauge};
use super::queue::Queue;
use super::timeline::Timeline;
use satcast_drivers::Waker;

/// Audio alone for this long in media time means that the stream has no video.
pub(super) const AUDIO_ONLY_AFTER_MS: i64 = 2_000;
/// The same when the encoder has sent the configuration of a video track.
pub(super) const AUDIO_ONLY_AFTER_PROMISE_MS: i64 = 5_000;
/// Most audio packets held until that is decided.
pub(super) const HELD_PACKETS_MAX: usize = 1024;
/// Most bytes of held audio packets.
pub(super) const HELD_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Fan-out of one session.
pub(super) struct Hub {
    source: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Number of the active encoder; packets of others are dropped.
    encoder: u64,
    timeline: Timeline,
    gauge: Gauge,
    configs: Configs,
    group: Group,
    tracks: Tracks,
    /// Audio that arrived before it was decided whether the stream has video.
    held: Vec<Packet>,
    held_bytes: usize,
    /// Configuration of a video track without frames so far. Destinations get it with the first frame, because a destination that
    /// knows of a track waits for it.
    promised: Option<Packet>,
    /// A keyframe of the present encoder was seen; frames before it cannot be decoded.
    has_keyframe: bool,
    /// The next media packet follows a gap in the timeline.
    cut: bool,
    sequence: u64,
    outlets: Vec<Outlet>,
    /// Codecs of video and audio, for destinations that gave up because of one.
    codecs: watch::Sender<Codecs>,
}

/// Codecs of video and audio as last configured.
pub(super) type Codecs = [Option<Codec>; 2];

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Tracks {
    #[default]
    Unknown,
    AudioOnly,
    Video,
}

struct Outlet {
    queue: Arc<Queue>,
    waker: Waker,
}

type Wakeups = Vec<(Waker, DriverWaker)>;

impl Hub {
    /// The hub of the session with the number `source`.
    pub(super) fn new(source: u64) -> Self {
        Self { source, state: Mutex::new(State::default()) }
    }

    /// The same of a session that was at another node: its timeline was at `position` at the monotonic time `now`.
    pub(super) fn resumed(source: u64, position: Duration, now: Duration) -> Self {
        let state = State { timeline: Timeline::resumed(position, now), ..State::default() };
        Self { source, state: Mutex::new(state) }
    }

    /// The time on the timeline at the monotonic time `now`.
    pub(super) fn position(&self, now: Duration) -> Duration {
        self.state.lock().timeline.position(now)
    }

    /// Another encoder is active from now on: a new one, the same one after a pause, or one that was on standby.
    pub(super) fn new_encoder(&self, encoder: u64) {
        let mut state = self.state.lock();
        state.encoder = encoder;
        state.timeline.new_encoder();
        state.gauge.new_encoder();
        state.has_keyframe = false;
        // It may return without video or without audio.
        state.tracks = Tracks::Unknown;
        state.promised = None;
        state.held.clear();
        state.held_bytes = 0;
        // The kept GOP is from before the gap. A destination that starts now starts with the new encoder.
        state.group.clear();
    }

    /// Sends packets of the active encoder that arrived at the monotonic time `now` to all destinations. Packets of another
    /// encoder, which was active a moment ago, are dropped; returns false then.
    pub(super) fn publish(&self, encoder: u64, packets: impl Iterator<Item = Packet>, now: Duration) -> bool {
        self.publish_since(encoder, packets, now, now)
    }

    /// The same with kept packets: the first media arrived at the monotonic time `began`, the last at `now`.
    pub(super) fn publish_since(
        &self,
        encoder: u64,
        packets: impl Iterator<Item = Packet>,
        began: Duration,
        now: Duration,
    ) -> bool {
        let mut wakeups = Wakeups::new();
        {
            let mut state = self.state.lock();
            if state.encoder != encoder {
                return false;
            }
            let mut arrived = began;
            for packet in packets {
                let is_config = packet.is_config();
                let placed = state.place(packet, self.source, arrived);
                if !is_config {
                    arrived = now;
                }
                if let Some(packet) = placed {
                    state.send(packet, now, &mut wakeups);
                }
            }
        }
        for (waker, driver) in wakeups {
            waker.wake([driver]);
        }
        true
    }

    /// Number of the active encoder, or of the slate.
    pub(super) fn encoder(&self) -> u64 {
        self.state.lock().encoder
    }

    /// A track of the current encoder has an unsupported codec.
    pub(super) fn foreign(&self, codec: ForeignCodec) {
        self.state.lock().gauge.foreign(codec);
    }

    /// The encoder with this number changes its frame rate as the network allows.
    pub(super) fn rate_varies(&self, encoder: u64) {
        let mut state = self.state.lock();
        if state.encoder == encoder {
            state.gauge.rate_varies();
        }
    }

    /// Measurements until the monotonic time `now`.
    pub(super) fn figures(&self, now: Duration) -> Figures {
        self.state.lock().gauge.figures(now)
    }

    /// The newest keyframe that is kept, after the configuration of its codec.
    pub(super) fn newest_keyframe(&self) -> Option<(Arc<Packet>, Arc<Packet>)> {
        let state = self.state.lock();
        Some((state.configs.video()?.clone(), state.group.iter().next()?.clone()))
    }

    /// Packets sent to destinations so far.
    pub(super) fn sent(&self) -> u64 {
        self.state.lock().sequence
    }

    /// The encoder's codecs. Notifies when a codec changes, not when a track gets its first codec.
    pub(super) fn codecs(&self) -> watch::Receiver<Codecs> {
        self.state.lock().codecs.subscribe()
    }

    /// Adds a destination at the monotonic time `now`; it starts at once with the kept GOP, or at the next keyframe.
    pub(super) fn attach(&self, queue: Arc<Queue>, waker: Waker, now: Duration) {
        let mut state = self.state.lock();
        let wakeup = queue.begin(&state.configs, state.group.iter(), now);
        let outlet = Outlet { queue, waker: waker.clone() };
        state.outlets.push(outlet);
        drop(state);
        waker.wake(wakeup);
    }

    pub(super) fn detach(&self, queue: &Arc<Queue>) {
        self.state.lock().outlets.retain(|outlet| !Arc::ptr_eq(&outlet.queue, queue));
    }
}

impl State {
    /// Puts a packet on the session's timeline. A configuration has no time, and gets the current end of the timeline. `None`: the
    /// packet has no place there.
    fn place(&mut self, packet: Packet, source: u64, now: Duration) -> Option<Packet> {
        let placed = if packet.is_config() {
            self.timeline.here()
        } else {
            let is_video = packet.kind() == Kind::Video;
            self.timeline.place(usize::from(is_video), packet.dts_ns, packet.pts_ns, now)?
        };
        let packet = Packet { source, dts_ns: placed.dts_ns, pts_ns: placed.pts_ns, ..packet };
        self.gauge.take(&packet, placed.discontinuity, now);
        self.cut |= placed.discontinuity || (packet.discontinuity && self.is_cut(&packet));
        Some(packet)
    }

    /// Whether the mark of a packet, before which the encoder's media was lost, begins a new part of the stream. With video it
    /// begins at a keyframe, and the audio in front belongs to the part before.
    fn is_cut(&self, packet: &Packet) -> bool {
        match self.tracks {
            Tracks::Unknown => false,
            Tracks::AudioOnly => true,
            Tracks::Video => packet.kind() == Kind::Video && self.has_keyframe,
        }
    }

    fn send(&mut self, mut packet: Packet, now: Duration, wakeups: &mut Wakeups) {
        let is_video = packet.kind() == Kind::Video;
        if is_video && self.tracks != Tracks::Video {
            if packet.is_config() {
                self.promised = Some(packet);
                return;
            }
            self.begin_video(now, wakeups);
        }
        if is_video && !packet.is_config() {
            self.has_keyframe |= packet.keyframe;
            if !self.has_keyframe {
                return;
            }
        }
        // Encoders repeat their configuration. Only a change is forwarded.
        if packet.is_config() && !self.configs.changes(&packet) {
            return;
        }
        // The mark goes on the next media packet that is forwarded, not on a dropped one.
        packet.discontinuity = !packet.is_config() && std::mem::take(&mut self.cut);
        if !packet.is_config() && self.tracks == Tracks::Unknown {
            self.hold(packet, now, wakeups);
            return;
        }
        let packet = self.numbered(packet);
        if packet.is_config() {
            self.configs.replace(&packet);
            self.note_codec(usize::from(!is_video), packet.codec);
            if is_video {
                self.group.clear();
            }
            self.deliver(&packet, now, wakeups);
        } else {
            self.group.push(&packet);
            self.deliver(&packet, now, wakeups);
        }
    }

    /// The first video frame: sends the configuration, then the held audio.
    fn begin_video(&mut self, now: Duration, wakeups: &mut Wakeups) {
        self.tracks = Tracks::Video;
        if let Some(config) = self.promised.take() {
            self.send(config, now, wakeups);
        }
        self.release_held(now, wakeups);
    }

    /// Gives the packet the next sequence number; the numbers have no gaps.
    fn numbered(&mut self, mut packet: Packet) -> Arc<Packet> {
        packet.sequence = self.sequence;
        self.sequence += 1;
        Arc::new(packet)
    }

    fn release_held(&mut self, now: Duration, wakeups: &mut Wakeups) {
        self.held_bytes = 0;
        for packet in std::mem::take(&mut self.held) {
            let packet = self.numbered(packet);
            self.deliver(&packet, now, wakeups);
        }
    }

    /// Holds audio until it is decided whether the stream has video, then sends it.
    fn hold(&mut self, packet: Packet, now: Duration, wakeups: &mut Wakeups) {
        let dts_ns = packet.dts_ns;
        let first = self.held.first().map_or(dts_ns, |first| first.dts_ns);
        let waited_ms = dts_ns.saturating_sub(first) / NANOS_PER_MILLI;
        self.held_bytes += packet.payload.len();
        self.held.push(packet);
        let is_small = self.held.len() < HELD_PACKETS_MAX && self.held_bytes < HELD_BYTES_MAX;
        let patience_ms =
            if self.promised.is_some() { AUDIO_ONLY_AFTER_PROMISE_MS } else { AUDIO_ONLY_AFTER_MS };
        if waited_ms < patience_ms && is_small {
            return;
        }
        self.tracks = Tracks::AudioOnly;
        // The video track of an earlier encoder has ended.
        self.configs.forget(Kind::Video);
        self.release_held(now, wakeups);
    }

    /// The first codec of a track does not notify: no destination can have failed because of it.
    fn note_codec(&self, track: usize, codec: Codec) {
        self.codecs
            .send_if_modified(|codecs| codecs[track].replace(codec).is_some_and(|before| before != codec));
    }

    fn deliver(&mut self, packet: &Arc<Packet>, now: Duration, wakeups: &mut Wakeups) {
        let has_video = self.tracks != Tracks::AudioOnly;
        for outlet in &self.outlets {
            if let Some(driver) = outlet.queue.push(packet, has_video, now) {
                wakeups.push((outlet.waker.clone(), driver));
            }
        }
    }
}
