//! Parts: pieces of the segment that is being made, which are out before it is whole (RFC 8216bis, section 4.4.4.9).

use bytes::Bytes;

use super::builder::Builder;
use super::epoch::Epoch;
use super::segmenter::Segmenter;
use super::{Event, Part};
use crate::fmp4::{Fmp4Error, VIDEO_TIMESCALE, media_segment, nanos_to_ticks, ticks_to_nanos};
use crate::{Kind, NANOS_PER_MILLI};

/// Longest target duration of parts in nanoseconds, for encoders with very few pictures.
pub const PART_TARGET_NANOS_MAX: i64 = 1_000_000_000;
/// What a part may be longer than its pictures, in nanoseconds: publishers' times are whole milliseconds.
const PART_JITTER_NANOS: i64 = 2 * NANOS_PER_MILLI;
/// What a part of sound alone may be longer than asked for, in nanoseconds: the usual packets are no longer.
const SOUND_EXCESS_NANOS: i64 = 20 * NANOS_PER_MILLI;
/// A part in the middle of a segment is at least so long, in percent of the target (RFC 8216bis, 4.4.4.9).
const PART_PERCENT_MIN: i64 = 85;

/// Target duration of parts in nanoseconds, whole milliseconds: the fewest whole pictures that are as long as `wish_ns`.
/// `picture_ns` is the usual duration of a picture; `None` for sound alone.
pub(super) fn part_target_ns(wish_ns: i64, picture_ns: Option<i64>) -> i64 {
    let longest_ns = match picture_ns.filter(|picture_ns| *picture_ns > 0) {
        None => wish_ns + SOUND_EXCESS_NANOS,
        Some(picture_ns) => {
            // 15 pictures of 33.3 ms are half a second.
            let pictures = (wish_ns - picture_ns / 100 + picture_ns - 1) / picture_ns;
            pictures.max(1).saturating_mul(picture_ns).saturating_add(PART_JITTER_NANOS)
        }
    };
    let millis = longest_ns.saturating_add(NANOS_PER_MILLI - 1) / NANOS_PER_MILLI;
    (millis * NANOS_PER_MILLI).min(PART_TARGET_NANOS_MAX)
}

/// What of a segment is out in parts.
#[derive(Debug, Default)]
pub(super) struct Out {
    pub(super) parts: Vec<Bytes>,
    /// Presentation time of their end in nanoseconds; that of the segment's start without any.
    pub(super) end_ns: i64,
    pub(super) video_samples: usize,
    pub(super) audio_samples: usize,
}

impl Out {
    pub(super) fn samples(&self, kind: Kind) -> usize {
        if kind == Kind::Video { self.video_samples } else { self.audio_samples }
    }
}

impl Segmenter {
    /// Ends a part before the picture that is held when it would be too long with it. `boundary_ns` is the presentation time of
    /// that picture.
    pub(super) fn end_part_at_held(&mut self, boundary_ns: i64) {
        let held_ns = self.epoch.as_ref().and_then(|epoch| epoch.video.as_ref());
        let held_ns = held_ns.map(|video| ticks_to_nanos(u64::from(video.last_duration), VIDEO_TIMESCALE));
        self.end_part(boundary_ns, held_ns.unwrap_or(0));
    }

    /// Ends the part at `end_ns` when what comes next, which lasts `next_ns`, does not fit. One that is too short for a part goes
    /// on, even if the next picture makes it too long: pictures cannot be cut.
    pub(super) fn end_part(&mut self, end_ns: i64, next_ns: i64) {
        let (Some(target_ns), Some(epoch)) = (self.part_target_ns, &self.epoch) else { return };
        let long_ns = end_ns.saturating_sub(epoch.open.out.end_ns);
        let is_full = long_ns.saturating_add(next_ns) > target_ns;
        if is_full && long_ns >= target_ns / 100 * PART_PERCENT_MIN && epoch.open.has_waiting() {
            self.cut_part(end_ns);
        }
    }

    fn cut_part(&mut self, end_ns: i64) {
        // Sound that is still missing from the segment before comes with this one.
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

    /// Makes a part of what waits in a segment, which ends at presentation time `end_ns`. Sound from `audio_tick` on goes on waiting;
    /// `u64::MAX` for the last part, which takes it all.
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
            index: u32::try_from(builder.out.parts.len()).unwrap_or(u32::MAX),
            init_id,
            duration_ns: end_ns.saturating_sub(builder.out.end_ns).clamp(1, self.limit_ns()),
            independent: starts_with_key || epoch.video.is_none(),
            is_last: audio_tick == u64::MAX,
            discontinuity: self.discontinuity,
            program_date_time_ms: epoch.date_ms(builder.boundary_ns),
            bytes: bytes.clone(),
        }));
        builder.out.parts.push(bytes);
        builder.out.end_ns = end_ns;
        builder.out.video_samples += runs[0].samples.len();
        builder.out.audio_samples += runs[1].samples.len();
        self.stats.samples_out += samples;
        epoch.emitted = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_is_whole_pictures_and_never_over_a_second() {
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
