//! The time filters of analytics: the current UTC clock hour, day, week, month or year, or dates. No I/O.

use time::{Date, Duration, Month, OffsetDateTime, Time};

use crate::base::{ApiError, Code};
use satcast_core::ids::UnixMillis;
use satcast_store::TimeRange;

/// A named time range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    Hour,
    Day,
    Week,
    Month,
    Year,
    All,
}

/// The range of the dates, or of `filter` without dates. One date alone leaves the other end open.
///
/// # Errors
/// 400 for a start after the end, and for a time outside the calendar.
pub(super) fn range(
    filter: Named,
    start: Option<i64>,
    end: Option<i64>,
    now: UnixMillis,
) -> Result<TimeRange, ApiError> {
    if start.is_none() && end.is_none() {
        return named(filter, now)
            .ok_or_else(|| ApiError::malformed(Code::MalformedParameter, "The time is out of range"));
    }
    dates(start, end)
}

/// The range between two dates, each of which may be absent.
///
/// # Errors
/// 400 for a start after the end.
pub(super) fn dates(start: Option<i64>, end: Option<i64>) -> Result<TimeRange, ApiError> {
    if let (Some(start), Some(end)) = (start, end)
        && start > end
    {
        let text = "Query parameter `startDate` is after `endDate`";
        return Err(ApiError::malformed(Code::MalformedParameter, text));
    }
    Ok(TimeRange { from: start.map(UnixMillis), to: end.map(UnixMillis) })
}

fn named(filter: Named, now: UnixMillis) -> Option<TimeRange> {
    let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(now.0) * 1_000_000).ok()?;
    let date = at.date();
    let (from, to) = match filter {
        Named::All => return Some(TimeRange::default()),
        Named::Hour => {
            let from = at.replace_time(Time::from_hms(at.hour(), 0, 0).ok()?);
            (from, from.checked_add(Duration::hours(1))?)
        }
        Named::Day => (midnight(date), midnight(date.checked_add(Duration::days(1))?)),
        Named::Week => {
            let days = i64::from(date.weekday().number_days_from_monday());
            let monday = date.checked_sub(Duration::days(days))?;
            (midnight(monday), midnight(monday.checked_add(Duration::days(7))?))
        }
        Named::Month => {
            let first = date.replace_day(1).ok()?;
            let next_year = if first.month() == Month::December { first.year() + 1 } else { first.year() };
            (midnight(first), midnight(Date::from_calendar_date(next_year, first.month().next(), 1).ok()?))
        }
        Named::Year => {
            let first = |year| Date::from_calendar_date(year, Month::January, 1).ok();
            (midnight(first(date.year())?), midnight(first(date.year() + 1)?))
        }
    };
    let millis = |time: OffsetDateTime| UnixMillis(time.unix_timestamp() * 1_000);
    Some(TimeRange { from: Some(millis(from)), to: Some(millis(to)) })
}

fn midnight(date: Date) -> OffsetDateTime {
    date.midnight().assume_utc()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: (i32, u8, u8, u8, u8, u8)) -> i64 {
        let (year, month, day, hour, minute, second) = text;
        let date = Date::from_calendar_date(year, Month::try_from(month).unwrap(), day).unwrap();
        date.with_hms(hour, minute, second).unwrap().assume_utc().unix_timestamp() * 1_000
    }

    fn bounds(filter: Named, now: i64) -> (i64, i64) {
        let range = range(filter, None, None, UnixMillis(now)).unwrap();
        (range.from.unwrap().0, range.to.unwrap().0)
    }

    #[test]
    fn names_are_the_current_utc_clock_units() {
        // A Sunday, and a leap day's year.
        let now = at((2024, 3, 3, 23, 59, 59)) + 999;
        assert_eq!(bounds(Named::Hour, now), (at((2024, 3, 3, 23, 0, 0)), at((2024, 3, 4, 0, 0, 0))));
        assert_eq!(bounds(Named::Day, now), (at((2024, 3, 3, 0, 0, 0)), at((2024, 3, 4, 0, 0, 0))));
        assert_eq!(bounds(Named::Week, now), (at((2024, 2, 26, 0, 0, 0)), at((2024, 3, 4, 0, 0, 0))));
        assert_eq!(bounds(Named::Month, now), (at((2024, 3, 1, 0, 0, 0)), at((2024, 4, 1, 0, 0, 0))));
        assert_eq!(bounds(Named::Year, now), (at((2024, 1, 1, 0, 0, 0)), at((2025, 1, 1, 0, 0, 0))));
        assert_eq!(range(Named::All, None, None, UnixMillis(now)).unwrap(), TimeRange::default());
    }

    #[test]
    fn the_first_moment_of_a_unit_belongs_to_it() {
        let now = at((2024, 1, 1, 0, 0, 0));
        for unit in [Named::Hour, Named::Day, Named::Week, Named::Month, Named::Year] {
            let (from, to) = bounds(unit, now);
            assert!(from <= now && now < to, "{unit:?}");
            assert_eq!(from, now, "a Monday, and the first of a month and year: {unit:?}");
            assert!(bounds(unit, now - 1).1 == now, "{unit:?}");
        }
        assert_eq!(bounds(Named::Month, at((2023, 12, 31, 1, 0, 0))).1, at((2024, 1, 1, 0, 0, 0)));
    }

    #[test]
    fn dates_override_the_filter_and_one_date_leaves_the_other_end_open() {
        let now = UnixMillis(at((2024, 3, 3, 0, 0, 0)));
        let some = range(Named::Hour, Some(5), None, now).unwrap();
        assert_eq!(some, TimeRange { from: Some(UnixMillis(5)), to: None });
        let some = range(Named::Hour, None, Some(7), now).unwrap();
        assert_eq!(some, TimeRange { from: None, to: Some(UnixMillis(7)) });
        assert!(range(Named::Hour, Some(5), Some(5), now).is_ok(), "empty, not wrong");
        assert!(range(Named::Hour, Some(6), Some(5), now).is_err());
        assert!(range(Named::Day, None, None, UnixMillis(i64::MAX)).is_err());
    }
}
