//! Analytics: bandwidth, minutes and sats of earlier sessions.

use std::sync::Arc;

use poem::Result;
use poem::web::Data;
use poem_openapi::param::Query;
use poem_openapi::payload::{Json, Response};
use poem_openapi::{Enum, Object, OpenApi};

use super::app::{App, Tag};
use super::caller::Caller;
use super::page::{PageRequest, with_link};
use super::range::{self, Named};
use crate::base::{ApiError, Code};
use satcast_core::config::Pricing;
use satcast_core::ids::{Msat, Sats, StreamId, UnixMillis};
use satcast_money::billing::overage::GB_BYTES;
use satcast_store::{HistoryEntry, HistoryFilter};

/// Longest platform name in a filter, in characters.
const PLATFORM_CHARS_MAX: usize = 64;

/// The current UTC hour, day, week, month or year, or all time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[oai(rename_all = "lowercase", rename = "BandwidthFilter")]
pub(super) enum BandwidthFilter {
    /// The current clock hour.
    Hour,
    /// The current day.
    Day,
    /// The current week, from Monday.
    Week,
    /// The current month.
    Month,
    /// The current year.
    Year,
    /// All time.
    All,
}

/// The current UTC day, week, month or year, or all time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[oai(rename_all = "lowercase", rename = "DashboardFilter")]
pub(super) enum DashboardFilter {
    /// The current day.
    Day,
    /// The current week, from Monday.
    Week,
    /// The current month.
    Month,
    /// The current year.
    Year,
    /// All time.
    All,
}

impl From<BandwidthFilter> for Named {
    fn from(filter: BandwidthFilter) -> Self {
        match filter {
            BandwidthFilter::Hour => Named::Hour,
            BandwidthFilter::Day => Named::Day,
            BandwidthFilter::Week => Named::Week,
            BandwidthFilter::Month => Named::Month,
            BandwidthFilter::Year => Named::Year,
            BandwidthFilter::All => Named::All,
        }
    }
}

impl From<DashboardFilter> for Named {
    fn from(filter: DashboardFilter) -> Self {
        match filter {
            DashboardFilter::Day => Named::Day,
            DashboardFilter::Week => Named::Week,
            DashboardFilter::Month => Named::Month,
            DashboardFilter::Year => Named::Year,
            DashboardFilter::All => Named::All,
        }
    }
}

/// Bytes sent to viewers.
#[derive(Clone, Debug, PartialEq, Object)]
pub(super) struct BandwidthUsage {
    /// GB (10^9 bytes).
    #[oai(rename = "totalGB")]
    total_gb: f64,
    /// GB above the free allowance of each clock hour.
    #[oai(rename = "overageGB")]
    overage_gb: f64,
    /// Sats charged for the overage, rounded down.
    #[oai(rename = "overageSats")]
    overage_sats: i64,
}

impl BandwidthUsage {
    /// Each hour has its own allowance; `charged` is the amount posted for these hours.
    fn of(hours: &[(UnixMillis, u64)], charged: Msat, pricing: &Pricing) -> Self {
        let limit = u64::try_from(pricing.bandwidth_limit_gb_per_hour).unwrap_or(0).saturating_mul(GB_BYTES);
        let (mut total, mut over) = (0_u128, 0_u128);
        for (_, bytes) in hours {
            total += u128::from(*bytes);
            over += u128::from(bytes.saturating_sub(limit));
        }
        let gb = |bytes: u128| bytes as f64 / GB_BYTES as f64;
        Self { total_gb: gb(total), overage_gb: gb(over), overage_sats: charged.to_sats_floor().0 }
    }
}

/// Totals over sessions.
#[derive(Clone, Debug, PartialEq, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct DashboardStats {
    /// Minutes of sessions, to two decimals.
    total_minutes: f64,
    /// Sats charged for minutes.
    total_sats_spent: i64,
}

/// One destination of an ended session.
#[derive(Clone, Debug, Object)]
#[oai(rename_all = "camelCase", rename = "StreamHistoryEntry")]
pub(super) struct Entry {
    /// Entry identifier.
    id: i64,
    /// Stream key identifier.
    stream_key_id: i64,
    /// Label of the stream key.
    stream_key_label: String,
    /// Session identifier.
    session_id: String,
    /// Platform name of the destination.
    platform: String,
    /// Start, Unix milliseconds.
    started_at: i64,
    /// End, Unix milliseconds.
    ended_at: i64,
    /// Minutes, to two decimals.
    duration_minutes: f64,
    /// The destination's share of the session's cost, in whole sats.
    total_cost_sats: i64,
}

impl From<HistoryEntry> for Entry {
    fn from(entry: HistoryEntry) -> Self {
        let millis = entry.ended_at.0.saturating_sub(entry.started_at.0);
        Self {
            id: entry.id,
            stream_key_id: entry.stream_id.0,
            stream_key_label: entry.stream_label,
            session_id: entry.session_id.0,
            platform: entry.platform,
            started_at: entry.started_at.0,
            ended_at: entry.ended_at.0,
            duration_minutes: minutes(millis.max(0).unsigned_abs()),
            total_cost_sats: entry.cost.to_sats_floor().0,
        }
    }
}

/// Minutes, truncated to two decimals.
fn minutes(millis: u64) -> f64 {
    const MILLIS_PER_HUNDREDTH: u64 = 600;
    (millis / MILLIS_PER_HUNDREDTH) as f64 / 100.0
}

/// Analytics operations.
pub(super) struct AnalyticsApi;

#[OpenApi(prefix_path = "/api", tag = "Tag::Analytics")]
impl AnalyticsApi {
    /// Read bandwidth usage
    ///
    /// The sum of all clock hours that overlap the range. Deleted destinations are included.
    #[oai(path = "/bandwidth/usage", method = "get", operation_id = "getBandwidthUsage")]
    async fn bandwidth(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        /// The current UTC hour, day, week, month or year, or all time; default `hour`.
        filter: Query<Option<BandwidthFilter>>,
        /// Start of the range, Unix milliseconds; overrides `filter`.
        #[oai(name = "startDate")]
        start_date: Query<Option<i64>>,
        /// End of the range (exclusive), Unix milliseconds; overrides `filter`.
        #[oai(name = "endDate")]
        end_date: Query<Option<i64>>,
    ) -> Result<Json<BandwidthUsage>> {
        let filter = filter.0.unwrap_or(BandwidthFilter::Hour);
        let range = range::range(filter.into(), start_date.0, end_date.0, app.clock.now())?;
        let hours = app.store.bandwidth_by_hour(caller.account, range).await.map_err(ApiError::from)?;
        let charged = app.store.overage_charges(caller.account, range).await.map_err(ApiError::from)?;
        Ok(Json(BandwidthUsage::of(&hours, charged, &app.config().pricing)))
    }

    /// Read dashboard statistics
    ///
    /// Minutes of sessions within the range (a running session counts up to now), and the per-minute charges posted
    /// within it.
    #[oai(path = "/dashboard/stats", method = "get", operation_id = "getDashboardStats")]
    async fn dashboard(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        /// The current UTC day, week, month or year, or all time; default `day`.
        filter: Query<Option<DashboardFilter>>,
        /// Start of the range, Unix milliseconds; overrides `filter`.
        #[oai(name = "startDate")]
        start_date: Query<Option<i64>>,
        /// End of the range (exclusive), Unix milliseconds; overrides `filter`.
        #[oai(name = "endDate")]
        end_date: Query<Option<i64>>,
    ) -> Result<Json<DashboardStats>> {
        let (filter, now) = (filter.0.unwrap_or(DashboardFilter::Day), app.clock.now());
        let range = range::range(filter.into(), start_date.0, end_date.0, now)?;
        let millis = app.store.streamed_millis(caller.account, range, now).await.map_err(ApiError::from)?;
        let spent = app.store.minute_charges(caller.account, range).await.map_err(ApiError::from)?;
        Ok(Json(DashboardStats { total_minutes: minutes(millis), total_sats_spent: spent.to_sats_floor().0 }))
    }

    /// Read the stream history
    ///
    /// Ended sessions, newest first, with one entry for each destination that took part. Entries must match all filters.
    /// The `Link` header has the next page.
    #[oai(path = "/stream-history", method = "get", operation_id = "getStreamHistory")]
    async fn history(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        request: &poem::Request,
        /// Only sessions that started at or after this time, Unix milliseconds.
        #[oai(name = "startDate")]
        start_date: Query<Option<i64>>,
        /// Only sessions that started before this time, Unix milliseconds.
        #[oai(name = "endDate")]
        end_date: Query<Option<i64>>,
        /// Lowest cost in sats.
        #[oai(name = "minCost", validator(minimum(value = "0")))]
        min_cost: Query<Option<i64>>,
        /// Highest cost in sats.
        #[oai(name = "maxCost", validator(minimum(value = "0")))]
        max_cost: Query<Option<i64>>,
        /// Platform name of the destination.
        #[oai(validator(max_length = 64))]
        platform: Query<Option<String>>,
        /// Stream key identifier.
        #[oai(name = "streamKeyId")]
        stream_key_id: Query<Option<i64>>,
        /// Entries per page, 1 to 1000.
        #[oai(validator(minimum(value = "1"), maximum(value = "1000")))]
        limit: Query<Option<u32>>,
        /// Position of the page, from a `Link` header.
        cursor: Query<Option<String>>,
    ) -> Result<Response<Json<Vec<Entry>>>> {
        let page = PageRequest::new(limit.0, cursor.0.as_deref())?;
        let refused = |text: &str| ApiError::malformed(Code::MalformedParameter, text);
        if min_cost.0.is_some_and(|cost| cost < 0) || max_cost.0.is_some_and(|cost| cost < 0) {
            return Err(refused("Query parameters `minCost` and `maxCost` must not be below 0").into());
        }
        if let (Some(min), Some(max)) = (min_cost.0, max_cost.0)
            && min > max
        {
            return Err(refused("Query parameter `minCost` is above `maxCost`").into());
        }
        if platform.0.as_ref().is_some_and(|name| name.chars().count() > PLATFORM_CHARS_MAX) {
            return Err(refused("Query parameter `platform` is longer than any platform name").into());
        }
        let filter = HistoryFilter {
            range: range::dates(start_date.0, end_date.0)?,
            min_cost: min_cost.0.map(Sats),
            max_cost: max_cost.0.map(Sats),
            platform: platform.0,
            stream: stream_key_id.0.map(StreamId),
        };
        let found = app.store.history(caller.account, filter, page.to_store()).await;
        let mut entries = found.map_err(ApiError::from)?;
        let address = format!("{}/api/stream-history", app.config().public_base());
        let link = page.finish_query(&mut entries, &address, request.uri().query(), |entry| entry.id);
        Ok(with_link(Json(entries.into_iter().map(Entry::from).collect()), link))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hour_has_its_own_allowance() {
        let pricing = Pricing {
            cost_per_platform: 2,
            free_platforms: 1,
            bandwidth_limit_gb_per_hour: 10,
            bandwidth_overage_sats_per_gb: 5,
            archive_recovery_sats: 360,
            clip_sats: 0,
        };
        let usage = |bytes: &[u64]| {
            let hours: Vec<_> = bytes.iter().map(|bytes| (UnixMillis(0), *bytes)).collect();
            BandwidthUsage::of(&hours, Msat(6_999), &pricing)
        };
        let two = usage(&[11_234_567_890, 9_999_999_999]);
        assert_eq!((two.overage_sats, two.overage_gb), (6, 1.234_567_89));
        assert_eq!(two.total_gb, 21.234_567_889);
        assert_eq!(usage(&[]).total_gb, 0.0);
    }

    #[test]
    fn minutes_have_two_decimals() {
        assert_eq!([minutes(90_000), minutes(599), minutes(61_234)], [1.5, 0.0, 1.02]);
    }
}
