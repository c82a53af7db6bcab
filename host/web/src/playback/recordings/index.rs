//! Indexes of recordings, kept while somebody watches: short fragments joined to segments.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use satcast_plugin_api::recording::Fragment;
use tokio::sync::Mutex as Shared;

use super::source::Source;
use crate::base::ApiError;

/// A segment goes on for this long, and then to the next keyframe, in microseconds.
const SEGMENT_US_MIN: u64 = 4_000_000;
/// Without keyframes it ends before it gets longer.
pub(super) const SEGMENT_US_MAX: u64 = 8_000_000;
/// Most segments in all kept indexes. The ones that were not used for longest leave first.
pub const SEGMENTS_MAX: usize = 500_000;
/// Most pages of one index: 24 hours have 50.
const PAGES_MAX: usize = 1_000;
/// Most kept indexes.
pub const INDEXES_MAX: usize = 1_024;
/// How long the index of a recording that grows is used.
const FRESH: Duration = Duration::from_secs(1);

/// Fragments that players fetch as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) start_us: u64,
    pub(super) duration_us: u64,
    pub(super) is_keyframe: bool,
}

impl Segment {
    fn of(fragment: &Fragment) -> Self {
        Self {
            offset: fragment.offset,
            bytes: u64::from(fragment.bytes),
            start_us: fragment.start_us,
            duration_us: u64::from(fragment.duration_us),
            is_keyframe: fragment.is_keyframe,
        }
    }

    /// Whether it ends before this fragment.
    fn ends_before(&self, next: &Fragment) -> bool {
        let is_long = self.duration_us >= SEGMENT_US_MIN && next.is_keyframe;
        is_long || self.duration_us.saturating_add(u64::from(next.duration_us)) > SEGMENT_US_MAX
    }
}

/// What is known of a recording.
#[derive(Clone, Debug, Default)]
pub(super) struct Indexed {
    pub(super) init_bytes: u64,
    /// End of the known fragments; all bytes before it can be read.
    pub(super) bytes: u64,
    pub(super) is_complete: bool,
    /// Segments that do not change any more.
    pub(super) segments: Vec<Segment>,
    /// The one that may still get longer.
    pub(super) open: Option<Segment>,
    /// Number of known fragments.
    pub(super) count: u64,
    pub(super) read_at: Duration,
}

impl Indexed {
    fn add(&mut self, fragment: &Fragment) {
        match &mut self.open {
            Some(open) if !open.ends_before(fragment) => {
                open.bytes += u64::from(fragment.bytes);
                open.duration_us += u64::from(fragment.duration_us);
            }
            open => self.segments.extend(open.replace(Segment::of(fragment))),
        }
    }

    /// Reads on from the driver.
    async fn read(&self, source: &Source, now: Duration) -> Result<Self, ApiError> {
        // Where it is complete, the driver has another one now.
        let mut next = if self.is_complete { Self::default() } else { self.clone() };
        for _ in 0..PAGES_MAX {
            let page = source.index(next.count).await?;
            if page.count < next.count || page.bytes < next.bytes {
                // A crash of the machine took its end.
                next = Self::default();
                continue;
            }
            page.fragments.iter().for_each(|fragment| next.add(fragment));
            next.count += page.fragments.len() as u64;
            (next.init_bytes, next.bytes, next.read_at) = (page.init_bytes, page.bytes, now);
            if next.count < page.count && !page.fragments.is_empty() {
                continue;
            }
            next.is_complete = page.is_complete && next.count == page.count;
            if next.is_complete {
                next.segments.extend(next.open.take());
            }
            return Ok(next);
        }
        tracing::debug!(recording = source.id, "the index of a recording does not end");
        Err(ApiError::asset_unreadable())
    }
}

/// An index in use; held while it is read, so that many viewers ask once.
type Kept = Arc<Shared<Arc<Indexed>>>;

struct Entry {
    kept: Kept,
    used: Duration,
    segments: usize,
}

/// The indexes of all recordings that somebody watches.
#[derive(Default)]
pub(super) struct Indexes(Mutex<HashMap<i64, Entry>>);

impl Indexes {
    /// The index of a recording of `size` bytes, at most [`FRESH`] old if it grows.
    ///
    /// # Errors
    /// As [`Source::index`].
    pub(super) async fn of(
        &self,
        source: &Source,
        size: u64,
        now: Duration,
    ) -> Result<Arc<Indexed>, ApiError> {
        let kept = self.entry(source.id, now);
        let mut indexed = kept.lock().await;
        let is_known = indexed.is_complete && indexed.bytes == size;
        let is_fresh =
            indexed.count > 0 && !indexed.is_complete && now.saturating_sub(indexed.read_at) < FRESH;
        if !is_known && !is_fresh {
            match indexed.read(source, now).await {
                Ok(next) => *indexed = Arc::new(next),
                Err(error) => {
                    self.0.lock().remove(&source.id);
                    return Err(error);
                }
            }
            self.shrink(source.id, indexed.segments.len());
        }
        Ok(indexed.clone())
    }

    fn entry(&self, id: i64, now: Duration) -> Kept {
        let mut all = self.0.lock();
        let entry = all.entry(id).or_insert_with(|| Entry { kept: Kept::default(), used: now, segments: 0 });
        entry.used = now;
        entry.kept.clone()
    }

    /// Notes the size of an index, and drops others.
    fn shrink(&self, id: i64, segments: usize) {
        let mut all = self.0.lock();
        if let Some(entry) = all.get_mut(&id) {
            entry.segments = segments;
        }
        let is_over = |all: &HashMap<i64, Entry>| {
            all.len() > INDEXES_MAX || all.values().map(|entry| entry.segments).sum::<usize>() > SEGMENTS_MAX
        };
        while is_over(&all) {
            let others = all.iter().filter(|(other, _)| **other != id);
            let Some(oldest) = others.min_by_key(|(_, entry)| entry.used).map(|(id, _)| *id) else { break };
            all.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(fragments: &[(u32, bool)]) -> Indexed {
        let (mut indexed, mut offset, mut start_us) = (Indexed::default(), 700, 0);
        for (millis, is_keyframe) in fragments {
            let duration_us = millis * 1_000;
            indexed.add(&Fragment { offset, bytes: 10, start_us, duration_us, is_keyframe: *is_keyframe });
            offset += 10;
            start_us += u64::from(duration_us);
        }
        indexed
    }

    fn millis(indexed: &Indexed) -> Vec<u64> {
        indexed.segments.iter().chain(&indexed.open).map(|segment| segment.duration_us / 1_000).collect()
    }

    #[test]
    fn fragments_are_joined_up_to_a_keyframe() {
        let group = [(900, true), (900, false), (200, false)];
        let indexed = joined(&group.repeat(5));
        assert_eq!(millis(&indexed), [4_000, 4_000, 2_000]);
        assert_eq!(indexed.segments.len(), 2, "the last one may still get longer");
        assert!(indexed.segments.iter().all(|segment| segment.is_keyframe));
        assert_eq!((indexed.segments[1].offset, indexed.segments[1].bytes), (760, 60));
        assert_eq!(indexed.segments[1].start_us, 4_000_000);
    }

    #[test]
    fn segments_without_keyframes_and_over_gaps_end_too() {
        assert_eq!(millis(&joined(&[(900, false); 20])), [7_200, 7_200, 3_600]);
        assert_eq!(millis(&joined(&[(900, true), (300_000, false), (900, false)])), [900, 300_000, 900]);
    }
}
