//! What an answer is: data, a plea for patience, a failure that may pass, or one that will not. The
//! connector's own rules are asked first. An answer that is not data is never an empty page.

use std::time::Duration;

use minijinja::Value as Slot;
use reqwest::{StatusCode, header::HeaderMap};
use serde_json::{Value, value::RawValue};

use super::{
    auth::Secrets,
    body::{
        document::{self, Document, DocumentError},
        text::{Text, is_html},
    },
    place::header,
    wait::wait_by,
};
use crate::{
    config::{
        stream::{ErrorAction, ErrorRule, Missing, RecordFormat, Stream, WaitRule},
        template::{TemplateError, template_value},
    },
    domain::{backoff::Plea, instant::Instant, json, retry_after},
};

/// How much of a body a reason shows, in characters.
const SHOWN: usize = 200;

/// What is to be done about an answer.
#[derive(Debug)]
pub enum Verdict {
    /// Its records are read.
    Data,
    /// The account is left alone for as long as the source says, then the same page is asked for again.
    RateLimited {
        /// How long it asks for.
        plea: Plea,
        /// Why.
        reason: String,
    },
    /// The same page is asked for again, a bounded number of times.
    Retry {
        /// How long to wait first, where the connector says.
        wait: Option<Duration>,
        /// Why.
        reason: String,
    },
    /// There are no records, as the vendor documents it.
    Empty,
    /// The access token is no longer good; without one, asking again would not help.
    RefreshAuth {
        /// Why.
        reason: String,
    },
    /// The place of the page is not good any more; the walk starts over.
    RestartWindow {
        /// Why.
        reason: String,
    },
    /// The source does not know the token of the run before any more.
    ResetToken {
        /// Why.
        reason: String,
    },
    /// The listing is the one that was read before.
    NotModified,
    /// The source cannot give so much at once.
    SplitWindow {
        /// Why.
        reason: String,
    },
    /// Asking again would not help.
    Fail {
        /// Why, and what to look at.
        reason: String,
    },
}

/// An answer, read as one JSON document whatever its format.
#[derive(Debug)]
pub struct Reply {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Result<Document, DocumentError>,
    /// The encoding that some bytes of the body did not fit.
    pub damaged: Option<&'static str>,
    /// The source's time of day when it answered; ours where it does not tell.
    pub now: Instant,
    is_empty: bool,
    is_html: bool,
    /// The body of an answer that is JSON where the stream has another format: sources tell their errors so.
    aside: Option<Box<RawValue>>,
    /// What came, in a few words and without secrets.
    answered: String,
}

impl Reply {
    /// Reads an answer's text. The text itself becomes the body; a reason shows its beginning only.
    pub fn new(
        status: StatusCode,
        headers: HeaderMap,
        text: Text,
        now: Instant,
        format: RecordFormat,
        secrets: &Secrets,
    ) -> Self {
        let excerpt = secrets.excerpt(&text.text, SHOWN);
        let shown = if excerpt.is_empty() { "nothing".to_owned() } else { format!("`{excerpt}`") };
        let content_type = header(&headers, "content-type");
        let is_json = content_type.as_ref().is_some_and(|kind| kind.to_ascii_lowercase().contains("json"));
        let is_aside = match format {
            RecordFormat::Json => false,
            // Its lines are JSON, and its content type often says no more than that.
            RecordFormat::Ndjson => !status.is_success(),
            RecordFormat::Csv { .. } | RecordFormat::Xml => is_json || !status.is_success(),
        };
        let aside = is_aside.then(|| RawValue::from_string(text.text.clone()).ok()).flatten();
        Self {
            is_empty: text.text.trim().is_empty(),
            is_html: is_html(&text.text, content_type.as_deref(), format),
            answered: format!("answered {status} with {shown}"),
            body: match aside {
                Some(_) => Err(DocumentError::Other(format.name())),
                None => document::read(text.text, format),
            },
            aside,
            damaged: text.damaged,
            status,
            headers,
            now,
        }
    }

    /// Its document, or the JSON that stands in the place of one.
    pub fn json(&self) -> Option<&RawValue> {
        self.body.as_ref().map(|document| &*document.json).ok().or(self.aside.as_deref())
    }

    fn retry_after(&self) -> Option<Duration> {
        retry_after::parse(&header(&self.headers, "retry-after")?, self.now)
    }
}

/// Judges an answer.
pub fn judge(stream: &Stream, inputs: &Slot, reply: &Reply) -> Verdict {
    by_rules(&stream.errors, inputs, reply).unwrap_or_else(|| by_nature(stream, reply))
}

/// The verdict of the first rule that fits.
fn by_rules(rules: &[ErrorRule], inputs: &Slot, reply: &Reply) -> Option<Verdict> {
    let mut names = None;
    for rule in rules {
        if rule.status.is_some_and(|status| status != reply.status.as_u16()) {
            continue;
        }
        if let Some(when) = &rule.when {
            match when.holds(names.get_or_insert_with(|| names_of(inputs, reply))) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => {
                    return Some(Verdict::Fail { reason: format!("a rule of `errors` failed: {error}") });
                }
            }
        }
        let wait = rule.wait.as_ref().and_then(|wait| wait_by(wait, reply.json(), &reply.headers, reply.now));
        let reason = reply.answered.clone();
        return Some(match rule.action {
            ErrorAction::Retry => Verdict::Retry { wait, reason },
            ErrorAction::RateLimited => {
                Verdict::RateLimited { plea: plea_by(rule.wait.as_ref(), wait, reply.retry_after()), reason }
            }
            ErrorAction::Empty => Verdict::Empty,
            ErrorAction::RefreshAuth => {
                Verdict::RefreshAuth { reason: format!("{reason}: a rule of `errors` says refresh_auth") }
            }
            ErrorAction::RestartWindow => Verdict::RestartWindow { reason },
            ErrorAction::SplitWindow => Verdict::SplitWindow { reason },
            ErrorAction::ResetToken => Verdict::ResetToken { reason },
            ErrorAction::Fail => Verdict::Fail { reason: format!("{reason}: a rule of `errors` says fail") },
        });
    }
    None
}

/// What a rule's wait and the answer's own Retry-After ask for together. A rule that names a time of its own
/// knows how long the vendor wants at least; what the answer says counts where it is longer.
fn plea_by(rule: Option<&WaitRule>, wait: Option<Duration>, retry_after: Option<Duration>) -> Plea {
    match (rule, wait, retry_after) {
        (Some(WaitRule::Fixed(least)), _, told) if told.is_none_or(|told| told <= *least) => {
            Plea::AtLeast(*least)
        }
        (Some(WaitRule::Fixed(_)), _, Some(told)) => Plea::Told(told),
        (_, wait, told) => wait.or(told).map_or(Plea::Untold, Plea::Told),
    }
}

/// Whether a page is the last one by the connector's `stop_condition`.
pub fn stops(stream: &Stream, inputs: &Slot, reply: &Reply) -> Result<bool, TemplateError> {
    match &stream.pagination.stop {
        Some(rule) => rule.holds(&names_of(inputs, reply)),
        None => Ok(false),
    }
}

/// `inputs`, `status`, `response` (null where it is not JSON) and `headers` for a rule.
pub fn names_of(inputs: &Slot, reply: &Reply) -> Slot {
    let response = reply.json().and_then(|body| json::parse(body.get()).ok()).unwrap_or(Value::Null);
    let headers = reply.headers.keys().map(|name| (name.as_str(), header(&reply.headers, name.as_str())));
    Slot::from_pairs([
        ("inputs", inputs.clone()),
        ("status", Slot::from(reply.status.as_u16())),
        ("response", template_value(&response)),
        ("headers", Slot::from_pairs(headers.map(|(name, value)| (name, Slot::from(value))))),
    ])
}

/// The verdict where no rule fits.
fn by_nature(stream: &Stream, reply: &Reply) -> Verdict {
    let reason = reply.answered.clone();
    let retry = |what: &str| Verdict::Retry { wait: None, reason: format!("{}: {what}", reply.answered) };
    let status = reply.status.as_u16();
    match status {
        200..=299 => {}
        429 => {
            let plea = reply.retry_after().map_or(Plea::Untold, Plea::Told);
            return Verdict::RateLimited { plea, reason };
        }
        // Only who sent a validator is answered so.
        304 if stream.conditional => return Verdict::NotModified,
        410 if stream.sync.is_some() => return Verdict::ResetToken { reason },
        401 => return Verdict::RefreshAuth { reason: format!("{reason}: {}", advice(status)) },
        // With a Retry-After it is a plea for patience; without, a server in trouble like any other.
        503 => {
            return match reply.retry_after() {
                Some(wait) => Verdict::RateLimited { plea: Plea::Told(wait), reason },
                None => Verdict::Retry { wait: None, reason },
            };
        }
        408 | 425 | 500..=599 => return Verdict::Retry { wait: None, reason },
        _ => return Verdict::Fail { reason: format!("{reason}: {}", advice(status)) },
    }
    match &reply.body {
        // Also under `text/html`, which careless servers write on everything.
        Ok(_) => Verdict::Data,
        Err(_) if reply.is_html => {
            retry("a web page where data should be: a login, a proxy, or a wrong base URL")
        }
        Err(_) if status == 204 && stream.records.missing == Missing::Empty => Verdict::Data,
        Err(DocumentError::Csv(_) | DocumentError::Ndjson) if reply.is_empty => {
            match stream.records.missing {
                Missing::Empty => Verdict::Data,
                Missing::Fail => retry("an empty body is not an empty list"),
            }
        }
        Err(_) if reply.is_empty => retry("an empty body is not an empty list"),
        Err(error) => retry(&error.to_string()),
    }
}

/// What a person should look at.
fn advice(status: u16) -> &'static str {
    match status {
        401 => "the source does not accept the credential; check the account's `auth`",
        403 => "the credential may not read this; check its permissions and scopes",
        404 | 410 => "there is nothing at this address; check the stream's `path` and the job's `with`",
        400 | 422 => {
            "the source refuses the request's parameters; check the stream's `query` and the job's `with`"
        }
        405 | 406 | 415 => "the source does not speak this way; check the stream's `path` and `headers`",
        300..=399 => "a redirect that leads nowhere; check the base URL",
        _ => "asking again would not help",
    }
}
