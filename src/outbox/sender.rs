//! One attempt: a POST to an n8n webhook, and what came back.

use std::time::Duration;

use reqwest::{
    Client, StatusCode,
    header::{CONTENT_TYPE, LOCATION, RETRY_AFTER},
    redirect::Policy,
};
use secrecy::ExposeSecret;

use crate::{
    config::{
        account::{Auth, KeyPlace},
        destination::Destination,
    },
    domain::{
        clock::Clock,
        delivery::{Answer, Says},
        instant::Instant,
        retry_after,
    },
    store::ClaimedEvent,
};

/// Node closes idle connections after 5 s: ours have to be gone before (a request sent into a closing
/// connection fails after it was written).
const POOL_IDLE: Duration = Duration::from_secs(4);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How much of an answer is kept, and how long it is waited for once the status is known.
const ANSWER_BYTES: usize = 2_048;
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// How much of it stands in an error.
const SAID_CHARS: usize = 200;

/// Sends events to one destination over kept connections. Redirects are never followed: they would turn
/// the POST into a GET without a body.
#[derive(Debug)]
pub struct Sender {
    client: Client,
}

/// What came back.
#[derive(Debug)]
pub struct Sent {
    /// What the rules read.
    pub answer: Answer,
    /// What went wrong, for a person.
    pub error: Option<String>,
    /// The beginning of the answer's body.
    pub body: String,
}

/// The headers that tell an event, at the attempt after so many tries.
pub fn headers(event_id: &str, tries: u32) -> [(&'static str, String); 3] {
    [
        ("Idempotency-Key", event_id.to_owned()),
        ("webhook-id", event_id.to_owned()),
        ("X-Onlynew-Attempt", tries.saturating_add(1).to_string()),
    ]
}

impl Sender {
    /// A sender for one destination.
    pub fn new(destination: &Destination) -> Result<Self, reqwest::Error> {
        let client = Client::builder()
            .user_agent(concat!("onlynew/", env!("CARGO_PKG_VERSION")))
            .redirect(Policy::none())
            .retry(reqwest::retry::never())
            .pool_idle_timeout(POOL_IDLE)
            .connect_timeout(CONNECT_TIMEOUT.min(destination.timeout))
            .timeout(destination.timeout)
            .build()?;
        Ok(Self { client })
    }

    /// Sends one event. Every attempt carries the same id and the same bytes.
    pub async fn send(&self, destination: &Destination, event: &ClaimedEvent, clock: &dyn Clock) -> Sent {
        let mut request = self
            .client
            .post(destination.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(event.body.clone());
        for (name, value) in headers(&event.event_id, event.tried.tries) {
            request = request.header(name, value);
        }
        request = match &destination.auth {
            // Webhooks have no tokens that run out: no configuration says so.
            Auth::None | Auth::OAuth2(_) => request,
            Auth::Bearer { token } => request.bearer_auth(token.expose_secret()),
            Auth::Basic { username, password } => {
                request.basic_auth(username, Some(password.expose_secret()))
            }
            Auth::ApiKey { place, name, prefix, key } => {
                let value = format!("{prefix}{}", key.expose_secret());
                match place {
                    KeyPlace::Header => request.header(name, value),
                    KeyPlace::Query => request.query(&[(name, value)]),
                    KeyPlace::Cookie => request.header("Cookie", format!("{name}={value}")),
                }
            }
        };
        match request.send().await {
            Ok(response) => read_answer(response, clock.now(), &destination.auth).await,
            Err(error) => {
                let answer = match error.is_connect() || error.is_builder() {
                    true if is_untrusted(&error) => Answer::Untrusted,
                    true => Answer::Unreached,
                    false => Answer::Lost,
                };
                Sent { answer, error: Some(describe(&error)), body: String::new() }
            }
        }
    }
}

async fn read_answer(response: reqwest::Response, now: Instant, auth: &Auth) -> Sent {
    let status = response.status();
    let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
    let retry_after = header(RETRY_AFTER).and_then(|value| retry_after::parse(value, now));
    let location = header(LOCATION).map(str::to_owned);
    let body = tokio::time::timeout(ANSWER_WAIT, beginning(response)).await.unwrap_or_default();
    let body = without_credential(body, auth);
    let says = says(status, &body);
    let error = (!status.is_success()).then(|| {
        let said: String =
            body.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(SAID_CHARS).collect();
        let mut error = format!("answered {status}");
        if !said.is_empty() {
            error.push_str(&format!(": {said}"));
        }
        if let Some(location) = location {
            error.push_str(&format!("; it points to {location}, which is not followed: name the final URL"));
        }
        if says == Says::NotRegistered {
            error.push_str("; activate the workflow in n8n and use its production URL");
        }
        error
    });
    Sent { answer: Answer::Status { code: status.as_u16(), retry_after, says }, error, body }
}

/// What n8n, or a gate in the workflow, says in words.
fn says(status: StatusCode, body: &str) -> Says {
    #[derive(serde::Deserialize)]
    struct Gate {
        state: String,
    }
    match status {
        StatusCode::NOT_FOUND if body.contains("not registered") => Says::NotRegistered,
        StatusCode::CONFLICT if serde_json::from_str::<Gate>(body).is_ok_and(|gate| gate.state == "done") => {
            Says::Done
        }
        _ => Says::Nothing,
    }
}

/// Whether a connection came up and failed as TLS: a certificate that is not good, or no TLS at all.
fn is_untrusted(error: &reqwest::Error) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let said = inner.to_string();
        if said.contains("certificate")
            || said.contains("received corrupt message")
            || said.contains("HandshakeFailure")
        {
            return true;
        }
        cause = inner.source();
    }
    false
}

/// What a receiver sends back may hold what it was sent.
fn without_credential(text: String, auth: &Auth) -> String {
    let secret = match auth {
        Auth::None | Auth::OAuth2(_) => return text,
        Auth::Bearer { token } => token,
        Auth::Basic { password, .. } => password,
        Auth::ApiKey { key, .. } => key,
    };
    match secret.expose_secret() {
        "" => text,
        secret => text.replace(secret, "***"),
    }
}

/// The first bytes of an answer's body; what cannot be read is left out, since the status already counts.
async fn beginning(mut response: reqwest::Response) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < ANSWER_BYTES {
        match response.chunk().await {
            Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
            _ => break,
        }
    }
    bytes.truncate(ANSWER_BYTES);
    String::from_utf8_lossy(&bytes).replace('\0', "")
}

/// The error and its causes, without the URL, which may hold a secret.
fn describe(error: &reqwest::Error) -> String {
    let what = match (error.is_connect(), error.is_timeout()) {
        (true, true) => "connecting took too long",
        (true, false) => "cannot connect",
        (false, true) => "no answer in time; the event may have been received",
        (false, false) => "the connection was lost; the event may have been received",
    };
    let mut cause = std::error::Error::source(error);
    let mut last = None;
    while let Some(inner) = cause {
        last = Some(inner.to_string());
        cause = inner.source();
    }
    last.map_or_else(|| what.to_owned(), |last| format!("{what}: {last}"))
}
