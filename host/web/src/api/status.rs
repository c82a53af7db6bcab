//! The stream status, which websites poll to know when to show a player.

use std::sync::Arc;

use poem::web::Data;
use poem::{Request, Result};
use poem_openapi::payload::Json;
use poem_openapi::types::ToJSON as _;
use poem_openapi::{Object, OpenApi};
use serde_json::{Value, json};

use super::app::{App, Known, Tag};
use super::bandwidth::Bandwidth;
use super::caller::{count_invalid, key_extractor};
use super::null::Null;
use super::playback::{live_opening, live_session, viewers};
use crate::auth::presented_key;
use crate::base::{ApiError, RequestContext};
use satcast_core::config::Pricing;
use satcast_core::ids::{Msat, UnixMillis};
use satcast_core::secret::{Redacted, api_key_kind, key_hash};
use satcast_plugin_api::Playback;
use satcast_store::{PlaybackRecord, TimeRange};

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
        let known = match api_key_kind(key.expose()) {
            Some(_) => app.known.find(&app.store, &app.clock, key_hash(key.expose())).await?,
            None => None,
        };
        let known = known.ok_or_else(|| count_invalid(app, &context, refused()))?;
        context.count(app.limits.status.hit(known.key.id, app.clock.monotonic()))?;
        // A permanent key has no destination.
        if !known.destination.as_ref().is_some_and(|destination| destination.enabled) {
            return Err(refused());
        }
        app.key_uses.note(&app.store, known.key.id, app.clock.now());
        Ok(Self { known, key })
    }

    /// The destination.
    ///
    /// # Errors
    /// 401 without a destination, which [`Viewer::of`] already refuses.
    fn destination(&self) -> std::result::Result<&PlaybackRecord, ApiError> {
        self.known.destination.as_ref().ok_or_else(ApiError::invalid_public_key)
    }
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
    /// Whether a player can load `hlsUrl` now. With `lowLatency`, players that load parts show video within a second; other players
    /// wait until the stream has three segments, at most eight seconds.
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

    async fn of(app: &App, viewer: Viewer) -> std::result::Result<Self, ApiError> {
        let destination = viewer.destination()?;
        let (now, pricing) = (app.clock.now(), &app.config.pricing);
        let offline = Self::offline(destination.label.clone(), now, pricing);
        let Some(session) = live_session(app, destination.stream_id) else { return Ok(offline) };
        let opening = live_opening(app, destination.destination_id, &session);
        let path = &destination.playback_path;
        let token = opening.as_ref().map(|opening| app.playback.preview_token(opening, path));
        let facts = opening.as_ref().and_then(|opening| opening.assets().playback());
        let hour = TimeRange { from: Some(now.hour_start()), to: None };
        let charged = app.store.overage_charges(destination.account_id, hour).await?;
        let used_bytes = app.playback.used_this_hour(destination.account_id).await?;
        Ok(Self {
            is_live: true,
            hls_ready: opening.as_ref().is_some_and(|opening| app.playback.is_ready(opening, session.state)),
            // A valid key needs no escaping in a query string.
            hls_url: Null(Some(format!("{}?apiKey={}", app.playback_url(path), viewer.key.expose()))),
            started_at: Null(Some(session.started_at.to_secs_floor())),
            started_at_ms: Null(Some(session.started_at.0)),
            viewers: viewers(app, destination.destination_id),
            latency_ms: opening.as_ref().and_then(|opening| app.playback.latency_ms(opening)).into(),
            playback_token: token.into(),
            dvr: facts.map_or(Dvr::NONE, |facts| Dvr::of(&facts)),
            bandwidth: Bandwidth::of(used_bytes, charged, now, pricing),
            ..offline
        })
    }
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
        Ok(Json(StreamStatus::of(&app, viewer).await?))
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
