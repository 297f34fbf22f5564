//! A point in time as microseconds since 1970 in UTC: the form that versions, bounds and schedules have
//! in memory and in both databases, so that no two places disagree on precision or zone.

use std::{fmt, str::FromStr, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Microseconds since 1970-01-01T00:00:00Z. Finer fractions are cut off, never rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(i64);

impl Instant {
    /// The instant `micros` microseconds after 1970.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// The instant `seconds` after 1970.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1_000_000))
    }

    /// Microseconds since 1970.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Whole seconds since 1970, floored.
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// This instant `by` later; stays at the last one that can be told.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(micros_of(by)))
    }

    /// This instant `by` earlier; stays at the first one that can be told.
    #[must_use]
    pub fn minus(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(micros_of(by)))
    }

    /// The time from `earlier` to this instant; zero when it is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// The instant as jiff has it; clamped to the years that jiff knows.
    pub fn timestamp(self) -> Timestamp {
        Timestamp::from_microsecond(self.0).unwrap_or(if self.0 < 0 {
            Timestamp::MIN
        } else {
            Timestamp::MAX
        })
    }
}

/// A duration in whole microseconds, saturating.
pub(crate) fn micros_of(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

impl From<Timestamp> for Instant {
    fn from(timestamp: Timestamp) -> Self {
        Self(i64::try_from(timestamp.as_nanosecond().div_euclid(1_000)).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.timestamp())
    }
}

impl FromStr for Instant {
    type Err = jiff::Error;

    /// Reads an RFC 3339 timestamp with a zone offset.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<Timestamp>().map(Self::from)
    }
}

impl Serialize for Instant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Instant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_cut_off_and_never_rounded_up() {
        let cases = [
            ("2026-11-30T10:00:33.6149999Z", "2026-11-30T10:00:33.614999Z"),
            ("1969-12-31T23:59:59.9999999Z", "1969-12-31T23:59:59.999999Z"),
            ("2026-11-30T12:00:00+02:00", "2026-11-30T10:00:00Z"),
        ];
        for (text, expected) in cases {
            assert_eq!(text.parse::<Instant>().unwrap().to_string(), expected);
        }
    }

    #[test]
    fn arithmetic_saturates() {
        let far = Instant::from_micros(i64::MAX);
        assert_eq!(far.plus(Duration::MAX), far);
        assert_eq!(Instant::from_micros(i64::MIN).minus(Duration::MAX).micros(), i64::MIN);
        assert_eq!(Instant::from_micros(1).since(Instant::from_micros(5)), Duration::ZERO);
        assert!(far.to_string().starts_with("9999-12-30"));
    }
}
