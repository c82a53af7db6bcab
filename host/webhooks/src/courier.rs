//! Takes a job, sends it, and records what came of it: for the worker, and at once for an owner who tests.

use std::time::Duration;

use satcast_quota::{Full, Quota};

use super::schedule::{self, Outcome, later};
use super::send::Sender;
use super::target::Targets;
use satcast_core::clock::Clock;
use satcast_core::ids::{AccountId, DeliveryId, WebhookId};
use satcast_core::secret::random_u64;
use satcast_store::{DeliveryJob, Settled, Store, StoreError};

/// How long a delivery belongs to who took it: longer than an attempt can take, with its record.
pub const LEASE: Duration = Duration::from_secs(60);
/// Tests on their way at one time.
const TESTS_AT_ONCE_MAX: u64 = 16;
/// Those of one account: one owner's slow receivers leave places for others.
const TESTS_PER_ACCOUNT_MAX: u64 = 4;
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
    tests: Quota<AccountId>,
}

impl Webhooks {
    /// Sends what `store` holds.
    pub fn new(store: Store, sender: Sender, clock: Clock) -> Self {
        Self { store, clock, sender, tests: Quota::new(TESTS_AT_ONCE_MAX, TESTS_PER_ACCOUNT_MAX) }
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
        let _permit = match self.tests.try_take(account, 1) {
            Ok(permit) => permit,
            Err(Full::Share) => return Err(TestError::Busy),
            Err(Full::Total) => {
                let permit = self.clock.timeout(TEST_WAIT, self.tests.take(account, 1)).await;
                permit.ok_or(TestError::Busy)?
            }
        };
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
