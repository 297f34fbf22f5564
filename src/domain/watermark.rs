//! The watermark: the version up to which a stream is known complete. It moves only when every page of a
//! step was committed, never beyond what was seen or asked for, and never beyond what the source could have
//! finished.

use super::{version::Version, window::Step};

/// The watermark after a complete step.
///
/// A closed step is complete to its end. The last step, which has none, is complete to the highest version
/// seen: an idle source proves nothing. Neither counts beyond `hi`; that is `None` where versions are no
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
