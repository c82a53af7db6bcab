//! What a packet of sound does, with pictures and alone.

use std::sync::Arc;

use super::epoch::Epoch;
use super::segmenter::Segmenter;
use super::{AUDIO_GAP_NANOS_MAX, JUMP_BACK_NANOS, SEGMENT_NANOS, VIDEO_LOST_NANOS};
use crate::fmp4::{Placed, Sample, TrackConfig, ticks_to_nanos};
use crate::{Kind, Packet};

/// A packet with its length in ticks.
struct Sound {
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
        self.sound_alone_ns = self.sound_alone_ns.saturating_add(length_ns);
        self.last_audio_dts = Some(packet.dts_ns);
        let sound = Sound { packet, config, ticks };
        let lost = self.sound_alone_ns >= VIDEO_LOST_NANOS;
        match &self.epoch {
            None if self.video_config.is_some() && !lost => self.keep_waiting(sound.packet),
            None => self.start_sound_only(sound, wall_ms),
            Some(epoch) if epoch.video.is_some() && lost => {
                self.close_epoch(None);
                self.start_sound_only(sound, wall_ms);
            }
            Some(epoch) if epoch.video.is_some() => self.sound_with_video(sound),
            Some(_) => self.sound_only(sound, wall_ms),
        }
    }

    fn sound_with_video(&mut self, sound: Sound) {
        let Some(epoch) = &mut self.epoch else { return };
        let dts_ns = sound.packet.dts_ns;
        let Some(video) = &epoch.video else { return };
        let distance = dts_ns.saturating_sub(video.held.packet.dts_ns).saturating_abs();
        let joins = epoch.audio.is_none() && !epoch.emitted;
        let fits = epoch.audio.as_ref().is_some_and(|track| Arc::ptr_eq(&track.config, &sound.config));
        if !joins && !fits {
            // The track changes at the next keyframe.
            return self.keep_waiting(sound.packet);
        }
        let media_ns = epoch.media_ns(dts_ns);
        // Pictures are the master: sound far from them is of no use, nor is sound before the first.
        if distance > VIDEO_LOST_NANOS || media_ns < epoch.first_boundary_ns {
            self.stats.samples_dropped += 1;
            return;
        }
        if joins {
            epoch.attach_audio(sound.config.clone(), dts_ns);
        }
        let Some((placed, at_ns)) = self.place(&sound, media_ns) else { return };
        let Some(epoch) = &mut self.epoch else { return };
        let bytes = sound.packet.payload.len();
        let late = at_ns < epoch.open.boundary_ns;
        let builder = match &mut epoch.closing {
            Some((closing, _)) if late && !closing.is_full(Kind::Audio, bytes) => closing,
            _ => &mut epoch.open,
        };
        if builder.is_full(Kind::Audio, bytes) {
            self.stats.samples_dropped += 1;
            return;
        }
        builder.push_audio(placed.tick, sample(sound));
        if !late {
            self.emit_closing();
        }
    }

    fn start_sound_only(&mut self, sound: Sound, wall_ms: i64) {
        // No keyframe came for what waits, and it is older than this.
        self.drop_waiting();
        let wall_ms = wall_ms.max(self.wall_floor_ms);
        let epoch = Epoch::audio_only(sound.packet.dts_ns, sound.config.clone(), self.end_ns, wall_ms);
        self.epoch = Some(epoch);
        self.append_sound(sound);
    }

    fn sound_only(&mut self, sound: Sound, wall_ms: i64) {
        let Some(track) = self.epoch.as_ref().and_then(|epoch| epoch.audio.as_ref()) else { return };
        let step = sound.packet.dts_ns.saturating_sub(track.last_dts);
        let jump = !(-JUMP_BACK_NANOS..=AUDIO_GAP_NANOS_MAX).contains(&step);
        if jump || !Arc::ptr_eq(&track.config, &sound.config) {
            self.close_epoch(None);
            return self.start_sound_only(sound, wall_ms);
        }
        self.append_sound(sound);
    }

    /// Appends sound to a stretch without pictures and cuts by time.
    fn append_sound(&mut self, sound: Sound) {
        let Some(epoch) = &mut self.epoch else { return };
        if let Some(track) = &mut epoch.audio {
            track.last_dts = sound.packet.dts_ns;
        }
        let media_ns = epoch.media_ns(sound.packet.dts_ns);
        let Some((placed, at_ns)) = self.place(&sound, media_ns) else { return };
        let Some(epoch) = &self.epoch else { return };
        let full = epoch.open.is_full(Kind::Audio, sound.packet.payload.len());
        if !epoch.open.is_empty() && (at_ns - epoch.open.boundary_ns >= SEGMENT_NANOS || full) {
            self.cut_sound(at_ns);
        } else {
            let rate = sound.config.timescale();
            self.end_part(at_ns, ticks_to_nanos(u64::from(sound.ticks), rate));
        }
        if let Some(epoch) = &mut self.epoch {
            epoch.open.push_audio(placed.tick, sample(sound));
        }
    }

    /// Place on the time line; counts what is left out.
    fn place(&mut self, sound: &Sound, media_ns: i64) -> Option<(Placed, i64)> {
        let track = self.epoch.as_mut()?.audio.as_mut()?;
        let before = track.clock.resyncs();
        let placed = track.clock.place(media_ns, sound.ticks);
        self.stats.audio_resyncs += track.clock.resyncs() - before;
        if placed.is_none() {
            self.stats.samples_dropped += 1;
        }
        let placed = placed?;
        Some((placed, track.clock.nanos(placed.tick)))
    }
}

fn sample(sound: Sound) -> Sample {
    Sample { duration: sound.ticks, composition: 0, sync: true, payload: sound.packet.payload }
}
