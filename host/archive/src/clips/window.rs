//! The media of a clip: the segments of a DVR window, which are held, so that they stay readable while the clip waits; or
//! a recording.

use satcast_drivers::published::Opening;
use satcast_plugin_api::SegmentPosition;

use super::file::HeldSegments;
use super::recorded::RecordedMedia;
use satcast_store::{ArchiveRecord, ArchiveReport};

/// Longest clip in seconds.
pub const CLIP_SECS_MAX: i64 = 600;
/// Segments before the range that are searched for a keyframe.
const BEFORE: usize = 3;
/// Longest last segment, in milliseconds; its end is not published.
const SEGMENT_MS_MAX: i64 = 15_000;
const MS_PER_SEC: i64 = 1_000;

/// The part of a stream that a clip shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClipRange {
    /// The newest seconds, 1 to [`CLIP_SECS_MAX`].
    Last(i64),
    /// From one time to another, in milliseconds since 1970.
    Between(i64, i64),
}

/// Why there is no clip of a range in a DVR window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoClip {
    #[error("the range has no media in the DVR window")]
    NoMedia,
    #[error("a clip has at most {CLIP_SECS_MAX} s")]
    TooLong,
}

/// The media of a clip.
#[derive(Debug)]
pub struct ClipPlan {
    pub(super) source: PlannedSource,
    /// The wanted range, up to the end of a DVR window, in milliseconds since 1970.
    pub(super) from_ms: i64,
    pub(super) to_ms: i64,
    has_ms: i64,
}

/// What a clip is cut from.
#[derive(Debug)]
pub(super) enum PlannedSource {
    Window(HeldSegments),
    Recording(RecordedMedia),
}

impl ClipPlan {
    /// The media of a range in a DVR window. If the encoder was restarted or has changed its codecs inside the range, the
    /// clip begins after that: one file has one codec configuration and one timeline.
    ///
    /// # Errors
    /// [`NoClip`].
    pub fn of(window: &Opening, range: ClipRange) -> Result<Self, NoClip> {
        let assets = window.assets();
        let playback = assets.playback().ok_or(NoClip::NoMedia)?;
        let all = assets.segments(0);
        let all: Vec<_> = all.into_iter().filter(|(place, _)| place.start_ms >= playback.first_ms).collect();
        let Some((last, _)) = all.last() else { return Err(NoClip::NoMedia) };
        let listed_ms = i64::try_from(playback.window_ms).unwrap_or(i64::MAX);
        let end_ms = playback.first_ms.saturating_add(listed_ms);
        let end_ms =
            end_ms.clamp(last.start_ms.saturating_add(1), last.start_ms.saturating_add(SEGMENT_MS_MAX));
        let (from_ms, to_ms) = match range {
            ClipRange::Last(secs) => (end_ms.saturating_sub(secs.saturating_mul(MS_PER_SEC)), end_ms),
            ClipRange::Between(from_ms, to_ms) => (from_ms, to_ms.min(end_ms)),
        };
        if to_ms.saturating_sub(from_ms) > CLIP_SECS_MAX * MS_PER_SEC {
            return Err(NoClip::TooLong);
        }
        let chosen = chosen(&all, end_ms, (from_ms, to_ms)).ok_or(NoClip::NoMedia)?;
        let get = |name: &str| assets.get(name).ok_or(NoClip::NoMedia);
        let (first, _) = chosen.first().ok_or(NoClip::NoMedia)?;
        // Media before a discontinuity is not in the clip.
        let begin_ms = from_ms.max(first.start_ms);
        let held = HeldSegments {
            init: get(&first.init)?,
            segments: chosen.iter().map(|(_, name)| get(name)).collect::<Result<_, _>>()?,
            first_ms: first.start_ms,
        };
        let has_ms = to_ms.saturating_sub(begin_ms);
        Ok(Self { source: PlannedSource::Window(held), from_ms, to_ms, has_ms })
    }

    /// The media of a range in a recording of this node, by the times of its row; `None` if it has none. The range is in
    /// milliseconds since 1970.
    pub fn of_recording(record: &ArchiveRecord, from_ms: i64, to_ms: i64) -> Option<Self> {
        let ArchiveReport { driver, file_name, started_at, duration_ms, .. } = &record.report;
        let end_ms = started_at.0.saturating_add_unsigned(*duration_ms);
        let has_ms = to_ms.min(end_ms).saturating_sub(from_ms.max(started_at.0));
        let media =
            RecordedMedia { driver: driver.clone(), file_name: file_name.clone(), started_ms: started_at.0 };
        (has_ms > 0).then_some(Self { source: PlannedSource::Recording(media), from_ms, to_ms, has_ms })
    }

    /// The wanted range, up to the end of a DVR window, in milliseconds since 1970.
    pub fn range(&self) -> (i64, i64) {
        (self.from_ms, self.to_ms)
    }

    /// Milliseconds of the range that are known to be there.
    pub fn has_ms(&self) -> i64 {
        self.has_ms
    }

    /// Whether all of the range is known to be there.
    pub fn is_whole(&self) -> bool {
        self.has_ms >= self.to_ms.saturating_sub(self.from_ms)
    }
}

/// The segments of a range, with some before it, from the last discontinuity on; `None` if it has none.
fn chosen(
    all: &[(SegmentPosition, String)],
    end_ms: i64,
    (from_ms, to_ms): (i64, i64),
) -> Option<&[(SegmentPosition, String)]> {
    let end_of = |index: usize| all.get(index + 1).map_or(end_ms, |(next, _)| next.start_ms);
    let is_in = |index: &usize| all[*index].0.start_ms < to_ms && end_of(*index) > from_ms;
    let first = (0..all.len()).find(is_in)?;
    let last = (0..all.len()).rfind(is_in)?;
    let goes_on = |index: usize| {
        let (before, here) = (&all[index - 1].0, &all[index].0);
        (&before.init, before.offset_ns) == (&here.init, here.offset_ns)
    };
    let mut begin = last;
    while begin > first.saturating_sub(BEFORE) && goes_on(begin) {
        begin -= 1;
    }
    all.get(begin..=last)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Segments of two seconds with these initialization segments.
    fn segments(inits: &str) -> Vec<(SegmentPosition, String)> {
        let place = |(number, init): (usize, char)| {
            let (number, start_ms) = (number as u64, 10_000 + 2_000 * number as i64);
            let init = init.to_string();
            (SegmentPosition { number, offset_ns: 0, start_ms, init }, number.to_string())
        };
        inits.chars().enumerate().map(place).collect()
    }

    fn numbers(inits: &str, from_ms: i64, to_ms: i64) -> Option<(u64, u64)> {
        let all = segments(inits);
        let end_ms = 10_000 + 2_000 * all.len() as i64;
        let chosen = chosen(&all, end_ms, (from_ms, to_ms))?;
        Some((chosen.first()?.0.number, chosen.last()?.0.number))
    }

    #[test]
    fn a_range_has_its_segments_and_some_before() {
        let table = [
            ("aaaaaaaa", (18_500, 21_000), Some((1, 5))),
            ("aaaaaaaa", (10_000, 12_000), Some((0, 0))),
            ("aaaaaaaa", (0, 99_000), Some((0, 7))),
            ("aaaaaaaa", (25_999, 26_000), Some((4, 7))),
            ("aaaaaaaa", (26_000, 30_000), None),
            ("aaaaaaaa", (0, 10_000), None),
            ("", (0, 99_000), None),
            // Only what follows the last discontinuity in it.
            ("aaabbbbb", (12_000, 19_000), Some((3, 4))),
            ("aaabbbbb", (12_000, 15_000), Some((0, 2))),
            ("aaabbbbb", (16_500, 19_000), Some((3, 4))),
            ("aaabbbbc", (12_000, 26_000), Some((7, 7))),
        ];
        for (inits, (from, to), expected) in table {
            assert_eq!(numbers(inits, from, to), expected, "{inits} {from} to {to}");
        }
        let mut jumped = segments("aaaa");
        jumped[2].0.offset_ns = 5;
        jumped[3].0.offset_ns = 5;
        assert_eq!(chosen(&jumped, 18_000, (10_000, 18_000)).map(<[_]>::len), Some(2));
    }
}
