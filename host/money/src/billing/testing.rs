//! For tests, of other crates too: an account with a stream, a manual clock, and simulated sessions.
#![allow(clippy::unwrap_used)] // A failed step is a failed test.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tempfile::TempDir;

use super::Billing;
use satcast_core::clock::Clock;
use satcast_core::config::{Config, Durability, Flags};
use satcast_core::ids::{AccountId, DestinationId, EndReason, Msat, Sats, SessionId, StreamId, UnixMillis};
use satcast_core::secret::{Vault, new_session_id, new_stream_key};
use satcast_store::testing::Intruder;
use satcast_store::{
    self, Actor, Caps, NewAccount, NewDestination, NewSession, NewStream, OpenOptions, Origin, Page, Store,
    StreamLimits, StreamRecord,
};
use satcast_usage::{Beginning, Gate as _, Held, Orders, Usage};

/// More than any test has.
pub const CAPS: Caps = Caps { destinations_per_stream: 50, streams_per_account: 1000, keys_per_account: 100 };
/// Start of an hour.
pub const START: UnixMillis = UnixMillis(1_800_000_000_000);
/// Polls of a condition, some milliseconds apart, before a test fails.
pub const TRIES_MAX: usize = 12_000;

impl Billing {
    /// Whether every change of the session is posted.
    pub fn is_settled(&self, session: &SessionId) -> bool {
        let meter = self.inner.meters.lock().get(session).cloned();
        meter.is_none_or(|meter| meter.is_settled())
    }
}

/// One account with a stream, and a manual clock.
pub struct Rig {
    /// On the engine that the tests run on.
    pub store: Store,
    /// At the prices of `config`.
    pub billing: Billing,
    /// The manual clock.
    pub clock: Clock,
    /// The configuration of the test.
    pub config: Config,
    /// The owner of the stream.
    pub account: AccountId,
    pub stream: StreamId,
    /// In the order in which they were created.
    pub destinations: Vec<DestinationId>,
    /// Address of the database.
    pub folder: TempDir,
}

impl Rig {
    /// An account with so many sats and a stream with five destinations.
    pub async fn new(sats: i64) -> Self {
        Self::with(sats, "", "live", 5).await
    }

    /// The same with a configuration, and so many destinations whose driver runs in `mode`.
    pub async fn with(sats: i64, toml: &str, mode: &str, destinations: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("satcast.toml");
        std::fs::write(&file, toml).unwrap();
        let config = Config::load(Some(&file), [], &Flags::default()).unwrap().config;
        let url = satcast_store::testing::url(&folder.path().join("t.db")).await;
        let vault = Vault::new(&[7; 32]);
        let low_balance = Msat(20_000);
        let options = OpenOptions { url, durability: Durability::Normal, vault, low_balance };
        let store = satcast_store::open(options).await.unwrap();
        let clock = Clock::manual(START);
        // Minutes of a session and of the clock begin at different times.
        clock.advance(Duration::from_millis(7_654));
        let new = NewAccount {
            name: "a".into(),
            password_hash: None,
            operator: false,
            initial_credit: Sats(sats).to_msat().unwrap(),
        };
        let account = store.create_account(&Origin::command(START), new).await.unwrap();
        let billing = Billing::new(store.clone(), clock.clone(), &config);
        let (stream, destinations) = stream(&store, account, mode, destinations).await;
        Self { store, billing, clock, config, account, stream, destinations, folder }
    }

    /// The stored stream.
    pub async fn record(&self) -> StreamRecord {
        self.store.stream(self.stream).await.unwrap().unwrap()
    }

    /// A session of the stream, with media.
    pub async fn begin(&self, max_sats: Option<i64>) -> Session<'_> {
        self.begin_of(self.stream, StreamLimits { max_sats, max_duration_minutes: None }).await
    }

    /// The same of another stream of the account.
    pub async fn begin_of(&self, stream: StreamId, limits: StreamLimits) -> Session<'_> {
        let (id, began) = (new_session_id(), self.clock.monotonic());
        let terms = self.billing.terms();
        let new = NewSession { id: id.clone(), stream_id: stream, started_at: self.clock.now(), terms };
        self.store.begin_session(new).await.unwrap();
        let beginning = Beginning {
            session: id.clone(),
            stream,
            account: self.account,
            began,
            returning: None,
            terms,
            limits,
        };
        let usage = self.billing.begin(beginning).await;
        usage.flows(true, began);
        Session { rig: self, id, usage, began }
    }

    /// The balance in millisats.
    pub async fn balance(&self) -> i64 {
        self.store.balance(self.account).await.unwrap().0
    }

    /// Gives the account so many sats.
    pub async fn credit(&self, sats: i64) {
        let idem = format!("credit:{}", self.clock.monotonic().as_nanos());
        self.store.credit(&Actor::command(self.account, self.clock.now()), Sats(sats), idem).await.unwrap();
    }

    /// Writes to the database that bypass the store.
    pub async fn intruder(&self) -> Intruder {
        Intruder::open(&self.folder.path().join("t.db")).await
    }

    /// Checks the ledger.
    pub async fn check(&self) {
        let file = self.folder.path().join("t.db");
        let inspector = satcast_store::testing::inspector(&file).await;
        let report = inspector.check_ledger().await.unwrap();
        inspector.close().await;
        assert_eq!(report.faults, [], "{report:?}");
    }

    /// Cost of each destination of an ended session in whole sats, in the order of the destinations.
    pub async fn history(&self, session: &SessionId) -> Vec<i64> {
        let entries = self.store.history(self.account, Default::default(), Page::ALL).await.unwrap();
        let mut own: Vec<_> = entries.iter().filter(|entry| entry.session_id == *session).collect();
        own.sort_by_key(|entry| entry.id);
        own.iter().map(|entry| entry.cost.to_sats_floor().0).collect()
    }
}

/// A stream with so many destinations, whose driver runs in `mode`.
pub async fn stream(
    store: &Store,
    account: AccountId,
    mode: &str,
    count: usize,
) -> (StreamId, Vec<DestinationId>) {
    let config = serde_json::json!({ "mode": mode });
    let kind = if mode == "show" { "shown" } else { "script" };
    let one = NewDestination {
        kind: kind.into(),
        platform: "script".into(),
        config,
        has_playback: false,
        delays: Default::default(),
    };
    let new = NewStream {
        srt_passphrase: None,
        allowed: Default::default(),
        label: "test".into(),
        stream_key: new_stream_key(),
        destinations: vec![one; count],
        caps: CAPS,
    };
    store.create_stream(&Actor::command(account, START), new).await.unwrap()
}

/// A session whose media and destinations are simulated.
pub struct Session<'a> {
    /// The account of the session.
    pub rig: &'a Rig,
    pub id: SessionId,
    /// The calls that the session makes.
    pub usage: Arc<dyn Usage>,
    /// Monotonic time of its start.
    pub began: Duration,
}

impl Session<'_> {
    /// Moves the clock to so many seconds after the start, unless it is later, and waits until all is posted.
    pub async fn at(&self, secs: u64) {
        let at = self.began + Duration::from_secs(secs);
        self.rig.clock.advance(at.saturating_sub(self.rig.clock.monotonic()));
        self.wait_settled().await;
    }

    /// Waits until all is posted.
    pub async fn wait_settled(&self) {
        for _ in 0..TRIES_MAX {
            if self.rig.billing.is_settled(&self.id) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("charges wait for ever");
    }

    /// Monotonic time.
    pub fn now(&self) -> Duration {
        self.rig.clock.monotonic()
    }

    /// A destination is opened and goes live.
    pub async fn on(&self, index: usize) {
        let destination = self.rig.destinations[index];
        self.usage.claims(destination);
        if self.held(index).is_none() {
            self.usage.forwards(destination, self.now());
        }
        self.wait_settled().await;
    }

    /// A destination no longer forwards.
    pub async fn off(&self, index: usize) {
        self.usage.pauses(self.rig.destinations[index], self.now());
        self.wait_settled().await;
    }

    /// The orders to the session.
    pub fn orders(&self) -> Orders {
        self.usage.orders().borrow().clone()
    }

    /// Why a destination is held.
    pub fn held(&self, index: usize) -> Option<Held> {
        self.orders().held.get(&self.rig.destinations[index]).copied()
    }

    /// Why the session has to end.
    pub fn end(&self) -> Option<EndReason> {
        self.orders().end
    }

    /// Millisats charged so far.
    pub async fn msat(&self) -> i64 {
        self.rig.store.session_charges(&self.id).await.unwrap().0
    }

    /// Whole sats charged so far.
    pub async fn sats(&self) -> i64 {
        Msat(self.msat().await).to_sats_floor().0
    }

    /// Ends the session as its task does.
    pub async fn finish(&self) {
        self.usage.ends(self.now());
        self.usage.settled().await;
        self.rig.store.end_session(&self.id, self.rig.clock.now(), EndReason::Stopped).await.unwrap();
    }
}

/// Polls a future so many times at most, and then drops it: a crash between any two of its steps.
pub async fn chopped<T>(future: impl Future<Output = T>, polls: u64) -> Option<T> {
    let (mut future, mut left) = (pin!(future), polls);
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}
