//! What every handler works with: the parts of the service, the rate limits, who asks.

use std::sync::Arc;
use std::time::Duration;

use poem_openapi::Tags;
use tokio::sync::Semaphore;

use super::known::{KeyUses, KnownKeys};
use crate::auth::{self, Guesses};
use crate::base::ApiError;
use crate::playback::Playback;
use satcast_archive::Archive;
use satcast_core::clock::Clock;
use satcast_core::config::Config;
use satcast_core::ids::{AccountId, KeyId, LoginId};
use satcast_core::networks::Network;
use satcast_core::rate::{RateLimiter, RateRule};
use satcast_drivers::Drivers;
use satcast_live::Live;
use satcast_live::ingest;
use satcast_money::billing::Billing;
use satcast_money::wallet::desk::Desk;
use satcast_net::http;
use satcast_net::outbound::Guard;
use satcast_quota::Quota;
use satcast_store::{Caps, Store};
use satcast_webhooks::Webhooks;

/// The version of this release.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What every handler works with.
pub struct App {
    /// The database.
    pub store: Store,
    /// The live sessions.
    pub live: Live,
    /// What they cost.
    pub billing: Billing,
    /// What viewers are given.
    pub playback: Arc<Playback>,
    /// The account of recordings.
    pub archive: Archive,
    /// The loaded drivers.
    pub drivers: Drivers,
    /// The address guard.
    pub guard: Guard,
    /// Where credit is bought.
    pub wallets: Desk,
    /// The sending side of webhooks.
    pub webhooks: Webhooks,
    /// The time.
    pub clock: Clock,
    /// The configuration.
    pub config: Arc<Config>,
    /// Requests counted so far.
    pub limits: Limits,
    /// Public keys that were asked for a moment ago.
    pub known: KnownKeys,
    /// Uses of keys that are not written yet.
    pub key_uses: Arc<KeyUses>,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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
    /// API keys made and replaced, per account: a new key begins with fresh limits of its own.
    pub new_keys: RateLimiter<AccountId>,
    /// Tries to log in and to make accounts, per address.
    pub logins: RateLimiter<Network>,
    /// Tries to log in that failed.
    pub guesses: Guesses,
    /// Passwords hashed at one time: each takes 19 MiB and tens of milliseconds of a core.
    pub hashing: Arc<Semaphore>,
    /// Stores asked at one time whether they can be used, per account; each takes a few seconds at most.
    pub store_checks: Quota<AccountId>,
    /// Requests with an invalid key, per address; counted by playback too.
    pub invalid_keys: Arc<RateLimiter<Network>>,
    /// Tests of webhooks, per key.
    pub webhook_tests: RateLimiter<Subject>,
    /// Top-ups asked for, per account: each is an invoice of the service's wallet.
    pub topups: RateLimiter<AccountId>,
    /// Wallets connected, per account: each is asked what it holds, and may be refilled from at once.
    pub connections: RateLimiter<AccountId>,
    /// Requests for the public configuration, per address.
    pub config: RateLimiter<Network>,
    /// Connections of encoders at once from one network; told, and kept by the port.
    pub ingest_connections_per_network: usize,
    /// HTTP connections at once from one network; told, and kept by the port.
    pub http_connections_per_network: usize,
}

/// Longest wait for one's turn at hashing.
pub(super) const HASHING_WAIT: Duration = Duration::from_secs(3);
/// Passwords hashed at one time.
const HASHES_AT_ONCE_MAX: usize = 2;
/// Longest wait until a store is asked.
pub(super) const STORE_CHECK_WAIT: Duration = Duration::from_secs(10);
/// Stores asked at one time.
const STORE_CHECKS_AT_ONCE_MAX: u64 = 16;
/// Stores asked at one time for one account.
const STORE_CHECKS_OF_ACCOUNT_MAX: u64 = 4;
/// Tests of webhooks, per key.
const RATE_WEBHOOK_TESTS: RateRule = RateRule::per_minute("webhook-tests", 10);
/// Requests for `/api/public/config`, per address.
const RATE_CONFIG: RateRule = RateRule::per_minute("config", 60);
/// Requests for `/api/public/stream/status`, per key.
pub(super) const RATE_STATUS: RateRule = RateRule::per_minute("status", 60);
/// Requests for `/api/public/streams/active/cost`, per key.
const RATE_COST: RateRule = RateRule::per_minute("cost", 60);
/// Requests for `/api/archives/recover-pay`, per key or login session.
const RATE_RECOVERIES: RateRule = RateRule::per_minute("recover", 10);
/// Requests for `/api/wallet/topup`, per account.
const RATE_TOPUPS: RateRule = RateRule::per_minute("topups", 10);
/// Wallets connected, per account.
const RATE_CONNECTIONS: RateRule = RateRule::per_minute("connections", 10);
/// API keys made and replaced, per account.
const RATE_NEW_KEYS: RateRule = RateRule::per_minute("new-keys", 300);

impl Default for Limits {
    fn default() -> Self {
        Self {
            reads: RateLimiter::new(auth::RATE_READS),
            writes: RateLimiter::new(auth::RATE_WRITES),
            status: RateLimiter::new(RATE_STATUS),
            cost: RateLimiter::new(RATE_COST),
            recoveries: RateLimiter::new(RATE_RECOVERIES),
            new_keys: RateLimiter::new(RATE_NEW_KEYS),
            logins: RateLimiter::new(auth::RATE_LOGINS),
            guesses: Guesses::default(),
            hashing: Arc::new(Semaphore::new(HASHES_AT_ONCE_MAX)),
            store_checks: Quota::new(STORE_CHECKS_AT_ONCE_MAX, STORE_CHECKS_OF_ACCOUNT_MAX),
            invalid_keys: Arc::new(RateLimiter::new(auth::RATE_INVALID_KEYS)),
            webhook_tests: RateLimiter::new(RATE_WEBHOOK_TESTS),
            topups: RateLimiter::new(RATE_TOPUPS),
            connections: RateLimiter::new(RATE_CONNECTIONS),
            config: RateLimiter::new(RATE_CONFIG),
            ingest_connections_per_network: ingest::CONNECTIONS_PER_NETWORK_MAX,
            http_connections_per_network: http::CONNECTIONS_PER_NETWORK_MAX,
        }
    }
}

impl Limits {
    /// Those of a service whose ports take so many connections from one network.
    pub fn beside(http_connections_per_network: usize, ingest_connections_per_network: usize) -> Self {
        Self { http_connections_per_network, ingest_connections_per_network, ..Self::default() }
    }
}

impl App {
    /// The caps of the configuration.
    pub fn caps(&self) -> Caps {
        let limits = &self.config.limits;
        Caps {
            destinations_per_stream: limits.destinations_per_stream,
            streams_per_account: limits.streams_per_account,
            keys_per_account: limits.keys_per_account,
        }
    }

    /// The playback URL of a self-hosted destination, without a key.
    pub fn playback_url(&self, path: &str) -> String {
        format!("{}/hls/{path}/index.m3u8", self.config.public_base())
    }

    /// Runs a write and what follows from it to its end, even if the client goes away in between.
    ///
    /// # Errors
    /// Those of `work`; a panic in it is an internal error.
    pub async fn to_the_end<T, W>(work: W) -> Result<T, ApiError>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, ApiError>> + Send + 'static,
    {
        match tokio::spawn(work).await {
            Ok(result) => result,
            Err(error) => {
                tracing::error!(%error, "a request's work ended early");
                Err(ApiError::internal())
            }
        }
    }
}

/// Groups of operations in the document.
#[derive(Tags)]
pub(super) enum Tag {
    /// Stream keys: what encoders publish with.
    Streams,
    /// Where a stream is forwarded to.
    Destinations,
    /// People: login and sessions.
    Accounts,
    /// API keys.
    Keys,
    /// Addresses that are told of events.
    Webhooks,
    /// Credit, the wallet that refills it, and invoices that buy it.
    Wallet,
    /// Recordings in the cloud archive.
    Archives,
    /// Bytes, minutes and sats of the past.
    Analytics,
    /// Read without managing.
    Public,
}

/// Who asks, for limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A permanent key.
    Key(KeyId),
    /// Somebody who logged in.
    Login(LoginId),
}
