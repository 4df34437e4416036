//! Moments, as frames carry them: UTC with six digits of a second.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Microseconds since 1970-01-01T00:00:00Z. Always passed in, never read from a clock here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

/// 9999-12-31T23:59:59.999999Z: later moments have no four-digit year.
const LAST: u64 = 253_402_300_799_999_999;
const DAY_US: u64 = 86_400_000_000;
/// The format of a time, with zeros for digits.
const PATTERN: &[u8; 27] = b"0000-00-00T00:00:00.000000Z";

impl Timestamp {
    /// From microseconds since the epoch; what has no four-digit year becomes the last that has.
    pub fn from_micros(micros: u64) -> Self {
        Self(micros.min(LAST))
    }

    /// Microseconds since the epoch.
    pub fn as_micros(self) -> u64 {
        self.0
    }

    /// This moment and some milliseconds.
    pub fn plus_millis(self, millis: u64) -> Self {
        Self::from_micros(self.0.saturating_add(millis.saturating_mul(1000)))
    }

    /// Whole milliseconds from `earlier` to this moment; 0 if it is not earlier.
    pub fn millis_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0) / 1000
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil(self.0 / DAY_US);
        let micros = self.0 % DAY_US;
        let seconds = micros / 1_000_000;
        // Every frame has one of these, and a format string with seven fields is slow.
        let fraction = micros % 1_000_000;
        let pairs = [
            (0, year / 100),
            (2, year),
            (5, month),
            (8, day),
            (11, seconds / 3600),
            (14, seconds / 60 % 60),
            (17, seconds % 60),
            (20, fraction / 10_000),
            (22, fraction / 100),
            (24, fraction),
        ];
        let mut text = *PATTERN;
        let digit = |number: u64| b'0' + u8::try_from(number % 10).unwrap_or_default();
        for (at, number) in pairs {
            if let Some([tens, ones]) = text.get_mut(at..at + 2) {
                (*tens, *ones) = (digit(number / 10), digit(number));
            }
        }
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

/// The text is not of the form `2026-11-20T20:07:11.123456Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a moment of the form 2026-11-20T20:07:11.123456Z")]
pub struct ParseTimestampError;

impl Timestamp {
    /// The time that a text begins, down to whole fields: `2026-11` is the beginning of that month.
    pub fn beginning(text: &str) -> Option<Self> {
        const FIRST: &str = "1970-01-01T00:00:00.000000Z";
        let is_whole = [4, 7, 10, 13, 16, 19, 27].contains(&text.len());
        let rest = FIRST.get(text.len()..).filter(|_| is_whole)?;
        format!("{text}{rest}").parse().ok()
    }
}

impl FromStr for Timestamp {
    type Err = ParseTimestampError;

    fn from_str(text: &str) -> Result<Self, ParseTimestampError> {
        let bytes = text.as_bytes();
        let fits = bytes.len() == PATTERN.len()
            && bytes
                .iter()
                .zip(PATTERN)
                .all(|(byte, wanted)| match wanted {
                    b'0' => byte.is_ascii_digit(),
                    _ => byte == wanted,
                });
        if !fits {
            return Err(ParseTimestampError);
        }
        let number = |from: usize, to: usize| {
            bytes
                .iter()
                .take(to)
                .skip(from)
                .fold(0u64, |sum, digit| sum * 10 + u64::from(digit - b'0'))
        };
        let days = days_from_civil(number(0, 4), number(5, 7), number(8, 10))
            .ok_or(ParseTimestampError)?;
        let (hour, minute, second) = (number(11, 13), number(14, 16), number(17, 19));
        if hour > 23 || minute > 59 || second > 59 {
            return Err(ParseTimestampError);
        }
        let seconds = hour * 3600 + minute * 60 + second;
        Ok(Self(days * DAY_US + seconds * 1_000_000 + number(20, 26)))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        crate::text::parse(deserializer)
    }
}

/// Year, month and day of a number of days since the epoch, in the proleptic Gregorian calendar.
/// Years are counted from March, so that the leap day is the last day of a year.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

/// The inverse of [`civil`]; `None` for a date before 1970 or one that does not exist.
fn days_from_civil(year: u64, month: u64, day: u64) -> Option<u64> {
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let march_year = year - u64::from(month <= 2);
    let (era, year_of_era) = (march_year / 400, march_year % 400);
    let march_month = (month + 9) % 12;
    let day_of_year = (153 * march_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = (era * 146_097 + day_of_era).checked_sub(719_468)?;
    (civil(days) == (year, month, day)).then_some(days)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_reads_back_to_the_same_moment() {
        for micros in [0, 1, 951_782_399_999_999, 1_790_000_000_123_456, LAST] {
            let moment = Timestamp::from_micros(micros);
            assert_eq!(moment.to_string().parse(), Ok(moment), "{moment}");
        }
        assert_eq!(
            Timestamp::from_micros(1_000_000_000_000_000).to_string(),
            "2001-09-09T01:46:40.000000Z"
        );
    }

    #[test]
    fn dates_that_do_not_exist_are_refused() {
        for text in [
            "2026-02-29T00:00:00.000000Z",
            "2026-13-01T00:00:00.000000Z",
            "2026-01-01T24:00:00.000000Z",
            "2026-01-01T00:00:00Z",
            "1969-12-31T00:00:00.000000Z",
        ] {
            assert_eq!(
                text.parse::<Timestamp>(),
                Err(ParseTimestampError),
                "{text}"
            );
        }
        assert!("2024-02-29T00:00:00.000000Z".parse::<Timestamp>().is_ok());
    }
}
