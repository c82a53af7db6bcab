//! State shared by all handlers: the parts of the service, the rate limits, and the cache of public keys (so that polling pages hardly
//! load the database).

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use poem::Request;
use poem_openapi::Tags;
use tokio::sync::Semaphore;
use tracing::Instrument as _;

use crate::auth::uses::KeyUses;
use crate::auth::{self, Guesses};
use crate::base::{ApiError, RequestContext};
use crate::nodes::Nodes;
use crate::playback::{Owners as _, Playback};
use satcast_archive::Archive;
use satcast_core::clock::Clock;
use satcast_core::config::{Config, Current, IngestAddresses};
use satcast_core::ids::{AccountId, KeyId, LoginId, UnixMillis};
use satcast_core::networks::Network;
use satcast_core::rate::RateLimiter;
use satcast_drivers::Drivers;
use satcast_live::Live;
use satcast_live::ingest::{self, Whip};
use satcast_money::billing::Billing;
use satcast_money::wallet::topups::TopUps;
use satcast_net::acme::Ports;
use satcast_net::http;
use satcast_net::outbound::Guard;
use satcast_quota::Quota;
use satcast_store::{Caps, PlaybackRecord, Store, StoreError};
use satcast_webhooks::Webhooks;

/// The version of this release.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// State shared by all handlers.
pub struct App {
    pub store: Store,
    pub live: Live,
    /// Costs of the live sessions.
    pub billing: Billing,
    /// HLS playback.
    pub playback: Arc<Playback>,
    /// Recordings, as drivers report them.
    pub archive: Archive,
    pub drivers: Drivers,
    /// Checks addresses that users give.
    pub guard: Guard,
    /// Top-ups and refills.
    pub wallets: TopUps,
    /// The other nodes; `None` for a service that is alone.
    pub nodes: Option<Arc<Nodes>>,
    pub webhooks: Webhooks,
    /// Certificates of the ports.
    pub ports: Ports,
    pub clock: Clock,
    /// Replaced by a reload; see [`App::config`].
    pub current: Current,
    /// The service is shutting down: it serves what runs, and is not ready for more.
    pub stopping: AtomicBool,
    /// The servers for encoders.
    pub ingest: IngestAddresses,
    /// Offers of WHIP go there; `None` when it is off.
    pub whip: Option<Whip>,
    pub limits: Limits,
    /// Cache of public keys.
    pub known: KnownKeys,
    /// Key uses that are not written yet.
    pub key_uses: Arc<KeyUses>,
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").finish_non_exhaustive()
    }
}

/// The rate limits of the API.
#[derive(Debug)]
pub struct Limits {
    /// Management requests that read, per key or login session.
    pub reads: RateLimiter<Subject>,
    /// Management requests that write, per key or login session.
    pub writes: RateLimiter<Subject>,
    /// Requests for the stream status, per key.
    pub status: RateLimiter<KeyId>,
    /// Requests for the active cost, per key or login session.
    pub cost: RateLimiter<Subject>,
    /// Recoveries of recordings, per key or login session.
    pub recoveries: RateLimiter<Subject>,
    /// API keys created and replaced, per account: a new key starts with fresh limits of its own.
    pub new_keys: RateLimiter<AccountId>,
    /// Attempts to log in and to create accounts, per address.
    pub logins: RateLimiter<Network>,
    /// Failed logins.
    pub guesses: Guesses,
    /// Concurrent password hashes: each takes 19 MiB and tens of milliseconds of a core.
    pub hashing: Arc<Semaphore>,
    /// Concurrent store tests, in total and per account; each takes a few seconds at most.
    pub store_checks: Quota<AccountId>,
    /// Concurrent uploads of slates, in total and per account; each takes at most 16 MiB of memory.
    pub uploads: Quota<AccountId>,
    /// Requests with an invalid key, per address; shared with playback.
    pub invalid_keys: Arc<RateLimiter<Network>>,
    /// Tests of webhooks, per key.
    pub webhook_tests: RateLimiter<Subject>,
    /// Top-up requests, per account: each creates an invoice at the service's wallet.
    pub topups: RateLimiter<AccountId>,
    /// Wallet connections, per account: each reads the wallet's balance and may start a refill.
    pub connections: RateLimiter<AccountId>,
    /// Requests for the public configuration, per address.
    pub config: RateLimiter<Network>,
    /// Concurrent encoder connections from one network; shown by the API, enforced by the port.
    pub ingest_connections_per_network: usize,
    /// Concurrent HTTP connections from one network; shown by the API, enforced by the port.
    pub http_connections_per_network: usize,
}

/// Longest wait for a password hashing permit.
pub(super) const HASHING_WAIT: Duration = Duration::from_secs(3);
/// Concurrent password hashes.
const HASHES_AT_ONCE_MAX: usize = 2;
/// Longest wait for a store test permit.
pub(super) const STORE_CHECK_WAIT: Duration = Duration::from_secs(10);
/// Concurrent store tests.
const STORE_CHECKS_AT_ONCE_MAX: u64 = 16;
/// Concurrent store tests of one account.
const STORE_CHECKS_OF_ACCOUNT_MAX: u64 = 4;
/// Concurrent uploads.
const UPLOADS_AT_ONCE_MAX: u64 = 8;
/// Concurrent uploads of one account.
const UPLOADS_OF_ACCOUNT_MAX: u64 = 2;

impl Default for Limits {
    fn default() -> Self {
        Self {
            reads: RateLimiter::new(auth::RATE_READS),
            writes: RateLimiter::new(auth::RATE_WRITES),
            status: RateLimiter::new(auth::RATE_STATUS),
            cost: RateLimiter::new(auth::RATE_COST),
            recoveries: RateLimiter::new(auth::RATE_RECOVERIES),
            new_keys: RateLimiter::new(auth::RATE_NEW_KEYS),
            logins: RateLimiter::new(auth::RATE_LOGINS),
            guesses: Guesses::default(),
            hashing: Arc::new(Semaphore::new(HASHES_AT_ONCE_MAX)),
            store_checks: Quota::new(STORE_CHECKS_AT_ONCE_MAX, STORE_CHECKS_OF_ACCOUNT_MAX),
            uploads: Quota::new(UPLOADS_AT_ONCE_MAX, UPLOADS_OF_ACCOUNT_MAX),
            invalid_keys: Arc::new(RateLimiter::new(auth::RATE_INVALID_KEYS)),
            webhook_tests: RateLimiter::new(auth::RATE_WEBHOOK_TESTS),
            topups: RateLimiter::new(auth::RATE_TOPUPS),
            connections: RateLimiter::new(auth::RATE_CONNECTIONS),
            config: RateLimiter::new(auth::RATE_CONFIG),
            ingest_connections_per_network: ingest::CONNECTIONS_PER_NETWORK_MAX,
            http_connections_per_network: http::CONNECTIONS_PER_NETWORK_MAX,
        }
    }
}

impl Limits {
    /// The default limits, with these connection limits of the ports.
    pub fn beside(http_connections_per_network: usize, ingest_connections_per_network: usize) -> Self {
        Self { http_connections_per_network, ingest_connections_per_network, ..Self::default() }
    }
}

impl App {
    /// The configuration in use.
    pub fn config(&self) -> Arc<Config> {
        self.current.get()
    }

    pub fn caps(&self) -> Caps {
        let config = self.config();
        let limits = &config.limits;
        Caps {
            destinations_per_stream: limits.destinations_per_stream,
            streams_per_account: limits.streams_per_account,
            keys_per_account: limits.keys_per_account,
        }
    }

    /// The playback URL of a self-hosted destination, without a key.
    pub fn playback_url(&self, path: &str) -> String {
        format!("{}/hls/{path}/index.m3u8", self.config().public_base())
    }

    /// Counts a request of `subject`: over all nodes if there are several, otherwise in `limiter`. A request of another node was
    /// counted there, for its caller.
    ///
    /// # Errors
    /// 429 over the limit.
    pub(super) async fn count<S>(
        &self,
        context: &RequestContext,
        request: &Request,
        limiter: &RateLimiter<S>,
        subject: S,
    ) -> Result<(), ApiError>
    where
        S: Clone + Eq + Hash + fmt::Display,
    {
        let everywhere = match &self.nodes {
            None => None,
            Some(nodes) if nodes.admits(request.headers()) => return Ok(()),
            Some(nodes) => nodes.hit(limiter.rule(), subject.to_string()).await,
        };
        context.count(everywhere.unwrap_or_else(|| limiter.hit(subject, self.clock.monotonic())))
    }

    /// Runs a write and its follow-up work to completion, even if the client disconnects.
    ///
    /// # Errors
    /// Those of `work`; a panic in it is an internal error.
    pub async fn to_the_end<T, W>(work: W) -> Result<T, ApiError>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, ApiError>> + Send + 'static,
    {
        match tokio::spawn(work.in_current_span()).await {
            Ok(result) => result,
            Err(error) => {
                tracing::error!(%error, "the work of a request ended early");
                Err(ApiError::internal())
            }
        }
    }
}

/// Groups of operations in the document.
#[derive(Tags)]
pub(super) enum Tag {
    /// Stream keys, with which encoders publish.
    Streams,
    /// Places that a stream is forwarded to.
    Destinations,
    /// Accounts: login, sessions, audit log and events.
    Accounts,
    /// API keys.
    Keys,
    /// HTTPS endpoints that receive events.
    Webhooks,
    /// Credit, top-ups, and the connected wallet that refills the credit.
    Wallet,
    /// Recordings in the cloud archive.
    Archives,
    /// Bandwidth, minutes and costs of earlier sessions.
    Analytics,
    /// Read-only operations for websites and players.
    Public,
}

/// The key or session that rate limits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A permanent key.
    Key(KeyId),
    /// A login session.
    Login(LoginId),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Key(key) => write!(f, "key-{key}"),
            Subject::Login(login) => write!(f, "login-{login}"),
        }
    }
}

/// How long an answer of the store is used. A change by this process invalidates it at once; a change by another process, such
/// as a command, is seen after this time.
pub(super) const FRESH: Duration = Duration::from_secs(5);
/// Answers kept; when there are more, all are dropped.
pub(super) const ANSWERS_MAX: usize = 65_536;

/// A public key and its destination.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) key: KeyId,
    pub(super) destination: PlaybackRecord,
    /// The status while the stream is offline, and the clock hour that it was made in.
    pub(super) offline: OnceLock<(UnixMillis, Bytes)>,
}

#[derive(Debug)]
struct Answer {
    known: Arc<Known>,
    said_at: Duration,
    /// Generation of the store before the query.
    generation: u64,
}

/// Cache of the store's answers about public keys.
#[derive(Debug, Default)]
pub struct KnownKeys {
    answers: Mutex<HashMap<[u8; 32], Answer>>,
}

impl KnownKeys {
    /// The public key with this SHA-256. Unknown keys are not cached.
    ///
    /// # Errors
    /// The store failed.
    pub(super) async fn find(
        &self,
        store: &Store,
        clock: &Clock,
        hash: [u8; 32],
    ) -> Result<Option<Arc<Known>>, StoreError> {
        // Read before the query, so that a change in between makes the answer outdated.
        let (generation, now) = (store.generation(), clock.monotonic());
        let is_fresh = |answer: &&Answer| answer.generation == generation && now < answer.said_at + FRESH;
        if let Some(answer) = self.answers.lock().get(&hash).filter(is_fresh) {
            return Ok(Some(answer.known.clone()));
        }
        let Some((key, destination)) = store.playback_by_key_hash(&hash).await? else {
            self.answers.lock().remove(&hash);
            return Ok(None);
        };
        let known = Arc::new(Known { key, destination, offline: OnceLock::new() });
        let mut answers = self.answers.lock();
        if answers.len() >= ANSWERS_MAX {
            answers.clear();
        }
        answers.insert(hash, Answer { known: known.clone(), said_at: now, generation });
        Ok(Some(known))
    }
}
