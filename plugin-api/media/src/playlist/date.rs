//! Dates of EXT-X-PROGRAM-DATE-TIME (ISO 8601; RFC 8216, 4.3.2.6).

const MILLIS_PER_DAY: i64 = 86_400_000;
/// Days from 0000-03-01 to 1970-01-01 in the proleptic Gregorian calendar.
const DAYS_BEFORE_1970: i64 = 719_468;
/// Days of 400, 100 and 4 years.
const DAYS_400: i64 = 146_097;
const DAYS_100: i64 = 36_524;
const DAYS_4: i64 = 1_461;
/// Last millisecond of the year 9999.
const MILLIS_MAX: i64 = 253_402_300_799_999;

/// UTC with milliseconds, such as `2026-11-20T17:45:00.000Z`; times outside 1970 to 9999 are clamped.
pub fn program_date_time(unix_millis: i64) -> String {
    let millis = unix_millis.clamp(0, MILLIS_MAX);
    let (year, month, day) = date(millis / MILLIS_PER_DAY);
    let in_day = millis % MILLIS_PER_DAY;
    let (hours, minutes) = (in_day / 3_600_000, in_day / 60_000 % 60);
    let (seconds, rest) = (in_day / 1000 % 60, in_day % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{rest:03}Z")
}

/// Year, month and day of a day since 1970. Years start in March, so that a leap day is the last day.
fn date(day: i64) -> (i64, i64, i64) {
    let day = day + DAYS_BEFORE_1970;
    let (era, mut left) = (day / DAYS_400, day % DAYS_400);
    // The minimum keeps the last day of four centuries, and of four years, from counting as one more century or year.
    let centuries = (left / DAYS_100).min(3);
    left -= centuries * DAYS_100;
    let fours = left / DAYS_4;
    left -= fours * DAYS_4;
    let years = (left / 365).min(3);
    left -= years * 365;
    // Months from March: 31, 30, 31, 30, 31 days, repeated.
    let month = (5 * left + 2) / 153;
    let month_day = left - (153 * month + 2) / 5 + 1;
    let year = era * 400 + centuries * 100 + fours * 4 + years + i64::from(month >= 10);
    (year, if month < 10 { month + 3 } else { month - 9 }, month_day)
}
