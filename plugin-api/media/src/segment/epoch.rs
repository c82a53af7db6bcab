//! The media between two discontinuities: one codec configuration for each track, one continuous timeline.

use std::sync::Arc;

use bytes::Bytes;

use super::builder::Builder;
use crate::codec::avc::with_parameter_sets;
use crate::fmp4::{
    AudioClock, COMPOSITION_NANOS_MAX, Sample, TrackConfig, VIDEO_TIMESCALE, nanos_to_ticks, ticks_to_nanos,
};
use crate::{NANOS_PER_MILLI, Packet};

/// Duration of a frame when it is unknown: 1/30 s.
const DEFAULT_FRAME_TICKS: u32 = VIDEO_TIMESCALE / 30;

/// The newest frame: its duration is unknown until the next one arrives.
#[derive(Debug)]
pub(super) struct HeldFrame {
    pub(super) packet: Packet,
    /// Decode time in ticks.
    pub(super) tick: u64,
}

#[derive(Debug)]
pub(super) struct VideoTrack {
    pub(super) config: Arc<TrackConfig>,
    pub(super) held: HeldFrame,
    /// Presentation time of the last keyframe in nanoseconds.
    pub(super) gop_start_ns: i64,
    /// Duration of the frame before the held one, in ticks.
    pub(super) last_duration: u32,
    /// Composition time of the last keyframe in nanoseconds.
    pub(super) key_composition_ns: i64,
    /// Parameter sets to repeat in keyframes.
    in_band: Option<Bytes>,
}

#[derive(Debug)]
pub(super) struct AudioTrack {
    pub(super) config: Arc<TrackConfig>,
    pub(super) clock: AudioClock,
    /// Publisher's time of the last packet, in nanoseconds.
    pub(super) last_dts: i64,
}

#[derive(Debug)]
pub(super) struct Epoch {
    /// Publisher's time of the start in nanoseconds.
    base_dts: i64,
    /// Media time of the start in nanoseconds.
    pub(super) origin_ns: i64,
    /// Presentation time of the start in nanoseconds; earlier audio is dropped.
    pub(super) first_boundary_ns: i64,
    /// Wall time of the start in milliseconds since 1970.
    pub(super) wall_ms: i64,
    pub(super) video: Option<VideoTrack>,
    pub(super) audio: Option<AudioTrack>,
    pub(super) open: Builder,
    /// Its video is complete, its last audio is not; with the presentation time of its end in nanoseconds.
    pub(super) closing: Option<(Builder, i64)>,
    /// A segment or part of this epoch was emitted, so its tracks are fixed.
    pub(super) emitted: bool,
}

impl Epoch {
    /// An epoch that starts with `packet` at media time `origin_ns`; `in_band` are parameter sets for its keyframes.
    pub(super) fn new(
        packet: Packet,
        config: Arc<TrackConfig>,
        in_band: Option<Bytes>,
        origin_ns: i64,
        wall_ms: i64,
    ) -> Self {
        let tick = nanos_to_ticks(origin_ns, VIDEO_TIMESCALE);
        // Rounded to a whole tick.
        let origin_ns = ticks_to_nanos(tick, VIDEO_TIMESCALE);
        let composition = composition_ns(&packet);
        let mut epoch = Epoch {
            base_dts: packet.dts_ns,
            origin_ns,
            first_boundary_ns: origin_ns + composition,
            wall_ms,
            video: None,
            audio: None,
            open: Builder::new(origin_ns + composition, true),
            closing: None,
            emitted: false,
        };
        epoch.video = Some(VideoTrack {
            config,
            gop_start_ns: origin_ns + composition,
            last_duration: DEFAULT_FRAME_TICKS,
            key_composition_ns: composition,
            held: HeldFrame { packet, tick },
            in_band,
        });
        epoch
    }

    /// An audio-only epoch that starts at `dts_ns`.
    pub(super) fn audio_only(dts_ns: i64, config: Arc<TrackConfig>, origin_ns: i64, wall_ms: i64) -> Self {
        let mut epoch = Epoch {
            base_dts: dts_ns,
            origin_ns,
            first_boundary_ns: origin_ns,
            wall_ms,
            video: None,
            audio: None,
            open: Builder::new(origin_ns, true),
            closing: None,
            emitted: false,
        };
        epoch.attach_audio(config, dts_ns);
        epoch
    }

    pub(super) fn attach_audio(&mut self, config: Arc<TrackConfig>, dts_ns: i64) {
        let clock = AudioClock::new(config.timescale());
        self.audio = Some(AudioTrack { config, clock, last_dts: dts_ns });
    }

    /// Media time of a publisher's time.
    pub(super) fn media_ns(&self, dts_ns: i64) -> i64 {
        dts_ns.saturating_sub(self.base_dts).saturating_add(self.origin_ns)
    }

    /// Publisher's time minus media time, in nanoseconds.
    pub(super) fn offset_ns(&self) -> i64 {
        self.base_dts.saturating_sub(self.origin_ns)
    }

    /// Wall time of a presentation time, in milliseconds since 1970.
    pub(super) fn date_ms(&self, boundary_ns: i64) -> i64 {
        self.wall_ms.saturating_add((boundary_ns - self.first_boundary_ns) / NANOS_PER_MILLI)
    }

    /// Start, in presentation time, of a segment whose first frame is `packet`. For a keyframe this is its own presentation
    /// time; another frame is assumed to have the composition offset of the last keyframe.
    pub(super) fn boundary_ns(&self, packet: &Packet, tick: u64) -> i64 {
        if packet.keyframe {
            return self.media_ns(packet.dts_ns).saturating_add(composition_ns(packet));
        }
        self.estimated_boundary_ns(tick)
    }

    /// Length of the longest segment that is not emitted, in nanoseconds, if the open one ended before `packet`.
    pub(super) fn longest_ns(&self, packet: &Packet) -> i64 {
        let end_ns = self.media_ns(packet.dts_ns).saturating_add(composition_ns(packet));
        let closing_ns = self.closing.as_ref().map_or(0, |(closing, end_ns)| end_ns - closing.boundary_ns);
        end_ns.saturating_sub(self.open.boundary_ns).max(closing_ns)
    }

    /// As [`Epoch::boundary_ns`] for a frame that is not known.
    pub(super) fn estimated_boundary_ns(&self, tick: u64) -> i64 {
        let composition = self.video.as_ref().map_or(0, |video| video.key_composition_ns);
        ticks_to_nanos(tick, VIDEO_TIMESCALE) + composition
    }

    /// Moves the held frame into the open segment; it ends at `end_tick`, or has the duration of the frame before.
    pub(super) fn release_held(&mut self, end_tick: Option<u64>) {
        let Some(video) = &mut self.video else { return };
        let tick = video.held.tick;
        let duration = match end_tick {
            Some(end) => u32::try_from(end.saturating_sub(tick)).unwrap_or(u32::MAX),
            None => video.last_duration,
        };
        video.last_duration = duration;
        let packet = video.held.packet.clone();
        let payload = match &video.in_band {
            Some(sets) if packet.keyframe => with_parameter_sets(sets, &packet.payload),
            _ => packet.payload.clone(),
        };
        // The decode time may have been moved to keep the order; the presentation time stays.
        let shown_ns = self.media_ns(packet.dts_ns).saturating_add(composition_ns(&packet));
        let composition = signed_ticks(shown_ns) - i128::from(tick);
        let composition = i32::try_from(composition).unwrap_or(0);
        let sample = Sample { duration, composition, sync: packet.keyframe, payload };
        self.open.push_video(tick, sample);
    }

    /// Starts a new open segment at the held frame; the segment before waits for its audio.
    pub(super) fn cut_at_held(&mut self) {
        let Some(video) = &self.video else { return };
        let boundary_ns = self.boundary_ns(&video.held.packet, video.held.tick);
        self.close_open(Builder::new(boundary_ns, video.held.packet.keyframe));
    }

    /// Starts a new open segment at the last keyframe of the open one, which has index `index` there; the held
    /// frame belongs to the new segment.
    pub(super) fn cut_at_keyframe(&mut self, index: usize) {
        let Some(video) = &self.video else { return };
        let mut next = Builder::new(video.gop_start_ns, true);
        self.open.split_video(index, &mut next);
        self.close_open(next);
    }

    fn close_open(&mut self, mut next: Builder) {
        let boundary_ns = next.boundary_ns;
        if let Some(audio) = &self.audio {
            let boundary = nanos_to_ticks(boundary_ns, audio.config.timescale());
            self.open.split_audio(boundary, &mut next);
        }
        let done = std::mem::replace(&mut self.open, next);
        self.closing = Some((done, boundary_ns));
    }

    pub(super) fn held_bytes(&self) -> usize {
        let closing = self.closing.as_ref().map_or(0, |(builder, _)| builder.bytes());
        let held = self.video.as_ref().map_or(0, |video| video.held.packet.payload.len());
        closing + held + self.open.bytes()
    }
}

/// Presentation minus decode time, within the limit.
pub(super) fn composition_ns(packet: &Packet) -> i64 {
    packet.pts_ns.saturating_sub(packet.dts_ns).clamp(-COMPOSITION_NANOS_MAX, COMPOSITION_NANOS_MAX)
}

fn signed_ticks(nanos: i64) -> i128 {
    let size = i128::from(nanos_to_ticks(nanos.saturating_abs(), VIDEO_TIMESCALE));
    if nanos < 0 { -size } else { size }
}
