//! The window: which versions a run asks for, step by step, and what time it is at the source.
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

/// Clocks that differ by less are as good as equal: `Date` counts in whole seconds and answers take their time.
const SKEW_BELOW_NOTICE: Duration = Duration::from_secs(5);

/// So many runs that fail on one step make the next one half as long.
const FAILURES_PER_HALVING: u32 = 3;

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
    /// How much is asked for at once; `None` asks for everything.
    pub step: Option<Duration>,
    /// The step between two versions of the source.
    pub granularity: Duration,
    /// The coarsest step that the request's format can spell, in version units.
    pub precision: i64,
    /// Whether the source leaves out rows that stand exactly at the lower bound.
    pub open_start: bool,
    /// Whether the source leaves out rows that stand exactly at the upper bound.
    pub open_end: bool,
    /// Whether versions are instants.
    pub is_time: bool,
}

/// A part of a window: the versions in [from, to). The last part has no `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Step {
    /// The first version.
    pub from: Option<Version>,
    /// The version after the last.
    pub to: Option<Version>,
}

/// A step's bounds as a request names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The lower bound; `None` leaves it out.
    pub start: Option<Version>,
    /// The upper bound; `None` leaves it out.
    pub end: Option<Version>,
}

impl WindowRule {
    /// The lowest version of interest to a run; `None` where everything is.
    pub fn from(&self, watermark: Option<Version>) -> Option<Version> {
        let behind = watermark.map(|Version(watermark)| {
            let back = if self.is_time {
                micros_of(self.lookback).saturating_add(micros_of(self.granularity))
            } else {
                0
            };
            Version(watermark.saturating_sub(back))
        });
        behind.max(self.start)
    }

    /// The same where keys below `floor` were forgotten: nothing below it is of interest.
    pub fn from_floor(&self, watermark: Option<Version>, floor: Option<Version>) -> Option<Version> {
        self.from(watermark).max(floor.filter(|_| self.is_time))
    }

    /// The step that begins at `from`. It ends after `length` where that is before `hi`, else it is the
    /// last one and open.
    pub fn step(&self, from: Option<Version>, hi: Option<Version>, length: Option<Duration>) -> Step {
        let to = match (from, hi, length) {
            (Some(Version(from)), Some(hi), Some(length)) if self.is_time => {
                Some(Version(from.saturating_add(micros_of(length).max(1)))).filter(|to| *to < hi)
            }
            _ => None,
        };
        Step { from, to }
    }

    /// The bounds to ask for so that no version of the step is left out: floored and ceiled to what the
    /// request can spell, and wider by that much where the source leaves out rows at a bound.
    pub fn bounds(&self, step: Step) -> Bounds {
        let precision = self.precision.max(1);
        let lower = |Version(from): Version| {
            let floored = from.saturating_sub(from.rem_euclid(precision));
            Version(if self.open_start { floored.saturating_sub(precision) } else { floored })
        };
        let upper = |Version(to): Version| {
            let ceiled = to.saturating_add((precision - to.rem_euclid(precision)) % precision);
            Version(if self.open_end { ceiled.saturating_add(precision) } else { ceiled })
        };
        Bounds { start: step.from.map(lower), end: step.to.map(upper) }
    }

    /// How long the steps of a run are whose predecessors failed `failures` times in a row: half as long
    /// after every three. `from` and `hi` are the ends of the whole window.
    pub fn length(&self, from: Option<Version>, hi: Option<Version>, failures: u32) -> Length {
        let halvings = failures / FAILURES_PER_HALVING;
        if halvings == 0 {
            return Length { of_step: self.step, is_shortest: false };
        }
        let whole = match (from, hi) {
            (Some(Version(from)), Some(Version(hi))) => {
                u64::try_from(hi.saturating_sub(from)).map(Duration::from_micros).ok()
            }
            _ => None,
        };
        let Some(length) = self.step.into_iter().chain(whole).min() else {
            return Length { of_step: None, is_shortest: true };
        };
        let halved = length / 2_u32.checked_pow(halvings).unwrap_or(u32::MAX);
        let shortest = Duration::from_micros(self.shortest().unsigned_abs());
        Length { of_step: Some(halved.max(shortest)), is_shortest: halved < shortest }
    }

    /// The shortest step that can be asked for, in microseconds.
    pub fn shortest(&self) -> i64 {
        micros_of(self.granularity).max(self.precision).max(1)
    }

    /// The highest version that may be called complete by a run whose first request was sent at `now`, by
    /// the source's clock; `None` where versions are no instants.
    pub fn hi(&self, now: Instant) -> Option<Version> {
        self.is_time.then(|| Version(now.minus(self.settle).micros()))
    }

    /// By how much the source's clock and ours differ where that is more than half of what a run reads again, for a
    /// page asked for at `asked` by our clock and at `source_time` by the source's (field case C21).
    pub fn skew(&self, asked: Instant, source_time: Instant) -> Option<Skew> {
        let (ahead, behind) = (source_time.since(asked), asked.since(source_time));
        let apart = ahead.max(behind);
        let counts = self.is_time && apart > SKEW_BELOW_NOTICE && apart > self.lookback / 2;
        counts.then_some(Skew { apart, source_is_ahead: ahead > behind })
    }

    /// The version up to which no later change can share a version, for a page asked for at `asked`, by
    /// the source's clock.
    pub fn settled_until(&self, asked: Instant) -> Option<Version> {
        self.is_time.then(|| Version(asked.minus(self.settle).minus(self.granularity).micros()))
    }
}

/// How far two clocks are apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skew {
    /// By how much.
    pub apart: Duration,
    /// The source's clock is the one ahead.
    pub source_is_ahead: bool,
}

/// How much a run asks for at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// The length of its steps; `None` is one open step.
    pub of_step: Option<Duration>,
    /// It should be shorter and cannot be.
    pub is_shortest: bool,
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
        step: None,
        granularity: Duration::from_secs(1),
        precision: 1_000_000,
        open_start: false,
        open_end: false,
        is_time: true,
    };
    const INTEGERS: WindowRule = WindowRule { is_time: false, precision: 1, ..RULE };

    fn seconds(seconds: i64) -> Version {
        Version(seconds * 1_000_000)
    }

    #[test]
    fn the_lower_bound_reaches_back_behind_the_watermark() {
        let started = |at| WindowRule { start: Some(seconds(at)), ..RULE };
        let cases = [
            ("no watermark, no start", RULE, None, None),
            ("start alone", started(5), None, Some(seconds(5))),
            ("lookback and granularity", RULE, Some(seconds(100)), Some(seconds(39))),
            ("a start above", started(50), Some(seconds(100)), Some(seconds(50))),
            ("integers", INTEGERS, Some(Version(100)), Some(Version(100))),
            ("the end of time", RULE, Some(Version(i64::MIN)), Some(Version(i64::MIN))),
        ];
        for (name, rule, watermark, expected) in cases {
            assert_eq!(rule.from(watermark), expected, "{name}");
        }
    }

    #[test]
    fn a_window_never_reaches_below_the_floor() {
        let cases = [
            (RULE, Some(seconds(100)), Some(seconds(38)), Some(seconds(39))),
            (RULE, Some(seconds(100)), Some(seconds(40)), Some(seconds(40))),
            (RULE, None, Some(seconds(40)), Some(seconds(40))),
            (RULE, Some(seconds(100)), None, Some(seconds(39))),
            (INTEGERS, Some(Version(7)), Some(seconds(40)), Some(Version(7))),
        ];
        for (rule, watermark, floor, expected) in cases {
            assert_eq!(rule.from_floor(watermark, floor), expected, "{watermark:?} {floor:?}");
        }
    }

    #[test]
    fn bounds_leave_no_version_of_the_step_out() {
        let open = WindowRule { open_start: true, open_end: true, ..RULE };
        let (a, b) = (Version(39_999_999), Version(60_000_001));
        let cases = [
            ("floored and ceiled", RULE, a, b, seconds(39), seconds(61)),
            ("whole already", RULE, seconds(39), seconds(60), seconds(39), seconds(60)),
            ("open bounds", open, a, b, seconds(38), seconds(62)),
            ("below 1970", RULE, Version(-500_000), seconds(0), seconds(-1), seconds(0)),
            (
                "open integers",
                WindowRule { open_start: true, open_end: true, ..INTEGERS },
                Version(7),
                Version(9),
                Version(6),
                Version(10),
            ),
        ];
        for (name, rule, from, to, start, end) in cases {
            let asked = rule.bounds(Step { from: Some(from), to: Some(to) });
            assert_eq!(asked, Bounds { start: Some(start), end: Some(end) }, "{name}");
        }
        assert_eq!(RULE.bounds(Step { from: None, to: None }), Bounds { start: None, end: None });
    }

    #[test]
    fn steps_tile_oldest_first_and_the_last_one_is_open() {
        let length = Some(Duration::from_secs(40));
        let mut steps = Vec::new();
        let mut from = Some(seconds(0));
        loop {
            let step = RULE.step(from, Some(seconds(100)), length);
            steps.push((step.from.unwrap().0 / 1_000_000, step.to.map(|to| to.0 / 1_000_000)));
            match step.to {
                Some(to) => from = Some(to),
                None => break,
            }
        }
        assert_eq!(steps, [(0, Some(40)), (40, Some(80)), (80, None)]);
        assert_eq!(RULE.step(Some(seconds(60)), Some(seconds(100)), length).to, None, "nothing behind `hi`");
        assert_eq!(RULE.step(None, Some(seconds(100)), length).to, None, "no beginning, no steps");
        assert_eq!(RULE.step(Some(seconds(0)), Some(seconds(100)), None).to, None);
        assert_eq!(INTEGERS.step(Some(Version(1)), Some(Version(9)), length).to, None);
        let hardly = RULE.step(Some(Version(0)), Some(Version(9)), Some(Duration::ZERO));
        assert_eq!(hardly.to, Some(Version(1)), "every step moves on");
    }

    #[test]
    fn a_window_that_keeps_failing_is_halved_until_it_cannot_be() {
        let stepped = WindowRule { step: Some(Duration::from_secs(8)), ..RULE };
        let window = (Some(seconds(0)), Some(seconds(100)));
        let cases = [
            (RULE, 0, None, false),
            (RULE, 2, None, false),
            (RULE, 3, Some(50), false),
            (RULE, 6, Some(25), false),
            (stepped, 2, Some(8), false),
            (stepped, 5, Some(4), false),
            (stepped, 9, Some(1), false),
            (stepped, 12, Some(1), true),
            (stepped, u32::MAX, Some(1), true),
        ];
        for (rule, failures, of_step, is_shortest) in cases {
            let expected = Length { of_step: of_step.map(Duration::from_secs), is_shortest };
            assert_eq!(rule.length(window.0, window.1, failures), expected, "{failures}");
        }
        let endless = RULE.length(None, window.1, 3);
        assert_eq!(endless, Length { of_step: None, is_shortest: true }, "no beginning, no half");
    }

    #[test]
    fn settle_holds_the_watermark_back() {
        assert_eq!(RULE.hi(Instant::from_seconds(100)), Some(seconds(70)));
        assert_eq!(RULE.settled_until(Instant::from_seconds(100)), Some(seconds(69)));
        assert_eq!(INTEGERS.hi(Instant::from_seconds(100)), None);
    }

    #[test]
    fn c21_clocks_more_than_half_the_lookback_apart_are_told_of() {
        let with = |lookback| WindowRule { lookback: Duration::from_secs(lookback), ..RULE };
        let minutes = |rule: WindowRule| WindowRule { is_time: false, ..rule };
        // (rule, how far the source's clock is ahead) -> how far apart they are told to be
        let cases = [
            (with(300), 180, Some(180)),
            (with(300), -180, Some(180)),
            (with(300), 150, None),
            (with(300), 151, Some(151)),
            (with(300), -151, Some(151)),
            (with(300), 0, None),
            (with(0), 5, None),
            (with(0), -6, Some(6)),
            (with(4), 3, None),
            (minutes(with(0)), 180, None),
        ];
        let asked = Instant::from_seconds(1_000);
        for (rule, ahead, expected) in cases {
            let skew = rule.skew(asked, Instant::from_seconds(1_000 + ahead));
            let expected =
                expected.map(|apart| Skew { apart: Duration::from_secs(apart), source_is_ahead: ahead > 0 });
            assert_eq!(skew, expected, "{ahead} s ahead, lookback {:?}", rule.lookback);
        }
    }

    #[test]
    fn the_source_clock_counts_where_it_is_told() {
        let at = Instant::from_seconds;
        assert_eq!(source_time(at(100), at(103), Some(at(500))), at(497));
        assert_eq!(source_time(at(100), at(103), None), at(40));
    }
}
