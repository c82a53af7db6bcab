//! The worker: claims due deliveries and sends them in parallel; a second task deletes old ones.

use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};

use super::notifier::{LEASE, Webhooks};
use super::schedule::later;
use super::send::ATTEMPT_TIMEOUT;
use satcast_core::ids::UnixMillis;
use satcast_store::{DeliveryJob, SendingCaps, Settled, StoreError};

/// Deliveries in flight at the same time in this process.
pub const SENDING_MAX: usize = 64;
/// Parts of these that one receiver or account may use.
pub const CAPS: SendingCaps = SendingCaps { per_webhook: 4, per_host: 8, per_account: 16 };
/// Attempts that are recorded in one transaction.
pub(super) const RECORDED_MAX: usize = 32;
/// How long a finished attempt waits to be recorded together with others: transactions are the main cost of a delivery.
const GATHER: Duration = Duration::from_millis(5);
/// How often the outbox is checked without a notification.
const POLL: Duration = Duration::from_secs(1);
/// How long the log of deliveries is kept.
const LOG_KEPT_MS: i64 = 30 * 24 * 60 * 60 * 1_000;
/// How often older deliveries are deleted.
const PRUNE_INTERVAL: Duration = Duration::from_secs(60 * 60);
/// Longest wait for deliveries in flight at shutdown.
const STOP_WAIT: Duration = ATTEMPT_TIMEOUT.saturating_add(Duration::from_secs(2));

/// A job and its result.
type Ended = (DeliveryJob, Settled);

fn note(ended: Result<Ended, JoinError>, done: &mut Vec<Ended>) {
    match ended {
        Ok(ended) => done.push(ended),
        Err(error) => tracing::error!(%error, "a delivery failed unexpectedly; it is sent again"),
    }
}

impl Webhooks {
    /// Sends deliveries until `stop` resolves, then waits for those in flight.
    pub async fn keep_sending(self, stop: impl Future<Output = ()>) {
        let changed = self.store.outbox_changed();
        let mut sending = JoinSet::new();
        // Aborted when this function returns.
        let mut pruning = JoinSet::new();
        pruning.spawn(self.clone().keep_pruning());
        tokio::pin!(stop);
        loop {
            match self.claim(SENDING_MAX - sending.len()).await {
                Ok(jobs) => {
                    for job in jobs {
                        let webhooks = self.clone();
                        sending.spawn(async move {
                            let settled = webhooks.attempt(&job).await;
                            (job, settled)
                        });
                    }
                }
                Err(error) => tracing::error!(%error, "deliveries to webhooks cannot be read; retrying"),
            }
            tokio::select! {
                () = &mut stop => break,
                () = changed.notified() => {}
                Some(first) = sending.join_next() => self.record_some(first, &mut sending).await,
                () = sleep(POLL) => {}
            }
        }
        let rest = async {
            while let Some(first) = sending.join_next().await {
                self.record_some(first, &mut sending).await;
            }
        };
        if timeout(STOP_WAIT, rest).await.is_err() {
            tracing::warn!(
                "deliveries to webhooks were interrupted by the shutdown; the next start sends them again"
            );
        }
    }

    /// Claims due deliveries, up to the free capacity.
    pub(super) async fn claim(&self, capacity: usize) -> Result<Vec<DeliveryJob>, StoreError> {
        let now = self.clock.now();
        // Usually nothing is due, and the check needs no writer.
        if capacity == 0 || !self.store.has_due_delivery(now).await? {
            return Ok(Vec::new());
        }
        self.store.claim_deliveries(now, later(now, LEASE), capacity, CAPS).await
    }

    /// Records a finished attempt, together with others that finish within [`GATHER`].
    async fn record_some(&self, first: Result<Ended, JoinError>, sending: &mut JoinSet<Ended>) {
        let mut done = Vec::with_capacity(RECORDED_MAX);
        note(first, &mut done);
        let more = async {
            while done.len() < RECORDED_MAX {
                let Some(next) = sending.join_next().await else { return };
                note(next, &mut done);
            }
        };
        // Finished attempts are in `done` or still in `sending`, wherever this future is dropped.
        let _ = timeout(GATHER, more).await;
        if self.record(&mut done).await.is_ok() {
            return;
        }
        // One of them may be refused by the database: each is recorded alone.
        for one in done {
            let delivery = one.0.delivery;
            if let Err(error) = self.record(&mut [one]).await {
                tracing::error!(%error, delivery_id = %delivery, "a delivery cannot be recorded; it is sent again");
            }
        }
    }

    /// Deletes old deliveries regularly. A long log takes time, and nothing waits for it.
    async fn keep_pruning(self) {
        loop {
            self.prune().await;
            sleep(PRUNE_INTERVAL).await;
        }
    }

    /// Deletes deliveries past their retention time, and the logs of deleted webhooks.
    pub(super) async fn prune(&self) {
        let before = UnixMillis(self.clock.now().0.saturating_sub(LOG_KEPT_MS));
        loop {
            let (webhooks, events) =
                (self.store.prune_webhooks().await, self.store.prune_events(before).await);
            match (webhooks, events) {
                (Ok(false), Ok(false)) => return,
                (Ok(_), Ok(_)) => {}
                (Err(error), _) | (_, Err(error)) => {
                    tracing::error!(%error, "old deliveries to webhooks cannot be deleted; retrying in an hour");
                    return;
                }
            }
        }
    }
}
