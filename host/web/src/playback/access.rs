//! Access of viewers: cached answers of the store about keys.
//!
//! Playlist requests use answers that are at most about a second old; segment requests use the last answer. Revoking a key or
//! disabling a destination therefore ends playback at the next playlist, and any number of viewers costs one query per second and
//! key.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::auth::uses::KeyUses;
use crate::base::ApiError;
use satcast_core::clock::Clock;
use satcast_core::ids::{AccountId, DestinationId, KeyId, StreamId};
use satcast_drivers::Drivers;
use satcast_store::{PlaybackRecord, Store, StoreError};

/// How long an answer is used for playlists.
pub const FRESH: Duration = Duration::from_secs(1);
/// How long a positive answer is used for segments, and for all requests while the store fails, so that viewers do not notice
/// database maintenance.
pub const KNOWN: Duration = Duration::from_secs(60);
/// How long a viewer waits for the store while there is an earlier answer to use: less than a player has in its buffer.
pub(super) const STORE_WAIT: Duration = Duration::from_secs(1);
/// Most cached answers. When the cache is full, expired answers are dropped; if that is not enough, new ones are not cached.
pub const ANSWERS_MAX: usize = 8_192;

/// Key of a query.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Question {
    /// Hash of a public key.
    Hash([u8; 32]),
    /// Id of a public key, from a token.
    Key(KeyId),
    /// Playback path of a destination.
    Path(String),
}

/// A destination that a viewer may watch.
#[derive(Debug)]
pub(super) struct Access {
    /// The key of the query, if it had one.
    pub(super) key: Option<KeyId>,
    pub(super) account: AccountId,
    pub(super) stream: StreamId,
    pub(super) destination: DestinationId,
    pub(super) path: String,
    /// Label of the stream.
    pub(super) label: String,
    pub(super) enabled: bool,
    /// Origins whose pages may play; empty = all.
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

/// The destination that a query found.
pub(super) type Found = Option<Arc<Access>>;
/// A running query.
pub(super) type Asking = JoinHandle<Result<Found, StoreError>>;

/// Largest age of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    /// [`FRESH`].
    Fresh,
    /// [`KNOWN`], if the answer was positive.
    Known,
}

#[derive(Debug)]
struct Answer {
    access: Found,
    /// Time of the last query.
    asked_at: Duration,
    /// The query runs; other requests use the old answer.
    is_asking: bool,
    /// Time of the answer.
    said_at: Duration,
}

/// Cache of the store's answers.
pub(super) struct Accesses {
    store: Store,
    drivers: Drivers,
    clock: Clock,
    answers: Mutex<HashMap<Question, Answer>>,
    /// Beside those of the API: the store keeps the newest use.
    uses: Arc<KeyUses>,
}

impl Accesses {
    pub(super) fn new(store: Store, drivers: Drivers, clock: Clock) -> Self {
        Self { store, drivers, clock, answers: Mutex::default(), uses: Arc::default() }
    }

    /// The destination, or `None` if the key or path is unknown or no longer valid.
    ///
    /// # Errors
    /// The store failed and there is no earlier answer to use.
    pub(super) async fn find(self: &Arc<Self>, question: Question, age: Age) -> Result<Found, ApiError> {
        let now = self.clock.monotonic();
        let earlier = match self.answers.lock().get_mut(&question) {
            None => None,
            Some(answer) => {
                let is_known = now.saturating_sub(answer.said_at) < KNOWN && answer.access.is_some();
                let is_asked = now.saturating_sub(answer.asked_at) < FRESH;
                if (age == Age::Known && is_known) || now.saturating_sub(answer.said_at) < FRESH {
                    return Ok(answer.access.clone());
                }
                // A query of another request runs, or has just failed: use the old answer, within its largest age.
                if (answer.is_asking || is_asked) && now.saturating_sub(answer.said_at) < KNOWN {
                    return Ok(answer.access.clone());
                }
                (answer.asked_at, answer.is_asking) = (now, true);
                Some((answer.access.clone(), answer.said_at))
            }
        };
        // In a task of its own, because other viewers wait for the answer even if this one disconnects.
        let (this, asked) = (self.clone(), question);
        let asking = tokio::spawn(async move {
            let answered = this.ask(&asked, now).await;
            if let (Err(_), Some(answer)) = (&answered, this.answers.lock().get_mut(&asked)) {
                answer.is_asking = false;
            }
            answered
        });
        let earlier = earlier.filter(|(_, said_at)| now.saturating_sub(*said_at) < KNOWN);
        self.answer(asking, earlier.map(|(access, _)| access)).await
    }

    /// The store's answer, or the earlier one where the store fails or does not answer within [`STORE_WAIT`]. The query goes on, for
    /// the next request.
    pub(super) async fn answer(&self, mut asking: Asking, earlier: Option<Found>) -> Result<Found, ApiError> {
        let answered = match &earlier {
            Some(_) => self.clock.timeout(STORE_WAIT, &mut asking).await,
            None => Some(asking.await),
        };
        match (answered, earlier) {
            (Some(Ok(Ok(access))), _) => Ok(access),
            (Some(Ok(Err(error))), Some(access)) => {
                tracing::warn!(%error, "the store failed; viewers continue with its earlier answer");
                Ok(access)
            }
            (None, earlier) => Ok(earlier.flatten()),
            (Some(Ok(Err(error))), None) => Err(error.into()),
            (Some(Err(error)), _) => {
                tracing::error!(%error, "a query of the store ended early");
                Err(ApiError::internal())
            }
        }
    }

    async fn ask(&self, question: &Question, now: Duration) -> Result<Found, StoreError> {
        let found = match question {
            Question::Hash(hash) => {
                self.store.playback_by_key_hash(hash).await?.map(|(key, record)| (Some(key), record))
            }
            Question::Key(key) => self.store.playback_by_key(*key).await?.map(|record| (Some(*key), record)),
            Question::Path(path) => self.store.playback_by_path(path).await?.map(|record| (None, record)),
        };
        let access = found.map(|(key, record)| Arc::new(Access::of(&self.drivers, key, record)));
        if let Some(key) = access.as_ref().and_then(|access| access.key) {
            self.uses.note(&self.store, key, self.clock.now());
        }
        let mut answers = self.answers.lock();
        // Only guessing clients ask for unknown keys repeatedly: such keys must not evict valid ones.
        let is_guess = access.is_none() && matches!(question, Question::Hash(_));
        if answers.len() >= ANSWERS_MAX && !answers.contains_key(question) && !is_guess {
            let counts = |answer: &Answer| {
                let age = now.saturating_sub(answer.said_at);
                age < FRESH || (age < KNOWN && answer.access.is_some())
            };
            answers.retain(|_, answer| counts(answer));
        }
        let is_known = answers.contains_key(question);
        if is_known || (answers.len() < ANSWERS_MAX && !is_guess) {
            let answer = Answer { access: access.clone(), asked_at: now, is_asking: false, said_at: now };
            answers.insert(question.clone(), answer);
        }
        Ok(access)
    }
}

#[cfg(test)]
impl Accesses {
    pub(super) fn len(&self) -> usize {
        self.answers.lock().len()
    }

    /// As if a query that hangs were running.
    pub(super) fn hang(&self, question: &Question) {
        self.answers.lock().get_mut(question).unwrap().is_asking = true;
    }
}
