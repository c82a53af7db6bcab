//! Cache of public keys, so that polling pages hardly load the database; and batched writes of key uses.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use satcast_core::clock::Clock;
use satcast_core::ids::{KeyId, UnixMillis};
use satcast_store::{KeyRecord, PlaybackRecord, Store, StoreError};

/// How long an answer of the store is used. A change by this process invalidates it at once; a change by another process, such
/// as a command, is seen after this time.
pub(super) const FRESH: Duration = Duration::from_secs(5);
/// Answers kept; when there are more, all are dropped.
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
    /// Generation of the store before the query.
    generation: u64,
}

/// Cache of the store's answers about keys.
#[derive(Debug, Default)]
pub struct KnownKeys {
    answers: Mutex<HashMap<[u8; 32], Answer>>,
}

impl KnownKeys {
    /// The key with this SHA-256. Unknown keys are not cached.
    ///
    /// # Errors
    /// The store failed.
    pub(super) async fn find(
        &self,
        store: &Store,
        clock: &Clock,
        hash: [u8; 32],
    ) -> Result<Option<Arc<Known>>, StoreError> {
        // Read before the query, so that a change in between makes the answer outdated.
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

/// The use of a key is recorded at most this often.
const NOTE_INTERVAL_MS: i64 = 60_000;
/// How long uses are collected before they are written together.
const COLLECTED: Duration = Duration::from_millis(500);
/// Most uses that wait to be written; further ones are recorded at the next use of their keys.
pub(super) const WAITING_MAX: usize = 4_096;
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

    /// Records the use of a key in the background, at most once a minute: no request waits for the write, and one write covers
    /// many keys.
    pub(super) fn note(self: &Arc<Self>, store: &Store, key: &KeyRecord, now: UnixMillis) {
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
    fn uses_are_recorded_once_a_minute_and_written_together() {
        let uses = KeyUses::default();
        let now = UnixMillis(1_000_000);
        assert!(uses.add(&key(1, None), now), "the first use starts a write");
        assert!(!uses.add(&key(1, None), now) && !uses.add(&key(2, None), now));
        assert!(!uses.add(&key(3, Some(now.0 - NOTE_INTERVAL_MS + 1)), now));
        assert!(!uses.add(&key(4, Some(now.0 - NOTE_INTERVAL_MS)), now));
        assert_eq!(uses.take(), [(KeyId(1), now), (KeyId(2), now), (KeyId(4), now)]);
        let later = UnixMillis(now.0 + NOTE_INTERVAL_MS);
        assert!(uses.add(&key(1, None), later), "an old record does not hide a newer use");
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
