//! The watermark: the version up to which a stream is known complete. It moves only when every page of a
//! step was committed, never beyond what was seen or asked for, and never beyond what the source could have
//! finished.

use serde::{Deserialize, Serialize};

use super::{version::Version, window::Step};

/// The highest versions that a step has met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    first_page: Option<Version>,
    highest: Option<Version>,
    has_begun: bool,
    is_unsorted: bool,
}

impl Seen {
    /// Takes in the highest version of a page. `is_sorted` says that all rows so far were sorted by version,
    /// oldest first.
    pub fn page(&mut self, highest: Option<Version>, is_sorted: bool) {
        if !self.has_begun {
            (self.first_page, self.has_begun) = (highest, true);
        }
        self.highest = self.highest.max(highest);
        self.is_unsorted |= !is_sorted;
    }

    /// Whether rows were met that are not sorted.
    pub const fn is_unsorted(self) -> bool {
        self.is_unsorted
    }

    /// The version up to which nothing changed behind the reader.
    ///
    /// A row that changes after its page was read gets a version above all that stood when the walk began.
    /// Where versions are instants, `hi` says which those are; else it is those of the first page, unless
    /// the listing is sorted, so that such a row moves to where it is still to be read.
    pub fn complete_to(self, is_time: bool) -> Option<Version> {
        if is_time || !self.is_unsorted { self.highest } else { self.first_page }
    }
}

/// The watermark after a complete step.
///
/// A closed step is complete to its end. The last step, which has none, is complete to the highest version
/// seen, as [`Seen::complete_to`] has it: an idle source proves nothing. Neither counts beyond `hi`; that is `None` where versions are no
/// instants and the highest one seen is complete by itself.
pub fn advance(
    watermark: Option<Version>,
    step: Step,
    max_seen: Option<Version>,
    hi: Option<Version>,
) -> Option<Version> {
    let reached = match (step.to.or(max_seen), hi) {
        (Some(reached), Some(hi)) => Some(reached.min(hi)),
        (reached, _) => reached,
    };
    watermark.max(reached)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(value: i64) -> Option<Version> {
        (value != 0).then_some(Version(value))
    }

    #[test]
    fn the_last_step_reaches_what_was_seen_and_no_further_than_hi() {
        let last = Step { from: None, to: None };
        // watermark, max seen, hi -> watermark
        let cases = [
            (0, 0, 9, 0, "an idle source proves nothing"),
            (5, 0, 9, 5, "an empty window keeps it"),
            (5, 7, 9, 7, "what was seen"),
            (5, 99, 9, 9, "C21: a row from the future is clamped"),
            (5, 3, 9, 5, "it never moves back"),
            (5, 7, 4, 5, "nor for a clock set back"),
            (0, 7, 0, 7, "integers have no hi"),
        ];
        for (watermark, seen, hi, expected, why) in cases {
            let moved = advance(version(watermark), last, version(seen), version(hi));
            assert_eq!(moved, version(expected), "{why}");
        }
    }

    #[test]
    fn a_row_that_changes_behind_the_reader_is_not_passed_over() {
        assert_eq!(Seen::default().complete_to(true), None);
        let seen = |sorted: [bool; 4]| {
            let mut seen = Seen::default();
            for (page, is_sorted) in [3, 0, 9, 5].into_iter().zip(sorted) {
                seen.page(version(page), is_sorted);
            }
            seen
        };
        let (sorted, unsorted) = (seen([true; 4]), seen([true, true, false, true]));
        assert_eq!(unsorted.complete_to(true), version(9), "`hi` holds it back");
        assert_eq!(sorted.complete_to(false), version(9), "it is read later in this walk");
        assert_eq!(unsorted.complete_to(false), version(3), "it is above what stood when the walk began");
        let mut late = Seen::default();
        late.page(None, false);
        late.page(version(9), false);
        assert_eq!(late.complete_to(false), None);
    }

    #[test]
    fn a_closed_step_reaches_its_end() {
        let closed = Step { from: version(1), to: version(8) };
        let cases = [
            (3, 0, 9, 8, "an empty step is complete all the same"),
            (3, 5, 9, 8, "whatever was seen"),
            (3, 99, 9, 8, "a row from the future moves nothing"),
            (3, 5, 6, 6, "the source's clock has not passed its end"),
            (9, 5, 9, 9, "it never moves back"),
        ];
        for (watermark, seen, hi, expected, why) in cases {
            let moved = advance(version(watermark), closed, version(seen), version(hi));
            assert_eq!(moved, version(expected), "{why}");
        }
    }
}
