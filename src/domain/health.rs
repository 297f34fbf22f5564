//! The health of a destination: whether it takes events, and when it is asked again where it does not. It is kept
//! in the store, so that every process knows the same.
//!
//! What fails for the destination's sake is no fault of the events that met it: they wait, and none is lost.
//! While it is not well one event at a time probes it, never the same one twice in a row where others wait,
//! so that no single event can hold it shut.

use std::time::Duration;

use serde::Serialize;

use super::{backoff::jittered, delivery::Verdict, instant::Instant};

/// So many failures in a row, and nothing is sent but probes.
const FAILURES: u32 = 5;

/// So many refusals without a delivery between them, and it is the destination that refuses, not the events.
const REFUSALS: u32 = 6;

/// The longest time between two probes.
const LONGEST_PAUSE: Duration = Duration::from_mins(15);

/// The longest wait that is ever written: the longest that a receiver may ask for, with its jitter.
pub const LONGEST_HOLD: Duration = Duration::from_hours(30);

/// From so many deliveries at once on, a destination is well again.
const ROOM: u32 = 64;

/// What is known of a destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// It takes events.
    #[default]
    Well,
    /// It takes events again, a few at a time.
    Recovering,
    /// It does not answer, or answers that it is in trouble.
    Failing,
    /// It is not what the configuration takes it for: no workflow listens there, it refuses the credential, or it
    /// refuses every event. A person has to look at it.
    Parked,
}

impl Condition {
    const ALL: [Self; 4] = [Self::Well, Self::Recovering, Self::Failing, Self::Parked];

    /// The name in the store and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Well => "well",
            Self::Recovering => "recovering",
            Self::Failing => "failing",
            Self::Parked => "parked",
        }
    }

    /// The condition of a stored name; `None` for a name of another release.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|condition| condition.name() == name)
    }

    /// Whether only probes are sent.
    pub const fn is_shut(self) -> bool {
        matches!(self, Self::Failing | Self::Parked)
    }
}

/// The health of a destination, by the database's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// What is known of it.
    pub condition: Condition,
    /// Since when.
    pub since: Instant,
    /// Why, for a person, where it is not well.
    pub reason: Option<String>,
    /// Failures in a row.
    pub failures: u32,
    /// Refusals without a delivery between them.
    pub refusals: u32,
    /// Probes in a row that did not deliver.
    pub probes: u32,
    /// How many deliveries may be under way at once while it recovers.
    pub room: u32,
    /// Nothing is sent before.
    pub not_before: Option<Instant>,
    /// When it last took an event, to the second.
    pub delivered_at: Option<Instant>,
}

/// What an attempt says of its destination.
#[derive(Clone, Copy, Debug)]
pub struct Said<'a> {
    /// What its answer means.
    pub verdict: Verdict,
    /// It was sent to see whether the destination is well again.
    pub is_probe: bool,
    /// It held more than one event.
    pub is_batch: bool,
    /// When its event was taken for sending, by the database's clock.
    pub claimed_at: Instant,
    /// Why it did not deliver, for a person.
    pub why: Option<&'a str>,
    /// The destination's waits between attempts, which probes follow too.
    pub delays: &'a [Duration],
    /// In [0, 1): spreads them.
    pub random: f64,
}

impl Health {
    /// The health after an attempt that ended at `now`. One that was begun before the destination was opened again
    /// speaks of the time before, unless it delivered or was asked to wait.
    #[must_use]
    pub fn after(&self, said: &Said<'_>, now: Instant) -> Self {
        let Said { verdict, is_probe, is_batch, claimed_at, why, delays, random } = *said;
        let mut health = self.clone();
        let shut = self.condition.is_shut();
        let is_late = self.condition == Condition::Recovering && claimed_at < self.since;
        match verdict {
            Verdict::Misplaced | Verdict::Failed { .. } | Verdict::Refused | Verdict::TooLarge if is_late => {
            }
            // What is too large together may well be taken in parts.
            Verdict::TooLarge if is_batch && !shut => {}
            Verdict::Delivered => health.delivered(now),
            Verdict::Wait(wait) => {
                let until = Some(now.plus(jittered(wait, random)));
                health.not_before = if is_probe { until } else { self.not_before.max(until) };
                if self.condition == Condition::Well {
                    health.turn(Condition::Recovering, why, now);
                }
                health.room = 1;
            }
            Verdict::Misplaced => {
                health.failures = health.failures.saturating_add(1);
                if self.condition != Condition::Parked {
                    health.turn(Condition::Parked, why, now);
                }
                health.shut_until_probed(is_probe || !shut, delays, random, now);
            }
            Verdict::Failed { .. } | Verdict::Unreached => {
                health.failures = health.failures.saturating_add(1);
                if !shut && (health.failures >= FAILURES || self.condition == Condition::Recovering) {
                    health.turn(Condition::Failing, why, now);
                }
                if health.condition.is_shut() {
                    health.shut_until_probed(is_probe || !shut, delays, random, now);
                }
            }
            Verdict::Refused | Verdict::TooLarge => {
                health.refusals = health.refusals.saturating_add(1);
                if !shut && health.refusals >= REFUSALS {
                    health.turn(Condition::Parked, why, now);
                }
                if health.condition.is_shut() {
                    health.shut_until_probed(is_probe || !shut, delays, random, now);
                }
            }
        }
        health
    }

    /// The health as it counts at `now`, also where the database's clock was wrong when it was written: nothing was
    /// delivered later than now, and no wait is longer than one that may be asked for.
    #[must_use]
    pub fn read_at(mut self, now: Instant) -> Self {
        self.delivered_at = self.delivered_at.min(Some(now));
        self.not_before = self.not_before.filter(|until| *until <= now.plus(LONGEST_HOLD));
        self
    }

    /// Whether this attempt says nothing that the store does not know, so that nothing has to be written.
    pub fn knows(&self, verdict: Verdict, now: Instant) -> bool {
        let is_fresh =
            self.delivered_at.is_some_and(|at| (at..at.plus(Duration::from_secs(1))).contains(&now));
        let is_clear = self.condition == Condition::Well && self.failures == 0 && self.refusals == 0;
        verdict == Verdict::Delivered && is_clear && is_fresh
    }

    /// Has a destination that is shut probed at once.
    pub fn ask_now(&mut self) {
        if self.condition.is_shut() {
            self.not_before = None;
        }
    }

    /// Has a destination asked at once on a person's word, whatever it wanted before.
    pub fn let_go(&mut self) {
        self.not_before = None;
    }

    fn delivered(&mut self, now: Instant) {
        (self.failures, self.refusals, self.probes) = (0, 0, 0);
        self.delivered_at = Some(now);
        match self.condition {
            Condition::Well => {}
            Condition::Failing | Condition::Parked => {
                self.turn(Condition::Recovering, None, now);
                (self.room, self.not_before) = (1, None);
            }
            Condition::Recovering => {
                self.room = self.room.saturating_mul(2);
                if self.room >= ROOM {
                    self.turn(Condition::Well, None, now);
                }
            }
        }
    }

    fn turn(&mut self, to: Condition, why: Option<&str>, now: Instant) {
        (self.condition, self.since, self.reason) = (to, now, why.map(str::to_owned));
    }

    /// Puts the next probe off. What was sent before it was shut and fails late puts off nothing more.
    fn shut_until_probed(&mut self, counts: bool, delays: &[Duration], random: f64, now: Instant) {
        if !counts {
            return;
        }
        let index = usize::try_from(self.probes).unwrap_or(usize::MAX);
        let pause = delays.get(index).or(delays.last()).copied().unwrap_or(LONGEST_PAUSE).min(LONGEST_PAUSE);
        self.probes = self.probes.saturating_add(1);
        self.not_before = Some(now.plus(jittered(pause, random)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAYS: [Duration; 2] = [Duration::from_secs(10), Duration::from_hours(1)];
    const FAILED: Verdict = Verdict::Failed { ambiguous: false, at_least: None };

    fn at(seconds: i64) -> Instant {
        Instant::from_seconds(seconds)
    }

    /// The health after these attempts, one a second; those in capitals are probes, and a `b` is a batch that is
    /// too large.
    fn after(attempts: &str) -> Health {
        let mut health = Health::default();
        for (second, attempt) in (1..).zip(attempts.chars()) {
            let verdict = match attempt.to_ascii_lowercase() {
                'd' => Verdict::Delivered,
                'f' => FAILED,
                'r' => Verdict::Refused,
                'l' | 'b' => Verdict::TooLarge,
                'u' => Verdict::Unreached,
                'm' => Verdict::Misplaced,
                'w' => Verdict::Wait(Duration::from_secs(7)),
                other => panic!("{other}"),
            };
            let is_probe = attempt.is_ascii_uppercase();
            let is_batch = attempt.eq_ignore_ascii_case(&'b');
            health = health.after(&Said { is_probe, is_batch, ..said(verdict, second) }, at(second));
        }
        health
    }

    /// What an attempt says that was begun at this second.
    fn said(verdict: Verdict, second: i64) -> Said<'static> {
        let claimed_at = at(second);
        Said {
            verdict,
            is_probe: false,
            is_batch: false,
            claimed_at,
            why: Some("why"),
            delays: &DELAYS,
            random: 0.0,
        }
    }

    #[test]
    fn a_destination_is_shut_by_what_speaks_of_it_and_opened_by_a_delivery() {
        use Condition::{Failing, Parked, Recovering, Well};
        // attempts -> condition, nothing is sent before this second (0 is now)
        let cases = [
            ("", Well, 0),
            ("dd", Well, 0),
            ("ffff", Well, 0),
            ("fffdffff", Well, 0),
            ("fffff", Failing, 15),
            ("ffffffff", Failing, 15),
            ("fffffF", Failing, 906),
            ("fufuuU", Failing, 906),
            ("fffffFF", Failing, 907),
            ("fffffR", Failing, 906),
            ("fffffD", Recovering, 0),
            ("fffffd", Recovering, 0),
            ("fffffDf", Failing, 17),
            ("m", Parked, 11),
            ("mm", Parked, 11),
            ("mMM", Parked, 903),
            ("mF", Parked, 902),
            ("mD", Recovering, 0),
            ("fffffM", Parked, 906),
            ("rrrrr", Well, 0),
            ("rrdrrrr", Well, 0),
            ("rrrrrr", Parked, 16),
            ("rrrrrrR", Parked, 907),
            ("llllll", Parked, 16),
            ("bbbbbb", Well, 0),
            ("rrrrrrB", Parked, 907),
            ("w", Recovering, 8),
            ("wf", Failing, 12),
            ("mW", Parked, 9),
            ("mDdddddd", Well, 0),
        ];
        for (attempts, condition, not_before) in cases {
            let health = after(attempts);
            assert_eq!(health.condition, condition, "{attempts}");
            assert_eq!(health.not_before.map_or(0, Instant::seconds), not_before, "{attempts}");
            assert_eq!(
                health.reason.is_some(),
                !matches!(condition, Well | Recovering) || attempts == "w",
                "{attempts}"
            );
        }
    }

    #[test]
    fn what_was_begun_before_it_was_opened_shuts_nothing() {
        use Condition::{Failing, Parked, Recovering};
        let opened = after("mD");
        // verdict, begun at this second -> condition
        let cases = [
            (FAILED, 1, Recovering),
            (FAILED, 2, Failing),
            (Verdict::Misplaced, 1, Recovering),
            (Verdict::Misplaced, 2, Parked),
        ];
        for (verdict, begun, condition) in cases {
            let health = opened.after(&said(verdict, begun), at(3));
            assert_eq!(health.condition, condition, "{verdict:?} {begun}");
            assert_eq!(health == opened, condition == Recovering, "{verdict:?} {begun}");
        }
        assert_eq!(opened.after(&said(Verdict::Refused, 1), at(3)), opened);
        let busy = opened.after(&said(Verdict::Wait(Duration::from_secs(7)), 1), at(3));
        assert_eq!(busy.not_before, Some(at(10)), "it asks for that now");
        assert_eq!(opened.after(&said(Verdict::Delivered, 1), at(3)).room, 2);
    }

    #[test]
    fn a_destination_recovers_a_few_at_a_time() {
        let rooms: Vec<_> =
            (0..7).map(|deliveries| after(&format!("mD{}", "d".repeat(deliveries))).room).collect();
        assert_eq!(rooms, [1, 2, 4, 8, 16, 32, 64]);
    }

    #[test]
    fn a_delivery_to_a_destination_that_is_well_writes_once_a_second() {
        let health = after("d");
        assert!(health.knows(Verdict::Delivered, at(1)));
        assert!(!health.knows(Verdict::Delivered, at(2)));
        assert!(!health.knows(FAILED, at(1)));
        assert!(!after("df").knows(Verdict::Delivered, at(2)));
        assert!(!after("").knows(Verdict::Delivered, at(1)));
        assert!(!health.knows(Verdict::Delivered, at(0)), "it comes from the future, and is written anew");
    }

    #[test]
    fn what_a_wrong_clock_wrote_does_not_hold() {
        let day = 86_400;
        // delivered at, not before -> the same as they count at second 1000
        let cases = [
            (None, None, None, None),
            (Some(999), Some(1001), Some(999), Some(1001)),
            (Some(1001), Some(1000 + day), Some(1000), Some(1000 + day)),
            (Some(day), Some(1000 + 30 * 3600), Some(1000), Some(1000 + 30 * 3600)),
            (Some(day), Some(1001 + 30 * 3600), Some(1000), None),
        ];
        for (delivered, before, counts, holds) in cases {
            let health =
                Health { delivered_at: delivered.map(at), not_before: before.map(at), ..Health::default() };
            let read = health.read_at(at(1000));
            assert_eq!((read.delivered_at, read.not_before), (counts.map(at), holds.map(at)));
        }
    }

    #[test]
    fn a_person_may_have_it_probed_at_once() {
        let mut shut = after("m");
        shut.ask_now();
        assert_eq!(shut.not_before, None);
        let mut busy = after("w");
        busy.ask_now();
        assert_eq!(busy.not_before, Some(at(8)), "it asked to be left alone");
    }

    #[test]
    fn names_are_read_back() {
        for condition in Condition::ALL {
            assert_eq!(Condition::from_name(condition.name()), Some(condition));
        }
    }
}
