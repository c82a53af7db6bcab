//! Playback: HLS over HTTP for viewers of live destinations.
//!
//! `/hls/<path>/index.m3u8?apiKey=` is the entry; its playlist leads to `/hls/<path>/t/<token>/<asset>`. The newest keyframe is at
//! `/hls/<path>/poster.mp4`. The token ([`token`]) replaces key and session, so all other bodies are the same for every viewer.
//! Access is checked at the store at most once a second per key ([`access`]); assets are served as the opening of the live session
//! published them ([`serve`], [`body`]), and sent bytes are counted ([`meter`]). A segment costs a MAC, two look-ups and a reference:
//! no store query and no rendering.
//!
//! Recordings are below `/vod/` ([`recordings`]), with the same keys, headers and metering.
//!
//! A session or a recording at another node is relayed from there ([`relay`]); [`origin`] is the other side.

mod access;
mod body;
mod content;
mod edge;
mod entry;
mod follow;
mod headers;
mod latency;
mod meter;
mod origin;
mod recordings;
mod relay;
mod route;
mod serve;
#[cfg(test)]
mod tests;
mod token;
mod viewers;

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use ipnet::IpNet;
use poem::http::{HeaderMap, Method, StatusCode};
use poem::{Request, Response};
use tokio::time::MissedTickBehavior;
use tracing::{Instrument as _, Span};

pub use access::{ANSWERS_MAX, FRESH, KNOWN};
pub use body::{COUNTED_FRAME_BYTES_MAX, FRAME_BYTES_MAX, MEMORY_FRAME_BYTES_MAX, WAITING_READ_BYTES_MAX};
pub(crate) use headers::accepts_gzip;
pub use meter::{FLUSH_INTERVAL, HourUse};
pub use recordings::index::{INDEXES_MAX, SEGMENTS_MAX};
pub use recordings::poster::{POSTERS_BYTES_MAX, POSTERS_MAX};
pub(crate) use recordings::state::PREFIX as VOD_PREFIX;
pub use recordings::state::{
    READ_BYTES, RESPONSES_MAX as RECORDING_RESPONSES_MAX,
    RESPONSES_PER_ACCOUNT_MAX as RECORDING_RESPONSES_PER_ACCOUNT_MAX,
    RESPONSES_PER_NETWORK_MAX as RECORDING_RESPONSES_PER_NETWORK_MAX,
};
pub use relay::{
    Answered, COPIES_BYTES_MAX, COPIES_FILES_BYTES_MAX, COPIES_MAX, COPIES_PLAYLISTS_BYTES_MAX, Located,
    Owners, Peer,
};
pub use token::PlaybackSecret;
pub use viewers::{PLAYERS_MAX, PLAYERS_PER_NETWORK_MAX, SEEN};

pub(crate) use relay::{ACCOUNT_REQUESTS_MAX, FILES_PREFIX as NODE_VOD_PREFIX, PREFIX as NODE_PREFIX};

use crate::base::middleware::{describe, logged_path};
use crate::base::{ApiError, RequestContext};
use access::Accesses;
use headers::Readers;
use meter::Meter;
use recordings::state::Recordings;
use relay::Relay;
use satcast_core::clock::Clock;
use satcast_core::config::{ArchivePlayback, Config};
use satcast_core::ids::{AccountId, DestinationId};
use satcast_core::log_limit::LogLimit;
use satcast_core::networks::Network;
use satcast_core::rate::{RateLimiter, RateRule};
use satcast_core::secret::{Redacted, mask_key};
use satcast_core::trace;
use satcast_drivers::published::{CACHE_BYTES_MAX, Cache, Opening};
use satcast_live::{Live, SessionState};
use satcast_store::{Store, StoreError};
use token::{Grant, Mint};
use viewers::Viewers;

/// Requests with one preview token: all viewers and all paths together.
pub const RATE_PREVIEW: RateRule = RateRule::per_minute("preview", 60);

/// Path prefix of playback.
pub(crate) const PREFIX: &str = "/hls/";

/// Content and permissions of the player page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Admission {
    /// The destination of the player page.
    pub(crate) destination: DestinationId,
    /// Label of the stream.
    pub(crate) label: String,
    /// Origins whose pages may play; empty = all.
    pub(crate) origins: Vec<String>,
    /// Origins of the stores to which viewers of a recording are redirected.
    pub(crate) stores: Vec<String>,
    /// It is a clip, which has no playlist.
    pub(crate) is_clip: bool,
}

/// Playback of all destinations.
pub struct Playback {
    live: Live,
    clock: Clock,
    trusted_proxies: Vec<IpNet>,
    mint: Mint,
    accesses: Arc<Accesses>,
    meter: Arc<Meter>,
    /// Segments of the DVR windows and ranges of recordings that several viewers want.
    cache: Arc<Cache>,
    viewers: Viewers,
    previews: RateLimiter<[u8; token::MAC_BYTES]>,
    /// Shared with the API, so that guesses at both count together.
    invalid_keys: Arc<RateLimiter<Network>>,
    /// Content of sessions and recordings at other nodes; `None` for a service that is alone.
    relay: Option<Arc<Relay>>,
    recordings: Recordings,
    /// Limits log lines about unreadable files.
    unreadable: LogLimit,
}

impl std::fmt::Debug for Playback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Playback").finish_non_exhaustive()
    }
}

impl Playback {
    /// `invalid_keys` counts guesses by address; `owners` are the other nodes, if the service has some.
    pub fn new(
        store: Store,
        live: Live,
        clock: Clock,
        config: Arc<Config>,
        secret: &PlaybackSecret,
        invalid_keys: Arc<RateLimiter<Network>>,
        owners: Option<Arc<dyn Owners>>,
    ) -> Arc<Self> {
        let drivers = live.drivers().clone();
        let signs = config.archive.playback == ArchivePlayback::Signed;
        let relay = owners.map(|owners| Relay::new(owners, clock.clone(), config.data_dir.clone()));
        let cache = Cache::new(CACHE_BYTES_MAX);
        let (relayed, shared) = (relay.clone(), cache.clone());
        let recordings =
            Recordings::new(store.clone(), drivers.clone(), clock.clone(), relayed, signs, shared);
        Arc::new(Self {
            live,
            trusted_proxies: config.http.trusted_proxies.clone(),
            mint: Mint::new(secret),
            accesses: Arc::new(Accesses::new(store.clone(), drivers, clock.clone())),
            meter: Arc::new(Meter::new(store, clock.clone())),
            cache,
            viewers: Viewers::default(),
            previews: RateLimiter::new(RATE_PREVIEW),
            invalid_keys,
            relay,
            recordings,
            unreadable: LogLimit::per_second(1),
            clock,
        })
    }

    /// Answers a request below `/hls/` or `/vod/`. It never fails: errors and panics become responses.
    pub async fn answer(&self, request: Request) -> Response {
        let context = RequestContext::begin(&request, &self.trusted_proxies);
        // Viewers ask every second, and their requests seldom have lines.
        let span = if trace::is_exported() { context.span(&request) } else { Span::none() };
        self.answer_in_span(request, context).instrument(span).await
    }

    async fn answer_in_span(&self, request: Request, context: RequestContext) -> Response {
        let started = self.clock.monotonic();
        let (mut response, readers) = match caught(self.route(&request, &context), &context).await {
            Ok(answer) => answer,
            Err(refused) => (refused.response(&context), Readers::All),
        };
        if request.method() == Method::HEAD {
            response.set_body(());
        }
        finish_headers(&mut response, &readers, &context);
        let took = self.clock.monotonic().saturating_sub(started);
        log(&request, response.status(), &context, took);
        describe(PREFIX, response.status());
        response
    }

    /// Checks that `key` gives access to the playback `path`, live or not.
    ///
    /// # Errors
    /// 401 for any other key, 429 after too many of these from one network, 502 from the store.
    pub(crate) async fn admit(
        &self,
        context: &RequestContext,
        path: &str,
        key: &Redacted<String>,
    ) -> Result<Admission, ApiError> {
        let (access, _) = self.keyed(context, path, key).await?;
        let (label, origins) = (access.label.clone(), access.origins.clone());
        Ok(Admission { destination: access.destination, label, origins, stores: Vec::new(), is_clip: false })
    }

    /// Whether new media arrived recently or the encoder is reconnecting, and everything that a player fetches first is published: entry,
    /// media playlist, newest init segment and newest segment. Does not access files.
    pub fn is_ready(&self, opening: &Opening, session: SessionState) -> bool {
        let Some(facts) = opening.assets().playback() else { return false };
        let is_away = session == SessionState::Reconnecting;
        let is_fresh = facts.fresh_until.is_some_and(|until| is_away || self.clock.monotonic() < until);
        let is_open = !opening.ended() && !facts.ended;
        is_open && is_fresh && edge::is_playable(opening.assets()).is_some()
    }

    /// The preview token of a live session, which does not change during the session; `path` is the playback path.
    pub fn preview_token(&self, opening: &Opening, path: &str) -> String {
        self.mint.token(Grant::Preview, opening.destination, opening.session.as_str(), path)
    }

    /// Bytes sent to viewers of an account in the current clock hour, and the charges for them.
    ///
    /// # Errors
    /// The store failed.
    pub async fn this_hour(&self, account: AccountId) -> Result<HourUse, StoreError> {
        self.meter.this_hour(account).await
    }

    /// Number of players of a destination that loaded a playlist within [`SEEN`], at all nodes.
    pub fn viewers(&self, destination: DestinationId) -> u64 {
        let now = self.clock.monotonic();
        let elsewhere =
            self.relay.as_ref().map_or(0, |relay| relay.remote_players.players(destination, None, now));
        self.viewers.count(destination, now).saturating_add(elsewhere)
    }

    /// Bytes sent to viewers that this process has stored; never falls.
    pub fn stored_bytes(&self) -> u64 {
        self.meter.stored_bytes()
    }

    /// Stores the bytes counted since the last flush; after a failure they are kept for the next one. The flush continues even if the
    /// caller stops waiting.
    pub async fn flush_meter(&self) {
        let meter = self.meter.clone();
        let flush = tokio::spawn(async move {
            if let Err(error) = meter.flush().await {
                let bytes = meter.waiting();
                tracing::error!(%error, bytes, "cannot store the bytes sent to viewers; they are kept for the next try");
            }
        });
        if let Err(error) = flush.await {
            tracing::error!(%error, "storing the bytes sent to viewers ended early");
        }
    }

    /// Flushes every [`FLUSH_INTERVAL`], and once more when `shutdown` resolves.
    pub async fn keep_meter(self: Arc<Self>, shutdown: impl Future<Output = ()>) {
        let mut shutdown = pin!(shutdown);
        let mut tick = tokio::time::interval(FLUSH_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                _ = tick.tick() => self.flush_meter().await,
            }
        }
        self.flush_meter().await;
    }
}

/// Turns a panic into a response.
async fn caught<T>(
    work: impl Future<Output = Result<T, serve::Refused>>,
    context: &RequestContext,
) -> Result<T, serve::Refused> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
        tracing::error!(request_id = %context.id, "a playback request panicked");
        Err(ApiError::internal().into())
    })
}

fn finish_headers(response: &mut Response, readers: &Readers, context: &RequestContext) {
    let failed = !response.status().is_success();
    let headers: &mut HeaderMap = response.headers_mut();
    headers::common(headers, readers);
    // A cached response is also served to other requests.
    if failed || headers::is_never_stored(headers) {
        context.show(headers);
    }
}

/// One line per request, for debugging only: viewers ask every second. Neither query nor token is shown.
fn log(request: &Request, status: StatusCode, context: &RequestContext, took: Duration) {
    if !tracing::enabled!(target: "satcast::access", tracing::Level::DEBUG) {
        return;
    }
    let path = without_token(&logged_path(request.uri().path()));
    let (request_id, client, method, status) =
        (&context.id, &context.client, request.method(), status.as_u16());
    let took_ms = took.as_millis();
    tracing::debug!(target: "satcast::access", %request_id, %client, %method, path, status, took_ms, "request");
}

/// A path with everything after a segment `t` masked.
fn without_token(path: &str) -> String {
    let mut after_t = false;
    let parts = path.split('/').map(|part| {
        let shown = if after_t { mask_key(part) } else { part.to_owned() };
        after_t = part == "t";
        shown
    });
    parts.collect::<Vec<_>>().join("/")
}
