//! Numbers with a fraction as whole numbers of small parts, from their text and back: exact, since none of
//! it goes through a float.

/// A decimal text times ten to the power of `places`, cut towards the past.
pub fn scaled(text: &str, places: usize) -> Option<i64> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    if whole.is_empty() || !(whole.bytes().chain(fraction.bytes())).all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let kept: String = fraction.chars().chain(std::iter::repeat('0')).take(places).collect();
    let lost = fraction.chars().skip(places).any(|digit| digit != '0');
    let magnitude: i64 = format!("{whole}{kept}").parse().ok()?;
    Some(if negative { -magnitude - i64::from(lost) } else { magnitude })
}

/// How many decimals a number has, zeros at its end left out.
pub fn decimals(text: &str) -> usize {
    text.split_once('.').map_or(0, |(_, fraction)| fraction.trim_end_matches('0').len())
}

/// Millionths as a number of six decimals.
pub fn millionths(count: i64) -> String {
    let sign = if count < 0 { "-" } else { "" };
    let magnitude = count.unsigned_abs();
    format!("{sign}{}.{:06}", magnitude / 1_000_000, magnitude % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_scaled_by_its_digits_and_cut_towards_the_past() {
        let cases = [
            ("1512085950.000216", 6, Some(1_512_085_950_000_216)),
            ("9007199254740.993", 6, Some(9_007_199_254_740_993_000)),
            ("7", 6, Some(7_000_000)),
            ("1.0009", 3, Some(1_000)),
            ("-1.0009", 3, Some(-1_001)),
            ("-0.5", 6, Some(-500_000)),
            ("9223372036854.775808", 6, None),
            ("1e3", 6, None),
            ("1.2.3", 6, None),
            (".5", 6, None),
            ("", 0, None),
        ];
        for (text, places, expected) in cases {
            assert_eq!(scaled(text, places), expected, "{text}");
        }
    }

    #[test]
    fn millionths_are_written_with_all_their_digits() {
        for (count, expected) in [(7_000_000, "7.000000"), (-500_000, "-0.500000"), (1, "0.000001")] {
            assert_eq!(millionths(count), expected);
            assert_eq!(scaled(expected, 6), Some(count));
        }
        for (text, expected) in [("1.50", 1), ("1.0000001", 7), ("3", 0), ("3.000", 0)] {
            assert_eq!(decimals(text), expected, "{text}");
        }
    }
}
