//! The stream status, which websites poll to know when to show a player.
//!
//! A GET does not go through the routes ([`Middleware::with_polled`](crate::base::Middleware)), and its answer is text that
//! is made once: of a stream that is offline, once for a key; of a live stream, at most ten times a second for all keys,
//! and when the stream changes. Only the key of the caller is put in.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use poem::http::header::{CONTENT_TYPE, HeaderValue};
use poem::web::Data;
use poem::{Request, Response, Result};
use poem_openapi::payload::Json;
use poem_openapi::types::ToJSON as _;
use poem_openapi::{Object, OpenApi};
use serde_json::{Value, json};

use super::app::{App, Known, Tag};
use super::bandwidth::Bandwidth;
use super::caller::{count_invalid, key_extractor};
use super::elsewhere::Elsewhere;
use super::null::Null;
use super::playback::{live_opening, live_session, viewers};
use crate::auth::presented_key;
use crate::base::{ApiError, RequestContext};
use crate::nodes::Nodes;
use crate::playback::Owners as _;
use satcast_core::config::Pricing;
use satcast_core::ids::{DestinationId, Msat, UnixMillis};
use satcast_core::secret::{KeyKind, Redacted, api_key_kind, key_hash};
use satcast_drivers::published::Opening;
use satcast_live::{SessionSnapshot, SessionState};
use satcast_plugin_api::Playback;
use satcast_store::PlaybackRecord;

/// Path of the operation.
pub(super) const PATH: &str = "/api/public/stream/status";
/// How long the text of a live stream is used, unless the stream changes.
pub(super) const BUILT_FOR: Duration = Duration::from_millis(100);
/// Most live streams whose text is kept; when there are more, all are dropped.
const BUILT_MAX: usize = 4_096;
/// As poem-openapi declares and sends it.
const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");
/// The one field that has the caller's key.
const URL_FIELD: &str = "hlsUrl";

/// Longest DVR window.
const WINDOW_MAX_SECS: i64 = 3_600;

/// The caller of a public operation about one destination, a website or a player: a public key and its destination, which is
/// enabled.
#[derive(Clone, Debug)]
struct Viewer {
    known: Arc<Known>,
    key: Redacted<String>,
}

impl Viewer {
    /// Authenticates the public key of a request and counts the request against the key's limit.
    ///
    /// # Errors
    /// 400 without a key; 401 for a key that is unknown, revoked or permanent, or whose destination is disabled or deleted;
    /// 429 over a limit, 502 from the store.
    async fn of(app: &App, request: &Request) -> std::result::Result<Self, ApiError> {
        let context = RequestContext::of(request);
        let key = presented_key(request).ok_or_else(ApiError::public_key_required)?;
        let refused = ApiError::invalid_public_key;
        let hash = key_hash(key.expose());
        let known = match api_key_kind(key.expose()) {
            Some(KeyKind::Public) => app.known.find(&app.store, &app.clock, hash).await?,
            Some(KeyKind::Permanent) | None => None,
        };
        let Some(known) = known else { return Err(refuse(app, &context, request, &key, hash).await?) };
        app.count(&context, request, &app.limits.status, known.key).await?;
        if !known.destination.enabled {
            return Err(refused());
        }
        app.key_uses.note(&app.store, known.key, app.clock.now());
        Ok(Self { known, key })
    }
}

/// The answer to a key that opens no destination. A valid one, as that of a disabled account, counts as a key: viewers who poll
/// with it must not use up what their network has for invalid keys.
async fn refuse(
    app: &App,
    context: &RequestContext,
    request: &Request,
    key: &Redacted<String>,
    hash: [u8; 32],
) -> std::result::Result<ApiError, ApiError> {
    let refused = ApiError::invalid_public_key();
    let valid = match api_key_kind(key.expose()) {
        Some(_) => app.store.key_by_hash(&hash).await?,
        None => None,
    };
    let Some(valid) = valid else { return Ok(count_invalid(app, context, refused)) };
    app.count(context, request, &app.limits.status, valid.id).await?;
    Ok(refused)
}

key_extractor!(Viewer);

/// The DVR buffer, in which viewers can rewind.
#[derive(Clone, Debug, PartialEq, Eq, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct Dvr {
    /// Whether viewers can rewind; true only while live.
    enabled: bool,
    /// Seconds that viewers can rewind now; 0 when offline.
    window_seconds: i64,
    /// Largest DVR window in seconds.
    max_window_seconds: i64,
    /// Start of the buffer, Unix seconds; null when offline.
    available_from: Null<i64>,
}

impl Dvr {
    const NONE: Dvr = Dvr {
        enabled: false,
        window_seconds: 0,
        max_window_seconds: WINDOW_MAX_SECS,
        available_from: Null(None),
    };

    fn of(facts: &Playback) -> Self {
        if facts.window_max_ms == 0 {
            return Self::NONE;
        }
        let listed_secs = i64::try_from(facts.window_ms / 1_000).unwrap_or(WINDOW_MAX_SECS);
        Self {
            enabled: true,
            window_seconds: listed_secs.min(WINDOW_MAX_SECS),
            available_from: Null(Some(UnixMillis(facts.first_ms).to_secs_floor())),
            ..Self::NONE
        }
    }
}

/// Whether a self-hosted destination is live, and how to play it.
#[derive(Clone, Debug, PartialEq, Eq, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct StreamStatus {
    /// Whether the stream is live.
    is_live: bool,
    /// Whether a player can load `hlsUrl` now. hls.js shows video within a second. Media players, such as ffmpeg, VLC and the players of
    /// browsers, get the first segments when there are three, after at most eight seconds.
    hls_ready: bool,
    /// HLS playback URL with the key in its query; null when offline.
    hls_url: Null<String>,
    /// Stream label.
    label: String,
    /// Deprecated, removed in version 1.1; use `label`.
    #[oai(deprecated)]
    stream_key_label: String,
    /// Start of the stream, Unix seconds; null when offline.
    started_at: Null<i64>,
    /// Start of the stream, Unix milliseconds; null when offline.
    started_at_ms: Null<i64>,
    /// Players that loaded a playlist in the last 30 seconds, at most 256 from one network. Players are distinguished by address,
    /// `User-Agent` and, if sent, `X-Playback-Session-Id`. Players served by an HTTP cache are not counted. 0 when offline.
    viewers: i64,
    /// Latency in milliseconds from the arrival of a frame at the service until a viewer at the live edge sees it: the age of the
    /// newest media, plus the distance that the playlist asks players to keep. Null when offline, and until media can be played.
    latency_ms: Null<i64>,
    /// Token of the preview; not needed if you have a key. Null when offline.
    playback_token: Null<String>,
    /// The DVR buffer, in which viewers can rewind.
    dvr: Dvr,
    /// Bandwidth of the account in the current hour.
    bandwidth: Bandwidth,
}

impl StreamStatus {
    /// The values that the specification fixes, without the usage of the current hour.
    fn offline(label: String, now: UnixMillis, pricing: &Pricing) -> Self {
        Self {
            is_live: false,
            hls_ready: false,
            hls_url: Null(None),
            stream_key_label: label.clone(),
            label,
            started_at: Null(None),
            started_at_ms: Null(None),
            viewers: 0,
            latency_ms: Null(None),
            playback_token: Null(None),
            dvr: Dvr::NONE,
            bandwidth: Bandwidth::of(0, Msat(0), now, pricing),
        }
    }

    /// The status of a live stream, without `hlsUrl`.
    async fn live(
        app: &App,
        destination: &PlaybackRecord,
        session: &SessionSnapshot,
        opening: Option<&Arc<Opening>>,
    ) -> std::result::Result<Self, ApiError> {
        let (now, config) = (app.clock.now(), app.config());
        let pricing = &config.pricing;
        let token = opening.map(|opening| app.playback.preview_token(opening, &destination.playback_path));
        let facts = opening.and_then(|opening| opening.assets().playback());
        let used = app.playback.this_hour(destination.account_id).await?;
        Ok(Self {
            is_live: true,
            hls_ready: opening.is_some_and(|opening| app.playback.is_ready(opening, session.state)),
            started_at: Null(Some(session.started_at.to_secs_floor())),
            started_at_ms: Null(Some(session.started_at.0)),
            viewers: viewers(app, destination.destination_id),
            latency_ms: opening.and_then(|opening| app.playback.latency_ms(opening)).into(),
            playback_token: token.into(),
            dvr: facts.map_or(Dvr::NONE, |facts| Dvr::of(&facts)),
            bandwidth: Bandwidth::of(used.bytes, used.charged, now, pricing),
            ..Self::offline(destination.label.clone(), now, pricing)
        })
    }

    async fn of(app: &App, viewer: &Viewer) -> std::result::Result<Self, ApiError> {
        let destination = &viewer.known.destination;
        let Some(session) = live_session(app, destination.stream_id) else {
            return Ok(Self::offline(destination.label.clone(), app.clock.now(), &app.config().pricing));
        };
        let opening = live_opening(app, destination.destination_id, &session);
        let live = Self::live(app, destination, &session, opening.as_ref()).await?;
        // A valid key needs no escaping in a query string.
        let url = format!("{}?apiKey={}", app.playback_url(&destination.playback_path), viewer.key.expose());
        Ok(Self { hls_url: Null(Some(url)), ..live })
    }

    /// Its text without the first brace and `hlsUrl`.
    fn rest(&self) -> String {
        let mut value = self.to_json().unwrap_or_default();
        value.as_object_mut().and_then(|fields| fields.remove(URL_FIELD));
        value.to_string().split_off(1)
    }
}

/// The state that a live stream's text was made of. A change of any of it makes a new text at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    /// Number of the [`BUILT_FOR`] interval: time, viewers and latency.
    interval: u128,
    /// Account data, bytes and charges.
    generation: u64,
    state: SessionState,
    started_at: UnixMillis,
    /// Addresses of the opening and of its last playback facts.
    published: Option<(usize, Option<usize>)>,
}

impl Seen {
    fn of(app: &App, session: &SessionSnapshot, opening: Option<&Arc<Opening>>) -> Self {
        let published = opening.map(|opening| {
            let facts = opening.assets().playback();
            (Arc::as_ptr(opening).addr(), facts.map(|facts| Arc::as_ptr(&facts).addr()))
        });
        Self {
            interval: app.clock.monotonic().as_millis() / BUILT_FOR.as_millis(),
            generation: app.store.generation(),
            state: session.state,
            started_at: session.started_at,
            published,
        }
    }
}

/// The text of a live stream, around the key of the caller.
#[derive(Debug)]
struct Built {
    seen: Seen,
    before: String,
    after: String,
}

impl Built {
    fn new(seen: Seen, url: String, status: &StreamStatus) -> Self {
        let mut before = format!("{{\"{URL_FIELD}\":{}", Value::String(url + "?apiKey="));
        // The quotation mark behind the address.
        before.pop();
        Self { seen, before, after: format!("\",{}", status.rest()) }
    }

    fn with(&self, key: &str) -> Bytes {
        [self.before.as_str(), key, self.after.as_str()].concat().into()
    }
}

/// The operation for pages that poll.
#[derive(Debug)]
pub(super) struct Polled {
    app: Arc<App>,
    built: Mutex<HashMap<DestinationId, Arc<Built>>>,
}

impl Polled {
    pub(super) fn new(app: Arc<App>) -> Arc<Self> {
        Arc::new(Self { app, built: Mutex::default() })
    }

    pub(super) async fn respond(self: Arc<Self>, request: Request) -> Result<Response> {
        let viewer = Viewer::of(&self.app, &request).await?;
        let mut response = Response::from(self.text(&viewer, &request).await?);
        response.headers_mut().insert(CONTENT_TYPE, JSON);
        Ok(response)
    }

    async fn text(&self, viewer: &Viewer, request: &Request) -> std::result::Result<Bytes, ApiError> {
        let (app, destination) = (&*self.app, &viewer.known.destination);
        let Some(session) = live_session(app, destination.stream_id) else {
            let elsewhere = elsewhere(app, viewer, request).await?;
            return Ok(elsewhere.unwrap_or_else(|| offline_text(app, &viewer.known)));
        };
        let opening = live_opening(app, destination.destination_id, &session);
        let seen = Seen::of(app, &session, opening.as_ref());
        let is_same = |built: &&Arc<Built>| built.seen == seen;
        let known = self.built.lock().get(&destination.destination_id).filter(is_same).cloned();
        if let Some(built) = known {
            return Ok(built.with(viewer.key.expose()));
        }
        let status = StreamStatus::live(app, destination, &session, opening.as_ref()).await?;
        let url = app.playback_url(&destination.playback_path);
        let built = Arc::new(Built::new(seen, url, &status));
        let mut all = self.built.lock();
        if all.len() >= BUILT_MAX && !all.contains_key(&destination.destination_id) {
            all.clear();
        }
        all.insert(destination.destination_id, built.clone());
        drop(all);
        Ok(built.with(viewer.key.expose()))
    }
}

/// The status of a session at another node: as its owner tells, or live and not ready while that does not answer.
async fn elsewhere(
    app: &App,
    viewer: &Viewer,
    request: &Request,
) -> std::result::Result<Option<Bytes>, ApiError> {
    let Some(nodes) = app.nodes.as_ref().filter(|_| !Nodes::has_node_header(request.headers())) else {
        return Ok(None);
    };
    let destination = &viewer.known.destination;
    let Some(owner) = nodes.located(destination.stream_id).await.owner else { return Ok(None) };
    if let Some(shown) = nodes.shown(&owner, request).await {
        return Ok(Some(shown.into()));
    }
    let elsewhere = Elsewhere::of(app, destination.account_id, request).await?;
    let Some(session) = elsewhere.session(destination.stream_id) else { return Ok(None) };
    let status = StreamStatus::live(app, destination, &session, None).await?;
    let url = format!("{}?apiKey={}", app.playback_url(&destination.playback_path), viewer.key.expose());
    Ok(Some(StreamStatus { hls_url: Null(Some(url)), ..status }.to_json_string().into()))
}

/// The text of a stream that is offline. It changes with the clock hour alone, as long as the key is known.
fn offline_text(app: &App, known: &Known) -> Bytes {
    let now = app.clock.now();
    let build = || -> Bytes {
        let status = StreamStatus::offline(known.destination.label.clone(), now, &app.config().pricing);
        format!("{{\"{URL_FIELD}\":null,{}", status.rest()).into()
    };
    let (hour, text) = known.offline.get_or_init(|| (now.hour_start(), build()));
    if *hour == now.hour_start() { text.clone() } else { build() }
}

/// Public operations on streams.
pub(super) struct StatusApi;

#[OpenApi(prefix_path = "/api/public", tag = "Tag::Public")]
impl StatusApi {
    /// Read the status of a stream
    ///
    /// Needs the public key (pk_...) of a self-hosted destination. Poll at most 60 times a minute with one key, and give `hlsUrl`
    /// to a video player once `hlsReady` is true. Scripts of any website may call this.
    #[oai(path = "/stream/status", method = "get", operation_id = "getStreamStatus")]
    async fn status(&self, app: Data<&Arc<App>>, viewer: Viewer) -> Result<Json<StreamStatus>> {
        Ok(Json(StreamStatus::of(&app, &viewer).await?))
    }
}

/// Example answers for the document.
pub(super) fn examples() -> Value {
    let pricing = Pricing {
        cost_per_platform: 2,
        free_platforms: 1,
        bandwidth_limit_gb_per_hour: 10,
        bandwidth_overage_sats_per_gb: 5,
        archive_recovery_sats: 360,
        clip_sats: 0,
    };
    let (started_at, now) = (UnixMillis(1_799_998_765_432), UnixMillis(1_800_000_000_000));
    let offline = StreamStatus::offline("Sunday service".to_owned(), now, &pricing);
    let url = "https://live.example.com/hls/4GyTq0dZPvL1sWmN8bXcRk/index.m3u8?apiKey=pk_EXAMPLE";
    let live = StreamStatus {
        is_live: true,
        hls_ready: true,
        hls_url: Null(Some(url.to_owned())),
        started_at: Null(Some(started_at.to_secs_floor())),
        started_at_ms: Null(Some(started_at.0)),
        viewers: 17,
        latency_ms: Null(Some(7_240)),
        playback_token: Null(Some("AQEXAMPLE".to_owned())),
        dvr: Dvr {
            enabled: true,
            window_seconds: 1_234,
            available_from: Null(Some(started_at.to_secs_floor())),
            ..Dvr::NONE
        },
        bandwidth: Bandwidth::of(11_234_567_890, Msat(6_172), now, &pricing),
        ..offline.clone()
    };
    json!({
        "live": {"summary": "Live and playable", "value": live.to_json()},
        "offline": {"summary": "Offline", "value": offline.to_json()},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_in_whole_seconds_up_to_an_hour_and_off_without_rewind() {
        let facts = |window_ms, window_max_ms| Playback {
            entry: "index.m3u8".to_owned(),
            preview: None,
            first_ms: 1_800_000_000_999,
            window_ms,
            window_max_ms,
            fresh_ms: 0,
            ended: false,
        };
        let dvr = Dvr::of(&facts(12_999, 60_000));
        assert_eq!((dvr.enabled, dvr.window_seconds, dvr.max_window_seconds), (true, 12, 3_600));
        assert_eq!(dvr.available_from, Null(Some(1_800_000_000)));
        assert_eq!(Dvr::of(&facts(3_604_000, 3_600_000)).window_seconds, 3_600);
        assert_eq!(Dvr::of(&facts(u64::MAX, 3_600_000)).window_seconds, 3_600);
        assert_eq!(Dvr::of(&facts(12_999, 0)), Dvr::NONE);
    }
}
