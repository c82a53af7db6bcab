//! Bandwidth of one account in one clock hour, as the stream status shows it. No I/O.

use poem_openapi::Object;

use satcast_core::config::Pricing;
use satcast_core::ids::{Msat, UnixMillis};
use satcast_money::billing::overage::GB_BYTES;

/// Hundredths of a GB.
const PARTS_PER_GB: u64 = 100;

/// Bandwidth of the account in the current UTC clock hour; zero when offline. GB are 10^9 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct Bandwidth {
    /// GB used, truncated to two decimals.
    #[oai(rename = "usedGB")]
    used_gb: String,
    /// Free allowance in GB per hour.
    #[oai(rename = "limitGB")]
    limit_gb: i64,
    /// GB left in the allowance, two decimals; `usedGB` + `remainingGB` = `limitGB` + `overageGB`.
    #[oai(rename = "remainingGB")]
    remaining_gb: String,
    /// GB above the allowance, two decimals.
    #[oai(rename = "overageGB")]
    overage_gb: String,
    /// Sats charged for the overage so far, rounded down; charges are posted at each full minute.
    overage_sats: i64,
    /// Start of the hour, Unix seconds.
    hour_start: i64,
}

impl Bandwidth {
    /// `used_bytes` and `charged` are those of the clock hour that contains `now`.
    pub(super) fn of(used_bytes: u64, charged: Msat, now: UnixMillis, pricing: &Pricing) -> Self {
        let limit_gb = pricing.bandwidth_limit_gb_per_hour;
        let used = used_bytes / (GB_BYTES / PARTS_PER_GB);
        let limit = at_least_zero(limit_gb).saturating_mul(PARTS_PER_GB);
        Self {
            used_gb: decimal(used),
            limit_gb,
            remaining_gb: decimal(limit.saturating_sub(used)),
            overage_gb: decimal(used.saturating_sub(limit)),
            overage_sats: charged.to_sats_floor().0,
            hour_start: now.hour_start().to_secs_floor(),
        }
    }
}

fn at_least_zero(amount: i64) -> u64 {
    u64::try_from(amount).unwrap_or(0)
}

/// Formats hundredths with two decimals.
fn decimal(hundredths: u64) -> String {
    format!("{}.{:02}", hundredths / PARTS_PER_GB, hundredths % PARTS_PER_GB)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICING: Pricing = Pricing {
        cost_per_platform: 2,
        free_platforms: 1,
        bandwidth_limit_gb_per_hour: 10,
        bandwidth_overage_sats_per_gb: 5,
        archive_recovery_sats: 360,
        clip_sats: 0,
    };

    fn shown(used_bytes: u64) -> (String, String, String, i64) {
        let shown = Bandwidth::of(used_bytes, Msat(6_172), UnixMillis(7_200_000 + 59 * 60_000), &PRICING);
        assert_eq!((shown.limit_gb, shown.hour_start), (10, 7_200));
        (shown.used_gb, shown.remaining_gb, shown.overage_gb, shown.overage_sats)
    }

    fn texts(used: &str, remaining: &str, overage: &str, sats: i64) -> (String, String, String, i64) {
        (used.into(), remaining.into(), overage.into(), sats)
    }

    #[test]
    fn amounts_are_cut_to_hundredths_and_add_up() {
        assert_eq!(shown(0), texts("0.00", "10.00", "0.00", 6));
        assert_eq!(shown(9_999_999), texts("0.00", "10.00", "0.00", 6));
        assert_eq!(shown(1_239_999_999), texts("1.23", "8.77", "0.00", 6));
        assert_eq!(shown(9_999_999_999), texts("9.99", "0.01", "0.00", 6));
        assert_eq!(shown(10_000_000_000), texts("10.00", "0.00", "0.00", 6));
        assert_eq!(shown(11_234_567_890), texts("11.23", "0.00", "1.23", 6));
    }
}
