//! Takes a job, sends it, and records what came of it: for the worker, and at once for an owner who tests.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::schedule::{self, Outcome};
use super::send::Sender;
use super::target::Targets;
use super::worker::{LEASE, later};
use crate::clock::Clock;
use crate::ids::{AccountId, DeliveryId, WebhookId};
use crate::secret::random_u64;
use crate::store::{DeliveryJob, Settled, Store, StoreError};

/// Tests on their way at one time.
const TESTS_AT_ONCE_MAX: usize = 16;
/// Those of one account: one owner's slow receivers leave places for others.
const TESTS_PER_ACCOUNT_MAX: usize = 4;
/// Longest wait for one's turn at testing.
const TEST_WAIT: Duration = Duration::from_secs(5);

/// Why a test could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TestError {
    /// Too many are made at this moment, by this account or by all.
    #[error("too many webhooks are tested at this moment; try again in a few seconds")]
    Busy,
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The sending side of webhooks; cheap to clone.
#[derive(Clone, Debug)]
pub struct Webhooks {
    pub(super) store: Store,
    pub(super) clock: Clock,
    sender: Sender,
    tests: Arc<Semaphore>,
    testers: Arc<Testers>,
}

/// Tests on their way of each account that has any.
#[derive(Debug, Default)]
struct Testers(Mutex<HashMap<AccountId, usize>>);

/// A place among the tests of an account; free again when it is dropped.
struct Place<'a> {
    testers: &'a Testers,
    account: AccountId,
}

impl Testers {
    /// A place for one test more, unless the account has [`TESTS_PER_ACCOUNT_MAX`].
    fn enter(&self, account: AccountId) -> Option<Place<'_>> {
        let mut counts = self.0.lock();
        let count = counts.entry(account).or_default();
        if *count >= TESTS_PER_ACCOUNT_MAX {
            return None;
        }
        *count += 1;
        Some(Place { testers: self, account })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut counts = self.testers.0.lock();
        if let Some(count) = counts.get_mut(&self.account) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.account);
            }
        }
    }
}

impl Webhooks {
    /// Sends what `store` holds.
    pub fn new(store: Store, sender: Sender, clock: Clock) -> Self {
        let tests = Arc::new(Semaphore::new(TESTS_AT_ONCE_MAX));
        Self { store, clock, sender, tests, testers: Arc::default() }
    }

    /// What may be a webhook.
    pub fn targets(&self) -> &Targets {
        self.sender.targets()
    }

    /// Sends a `test.ping` to a webhook of the account and waits for what comes of it; it is in the log, too.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for a webhook that is not the account's; too many tests; the store.
    pub async fn test(
        &self,
        account: AccountId,
        webhook: WebhookId,
    ) -> Result<(DeliveryId, Settled), TestError> {
        // First the account's own, so that who has too many does not wait among the others.
        let _own = self.testers.enter(account).ok_or(TestError::Busy)?;
        let place = self.clock.timeout(TEST_WAIT, self.tests.acquire()).await;
        let _place = place.ok_or(TestError::Busy)?.map_err(|_| TestError::Busy)?;
        let now = self.clock.now();
        let job = self.store.begin_test(account, webhook, now, later(now, LEASE)).await?;
        Ok((job.delivery, self.deliver(job).await?))
    }

    /// Makes the attempt and records it. When the record fails the lease runs out, and it is sent again.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn deliver(&self, job: DeliveryJob) -> Result<Settled, StoreError> {
        let settled = self.attempt(&job).await;
        let mut done = [(job, settled)];
        self.record(&mut done).await?;
        let [(_, settled)] = done;
        Ok(settled)
    }

    /// Records attempts in one transaction.
    ///
    /// # Errors
    /// Those of the store; then none is recorded.
    pub(super) async fn record(&self, done: &mut [(DeliveryJob, Settled)]) -> Result<(), StoreError> {
        // Always in the same order, so that two transactions do not wait for each other's webhooks.
        done.sort_unstable_by_key(|(job, _)| (job.webhook, job.delivery));
        let ours = self.store.finish_deliveries(done).await?;
        for ((job, _), _) in done.iter().zip(ours).filter(|(_, ours)| !ours) {
            tracing::info!(delivery_id = %job.delivery, "a delivery was cancelled or taken over while it was sent");
        }
        Ok(())
    }

    pub(super) async fn attempt(&self, job: &DeliveryJob) -> Settled {
        let (at, began) = (self.clock.now(), self.clock.monotonic());
        let result = self.sender.send(job, at).await;
        let took = self.clock.monotonic().saturating_sub(began);
        let (outcome, answer, error) = match result {
            Ok(answer) => {
                let outcome = Outcome { status: Some(answer.status), retry_after: answer.retry_after };
                (outcome, answer.body, objection(answer.status))
            }
            Err(error) => (Outcome::default(), String::new(), Some(error.words())),
        };
        let ended = self.clock.now();
        // The error is for the owner only: it may name a host that is nobody else's business.
        tracing::debug!(delivery_id = %job.delivery, webhook_id = %job.webhook, status = outcome.status,
            delivered = error.is_none(), "webhook attempt");
        let wait = schedule::wait(outcome, job.tries.saturating_add(1), random_u64());
        Settled {
            at,
            duration_ms: i64::try_from(took.as_millis()).unwrap_or(i64::MAX),
            status: outcome.status,
            answer,
            error,
            retry_at: wait.map(|wait| later(ended, wait)),
            health: schedule::health(outcome, job.is_test, ended),
        }
    }
}

/// What is wrong with a status, in words.
fn objection(status: u16) -> Option<String> {
    match status {
        200..=299 => None,
        300..=399 => Some(format!("the receiver answered {status}; redirects are not followed")),
        _ => Some(format!("the receiver answered {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_has_so_many_tests_and_gives_their_places_back() {
        let testers = Testers::default();
        let (me, you) = (AccountId(1), AccountId(2));
        let mut held: Vec<_> = (0..TESTS_PER_ACCOUNT_MAX).map(|_| testers.enter(me).unwrap()).collect();
        assert!(testers.enter(me).is_none());
        held.push(testers.enter(you).unwrap());
        held.remove(0);
        held.push(testers.enter(me).unwrap());
        assert!(testers.enter(me).is_none());
        drop(held);
        assert!(testers.0.lock().is_empty());
    }
}
