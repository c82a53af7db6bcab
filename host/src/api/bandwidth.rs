//! Bandwidth of one account and clock hour, as the status shows it, and what the overage costs. Pure.

use poem_openapi::Object;

use crate::config::Pricing;
use crate::ids::{MSAT_PER_SAT, Msat, UnixMillis};

/// Bytes of a GB.
pub(super) const GB_BYTES: u64 = 1_000_000_000;
/// Parts of a GB that are shown.
const PARTS_PER_GB: u64 = 100;

/// Bandwidth of the account in the current UTC clock hour; zero when offline. GB are 10^9 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct Bandwidth {
    /// GB used, cut to two decimals.
    #[oai(rename = "usedGB")]
    used_gb: String,
    /// Free allowance in GB per hour.
    #[oai(rename = "limitGB")]
    limit_gb: i64,
    /// GB left in the allowance, two decimals; together with `usedGB` it is the allowance plus `overageGB`.
    #[oai(rename = "remainingGB")]
    remaining_gb: String,
    /// GB above the allowance, two decimals.
    #[oai(rename = "overageGB")]
    overage_gb: String,
    /// Sats for the overage, rounded down.
    overage_sats: i64,
    /// Start of the hour, Unix seconds.
    hour_start: i64,
}

impl Bandwidth {
    /// `used_bytes` in the hour of `now`.
    pub(super) fn of(used_bytes: u64, now: UnixMillis, pricing: &Pricing) -> Self {
        let limit_gb = pricing.bandwidth_limit_gb_per_hour;
        let used = used_bytes / (GB_BYTES / PARTS_PER_GB);
        let limit = at_least_zero(limit_gb).saturating_mul(PARTS_PER_GB);
        let due = overage_due(used_bytes, limit_gb, pricing.bandwidth_overage_sats_per_gb);
        Self {
            used_gb: decimal(used),
            limit_gb,
            remaining_gb: decimal(limit.saturating_sub(used)),
            overage_gb: decimal(used.saturating_sub(limit)),
            overage_sats: due.to_sats_floor().0,
            hour_start: now.hour_start().to_secs_floor(),
        }
    }
}

/// What the bytes of an account and hour above its allowance cost, floored once on the cumulative figure.
pub(super) fn overage_due(used_bytes: u64, limit_gb: i64, sats_per_gb: i64) -> Msat {
    let over = used_bytes.saturating_sub(at_least_zero(limit_gb).saturating_mul(GB_BYTES));
    let price_msat = u128::from(at_least_zero(sats_per_gb)) * u128::from(MSAT_PER_SAT.unsigned_abs());
    let due = u128::from(over) * price_msat / u128::from(GB_BYTES);
    Msat(i64::try_from(due).unwrap_or(i64::MAX))
}

fn at_least_zero(amount: i64) -> u64 {
    u64::try_from(amount).unwrap_or(0)
}

/// Hundredths with two decimals.
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
    };

    fn shown(used_bytes: u64) -> (String, String, String, i64) {
        let shown = Bandwidth::of(used_bytes, UnixMillis(7_200_000 + 59 * 60_000), &PRICING);
        assert_eq!((shown.limit_gb, shown.hour_start), (10, 7_200));
        (shown.used_gb, shown.remaining_gb, shown.overage_gb, shown.overage_sats)
    }

    fn texts(used: &str, remaining: &str, overage: &str, sats: i64) -> (String, String, String, i64) {
        (used.into(), remaining.into(), overage.into(), sats)
    }

    #[test]
    fn overage_is_floored_once_in_millisats() {
        let due = |over| overage_due(10 * GB_BYTES + over, 10, 5);
        assert_eq!(due(1_234_567_890), Msat(6_172));
        assert_eq!((due(0), due(199_999), due(200_000)), (Msat(0), Msat(0), Msat(1)));
        assert_eq!(overage_due(5 * GB_BYTES, 10, 5), Msat(0));
        assert_eq!(
            overage_due(u64::MAX, 0, 1_000_000_000),
            Msat(i64::MAX),
            "never more than the ledger holds"
        );
        assert_eq!(overage_due(u64::MAX, i64::MAX, i64::MAX), Msat(0));
    }

    #[test]
    fn amounts_are_cut_to_hundredths_and_add_up() {
        assert_eq!(shown(0), texts("0.00", "10.00", "0.00", 0));
        assert_eq!(shown(9_999_999), texts("0.00", "10.00", "0.00", 0));
        assert_eq!(shown(1_239_999_999), texts("1.23", "8.77", "0.00", 0));
        assert_eq!(shown(9_999_999_999), texts("9.99", "0.01", "0.00", 0));
        assert_eq!(shown(10_000_000_000), texts("10.00", "0.00", "0.00", 0));
        assert_eq!(shown(11_234_567_890), texts("11.23", "0.00", "1.23", 6));
    }
}
