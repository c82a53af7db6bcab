//! Public keys that were asked for a moment ago, so that a page that polls costs the database next to nothing; and the uses
//! of keys, noted together.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use satcast_core::clock::Clock;
use satcast_core::ids::{KeyId, UnixMillis};
use satcast_store::{KeyRecord, PlaybackRecord, Store, StoreError};

/// How long an answer of the store counts. A change through this service ends it at once; one that another process makes, such
/// as a command, is seen after this time.
pub(super) const FRESH: Duration = Duration::from_secs(5);
/// Answers kept; beyond them all are asked for anew.
pub(super) const ANSWERS_MAX: usize = 65_536;

/// A key, and the destination of a public one.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) key: KeyRecord,
    pub(super) destination: Option<PlaybackRecord>,
}

#[derive(Debug)]
struct Answer {
    known: Arc<Known>,
    said_at: Duration,
    /// Number of the last change before the store was asked.
    generation: u64,
}

/// What the store said of keys.
#[derive(Debug, Default)]
pub struct KnownKeys {
    answers: Mutex<HashMap<[u8; 32], Answer>>,
}

impl KnownKeys {
    /// The key with that SHA-256; unknown ones are asked for each time.
    ///
    /// # Errors
    /// The store failed.
    pub(super) async fn find(
        &self,
        store: &Store,
        clock: &Clock,
        hash: [u8; 32],
    ) -> Result<Option<Arc<Known>>, StoreError> {
        // Read before the store is asked: a change in between makes the answer old at once.
        let (generation, now) = (store.generation(), clock.monotonic());
        let is_fresh = |answer: &&Answer| answer.generation == generation && now < answer.said_at + FRESH;
        if let Some(answer) = self.answers.lock().get(&hash).filter(is_fresh) {
            return Ok(Some(answer.known.clone()));
        }
        let Some(key) = store.key_by_hash(&hash).await? else {
            self.answers.lock().remove(&hash);
            return Ok(None);
        };
        let destination = store.playback_by_key(key.id).await?;
        let known = Arc::new(Known { key, destination });
        let mut answers = self.answers.lock();
        if answers.len() >= ANSWERS_MAX {
            answers.clear();
        }
        answers.insert(hash, Answer { known: known.clone(), said_at: now, generation });
        Ok(Some(known))
    }
}

/// The use of a key is noted at most this often.
const NOTE_INTERVAL_MS: i64 = 60_000;
/// How long uses are collected before they are written together.
const COLLECTED: Duration = Duration::from_millis(500);
/// Uses that wait to be written; a further one is noted the next time its key is used.
pub(super) const WAITING_MAX: usize = 4_096;
/// Keys whose last use is kept here.
const RECENT_MAX: usize = 65_536;

/// Uses of keys.
#[derive(Debug, Default)]
pub struct KeyUses {
    uses: Mutex<Uses>,
}

#[derive(Debug, Default)]
struct Uses {
    /// When the use of a key was noted last, of those that were in use lately.
    recent: HashMap<KeyId, UnixMillis>,
    waiting: Vec<(KeyId, UnixMillis)>,
}

impl KeyUses {
    /// Notes a use; `true` when it is the first of those that wait, and somebody must write them.
    fn add(&self, key: &KeyRecord, now: UnixMillis) -> bool {
        let is_recent = |used: UnixMillis| used.0.saturating_add(NOTE_INTERVAL_MS) > now.0;
        let mut uses = self.uses.lock();
        let noted_at = uses.recent.get(&key.id).copied().max(key.last_used_at);
        if noted_at.is_some_and(is_recent) || uses.waiting.len() >= WAITING_MAX {
            return false;
        }
        if uses.recent.len() >= RECENT_MAX {
            uses.recent.clear();
        }
        uses.recent.insert(key.id, now);
        uses.waiting.push((key.id, now));
        uses.waiting.len() == 1
    }

    fn take(&self) -> Vec<(KeyId, UnixMillis)> {
        std::mem::take(&mut self.uses.lock().waiting)
    }

    /// Notes the use of a key in the background, at most once a minute: no request waits for that write, and those of many keys
    /// are one.
    pub(super) fn note(self: &Arc<Self>, store: &Store, key: &KeyRecord, now: UnixMillis) {
        if !self.add(key, now) {
            return;
        }
        let (store, uses) = (store.clone(), self.clone());
        tokio::spawn(async move {
            tokio::time::sleep(COLLECTED).await;
            let uses = uses.take();
            if let Err(error) = store.touch_keys(&uses).await {
                tracing::warn!(%error, keys = uses.len(), "the use of keys cannot be noted");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use satcast_core::ids::AccountId;
    use satcast_core::secret::KeyKind;
    use satcast_store::Scopes;

    fn key(id: i64, last_used_ms: Option<i64>) -> KeyRecord {
        KeyRecord {
            id: KeyId(id),
            account_id: AccountId(1),
            kind: KeyKind::Permanent,
            scopes: Scopes::ALL,
            destination_id: None,
            prefix: String::new(),
            last4: String::new(),
            last_used_at: last_used_ms.map(UnixMillis),
            ends_at: None,
        }
    }

    #[test]
    fn uses_are_noted_once_a_minute_and_written_together() {
        let uses = KeyUses::default();
        let now = UnixMillis(1_000_000);
        assert!(uses.add(&key(1, None), now), "the first is to be written");
        assert!(!uses.add(&key(1, None), now) && !uses.add(&key(2, None), now));
        assert!(!uses.add(&key(3, Some(now.0 - NOTE_INTERVAL_MS + 1)), now));
        assert!(!uses.add(&key(4, Some(now.0 - NOTE_INTERVAL_MS)), now));
        assert_eq!(uses.take(), [(KeyId(1), now), (KeyId(2), now), (KeyId(4), now)]);
        let later = UnixMillis(now.0 + NOTE_INTERVAL_MS);
        assert!(uses.add(&key(1, None), later), "a record that is old does not hide what was noted since");
    }

    #[test]
    fn waiting_uses_are_bounded() {
        let uses = KeyUses::default();
        for id in 0..=WAITING_MAX as i64 {
            uses.add(&key(id, None), UnixMillis(0));
        }
        assert_eq!(uses.take().len(), WAITING_MAX);
    }
}
