//! The HTTP client for sources. It has three timeouts and a cap, follows no redirect that would take the
//! credential elsewhere, and calls a cut body an error (reqwest's traps R1 to R7 and R9 of the field cases).

use std::{error::Error, time::Duration};

use reqwest::{
    Client, StatusCode,
    header::{ACCEPT_ENCODING, HeaderMap, HeaderValue, LOCATION},
    redirect::Policy,
};
use url::Url;

use super::{
    address::{AddressError, onward},
    auth::sign,
    guard::{Guard, refusal},
    request::RequestError,
};
use crate::{
    config::account::Auth,
    domain::{
        allow_private::{AllowPrivate, Refused},
        clock::Clock,
        instant::Instant,
    },
};

/// How many redirects one request may follow.
const MAX_REDIRECTS: u32 = 5;

/// The bounds of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpOptions {
    /// How long a connection may take to come up.
    pub connect_timeout: Duration,
    /// How long a request may take in all, its body included.
    pub total_timeout: Duration,
    /// How long the server may say nothing.
    pub read_timeout: Duration,
    /// How many bytes a body may have, unpacked.
    pub max_body: usize,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            total_timeout: Duration::from_mins(1),
            read_timeout: Duration::from_secs(30),
            max_body: 64 << 20,
        }
    }
}

/// The client. Cheap to clone; all clones share their connections.
#[derive(Clone, Debug)]
pub struct Http {
    client: Client,
    guard: Guard,
    max_body: usize,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The client cannot be set up.
    #[error("cannot set up the HTTP client: {0}")]
    Setup(String),
    /// The request cannot be made.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// Nothing may be asked there.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// No answer came.
    #[error("{0}")]
    NoAnswer(String),
    /// The body broke off, or is not packed the way its headers say (R7).
    #[error("the body cannot be read to its end: {0}")]
    Broken(String),
    /// The body is too large.
    #[error("the answer is larger than {0} bytes: ask for smaller pages")]
    TooLarge(usize),
    /// The source sends us elsewhere.
    #[error("the source answered {status}, a redirect that {reason}: check the base URL")]
    Redirect {
        /// The status.
        status: StatusCode,
        /// Why it is not followed.
        reason: String,
    },
}

impl HttpError {
    /// Whether the same request may fare better later.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::NoAnswer(_) | Self::Broken(_))
    }
}

/// A request before it is signed.
#[derive(Debug)]
pub struct Call<'a> {
    /// Where it goes.
    pub url: &'a Url,
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// The credential.
    pub auth: &'a Auth,
    /// Asks for a body that is not packed, after one that could not be read.
    pub plain: bool,
}

/// An answer, whatever it says.
#[derive(Debug)]
pub struct Answer {
    /// Where it came from, after redirects; without the credential, unless the source put it there.
    pub url: Url,
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, unpacked.
    pub body: Vec<u8>,
    /// When its headers had come, by our clock: the moment its `Date` is about.
    pub begun_at: Instant,
}

impl Http {
    /// A client with these bounds, which connects to nothing that `allow_private` forbids.
    pub fn new(options: HttpOptions, allow_private: AllowPrivate) -> Result<Self, HttpError> {
        let guard = Guard::new(allow_private);
        let client = Client::builder()
            .user_agent(concat!("onlynew/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(options.connect_timeout)
            .timeout(options.total_timeout)
            .read_timeout(options.read_timeout)
            // Below the 5 seconds after which many servers close an idle connection (R9).
            .pool_idle_timeout(Duration::from_secs(4))
            .redirect(Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .dns_resolver(guard.clone())
            .build()
            .map_err(|error| HttpError::Setup(cause(error)))?;
        Ok(Self { client, guard, max_body: options.max_body })
    }

    /// Sends a GET and reads its answer whole. `sent` counts every request, redirects too.
    pub async fn get(&self, call: &Call<'_>, clock: &dyn Clock, sent: &mut u64) -> Result<Answer, HttpError> {
        let mut url = call.url.clone();
        for _ in 0..=MAX_REDIRECTS {
            self.guard.check(&url)?;
            let (mut signed, mut headers) = (url.clone(), call.headers.clone());
            sign(call.auth, &mut signed, &mut headers)?;
            if call.plain {
                headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            }
            *sent = sent.saturating_add(1);
            let response = self.client.get(signed).headers(headers).send().await.map_err(no_answer)?;
            let begun_at = clock.now();
            let (status, headers) = (response.status(), response.headers().clone());
            if matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
                url = redirected(&url, status, headers.get(LOCATION))?;
                continue;
            }
            let body = self.body(response).await?;
            return Ok(Answer { url, status, headers, body, begun_at });
        }
        let reason = format!("is the sixth in a row, more than the {MAX_REDIRECTS} that are followed");
        Err(HttpError::Redirect { status: StatusCode::FOUND, reason })
    }

    /// Sends a form by POST and reads its answer whole. No redirect is followed: the form holds secrets.
    pub async fn post_form(
        &self,
        url: &Url,
        headers: HeaderMap,
        form: &[(&str, &str)],
        clock: &dyn Clock,
    ) -> Result<Answer, HttpError> {
        self.guard.check(url)?;
        let request = self.client.post(url.clone()).headers(headers).form(form);
        let response = request.send().await.map_err(no_answer)?;
        let begun_at = clock.now();
        let (status, headers) = (response.status(), response.headers().clone());
        let body = self.body(response).await?;
        Ok(Answer { url: url.clone(), status, headers, body, begun_at })
    }

    async fn body(&self, mut response: reqwest::Response) -> Result<Vec<u8>, HttpError> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(broken_off)? {
            if body.len().saturating_add(chunk.len()) > self.max_body {
                return Err(HttpError::TooLarge(self.max_body));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

fn redirected(from: &Url, status: StatusCode, location: Option<&HeaderValue>) -> Result<Url, HttpError> {
    let refuse = |reason| HttpError::Redirect { status, reason };
    let location = location.ok_or_else(|| refuse("names no place".to_owned()))?;
    let place = str::from_utf8(location.as_bytes())
        .map_err(|_| refuse("leads to something that is no URL".to_owned()))?;
    onward(from, place).map_err(|error: AddressError| refuse(error.to_string()))
}

fn broken_off(error: reqwest::Error) -> HttpError {
    HttpError::Broken(if error.is_timeout() { "it took too long".to_owned() } else { cause(error) })
}

fn no_answer(error: reqwest::Error) -> HttpError {
    if let Some(refused) = refusal(&error) {
        return HttpError::Refused(refused.clone());
    }
    HttpError::NoAnswer(match (error.is_connect(), error.is_timeout()) {
        (true, true) => "no connection came up in time".to_owned(),
        (true, false) => format!("no connection: {}", cause(error)),
        (false, true) => "no answer came in time".to_owned(),
        (false, false) => format!("no answer: {}", cause(error)),
    })
}

/// What lies at the bottom of an error, without the URL, which may hold a key.
fn cause(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut texts = vec![error.to_string()];
    let mut source = error.source();
    while let Some(inner) = source {
        texts.push(inner.to_string());
        source = inner.source();
    }
    // The outer texts only say that something failed; the last two say what.
    let tail = texts.split_off(texts.len().saturating_sub(2).max(usize::from(texts.len() > 1)));
    tail.join(": ")
}
