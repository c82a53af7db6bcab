//! Where live sessions meet billing: a session says what it uses and obeys orders, and knows no prices; billing decides, and knows
//! nothing else of sessions. `satcast-live` and `satcast-money` do not know each other.
//!
//! All that a session tells is told without waiting: the calls of [`Usage`] take a lock that nobody holds for long. What was
//! decided comes back as [`Orders`], which always hold all that is in force, so that none can be missed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use satcast_core::ids::{AccountId, DestinationId, EndReason, SessionId, StreamId};
use satcast_store::{StreamLimits, StreamRecord, Terms};

/// Why a destination may not run; the text its owner sees as its error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// The session would cost more than its owner allows.
    Budget,
    /// The account has too little.
    InsufficientFunds,
}

impl Held {
    /// The name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Held::Budget => "budget",
            Held::InsufficientFunds => "insufficient_funds",
        }
    }
}

/// What a session has to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orders {
    /// End, for this reason.
    pub end: Option<EndReason>,
    /// Destinations that may not run.
    pub held: BTreeMap<DestinationId, Held>,
}

/// A session that begins.
#[derive(Clone, Debug)]
pub struct Beginning {
    /// Its id.
    pub session: SessionId,
    /// The stream.
    pub stream: StreamId,
    /// Whose it is.
    pub account: AccountId,
    /// Monotonic time of its first media.
    pub began: Duration,
    /// The prices it was recorded with.
    pub terms: Terms,
    /// Its stream's limits.
    pub limits: StreamLimits,
}

/// Decides which streams and sessions may run.
#[async_trait]
pub trait Gate: Send + Sync {
    /// The prices for a session that begins now.
    fn terms(&self) -> Terms;

    /// Whether a stream may be published now.
    ///
    /// # Errors
    /// Why not: one sentence for the person at the encoder.
    async fn admit(&self, stream: &StreamRecord) -> Result<(), String>;

    /// A session of the account is about to be recorded. What was used until now belongs to those before it; resolves when
    /// that is noted. Whoever waits for it may give up.
    async fn settle_past(&self, account: AccountId);

    /// A session begins; it was recorded.
    async fn begin(&self, session: Beginning) -> Arc<dyn Usage>;
}

/// What one session tells of itself. Times are those of the monotonic clock.
#[async_trait]
pub trait Usage: Send + Sync {
    /// What the session has to do.
    fn orders(&self) -> watch::Receiver<Orders>;

    /// A destination is about to be opened. If it may not, it is among the held when this returns.
    fn claims(&self, destination: DestinationId);

    /// A destination forwards from `at` on.
    fn forwards(&self, destination: DestinationId, at: Duration);

    /// A destination does not forward from `at` on; it may be opened again.
    fn rests(&self, destination: DestinationId, at: Duration);

    /// A destination takes no further part.
    fn leaves(&self, destination: DestinationId, at: Duration);

    /// Media comes from the encoder, or no longer does: then no destination forwards, whatever it said.
    fn flows(&self, flows: bool, at: Duration);

    /// The stream's limits are others now.
    fn limits(&self, limits: StreamLimits);

    /// The session ends: nothing is used from `at` on.
    fn ends(&self, at: Duration);

    /// Resolves when all that was used is settled; to be called after [`Usage::ends`].
    async fn settled(&self);
}

/// What a session waits for when it ends.
pub type Settle = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// Everything is allowed and nothing is counted.
#[derive(Default)]
pub struct Unmetered {
    orders: watch::Sender<Orders>,
    settle: Option<Settle>,
}

impl Unmetered {
    /// As the default, for a session that waits for `settle` when it ends.
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

    async fn settle_past(&self, _: AccountId) {}

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

    fn rests(&self, _: DestinationId, _: Duration) {}

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
