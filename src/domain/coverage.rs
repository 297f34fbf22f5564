//! Which versions were read completely, and when: what a step of a run covers, and what runs leave uncovered.

use super::{instant::Instant, version::Version, window::Step};

/// A step that was read to its end: the versions in [from, to). A bound that is missing does not bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covered {
    /// The first version.
    pub from: Option<Version>,
    /// The version after the last.
    pub to: Option<Version>,
    /// When the first request was sent, by the source's clock.
    pub read_at: Instant,
}

/// How the versions of a stream tell what is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// There are none to ask by: a walk that came to its end has read everything.
    Everything,
    /// They are instants: complete is what lies before this one.
    Before(Version),
    /// They are numbers: complete is what was read, up to and with this one where there was any.
    UpTo(Option<Version>),
}

impl Covered {
    /// What a step covers that began at `from` and has come to its end; `None` where nothing can be said.
    pub fn of(from: Option<Version>, step: Step, reach: Reach, read_at: Instant) -> Option<Self> {
        let to = match reach {
            Reach::Everything => return Some(Self { from: None, to: None, read_at }),
            Reach::Before(hi) => Some(step.to.map_or(hi, |to| to.min(hi))),
            Reach::UpTo(reached) => {
                step.to.or_else(|| reached.map(|Version(reached)| Version(reached.saturating_add(1))))
            }
        };
        let to = to.filter(|to| from.is_none_or(|from| from < *to))?;
        Some(Self { from, to: Some(to), read_at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_covers_what_it_asked_for_as_far_as_it_is_known_complete() {
        let version = |value: i64| (value != 0).then_some(Version(value));
        let before = |value| Reach::Before(Version(value));
        let up_to = |value| Reach::UpTo(version(value));
        // from, the step's end, reach -> from, to; 0 is none
        let cases = [
            (3, 0, before(9), Some((3, 9)), "the last step, to hi"),
            (0, 0, before(9), Some((0, 9)), "without a lower bound"),
            (3, 7, before(9), Some((3, 7)), "a closed step, to its end"),
            (3, 7, before(5), Some((3, 5)), "not beyond what the source's clock has passed"),
            (9, 0, before(9), None, "nothing"),
            (9, 0, before(4), None, "a clock set back"),
            (3, 0, up_to(6), Some((3, 7)), "a number that was read is complete"),
            (3, 0, up_to(0), None, "an idle source proves nothing"),
            (3, 5, up_to(0), Some((3, 5)), "a closed step of numbers"),
            (3, 0, Reach::Everything, Some((0, 0)), "a whole walk"),
        ];
        let read_at = Instant::from_seconds(1);
        for (from, to, reach, expected, why) in cases {
            let step = Step { from: version(from), to: version(to) };
            let covered = Covered::of(step.from, step, reach, read_at);
            let expected =
                expected.map(|(from, to)| Covered { from: version(from), to: version(to), read_at });
            assert_eq!(covered, expected, "{why}");
        }
    }
}
