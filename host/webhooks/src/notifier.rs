//! Sends a claimed delivery and records the result: for the worker, and immediately for an owner's test.

use std::time::Duration;

use satcast_quota::{Full, Quota};
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

use super::schedule::{self, Outcome, later};
use super::send::Sender;
use super::target::Targets;
use satcast_core::clock::Clock;
use satcast_core::ids::{AccountId, DeliveryId, WebhookId};
use satcast_core::secret::random_u64;
use satcast_store::{DeliveryJob, Settled, Store, StoreError};

/// Lease of a claimed delivery: longer than an attempt and its recording can take.
pub const LEASE: Duration = Duration::from_secs(60);
/// Tests in flight at the same time.
const TESTS_AT_ONCE_MAX: u64 = 16;
/// Tests of one account: the slow receivers of one owner leave slots for others.
const TESTS_PER_ACCOUNT_MAX: u64 = 4;
/// Longest wait for a slot.
const TEST_WAIT: Duration = Duration::from_secs(5);

/// Reason why a test was not sent.
#[derive(Debug, thiserror::Error)]
pub enum TestError {
    /// Too many tests run now, of this account or in total.
    #[error("too many webhook tests are running; try again in a few seconds")]
    Busy,
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
    pub fn new(store: Store, sender: Sender, clock: Clock) -> Self {
        Self { store, clock, sender, tests: Quota::new(TESTS_AT_ONCE_MAX, TESTS_PER_ACCOUNT_MAX) }
    }

    pub fn targets(&self) -> &Targets {
        self.sender.targets()
    }

    /// Sends a `test.ping` to a webhook of the account and waits for the result, which is in the log too.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for a webhook of another account; too many tests; errors of the store.
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

    /// Makes the attempt and records it. If recording fails, the lease runs out and the delivery is sent again.
    ///
    /// # Errors
    /// Errors of the store.
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
    /// Errors of the store; then no attempt is recorded.
    pub(super) async fn record(&self, done: &mut [(DeliveryJob, Settled)]) -> Result<(), StoreError> {
        // Always in the same order, so that two transactions cannot deadlock on webhooks.
        done.sort_unstable_by_key(|(job, _)| (job.webhook, job.delivery));
        let ours = self.store.finish_deliveries(done).await?;
        for ((job, _), _) in done.iter().zip(ours).filter(|(_, ours)| !ours) {
            tracing::info!(delivery_id = %job.delivery, "a delivery was cancelled or claimed by another process while it was sent");
        }
        Ok(())
    }

    pub(super) async fn attempt(&self, job: &DeliveryJob) -> Settled {
        let span = tracing::error_span!(
            "webhook", delivery_id = %job.delivery, webhook_id = %job.webhook,
            attempt = job.tries.saturating_add(1), status = Empty, error = Empty
        );
        self.attempt_in_span(job).instrument(span).await
    }

    async fn attempt_in_span(&self, job: &DeliveryJob) -> Settled {
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
        let span = Span::current();
        span.record("status", outcome.status);
        if error.is_some() {
            // The error itself is only for the owner: it may name a private host.
            span.record("error", if outcome.status.is_some() { "refused" } else { "no answer" });
        }
        tracing::debug!(delivered = error.is_none(), "webhook attempt");
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

/// A failed status as text.
fn objection(status: u16) -> Option<String> {
    match status {
        200..=299 => None,
        300..=399 => Some(format!("the receiver answered {status}; redirects are not followed")),
        _ => Some(format!("the receiver answered {status}")),
    }
}
