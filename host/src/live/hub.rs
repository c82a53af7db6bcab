//! The heart of a session: packets of the encoder in, on one timeline, to the queue of every destination.
//!
//! Runs on the encoder's task, under one lock that nobody holds for long; destinations take from their queues by
//! themselves. Nothing here waits, and no payload is copied.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use satcast_media::packet as wire;
use satcast_plugin_api::host::{DriverWaker, Packet};
use satcast_plugin_api::packet::{Codec, Kind};

use tokio::sync::watch;

use super::group::{Configs, Group};
use super::health::{Figures, Gauge};
use super::queue::Queue;
use super::timeline::Timeline;
use crate::drivers::Waker;

/// Sound alone for this long in media time means that no picture will come.
pub(super) const AUDIO_ONLY_AFTER_MS: i64 = 2_000;
/// Most sound packets held until that is known.
pub(super) const HELD_PACKETS_MAX: usize = 1024;
/// Most bytes of them.
pub(super) const HELD_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Fan-out of one session.
pub(super) struct Hub {
    source: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    timeline: Timeline,
    gauge: Gauge,
    configs: Configs,
    group: Group,
    tracks: Tracks,
    /// Sound that came before it was known whether a picture will.
    held: Vec<Arc<Packet>>,
    held_bytes: usize,
    /// A keyframe of the present encoder was seen; pictures before it cannot be decoded by anyone.
    has_keyframe: bool,
    /// The next media packet follows a gap in the timeline.
    cut: bool,
    sequence: u64,
    outlets: Vec<Outlet>,
    /// Codecs of video and audio, for who gave up because of one.
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another encoder begins, or the same one after a pause.
    pub(super) fn new_encoder(&self) {
        let mut state = self.lock();
        state.timeline.new_encoder();
        state.gauge.new_encoder();
        state.has_keyframe = false;
        // It may come back without picture or without sound.
        state.tracks = Tracks::Unknown;
        state.held.clear();
        state.held_bytes = 0;
        // What was kept belongs to before the gap: a destination that starts now starts with the new encoder.
        state.group.clear();
    }

    /// Sends packets that came at the monotonic time `now` to all destinations.
    pub(super) fn publish(&self, packets: impl Iterator<Item = wire::Packet>, now: Duration) {
        let mut wakeups = Wakeups::new();
        {
            let mut state = self.lock();
            for packet in packets {
                let packet = state.place(packet, self.source, now);
                state.send(packet, now, &mut wakeups);
            }
        }
        for (waker, driver) in wakeups {
            waker.wake([driver]);
        }
    }

    /// What came until the monotonic time `now`.
    pub(super) fn figures(&self, now: Duration) -> Figures {
        self.lock().gauge.figures(now)
    }

    /// Packets sent to destinations so far.
    pub(super) fn sent(&self) -> u64 {
        self.lock().sequence
    }

    /// What the encoder sends; changes when a codec does, and not when a track gets its first one.
    pub(super) fn codecs(&self) -> watch::Receiver<Codecs> {
        self.lock().codecs.subscribe()
    }

    /// Adds a destination at the monotonic time `now`; it starts at once with the kept keyframe group, or at the next keyframe.
    pub(super) fn attach(&self, queue: Arc<Queue>, waker: Waker, now: Duration) {
        let mut state = self.lock();
        let wakeup = queue.begin(&state.configs, state.group.iter(), now);
        let outlet = Outlet { queue, waker: waker.clone() };
        state.outlets.push(outlet);
        drop(state);
        waker.wake(wakeup);
    }

    /// Takes a destination away.
    pub(super) fn detach(&self, queue: &Arc<Queue>) {
        self.lock().outlets.retain(|outlet| !Arc::ptr_eq(&outlet.queue, queue));
    }
}

impl State {
    /// Puts a packet on the session's timeline. A configuration has no time of its own: it takes that of what is around it.
    fn place(&mut self, packet: wire::Packet, source: u64, now: Duration) -> Packet {
        let config = packet.role == wire::Role::Config;
        let placed = if config {
            self.timeline.here()
        } else {
            let is_video = packet.kind == wire::TrackKind::Video;
            self.timeline.place(usize::from(is_video), packet.dts_ns, packet.pts_ns, now)
        };
        self.gauge.take(&packet, placed.dts_ns, placed.pts_ns, placed.discontinuity, now);
        self.cut |= placed.discontinuity;
        Packet { dts_ns: placed.dts_ns, pts_ns: placed.pts_ns, ..self::packet(packet, source) }
    }

    fn send(&mut self, mut packet: Packet, now: Duration, wakeups: &mut Wakeups) {
        let is_video = packet.kind == Kind::Video;
        if is_video && self.tracks != Tracks::Video {
            self.tracks = Tracks::Video;
            self.held.clear();
            self.held_bytes = 0;
        }
        if is_video && !packet.config {
            self.has_keyframe |= packet.keyframe;
            if !self.has_keyframe {
                return;
            }
        }
        // Encoders repeat their configuration; only a real change goes on.
        if packet.config && !self.configs.changes(&packet) {
            return;
        }
        // The mark goes on the next media packet that anyone gets, not on one that is left out.
        packet.discontinuity = !packet.config && std::mem::take(&mut self.cut);
        packet.sequence = self.sequence;
        self.sequence += 1;
        let packet = Arc::new(packet);
        if packet.config {
            self.configs.replace(&packet);
            self.note_codec(usize::from(!is_video), packet.codec);
            if is_video {
                self.group.clear();
            }
            self.deliver(&packet, now, wakeups);
        } else if self.tracks == Tracks::Unknown {
            self.hold(&packet, now, wakeups);
        } else {
            self.group.push(&packet);
            self.deliver(&packet, now, wakeups);
        }
    }

    /// Keeps sound until it is known whether a picture will come, then sends it.
    fn hold(&mut self, packet: &Arc<Packet>, now: Duration, wakeups: &mut Wakeups) {
        self.held.push(packet.clone());
        self.held_bytes += packet.payload.len();
        let first = self.held.first().map_or(packet.dts_ns, |first| first.dts_ns);
        let waited_ms = packet.dts_ns.saturating_sub(first) / wire::NANOS_PER_MILLI;
        let is_small = self.held.len() < HELD_PACKETS_MAX && self.held_bytes < HELD_BYTES_MAX;
        if waited_ms < AUDIO_ONLY_AFTER_MS && is_small {
            return;
        }
        self.tracks = Tracks::AudioOnly;
        // A picture of an earlier encoder is not part of what destinations get now.
        self.configs.forget(Kind::Video);
        self.held_bytes = 0;
        for packet in std::mem::take(&mut self.held) {
            self.deliver(&packet, now, wakeups);
        }
    }

    /// A track's first codec is news to nobody who could have failed for it.
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

/// A packet of the session `source` with its times as they are.
pub(super) fn packet(packet: wire::Packet, source: u64) -> Packet {
    Packet {
        kind: match packet.kind {
            wire::TrackKind::Video => Kind::Video,
            wire::TrackKind::Audio => Kind::Audio,
        },
        codec: codec(packet.codec),
        config: packet.role == wire::Role::Config,
        keyframe: packet.keyframe,
        discontinuity: false,
        track: 0,
        source,
        sequence: 0,
        dts_ns: packet.dts_ns,
        pts_ns: packet.pts_ns,
        payload: packet.payload,
    }
}

/// As media calls it.
pub(super) fn wire_codec(codec: Codec) -> wire::Codec {
    match codec {
        Codec::H264 => wire::Codec::H264,
        Codec::Hevc => wire::Codec::Hevc,
        Codec::Av1 => wire::Codec::Av1,
        Codec::Aac => wire::Codec::Aac,
        Codec::Opus => wire::Codec::Opus,
    }
}

fn codec(codec: wire::Codec) -> Codec {
    match codec {
        wire::Codec::H264 => Codec::H264,
        wire::Codec::Hevc => Codec::Hevc,
        wire::Codec::Av1 => Codec::Av1,
        wire::Codec::Aac => Codec::Aac,
        wire::Codec::Opus => Codec::Opus,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::queue::Bounds;
    use bytes::Bytes;
    use std::sync::atomic::AtomicU64;

    fn packet(kind: wire::TrackKind, dts_ms: i64, keyframe: bool) -> wire::Packet {
        wire::Packet {
            kind,
            codec: if kind == wire::TrackKind::Video { wire::Codec::H264 } else { wire::Codec::Aac },
            role: wire::Role::Data,
            keyframe,
            dts_ns: dts_ms * wire::NANOS_PER_MILLI,
            pts_ns: dts_ms * wire::NANOS_PER_MILLI,
            payload: Bytes::from_static(b"media"),
        }
    }

    fn video(dts_ms: i64, keyframe: bool) -> wire::Packet {
        packet(wire::TrackKind::Video, dts_ms, keyframe)
    }

    fn audio(dts_ms: i64) -> wire::Packet {
        packet(wire::TrackKind::Audio, dts_ms, false)
    }

    fn config(record: &'static [u8]) -> wire::Packet {
        wire::Packet { role: wire::Role::Config, payload: Bytes::from_static(record), ..video(0, false) }
    }

    struct Rig {
        hub: Hub,
        now: Duration,
    }

    impl Rig {
        fn new() -> Self {
            Self { hub: Hub::new(7), now: Duration::ZERO }
        }

        fn publish(&self, packets: impl IntoIterator<Item = wire::Packet>) {
            self.hub.publish(packets.into_iter(), self.now);
        }

        fn attach(&self) -> Arc<Queue> {
            let queue = Arc::new(Queue::new(Arc::new(AtomicU64::new(0)), Bounds::USUAL));
            let mut state = self.hub.lock();
            queue.begin(&state.configs, state.group.iter(), self.now);
            let waker = crate::drivers::Waker::idle();
            state.outlets.push(Outlet { queue: queue.clone(), waker });
            queue
        }
    }

    #[test]
    fn late_destinations_start_at_once_with_the_kept_group() {
        let rig = Rig::new();
        rig.publish([config(b"v"), video(0, true), video(33, false), video(66, true), audio(70)]);
        let queue = rig.attach();
        assert_eq!(queue.level().0, 3, "configuration, keyframe, sound after it");
        rig.publish([video(99, false)]);
        assert_eq!(queue.level().0, 4);
        rig.hub.detach(&queue);
        rig.publish([video(132, true)]);
        assert_eq!(queue.level().0, 4);
    }

    #[test]
    fn repeated_configurations_are_not_sent_again() {
        let rig = Rig::new();
        let queue = rig.attach();
        rig.publish([config(b"v"), video(0, true), config(b"v"), video(33, false), config(b"w")]);
        assert_eq!(queue.level().0, 4);
    }

    #[test]
    fn sound_alone_is_sent_when_no_picture_comes() {
        let rig = Rig::new();
        let queue = rig.attach();
        rig.publish((0..AUDIO_ONLY_AFTER_MS / 20).map(|n| audio(n * 20)));
        assert_eq!(queue.level().0, 0);
        rig.publish([audio(AUDIO_ONLY_AFTER_MS)]);
        assert_eq!(queue.level().0, AUDIO_ONLY_AFTER_MS as usize / 20 + 1, "nothing held is lost");
        let late = rig.attach();
        rig.publish([audio(AUDIO_ONLY_AFTER_MS + 20)]);
        assert_eq!(late.level().0, 1);

        let rig = Rig::new();
        let queue = rig.attach();
        rig.publish((0..HELD_PACKETS_MAX).map(|_| audio(0)));
        assert_eq!(queue.level().0, HELD_PACKETS_MAX, "the number of held packets is limited");

        let rig = Rig::new();
        let queue = rig.attach();
        let large = || wire::Packet { payload: vec![0; HELD_BYTES_MAX / 2].into(), ..audio(0) };
        rig.publish([large(), large()]);
        assert_eq!(queue.level().0, 2, "their bytes are limited");
    }

    #[test]
    fn an_encoder_may_return_without_picture() {
        let rig = Rig::new();
        rig.publish([config(b"v"), video(0, true)]);
        rig.hub.new_encoder();
        rig.publish((0..=AUDIO_ONLY_AFTER_MS / 20).map(|n| audio(n * 20)));
        let late = rig.attach();
        rig.publish([audio(AUDIO_ONLY_AFTER_MS + 20)]);
        assert_eq!(late.level().0, 1, "neither a keyframe nor an old picture is waited for");
    }

    #[test]
    fn a_returning_encoder_starts_at_a_keyframe_and_marks_the_gap() {
        let mut rig = Rig::new();
        let queue = rig.attach();
        rig.publish([config(b"v"), video(0, true)]);
        rig.hub.new_encoder();
        rig.now = Duration::from_secs(2);
        rig.publish([config(b"v"), video(0, false), video(33, true)]);
        let (count, _) = queue.level();
        assert_eq!(count, 3, "configuration, keyframe, keyframe of the return");
        let late = rig.attach();
        assert_eq!(late.level().0, 2, "the kept group is that of the return");
    }
}
