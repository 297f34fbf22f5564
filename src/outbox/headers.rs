//! The headers that tell a receiver what came, which attempt this is, and that it comes from here. What
//! names the event is the same on every attempt; timestamp, signature and span are the attempt's own.

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use crate::domain::{
    instant::Instant,
    signature::{SigningKey, signatures},
    trace::traceparent,
};

/// The headers of attempt `number` (from 1) to deliver `body` under `id`, made at `now`.
pub(super) fn of_attempt(keys: &[SigningKey], id: &str, body: &[u8], number: u32, now: Instant) -> HeaderMap {
    let timestamp = now.seconds();
    let named = [
        ("idempotency-key", Some(id.to_owned())),
        ("webhook-id", Some(id.to_owned())),
        ("webhook-timestamp", Some(timestamp.to_string())),
        ("webhook-signature", signatures(keys, id, timestamp, body)),
        ("x-onlynew-attempt", Some(number.to_string())),
        ("traceparent", Some(traceparent(id, fastrand::u64(1..)))),
    ];
    let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    for (name, value) in named {
        // Ids are ours and the rest is digits and base64: nothing here cannot stand in a header.
        if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    headers
}
