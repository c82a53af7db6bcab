//! Webhooks from the event to the receiver, on a real store and real sockets.

mod claims;
mod events;
mod failures;
mod receiver;
mod targets;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio_rustls::rustls::RootCertStore;

use self::receiver::Receiver;
use super::target::{SETTING, Targets};
use super::{Sender, Webhooks};
use satcast_core::clock::Clock;
use satcast_core::config::Durability;
use satcast_core::ids::{AccountId, EndReason, Msat, SessionId, StreamId, UnixMillis, WebhookId};
use satcast_core::secret::{Redacted, Vault, new_session_id, new_stream_key};
use satcast_net::outbound::Guard;
use satcast_store::testing::Intruder;
use satcast_store::{
    self, Actor, Caps, DeliveryState, DeliveryView, EventType, NewAccount, NewSession, NewStream, NewWebhook,
    OpenOptions, Origin, Page, Store, Terms, WebhookView,
};

const START: UnixMillis = UnixMillis(1_800_000_000_000);
/// For receivers that do not answer; everything in these tests is local.
const LIMIT: Duration = Duration::from_millis(400);
const BOTH: &[EventType] = &[EventType::StreamStarted, EventType::StreamEnded];

struct Rig {
    store: Store,
    clock: Clock,
    webhooks: Webhooks,
    account: AccountId,
    stream: StreamId,
    folder: TempDir,
}

fn guard(allow: &[&str]) -> Guard {
    let allow: Vec<String> = allow.iter().map(|entry| (*entry).to_owned()).collect();
    Guard::with_setting(&allow, SETTING).unwrap()
}

impl Rig {
    /// Local receivers are allowed.
    async fn new() -> Self {
        Self::with_limit(LIMIT).await
    }

    /// The same with another limit for one attempt.
    async fn with_limit(limit: Duration) -> Self {
        let sender = Sender::with_roots(Targets::with_guard(guard(&["127.0.0.0/8"])), RootCertStore::empty());
        Self::with_sender(sender.unwrap().with_limit(limit)).await
    }

    async fn with_sender(sender: Sender) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = satcast_store::testing::url(&folder.path().join("t.db")).await;
        let vault = Vault::new(&[7; 32]);
        let store = satcast_store::open(OpenOptions {
            url,
            durability: Durability::Normal,
            vault,
            low_balance: Msat(0),
        })
        .await
        .unwrap();
        let clock = Clock::manual(START);
        let webhooks = Webhooks::new(store.clone(), sender, clock.clone());
        let new = NewAccount {
            name: "owner".into(),
            password_hash: None,
            operator: false,
            initial_credit: Msat(0),
        };
        let account = store.create_account(&Origin::command(START), new).await.unwrap();
        let mut rig = Self { store, clock, webhooks, account, stream: StreamId(0), folder };
        rig.stream = rig.stream_of(account, "gala").await;
        rig
    }

    async fn stream_of(&self, account: AccountId, label: &str) -> StreamId {
        let caps = Caps { destinations_per_stream: 9, streams_per_account: 9, keys_per_account: 9 };
        let new = NewStream {
            srt_passphrase: None,
            allowed: Default::default(),
            label: label.into(),
            stream_key: new_stream_key(),
            destinations: Vec::new(),
            caps,
        };
        self.store.create_stream(&Actor::command(account, START), new).await.unwrap().0
    }

    /// The owner, now.
    fn actor(&self) -> Actor {
        Actor::command(self.account, self.clock.now())
    }

    async fn webhook(&self, url: &str, events: &[EventType], secret: Option<&str>) -> WebhookId {
        self.webhook_of(self.account, None, url, events, secret).await
    }

    async fn webhook_of(
        &self,
        account: AccountId,
        stream_id: Option<StreamId>,
        url: &str,
        events: &[EventType],
        secret: Option<&str>,
    ) -> WebhookId {
        let host = url::Url::parse(url).unwrap().host_str().unwrap_or_default().to_owned();
        let new = NewWebhook {
            stream_id,
            url: Redacted::new(url.to_owned()),
            host,
            events: events.to_vec(),
            secret: secret.map(|secret| Redacted::new(secret.to_owned())),
            cap: 999,
        };
        self.store.create_webhook(&Actor::command(account, START), new).await.unwrap()
    }

    /// A webhook that subscribes to started streams only.
    async fn started_webhook(&self, receiver: &Receiver) -> WebhookId {
        self.webhook(&receiver.url(), &[EventType::StreamStarted], None).await
    }

    async fn begin(&self) -> SessionId {
        self.begin_of(self.stream).await
    }

    async fn begin_of(&self, stream_id: StreamId) -> SessionId {
        let id = new_session_id();
        let new =
            NewSession { id: id.clone(), stream_id, started_at: self.clock.now(), terms: Terms::default() };
        self.store.begin_session(new).await.unwrap();
        id
    }

    async fn end(&self, session: &SessionId) {
        self.store.end_session(session, self.clock.now(), EndReason::Stopped).await.unwrap();
    }

    /// Sends all due deliveries at once; returns their number.
    async fn round(&self) -> usize {
        let jobs = self.webhooks.claim(64).await.unwrap();
        let sent =
            futures_util::future::join_all(jobs.into_iter().map(|job| self.webhooks.deliver(job))).await;
        sent.into_iter().map(Result::unwrap).count()
    }

    /// Writes to the database that bypass the store.
    async fn intruder(&self) -> Intruder {
        Intruder::open(&self.folder.path().join("t.db")).await
    }

    /// Another account with a stream.
    async fn other(&self) -> (AccountId, StreamId) {
        let new = NewAccount {
            name: "other".into(),
            password_hash: None,
            operator: false,
            initial_credit: Msat(0),
        };
        let other = self.store.create_account(&Origin::command(START), new).await.unwrap();
        (other, self.stream_of(other, "elsewhere").await)
    }

    async fn log(&self, webhook: WebhookId) -> Vec<DeliveryView> {
        self.store.deliveries_of(self.account, webhook, None, Page::ALL).await.unwrap()
    }

    async fn states(&self, webhook: WebhookId) -> Vec<DeliveryState> {
        self.log(webhook).await.iter().map(|delivery| delivery.state).collect()
    }

    async fn view(&self, webhook: WebhookId) -> WebhookView {
        let views = self.store.webhooks_of(self.account, Page::ALL).await.unwrap();
        views.into_iter().find(|view| view.id == webhook).unwrap()
    }
}

fn json(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap()
}

/// Waits for `done`, a bounded time.
async fn until(mut done: impl AsyncFnMut() -> bool) {
    for _ in 0..1_000 {
        if done().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("timed out");
}

/// Shared with the tasks of a receiver.
type Shared<T> = Arc<parking_lot::Mutex<T>>;
