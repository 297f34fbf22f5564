//! The window: which versions a run asks for, and what time it is at the source.
//!
//! The lower bound reaches back behind the watermark, so that rows which become visible late are still
//! met; the upper bound of the last step is open, so that nothing returned is thrown away. What holds the
//! watermark back is `hi`, not the window.

use std::time::Duration;

use super::{
    instant::{Instant, micros_of},
    version::Version,
};

/// How far our clock is trusted where the source does not tell its own.
pub const CLOCK_TOLERANCE: Duration = Duration::from_mins(1);

/// The parts of a window that a job fixes. Durations count in version units where versions are instants;
/// versions that are plain integers are asked for from the watermark on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowRule {
    /// The first version of interest.
    pub start: Option<Version>,
    /// How far behind the watermark a run reads again.
    pub lookback: Duration,
    /// How long versions may still appear after their time.
    pub settle: Duration,
    /// The step between two versions of the source.
    pub granularity: Duration,
    /// The coarsest step that the request's format can spell, in version units.
    pub precision: i64,
    /// Whether the source leaves out rows that stand exactly at the lower bound.
    pub open_start: bool,
    /// Whether versions are instants.
    pub is_time: bool,
}

impl WindowRule {
    /// The lowest version to ask for; `None` asks without a lower bound.
    pub fn from(&self, watermark: Option<Version>) -> Option<Version> {
        let behind = watermark.map(|Version(watermark)| {
            let back = if self.is_time {
                micros_of(self.lookback).saturating_add(micros_of(self.granularity))
            } else {
                0
            };
            Version(watermark.saturating_sub(back))
        });
        let Version(lowest) = behind.max(self.start)?;
        let precision = self.precision.max(1);
        let floored = lowest.saturating_sub(lowest.rem_euclid(precision));
        Some(Version(if self.open_start { floored.saturating_sub(precision) } else { floored }))
    }

    /// The highest version that may be called complete by a run whose first request was sent at `now`, by
    /// the source's clock; `None` where versions are no instants.
    pub fn hi(&self, now: Instant) -> Option<Version> {
        self.is_time.then(|| Version(now.minus(self.settle).micros()))
    }

    /// The version up to which no later change can share a version, for a page asked for at `asked`, by
    /// the source's clock.
    pub fn settled_until(&self, asked: Instant) -> Option<Version> {
        self.is_time.then(|| Version(asked.minus(self.settle).minus(self.granularity).micros()))
    }
}

/// The source's clock when a request was sent: the `Date` of its answer less the time the answer took;
/// without a `Date`, our own clock less the tolerance.
pub fn source_time(sent: Instant, answered: Instant, date: Option<Instant>) -> Instant {
    match date {
        Some(date) => date.minus(answered.since(sent)),
        None => sent.minus(CLOCK_TOLERANCE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: WindowRule = WindowRule {
        start: None,
        lookback: Duration::from_mins(1),
        settle: Duration::from_secs(30),
        granularity: Duration::from_secs(1),
        precision: 1_000_000,
        open_start: false,
        is_time: true,
    };

    fn seconds(seconds: i64) -> Version {
        Version(seconds * 1_000_000)
    }

    #[test]
    fn the_lower_bound_reaches_back_and_is_floored() {
        let cases = [
            ("no watermark, no start", RULE, None, None),
            ("start alone", WindowRule { start: Some(seconds(5)), ..RULE }, None, Some(seconds(5))),
            ("lookback and granularity", RULE, Some(seconds(100)), Some(seconds(39))),
            (
                "a start above",
                WindowRule { start: Some(seconds(50)), ..RULE },
                Some(seconds(100)),
                Some(seconds(50)),
            ),
            ("floored to the precision", RULE, Some(Version(100_999_999)), Some(seconds(39))),
            ("below 1970", RULE, Some(Version(500_000)), Some(seconds(-61))),
            ("an open bound", WindowRule { open_start: true, ..RULE }, Some(seconds(100)), Some(seconds(38))),
            (
                "integers",
                WindowRule { is_time: false, precision: 1, ..RULE },
                Some(Version(100)),
                Some(Version(100)),
            ),
            (
                "open integers",
                WindowRule { is_time: false, precision: 1, open_start: true, ..RULE },
                Some(Version(100)),
                Some(Version(99)),
            ),
            ("the end of time", RULE, Some(Version(i64::MIN)), Some(Version(i64::MIN))),
        ];
        for (name, rule, watermark, expected) in cases {
            assert_eq!(rule.from(watermark), expected, "{name}");
        }
    }

    #[test]
    fn settle_holds_the_watermark_back() {
        assert_eq!(RULE.hi(Instant::from_seconds(100)), Some(seconds(70)));
        assert_eq!(RULE.settled_until(Instant::from_seconds(100)), Some(seconds(69)));
        assert_eq!(WindowRule { is_time: false, ..RULE }.hi(Instant::from_seconds(100)), None);
    }

    #[test]
    fn the_source_clock_counts_where_it_is_told() {
        let at = Instant::from_seconds;
        assert_eq!(source_time(at(100), at(103), Some(at(500))), at(497));
        assert_eq!(source_time(at(100), at(103), None), at(40));
    }
}
