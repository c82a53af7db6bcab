//! Parts of the open segment, emitted before it is complete (RFC 8216bis, section 4.4.4.9).

use bytes::Bytes;

use super::builder::Builder;
use super::epoch::Epoch;
use super::segmenter::Segmenter;
use super::{Event, Part};
use crate::fmp4::{Fmp4Error, VIDEO_TIMESCALE, media_segment, nanos_to_ticks, ticks_to_nanos};
use crate::{Kind, NANOS_PER_MILLI};

/// Longest target duration of parts in nanoseconds, for encoders with a very low frame rate.
pub const PART_TARGET_NANOS_MAX: i64 = 1_000_000_000;
/// Maximum excess of a part over the duration of its frames, in nanoseconds: publishers' times are whole milliseconds.
const PART_JITTER_NANOS: i64 = 2 * NANOS_PER_MILLI;
/// Maximum excess of an audio-only part over the requested duration, in nanoseconds: the length of common packets.
const AUDIO_EXCESS_NANOS: i64 = 20 * NANOS_PER_MILLI;
/// Shortest part that is not the last of its segment, in percent of the target (RFC 8216bis, 4.4.4.9).
const PART_PERCENT_MIN: i64 = 85;

/// Target duration of parts in nanoseconds, whole milliseconds: the smallest number of whole frames that lasts `wish_ns`.
/// `frame_ns` is the usual duration of a frame; `None` for audio only.
pub(super) fn part_target_ns(wish_ns: i64, frame_ns: Option<i64>) -> i64 {
    let longest_ns = match frame_ns.filter(|frame_ns| *frame_ns > 0) {
        None => wish_ns + AUDIO_EXCESS_NANOS,
        Some(frame_ns) => {
            // 15 frames of 33.3 ms are half a second.
            let frames = (wish_ns - frame_ns / 100 + frame_ns - 1) / frame_ns;
            frames.max(1).saturating_mul(frame_ns).saturating_add(PART_JITTER_NANOS)
        }
    };
    let millis = longest_ns.saturating_add(NANOS_PER_MILLI - 1) / NANOS_PER_MILLI;
    (millis * NANOS_PER_MILLI).min(PART_TARGET_NANOS_MAX)
}

/// The samples of a segment that were already emitted in parts.
#[derive(Debug, Default)]
pub(super) struct EmittedParts {
    pub(super) parts: Vec<Bytes>,
    /// Presentation time of the end of the last part in nanoseconds; without parts, of the start of the segment.
    pub(super) end_ns: i64,
    pub(super) video_samples: usize,
    pub(super) audio_samples: usize,
}

impl EmittedParts {
    pub(super) fn samples(&self, kind: Kind) -> usize {
        if kind == Kind::Video { self.video_samples } else { self.audio_samples }
    }
}

impl Segmenter {
    /// Ends the part before the held frame if the part would be too long with it. `boundary_ns` is the presentation time of
    /// the held frame.
    pub(super) fn end_part_at_held(&mut self, boundary_ns: i64) {
        let held_ns = self.epoch.as_ref().and_then(|epoch| epoch.video.as_ref());
        let held_ns = held_ns.map(|video| ticks_to_nanos(u64::from(video.last_duration), VIDEO_TIMESCALE));
        self.end_part(boundary_ns, held_ns.unwrap_or(0));
    }

    /// Ends the part at `end_ns` if the next sample, which lasts `next_ns`, does not fit. A part below the minimum continues,
    /// even if the next frame makes it too long: a frame cannot be cut.
    pub(super) fn end_part(&mut self, end_ns: i64, next_ns: i64) {
        let (Some(target_ns), Some(epoch)) = (self.part_target_ns, &self.epoch) else { return };
        let long_ns = end_ns.saturating_sub(epoch.open.emitted.end_ns);
        let is_full = long_ns.saturating_add(next_ns) > target_ns;
        if is_full && long_ns >= target_ns / 100 * PART_PERCENT_MIN && epoch.open.has_waiting() {
            self.cut_part(end_ns);
        }
    }

    fn cut_part(&mut self, end_ns: i64) {
        // Audio that is still missing from the segment before goes into this one.
        self.emit_closing();
        let Some(mut epoch) = self.epoch.take() else { return };
        let mut open = std::mem::replace(&mut epoch.open, Builder::new(0, true));
        let audio_rate = epoch.audio.as_ref().map_or(1, |audio| audio.config.timescale());
        if self.part(&mut epoch, &mut open, end_ns, nanos_to_ticks(end_ns, audio_rate)).is_err() {
            // The limits kept by the builder make this impossible.
            self.discontinuity = self.init.is_some();
        }
        epoch.open = open;
        self.epoch = Some(epoch);
    }

    /// Emits a part of the pending samples of a segment; it ends at presentation time `end_ns`. Audio from `audio_tick` on stays
    /// pending; `u64::MAX` for the last part, which takes all audio.
    pub(super) fn part(
        &mut self,
        epoch: &mut Epoch,
        builder: &mut Builder,
        end_ns: i64,
        audio_tick: u64,
    ) -> Result<(), Fmp4Error> {
        let runs = builder.take_waiting(audio_tick);
        let samples = runs.iter().map(|run| run.samples.len() as u64).sum::<u64>();
        if samples == 0 {
            return Ok(());
        }
        let made = self.init_id(epoch).and_then(|init_id| {
            self.fragment = self.fragment.wrapping_add(1);
            Ok((init_id, media_segment(self.fragment, &runs)?))
        });
        let (init_id, bytes) = made.inspect_err(|_| self.stats.samples_dropped += samples)?;
        let starts_with_key = runs[0].samples.first().is_some_and(|first| first.sync);
        self.events.push_back(Event::Part(Part {
            sequence: self.sequence,
            index: u32::try_from(builder.emitted.parts.len()).unwrap_or(u32::MAX),
            init_id,
            duration_ns: end_ns.saturating_sub(builder.emitted.end_ns).clamp(1, self.limit_ns()),
            independent: starts_with_key || epoch.video.is_none(),
            is_last: audio_tick == u64::MAX,
            discontinuity: self.discontinuity,
            program_date_time_ms: epoch.date_ms(builder.boundary_ns),
            bytes: bytes.clone(),
        }));
        builder.emitted.parts.push(bytes);
        builder.emitted.end_ns = end_ns;
        builder.emitted.video_samples += runs[0].samples.len();
        builder.emitted.audio_samples += runs[1].samples.len();
        self.stats.samples_out += samples;
        epoch.emitted = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_target_is_whole_frames_and_at_most_a_second() {
        const WISH: i64 = 500_000_000;
        for (millihertz, expected_ms) in [
            (30_000, 502),
            (29_970, 503),
            (25_000, 522),
            (24_000, 502),
            (23_976, 503),
            (50_000, 502),
            (59_940, 503),
            (60_000, 502),
            (120_000, 502),
            (5_000, 602),
            (1_000, 1000),
            (100, 1000),
        ] {
            let target = part_target_ns(WISH, Some(1_000_000_000_000 / millihertz));
            assert_eq!(target, expected_ms * NANOS_PER_MILLI, "{millihertz} mHz");
        }
        assert_eq!(part_target_ns(WISH, None), 520 * NANOS_PER_MILLI);
        assert_eq!(part_target_ns(WISH, Some(0)), 520 * NANOS_PER_MILLI);
        assert_eq!(part_target_ns(WISH, Some(i64::MAX)), PART_TARGET_NANOS_MAX);
    }
}
