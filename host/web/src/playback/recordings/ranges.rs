//! Ranges of recordings that several viewers want: players of one recording ask for the same ones, and share their reads.
//!
//! The driver keeps a recording that somebody reads from its deletion, so it has to hear of viewers who get everything from
//! memory: once in [`READ_EVERY`] a range is read where it is.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use poem::http::StatusCode;

use super::source::Source;
use crate::base::ApiError;
use satcast_core::clock::Clock;
use satcast_drivers::published::{CACHE_BYTES_MAX, Cache, Slot, Unkept};

/// Most ranges of which it is known that somebody asked for them.
pub(super) const RANGES_MAX: usize = 16_384;
/// Shorter ranges are read for each request. So at most half of the known ranges are in the cache, and the others make room.
pub(super) const RANGE_BYTES_MIN: u32 = (2 * CACHE_BYTES_MAX / RANGES_MAX as u64) as u32;

/// A recording that is watched is read at its driver at least this often, a tenth of the time for which a read keeps it.
pub(super) const READ_EVERY: Duration = Duration::from_secs(60);

/// Id of the recording, first byte, length. The bytes of a range never change: a recording only grows.
type Range = (i64, u64, u32);

/// The ranges of all recordings, in the memory that they share with the segments of live streams.
pub(super) struct Ranges {
    cache: Arc<Cache>,
    clock: Clock,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    slots: HashMap<Range, Arc<Slot>>,
    /// Monotonic times of the last reads at the driver, by recording; when there are [`RANGES_MAX`], all are forgotten.
    read_at: HashMap<i64, Duration>,
}

impl Ranges {
    pub(super) fn new(cache: Arc<Cache>, clock: Clock) -> Self {
        Self { cache, clock, known: Mutex::default() }
    }

    /// `len` bytes of a recording from `offset` on; from the second request on from memory.
    ///
    /// # Errors
    /// As [`Source::index`].
    pub(super) async fn read(&self, source: &Source, offset: u64, len: u32) -> Result<Bytes, ApiError> {
        let (slot, is_due) = self.place((source.id, offset, len));
        if is_due {
            let read = source.read(offset, len).await;
            // A store that is down for a while takes nothing out of the memory.
            return read.or_else(|error| match slot.and_then(|slot| slot.held()) {
                Some(bytes) if error.http_status() == StatusCode::SERVICE_UNAVAILABLE => Ok(bytes),
                _ => Err(error),
            });
        }
        let Some(slot) = slot else { return source.read(offset, len).await };
        let mut failure = None;
        let read = || {
            let (source, told) = (source.clone(), Arc::new(OnceLock::new()));
            failure = Some(told.clone());
            async move {
                let bytes = source.read(offset, len).await.map_err(|error| told.set(error)).ok()?;
                // Bytes of another node may hold a larger block, which nobody counts.
                Some(Bytes::copy_from_slice(&bytes))
            }
        };
        match self.cache.bytes(&slot, source.account, u64::from(len), read).await {
            Ok(bytes) => Ok(bytes),
            Err(Unkept::ReadAlone) => source.read(offset, len).await,
            // Only the request that began the read knows more.
            Err(Unkept::Failed) => {
                let known = failure.as_ref().and_then(|failure| failure.get().cloned());
                Err(known.unwrap_or_else(ApiError::asset_unreadable))
            }
        }
    }

    /// The place of a range, `None` for one that is too short, and whether it is time to read at the driver.
    fn place(&self, range: Range) -> (Option<Arc<Slot>>, bool) {
        let (id, _, len) = range;
        let now = self.clock.monotonic();
        let is_old = |at: &Duration| now >= *at + READ_EVERY;
        let mut known = self.known.lock();
        let Known { slots, read_at } = &mut *known;
        let is_due = read_at.get(&id).is_none_or(is_old);
        if is_due {
            if read_at.len() >= RANGES_MAX {
                read_at.clear();
            }
            read_at.insert(id, now);
        }
        if len < RANGE_BYTES_MIN {
            return (None, is_due);
        }
        if slots.len() >= RANGES_MAX && !slots.contains_key(&range) {
            slots.retain(|_, slot| slot.is_in_use());
        }
        let slot = slots.entry(range).or_default();
        if is_due {
            slot.ask();
        }
        (Some(slot.clone()), is_due)
    }
}

#[cfg(test)]
mod tests {
    use satcast_core::ids::{AccountId, UnixMillis};

    use super::*;

    #[tokio::test]
    async fn beyond_the_limit_only_ranges_in_memory_are_remembered() {
        let ranges = Ranges::new(Cache::new(CACHE_BYTES_MAX), Clock::manual(UnixMillis(0)));
        let slot = |number| ranges.place((1, number, RANGE_BYTES_MIN)).0.unwrap();
        assert!(ranges.place((1, 0, RANGE_BYTES_MIN - 1)).0.is_none());
        let kept = slot(1);
        for _ in 0..2 {
            let bytes = || std::future::ready(Some(Bytes::from_static(&[0; 10])));
            let _ = ranges.cache.bytes(&kept, AccountId(1), 10, bytes).await;
        }
        for number in 2..=RANGES_MAX as u64 {
            slot(number);
        }
        assert_eq!(ranges.known.lock().slots.len(), RANGES_MAX);
        slot(0);
        assert_eq!(ranges.known.lock().slots.len(), 2);
        assert!(Arc::ptr_eq(&kept, &slot(1)));
    }

    #[test]
    fn a_recording_that_is_watched_is_read_at_the_driver_once_a_minute() {
        let clock = Clock::manual(UnixMillis(0));
        let ranges = Ranges::new(Cache::new(CACHE_BYTES_MAX), clock.clone());
        let is_due = |id| ranges.place((id, 0, RANGE_BYTES_MIN)).1;
        for _ in 0..2 {
            assert_eq!([is_due(1), is_due(1), is_due(2), is_due(2)], [true, false, true, false]);
            clock.advance(READ_EVERY);
        }
        for id in 3..=RANGES_MAX as i64 {
            assert!(is_due(id));
        }
        assert_eq!(ranges.known.lock().read_at.len(), RANGES_MAX);
        assert!(is_due(-1));
        assert_eq!(ranges.known.lock().read_at.len(), 1);
    }
}
