//! The watermark: the version up to which a stream is known complete. It moves only when every page of a
//! run was committed, never beyond what was seen and never beyond what the source could have finished.

use super::version::Version;

/// The watermark after a complete run: `max(W, min(max seen, hi))`. `hi` is `None` where versions are no
/// instants and the highest one seen is complete by itself.
pub fn advance(
    watermark: Option<Version>,
    max_seen: Option<Version>,
    hi: Option<Version>,
) -> Option<Version> {
    let reached = match (max_seen, hi) {
        (Some(seen), Some(hi)) => Some(seen.min(hi)),
        (seen, _) => seen,
    };
    watermark.max(reached)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watermark_moves_to_what_was_seen_and_no_further_than_hi() {
        let version = |value: i64| (value != 0).then_some(Version(value));
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
            assert_eq!(advance(version(watermark), version(seen), version(hi)), version(expected), "{why}");
        }
    }
}
