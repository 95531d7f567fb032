//! Times on the command line and in output: RFC 3339, in UTC, with milliseconds.

use std::time::SystemTime;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

/// Reads a time: `2026-11-26T10:00:00Z`, with fractions of a second or an offset such as `+02:00`
/// if need be, or a date alone for its beginning in UTC.
pub(super) fn parse(text: &str) -> Result<SystemTime, String> {
    let time = read(text).filter(|time| *time >= Timestamp::UNIX_EPOCH);
    time.and_then(|time| time.try_into().ok()).ok_or_else(|| {
        "a time from 1970 on is written as 2026-11-26T10:00:00Z, with an offset as \
         2026-11-26T12:00:00+02:00, or as a date 2026-11-26, which begins in UTC"
            .to_owned()
    })
}

fn read(text: &str) -> Option<Timestamp> {
    if let Ok(time) = text.parse() {
        return Some(time);
    }
    // More than a date would be a time without an offset.
    let date: Date = text.parse().ok().filter(|_| text.len() == "2026-11-26".len())?;
    Some(date.to_zoned_datetime(TimeZone::UTC).ok()?.timestamp())
}

/// A time as text, which [`parse`] reads.
pub(super) fn text(time: SystemTime) -> String {
    let time = Timestamp::try_from(time).unwrap_or(Timestamp::MAX);
    format!("{time:.3}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
            ("2026-11-26T10:00Z", 1_795_687_200_000),
            ("2026-11-26T10:00:00+24:00", 1_795_600_800_000),
            // A leap second, which the system's clock does not have.
            ("2026-11-26T10:00:60Z", 1_795_687_259_000),
            ("9999-12-30T22:00:00Z", 253_402_207_200_000),
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
            "2026-11-26T24:00:00Z",
            "2026-11-26T10:60:00Z",
            "2026-11-26T10:00:00.Z",
            "2026-11-26T10:00:00.1234567890Z",
            "2026-11-26T10:00:00+2:00",
            "2026-11-26T10:00:00+26:00",
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
        fn a_time_that_was_written_is_read(milliseconds in 0..253_402_207_200_000_u64) {
            let time = SystemTime::UNIX_EPOCH + Duration::from_millis(milliseconds);
            let written = text(time);
            prop_assert_eq!(written.len(), "2026-11-26T10:00:00.000Z".len());
            prop_assert_eq!(parse(&written), Ok(time));
        }
    }
}
