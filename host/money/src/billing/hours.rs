//! Passes over clock hours of playback: at each minute of the UTC clock, and when a session ends. Bytes are charged to
//! the hour in which they were sent, even if they are counted later; so the pass after the end of an hour closes it.

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tracing::Instrument as _;

use super::{Inner, overage};
use satcast_core::ids::{AccountId, SessionId, UnixMillis};
use satcast_store::{HourOutcome, HourTerms};

/// Hours of accounts that are read at one time.
pub const HOURS_MAX: i64 = 64;
/// Reads in one pass, a minute's worth of charges on a slow disk; the next pass charges the remaining hours.
const READS_MAX: u32 = 128;
const MINUTE_MS: i64 = 60_000;

/// Runs before each pass.
pub type BeforePass = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

#[derive(Default)]
pub(super) struct Hours {
    before: OnceLock<BeforePass>,
    /// One hour at a time, and its charges are reported before the next hour starts: two hours would only wait for each
    /// other in the database, and a session must receive its totals in order. The lock is fair, so a session that ends
    /// gets it between two hours of a pass over all accounts.
    charging: tokio::sync::Mutex<()>,
}

impl Hours {
    pub(super) fn set_before(&self, before: BeforePass) {
        // The first call wins.
        let _ = self.before.set(before);
    }
}

pub(super) async fn keep(billing: &Arc<Inner>, shutdown: impl Future<Output = ()>) {
    let mut shutdown = pin!(shutdown);
    loop {
        let left = MINUTE_MS - billing.clock.now().0.rem_euclid(MINUTE_MS);
        let next = billing.clock.monotonic().saturating_add(Duration::from_millis(left.unsigned_abs()));
        tokio::select! {
            () = &mut shutdown => return,
            () = billing.clock.sleep_until(next) => billing.bill_playback(None).await,
        }
    }
}

impl Inner {
    /// Runs one pass, over the hours of one account or of all. The caller may stop waiting: the pass continues, because
    /// the sessions must get the charges.
    pub(super) async fn bill_playback(self: &Arc<Self>, account: Option<AccountId>) {
        let billing = self.clone();
        if let Err(error) = tokio::spawn(async move { billing.pass(account, READS_MAX).await }).await {
            tracing::error!(%error, "a pass over playback failed; the next pass charges the remaining bytes");
        }
    }

    /// Makes at most `reads` reads. Hours that remain or fail are charged by the next pass.
    pub(super) async fn pass(&self, account: Option<AccountId>, reads: u32) {
        if let Some(before) = self.hours.before.get() {
            before().await;
        }
        for _ in 0..reads {
            let hours = match self.store.unbilled_hours(account, HOURS_MAX).await {
                Ok(hours) => hours,
                Err(error) => {
                    tracing::error!(%error, "hours of playback cannot be read; the next pass charges them");
                    return;
                }
            };
            let mut failed = false;
            for (account, hour) in &hours {
                failed |= !self.bill_hour(*account, *hour).await;
            }
            // A failed hour would be read again and again.
            if failed || i64::try_from(hours.len()).unwrap_or(i64::MAX) < HOURS_MAX {
                return;
            }
        }
    }

    async fn bill_hour(&self, account: AccountId, hour: UnixMillis) -> bool {
        // Without prices, bytes are still marked as counted: they must not be charged when prices are set later.
        let terms = self.prices().map_or_else(HourTerms::default, |prices| prices.playback);
        let _alone = self.hours.charging.lock().await;
        let now = self.clock.now();
        let span = tracing::error_span!("playback_charge", %account, hour = hour.0);
        match self.store.bill_hour(account, hour, terms, now, &overage::decide).instrument(span).await {
            Ok(outcome) => {
                self.report_to_sessions(&outcome).await;
                true
            }
            Err(error) => {
                self.note_failure();
                tracing::error!(%account, hour = hour.0, %error, "playback cannot be charged; the next pass retries it");
                false
            }
        }
    }

    /// Reports charges to the sessions of this node, and ends those without money. Other nodes get a command with the
    /// charge.
    async fn report_to_sessions(&self, outcome: &HourOutcome) {
        let meter = |session: &SessionId| self.meters.lock().get(session).cloned();
        for (session, totals) in &outcome.totals {
            if let Some(meter) = meter(session) {
                meter.was_charged(*totals);
            }
        }
        for (session, reason) in &outcome.decision.ends {
            if let Some(meter) = meter(session) {
                meter.order_end(*reason);
            }
        }
    }
}
