//! The last use of each key.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use satcast_core::ids::{KeyId, UnixMillis};
use satcast_store::Store;

/// The use of a key is recorded at most this often.
const NOTE_INTERVAL_MS: i64 = 60_000;
/// How long uses are collected before they are written together.
const COLLECTED: Duration = Duration::from_millis(500);
/// Most uses that wait to be written; further ones are recorded at the next use of their keys.
const WAITING_MAX: usize = 4_096;
/// Most keys whose last use is kept in memory.
const RECENT_MAX: usize = 65_536;

/// Records the uses of keys.
#[derive(Debug, Default)]
pub struct KeyUses {
    uses: Mutex<Uses>,
}

#[derive(Debug, Default)]
struct Uses {
    /// When the use of each recently used key was last recorded.
    recent: HashMap<KeyId, UnixMillis>,
    waiting: Vec<(KeyId, UnixMillis)>,
}

impl KeyUses {
    /// Adds a use; `true` when it is the first one waiting, so that the caller must start the write.
    fn add(&self, key: KeyId, now: UnixMillis) -> bool {
        let is_recent = |used: UnixMillis| used.0.saturating_add(NOTE_INTERVAL_MS) > now.0;
        let mut uses = self.uses.lock();
        if uses.recent.get(&key).copied().is_some_and(is_recent) || uses.waiting.len() >= WAITING_MAX {
            return false;
        }
        if uses.recent.len() >= RECENT_MAX {
            uses.recent.clear();
        }
        uses.recent.insert(key, now);
        uses.waiting.push((key, now));
        uses.waiting.len() == 1
    }

    fn take(&self) -> Vec<(KeyId, UnixMillis)> {
        std::mem::take(&mut self.uses.lock().waiting)
    }

    /// Records the use of a key in the background, at most once a minute: no request waits for the write, and one write covers
    /// many keys.
    pub(crate) fn note(self: &Arc<Self>, store: &Store, key: KeyId, now: UnixMillis) {
        if !self.add(key, now) {
            return;
        }
        let (store, uses) = (store.clone(), self.clone());
        tokio::spawn(async move {
            tokio::time::sleep(COLLECTED).await;
            let uses = uses.take();
            if let Err(error) = store.touch_keys(&uses).await {
                tracing::warn!(%error, keys = uses.len(), "cannot record the use of keys");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_are_recorded_once_a_minute_and_written_together() {
        let uses = KeyUses::default();
        let now = UnixMillis(1_000_000);
        assert!(uses.add(KeyId(1), now), "the first use starts a write");
        assert!(!uses.add(KeyId(1), now) && !uses.add(KeyId(2), now));
        assert_eq!(uses.take(), [(KeyId(1), now), (KeyId(2), now)]);
        assert!(!uses.add(KeyId(1), UnixMillis(now.0 + NOTE_INTERVAL_MS - 1)) && uses.take().is_empty());
        assert!(uses.add(KeyId(1), UnixMillis(now.0 + NOTE_INTERVAL_MS)));
    }

    #[test]
    fn waiting_uses_are_bounded() {
        let uses = KeyUses::default();
        for id in 0..=WAITING_MAX as i64 {
            uses.add(KeyId(id), UnixMillis(0));
        }
        assert_eq!(uses.take().len(), WAITING_MAX);
    }
}
