//! Times on the command line and in output: RFC 3339, in UTC, with milliseconds.

use std::time::{Duration, SystemTime};

const SECONDS_PER_DAY: u64 = 86_400;
/// Days from the first of March of the year 0 to the first of January 1970.
const DAYS_TO_1970: u64 = 719_468;
/// Days of 400 years, after which the calendar repeats.
const DAYS_OF_ERA: u64 = 146_097;

/// Reads a time: `2026-11-26T10:00:00Z`, with fractions of a second or an offset such as `+02:00`
/// if need be, or a date alone for its beginning in UTC.
pub(super) fn parse(text: &str) -> Result<SystemTime, String> {
    read(text).ok_or_else(|| {
        "a time from 1970 on is written as 2026-11-26T10:00:00Z, with an offset as \
         2026-11-26T12:00:00+02:00, or as a date 2026-11-26, which begins in UTC"
            .to_owned()
    })
}

fn read(text: &str) -> Option<SystemTime> {
    let mut rest = Rest(text.as_bytes());
    let date = [rest.number(4)?, rest.after(b'-', 2)?, rest.after(b'-', 2)?];
    let days = days_since_1970(date)?;
    let mut seconds = i64::try_from(days * SECONDS_PER_DAY).ok()?;
    let mut nanoseconds = 0;
    if !rest.0.is_empty() {
        rest.one_of(b"Tt ")?;
        let [hour, minute, second] = [rest.number(2)?, rest.after(b':', 2)?, rest.after(b':', 2)?];
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        seconds += i64::try_from(hour * 3600 + minute * 60 + second).ok()?;
        nanoseconds = rest.fraction()?;
        seconds -= rest.offset()?;
    }
    if !rest.0.is_empty() {
        return None;
    }
    let since = Duration::new(u64::try_from(seconds).ok()?, nanoseconds);
    SystemTime::UNIX_EPOCH.checked_add(since)
}

/// The part of a text that has not been read.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn one_of(&mut self, bytes: &[u8]) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = bytes.contains(first).then_some(rest)?;
        Some(*first)
    }

    /// A number of exactly so many digits.
    fn number(&mut self, digits: usize) -> Option<u64> {
        let (number, rest) = self.0.split_at_checked(digits)?;
        self.0 = rest;
        number.iter().try_fold(0, |so_far, byte| {
            byte.is_ascii_digit().then(|| so_far * 10 + u64::from(byte - b'0'))
        })
    }

    fn after(&mut self, separator: u8, digits: usize) -> Option<u64> {
        self.one_of(&[separator])?;
        self.number(digits)
    }

    /// Nanoseconds of a fraction of 1 to 9 digits, if there is one.
    fn fraction(&mut self) -> Option<u32> {
        if self.one_of(b".").is_none() {
            return Some(0);
        }
        let digits = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let missing = 9_u32.checked_sub(u32::try_from(digits).ok()?)?;
        let number = (digits > 0).then(|| self.number(digits))??;
        u32::try_from(number * 10_u64.pow(missing)).ok()
    }

    /// Seconds that the time is ahead of UTC.
    fn offset(&mut self) -> Option<i64> {
        let sign = match self.one_of(b"Zz+-")? {
            b'+' => 1,
            b'-' => -1,
            _ => return Some(0),
        };
        let (hours, minutes) = (self.number(2)?, self.after(b':', 2)?);
        (hours < 24 && minutes < 60).then_some(())?;
        Some(sign * i64::try_from(hours * 3600 + minutes * 60).ok()?)
    }
}

/// Days of a date that exists, of 1970 or later.
fn days_since_1970([year, month, day]: [u64; 3]) -> Option<u64> {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days_of_month = match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap => 29,
        2 => 28,
        1..=12 => 31,
        _ => return None,
    };
    if year < 1970 || !(1..=days_of_month).contains(&day) {
        return None;
    }
    // Years begin with March, so that a leap day is the last one.
    let year = if month <= 2 { year - 1 } else { year };
    let months = (month + 9) % 12;
    let days = year * 365 + year / 4 - year / 100 + year / 400;
    days.checked_add((153 * months + 2) / 5 + day - 1)?.checked_sub(DAYS_TO_1970)
}

/// The year, month and day of a day since 1970.
const fn date(days_since_1970: u64) -> [u64; 3] {
    let days = days_since_1970 + DAYS_TO_1970;
    let (era, day) = (days / DAYS_OF_ERA, days % DAYS_OF_ERA);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let months = (5 * day + 2) / 153;
    let month = if months < 10 { months + 3 } else { months - 9 };
    let year = era * 400 + year + if month <= 2 { 1 } else { 0 };
    [year, month, day - (153 * months + 2) / 5 + 1]
}

/// A time as text, which [`parse`] reads.
pub(super) fn text(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (seconds, milliseconds) = (since.as_secs(), since.subsec_millis());
    let [year, month, day] = date(seconds / SECONDS_PER_DAY);
    let second = seconds % SECONDS_PER_DAY;
    let [hour, minute, second] = [second / 3600, second / 60 % 60, second % 60];
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn milliseconds(text: &str) -> Option<u128> {
        let since = parse(text).ok()?.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        Some(since.as_millis())
    }

    #[test]
    fn times_are_read() {
        for (text, expected) in [
            ("1970-01-01", 0),
            ("1970-01-01T00:00:00.001Z", 1),
            ("2000-02-29", 951_782_400_000),
            ("2026-11-26T10:00:00Z", 1_795_687_200_000),
            ("2026-11-26t10:00:00z", 1_795_687_200_000),
            ("2026-11-26 12:30:00+02:30", 1_795_687_200_000),
            ("2026-11-26T08:00:00.5-02:00", 1_795_687_200_500),
            ("2026-11-26T10:00:00.123456789Z", 1_795_687_200_123),
            ("9999-12-31T23:59:59Z", 253_402_300_799_000),
        ] {
            assert_eq!(milliseconds(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "now",
            "1795687200",
            "2026",
            "2026-11",
            "2026-11-31",
            "2026-02-29",
            "2100-02-29",
            "2026-13-01",
            "2026-00-01",
            "2026-01-00",
            "1969-12-31",
            "1970-01-01T00:00:00+00:01",
            "2026-11-26T",
            "2026-11-26T10:00:00",
            "2026-11-26T10:00Z",
            "2026-11-26T24:00:00Z",
            "2026-11-26T10:60:00Z",
            "2026-11-26T10:00:60Z",
            "2026-11-26T10:00:00.Z",
            "2026-11-26T10:00:00.1234567890Z",
            "2026-11-26T10:00:00+2:00",
            "2026-11-26T10:00:00+24:00",
            "2026-11-26T10:00:00Z ",
            " 2026-11-26",
            "+026-11-26",
            "2026-11-26Z",
            "２026-11-26",
        ] {
            assert_eq!(milliseconds(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_time_that_was_written_is_read(milliseconds in 0..253_402_300_800_000_u64) {
            let time = SystemTime::UNIX_EPOCH + Duration::from_millis(milliseconds);
            let written = text(time);
            prop_assert_eq!(written.len(), "2026-11-26T10:00:00.000Z".len());
            prop_assert_eq!(parse(&written), Ok(time));
        }
    }
}
