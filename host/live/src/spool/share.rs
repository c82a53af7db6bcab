//! The disk quota of each account for its destinations together, so that slow destinations of one account do not fill the disk.

use std::io;
use std::time::Duration;

use satcast_quota::{Full, Permit, Quota};

use satcast_core::ids::AccountId;
use satcast_core::log_limit::LogLimits;

/// Most bytes on disk for all destinations of one account.
pub(super) const ACCOUNT_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;

/// Least time between two lines of one kind about the destinations of one account, because a failing disk or a destination that stalls
/// repeatedly would flood the log.
const LINES_PAUSE: Duration = Duration::from_secs(10);

/// Kinds of log lines about packets on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Line {
    /// Packets start to wait on disk, or none are left there.
    Waits,
    /// The spool is full.
    Overflow,
    /// The disk fails.
    Disk,
}

/// Bytes on disk by account, and the log limit. There is no total limit, because `FREE_BYTES_MIN` stays free.
#[derive(Debug)]
pub(crate) struct Shares {
    bytes: Quota<AccountId>,
    pub(super) lines: LogLimits<(AccountId, Line)>,
}

impl Default for Shares {
    fn default() -> Self {
        Self { bytes: Quota::new(u64::MAX, ACCOUNT_BYTES_MAX), lines: LogLimits::new(LINES_PAUSE) }
    }
}

impl Shares {
    /// An empty share of the account's quota, for one spool.
    pub(crate) fn of(&self, account: AccountId) -> Permit<AccountId> {
        self.bytes.nothing(account)
    }
}

/// The quota of the account is used up.
pub(super) fn account_full(_: Full) -> io::Error {
    let text = format!(
        "the destinations of one account may hold {ACCOUNT_BYTES_MAX} bytes on disk, and this limit is reached"
    );
    io::Error::new(io::ErrorKind::QuotaExceeded, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_account_has_its_share_of_the_disk_and_no_more() {
        let shares = Shares::default();
        let [mut first, mut second, mut other] = [1, 1, 2].map(|account| shares.of(AccountId(account)));
        first.resize(ACCOUNT_BYTES_MAX - 1).unwrap();
        assert!(second.resize(2).is_err());
        other.resize(ACCOUNT_BYTES_MAX).unwrap();
        first.resize(0).unwrap();
        second.resize(2).unwrap();
    }

    #[test]
    fn account_full_text() {
        let refused = account_full(Full::Share);
        assert_eq!(refused.kind(), io::ErrorKind::QuotaExceeded);
        assert_eq!(
            refused.to_string(),
            "the destinations of one account may hold 4294967296 bytes on disk, and this limit is reached"
        );
    }
}
