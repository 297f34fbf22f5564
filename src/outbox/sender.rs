//! One attempt: a POST to an n8n webhook, and what came back.

use std::time::Duration;

use reqwest::{
    Client, StatusCode,
    header::{LOCATION, RETRY_AFTER},
    redirect::Policy,
};
use url::Url;

use super::{credential::Credential, headers};
use crate::{
    config::destination::Destination,
    connector::guard::{Guard, refusal},
    domain::{
        clock::Clock,
        delivery::{Answer, Says},
        instant::Instant,
        retry_after,
    },
    store::ClaimedMessage,
};

/// Node closes idle connections after 5 s: ours have to be gone before (a request sent into a closing
/// connection fails after it was written).
const POOL_IDLE: Duration = Duration::from_secs(4);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How much of an answer is kept, and how long it is waited for once the status is known.
const ANSWER_BYTES: usize = 2_048;
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// The largest body that n8n takes as it is installed: 16 MiB (its configuration, `N8N_PAYLOAD_SIZE_MAX`).
const N8N_TAKES: usize = 16 << 20;
/// How much of it stands in an error.
const SAID_CHARS: usize = 200;

/// Sends events to one destination over kept connections. Redirects are never followed: they would turn
/// the POST into a GET without a body.
#[derive(Debug)]
pub struct Sender {
    client: Client,
    guard: Guard,
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

impl Sender {
    /// A sender for one destination.
    pub fn new(destination: &Destination) -> Result<Self, reqwest::Error> {
        let guard = Guard::new(destination.allow_private.clone());
        let client = Client::builder()
            .user_agent(concat!("onlynew/", env!("CARGO_PKG_VERSION")))
            .redirect(Policy::none())
            .retry(reqwest::retry::never())
            .pool_idle_timeout(POOL_IDLE)
            .connect_timeout(CONNECT_TIMEOUT.min(destination.timeout))
            .timeout(destination.timeout)
            .dns_resolver(guard.clone())
            .build()?;
        Ok(Self { client, guard })
    }

    /// Sends one message. Every attempt carries the same id and the same bytes.
    pub async fn send(&self, destination: &Destination, message: &ClaimedMessage, clock: &dyn Clock) -> Sent {
        if let Err(refused) = self.guard.check(&destination.url) {
            return Sent::nothing(Answer::Untrusted, refused.to_string());
        }
        let body = match message.body() {
            Ok(body) => body.into_owned(),
            Err(error) => {
                return Sent::nothing(Answer::Unreached, format!("an event's body is not JSON: {error}"));
            }
        };
        let now = clock.now();
        let (keys, number) = (&destination.signing_keys, message.tried.tries.saturating_add(1));
        let headers = headers::of_attempt(keys, &message.id, body.as_bytes(), number, now);
        let credential = Credential::of(&destination.auth, now);
        let bytes = body.len();
        let request = self.client.post(destination.url.clone()).headers(headers).body(body);
        match credential.on(request).send().await {
            Ok(response) => read_answer(response, clock.now(), &credential).await.for_size(bytes),
            Err(error) => {
                let answer = match error.is_connect() || error.is_builder() {
                    true if refusal(&error).is_some() || is_untrusted(&error) => Answer::Untrusted,
                    true => Answer::Unreached,
                    false => Answer::Lost,
                };
                Sent::nothing(answer, describe(&error))
            }
        }
    }
}

impl Sent {
    /// Tells of the size of what was sent where n8n may have failed for that, which it answers with a plain 500.
    fn for_size(mut self, bytes: usize) -> Self {
        if let Some(error) = self.error.as_mut().filter(|_| bytes > N8N_TAKES) {
            error.push_str(&format!(
                "; it has {bytes} bytes, and n8n takes {N8N_TAKES} unless N8N_PAYLOAD_SIZE_MAX says otherwise"
            ));
        }
        self
    }

    /// Nothing came back.
    fn nothing(answer: Answer, error: String) -> Self {
        Self { answer, error: Some(error), body: String::new() }
    }
}

async fn read_answer(response: reqwest::Response, now: Instant, credential: &Credential<'_>) -> Sent {
    let status = response.status();
    let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
    let retry_after = header(RETRY_AFTER).and_then(|value| retry_after::parse(value, now));
    // What a receiver sends back may hold what it was sent.
    let location = header(LOCATION).map(|location| credential.hidden_in(location.to_owned()));
    let location = location.and_then(|location| place_of(response.url(), &location));
    let body = tokio::time::timeout(ANSWER_WAIT, beginning(response, credential)).await.unwrap_or_default();
    let says = says(status, &body);
    let error = (!status.is_success() || says == Says::Starting).then(|| {
        let said: String =
            body.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(SAID_CHARS).collect();
        let mut error = format!("answered {status}");
        if !said.is_empty() {
            error.push_str(&format!(": {said}"));
        }
        if let Some(location) = location {
            error.push_str(&format!("; it points to {location}, which is not followed: name the final URL"));
        }
        error.push_str(match says {
            Says::NotRegistered => "; activate the workflow in n8n and use its production URL",
            Says::Starting => "; n8n is starting, or there is no webhook at this URL",
            Says::Nothing | Says::Done => "",
        });
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
        // Until its database is migrated, n8n 2 answers every path so, and runs nothing.
        _ if status.is_success() && body.trim() == "n8n is starting up. Please wait" => Says::Starting,
        StatusCode::NOT_FOUND if body.contains("not registered") => Says::NotRegistered,
        // And this until its webhooks are in place, or for ever where the path is none of theirs.
        StatusCode::NOT_FOUND if body.contains("<pre>Cannot POST ") => Says::Starting,
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

/// Where a redirect points, without the parts that are there to hold secrets.
fn place_of(asked: &Url, location: &str) -> Option<String> {
    let mut place = asked.join(location).ok()?;
    place.set_query(None);
    place.set_fragment(None);
    // Neither is there where a URL can have none.
    let _ = (place.set_username(""), place.set_password(None));
    Some(place.into())
}

/// The first bytes of an answer's body without the credential; what cannot be read is left out, since the status
/// already counts.
async fn beginning(mut response: reqwest::Response, credential: &Credential<'_>) -> String {
    // Read so far that a credential which begins within the limit is there as a whole.
    let enough = ANSWER_BYTES + credential.longest();
    let mut bytes = Vec::new();
    while bytes.len() < enough {
        match response.chunk().await {
            Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
            _ => break,
        }
    }
    let is_cut = bytes.len() >= enough;
    bytes.truncate(enough);
    let mut body = credential.hidden_in(String::from_utf8_lossy(&bytes).replace('\0', ""));
    // The end may hold the beginning of one, also where hiding others has moved it up.
    let kept = if is_cut { body.len().saturating_sub(credential.longest()) } else { body.len() };
    body.truncate(body.floor_char_boundary(kept.min(ANSWER_BYTES)));
    body
}

/// The error and its causes, without the URL, which may hold a secret.
fn describe(error: &reqwest::Error) -> String {
    if let Some(refused) = refusal(error) {
        return refused.to_string();
    }
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
