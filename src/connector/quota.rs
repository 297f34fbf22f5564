//! What an answer says about the quota it was counted in: that nothing is left until some moment, or how
//! long to pause for what it cost. Heeded before the next request, not after a refusal.

use std::time::Duration;

use minijinja::Value as Slot;
use serde_json::{Value, value::RawValue};

use super::{
    place::find,
    verdict::{Reply, names_of},
    wait::told_by,
};
use crate::config::account::RateLimit;

/// Clocks that tell a reset tick in seconds: one that has just come may be so much away.
const TICK: Duration = Duration::from_secs(1);

/// No vendor lets a quota stand empty for longer; a reset beyond it was read in a wrong unit.
const LONGEST_RESET: Duration = Duration::from_hours(24 * 31);

/// How long the answer wants the next request of this quota to wait; fails where `pause` cannot be used.
pub fn pause_after(limit: &RateLimit, inputs: &Slot, reply: &Reply) -> Result<Option<Duration>, String> {
    let emptied = limit
        .remaining
        .as_ref()
        .and_then(|place| find(place, reply.json().unwrap_or(RawValue::NULL), &reply.headers).ok()?)
        .and_then(|left| number(&left))
        .is_some_and(|left| left < 1.0)
        .then(|| until_reset(limit, reply));
    let paused = match &limit.pause {
        Some(pause) => {
            let value = pause
                .value(&names_of(inputs, reply))
                .map_err(|error| format!("`pause` of the rate limit failed: {error}"))?;
            seconds(&value)?
        }
        None => None,
    };
    Ok(emptied.max(paused).filter(|wait| !wait.is_zero()))
}

/// The time until the quota is filled again: as the answer says, else a whole period.
fn until_reset(limit: &RateLimit, reply: &Reply) -> Duration {
    limit
        .reset
        .as_ref()
        .and_then(|reset| told_by(reset, reply.json(), &reply.headers, reply.now))
        .filter(|wait| *wait <= LONGEST_RESET)
        .map_or(limit.per, |wait| wait.max(TICK))
}

/// A pause in seconds, rounded up to microseconds; null and what is not above zero are none.
fn seconds(value: &Value) -> Result<Option<Duration>, String> {
    if value.is_null() {
        return Ok(None);
    }
    let wrong = || format!("`pause` of the rate limit gave `{value}`, which is no number of seconds");
    let seconds = number(value).ok_or_else(wrong)?;
    if seconds <= 0.0 {
        return Ok(None);
    }
    let wait = Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
    if wait > LONGEST_RESET {
        return Err(wrong());
    }
    let micros = wait.as_nanos().div_ceil(1_000);
    Ok(Some(Duration::from_micros(u64::try_from(micros).map_err(|_| wrong())?)))
}

fn number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse::<f64>().ok(),
        _ => None,
    };
    number.filter(|number| number.is_finite())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pause_is_a_number_of_seconds() {
        let cases = [
            (json!(null), Some(None)),
            (json!(0), Some(None)),
            (json!(-3), Some(None)),
            (json!(2), Some(Some(2_000_000))),
            (json!("1.5"), Some(Some(1_500_000))),
            (json!(0.000_000_1), Some(Some(1))),
            (json!("soon"), None),
            (json!("inf"), None),
            (json!("nan"), None),
            (json!(true), None),
            (json!(1e300), None),
        ];
        for (value, expected) in cases {
            let found = seconds(&value).ok().map(|wait| wait.map(|wait| wait.as_micros()));
            assert_eq!(found, expected, "{value}");
        }
    }
}
