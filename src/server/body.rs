//! The bodies of requests: JSON, of a known form, and no larger than what is read.

use std::time::Duration;

use axum::{
    body::to_bytes,
    extract::{FromRequest, Request},
    http::{HeaderMap, StatusCode, header::CONTENT_TYPE},
};
use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error},
};

use super::problem::Problem;
use crate::domain::numbers;

/// The largest body that is read, in bytes: a thousand keys with what belongs to them.
const LARGEST: usize = 4_000_000;

/// How long a client has to send it.
const PATIENCE: Duration = Duration::from_secs(30);

/// The body of a request. An empty one is `{}`.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let read = tokio::time::timeout(PATIENCE, to_bytes(body, LARGEST)).await.map_err(|_| {
            let message = format!("the body did not come within {} s", PATIENCE.as_secs());
            Problem::new(StatusCode::REQUEST_TIMEOUT, "too_slow", message)
        })?;
        let bytes = read.map_err(|_| {
            let message = format!("the body is larger than {LARGEST} bytes, or was cut off");
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
        })?;
        if bytes.is_empty() {
            return parse(b"{}").map(Self);
        }
        check_type(&parts.headers)?;
        parse(&bytes).map(Self)
    }
}

/// The number that something was acquired with. `12.0` is 12, as JSON Schema has it.
#[derive(Clone, Copy, Debug, JsonSchema)]
#[schemars(transparent)]
pub(super) struct Fence(#[schemars(range(min = 0))] pub(super) i64);

impl<'de> Deserialize<'de> for Fence {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = serde_json::Number::deserialize(deserializer)?;
        let whole = numbers::canonical(&number.to_string()).parse().map(Self);
        whole.map_err(|_| D::Error::custom(format!("`fence` is {number}, which was never given")))
    }
}

/// Other types are what a page in a browser may send to anybody without asking first.
fn check_type(headers: &HeaderMap) -> Result<(), Problem> {
    let given = headers.get(CONTENT_TYPE).and_then(|given| given.to_str().ok()).unwrap_or_default();
    let essence = given.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = format!("the body has to be `Content-Type: application/json`, not `{given}`");
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", message))
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes)
        .map_err(|error| Problem::bad_request("bad_body", format!("the body cannot be read: {error}")))
}
