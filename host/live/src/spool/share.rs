//! What the destinations of one account may have on disk together, so that one account's slow ones do not take it from the others.

use std::io;
use std::time::Duration;

use satcast_quota::{Full, Permit, Quota};

use satcast_core::ids::AccountId;
use satcast_core::log_limit::LogLimits;

/// Most bytes that may wait for all destinations of one account.
pub(super) const ACCOUNT_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;

/// Least time between two lines of one kind about the destinations of one account: a disk that fails, or a destination that stalls and
/// goes on, does so again and again.
const LINES_PAUSE: Duration = Duration::from_secs(10);

/// What the log says of what waits on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Line {
    /// It begins to wait on disk, and has gone from there.
    Waits,
    /// More waits than may.
    Overflow,
    /// The disk fails.
    Disk,
}

/// Bytes on disk, by account, and what was said of them. There is no total: see what stays free.
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
    /// What one spool has of its account's: nothing yet.
    pub(crate) fn of(&self, account: AccountId) -> Permit<AccountId> {
        self.bytes.nothing(account)
    }
}

/// The account's other destinations leave no room.
pub(super) fn no_room(_: Full) -> io::Error {
    let text = format!("{ACCOUNT_BYTES_MAX} bytes may wait on disk for the destinations of one account");
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
    fn no_room_text() {
        let refused = no_room(Full::Share);
        assert_eq!(refused.kind(), io::ErrorKind::QuotaExceeded);
        assert_eq!(
            refused.to_string(),
            "4294967296 bytes may wait on disk for the destinations of one account"
        );
    }
}
