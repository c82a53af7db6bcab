//! What the destinations of one account may have on disk together, so that one account's slow ones do not take it from the others.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::ids::AccountId;
use crate::log_limit::LogLimits;

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

/// Bytes on disk, by account, and what was said of them.
#[derive(Debug)]
pub(in crate::live) struct Shares {
    bytes: Mutex<HashMap<AccountId, Weak<AtomicU64>>>,
    pub(super) lines: LogLimits<(AccountId, Line)>,
}

impl Default for Shares {
    fn default() -> Self {
        Self { bytes: Mutex::default(), lines: LogLimits::new(LINES_PAUSE) }
    }
}

impl Shares {
    /// The count of one account, kept for as long as somebody has it.
    pub(in crate::live) fn of(&self, account: AccountId) -> Share {
        let mut all = self.bytes.lock();
        let bytes = all.get(&account).and_then(Weak::upgrade).unwrap_or_default();
        all.retain(|_, bytes| bytes.strong_count() > 0);
        all.insert(account, Arc::downgrade(&bytes));
        Share { bytes, own: 0, most: ACCOUNT_BYTES_MAX }
    }
}

/// What one spool has of its account's; its drop gives it back.
#[derive(Debug)]
pub(in crate::live) struct Share {
    bytes: Arc<AtomicU64>,
    own: u64,
    most: u64,
}

impl Share {
    /// Takes so many bytes in place of those it had.
    ///
    /// # Errors
    /// The account's other destinations leave no room for them; it keeps what it had.
    pub(super) fn set(&mut self, own: u64) -> io::Result<()> {
        let taken = self.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, |all| {
            let all = all - self.own + own;
            (own <= self.own || all <= self.most).then_some(all)
        });
        let Ok(_) = taken else {
            return Err(no_room(self.most));
        };
        self.own = own;
        Ok(())
    }
}

fn no_room(most: u64) -> io::Error {
    let text = format!("{most} bytes may wait on disk for the destinations of one account");
    io::Error::new(io::ErrorKind::QuotaExceeded, text)
}

impl Drop for Share {
    fn drop(&mut self) {
        self.bytes.fetch_sub(self.own, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(shares: &Shares, account: i64) -> Share {
        let mut share = shares.of(AccountId(account));
        share.most = 10;
        share
    }

    #[test]
    fn one_account_has_its_share_of_the_disk_and_no_more() {
        let shares = Shares::default();
        assert_eq!(shares.of(AccountId(1)).most, ACCOUNT_BYTES_MAX);
        let (mut first, mut second, mut other) = (of(&shares, 1), of(&shares, 1), of(&shares, 2));
        first.set(4).unwrap();
        second.set(6).unwrap();
        let refused = first.set(5).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::QuotaExceeded);
        assert_eq!(refused.to_string(), no_room(10).to_string());
        other.set(10).unwrap();
        // What was read makes room, and what is given up.
        second.set(2).unwrap();
        first.set(8).unwrap();
        first.set(9).unwrap_err();
        drop(second);
        first.set(10).unwrap();
    }

    #[test]
    fn nothing_is_kept_of_accounts_without_a_spool() {
        let shares = Shares::default();
        for account in 0..3 {
            let mut share = of(&shares, account);
            share.set(7).unwrap();
        }
        assert_eq!(shares.of(AccountId(0)).bytes.load(Ordering::Acquire), 0);
        assert_eq!(shares.bytes.lock().len(), 1);
    }

    #[test]
    fn no_room_text() {
        assert_eq!(no_room(10).to_string(), "10 bytes may wait on disk for the destinations of one account");
    }
}
