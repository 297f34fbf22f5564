//! When a job fires: the next instant of a schedule, in the schedule's own zone.
//!
//! The cron library reads patterns; the instants are ours. A zone is a sequence of stretches with one
//! offset each, and inside a stretch local time only moves forward, so every stretch is searched by
//! itself. What happens at the seams is then a rule and not an accident:
//! a local time that daylight saving skips fires at the first instant after the gap; a local time that
//! occurs twice fires once, at its first occurrence, unless the hour field is a wildcard or a step, which
//! keeps its spacing through both.

use std::{fmt, str::FromStr, time::Duration};

use croner::{
    Cron,
    parser::{CronParser, Seconds},
};
use jiff::{
    Span, Timestamp,
    civil::{Date, DateTime, Time},
    tz::{Offset, TimeZone},
};

use super::instant::{Instant, micros_of};

/// How far ahead a pattern is searched before it is called one that never fires: 29 February on a given
/// weekday comes back after at most 40 years.
const HORIZON_YEARS: i16 = 41;

/// When a job is due.
#[derive(Clone, Debug, PartialEq)]
pub enum Schedule {
    /// At every multiple of a period, counted from 1970.
    Every(Duration),
    /// By a cron pattern in a zone.
    Cron {
        /// The pattern.
        pattern: CronPattern,
        /// The zone its fields are read in.
        zone: TimeZone,
    },
}

impl Schedule {
    /// The first instant of the schedule after `after`.
    pub fn next(&self, after: Instant) -> Option<Instant> {
        match self {
            Self::Every(period) => {
                let period = micros_of(*period).max(1);
                let elapsed = after.micros().rem_euclid(period);
                Some(Instant::from_micros(after.micros().checked_add(period - elapsed)?))
            }
            Self::Cron { pattern, zone } => pattern.next(after, zone),
        }
    }

    /// How many instants of the schedule pass, at most `most`, while a run is under way that began at `began` and ended
    /// at `ended` and that nobody makes good: the last of them is, by the next run (field case C37).
    pub fn skipped(&self, began: Instant, ended: Instant, most: usize) -> usize {
        let instants = std::iter::successors(self.next(began), |instant| self.next(*instant));
        instants
            .take_while(|instant| *instant <= ended)
            .take(most.saturating_add(1))
            .count()
            .saturating_sub(1)
    }

    /// Whether a job that has never run is due at once: a period may begin anywhere, a cron pattern names
    /// its own instants.
    pub const fn starts_at_once(&self) -> bool {
        matches!(self, Self::Every(_))
    }
}

/// A cron pattern of five fields, or six with seconds in front.
#[derive(Clone, Debug, PartialEq)]
pub struct CronPattern {
    cron: Box<Cron>,
    text: String,
    spaced: bool,
}

/// Why a text is no usable cron pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// The text is not a pattern.
    #[error(
        "`{0}` is not a cron pattern of 5 fields (minute hour day month weekday) or 6 (second first): {1}"
    )]
    Unreadable(String, String),
    /// Both day fields are restricted, which cron implementations read differently.
    #[error(
        "`{0}` restricts both the day of the month and the weekday: cron programs disagree on what that means, so use two jobs"
    )]
    BothDays(String),
    /// No date matches.
    #[error("`{0}` never fires")]
    Never(String),
}

impl FromStr for CronPattern {
    type Err = CronError;

    fn from_str(text: &str) -> Result<Self, CronError> {
        let unreadable = |reason: String| CronError::Unreadable(text.to_owned(), reason);
        let fields: Vec<&str> = text.split_whitespace().collect();
        let (hour, day, weekday) = match fields.as_slice() {
            [_, hour, day, _, weekday] | [_, _, hour, day, _, weekday] => (*hour, *day, *weekday),
            other => return Err(unreadable(format!("it has {} fields", other.len()))),
        };
        let parser = CronParser::builder().seconds(Seconds::Optional).build();
        let cron = parser.parse(text).map_err(|error| unreadable(error.to_string()))?;
        if ![day, weekday].iter().any(|field| matches!(*field, "*" | "?")) {
            return Err(CronError::BothDays(text.to_owned()));
        }
        let spaced = hour.contains(['*', '/']);
        let pattern = Self { cron: Box::new(cron), text: text.to_owned(), spaced };
        match pattern.next(Instant::from_micros(0), &TimeZone::UTC) {
            Some(_) => Ok(pattern),
            None => Err(CronError::Never(text.to_owned())),
        }
    }
}

impl fmt::Display for CronPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl CronPattern {
    /// The first instant after `after` that the pattern names in `zone`.
    fn next(&self, after: Instant, zone: &TimeZone) -> Option<Instant> {
        let mut from = Timestamp::from_second(after.seconds().checked_add(1)?).ok()?;
        let first_year = zone.to_datetime(from).year();
        loop {
            let offset = zone.to_offset(from);
            let end =
                zone.following(from).next().map(|transition| (transition.timestamp(), transition.offset()));
            let mut start = offset.to_datetime(from);
            if let Some(repeated_until) = self.repeated_until(zone, from, offset) {
                start = start.max(repeated_until);
            }
            let limit = match end {
                Some((end, next)) => offset.to_datetime(end).max(next.to_datetime(end)),
                None => DateTime::MAX,
            };
            if let Some(local) = self.next_local(start, limit, first_year) {
                let instant = offset.to_timestamp(local).ok()?;
                return Some(match end {
                    // Beyond the stretch, so inside the gap that follows it.
                    Some((end, next)) if instant >= end && next > offset => Instant::from(end),
                    Some((end, _)) if instant >= end => {
                        from = end;
                        continue;
                    }
                    _ => Instant::from(instant),
                });
            }
            let (end, _) = end?;
            from = end;
            if zone.to_datetime(from).year() > first_year + HORIZON_YEARS {
                return None;
            }
        }
    }

    /// In the stretch that holds `from`: the local time up to which it repeats the stretch before, for a
    /// pattern that fires but once in a repeated hour.
    fn repeated_until(&self, zone: &TimeZone, from: Timestamp, offset: Offset) -> Option<DateTime> {
        if self.spaced {
            return None;
        }
        let begin = zone.preceding(from.checked_add(Span::new().nanoseconds(1)).ok()?).next()?.timestamp();
        let before = zone.to_offset(begin.checked_sub(Span::new().nanoseconds(1)).ok()?);
        (before > offset).then(|| before.to_datetime(begin))
    }

    /// The first local time in [from, limit) that the pattern names.
    fn next_local(&self, from: DateTime, limit: DateTime, first_year: i16) -> Option<DateTime> {
        let mut date = from.date();
        let mut earliest = from.time();
        while date.to_datetime(Time::midnight()) < limit && date.year() <= first_year + HORIZON_YEARS {
            let month = u32::from(date.month().unsigned_abs());
            if self.cron.pattern.month_match(month).ok()? {
                if self.day_matches(date, month)
                    && let Some(time) = self.next_time(earliest)
                {
                    return Some(date.to_datetime(time)).filter(|local| *local < limit);
                }
                date = date.tomorrow().ok()?;
            } else {
                date = date.last_of_month().tomorrow().ok()?;
            }
            earliest = Time::midnight();
        }
        None
    }

    fn day_matches(&self, date: Date, month: u32) -> bool {
        let day = u32::from(date.day().unsigned_abs());
        self.cron.pattern.day_match(i32::from(date.year()), month, day).unwrap_or(false)
    }

    /// The first time of day from `earliest` on.
    fn next_time(&self, earliest: Time) -> Option<Time> {
        let pattern = &self.cron.pattern;
        let clock = |value: u32| i8::try_from(value).ok();
        let (hour0, minute0, second0) = (earliest.hour(), earliest.minute(), earliest.second());
        for hour in (0..24).filter(|hour| pattern.hour_match(*hour).unwrap_or(false)) {
            let hour = clock(hour)?;
            if hour < hour0 {
                continue;
            }
            for minute in (0..60).filter(|minute| pattern.minute_match(*minute).unwrap_or(false)) {
                let minute = clock(minute)?;
                if (hour, minute) < (hour0, minute0) {
                    continue;
                }
                for second in (0..60).filter(|second| pattern.second_match(*second).unwrap_or(false)) {
                    let second = clock(second)?;
                    if (hour, minute, second) >= (hour0, minute0, second0) {
                        return Time::new(hour, minute, second, 0).ok();
                    }
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fires(pattern: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
        let schedule =
            Schedule::Cron { pattern: pattern.parse().unwrap(), zone: TimeZone::get(zone).unwrap() };
        let mut at: Instant = after.parse().unwrap();
        (0..count)
            .map(|_| {
                let next = schedule.next(at).unwrap();
                assert!(next > at, "a schedule only moves forward");
                at = next;
                next.to_string()
            })
            .collect()
    }

    #[test]
    fn c37_the_instants_that_pass_during_a_run_are_skipped_but_for_the_last() {
        let every = Schedule::Every(Duration::from_secs(1));
        let cron = Schedule::Cron { pattern: "*/5 * * * *".parse().unwrap(), zone: TimeZone::UTC };
        let at = |millis: i64| Instant::from_micros(millis * 1_000);
        let cases = [
            (&every, 10_000, 10_900, 0),
            (&every, 10_000, 11_000, 0),
            (&every, 10_500, 12_000, 1),
            (&every, 10_000, 13_200, 2),
            (&every, 10_000, 1_000_000, 50),
            (&every, 10_000, 5_000, 0),
            (&cron, 0, 299_000, 0),
            (&cron, 0, 900_000, 2),
        ];
        for (schedule, began, ended, expected) in cases {
            assert_eq!(schedule.skipped(at(began), at(ended), 50), expected, "{began} to {ended}");
        }
    }

    #[test]
    fn patterns_fire_in_their_zone() {
        let cases: [(&str, &str, &str, &[&str]); 6] = [
            ("*/5 * * * *", "UTC", "2026-11-30T10:01:00Z", &["2026-11-30T10:05:00Z", "2026-11-30T10:10:00Z"]),
            ("0 9 * * MON", "Europe/Zagreb", "2026-11-30T10:00:00Z", &["2026-12-07T08:00:00Z"]),
            ("30 0 3 1 * *", "UTC", "2026-11-30T10:00:00Z", &["2026-12-01T03:00:30Z"]),
            ("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", &["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"]),
            (
                "* * * * * *",
                "UTC",
                "2026-11-30T10:00:00.7Z",
                &["2026-11-30T10:00:01Z", "2026-11-30T10:00:02Z"],
            ),
            ("0 0 L * *", "UTC", "2026-02-01T00:00:00Z", &["2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z"]),
        ];
        for (pattern, zone, after, expected) in cases {
            assert_eq!(fires(pattern, zone, after, expected.len()), expected, "{pattern} in {zone}");
        }
    }

    #[test]
    fn a_skipped_local_time_fires_at_the_first_instant_after_the_gap() {
        // Zagreb, 29 March 2026: 02:00 becomes 03:00 at 01:00 UTC.
        let expected = ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"];
        assert_eq!(fires("30 2 * * *", "Europe/Zagreb", "2026-03-28T00:00:00Z", 3), expected);
        let expected = ["2026-03-29T00:45:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:15:00Z"];
        assert_eq!(fires("*/15 * * * *", "Europe/Zagreb", "2026-03-29T00:30:00Z", 3), expected);
    }

    #[test]
    fn a_repeated_local_time_fires_once_and_a_step_keeps_its_spacing() {
        // Zagreb, 25 October 2026: 03:00 becomes 02:00 at 01:00 UTC.
        let expected = ["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"];
        assert_eq!(fires("30 2 * * *", "Europe/Zagreb", "2026-10-24T00:00:00Z", 3), expected);
        let expected =
            ["2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:00:00Z"];
        assert_eq!(fires("*/30 * * * *", "Europe/Zagreb", "2026-10-25T00:00:00Z", 4), expected);
    }

    #[test]
    fn periods_are_counted_from_1970() {
        let every = Schedule::Every(Duration::from_mins(5));
        let at = |text: &str| text.parse::<Instant>().unwrap();
        assert_eq!(every.next(at("2026-11-30T10:01:00.5Z")), Some(at("2026-11-30T10:05:00Z")));
        assert_eq!(every.next(at("2026-11-30T10:05:00Z")), Some(at("2026-11-30T10:10:00Z")));
    }

    #[test]
    fn patterns_that_cannot_be_meant_are_refused() {
        let error = |text: &str| text.parse::<CronPattern>().unwrap_err();
        assert!(matches!(error("0 0 30 2 *"), CronError::Never(_)));
        assert!(matches!(error("0 0 13 * FRI"), CronError::BothDays(_)));
        for text in ["", "* * * *", "61 * * * *", "a b c d e", "* * * * * * *"] {
            assert!(matches!(error(text), CronError::Unreadable(..)), "{text:?}");
        }
    }
}
