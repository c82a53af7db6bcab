//! Handles video packets: start an epoch, continue it, cut a segment.

use std::sync::Arc;

use super::SEGMENT_NANOS_MIN;
use super::epoch::{Epoch, HeldFrame, composition_ns};
use super::segmenter::Segmenter;
use super::{AUDIO_LOST_NANOS, AUDIO_WAIT_NANOS, FRAMES_LOST_NANOS, JUMP_BACK_NANOS, NANOS_PER_SECOND};
use crate::fmp4::{TrackConfig, VIDEO_TIMESCALE, nanos_to_ticks, ticks_to_nanos};
use crate::{Kind, Packet};

/// Limit of a segment that is exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Overrun {
    Time,
    Size,
}

impl Segmenter {
    pub(super) fn video(&mut self, packet: Packet, wall_ms: i64) {
        let Some(config) = self.video_config.clone().filter(|config| config.codec() == packet.codec) else {
            self.stats.samples_dropped += 1;
            return;
        };
        self.audio_alone_ns = 0;
        let current = self.epoch.as_ref().and_then(|epoch| epoch.video.as_ref());
        let mut end_dts = None;
        if let Some(video) = current {
            let step = packet.dts_ns.saturating_sub(video.held.packet.dts_ns);
            let jump = step > self.limit_ns() || step < -JUMP_BACK_NANOS || self.frames_lost(&packet, step);
            let same = Arc::ptr_eq(&video.config, &config);
            let switch = packet.keyframe && self.audio_changed(packet.dts_ns);
            if same && !jump && !switch {
                return self.continue_video(packet);
            }
            if !same && !packet.keyframe {
                self.stats.samples_dropped += 1;
                return;
            }
            end_dts = (!jump && step > 0).then_some(packet.dts_ns);
        }
        if !packet.keyframe {
            // After a jump no frame can be decoded before the next keyframe; an audio-only epoch continues.
            self.stats.samples_dropped += 1;
            if self.epoch.as_ref().is_some_and(|epoch| epoch.video.is_some()) {
                self.close_epoch(None);
            }
            return;
        }
        self.close_epoch(end_dts);
        self.start_epoch(packet, config, wall_ms);
    }

    /// Frames are missing before this keyframe, `step_ns` after the last frame, and their GOP would be too long
    /// with the hole in it: the encoder dropped frames and did not change its keyframe interval.
    fn frames_lost(&self, packet: &Packet, step_ns: i64) -> bool {
        let Some(epoch) = &self.epoch else { return false };
        let Some(video) = &epoch.video else { return false };
        let shown_ns = epoch.media_ns(packet.dts_ns).saturating_add(composition_ns(packet));
        packet.keyframe
            && step_ns >= FRAMES_LOST_NANOS
            && shown_ns.saturating_sub(video.gop_start_ns) > self.limit_ns()
    }

    fn start_epoch(&mut self, packet: Packet, config: Arc<TrackConfig>, wall_ms: i64) {
        let in_band = self.in_band.next(&config);
        let wall_ms_from = wall_ms.max(self.wall_floor_ms);
        self.epoch = Some(Epoch::new(packet, config, in_band, self.end_ns, wall_ms_from));
        for packet in std::mem::take(&mut self.waiting) {
            self.audio(packet, wall_ms);
        }
    }

    /// The next segment needs another audio track, a first one, or none.
    fn audio_changed(&self, dts_ns: i64) -> bool {
        let Some(epoch) = &self.epoch else { return false };
        let recent = |last: i64| dts_ns.saturating_sub(last).saturating_abs() <= AUDIO_LOST_NANOS;
        let wanted = self.audio_config.as_ref().filter(|_| self.last_audio_dts.is_some_and(recent));
        match (&epoch.audio, wanted) {
            (None, None) => false,
            // The audio track can still join the first segment.
            (None, Some(_)) => epoch.emitted,
            (Some(_), None) => true,
            (Some(track), Some(wanted)) => !Arc::ptr_eq(&track.config, wanted),
        }
    }

    /// Takes a frame that continues the epoch.
    fn continue_video(&mut self, packet: Packet) {
        let Some(epoch) = &self.epoch else { return };
        let media_ns = epoch.media_ns(packet.dts_ns);
        let Some(video) = &epoch.video else { return };
        // Decode times must rise: a frame with a time that is too early is decoded one tick after the frame before.
        let tick = nanos_to_ticks(media_ns, VIDEO_TIMESCALE).max(video.held.tick + 1);
        let boundary_ns = epoch.boundary_ns(&packet, tick);
        self.settle_held(tick, boundary_ns);
        let before = self.epoch.as_ref().and_then(|epoch| epoch.video.as_ref()).filter(|_| packet.keyframe);
        if let Some(video) = before {
            self.longest_gop_ns = self.longest_gop_ns.max(boundary_ns - video.gop_start_ns);
        }
        let limit_ns = self.several_limit_ns();
        let Some(epoch) = &mut self.epoch else { return };
        let Some(video) = &mut epoch.video else { return };
        let mut cut = false;
        if packet.keyframe {
            let gop_ns = boundary_ns - video.gop_start_ns;
            video.gop_start_ns = boundary_ns;
            video.key_composition_ns = composition_ns(&packet);
            let elapsed = boundary_ns - epoch.open.boundary_ns;
            // Two GOPs of 1.5 s would be too long for a target of 2 s.
            let next_too_long = elapsed >= NANOS_PER_SECOND && elapsed + gop_ns > limit_ns;
            // Emitted parts cannot move to the next segment later, when the GOP turns out to be too long.
            let may_be_too_long =
                self.part_target_ns.is_some() && elapsed.saturating_add(self.longest_gop_ns) > limit_ns;
            cut = elapsed >= SEGMENT_NANOS_MIN || next_too_long || may_be_too_long;
        }
        video.held = HeldFrame { packet, tick };
        if cut {
            self.cut();
        } else {
            self.end_part_at_held(boundary_ns);
        }
        self.stop_waiting_for_audio(ticks_to_nanos(tick, VIDEO_TIMESCALE));
    }

    /// Gives the held frame its end; `boundary_ns` is the presentation time of the next frame. A segment that
    /// would become too long or too large with the held frame ends before it: at its last keyframe, if it has one after
    /// its start. A GOP that is too long by itself raises the target. If the target is already at its maximum or the
    /// segment has too many bytes, the segment is cut at the held frame, keyframe or not.
    pub(super) fn settle_held(&mut self, end_tick: u64, boundary_ns: i64) {
        let mut overrun = self.overrun(boundary_ns);
        if overrun.is_some() && !self.holds_keyframe() {
            if self.split_at_keyframe() {
                overrun = self.overrun(boundary_ns);
            }
            if overrun == Some(Overrun::Time) {
                self.raise_target();
                overrun = self.overrun(boundary_ns);
            }
            self.stats.overlong_gops += u64::from(overrun.is_some());
        }
        if overrun.is_some() {
            self.cut();
        }
        if let Some(epoch) = &mut self.epoch {
            epoch.release_held(Some(end_tick));
        }
    }

    /// The limit that the open segment would exceed with the held frame, which ends at `boundary_ns`.
    fn overrun(&self, boundary_ns: i64) -> Option<Overrun> {
        let epoch = self.epoch.as_ref()?;
        // Frames in emitted parts count too: at a low frame rate each frame is emitted before the next one arrives.
        let video = epoch.video.as_ref().filter(|_| epoch.open.frames() > 0)?;
        if epoch.open.is_full(Kind::Video, video.held.packet.payload.len()) {
            return Some(Overrun::Size);
        }
        (boundary_ns - epoch.open.boundary_ns > self.limit_ns()).then_some(Overrun::Time)
    }

    fn holds_keyframe(&self) -> bool {
        let video = self.epoch.as_ref().and_then(|epoch| epoch.video.as_ref());
        video.is_some_and(|video| video.held.packet.keyframe)
    }

    /// Ends the open segment at its last keyframe; false if this is its start, was already emitted in a part, or does not exist.
    fn split_at_keyframe(&mut self) -> bool {
        let Some(open) = self.epoch.as_ref().map(|epoch| &epoch.open) else { return false };
        let index = open.last_keyframe().filter(|index| *index > 0 || open.has_parts());
        let Some(index) = index else { return false };
        self.emit_closing();
        if let Some(epoch) = &mut self.epoch {
            epoch.cut_at_keyframe(index);
        }
        true
    }

    /// Ends the open segment at the held frame.
    fn cut(&mut self) {
        self.emit_closing();
        if let Some(epoch) = &mut self.epoch {
            epoch.cut_at_held();
        }
    }

    /// Emits the segment before when its audio is complete, cannot come, or is too late.
    fn stop_waiting_for_audio(&mut self, now_ns: i64) {
        let Some(epoch) = &self.epoch else { return };
        let Some((_, end_ns)) = &epoch.closing else { return };
        let complete = epoch.audio.is_none() || !epoch.open.audio.samples.is_empty();
        if complete || now_ns.saturating_sub(*end_ns) > AUDIO_WAIT_NANOS {
            self.emit_closing();
        }
    }
}
