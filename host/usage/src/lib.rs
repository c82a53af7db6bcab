//! The interface between live sessions and billing. A session reports its usage, obeys orders, and knows no prices. Billing
//! decides. `satcast-live` and `satcast-money` do not depend on each other.
//!
//! Reports never wait: the calls of [`Usage`] take a lock that is held only for a short time. Decisions come back as [`Orders`].
//! They always hold everything that is in force, so a session cannot miss one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use satcast_core::ids::{AccountId, DestinationId, EndReason, SessionId, StreamId};
use satcast_store::{Returning, StreamLimits, StreamRecord, Terms};

/// Why a destination may not run. The owner sees it as the error of the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// The session would exceed its budget.
    Budget,
    /// The balance of the account is too low.
    InsufficientFunds,
}

impl Held {
    pub fn as_str(self) -> &'static str {
        match self {
            Held::Budget => "budget",
            Held::InsufficientFunds => "insufficient_funds",
        }
    }
}

/// Orders to a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orders {
    /// The session must end, for this reason.
    pub end: Option<EndReason>,
    /// Destinations that may not run.
    pub held: BTreeMap<DestinationId, Held>,
}

/// A session that is starting.
#[derive(Clone, Debug)]
pub struct Beginning {
    pub session: SessionId,
    pub stream: StreamId,
    pub account: AccountId,
    /// Monotonic time of the first media; the time of `returning` if that is there.
    pub began: Duration,
    /// What it was before, if it goes on here.
    pub returning: Option<Returning>,
    /// Prices recorded with the session.
    pub terms: Terms,
    pub limits: StreamLimits,
}

/// Decides which streams and sessions may run.
#[async_trait]
pub trait Gate: Send + Sync {
    /// The prices for a session that starts now.
    fn terms(&self) -> Terms;

    /// Whether a stream may be published now.
    ///
    /// # Errors
    /// The reason of a refusal: one sentence for the user of the encoder.
    async fn admit(&self, stream: &StreamRecord) -> Result<(), String>;

    /// Called before a new session of the account is recorded. Resolves when all earlier usage is charged to the earlier
    /// sessions. The caller may stop waiting.
    async fn settle_earlier(&self, account: AccountId);

    /// A session starts, after it was recorded.
    async fn begin(&self, session: Beginning) -> Arc<dyn Usage>;
}

/// Usage reports of one session. Times are monotonic.
#[async_trait]
pub trait Usage: Send + Sync {
    fn orders(&self) -> watch::Receiver<Orders>;

    /// A destination is about to be opened. If it may not run, it is in [`Orders::held`] when this returns.
    fn claims(&self, destination: DestinationId);

    /// The destination forwards from `at` on.
    fn forwards(&self, destination: DestinationId, at: Duration);

    /// The destination does not forward from `at` on. It may forward again later.
    fn pauses(&self, destination: DestinationId, at: Duration);

    /// The destination takes no further part in the session.
    fn leaves(&self, destination: DestinationId, at: Duration);

    /// The encoder sends media, or stopped sending. While it does not send, no destination counts as forwarding.
    fn flows(&self, flows: bool, at: Duration);

    /// The limits of the stream changed.
    fn limits(&self, limits: StreamLimits);

    /// The session ends: there is no usage from `at` on.
    fn ends(&self, at: Duration);

    /// Resolves when all usage is settled. Call it after [`Usage::ends`].
    async fn settled(&self);
}

/// Work that a session waits for when it ends.
pub type Settle = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// Allows everything and counts nothing.
#[derive(Default)]
pub struct Unmetered {
    orders: watch::Sender<Orders>,
    settle: Option<Settle>,
}

impl Unmetered {
    /// The session waits for `settle` when it ends.
    pub fn settling(settle: Settle) -> Self {
        Self { settle: Some(settle), ..Self::default() }
    }
}

#[async_trait]
impl Gate for Unmetered {
    fn terms(&self) -> Terms {
        Terms::default()
    }

    async fn admit(&self, _: &StreamRecord) -> Result<(), String> {
        Ok(())
    }

    async fn settle_earlier(&self, _: AccountId) {}

    async fn begin(&self, _: Beginning) -> Arc<dyn Usage> {
        Arc::new(Unmetered::default())
    }
}

#[async_trait]
impl Usage for Unmetered {
    fn orders(&self) -> watch::Receiver<Orders> {
        self.orders.subscribe()
    }

    fn claims(&self, _: DestinationId) {}

    fn forwards(&self, _: DestinationId, _: Duration) {}

    fn pauses(&self, _: DestinationId, _: Duration) {}

    fn leaves(&self, _: DestinationId, _: Duration) {}

    fn flows(&self, _: bool, _: Duration) {}

    fn limits(&self, _: StreamLimits) {}

    fn ends(&self, _: Duration) {}

    async fn settled(&self) {
        if let Some(settle) = &self.settle {
            settle().await;
        }
    }
}
