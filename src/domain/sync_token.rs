//! What a source gave to go on from, where it knows by itself what is new: a sync token, or a delta link.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::instant::Instant;

/// A sync token, or the URL of a delta link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncToken {
    /// The hash of the account and the listing that it was given for: it means nothing to another one.
    pub made_for: String,
    /// The token or URL, as it came.
    pub value: Value,
    /// When it was given, by our clock.
    pub given_at: Instant,
}

impl SyncToken {
    /// Whether a run that begins at `now` may go on from it.
    pub fn is_good(&self, made_for: &str, retention: Option<Duration>, now: Instant) -> bool {
        self.made_for == made_for && retention.is_none_or(|retention| now.since(self.given_at) < retention)
    }
}

/// The validator of a listing that one page held, and the request that it answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageTag {
    /// The hash of the request and of everything else that shapes what is read from its answer.
    pub request: String,
    /// The answer's `ETag`, as it came.
    pub etag: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_for_its_listing_while_the_source_knows_it() {
        let hour = Duration::from_hours(1);
        let token =
            SyncToken { made_for: "a".into(), value: Value::from("t"), given_at: Instant::from_seconds(100) };
        let cases = [
            ("a", None, 1_000_000, true),
            ("a", Some(hour), 3_699, true),
            ("a", Some(hour), 3_700, false),
            ("a", Some(hour), 0, true),
            ("b", None, 100, false),
        ];
        for (made_for, retention, now, expected) in cases {
            assert_eq!(token.is_good(made_for, retention, Instant::from_seconds(now)), expected, "{now}");
        }
    }
}
