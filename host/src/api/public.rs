//! What can be read without managing anything.

use std::sync::Arc;

use poem::web::Data;
use poem::{Request, Result};
use poem_openapi::payload::{Json, Response};
use poem_openapi::{Object, OpenApi};

use super::{App, RequestContext, Tag, VERSION};
use crate::places::Network;

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

/// The service's public configuration.
#[derive(Clone, Debug, Object)]
pub(super) struct PublicConfig {
    /// Prices.
    pricing: Pricing,
    /// Service version.
    version: String,
    /// Time of the answer, Unix milliseconds.
    timestamp: i64,
}

/// Public operations.
pub(super) struct PublicApi;

#[OpenApi(prefix_path = "/api/public", tag = "Tag::Public")]
impl PublicApi {
    /// Read prices and version
    ///
    /// Needs no key; a sent key is ignored.
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
            version: VERSION.to_owned(),
            timestamp: app.clock.now().0,
        };
        Ok(Response::new(Json(config)).header("Cache-Control", "max-age=60"))
    }
}
