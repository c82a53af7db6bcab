//! Billing: charges for minutes and for playback above the allowance, and the rules of budgets and balances.
//!
//! - [`minutes`], [`overage`], [`limits`]: the decisions, pure.
//! - [`meter`]: one session. It receives changes from `live`, charges them in the background, and orders stops.
//! - [`hours`]: passes over clock hours of playback.
//! - [`notices`]: log lines for owners.
//!
//! It knows no packets and no HTTP, and sessions of `satcast-live` only through [`satcast_usage`]. The media path waits
//! for nothing here: a destination that goes live forwards at once, is charged a moment later, and is stopped if the
//! charge is refused.

mod hours;
pub mod limits;
mod meter;
pub mod minutes;
mod notices;
pub mod overage;
mod refills;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use parking_lot::{Mutex, RwLock};
use tracing::Instrument as _;

pub use hours::{BeforePass, HOURS_MAX};
use meter::Meter;
pub use refills::{Refilled, Refills};
use satcast_core::clock::Clock;
use satcast_core::config::{BillingMode, Config};
use satcast_core::ids::{AccountId, Msat, Sats, SessionId, UnixMillis};
use satcast_store::{HourTerms, Store, StreamRecord, Terms};
use satcast_usage::{Beginning, Gate, Unmetered, Usage};

/// Reasons for refusing an encoder.
pub(crate) const REFILLING: &str =
    "the account's balance is being refilled by its wallet; try again in a moment";
pub(crate) const STARVED: &str =
    "the stream ended because the account's balance was used up; add credit to the account";
pub(crate) const TOO_LITTLE: &str =
    "the account's balance does not cover one destination; add credit to the account";

/// Charges of all sessions and accounts; cheap to clone.
#[derive(Clone)]
pub struct Billing {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    clock: Clock,
    /// `None` without charges. New sessions and new clock hours take the prices of their start.
    prices: RwLock<Option<Prices>>,
    /// Charges that the database did not accept so far; each is tried again.
    failures: AtomicU64,
    meters: Mutex<HashMap<SessionId, Arc<Meter>>>,
    hours: hours::Hours,
    /// Nothing is refilled before it is set.
    refills: OnceLock<Arc<dyn Refills>>,
}

/// The prices of the configuration, in millisats.
#[derive(Clone, Copy, Debug)]
struct Prices {
    minute: Terms,
    playback: HourTerms,
}

impl Prices {
    /// `None` in the mode `off`.
    fn of(config: &Config) -> Option<Self> {
        let msat = |sats: i64| Sats(sats).to_msat().unwrap_or(Msat(i64::MAX));
        let pricing = &config.pricing;
        let gb = u64::try_from(pricing.bandwidth_limit_gb_per_hour).unwrap_or(0);
        match config.billing.mode {
            BillingMode::Off => None,
            // Wallets only refill the credit; charges take it as in the mode `credit`.
            BillingMode::Credit | BillingMode::Wallet => Some(Self {
                minute: Terms {
                    price: msat(pricing.cost_per_platform),
                    free: u32::try_from(pricing.free_platforms).unwrap_or(u32::MAX),
                },
                playback: HourTerms {
                    price_per_gb: msat(pricing.bandwidth_overage_sats_per_gb),
                    limit_bytes: gb.saturating_mul(overage::GB_BYTES),
                },
            }),
        }
    }
}

/// Charges between sessions and the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// Slots of minutes that are not charged yet.
    pub waiting: u64,
    /// Failed tries since the start.
    pub failures: u64,
}

/// Cost of a live session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Cost of a full minute with the destinations that forward now.
    pub rate: Msat,
    /// When the session will end for budget or balance if nothing changes; `None` if it will not.
    pub ends_at: Option<UnixMillis>,
}

impl Billing {
    /// Charges at the prices of `config`.
    pub fn new(store: Store, clock: Clock, config: &Config) -> Self {
        let inner = Inner {
            store,
            clock,
            prices: RwLock::new(Prices::of(config)),
            failures: AtomicU64::new(0),
            meters: Mutex::default(),
            hours: hours::Hours::default(),
            refills: OnceLock::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Takes the prices of `config`, whose mode is that of the start. A session that has begun keeps its prices, and so
    /// does a clock hour with a charge.
    pub fn set_prices(&self, config: &Config) {
        *self.inner.prices.write() = Prices::of(config);
    }

    /// Charges that wait for the database now, and how often it has refused one since the start.
    pub fn backlog(&self) -> Backlog {
        let meters: Vec<_> = self.inner.meters.lock().values().cloned().collect();
        let waiting = meters.iter().map(|meter| meter.waiting() as u64).sum();
        Backlog { waiting, failures: self.inner.failures.load(Ordering::Relaxed) }
    }

    /// The interface for `live`.
    pub fn gate(&self) -> Arc<dyn Gate> {
        Arc::new(self.clone())
    }

    /// Sets the work that runs before each pass over hours of playback: it brings the bytes counted so far into the
    /// store.
    pub fn set_before_pass(&self, before: BeforePass) {
        self.inner.hours.set_before(before);
    }

    /// Sets the refills of accounts that spend; the first call wins.
    pub fn set_refills(&self, refills: Arc<dyn Refills>) {
        let _ = self.inner.refills.set(refills);
    }

    /// One pass over all hours with uncounted bytes.
    pub async fn bill_playback(&self) {
        self.inner.bill_playback(None).await;
    }

    /// Runs a pass at each minute of the UTC clock, until `shutdown` resolves.
    pub async fn keep_hours(self, shutdown: impl Future<Output = ()>) {
        hours::keep(&self.inner, shutdown).await;
    }

    /// Cost of a session; `None` if it does not run or nothing is charged.
    pub fn cost(&self, session: &SessionId) -> Option<Cost> {
        let meter = self.inner.meters.lock().get(session).cloned()?;
        let all = self.inner.rate_of(meter.account());
        let (rate, ends) = meter.forecast(all);
        let (now, wall) = (self.inner.clock.monotonic(), self.inner.clock.now());
        let ends_at = ends.map(|at| {
            let left = i64::try_from(at.saturating_sub(now).as_millis()).unwrap_or(i64::MAX);
            UnixMillis(wall.0.saturating_add(left))
        });
        Some(Cost { rate, ends_at })
    }
}

impl Inner {
    fn prices(&self) -> Option<Prices> {
        *self.prices.read()
    }

    fn note_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Cost of a minute with all destinations of the account that forward now.
    fn rate_of(&self, account: AccountId) -> Msat {
        let meters: Vec<_> = self.meters.lock().values().cloned().collect();
        let own = meters.iter().filter(|meter| meter.account() == account);
        Msat(own.fold(0, |sum, meter| sum.saturating_add(meter.rate().0)))
    }

    fn forget(&self, session: &SessionId) {
        self.meters.lock().remove(session);
    }

    /// The account was charged, or needs `more` a minute. No meter may be locked.
    fn has_spent(&self, account: AccountId, more: Msat) {
        if let Some(refills) = self.refills.get() {
            refills.look_at(account, Msat(self.rate_of(account).0.saturating_add(more.0)));
        }
    }

    /// Why the balance does not allow a stream of the account to be published.
    async fn wants_money(
        &self,
        stream: &StreamRecord,
        prices: Prices,
    ) -> satcast_store::Result<Option<Want>> {
        if self.store.is_starved(stream.id).await? {
            return Ok(Some(Want::Starved));
        }
        let too_little =
            prices.minute.free == 0 && self.store.balance(stream.account_id).await? < prices.minute.price;
        Ok(too_little.then_some(Want::TooLittle))
    }
}

/// Reason why a stream may not be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    /// Its last session ended for insufficient funds, and the account has received no credit since.
    Starved,
    /// The balance does not cover even one destination.
    TooLittle,
}

#[async_trait]
impl Gate for Billing {
    fn terms(&self) -> Terms {
        self.inner.prices().map_or_else(Terms::default, |prices| prices.minute)
    }

    async fn admit(&self, stream: &StreamRecord) -> Result<(), String> {
        let Some(prices) = self.inner.prices() else { return Ok(()) };
        let mut want = self.inner.wants_money(stream, prices).await;
        let mut on_its_way = false;
        if let (Ok(Some(_)), Some(refills)) = (&want, self.inner.refills.get()) {
            let rate = Msat(self.inner.rate_of(stream.account_id).0.saturating_add(prices.minute.price.0));
            on_its_way = refills.refill(stream.account_id, rate).await == Refilled::OnItsWay;
            want = self.inner.wants_money(stream, prices).await;
        }
        match want {
            Ok(None) => Ok(()),
            Ok(Some(_)) if on_its_way => Err(REFILLING.into()),
            Ok(Some(Want::Starved)) => Err(STARVED.into()),
            Ok(Some(Want::TooLittle)) => Err(TOO_LITTLE.into()),
            Err(error) => {
                // The stream was read from the same database a moment ago, and every charge is refused anyway if the
                // balance is too small: a refusal here would only make an outage worse.
                tracing::error!(stream = %stream.id, %error, "the balance cannot be read; the stream is accepted without a check");
                Ok(())
            }
        }
    }

    async fn settle_earlier(&self, account: AccountId) {
        // A pass assigns bytes to the newest session of their destination.
        self.inner.bill_playback(Some(account)).await;
    }

    async fn begin(&self, session: Beginning) -> Arc<dyn Usage> {
        if self.inner.prices().is_none() {
            let (billing, account) = (self.inner.clone(), session.account);
            // The bytes of its last seconds go to the store before its final data is read.
            return Arc::new(Unmetered::settling(Arc::new(move || {
                let billing = billing.clone();
                Box::pin(async move { billing.bill_playback(Some(account)).await })
            })));
        }
        let balance = match self.inner.store.balance(session.account).await {
            Ok(balance) => Some(balance),
            Err(error) => {
                tracing::error!(%error, "the balance cannot be read; the first charge reads it");
                None
            }
        };
        let (id, account, price) = (session.session.clone(), session.account, session.terms.price);
        let meter = Arc::new(Meter::new(self.inner.clone(), session, balance));
        self.inner.meters.lock().insert(id, meter.clone());
        // The session calls this, so the lines of its meter are of its span.
        tokio::spawn(meter.clone().run().in_current_span());
        // A destination will need a slot.
        self.inner.has_spent(account, price);
        meter
    }
}
