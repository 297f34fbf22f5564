//! JSON numbers by their text: one spelling for equal values, and integers that JavaScript would round
//! made safe for n8n. Nothing here goes through a float.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The largest integer that JavaScript holds exactly: 2^53 - 1.
const MAX_SAFE: u64 = (1 << 53) - 1;

/// One spelling for every JSON number of the same value: `10`, `10.0` and `1e1` are all `10`.
///
/// An exponent so large that the plain digits would be absurd is kept as digits and exponent.
pub fn canonical(number: &str) -> String {
    let (negative, unsigned) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number),
    };
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let Ok(exponent) = exponent.parse::<i64>() else { return number.to_owned() };
    let all = format!("{whole}{fraction}");
    let significant = all.trim_start_matches('0');
    let digits = significant.trim_end_matches('0');
    if digits.is_empty() {
        return "0".to_owned();
    }
    let dropped = significant.len() - digits.len();
    let scale = exponent
        .saturating_add(i64::try_from(dropped).unwrap_or(0))
        .saturating_sub(i64::try_from(fraction.len()).unwrap_or(0));
    let sign = if negative { "-" } else { "" };
    match usize::try_from(scale.unsigned_abs()) {
        Ok(zeros) if scale >= 0 && zeros <= 64 => format!("{sign}{digits}{}", "0".repeat(zeros)),
        Ok(places) if scale < 0 && places <= 64 => {
            let padded = format!("{digits:0>width$}", width = places + 1);
            let (whole, fraction) = padded.split_at(padded.len() - places);
            format!("{sign}{whole}.{fraction}")
        }
        _ => format!("{sign}{digits}e{scale}"),
    }
}

/// How integers that JavaScript would round go out in events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Numbers {
    /// As strings, so that n8n sees every digit.
    #[default]
    Safe,
    /// As the source wrote them, for receivers that read them whole.
    Raw,
}

impl Numbers {
    /// A record's text as it goes out.
    pub fn spelled(self, json: &RawValue) -> Cow<'_, str> {
        match self {
            Self::Safe => javascript_safe(json),
            Self::Raw => Cow::Borrowed(json.get()),
        }
    }
}

/// The JSON text with every integer beyond ±(2^53 - 1) written as a string, since n8n (JavaScript) would
/// round it. Everything else stays byte for byte.
fn javascript_safe(json: &RawValue) -> Cow<'_, str> {
    let text = json.get();
    let bytes = text.as_bytes();
    let mut out = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => at = string_end(bytes, at),
            b'-' | b'0'..=b'9' => {
                let end = at + number_length(bytes, at);
                let token = text.get(at..end).unwrap_or_default();
                if is_unsafe_integer(token) {
                    out.push_str(text.get(copied..at).unwrap_or_default());
                    out.push('"');
                    out.push_str(token);
                    out.push('"');
                    copied = end;
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(text.get(copied..).unwrap_or_default());
    Cow::Owned(out)
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn number_length(bytes: &[u8], start: usize) -> usize {
    let tail = bytes.get(start..).unwrap_or_default();
    let is_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
    tail.iter().take_while(|byte| is_number(byte)).count().max(1)
}

fn is_unsafe_integer(token: &str) -> bool {
    let digits = token.strip_prefix('-').unwrap_or(token);
    digits.len() >= 16
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && digits.parse::<u64>().map_or(true, |value| value > MAX_SAFE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_numbers_have_one_spelling() {
        let cases = [
            ("10", "10"),
            ("10.0", "10"),
            ("1e1", "10"),
            ("100E-1", "10"),
            ("1.10", "1.1"),
            ("0.0", "0"),
            ("-0", "0"),
            ("-0.50", "-0.5"),
            ("5e-3", "0.005"),
            ("9007199254740993", "9007199254740993"),
            ("18446744073709551616", "18446744073709551616"),
            ("1e400", "1e400"),
            ("1e99999999999999999999", "1e99999999999999999999"),
        ];
        for (number, expected) in cases {
            assert_eq!(canonical(number), expected, "{number}");
        }
    }

    #[test]
    fn integers_that_javascript_would_round_become_strings() {
        let cases = [
            (r#"{"id":9007199254740991}"#, r#"{"id":9007199254740991}"#),
            (r#"{"id":9007199254740992}"#, r#"{"id":"9007199254740992"}"#),
            ("[-9007199254740993, 1]", r#"["-9007199254740993", 1]"#),
            (
                r#"{"a":"x\"9007199254740993","b":18446744073709551616}"#,
                r#"{"a":"x\"9007199254740993","b":"18446744073709551616"}"#,
            ),
            ("123456789012345678.5", "123456789012345678.5"),
            ("[0.1,true,null]", "[0.1,true,null]"),
        ];
        for (json, expected) in cases {
            let raw: &RawValue = serde_json::from_str(json).unwrap();
            assert_eq!(javascript_safe(raw), expected);
        }
    }
}
