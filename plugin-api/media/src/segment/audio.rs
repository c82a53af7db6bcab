//! Handles audio packets, in sessions with video and in audio-only sessions.

use std::sync::Arc;

use super::epoch::Epoch;
use super::segmenter::Segmenter;
use super::{AUDIO_GAP_NANOS_MAX, JUMP_BACK_NANOS, SEGMENT_NANOS, VIDEO_LOST_NANOS};
use crate::fmp4::{Placed, Sample, TrackConfig, ticks_to_nanos};
use crate::{Kind, Packet};

/// An audio packet with its duration in ticks.
struct AudioPacket {
    packet: Packet,
    config: Arc<TrackConfig>,
    ticks: u32,
}

impl Segmenter {
    pub(super) fn audio(&mut self, packet: Packet, wall_ms: i64) {
        let config = self.audio_config.clone().filter(|config| config.codec() == packet.codec);
        let ticks = config.as_ref().and_then(|config| config.audio_samples(&packet.payload));
        let (Some(config), Some(ticks)) = (config, ticks) else {
            self.stats.samples_dropped += 1;
            return;
        };
        let length_ns = ticks_to_nanos(u64::from(ticks), config.timescale());
        self.audio_alone_ns = self.audio_alone_ns.saturating_add(length_ns);
        self.last_audio_dts = Some(packet.dts_ns);
        let incoming = AudioPacket { packet, config, ticks };
        let lost = self.audio_alone_ns >= VIDEO_LOST_NANOS;
        match &self.epoch {
            None if self.video_config.is_some() && !lost => self.keep_waiting(incoming.packet),
            None => self.start_audio_only(incoming, wall_ms),
            Some(epoch) if epoch.video.is_some() && lost => {
                self.close_epoch(None);
                self.start_audio_only(incoming, wall_ms);
            }
            Some(epoch) if epoch.video.is_some() => self.audio_with_video(incoming),
            Some(_) => self.audio_only(incoming, wall_ms),
        }
    }

    fn audio_with_video(&mut self, incoming: AudioPacket) {
        let Some(epoch) = &mut self.epoch else { return };
        let dts_ns = incoming.packet.dts_ns;
        let Some(video) = &epoch.video else { return };
        let distance = dts_ns.saturating_sub(video.held.packet.dts_ns).saturating_abs();
        let joins = epoch.audio.is_none() && !epoch.emitted;
        let fits = epoch.audio.as_ref().is_some_and(|track| Arc::ptr_eq(&track.config, &incoming.config));
        if !joins && !fits {
            // The track changes at the next keyframe.
            return self.keep_waiting(incoming.packet);
        }
        let media_ns = epoch.media_ns(dts_ns);
        // Video is the master clock: audio far from it or before the first frame is of no use.
        if distance > VIDEO_LOST_NANOS || media_ns < epoch.first_boundary_ns {
            self.stats.samples_dropped += 1;
            return;
        }
        if joins {
            epoch.attach_audio(incoming.config.clone(), dts_ns);
        }
        let Some((placed, at_ns)) = self.place(&incoming, media_ns) else { return };
        let Some(epoch) = &mut self.epoch else { return };
        let bytes = incoming.packet.payload.len();
        let late = at_ns < epoch.open.boundary_ns;
        let builder = match &mut epoch.closing {
            Some((closing, _)) if late && !closing.is_full(Kind::Audio, bytes) => closing,
            _ => &mut epoch.open,
        };
        if builder.is_full(Kind::Audio, bytes) {
            self.stats.samples_dropped += 1;
            return;
        }
        builder.push_audio(placed.tick, sample(incoming));
        if !late {
            self.emit_closing();
        }
    }

    fn start_audio_only(&mut self, incoming: AudioPacket, wall_ms: i64) {
        // No keyframe came for the waiting audio, and it is older than this packet.
        self.drop_waiting();
        let wall_ms = wall_ms.max(self.wall_floor_ms);
        let epoch = Epoch::audio_only(incoming.packet.dts_ns, incoming.config.clone(), self.end_ns, wall_ms);
        self.epoch = Some(epoch);
        self.append_audio(incoming);
    }

    fn audio_only(&mut self, incoming: AudioPacket, wall_ms: i64) {
        let Some(track) = self.epoch.as_ref().and_then(|epoch| epoch.audio.as_ref()) else { return };
        let step = incoming.packet.dts_ns.saturating_sub(track.last_dts);
        let jump = !(-JUMP_BACK_NANOS..=AUDIO_GAP_NANOS_MAX).contains(&step);
        if jump || !Arc::ptr_eq(&track.config, &incoming.config) {
            self.close_epoch(None);
            return self.start_audio_only(incoming, wall_ms);
        }
        self.append_audio(incoming);
    }

    /// Appends audio to an epoch without video and cuts by time.
    fn append_audio(&mut self, incoming: AudioPacket) {
        let Some(epoch) = &mut self.epoch else { return };
        if let Some(track) = &mut epoch.audio {
            track.last_dts = incoming.packet.dts_ns;
        }
        let media_ns = epoch.media_ns(incoming.packet.dts_ns);
        let Some((placed, at_ns)) = self.place(&incoming, media_ns) else { return };
        let Some(epoch) = &self.epoch else { return };
        let full = epoch.open.is_full(Kind::Audio, incoming.packet.payload.len());
        if !epoch.open.is_empty() && (at_ns - epoch.open.boundary_ns >= SEGMENT_NANOS || full) {
            self.cut_audio(at_ns);
        } else {
            let rate = incoming.config.timescale();
            self.end_part(at_ns, ticks_to_nanos(u64::from(incoming.ticks), rate));
        }
        if let Some(epoch) = &mut self.epoch {
            epoch.open.push_audio(placed.tick, sample(incoming));
        }
    }

    /// Places a packet on the timeline, with its start in nanoseconds; counts dropped packets and resyncs.
    fn place(&mut self, incoming: &AudioPacket, media_ns: i64) -> Option<(Placed, i64)> {
        let track = self.epoch.as_mut()?.audio.as_mut()?;
        let before = track.clock.resyncs();
        let placed = track.clock.place(media_ns, incoming.ticks);
        self.stats.audio_resyncs += track.clock.resyncs() - before;
        if placed.is_none() {
            self.stats.samples_dropped += 1;
        }
        let placed = placed?;
        Some((placed, track.clock.nanos(placed.tick)))
    }
}

fn sample(incoming: AudioPacket) -> Sample {
    Sample { duration: incoming.ticks, composition: 0, sync: true, payload: incoming.packet.payload }
}
