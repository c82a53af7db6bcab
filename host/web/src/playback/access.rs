//! Who may watch: what the store says of a key, kept for about a second.
//!
//! A viewer's playlist is judged by what the store said at most that long ago, and its segments by what it said last,
//! so that a key that was revoked or a destination that was disabled ends playback at the next playlist, while viewers that
//! play cost one question a second and key, however many they are.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::base::ApiError;
use satcast_core::clock::Clock;
use satcast_core::ids::{AccountId, DestinationId, KeyId, StreamId};
use satcast_drivers::Drivers;
use satcast_store::{PlaybackRecord, Store, StoreError};

/// How long an answer of the store counts.
pub const FRESH: Duration = Duration::from_secs(1);
/// How long the last answer counts for segments when it was a yes, and for everything when the store fails: viewers need
/// not notice that the database is being mended.
pub const KNOWN: Duration = Duration::from_secs(60);
/// Answers kept; beyond them questions go to the store each time.
pub const ANSWERS_MAX: usize = 8_192;

/// What the store is asked by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Question {
    /// A public key, by its hash.
    Hash([u8; 32]),
    /// A public key, by the id in a token.
    Key(KeyId),
    /// A destination, by its playback path.
    Path(String),
}

/// What a viewer may watch.
#[derive(Debug)]
pub(super) struct Access {
    /// The key that was asked by, if one was.
    pub(super) key: Option<KeyId>,
    pub(super) account: AccountId,
    pub(super) stream: StreamId,
    pub(super) destination: DestinationId,
    pub(super) path: String,
    /// The stream's name for people.
    pub(super) label: String,
    pub(super) enabled: bool,
    /// Sites whose pages may play; empty = all.
    pub(super) origins: Vec<String>,
}

impl Access {
    fn of(drivers: &Drivers, key: Option<KeyId>, record: PlaybackRecord) -> Self {
        Self {
            key,
            account: record.account_id,
            stream: record.stream_id,
            destination: record.destination_id,
            origins: drivers.origins(&record.kind, &record.config),
            path: record.playback_path,
            label: record.label,
            enabled: record.enabled,
        }
    }
}

/// How old an answer may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    /// [`FRESH`].
    Fresh,
    /// [`KNOWN`], if it was a yes.
    Known,
}

#[derive(Debug)]
struct Answer {
    access: Option<Arc<Access>>,
    /// When the store was asked last, by whoever found the answer too old; others go on with it meanwhile.
    asked_at: Duration,
    /// When it said this.
    said_at: Duration,
}

/// The store's answers.
pub(super) struct Accesses {
    store: Store,
    drivers: Drivers,
    clock: Clock,
    answers: Mutex<HashMap<Question, Answer>>,
}

impl Accesses {
    pub(super) fn new(store: Store, drivers: Drivers, clock: Clock) -> Self {
        Self { store, drivers, clock, answers: Mutex::default() }
    }

    /// What may be watched, or `None`: no such key or path, or no longer.
    ///
    /// # Errors
    /// The store failed and said nothing usable before.
    pub(super) async fn find(
        self: &Arc<Self>,
        question: Question,
        age: Age,
    ) -> Result<Option<Arc<Access>>, ApiError> {
        let now = self.clock.monotonic();
        let earlier = match self.answers.lock().get_mut(&question) {
            None => None,
            Some(answer) => {
                let is_known = now.saturating_sub(answer.said_at) < KNOWN && answer.access.is_some();
                let is_asked = now.saturating_sub(answer.asked_at) < FRESH;
                if (age == Age::Known && is_known) || now.saturating_sub(answer.said_at) < FRESH {
                    return Ok(answer.access.clone());
                }
                // Somebody asks already, or did in vain a moment ago: an old answer serves, but none older than it may be.
                if is_asked && now.saturating_sub(answer.said_at) < KNOWN {
                    return Ok(answer.access.clone());
                }
                answer.asked_at = now;
                Some((answer.access.clone(), answer.said_at))
            }
        };
        // A viewer who leaves must not take the answer along: others wait for it.
        let (this, asked) = (self.clone(), question);
        let asking = tokio::spawn(async move { this.ask(asked, now).await });
        match (asking.await, earlier) {
            (Ok(Ok(access)), _) => Ok(access),
            (Ok(Err(error)), Some((access, said_at))) if now.saturating_sub(said_at) < KNOWN => {
                tracing::warn!(%error, "the store failed; viewers go on with what it said before");
                Ok(access)
            }
            (Ok(Err(error)), _) => Err(error.into()),
            (Err(error), _) => {
                tracing::error!(%error, "a question to the store ended early");
                Err(ApiError::internal())
            }
        }
    }

    async fn ask(&self, question: Question, now: Duration) -> Result<Option<Arc<Access>>, StoreError> {
        let found = match &question {
            Question::Hash(hash) => {
                self.store.playback_by_key_hash(hash).await?.map(|(key, record)| (Some(key), record))
            }
            Question::Key(key) => self.store.playback_by_key(*key).await?.map(|record| (Some(*key), record)),
            Question::Path(path) => self.store.playback_by_path(path).await?.map(|record| (None, record)),
        };
        let access = found.map(|(key, record)| Arc::new(Access::of(&self.drivers, key, record)));
        let mut answers = self.answers.lock();
        // A key that is not there is asked for by nobody twice but by those who guess: it must not push others out.
        let is_guess = access.is_none() && matches!(question, Question::Hash(_));
        if answers.len() >= ANSWERS_MAX && !answers.contains_key(&question) && !is_guess {
            let counts = |answer: &Answer| {
                let age = now.saturating_sub(answer.said_at);
                age < FRESH || (age < KNOWN && answer.access.is_some())
            };
            answers.retain(|_, answer| counts(answer));
        }
        let is_known = answers.contains_key(&question);
        if is_known || (answers.len() < ANSWERS_MAX && !is_guess) {
            answers.insert(question, Answer { access: access.clone(), asked_at: now, said_at: now });
        }
        Ok(access)
    }
}

#[cfg(test)]
impl Accesses {
    pub(super) fn len(&self) -> usize {
        self.answers.lock().len()
    }
}
