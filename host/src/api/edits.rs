//! Changes to stream keys and destinations that exist: limits, label, a new stream key, configuration.

use std::sync::Arc;

use poem::Result;
use poem::web::Data;
use poem_openapi::param::Path;
use poem_openapi::payload::Json;
use poem_openapi::types::MaybeUndefined;
use poem_openapi::{Object, OpenApi};
use serde_json::Value;

use super::addresses::{checked_addresses, read_addresses};
use super::body::{Body, Fields, FromFields, NoBody};
use super::destinations::{DestinationInput, Done, read_delay};
use super::streams::checked_label;
use super::{ApiError, App, Caller, Tag, accept};
use satcast_core::ids::{DestinationId, EndReason, StreamId};
use satcast_core::secret::new_stream_key;
use satcast_store::{DestinationChange, LimitChange, LimitsChange, StreamChange};

/// Largest budget of a session in sats: all there will ever be.
const MAX_SATS_MAX: i64 = 2_100_000_000_000_000;
/// Longest duration of a session in minutes: a year.
const MAX_DURATION_MINUTES_MAX: i64 = 525_600;

/// Hard limits to change: what is absent stays, `null` removes.
#[derive(Clone, Copy, Debug, Object)]
#[oai(rename_all = "camelCase", rename = "LimitsChange")]
pub(super) struct LimitsInput {
    /// Sats one session may cost.
    #[oai(validator(minimum(value = "1"), maximum(value = "2100000000000000")))]
    max_sats: MaybeUndefined<i64>,
    /// Minutes one session may last.
    #[oai(validator(minimum(value = "1"), maximum(value = "525600")))]
    max_duration_minutes: MaybeUndefined<i64>,
}

impl FromFields for LimitsInput {
    const FIELDS: &'static [&'static str] = &["maxSats", "maxDurationMinutes"];

    fn from_fields(mut fields: Fields) -> std::result::Result<Self, ApiError> {
        let mut limit = |name: &str, max: i64| match fields.take(name) {
            None => Ok(MaybeUndefined::Undefined),
            Some(Value::Null) => Ok(MaybeUndefined::Null),
            Some(value) => match value.as_i64().filter(|value| (1..=max).contains(value)) {
                Some(value) => Ok(MaybeUndefined::Value(value)),
                None => {
                    let text = format!(
                        "Field `{name}` must be a whole number from 1 to {max}, or null to remove it"
                    );
                    Err(ApiError::refused("limit_refused", text))
                }
            },
        };
        let input = Self {
            max_sats: limit("maxSats", MAX_SATS_MAX)?,
            max_duration_minutes: limit("maxDurationMinutes", MAX_DURATION_MINUTES_MAX)?,
        };
        if input.max_sats.is_undefined() && input.max_duration_minutes.is_undefined() {
            let text = "Send `maxSats`, `maxDurationMinutes` or both";
            return Err(ApiError::refused("limit_refused", text));
        }
        Ok(input)
    }
}

/// What can be changed of a stream key; what is absent stays.
#[derive(Clone, Debug, Object)]
#[oai(rename = "StreamChange", rename_all = "camelCase", skip_serializing_if_is_none)]
pub(super) struct StreamChangeInput {
    /// Label.
    #[oai(validator(min_length = 1, max_length = 128))]
    label: Option<String>,
    /// Addresses, or networks in CIDR form, from which the stream key may be used; an empty list allows all. It holds from the
    /// next publish on: who publishes goes on.
    #[oai(validator(max_items = 32))]
    allowed_addresses: Option<Vec<String>>,
}

impl FromFields for StreamChangeInput {
    const FIELDS: &'static [&'static str] = &["label", "allowedAddresses"];

    fn from_fields(mut fields: Fields) -> std::result::Result<Self, ApiError> {
        let label = fields.optional_text("label")?;
        let allowed_addresses = read_addresses(&mut fields)?;
        if label.is_none() && allowed_addresses.is_none() {
            let text = "Send `label`, `allowedAddresses` or both";
            return Err(ApiError::refused("nothing_to_change", text));
        }
        Ok(Self { label, allowed_addresses })
    }
}

/// What can be changed of a destination; what is absent stays.
#[derive(Clone, Object)]
#[oai(rename = "DestinationChange", rename_all = "camelCase", skip_serializing_if_is_none)]
pub(super) struct DestinationChangeInput {
    /// Whether it takes part in sessions.
    enabled: Option<bool>,
    /// A whole new configuration of its type. Secrets that come masked, as they are shown, stay while nothing else changes.
    config: Option<Value>,
    /// Seconds after which it starts, counted from the begin of the session, or from when it was added or enabled.
    #[oai(validator(maximum(value = "300")))]
    start_delay_seconds: Option<u32>,
    /// Seconds for which it goes on after it was disabled. The end of a session, a limit and a deletion wait for nothing.
    #[oai(validator(maximum(value = "300")))]
    stop_delay_seconds: Option<u32>,
    /// Whether the store of a type that records is asked first when `config` is sent; true when left out.
    check_store: Option<bool>,
}

impl std::fmt::Debug for DestinationChangeInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // `config` holds secrets.
        f.debug_struct("DestinationChangeInput").field("enabled", &self.enabled).finish_non_exhaustive()
    }
}

impl FromFields for DestinationChangeInput {
    const FIELDS: &'static [&'static str] =
        &["enabled", "config", "startDelaySeconds", "stopDelaySeconds", "checkStore"];

    fn from_fields(mut fields: Fields) -> std::result::Result<Self, ApiError> {
        let enabled = fields.optional_bool("enabled")?;
        let config = match fields.take("config") {
            None => None,
            Some(config @ Value::Object(_)) => Some(config),
            Some(_) => return Err(fields.malformed("config", "must be an object")),
        };
        let start_delay_seconds = read_delay(&mut fields, "startDelaySeconds")?;
        let stop_delay_seconds = read_delay(&mut fields, "stopDelaySeconds")?;
        let check_store = fields.optional_bool("checkStore")?;
        let delays = start_delay_seconds.or(stop_delay_seconds);
        if enabled.is_none() && config.is_none() && delays.is_none() {
            let text = "Send `enabled`, `config`, `startDelaySeconds` or `stopDelaySeconds`";
            return Err(ApiError::refused("nothing_to_change", text));
        }
        Ok(Self { enabled, config, start_delay_seconds, stop_delay_seconds, check_store })
    }
}

/// The new stream key.
#[derive(Clone, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct Rotated {
    /// `true`.
    success: bool,
    /// Stream key identifier.
    id: i64,
    /// The key to publish with from now on; secret.
    stream_key: String,
}

/// Operations that change what exists.
pub(super) struct EditsApi;

#[OpenApi(prefix_path = "/api")]
impl EditsApi {
    /// Set hard limits
    ///
    /// At least one of the two. What is absent stays, `null` removes. They count per session.
    #[oai(path = "/streams/:id/limits", method = "post", operation_id = "setLimits", tag = "Tag::Streams")]
    async fn set_limits(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        /// Stream key identifier.
        id: Path<i64>,
        body: Body<LimitsInput>,
    ) -> Result<Json<Done>> {
        let (app, stream) = (Arc::clone(&app), StreamId(id.0));
        let change = LimitsChange {
            max_sats: limit_change(body.0.max_sats),
            max_duration_minutes: limit_change(body.0.max_duration_minutes),
        };
        App::to_the_end(async move {
            let limits = app.store.change_limits(&caller.actor(&app), stream, change).await?;
            app.live.limits_changed(stream, limits).await;
            Ok(())
        })
        .await?;
        Ok(Json(Done::new()))
    }

    /// Change a stream key
    ///
    /// A running session whose encoder is at an address that is not allowed any more ends. An addition to the specification.
    #[oai(path = "/streams/:id", method = "patch", operation_id = "changeStream", tag = "Tag::Streams")]
    async fn change_stream(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        /// Stream key identifier.
        id: Path<i64>,
        body: Body<StreamChangeInput>,
    ) -> Result<Json<Done>> {
        let change = StreamChange {
            label: body.0.label.as_deref().map(checked_label).transpose()?,
            allowed: body.0.allowed_addresses.map(|entries| checked_addresses(&entries)).transpose()?,
        };
        let (app, stream, allowed) = (Arc::clone(&app), StreamId(id.0), change.allowed.clone());
        App::to_the_end(async move {
            app.store.change_stream(&caller.actor(&app), stream, change).await?;
            if let Some(allowed) = allowed {
                app.live.addresses_changed(stream, &allowed).await;
            }
            Ok(())
        })
        .await?;
        Ok(Json(Done::new()))
    }

    /// Replace a stream key
    ///
    /// The old key is unknown at once and the running session ends. An addition to the specification.
    #[oai(
        path = "/streams/:id/rotate",
        method = "post",
        operation_id = "rotateStreamKey",
        tag = "Tag::Streams"
    )]
    async fn rotate(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        _none: NoBody,
        /// Stream key identifier.
        id: Path<i64>,
    ) -> Result<Json<Rotated>> {
        let (app, stream) = (Arc::clone(&app), StreamId(id.0));
        let key = new_stream_key();
        let stored = key.clone();
        App::to_the_end(async move {
            app.store.replace_stream_key(&caller.actor(&app), stream, &stored).await?;
            app.live.stop(stream, EndReason::KeyRevoked).await;
            Ok(())
        })
        .await?;
        Ok(Json(Rotated { success: true, id: id.0, stream_key: key.into_inner() }))
    }

    /// Change a destination
    ///
    /// Takes effect at once, or after its delays, in a running session too, without disturbing the other destinations. An addition to the
    /// specification.
    #[oai(
        path = "/streams/:id/destinations/:destId",
        method = "patch",
        operation_id = "changeDestination",
        tag = "Tag::Destinations"
    )]
    async fn change_destination(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        /// Stream key identifier.
        id: Path<i64>,
        /// Destination identifier.
        #[oai(name = "destId")]
        dest_id: Path<i64>,
        body: Body<DestinationChangeInput>,
    ) -> Result<Json<Done>> {
        let (app, account) = (Arc::clone(&app), caller.account);
        let (stream, destination) = (StreamId(id.0), DestinationId(dest_id.0));
        let known = app.store.destination_of(account, stream, destination).await.map_err(ApiError::from)?;
        let known = known.ok_or_else(|| ApiError::not_found("destination"))?;
        let mut change = DestinationChange {
            enabled: body.0.enabled,
            config: None,
            start_delay_secs: body.0.start_delay_seconds,
            stop_delay_secs: body.0.stop_delay_seconds,
        };
        let mut trouble = None;
        if let Some(sent) = body.0.config {
            let stored = known.config.unwrap_or_default();
            let config = app.drivers.restored_config(&known.kind, &stored, &sent);
            let config = config.map_err(|refused| accept::config_refused(&refused, ""))?;
            let input = DestinationInput::new(known.kind, config, body.0.check_store.unwrap_or(true));
            let accepted = accept::accept(&app, account, input, "").await?;
            change.config = Some(accepted.destination.config);
            trouble = Some(accepted.trouble);
        }
        App::to_the_end(async move {
            let is_configured = change.config.is_some();
            app.store.change_destination(&caller.actor(&app), stream, destination, change).await?;
            app.live.destinations_changed(stream).await;
            if let Some(trouble) = trouble {
                app.archive.note_trouble(destination, trouble);
            }
            if is_configured {
                // Recordings go on without a session.
                app.archive.destination_changed(destination).await;
            }
            Ok(())
        })
        .await?;
        Ok(Json(Done::new()))
    }
}

fn limit_change(limit: MaybeUndefined<i64>) -> LimitChange {
    match limit {
        MaybeUndefined::Undefined => LimitChange::Keep,
        MaybeUndefined::Null => LimitChange::Remove,
        MaybeUndefined::Value(value) => LimitChange::Set(value),
    }
}
