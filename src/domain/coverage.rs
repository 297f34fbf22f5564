//! Which versions were read completely, and when: what a step of a run covers, and what runs leave uncovered.

use std::collections::BTreeMap;

use super::{instant::Instant, run::RunId, version::Version, window::Step};

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

/// A part of a range of versions, and who read it to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The first version.
    pub from: Version,
    /// The version after the last.
    pub to: Version,
    /// The first time that it was read completely, and the last time; `None` where it never was.
    pub read: Option<(Read, Read)>,
}

/// A run that read a part completely, and when. They are in the order of runs: clocks of sources jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Read {
    /// The run.
    pub run: RunId,
    /// When the first request was sent, by the source's clock.
    pub at: Instant,
}

/// The parts of [`from`, `to`) in order: each as long as the same runs were the first and the last to read it
/// completely.
pub fn parts(from: Version, to: Version, covered: &[(RunId, Covered)]) -> Vec<Part> {
    let mut bounds: Vec<(Version, bool, Read)> = Vec::with_capacity(covered.len() * 2);
    for (run, step) in covered {
        let read = Read { at: step.read_at, run: *run };
        let begins = step.from.map_or(from, |first| first.max(from));
        let ends = step.to.map_or(to, |end| end.min(to));
        if begins < ends {
            bounds.extend([(begins, true, read), (ends, false, read)]);
        }
    }
    bounds.sort_unstable();
    let mut parts: Vec<Part> = Vec::new();
    // A run can have covered a version more than once.
    let mut reading: BTreeMap<Read, u32> = BTreeMap::new();
    let mut at = from;
    for (bound, begins, read) in bounds {
        push(&mut parts, at, bound, &reading);
        at = at.max(bound);
        let times = reading.entry(read).or_default();
        *times = if begins { *times + 1 } else { times.saturating_sub(1) };
        if *times == 0 {
            reading.remove(&read);
        }
    }
    push(&mut parts, at, to, &reading);
    parts
}

/// Adds the part [`from`, `to`), or prolongs the last one where the same runs read it.
fn push(parts: &mut Vec<Part>, from: Version, to: Version, reading: &BTreeMap<Read, u32>) {
    if from >= to {
        return;
    }
    let read = reading.first_key_value().zip(reading.last_key_value());
    let read = read.map(|((first, _), (last, _))| (*first, *last));
    match parts.last_mut() {
        Some(part) if part.read == read => part.to = to,
        _ => parts.push(Part { from, to, read }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_falls_into_parts_by_who_read_them() {
        // Each run is (from, to); 0 is no bound. Its number is also when it read.
        type Case = (&'static str, &'static [(i64, i64)], &'static [(i64, i64, i64, i64)]);
        let cases: [Case; 10] = [
            ("nobody", &[], &[(10, 20, 0, 0)]),
            ("all of it", &[(5, 25)], &[(10, 20, 1, 1)]),
            ("exactly", &[(10, 20)], &[(10, 20, 1, 1)]),
            ("everything there is", &[(0, 0)], &[(10, 20, 1, 1)]),
            ("the beginning", &[(0, 12)], &[(10, 12, 1, 1), (12, 20, 0, 0)]),
            ("the end", &[(15, 0)], &[(10, 15, 0, 0), (15, 20, 1, 1)]),
            ("the middle", &[(12, 15)], &[(10, 12, 0, 0), (12, 15, 1, 1), (15, 20, 0, 0)]),
            ("steps tile", &[(10, 15), (15, 20)], &[(10, 15, 1, 1), (15, 20, 2, 2)]),
            ("windows overlap", &[(8, 15), (12, 30)], &[(10, 12, 1, 1), (12, 15, 1, 2), (15, 20, 2, 2)]),
            ("elsewhere", &[(1, 10), (20, 30), (15, 15)], &[(10, 20, 0, 0)]),
        ];
        for (why, runs, expected) in cases {
            let bound = |value: i64| (value != 0).then_some(Version(value));
            let numbered = (1..).zip(runs);
            let covered: Vec<_> = numbered
                .map(|(number, (from, to))| {
                    let read_at = Instant::from_seconds(number);
                    (RunId(number), Covered { from: bound(*from), to: bound(*to), read_at })
                })
                .collect();
            let read = |run: i64| Read { at: Instant::from_seconds(run), run: RunId(run) };
            let expected: Vec<_> = expected
                .iter()
                .map(|(from, to, first, last)| Part {
                    from: Version(*from),
                    to: Version(*to),
                    read: (*first != 0).then(|| (read(*first), read(*last))),
                })
                .collect();
            assert_eq!(parts(Version(10), Version(20), &covered), expected, "{why}");
        }
    }

    #[test]
    fn a_run_that_read_a_part_twice_has_read_it_until_the_second_time_ends() {
        let step = |from, to| {
            let covered = Covered {
                from: Some(Version(from)),
                to: Some(Version(to)),
                read_at: Instant::from_seconds(1),
            };
            (RunId(1), covered)
        };
        let told = parts(Version(0), Version(10), &[step(0, 8), step(2, 5)]);
        let read = Read { at: Instant::from_seconds(1), run: RunId(1) };
        assert_eq!(
            told,
            [
                Part { from: Version(0), to: Version(8), read: Some((read, read)) },
                Part { from: Version(8), to: Version(10), read: None },
            ]
        );
    }

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
