//! What can be read without managing anything.

use std::sync::Arc;

use poem::web::Data;
use poem::{Request, Result};
use poem_openapi::payload::{Json, Response};
use poem_openapi::{Object, OpenApi};

use super::app::{App, RATE_STATUS, Tag, VERSION};
use crate::auth;
use crate::base::RequestContext;
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
    /// Sats per minute and destination.
    #[oai(rename = "COST_PER_PLATFORM")]
    cost_per_platform: i64,
    /// Destinations of a session that are free.
    #[oai(rename = "FREE_PLATFORMS")]
    free_platforms: i64,
}

/// What the service allows at most. An addition to the specification.
#[derive(Clone, Debug, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct PublicLimits {
    /// Destinations of one stream.
    destinations_per_stream: i64,
    /// Streams of one account.
    streams_per_account: i64,
    /// Webhooks of one account.
    webhooks_per_account: i64,
    /// API keys of one account that are not revoked.
    keys_per_account: i64,
    /// Management requests that read, per minute and key or login session.
    reads_per_minute: u64,
    /// Management requests that write, per minute and key or login session.
    writes_per_minute: u64,
    /// Requests for the stream status, and as many for the active cost, per minute and key.
    status_per_minute: u64,
    /// Tries to log in, per minute and network.
    logins_per_minute: u64,
    /// Connections of encoders at once from one network: an IPv4 address, or the first 64 bits of an IPv6 address.
    ingest_connections_per_network: u64,
    /// HTTP connections at once from one network.
    http_connections_per_network: u64,
    /// A charge that takes the balance below so many sats is told as `balance.low`; 0 = none is.
    low_balance_sats: i64,
}

/// The service's public configuration.
#[derive(Clone, Debug, Object)]
pub(super) struct PublicConfig {
    /// Prices.
    pricing: Pricing,
    /// Limits.
    limits: PublicLimits,
    /// Service version.
    version: String,
    /// Time of the answer, Unix milliseconds.
    timestamp: i64,
}

/// Public operations.
pub(super) struct PublicApi;

#[OpenApi(prefix_path = "/api/public", tag = "Tag::Public")]
impl PublicApi {
    /// Read prices, limits and version
    ///
    /// Needs no key; a sent key is ignored. What is over a limit is refused with 409, or with 429 and `Retry-After`.
    #[oai(path = "/config", method = "get", operation_id = "getPublicConfig")]
    async fn config(&self, app: Data<&Arc<App>>, request: &Request) -> Result<Response<Json<PublicConfig>>> {
        let context = RequestContext::of(request);
        context.count(app.limits.config.hit(Network::from(context.client), app.clock.monotonic()))?;
        let pricing = &app.config.pricing;
        let config = PublicConfig {
            pricing: Pricing {
                bandwidth_limit_gb_per_hour: pricing.bandwidth_limit_gb_per_hour,
                bandwidth_overage_sats_per_gb: pricing.bandwidth_overage_sats_per_gb,
                cost_per_platform: pricing.cost_per_platform,
                free_platforms: pricing.free_platforms,
            },
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
        webhooks_per_account: app.config.limits.webhooks_per_account,
        keys_per_account,
        reads_per_minute: count(auth::RATE_READS.max),
        writes_per_minute: count(auth::RATE_WRITES.max),
        status_per_minute: count(RATE_STATUS.max),
        logins_per_minute: count(auth::RATE_LOGINS.max),
        ingest_connections_per_network: count(app.limits.ingest_connections_per_network),
        http_connections_per_network: count(app.limits.http_connections_per_network),
        low_balance_sats: app.config.low_balance().to_sats_floor().0,
    }
}
