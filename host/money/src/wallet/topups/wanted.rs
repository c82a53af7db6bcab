//! The queue of accounts to refill, and the tasks that refill, scan and watch until the service stops.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::sync::watch as channel;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::TopUps;
use super::refill::Outcome;
use satcast_core::ids::{AccountId, Msat};
use satcast_store::StoreError;

/// Most queued accounts; the scan finds further ones later.
const WANTED_MAX: usize = 4_096;
/// Time between two scans of all connections.
const SCAN_INTERVAL: Duration = Duration::from_secs(60);
/// Connections that the scan reads at one time.
const SCAN_PAGE: i64 = 200;
/// Longest wait for refills at shutdown. The next start continues those that remain.
const STOP_WAIT: Duration = Duration::from_secs(5);

/// Queued accounts, in the order in which they came.
#[derive(Default)]
pub(super) struct Wanted {
    queue: VecDeque<AccountId>,
    of: HashMap<AccountId, Want>,
}

struct Want {
    rate: Msat,
    /// It was wanted again after its refill began, which may have read the balance before.
    again: bool,
    outcome: channel::Sender<Option<Outcome>>,
}

/// A running refill. When it ends, also by a panic, its waiters get the outcome, and the account can be queued again.
struct Running<'a> {
    topups: &'a TopUps,
    account: AccountId,
    outcome: Outcome,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.topups.done(self.account, self.outcome);
    }
}

impl TopUps {
    /// Refills and watches until `shutdown` resolves, and then waits a moment for the refills in progress.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        if self.inner.receiving.is_none() {
            return shutdown.await;
        }
        let stopped = CancellationToken::new();
        let work = async {
            tokio::join!(
                self.keep_refilling(&stopped),
                self.keep_scanning(&stopped),
                self.keep_watching(&stopped)
            );
        };
        let stopping = async {
            shutdown.await;
            stopped.cancel();
        };
        tokio::join!(work, stopping);
    }

    async fn keep_refilling(&self, stopped: &CancellationToken) {
        let mut running = JoinSet::new();
        loop {
            while let Some((account, rate)) = self.next_wanted() {
                let topups = self.clone();
                running.spawn(async move {
                    let mut running = Running { topups: &topups, account, outcome: Outcome::None };
                    running.outcome = topups.refill_once(account, rate).await;
                });
            }
            tokio::select! {
                () = self.inner.called.notified() => {}
                Some(ended) = running.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "a refill ended unexpectedly; its invoice is still watched");
                    }
                }
                () = stopped.cancelled() => break,
            }
        }
        let rest = async { while running.join_next().await.is_some() {} };
        if self.inner.clock.timeout(STOP_WAIT, rest).await.is_none() {
            tracing::warn!("refills are still in progress; the next start continues them");
        }
    }

    /// Scans all connections repeatedly: other processes spend from balances too, and pauses end.
    async fn keep_scanning(&self, stopped: &CancellationToken) {
        let mut after = 0;
        loop {
            match self.scan(after).await {
                Ok(last) => after = last,
                Err(error) => tracing::error!(%error, "accounts to refill cannot be read; retrying"),
            }
            let next = self.inner.clock.monotonic().saturating_add(SCAN_INTERVAL);
            tokio::select! {
                () = self.inner.clock.sleep_until(next) => {}
                () = stopped.cancelled() => return,
            }
        }
    }

    /// One scan, from where the last one stopped; returns where it stopped, or 0 after the last connection.
    async fn scan(&self, mut after: i64) -> Result<i64, StoreError> {
        if !self.inner.terms.offered {
            return Ok(0);
        }
        loop {
            let found = self.inner.store.wallets_below(self.inner.clock.now(), after, SCAN_PAGE).await?;
            let is_last = i64::try_from(found.len()).unwrap_or(i64::MAX) < SCAN_PAGE;
            for (connection, account) in found {
                if self.want(account, Msat(0)).is_none() {
                    return Ok(after);
                }
                after = connection;
            }
            if is_last {
                return Ok(0);
            }
        }
    }

    /// Queues an account; `None` if the queue is full.
    pub(super) fn want(&self, account: AccountId, rate: Msat) -> Option<channel::Receiver<Option<Outcome>>> {
        let mut wanted = self.inner.wanted.lock();
        if let Some(want) = wanted.of.get_mut(&account) {
            want.rate = want.rate.max(rate);
            want.again = true;
            return Some(want.outcome.subscribe());
        }
        if wanted.of.len() >= WANTED_MAX {
            return None;
        }
        let outcome = channel::Sender::default();
        let receiver = outcome.subscribe();
        wanted.of.insert(account, Want { rate, again: false, outcome });
        wanted.queue.push_back(account);
        drop(wanted);
        self.inner.called.notify_one();
        Some(receiver)
    }

    pub(super) fn next_wanted(&self) -> Option<(AccountId, Msat)> {
        let mut wanted = self.inner.wanted.lock();
        let account = wanted.queue.pop_front()?;
        let want = wanted.of.get_mut(&account)?;
        want.again = false;
        Some((account, want.rate))
    }

    pub(super) fn done(&self, account: AccountId, outcome: Outcome) {
        let mut wanted = self.inner.wanted.lock();
        // A caller that came meanwhile may have spent since the balance was read, or spends more a minute.
        let again = wanted.of.get(&account).is_some_and(|want| want.again);
        if again && outcome == Outcome::Enough {
            wanted.queue.push_back(account);
            drop(wanted);
            return self.inner.called.notify_one();
        }
        if let Some(want) = wanted.of.remove(&account) {
            want.outcome.send_replace(Some(outcome));
        }
    }
}
