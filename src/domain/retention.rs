//! How long what is stored is kept, and the floor: the version below which keys have been forgotten.
//!
//! What is still to be done has no age: events that wait, are held or are dead, runs under way and the last run of each
//! kind stay for as long as they are that. What a key was is forgotten by the age of its version alone, and only below
//! the floor, which moves up first and never down: below it, a record that nothing is known of is no news.

use std::time::Duration;

use super::{
    instant::{Instant, micros_of},
    version::Version,
};

const DAY: Duration = Duration::from_hours(24);

/// How long things are kept; `None` is for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// The bodies of settled events.
    pub payloads: Option<Duration>,
    /// Settled events and the attempts to deliver them; never shorter than `payloads`.
    pub attempts: Option<Duration>,
    /// Runs and what their pages held.
    pub pages: Option<Duration>,
    /// What records were, by their versions, where those are instants.
    pub keys: Option<Duration>,
}

impl Default for Retention {
    fn default() -> Self {
        Self { payloads: Some(DAY * 30), attempts: Some(DAY * 90), pages: Some(DAY * 90), keys: None }
    }
}

/// What is older than these goes; `None` keeps everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cutoffs {
    /// For bodies, by when their events were settled.
    pub payloads: Option<Instant>,
    /// For events, by when they were settled.
    pub attempts: Option<Instant>,
    /// For runs, by when they ended.
    pub pages: Option<Instant>,
    /// For keys, by their versions: the beginning of a day, so that it moves once a day.
    pub keys: Option<Version>,
}

impl Retention {
    /// What goes at `now`.
    pub fn cutoffs(&self, now: Instant) -> Cutoffs {
        let back = |kept: Option<Duration>| kept.map(|kept| now.minus(kept));
        let day = micros_of(DAY);
        Cutoffs {
            payloads: back(self.payloads),
            attempts: back(self.attempts),
            pages: back(self.pages),
            keys: back(self.keys).map(|at| Version(at.micros().saturating_sub(at.micros().rem_euclid(day)))),
        }
    }
}

/// The least time that keys can be kept for by a job that reads this much again: twice as long, and a day at least.
pub fn shortest_for_keys(read_again: Duration) -> Duration {
    read_again.saturating_mul(2).max(DAY)
}

/// Where the floor moves that stands at `floor`, so that keys below `before` can be forgotten; `lowest` is what the next
/// window reaches down to, above which it does not move. `None` where nothing can be forgotten: before the first
/// watermark.
pub fn raised(floor: Option<Version>, before: Version, lowest: Option<Version>) -> Option<Version> {
    lowest.map(|lowest| lowest.min(before)).max(floor)
}

/// The floor as a page of a run meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    /// Keys whose versions are below may have been forgotten.
    pub at: Version,
    /// Records below it were asked for on purpose, by a replay or by a person.
    pub is_replay: bool,
}

impl Floor {
    /// The floor of a page, as far as its run knows; the store has it stand where it stands by then.
    pub fn known(at: Option<Version>, is_replay: bool) -> Self {
        Self { at: at.unwrap_or(Version(i64::MIN)), is_replay }
    }

    /// The same, where it has moved up to `at` meanwhile.
    #[must_use]
    pub fn raised_to(self, at: Option<Version>) -> Self {
        Self { at: at.map_or(self.at, |at| at.max(self.at)), ..self }
    }

    /// Whether a version is below it.
    pub fn is_above(self, version: Option<Version>) -> bool {
        version.is_some_and(|version| version < self.at)
    }

    /// Whether a record of this version is passed over where nothing is known of its key.
    pub fn bars(self, version: Option<Version>) -> bool {
        !self.is_replay && self.is_above(version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_older_than_its_lifetime_goes_and_keys_go_by_whole_days() {
        let now = Instant::from_seconds(100 * 86_400 + 7);
        let none = Retention { payloads: None, attempts: None, pages: None, keys: None };
        let kept = Some(Duration::from_secs(7));
        let at = Some(Instant::from_seconds(100 * 86_400));
        let day = |day: i64| Some(Version(day * 86_400_000_000));
        let cases = [
            (none, Cutoffs { payloads: None, attempts: None, pages: None, keys: None }),
            (
                Retention { payloads: kept, ..none },
                Cutoffs { payloads: at, attempts: None, pages: None, keys: None },
            ),
            (
                Retention { attempts: kept, pages: kept, ..none },
                Cutoffs { payloads: None, attempts: at, pages: at, keys: None },
            ),
            (
                Retention { keys: kept, ..none },
                Cutoffs { payloads: None, attempts: None, pages: None, keys: day(100) },
            ),
            (
                Retention { keys: Some(DAY * 2), ..none },
                Cutoffs { payloads: None, attempts: None, pages: None, keys: day(98) },
            ),
        ];
        for (retention, expected) in cases {
            assert_eq!(retention.cutoffs(now), expected, "{retention:?}");
        }
    }

    #[test]
    fn the_floor_moves_up_alone_and_not_above_what_the_next_window_reaches_down_to() {
        let v = |version| Some(Version(version));
        // floor, before, lowest -> floor
        let cases = [
            (None, 50, v(90), v(50)),
            (None, 50, v(40), v(40)),
            (v(30), 50, v(90), v(50)),
            (v(60), 50, v(90), v(60)),
            (v(60), 70, v(40), v(60)),
            (None, 50, None, None),
            (v(60), 70, None, v(60)),
        ];
        for (floor, before, lowest, expected) in cases {
            assert_eq!(raised(floor, Version(before), lowest), expected, "{floor:?} {before} {lowest:?}");
        }
    }

    #[test]
    fn a_run_that_was_not_asked_for_what_is_below_the_floor_passes_it_over() {
        let live = Floor::known(Some(Version(10)), false);
        let replay = Floor { is_replay: true, ..live };
        // floor, version -> below, barred
        let cases = [
            (live, Some(9), true, true),
            (live, Some(10), false, false),
            (live, None, false, false),
            (replay, Some(9), true, false),
            (live.raised_to(Some(Version(12))), Some(11), true, true),
            (live.raised_to(Some(Version(8))), Some(9), true, true),
            (live.raised_to(None), Some(9), true, true),
            (Floor::known(None, false), Some(i64::MIN), false, false),
        ];
        for (floor, version, below, barred) in cases {
            let version = version.map(Version);
            assert_eq!(
                (floor.is_above(version), floor.bars(version)),
                (below, barred),
                "{floor:?} {version:?}"
            );
        }
    }
}
