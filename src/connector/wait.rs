//! How long an answer asks to be waited for, where the connector says in which words. Instants are told
//! by the source's clock, so they are taken relative to its `Date`. No value may panic.

use std::time::Duration;

use jiff::tz::TimeZone;
use reqwest::header::HeaderMap;
use serde_json::{Value, value::RawValue};

use super::place::find;
use crate::{
    config::stream::{WaitRule, WaitUnit},
    domain::{instant::Instant, retry_after, version::VersionFormat},
};

/// The wait that a rule finds in an answer; `None` where it finds none that makes sense. `now` is the
/// source's time of day.
pub fn wait_by(
    rule: &WaitRule,
    body: Option<&RawValue>,
    headers: &HeaderMap,
    now: Instant,
) -> Option<Duration> {
    told_by(rule, body, headers, now).filter(|wait| !wait.is_zero())
}

/// The same, where an instant that has passed already, or no seconds, is an answer too: a wait of nothing.
pub fn told_by(
    rule: &WaitRule,
    body: Option<&RawValue>,
    headers: &HeaderMap,
    now: Instant,
) -> Option<Duration> {
    let (place, unit, pattern) = match rule {
        WaitRule::Fixed(wait) => return Some(*wait),
        WaitRule::From { place, unit, pattern } => (place, *unit, pattern),
    };
    let found = find(place, body.unwrap_or(RawValue::NULL), headers).ok()??;
    let text = match &found {
        Value::String(text) => text.as_str(),
        Value::Number(number) => &number.to_string(),
        _ => return None,
    };
    let picked = match pattern {
        Some(pattern) => pattern.captures(text)?.get(1)?.as_str(),
        None => text,
    };
    let until = |format: VersionFormat| {
        let version = format.read(&Value::from(picked), Some(&TimeZone::UTC)).ok()??;
        Some(Instant::from_micros(version.0).since(now))
    };
    let is_nothing =
        !picked.trim().is_empty() && picked.trim().bytes().all(|byte| matches!(byte, b'0' | b'.'));
    match unit {
        WaitUnit::Seconds => retry_after::parse(picked, now).or(is_nothing.then_some(Duration::ZERO)),
        WaitUnit::EpochS => until(VersionFormat::EpochS),
        WaitUnit::EpochMs => until(VersionFormat::EpochMs),
        WaitUnit::Iso8601 => until(VersionFormat::Iso8601),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::stream::Place;

    const NOW: Instant = Instant::from_seconds(1_790_000_000);

    fn rule(place: &str, unit: WaitUnit, pattern: Option<&str>) -> WaitRule {
        let place = match place.strip_prefix("header:") {
            Some(name) => Place::Header(name.to_owned()),
            None => Place::Body(place.parse().unwrap()),
        };
        WaitRule::From { place, unit, pattern: pattern.map(|p| regex_lite::Regex::new(p).unwrap()) }
    }

    fn wait(rule: &WaitRule, reset: &str, body: &str) -> Option<u64> {
        let mut headers = HeaderMap::new();
        headers.insert("x-reset", reset.parse().unwrap());
        let body: &RawValue = serde_json::from_str(body).unwrap();
        wait_by(rule, Some(body), &headers, NOW).map(|wait| wait.as_secs())
    }

    #[test]
    fn waits_are_read_in_every_unit() {
        use WaitUnit::{EpochMs, EpochS, Iso8601, Seconds};
        let header = |unit| rule("header:x-reset", unit, None);
        let cases = [
            (header(Seconds), "16", Some(16)),
            (header(Seconds), "1.5", Some(2)),
            (header(Seconds), "-1", None),
            (header(EpochS), "1790000030", Some(30)),
            (header(EpochS), "1789999999", None),
            (header(EpochS), "99999999999999999999", None),
            (header(EpochMs), "1790000030500", Some(30)),
            (header(Iso8601), "2026-09-21T14:13:50Z", Some(30)),
            (header(Iso8601), "2026-09-21T14:13:50", Some(30)),
            (header(Iso8601), "soon", None),
            (rule("header:x-reset", Seconds, Some("in ([0-9]+)s")), "again in 7s", Some(7)),
            (rule("header:x-reset", Seconds, Some("in ([0-9]+)s")), "again in a while", None),
            (rule("header:x-other", Seconds, None), "7", None),
        ];
        for (rule, reset, expected) in cases {
            assert_eq!(wait(&rule, reset, "{}"), expected, "{rule:?} {reset}");
        }
        let body = r#"{"error":{"retry":16,"text":"reset in 16 seconds","flag":true}}"#;
        assert_eq!(wait(&rule("$.error.retry", Seconds, None), "", body), Some(16));
        assert_eq!(wait(&rule("$.error.text", Seconds, Some("in ([0-9]+) s")), "", body), Some(16));
        assert_eq!(wait(&rule("$.error.flag", Seconds, None), "", body), None);
        assert_eq!(wait(&WaitRule::Fixed(Duration::from_secs(5)), "", body), Some(5));
    }

    proptest! {
        #[test]
        fn no_value_panics(value in "\\PC{0,30}|-?[0-9.]{0,40}") {
            for unit in [WaitUnit::Seconds, WaitUnit::EpochS, WaitUnit::EpochMs, WaitUnit::Iso8601] {
                let body = serde_json::json!({"a": value}).to_string();
                wait(&rule("$.a", unit, None), "", &body);
            }
        }
    }
}
