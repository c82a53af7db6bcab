//! Changes to existing stream keys and destinations: limits, label, a new stream key, configuration.

use std::sync::Arc;

use poem::Result;
use poem::web::Data;
use poem_openapi::param::Path;
use poem_openapi::payload::Json;
use poem_openapi::registry::MetaSchema;
use poem_openapi::{Object, OpenApi};
use serde_json::Value;

use super::app::{App, Tag};
use super::body::{Body, Kind, NoBody, addresses, any_object, body, flag, label, passphrase};
use super::caller::Caller;
use super::destinations::{self, DestinationInput, Done, delay};
use super::null::Null;
use crate::base::{ApiError, Code};
use satcast_core::ids::{DestinationId, EndReason, StreamId};
use satcast_core::networks::Networks;
use satcast_core::secret::{Redacted, backup_key, new_stream_key};
use satcast_store::{CommandTarget, DestinationChange, LimitChange, LimitsChange, StreamChange};

/// Largest budget of a session in sats: the maximum supply of bitcoin.
pub(super) const MAX_SATS_MAX: i64 = 2_100_000_000_000_000;
/// Longest duration of a session in minutes: a year.
const MAX_DURATION_MINUTES_MAX: i64 = 525_600;

body! {
    /// Hard limits to change. An absent limit stays unchanged; `null` removes it.
    pub(super) struct LimitsInput: "LimitsChange", one of ["maxSats", "maxDurationMinutes"] or Code::LimitRefused {
        /// Largest cost of one session in sats.
        max_sats "maxSats": LimitChange = limit(MAX_SATS_MAX),
        /// Longest duration of one session in minutes.
        max_duration_minutes "maxDurationMinutes": LimitChange = limit(MAX_DURATION_MINUTES_MAX),
    }
}

/// A hard limit to change.
fn limit(max: i64) -> Kind<LimitChange> {
    let limit = Kind::of::<Null<i64>>(move |value, place| match value.as_i64() {
        None if value.is_null() => Ok(LimitChange::Remove),
        Some(limit) if (1..=max).contains(&limit) => Ok(LimitChange::Set(limit)),
        _ => {
            let fault = format!("must be a whole number from 1 to {max}, or null to remove it");
            Err(place.refused(Code::LimitRefused, &fault))
        }
    });
    let (minimum, maximum) = (Some(1.0), Some(max as f64));
    limit.or_is(LimitChange::Keep).noted(MetaSchema { minimum, maximum, ..MetaSchema::ANY })
}

body! {
    /// Changes of a stream key. An absent field stays unchanged.
    pub(super) struct StreamChangeInput: "StreamChange", one of ["label", "allowedAddresses", "srtPassphrase"] or Code::NothingToChange
    {
        /// Label.
        label: Option<String> = label(1).optional(),
        /// Addresses or CIDR networks from which the stream key may be used; an empty list allows all. A running session ends if its
        /// encoder's address is no longer allowed.
        allowed_addresses "allowedAddresses": Option<Networks> = addresses().optional(),
        /// Passphrase for encoders that connect by SRT, from their next connection on; `null` removes it.
        srt_passphrase "srtPassphrase": Option<Option<Redacted<String>>> = passphrase().optional(),
    }
}

body! {
    /// Changes of a destination. An absent field stays unchanged.
    pub(super) struct DestinationChangeInput: "DestinationChange",
        one of ["enabled", "config", "startDelaySeconds", "stopDelaySeconds"] or Code::NothingToChange
    {
        /// Whether the destination takes part in sessions.
        enabled: Option<bool> = flag().optional(),
        /// The complete new configuration. A secret that is sent masked, as it is shown, keeps its stored value if nothing else
        /// changes.
        config: Option<Value> = any_object().optional(),
        /// Seconds until the destination starts, counted from the start of the session, or from when it was added or enabled.
        start_delay_seconds "startDelaySeconds": Option<u32> = delay().optional(),
        /// Seconds for which the destination continues after it was disabled. It stops without delay when the session ends, a limit
        /// is reached, or it is deleted.
        stop_delay_seconds "stopDelaySeconds": Option<u32> = delay().optional(),
        /// For types that record, when `config` is sent: whether to test the store first; default `true`.
        check_store "checkStore": Option<bool> = flag().optional(),
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
    /// The new key for publishing; secret.
    stream_key: String,
    /// The new key for the backup encoder; secret.
    backup_key: String,
}

/// Operations that change existing stream keys and destinations.
pub(super) struct EditsApi;

#[OpenApi(prefix_path = "/api")]
impl EditsApi {
    /// Set hard limits
    ///
    /// Send at least one limit. An absent limit stays unchanged; `null` removes it. Limits count per session.
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
        let LimitsInput { max_sats, max_duration_minutes } = body.0;
        let change = LimitsChange { max_sats, max_duration_minutes };
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
    /// A running session ends if its encoder's address is no longer allowed.
    #[oai(path = "/streams/:id", method = "patch", operation_id = "changeStream", tag = "Tag::Streams")]
    async fn change_stream(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        /// Stream key identifier.
        id: Path<i64>,
        body: Body<StreamChangeInput>,
    ) -> Result<Json<Done>> {
        let StreamChangeInput { label, allowed_addresses: allowed, srt_passphrase } = body.0;
        let change = StreamChange { label, allowed, srt_passphrase };
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
    /// The old key and its backup key stop working at once, and the running session ends.
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
            app.live.revoked(CommandTarget::Stream(stream), EndReason::KeyRevoked).await;
            Ok(())
        })
        .await?;
        let backup_key = backup_key(key.expose()).into_inner();
        Ok(Json(Rotated { success: true, id: id.0, stream_key: key.into_inner(), backup_key }))
    }

    /// Change a destination
    ///
    /// Takes effect at once or after the delays, also in a running session. Other destinations are not affected.
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
            let config = config.map_err(|refused| destinations::config_refused(&refused, ""))?;
            let input = DestinationInput::new(known.kind, config, body.0.check_store.unwrap_or(true));
            let accepted = destinations::accept(&app, account, input, "").await?;
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
                // Uploads of recordings continue without a session.
                app.archive.destination_changed(destination).await;
            }
            Ok(())
        })
        .await?;
        Ok(Json(Done::new()))
    }
}
