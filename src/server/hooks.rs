//! Hooks over HTTP: what comes in is checked from the cheapest to the dearest, stored, and answered.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::{
    Json,
    body::{Body, to_bytes},
    extract::{ConnectInfo, Request},
    http::{HeaderMap, Method, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::post,
};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use ipnet::IpNet;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::{
    operation::{Answered, Asked, Operation},
    problem::Problem,
};
use crate::{
    config::hook::Hook,
    domain::{clock::machine_time, hook::OnMissingKey, instant::Instant},
    intake::{Arrived, Intake, NotStored, delivery},
    store::{JobRow, Received},
};

/// How long a provider has to send a body.
const PATIENCE: Duration = Duration::from_secs(30);

/// How many seconds a provider should wait for a store that fails.
const STORE_WAIT: u64 = 5;

/// A hook that listens.
#[derive(Debug)]
pub(super) struct Listening {
    hook: Arc<Hook>,
    row: JobRow,
    intake: Intake,
    proxies: Vec<IpNet>,
    limiter: Option<DefaultDirectRateLimiter>,
}

/// What a provider is told.
#[derive(Debug, Serialize, JsonSchema)]
struct Told {
    /// What became of it.
    status: Status,
    /// The event that goes on, or went on when it came first.
    event: Option<String>,
    /// When it came first, where it came before.
    #[schemars(with = "Option<String>")]
    first_seen: Option<Instant>,
    /// Its number in `onlynew quarantine list`, where it has no key.
    id: Option<String>,
}

/// What became of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Status {
    /// It goes on.
    Accepted,
    /// It came before, and went on then.
    Duplicate,
    /// It has no key, and waits for a person.
    Quarantined,
}

impl Listening {
    pub(super) fn new(hook: Arc<Hook>, row: JobRow, intake: Intake, proxies: Vec<IpNet>) -> Self {
        let quota = hook
            .rate_limit
            .and_then(|rate| Quota::with_period(rate.period()).map(|quota| quota.allow_burst(rate.requests)));
        Self { limiter: quota.map(RateLimiter::direct), hook, row, intake, proxies }
    }

    /// The operation of the hook.
    pub(super) fn operation(self) -> Operation {
        let (path, name) = (self.hook.path.clone(), self.hook.name.clone());
        let listening = Arc::new(self);
        let problem = Answered::problem;
        Operation {
            method: Method::POST,
            path: path.into(),
            id: format!("hook_{name}").into(),
            summary: "Takes a webhook in.",
            may: &[],
            body: Some(Asked { form: |_| schemars::json_schema!({}), is_required: true }),
            answers: vec![
                Answered::with::<Told>(StatusCode::OK, "It goes on, or it came before."),
                Answered::with::<Told>(
                    StatusCode::ACCEPTED,
                    "It has no key and waits for a person, or it came before.",
                ),
                problem(StatusCode::BAD_REQUEST, "The body is no JSON."),
                problem(StatusCode::UNAUTHORIZED, "The signature does not fit."),
                problem(StatusCode::FORBIDDEN, "It may not come from there."),
                problem(StatusCode::REQUEST_TIMEOUT, "The body did not come in time."),
                problem(StatusCode::PAYLOAD_TOO_LARGE, "The body is too large."),
                problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Bodies of this type are not taken."),
                problem(StatusCode::UNPROCESSABLE_ENTITY, "It has no key."),
                problem(StatusCode::TOO_MANY_REQUESTS, "Too many come."),
                problem(StatusCode::SERVICE_UNAVAILABLE, "It could not be stored: send it again."),
            ],
            handler: post(async move |request: Request| match listening.receive(request).await {
                Ok(response) => response,
                Err(problem) => problem.into_response(),
            }),
        }
    }

    async fn receive(&self, request: Request) -> Result<Response, Problem> {
        let (parts, body) = request.into_parts();
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
        self.check_source(peer, &parts.headers)?;
        if self.limiter.as_ref().is_some_and(|limiter| limiter.check().is_err()) {
            let message = "more webhooks come than `rate_limit` of this hook takes";
            return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many", message).retry_after(1));
        }
        let bytes = self.body(body).await?;
        let is_json = self.check_type(&parts.headers)?;
        let headers = by_name(&parts.headers);
        let (at, find) = (machine_time(), |name: &str| headers.get(name).map(String::as_str));
        self.hook.scheme.verify(&find, &bytes, at, self.hook.tolerance).map_err(|refusal| {
            tracing::warn!(hook = %self.hook.name, %refusal, "a webhook was refused");
            Problem::new(StatusCode::UNAUTHORIZED, "bad_signature", refusal.to_string())
        })?;
        let arrived = Arrived { headers: &headers, data: data(&bytes, is_json)?, at };
        let delivery = delivery(&self.hook, &self.row, arrived);
        if let (Err(reason), OnMissingKey::Reject) = (&delivery.key, self.hook.on_missing_key) {
            let message = format!("it has no key, and none is made up: {reason}");
            return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "missing_key", message));
        }
        let received = self.intake.receive(delivery).await.map_err(|error| {
            let (code, message) = match error {
                NotStored::Full => {
                    ("too_busy", "more webhooks wait to be stored than can be kept: send it again")
                }
                NotStored::Store(_) => ("store_unavailable", "it could not be stored: send it again"),
                NotStored::Stopping => ("stopping", "the process is being stopped: send it again"),
            };
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, code, message).retry_after(STORE_WAIT)
        })?;
        Ok(self.answer(received))
    }

    fn check_source(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Result<(), Problem> {
        if self.hook.allow.is_empty() {
            return Ok(());
        }
        let source = peer.map(|peer| source(peer, headers, &self.proxies));
        if source.is_some_and(|source| self.hook.allow.iter().any(|network| network.contains(&source))) {
            return Ok(());
        }
        let source = source.map_or_else(|| "an unknown address".to_owned(), |source| source.to_string());
        tracing::warn!(hook = %self.hook.name, %source, "a webhook was refused: it may not come from there");
        let message = format!("{source} is not among `allow` of this hook");
        Err(Problem::new(StatusCode::FORBIDDEN, "not_allowed", message))
    }

    async fn body(&self, body: Body) -> Result<axum::body::Bytes, Problem> {
        let read =
            tokio::time::timeout(PATIENCE, to_bytes(body, self.hook.max_body)).await.map_err(|_| {
                let message = format!("the body did not come within {} s", PATIENCE.as_secs());
                Problem::new(StatusCode::REQUEST_TIMEOUT, "too_slow", message)
            })?;
        read.map_err(|_| {
            let message =
                format!("the body is larger than {} bytes (`max_body`), or was cut off", self.hook.max_body);
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
        })
    }

    /// Whether the body is to be JSON.
    fn check_type(&self, headers: &HeaderMap) -> Result<bool, Problem> {
        let given = headers.get(CONTENT_TYPE).and_then(|given| given.to_str().ok()).unwrap_or_default();
        let essence = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if !self.hook.content_types.contains(&essence) {
            let message = format!("bodies of the type `{given}` are not taken (`content_types`)");
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "bad_type", message));
        }
        Ok(essence == "application/json" || essence.ends_with("+json"))
    }

    fn answer(&self, received: Received) -> Response {
        let told = |status, event, first_seen, id| Told { status, event, first_seen, id };
        let (code, told) = match received {
            Received::Accepted { event } => (StatusCode::OK, told(Status::Accepted, Some(event), None, None)),
            Received::Duplicate { event, first_seen } => {
                let code =
                    if self.hook.duplicate_status == 202 { StatusCode::ACCEPTED } else { StatusCode::OK };
                (code, told(Status::Duplicate, Some(event), Some(first_seen), None))
            }
            Received::Quarantined { id } => {
                (StatusCode::ACCEPTED, told(Status::Quarantined, None, None, Some(id.hex())))
            }
        };
        (code, Json(told)).into_response()
    }
}

/// Where a request came from: the last address that no trusted proxy has named.
fn source(peer: IpAddr, headers: &HeaderMap, proxies: &[IpNet]) -> IpAddr {
    let is_proxy = |address: &IpAddr| proxies.iter().any(|proxy| proxy.contains(address));
    let told = headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok());
    let told: Vec<&str> = told.flat_map(|value| value.split(',')).map(str::trim).collect();
    let mut source = peer.to_canonical();
    for address in told.iter().rev() {
        if !is_proxy(&source) {
            break;
        }
        let Ok(address) = address.parse::<IpAddr>() else { break };
        source = address.to_canonical();
    }
    source
}

/// The headers that are texts; of one that comes several times the values, with commas between.
fn by_name(headers: &HeaderMap) -> BTreeMap<String, String> {
    let mut named: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in headers {
        let Ok(value) = value.to_str() else { continue };
        named
            .entry(name.as_str().to_owned())
            .and_modify(|known| {
                known.push(',');
                known.push_str(value);
            })
            .or_insert_with(|| value.to_owned());
    }
    named
}

fn data(bytes: &[u8], is_json: bool) -> Result<Box<RawValue>, Problem> {
    let text = std::str::from_utf8(bytes)
        .map_err(|_| Problem::bad_request("bad_body", "the body is not a text in UTF-8"))?;
    let read = if is_json { serde_json::from_str(text) } else { to_raw_value(text) };
    read.map_err(|error| Problem::bad_request("bad_body", format!("the body is not JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_is_what_the_last_trusted_proxy_names() {
        let proxies: Vec<IpNet> = ["10.0.0.0/8", "::1/128"].map(|net| net.parse().unwrap()).to_vec();
        let cases = [
            ("203.0.113.7", "", "203.0.113.7"),
            ("203.0.113.7", "198.51.100.1", "203.0.113.7"),
            ("10.0.0.1", "", "10.0.0.1"),
            ("10.0.0.1", "198.51.100.1", "198.51.100.1"),
            ("10.0.0.1", "192.0.2.9, 198.51.100.1", "198.51.100.1"),
            ("10.0.0.1", "198.51.100.1, 10.0.0.2", "198.51.100.1"),
            ("10.0.0.1", "198.51.100.1, garbage", "10.0.0.1"),
            ("::ffff:10.0.0.1", "::ffff:198.51.100.1", "198.51.100.1"),
            ("::1", "2001:db8::7", "2001:db8::7"),
        ];
        for (peer, told, expected) in cases {
            let mut headers = HeaderMap::new();
            if !told.is_empty() {
                headers.insert("x-forwarded-for", told.parse().unwrap());
            }
            let found = source(peer.parse().unwrap(), &headers, &proxies);
            assert_eq!(found, expected.parse::<IpAddr>().unwrap(), "{peer} {told}");
        }
    }
}
