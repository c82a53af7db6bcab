//! The public configuration.

use std::sync::Arc;

use poem::web::Data;
use poem::{Request, Result};
use poem_openapi::payload::{Json, Response};
use poem_openapi::{Object, OpenApi};

use super::app::{App, Tag, VERSION};
use super::null::Null;
use crate::auth;
use crate::base::RequestContext;
use satcast_core::config::IngestAddresses;
use satcast_core::networks::Network;
use satcast_store::Caps;

/// Prices.
#[derive(Clone, Debug, Object)]
pub(super) struct Pricing {
    /// Free GB (10^9 bytes) per account and clock hour.
    #[oai(rename = "BANDWIDTH_LIMIT_GB_PER_HOUR")]
    bandwidth_limit_gb_per_hour: i64,
    /// Sats per GB over the allowance.
    #[oai(rename = "BANDWIDTH_OVERAGE_SATS_PER_GB")]
    bandwidth_overage_sats_per_gb: i64,
    /// Sats per minute for each destination that is not free.
    #[oai(rename = "COST_PER_PLATFORM")]
    cost_per_platform: i64,
    /// Number of free destinations per session.
    #[oai(rename = "FREE_PLATFORMS")]
    free_platforms: i64,
}

/// Prices of single actions.
#[derive(Clone, Debug, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct PublicFees {
    /// Sats per attempt to upload a failed recording again; 0 when the service is free of charge.
    archive_recovery_sats: i64,
    /// Sats for a clip, charged when it is ready; 0 when the service is free of charge.
    clip_sats: i64,
}

/// Servers for encoders: their addresses without a stream key.
#[derive(Clone, Debug, Object)]
pub(super) struct PublicIngest {
    /// Server for RTMP.
    rtmp: String,
    /// Server for RTMP over TLS; null when the service has none.
    rtmps: Null<String>,
    /// Server for SRT, where the stream key is the `streamid`; null when the service has none.
    srt: Null<String>,
    /// Address for WHIP, where the stream key is the bearer token; null when the service has none.
    whip: Null<String>,
}

impl From<&IngestAddresses> for PublicIngest {
    fn from(addresses: &IngestAddresses) -> Self {
        let IngestAddresses { rtmp, rtmps, srt, whip } = addresses.clone();
        Self { rtmp, rtmps: rtmps.into(), srt: srt.into(), whip: whip.into() }
    }
}

/// Limits of the service.
#[derive(Clone, Debug, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct PublicLimits {
    /// Most destinations of one stream.
    destinations_per_stream: i64,
    /// Most streams of one account.
    streams_per_account: i64,
    /// Most webhooks of one account.
    webhooks_per_account: i64,
    /// Most API keys of one account; revoked keys do not count.
    keys_per_account: i64,
    /// Most clips of one account.
    clips_per_account: i64,
    /// Management reads per minute, for each key or login session.
    reads_per_minute: u64,
    /// Management writes per minute, for each key or login session.
    writes_per_minute: u64,
    /// Requests per minute with one key, separately for the stream status and the active cost.
    status_per_minute: u64,
    /// Login attempts per minute from one network.
    logins_per_minute: u64,
    /// Concurrent encoder connections from one network: an IPv4 address, or the first 64 bits of an IPv6 address.
    ingest_connections_per_network: u64,
    /// Concurrent HTTP connections from one network.
    http_connections_per_network: u64,
    /// The event `balance.low` is sent when a charge takes the balance below this number of sats; 0 = never.
    low_balance_sats: i64,
}

/// The service's public configuration.
#[derive(Clone, Debug, Object)]
pub(super) struct PublicConfig {
    /// Prices.
    pricing: Pricing,
    /// Prices of single actions.
    fees: PublicFees,
    /// Servers for encoders.
    ingest: PublicIngest,
    /// Limits.
    limits: PublicLimits,
    /// Service version.
    version: String,
    /// Time of the response, Unix milliseconds.
    timestamp: i64,
}

/// Public operations.
pub(super) struct PublicApi;

#[OpenApi(prefix_path = "/api/public", tag = "Tag::Public")]
impl PublicApi {
    /// Read prices, limits, servers for encoders and version
    ///
    /// Needs no key; a key that is sent is ignored. Requests over a limit get 409, or 429 with `Retry-After`.
    #[oai(path = "/config", method = "get", operation_id = "getPublicConfig")]
    async fn config(&self, app: Data<&Arc<App>>, request: &Request) -> Result<Response<Json<PublicConfig>>> {
        let context = RequestContext::of(request);
        app.count(&context, request, &app.limits.config, Network::from(context.client)).await?;
        let settings = app.config();
        let pricing = &settings.pricing;
        let config = PublicConfig {
            pricing: Pricing {
                bandwidth_limit_gb_per_hour: pricing.bandwidth_limit_gb_per_hour,
                bandwidth_overage_sats_per_gb: pricing.bandwidth_overage_sats_per_gb,
                cost_per_platform: pricing.cost_per_platform,
                free_platforms: pricing.free_platforms,
            },
            fees: PublicFees {
                archive_recovery_sats: settings.recovery_fee().to_sats_floor().0,
                clip_sats: settings.clip_price().to_sats_floor().0,
            },
            ingest: (&app.ingest).into(),
            limits: limits(&app),
            version: VERSION.to_owned(),
            timestamp: app.clock.now().0,
        };
        Ok(Response::new(Json(config)).header("Cache-Control", "max-age=60"))
    }
}

fn limits(app: &App) -> PublicLimits {
    let Caps { destinations_per_stream, streams_per_account, keys_per_account } = app.caps();
    let count = |count: usize| count as u64;
    PublicLimits {
        destinations_per_stream,
        streams_per_account,
        webhooks_per_account: app.config().limits.webhooks_per_account,
        keys_per_account,
        clips_per_account: app.config().limits.clips_per_account,
        reads_per_minute: count(auth::RATE_READS.max),
        writes_per_minute: count(auth::RATE_WRITES.max),
        status_per_minute: count(auth::RATE_STATUS.max),
        logins_per_minute: count(auth::RATE_LOGINS.max),
        ingest_connections_per_network: count(app.limits.ingest_connections_per_network),
        http_connections_per_network: count(app.limits.http_connections_per_network),
        low_balance_sats: app.config().low_balance().to_sats_floor().0,
    }
}
