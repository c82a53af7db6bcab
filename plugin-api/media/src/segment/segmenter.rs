//! State and inputs of the segmenter, and the handling of codec configurations.

use std::collections::VecDeque;
use std::sync::Arc;

use super::epoch::Epoch;
use super::parts::{PART_TARGET_NANOS_MAX, part_target_ns};
use super::probe::{Probe, target_for};
use super::{
    Event, Init, NANOS_PER_SECOND, PART_NANOS_MIN, SAMPLE_BYTES_MAX, SegmenterStats, TARGET_EXCESS_NANOS,
    TARGET_SECONDS_MAX, TARGET_SECONDS_MIN, TIME_NANOS_MAX, WAITING_AUDIO_PACKETS_MAX,
};
use crate::fmp4::{InBand, TrackConfig};
use crate::{Kind, Packet, Role};

/// Assumed duration of a frame when it is unknown, in nanoseconds.
const DEFAULT_FRAME_NANOS: i64 = NANOS_PER_SECOND / 30;

/// Cuts the packets of one session into segments; the module documentation has the rules.
#[derive(Debug)]
pub struct Segmenter {
    /// `Some` until the target duration is fixed.
    probe: Option<Probe>,
    /// [`Event::Started`] was emitted. With parts this comes before the target duration is fixed.
    started: bool,
    target_seconds: u32,
    /// Requested duration of parts, in nanoseconds; `None` without parts.
    part_wish_ns: Option<i64>,
    /// Target duration of parts, in nanoseconds; known once started.
    pub(super) part_target_ns: Option<i64>,
    pub(super) longest_gop_ns: i64,
    /// Current codec configuration; `None` before the first one and after a refused one.
    pub(super) video_config: Option<Arc<TrackConfig>>,
    pub(super) audio_config: Option<Arc<TrackConfig>>,
    /// The video configurations of the session.
    pub(super) in_band: InBand,
    pub(super) epoch: Option<Epoch>,
    /// Audio that waits for a keyframe.
    pub(super) waiting: VecDeque<Packet>,
    /// Audio since the last video frame, in nanoseconds.
    pub(super) audio_alone_ns: i64,
    pub(super) last_audio_dts: Option<i64>,
    pub(super) sequence: u64,
    pub(super) fragment: u32,
    pub(super) init: Option<Init>,
    /// The next segment does not continue the one before.
    pub(super) discontinuity: bool,
    /// Media time at the end of the finished segments, in nanoseconds.
    pub(super) end_ns: i64,
    /// Wall time at the end of the last finished segment: the next one does not start earlier.
    pub(super) wall_floor_ms: i64,
    pub(super) events: VecDeque<Event>,
    pub(super) stats: SegmenterStats,
}

impl Segmenter {
    /// A segmenter whose first segment has the media sequence number `first_sequence`.
    ///
    /// The number must never go down for one URL, across sessions and restarts: use the Unix time in seconds,
    /// or the last number plus one if that is higher (segments last a second or more on average).
    pub fn new(first_sequence: u64) -> Self {
        Segmenter {
            probe: Some(Probe::default()),
            started: false,
            target_seconds: TARGET_SECONDS_MIN,
            part_wish_ns: None,
            part_target_ns: None,
            longest_gop_ns: 0,
            video_config: None,
            audio_config: None,
            in_band: InBand::default(),
            epoch: None,
            waiting: VecDeque::new(),
            audio_alone_ns: 0,
            last_audio_dts: None,
            sequence: first_sequence,
            fragment: 0,
            init: None,
            discontinuity: false,
            end_ns: 0,
            wall_floor_ms: 0,
            events: VecDeque::new(),
            stats: SegmenterStats::default(),
        }
    }

    /// Enables parts of about `nanos` nanoseconds: each is an [`Event::Part`] before the event of its segment.
    #[must_use]
    pub fn with_parts(mut self, nanos: i64) -> Self {
        self.part_wish_ns = Some(nanos.clamp(PART_NANOS_MIN, PART_TARGET_NANOS_MAX));
        self
    }

    /// Target duration of parts in nanoseconds, whole milliseconds; known from [`Event::Started`] on, and never changes. A part
    /// is longer only because of a single frame. `None` without parts.
    pub fn part_target_ns(&self) -> Option<i64> {
        self.part_target_ns
    }

    /// Takes one packet. `wall_ms` is its arrival time, in milliseconds since 1970; only that of the first
    /// keyframe after the start or a discontinuity is used, as the anchor of EXT-X-PROGRAM-DATE-TIME.
    ///
    /// Never fails: unusable packets are counted in [`Segmenter::stats`]. Poll the events afterwards.
    pub fn push(&mut self, packet: &Packet, wall_ms: i64) {
        if !packet.is_config() {
            self.stats.samples_in += 1;
            if !plausible(packet) {
                self.stats.samples_dropped += 1;
                return;
            }
        }
        let wall_ms = wall_ms.max(0);
        match &mut self.probe {
            None => self.process(packet.clone(), wall_ms),
            Some(probe) if self.started => {
                if probe.look(packet) {
                    self.fix_target(packet);
                }
                self.process(packet.clone(), wall_ms);
            }
            Some(probe) => {
                let is_known = probe.push(packet.clone(), wall_ms);
                if is_known || self.part_wish_ns.is_some_and(|wish_ns| probe.has_a_part(wish_ns)) {
                    self.start(is_known);
                }
            }
        }
    }

    /// Next event, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Call when the encoder reconnected or packets were lost. The unfinished segment ends with the packets that arrived. The
    /// next segment starts at a keyframe and has a discontinuity. Timestamps may restart.
    pub fn gap(&mut self) {
        // An encoder that loses packets all the time may never complete a GOP.
        if !self.started && self.probe.as_ref().is_some_and(Probe::has_video) {
            self.start(false);
        }
        if let Some(probe) = &mut self.probe {
            probe.gap();
        }
        self.drop_waiting();
        self.audio_alone_ns = 0;
        self.last_audio_dts = None;
        self.close_epoch(None);
    }

    /// Ends the session: all held packets become segments.
    pub fn finish(&mut self) {
        if !self.started {
            self.start(true);
        }
        self.close_epoch(None);
        self.drop_waiting();
    }

    /// Counters so far.
    pub fn stats(&self) -> SegmenterStats {
        self.stats
    }

    /// Payload bytes held in unfinished segments and before the start.
    pub fn held_bytes(&self) -> usize {
        let waiting: usize = self.waiting.iter().map(|packet| packet.payload.len()).sum();
        waiting
            + self.probe.as_ref().map_or(0, Probe::held_bytes)
            + self.epoch.as_ref().map_or(0, Epoch::held_bytes)
    }

    /// Longest allowed segment, in nanoseconds. As long as the target duration is not fixed, it may still rise to any
    /// length of the first GOP.
    pub(super) fn limit_ns(&self) -> i64 {
        limit_of(if self.probe.is_some() { TARGET_SECONDS_MAX } else { self.target_seconds })
    }

    /// Longest allowed segment of more than one GOP, in nanoseconds: several GOPs never raise the target.
    pub(super) fn several_limit_ns(&self) -> i64 {
        let is_open = self.probe.is_some();
        limit_of(if is_open { target_for(self.longest_gop_ns) } else { self.target_seconds })
    }

    /// Raises the target so that a GOP longer than it can become one segment. RFC 8216, 6.2.1 forbids a change of the
    /// target. This breaks the rule knowingly, at most once in a session, when the encoder changes its keyframe
    /// interval: otherwise the GOP would be cut at a frame that is not a keyframe. Players that start at such a
    /// segment fail (Chromium's own player) or show a frozen frame (hls.js). With a higher target they only reload
    /// less often and stay further behind.
    pub(super) fn raise_target(&mut self) {
        self.raise_target_to(TARGET_SECONDS_MAX);
    }

    fn raise_target_to(&mut self, target_seconds: u32) {
        if self.target_seconds < target_seconds {
            self.target_seconds = target_seconds;
            self.events.push_back(Event::TargetRaised { target_seconds });
        }
    }

    /// A segment of `duration_ns` is complete before the GOPs are known, because packets were lost or it is too large.
    pub(super) fn admit(&mut self, duration_ns: i64) {
        if self.probe.is_some() {
            self.raise_target_to(target_for(duration_ns));
        }
    }

    /// Fixes the target duration before `packet`, with which the GOPs of the first segment are known.
    fn fix_target(&mut self, packet: &Packet) {
        let Some(probe) = self.probe.take() else { return };
        self.longest_gop_ns = self.longest_gop_ns.max(probe.longest_ns());
        // Its parts are out: it cannot be cut again.
        let longest_ns = self.epoch.as_ref().map_or(0, |epoch| epoch.longest_ns(packet));
        self.raise_target_to(probe.target_seconds().max(target_for(longest_ns)));
    }

    /// Announces the target duration and processes the held packets. Before the GOPs are known (`is_known`), with parts or at a
    /// gap, the target is the smallest: it is raised by [`Segmenter::fix_target`] and [`Segmenter::admit`].
    fn start(&mut self, is_known: bool) {
        let Some(mut probe) = self.probe.take() else { return };
        self.started = true;
        self.target_seconds = if is_known { probe.target_seconds() } else { TARGET_SECONDS_MIN };
        let frame_ns = probe.has_video().then(|| probe.frame_ns().unwrap_or(DEFAULT_FRAME_NANOS));
        self.part_target_ns = self.part_wish_ns.map(|wish_ns| part_target_ns(wish_ns, frame_ns));
        self.longest_gop_ns = probe.longest_ns();
        self.events.push_back(Event::Started { target_seconds: self.target_seconds });
        let held = probe.take();
        self.probe = (!is_known).then_some(probe);
        for (packet, wall_ms) in held {
            self.process(packet, wall_ms);
        }
    }

    fn process(&mut self, packet: Packet, wall_ms: i64) {
        match (packet.role, packet.kind()) {
            (Role::Config, _) => self.record(&packet),
            (Role::Data, Kind::Video) => self.video(packet, wall_ms),
            (Role::Data, Kind::Audio) => self.audio(packet, wall_ms),
        }
    }

    /// Takes a codec configuration. Encoders repeat them: equal bytes change nothing. A change that is
    /// reverted before the next keyframe changes nothing either.
    fn record(&mut self, packet: &Packet) {
        let same =
            |config: &&Arc<TrackConfig>| config.codec() == packet.codec && config.record() == &packet.payload;
        let video = packet.kind() == Kind::Video;
        let now = if video { &self.video_config } else { &self.audio_config };
        if now.as_ref().is_some_and(|config| same(&config)) {
            return;
        }
        let used = self.epoch.as_ref().and_then(|epoch| match packet.kind() {
            Kind::Video => epoch.video.as_ref().map(|track| &track.config),
            Kind::Audio => epoch.audio.as_ref().map(|track| &track.config),
        });
        let config = match used.filter(same) {
            Some(config) => Some(config.clone()),
            None => match TrackConfig::parse(packet.codec, &packet.payload) {
                Ok(config) => Some(Arc::new(config)),
                Err(error) => {
                    self.stats.records_refused += 1;
                    self.events.push_back(Event::TrackRefused { kind: packet.kind(), error });
                    None
                }
            },
        };
        if video {
            self.video_config = config;
        } else {
            // The waiting audio was coded with the configuration before.
            self.drop_waiting();
            self.audio_config = config;
        }
    }

    pub(super) fn keep_waiting(&mut self, packet: Packet) {
        if self.waiting.len() == WAITING_AUDIO_PACKETS_MAX {
            self.waiting.pop_front();
            self.stats.samples_dropped += 1;
        }
        self.waiting.push_back(packet);
    }

    pub(super) fn drop_waiting(&mut self) {
        self.stats.samples_dropped += self.waiting.len() as u64;
        self.waiting.clear();
    }
}

/// Longest segment that rounds to a target duration, in nanoseconds.
fn limit_of(target_seconds: u32) -> i64 {
    i64::from(target_seconds) * NANOS_PER_SECOND + TARGET_EXCESS_NANOS
}

/// Times within [`TIME_NANOS_MAX`], and a payload that fits into a segment.
fn plausible(packet: &Packet) -> bool {
    let times = -TIME_NANOS_MAX..=TIME_NANOS_MAX;
    times.contains(&packet.dts_ns)
        && times.contains(&packet.pts_ns)
        && (1..=SAMPLE_BYTES_MAX).contains(&packet.payload.len())
}
