//! Cost of the account's live streams.

use std::sync::Arc;

use poem::web::Data;
use poem::{Request, Result};
use poem_openapi::payload::Json;
use poem_openapi::{Object, OpenApi};

use super::app::Subject;
use super::app::{App, Tag};
use super::caller::{key_extractor, known_key, login, presented_login};
use super::elsewhere::Elsewhere;
use super::null::Null;
use crate::auth::presented_key;
use crate::base::{ApiError, Code, RequestContext};
use satcast_core::ids::{AccountId, Msat, SessionId};
use satcast_core::secret::KeyKind;
use satcast_live::LiveSession;

/// Milliseconds of a second and seconds of a minute.
const MS_PER_SEC: i64 = 1_000;
const SECS_PER_MINUTE: i64 = 60;

/// A live stream and its cost.
#[derive(Clone, Debug, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct ActiveStream {
    /// Session identifier.
    session_id: String,
    /// Stream key identifier.
    stream_key_id: i64,
    /// Label.
    label: String,
    /// Deprecated; use `label`.
    #[oai(deprecated)]
    stream_key_label: String,
    /// Start, Unix milliseconds.
    started_at: i64,
    /// Whole minutes since the start.
    duration_minutes: i64,
    /// Seconds since the last whole minute.
    duration_seconds: i64,
    /// Sats charged for this session, rounded down.
    total_charged: i64,
    /// Sats for a full minute with the destinations that are forwarding now.
    rate_per_minute: i64,
    /// Expected time, Unix milliseconds, at which the budget or the balance will be used up and end the stream; null when that is
    /// not expected.
    budget_ends_at: Null<i64>,
}

/// Cost of the account's live streams.
#[derive(Clone, Debug, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct ActiveCost {
    /// At least one stream is live.
    has_active_stream: bool,
    /// Sats charged for the live streams, rounded down.
    total_cost: i64,
    /// The live streams, oldest first.
    streams: Vec<ActiveStream>,
}

/// The caller: a login session, a public key whose destination is enabled, or a permanent key with the scope `read`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Payer {
    account: AccountId,
}

impl Payer {
    /// Authenticates the request and counts it against the limit of the key or session.
    ///
    /// # Errors
    /// 400 without a key; 401 for a key that is unknown or revoked, or whose destination is disabled or deleted, and for a session
    /// that has ended; 403 for a permanent key without the scope `read`; 429 over a limit, 502 from the store.
    async fn of(app: &App, request: &Request) -> std::result::Result<Self, ApiError> {
        let context = RequestContext::of(request);
        if let Some(token) = presented_login(request) {
            let caller = login(app, &context, &token).await?;
            app.count(&context, request, &app.limits.cost, caller.subject).await?;
            return Ok(Self { account: caller.account });
        }
        let key = presented_key(request).ok_or_else(ApiError::public_key_required)?;
        let known = known_key(app, &context, &key, ApiError::invalid_public_key()).await?;
        app.count(&context, request, &app.limits.cost, Subject::Key(known.id)).await?;
        match known.kind {
            KeyKind::Public => {
                let destination = app.store.playback_by_key(known.id).await?;
                destination.filter(|record| record.enabled).ok_or_else(ApiError::invalid_public_key)?;
            }
            KeyKind::Permanent if !known.scopes.read => {
                let text = "This key lacks the scope \"read\"; use a key that has it";
                return Err(ApiError::forbidden(Code::ScopeNotAllowed, text));
            }
            KeyKind::Permanent => {}
        }
        app.key_uses.note(&app.store, known.id, app.clock.now());
        Ok(Self { account: known.account_id })
    }
}

key_extractor!(Payer);

/// Public operations about cost.
pub(super) struct CostApi;

#[OpenApi(prefix_path = "/api/public", tag = "Tag::Public")]
impl CostApi {
    /// Read the cost of live streams
    ///
    /// All live streams of the key's account. A public key is enough.
    #[oai(path = "/streams/active/cost", method = "get", operation_id = "getActiveCost")]
    async fn cost(&self, app: Data<&Arc<App>>, payer: Payer, request: &Request) -> Result<Json<ActiveCost>> {
        let elsewhere = Elsewhere::of(&app, payer.account, request).await?;
        let (shown, silent) = elsewhere.all::<ActiveCost>(&app, request).await;
        let mut streams: Vec<_> = shown.into_iter().flat_map(|shown| shown.streams).collect();
        let mut total = 0_i64;
        for stream in &streams {
            let session = SessionId(stream.session_id.clone());
            let charged = app.store.session_charges(&session).await.map_err(ApiError::from)?;
            total = total.saturating_add(charged.0);
        }
        for live in app.live.sessions_of(payer.account).into_iter().chain(silent) {
            let stream = app.store.stream(live.stream).await.map_err(ApiError::from)?;
            // The stream was just deleted and its session is ending.
            let Some(stream) = stream else { continue };
            let charged =
                app.store.session_charges(&live.session.session_id).await.map_err(ApiError::from)?;
            total = total.saturating_add(charged.0);
            streams.push(active(&app, live, stream.label, charged));
        }
        streams.sort_by(|one, other| {
            (one.started_at, &one.session_id).cmp(&(other.started_at, &other.session_id))
        });
        let total_cost = Msat(total).to_sats_floor().0;
        Ok(Json(ActiveCost { has_active_stream: !streams.is_empty(), total_cost, streams }))
    }
}

fn active(app: &App, live: LiveSession, label: String, charged: Msat) -> ActiveStream {
    let millis = app.clock.now().0.saturating_sub(live.session.started_at.0).max(0);
    let secs = millis / MS_PER_SEC;
    let cost = app.billing.cost(&live.session.session_id);
    ActiveStream {
        session_id: live.session.session_id.0,
        stream_key_id: live.stream.0,
        stream_key_label: label.clone(),
        label,
        started_at: live.session.started_at.0,
        duration_minutes: secs / SECS_PER_MINUTE,
        duration_seconds: secs % SECS_PER_MINUTE,
        total_charged: charged.to_sats_floor().0,
        rate_per_minute: cost.map_or(0, |cost| cost.rate.to_sats_floor().0),
        budget_ends_at: Null(cost.and_then(|cost| cost.ends_at).map(|at| at.0)),
    }
}
