//! The headers that tell a receiver what came, which attempt this is, and that it comes from here. What
//! names the message is the same on every attempt; timestamp, signature and span are the attempt's own.

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use crate::domain::{
    instant::Instant,
    signature::{SigningKey, signatures},
    trace::traceparent,
};

/// What names a message, and its attempt `number` (from 1).
pub fn naming(id: &str, number: u32) -> [(&'static str, String); 3] {
    [
        ("Idempotency-Key", id.to_owned()),
        ("webhook-id", id.to_owned()),
        ("X-Onlynew-Attempt", number.to_string()),
    ]
}

/// The headers of attempt `number` (from 1) to deliver `body` under `id`, made at `now`.
pub(super) fn of_attempt(keys: &[SigningKey], id: &str, body: &[u8], number: u32, now: Instant) -> HeaderMap {
    let timestamp = now.seconds();
    let of_attempt = [
        ("webhook-timestamp", Some(timestamp.to_string())),
        ("webhook-signature", signatures(keys, id, timestamp, body)),
        ("traceparent", Some(traceparent(id, fastrand::u64(1..)))),
    ];
    let named = naming(id, number).map(|(name, value)| (name, Some(value)));
    let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    for (name, value) in named.into_iter().chain(of_attempt) {
        // Ids are ours and the rest is digits and base64: nothing here cannot stand in a header.
        let value = value.and_then(|value| HeaderValue::try_from(value).ok());
        if let (Ok(name), Some(value)) = (HeaderName::try_from(name), value) {
            headers.insert(name, value);
        }
    }
    headers
}
