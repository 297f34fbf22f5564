//! Deletes by reconcile: what a sweep over everything proves to be gone, and when it may say so.
//!
//! D is what a source may take to show a change: lookback and settle. A key is gone only where the sweep was complete and
//! did not see it, nothing touched it since D before the sweep began, and a live run that began D after the sweep had
//! ended has passed without touching it either: a row that moved while it was being read is met by one of these.

use std::{collections::HashSet, time::Duration};

use serde::Serialize;

use super::{instant::Instant, key::RecordKey, run::stored_names, sighting::KeyMark};

/// Where a sweep stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It reads.
    Reading,
    /// It has read everything and waits for a live run to pass.
    Waiting,
    /// It has found more keys gone than it may mark without a person's word.
    Asking,
    /// It marks what is gone.
    Marking,
}

stored_names!(Phase {
    Self::Reading => "reading",
    Self::Waiting => "waiting",
    Self::Asking => "asking",
    Self::Marking => "marking",
});

/// What a sweep does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It reads on.
    Read,
    /// It waits for a live run.
    Wait,
    /// It counts what is gone and judges whether it may say so.
    Judge,
    /// It waits for a person.
    Ask,
    /// It marks what is gone.
    Mark,
}

impl Phase {
    /// What is next, where `has_passed` says that a live run has passed since and `is_accepted` that a person has let it
    /// go on.
    pub const fn next(self, has_passed: bool, is_accepted: bool) -> Next {
        match self {
            Self::Reading => Next::Read,
            Self::Waiting if has_passed => Next::Judge,
            Self::Waiting => Next::Wait,
            Self::Asking if is_accepted => Next::Mark,
            Self::Asking => Next::Ask,
            Self::Marking => Next::Mark,
        }
    }
}

/// From when on a sighting of a key keeps it alive: D before the sweep began.
pub fn touched_since(began_at: Instant, reach: Duration) -> Instant {
    began_at.minus(reach)
}

/// From when on a live run has to begin to prove something: D after the sweep had read everything.
pub fn passes_from(read_at: Instant, reach: Duration) -> Instant {
    read_at.plus(reach)
}

/// A stored key that is not deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The key.
    pub key: RecordKey,
    /// When its row was last written, by the database's clock.
    pub changed_at: Instant,
}

/// What of a sweep's keys was met, by the eight bytes of their hashes. Two keys that share them are both taken to be met.
#[derive(Clone, Debug)]
pub struct Absence {
    since: Instant,
    touched: HashSet<KeyMark>,
}

impl Absence {
    /// Of a sweep whose keys must not have been touched since `since`.
    pub fn new(since: Instant) -> Self {
        Self { since, touched: HashSet::new() }
    }

    /// Since when no key may have been touched that is called gone.
    pub const fn since(&self) -> Instant {
        self.since
    }

    /// Takes in keys that were met since.
    pub fn touch(&mut self, marks: impl IntoIterator<Item = KeyMark>) {
        self.touched.extend(marks);
    }

    /// Whether nothing has touched a key.
    pub fn is_gone(&self, standing: &Standing) -> bool {
        standing.changed_at < self.since && !self.touched.contains(&KeyMark::of(&standing.key))
    }
}

/// A share of a whole, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(u32);

const WHOLE: u32 = 1_000_000;

impl Share {
    /// How much of the known keys a sweep may call gone where nothing else is said.
    pub const TENTH: Self = Self(WHOLE / 10);

    /// Reads `10%` or `0.1`; `None` where it is something else, or more than the whole.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (number, of) = match text.strip_suffix('%') {
            Some(number) => (number.trim_end(), 100.0),
            None => (text, 1.0),
        };
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return None;
        }
        let share = number.parse::<f64>().ok()? / of;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 0 and 1")]
        (0.0..=1.0).contains(&share).then(|| Self((share * f64::from(WHOLE)).round() as u32))
    }

    /// Whether `part` is more than this share of `whole`.
    pub fn is_exceeded(self, part: u64, whole: u64) -> bool {
        u128::from(part) * u128::from(WHOLE) > u128::from(whole) * u128::from(self.0)
    }
}

impl std::fmt::Display for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let percent = format!("{}.{:04}", self.0 / 10_000, self.0 % 10_000);
        write!(f, "{}%", percent.trim_end_matches('0').trim_end_matches('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(key: &str, changed_at: i64) -> Standing {
        Standing { key: RecordKey::from_stored(key.into()), changed_at: Instant::from_seconds(changed_at) }
    }

    #[test]
    fn a_sweep_reads_waits_judges_and_marks() {
        // phase, a live run has passed, a person has accepted -> next
        let cases = [
            (Phase::Reading, true, true, Next::Read),
            (Phase::Waiting, false, false, Next::Wait),
            (Phase::Waiting, false, true, Next::Wait),
            (Phase::Waiting, true, false, Next::Judge),
            (Phase::Asking, true, false, Next::Ask),
            (Phase::Asking, true, true, Next::Mark),
            (Phase::Marking, true, false, Next::Mark),
        ];
        for (phase, has_passed, is_accepted, expected) in cases {
            assert_eq!(phase.next(has_passed, is_accepted), expected, "{phase:?} {has_passed} {is_accepted}");
        }
    }

    #[test]
    fn a_key_is_gone_only_where_nothing_touched_it() {
        let reach = Duration::from_secs(10);
        let mut absence = Absence::new(touched_since(Instant::from_seconds(100), reach));
        absence.touch([KeyMark::of(&RecordKey::from_stored("seen".into()))]);
        // key, last written -> gone
        let cases = [
            ("gone", 89, true, "nothing touched it"),
            ("seen", 89, false, "a page held it"),
            ("gone", 90, false, "it was written D before the sweep began"),
            ("gone", 200, false, "it was written since"),
        ];
        for (key, changed_at, expected, why) in cases {
            assert_eq!(absence.is_gone(&standing(key, changed_at)), expected, "{why}");
        }
        assert_eq!(passes_from(Instant::from_seconds(100), reach), Instant::from_seconds(110));
    }

    #[test]
    fn a_share_is_a_percentage_or_a_fraction() {
        let cases = [
            ("10%", Some("10%")),
            ("0.1", Some("10%")),
            (" 12.5 % ", Some("12.5%")),
            ("0", Some("0%")),
            ("1", Some("100%")),
            ("100%", Some("100%")),
            ("101%", None),
            ("1.1", None),
            ("10", None),
            ("-1%", None),
            ("%", None),
            ("", None),
            ("1e-1", None),
            ("inf", None),
            ("a tenth", None),
        ];
        for (text, expected) in cases {
            assert_eq!(Share::parse(text).map(|share| share.to_string()).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_share_is_exceeded_by_more_than_itself() {
        let cases = [
            ("10%", 0, 0, false),
            ("10%", 1, 10, false),
            ("10%", 2, 10, true),
            ("0", 1, 1_000, true),
            ("100%", 5, 5, false),
            ("100%", u64::MAX, u64::MAX, false),
        ];
        for (share, part, whole, expected) in cases {
            assert_eq!(
                Share::parse(share).unwrap().is_exceeded(part, whole),
                expected,
                "{share} {part} {whole}"
            );
        }
    }
}
