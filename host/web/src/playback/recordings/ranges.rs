//! Ranges of recordings that several viewers want: players of one recording ask for the same ones, and share their reads.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;

use super::source::Source;
use crate::base::ApiError;
use satcast_drivers::published::{CACHE_BYTES_MAX, Cache, Slot, Unkept};

/// Most ranges of which it is known that somebody asked for them.
pub(super) const RANGES_MAX: usize = 16_384;
/// Shorter ranges are read for each request. So the cache is full before there are too many ranges in it.
pub(super) const RANGE_BYTES_MIN: u32 = (CACHE_BYTES_MAX / RANGES_MAX as u64) as u32;

/// Id of the recording, first byte, length. The bytes of a range never change: a recording only grows.
type Range = (i64, u64, u32);

/// The ranges of all recordings, in the memory that they share with the segments of live streams.
pub(super) struct Ranges {
    cache: Arc<Cache>,
    slots: Mutex<HashMap<Range, Arc<Slot>>>,
}

impl Ranges {
    pub(super) fn new(cache: Arc<Cache>) -> Self {
        Self { cache, slots: Mutex::default() }
    }

    /// `len` bytes of a recording from `offset` on; from the second request on from memory.
    ///
    /// # Errors
    /// As [`Source::index`].
    pub(super) async fn read(&self, source: &Source, offset: u64, len: u32) -> Result<Bytes, ApiError> {
        let Some(slot) = self.slot((source.id, offset, len)) else { return source.read(offset, len).await };
        let failure = Arc::new(OnceLock::new());
        let read = || {
            let (source, failure) = (source.clone(), failure.clone());
            async move {
                let bytes = source.read(offset, len).await.map_err(|error| failure.set(error)).ok()?;
                // Bytes of another node may hold a larger block, which nobody counts.
                Some(Bytes::copy_from_slice(&bytes))
            }
        };
        match self.cache.bytes(&slot, source.account, u64::from(len), read).await {
            Ok(bytes) => Ok(bytes),
            Err(Unkept::ReadAlone) => source.read(offset, len).await,
            // Only the request that began the read knows more.
            Err(Unkept::Failed) => Err(failure.get().cloned().unwrap_or_else(ApiError::asset_unreadable)),
        }
    }

    /// The place of a range; `None` for one that is too short.
    fn slot(&self, range: Range) -> Option<Arc<Slot>> {
        let (.., len) = range;
        if len < RANGE_BYTES_MIN {
            return None;
        }
        let mut slots = self.slots.lock();
        if slots.len() >= RANGES_MAX && !slots.contains_key(&range) {
            slots.retain(|_, slot| slot.is_in_use());
        }
        Some(slots.entry(range).or_default().clone())
    }
}

#[cfg(test)]
mod tests {
    use satcast_core::ids::AccountId;

    use super::*;

    #[tokio::test]
    async fn beyond_the_limit_only_ranges_in_memory_are_remembered() {
        let ranges = Ranges::new(Cache::new(CACHE_BYTES_MAX));
        let range = |id| (id, 0, RANGE_BYTES_MIN);
        assert!(ranges.slot((1, 0, RANGE_BYTES_MIN - 1)).is_none());
        let kept = ranges.slot(range(1)).unwrap();
        for _ in 0..2 {
            let bytes = || std::future::ready(Some(Bytes::from_static(&[0; 10])));
            let _ = ranges.cache.bytes(&kept, AccountId(1), 10, bytes).await;
        }
        for id in 2..=RANGES_MAX as i64 {
            ranges.slot(range(id)).unwrap();
        }
        assert_eq!(ranges.slots.lock().len(), RANGES_MAX);
        ranges.slot(range(0)).unwrap();
        assert_eq!(ranges.slots.lock().len(), 2);
        assert!(Arc::ptr_eq(&kept, &ranges.slot(range(1)).unwrap()));
    }
}
