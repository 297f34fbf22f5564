//! How long a receiver or source asks to be left alone: the Retry-After header in every shape met in the
//! field (RFC 9110 section 10.2.3, field case C12). No value may panic; a senseless one is `None`.

use std::time::Duration;

use jiff::fmt::rfc2822;

use super::instant::Instant;

/// Reads a Retry-After value: seconds (whole or with a fraction, rounded up) or an HTTP date, which is
/// taken relative to `now`. Zero, the past and nonsense are `None`: the caller backs off by itself.
pub fn parse(value: &str, now: Instant) -> Option<Duration> {
    let text = value.trim();
    let wait = match text.bytes().next()? {
        b'0'..=b'9' => seconds(text)?,
        _ => Instant::from(rfc2822::parse(text).ok()?.timestamp()).since(now),
    };
    (!wait.is_zero()).then_some(wait)
}

fn seconds(text: &str) -> Option<Duration> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let up = u64::from(fraction.bytes().any(|byte| byte != b'0'));
    Some(Duration::from_secs(whole.parse::<u64>().ok()?.saturating_add(up)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c12_retry_after_shapes() {
        let now: Instant = "2026-09-21T14:13:20Z".parse().unwrap();
        let cases = [
            ("120", Some(120)),
            (" 120 ", Some(120)),
            ("0", None),
            ("1.5", Some(2)),
            ("Mon, 21 Sep 2026 14:15:20 GMT", Some(120)),
            ("Mon, 21 Sep 2026 14:11:20 GMT", None),
            ("-1", None),
            ("abc", None),
            ("inf", None),
            ("nan", None),
            ("", None),
            ("1.x", None),
            ("86400", Some(86_400)),
            ("99999999999999999999", None),
        ];
        for (value, expected) in cases {
            assert_eq!(parse(value, now), expected.map(Duration::from_secs), "{value:?}");
        }
    }
}
