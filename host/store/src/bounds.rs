//! Bounds of lists, and caps on created rows.

use satcast_core::ids::{HOUR_MS, UnixMillis};

/// One page of a list that runs from the newest to the oldest.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Only rows with a smaller id; `None` starts at the newest.
    pub before: Option<i64>,
    /// At most this many rows.
    pub limit: i64,
}

impl Page {
    /// All rows; for lists that a cap keeps short.
    pub const ALL: Page = Page { before: None, limit: i64::MAX };

    /// The id that all rows of the page are below.
    pub(crate) fn end(self) -> i64 {
        self.before.unwrap_or(i64::MAX)
    }
}

/// A half-open range of time; an absent end is unbounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeRange {
    /// The first moment in it.
    pub from: Option<UnixMillis>,
    /// The first moment after it.
    pub to: Option<UnixMillis>,
}

impl TimeRange {
    /// The bounds as parameters of a statement.
    pub(crate) fn bounds(self) -> (i64, i64) {
        (self.from.map_or(i64::MIN, |time| time.0), self.to.map_or(i64::MAX, |time| time.0))
    }

    /// The same for starts of clock hours: the hour that contains `from` overlaps the range as well.
    pub(crate) fn hours(self) -> (i64, i64) {
        let (from, to) = self.bounds();
        (from.saturating_sub(from.rem_euclid(HOUR_MS)), to)
    }
}

/// Caps that writes check inside their transaction.
#[derive(Clone, Copy, Debug)]
pub struct Caps {
    /// Most destinations of one stream.
    pub destinations_per_stream: i64,
    /// Most streams of one account.
    pub streams_per_account: i64,
    /// Most API keys of one account.
    pub keys_per_account: i64,
}
