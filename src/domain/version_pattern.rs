//! Versions spelled by a pattern of strftime (`%d.%m.%Y %H:%M`), for sources that follow no standard. What a
//! pattern can spell is found by trying it out when it is read, so that a version never waits for its
//! first record to be refused.

use std::{fmt, str::FromStr, sync::Arc};

use jiff::{Timestamp, civil, fmt::strtime, tz::TimeZone};

use super::instant::Instant;

/// The steps that a pattern may be unable to tell apart, in microseconds: from the microsecond to the day.
const STEPS: [i64; 6] = [1, 1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000];

/// 2026-11-30T13:14:15.123456Z: an instant in which every part of a pattern shows, the afternoon too.
const SAMPLE: i64 = 1_796_044_455_123_456;

/// A pattern that spells at least a day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: Arc<str>,
    precision: i64,
    is_local: bool,
}

/// Why a text is no pattern of versions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` cannot be a pattern of versions: {reason}")]
pub struct PatternError {
    text: String,
    reason: String,
}

/// What a pattern reads in a text.
pub(super) enum Told {
    /// A point in time.
    Instant(Instant),
    /// A local time without an offset.
    Local(civil::DateTime),
}

impl Pattern {
    /// The pattern itself.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The step that the pattern cannot spell, in microseconds.
    pub const fn precision(&self) -> i64 {
        self.precision
    }

    /// Whether it spells local times without an offset.
    pub const fn is_local(&self) -> bool {
        self.is_local
    }

    /// Reads a text; `None` where it is not of this pattern.
    pub(super) fn read(&self, text: &str) -> Option<Told> {
        read(&self.text, text)
    }

    /// Spells an instant in `zone`, cut to what the pattern can tell.
    pub(super) fn write(&self, instant: Instant, zone: TimeZone) -> String {
        write(&self.text, instant, zone).unwrap_or_default()
    }
}

fn read(pattern: &str, text: &str) -> Option<Told> {
    let told = strtime::parse(pattern, text).ok()?;
    if told.timestamp().is_some() || told.offset().is_some() {
        return told.to_timestamp().ok().map(|timestamp| Told::Instant(timestamp.into()));
    }
    if told.iana_time_zone().is_some() {
        return told.to_zoned_datetime().ok().map(|zoned| Told::Instant(zoned.timestamp().into()));
    }
    told.to_datetime().ok().map(Told::Local)
}

fn write(pattern: &str, instant: Instant, zone: TimeZone) -> Option<String> {
    strtime::format(pattern, &instant.timestamp().to_zoned_datetime(zone)).ok()
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = |reason: &str| PatternError { text: text.to_owned(), reason: reason.to_owned() };
        let sample = Instant::from_micros(SAMPLE);
        let spelled = strtime::format(text, &sample.timestamp().to_zoned_datetime(TimeZone::UTC));
        let spelled = spelled.map_err(|error| fail(&error.to_string()))?;
        let (told, is_local) = match read(text, &spelled) {
            Some(Told::Instant(instant)) => (instant, false),
            Some(Told::Local(local)) => TimeZone::UTC
                .to_timestamp(local)
                .map(|timestamp: Timestamp| (timestamp.into(), true))
                .map_err(|error| fail(&error.to_string()))?,
            None => return Err(fail("what it spells does not name a day and cannot be read again")),
        };
        // The sample must come back cut to a whole step, or the pattern tells another time than it was told.
        let precision =
            STEPS.into_iter().find(|step| SAMPLE.div_euclid(*step).saturating_mul(*step) == told.micros());
        match precision {
            Some(precision) => Ok(Self { text: text.into(), precision, is_local }),
            None => Err(fail("it spells one instant as another; does a `%p` or a part of the date lack?")),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_knows_how_finely_it_spells() {
        let cases = [
            ("%Y-%m-%d %H:%M:%S%.6f", 1),
            ("%Y-%m-%d %H:%M:%S%.3f", 1_000),
            ("%d.%m.%Y %H:%M:%S", 1_000_000),
            ("%m/%d/%Y %I:%M %p", 60_000_000),
            ("%Y%m%d%H", 3_600_000_000),
            ("%Y%m%d", 86_400_000_000),
            ("%s", 1_000_000),
            ("%Y-%m-%dT%H:%M:%S%z", 1_000_000),
        ];
        for (text, expected) in cases {
            assert_eq!(text.parse::<Pattern>().map(|pattern| pattern.precision()), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_names_no_day_or_another_instant_is_refused() {
        for text in ["%H:%M", "%Y-%m", "%Y-%m-%d %I:%M", "%Q!%", "plain"] {
            assert!(text.parse::<Pattern>().is_err(), "{text}");
        }
    }
}
