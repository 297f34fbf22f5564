//! The pages of one run, one after another. A page that does not come is asked for again, by itself:
//! nothing starts over, and the walk moves on only behind a page that was read (field cases C15, C16).

mod access;
mod extract;
#[cfg(any(test, fuzzing))]
pub(super) mod fuzzing;
mod page;
mod patience;

use std::{sync::Arc, time::Duration};

use jiff::tz::TimeZone;
use minijinja::Value as Slot;
use reqwest::header::{ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH};
use serde_json::{Value, value::RawValue};
use url::Url;

use super::{
    address::onward,
    auth::Secrets,
    body::text::decode,
    http::{Answer, Call, Http, HttpError},
    pager::{Pager, Position},
    place::header,
    request::{RequestError, Values, Window, headers_of, start_url_of, url_of},
    tokens::Tokens,
    verdict::{Reply, Verdict, judge},
};
use crate::{
    config::{account::RateLimit, job::Job, stream::TokenStart, template::template_value},
    domain::{
        backoff::Backoff,
        bookmark::PageMark,
        clock::Clock,
        content::Hash,
        instant::Instant,
        order::RowOrder,
        rate::Rate,
        sync_token::PageTag,
        version::{Version, VersionFormat},
        window::{Bounds, Step, source_time},
    },
    limit::{Limits, Precedence},
};

pub use page::{Page, ReadError};

/// Reads the pages of a job's stream for one run.
#[derive(Debug)]
pub struct PageReader {
    /// How failures that may pass are waited out, and how often.
    pub backoff: Backoff,
    job: Arc<Job>,
    http: Http,
    limits: Arc<Limits>,
    tokens: Arc<Tokens>,
    clock: Arc<dyn Clock>,
    precedence: Precedence,
    /// How often it asks at most, beside the source's own limits, and the bucket of that.
    pace: Option<(String, RateLimit)>,
    secrets: Secrets,
    inputs: Slot,
    window: Window,
    /// The walk has no lower bound.
    is_from_start: bool,
    /// The validator that the run may send with its first request.
    tag: Option<PageTag>,
    pager: Pager,
    number: u32,
    requests: u64,
    rows: usize,
    bad: usize,
}

/// An answer that holds data.
struct Good {
    reply: Reply,
    /// The answer says by itself that there are no records to be read.
    is_empty: bool,
    /// Because they are those that were read before.
    is_unmodified: bool,
    url: Url,
    asked_at: Instant,
    answered_at: Instant,
    source_time: Instant,
    is_dated: bool,
}

/// What has been spent on one page.
#[derive(Default)]
struct Spent {
    failures: u32,
    pleas: u32,
    patience: Duration,
    plain: bool,
    /// The request was repeated with a fresh access token.
    renewed: bool,
}

impl PageReader {
    /// A reader for one run, which walks over one step of the window after another: see [`Self::begin`].
    pub fn new(job: Arc<Job>, http: Http, limits: Arc<Limits>, clock: Arc<dyn Clock>) -> Self {
        Self {
            backoff: Backoff::default(),
            http,
            limits,
            tokens: Arc::default(),
            clock,
            precedence: Precedence::Live,
            pace: None,
            secrets: Secrets::of(&job.account.auth).and(&job.hidden),
            inputs: template_value(&Value::Object(job.inputs.clone())),
            window: Window::default(),
            is_from_start: true,
            tag: None,
            pager: Pager::new(job.stream.pagination.clone(), RowOrder::None, None),
            number: 0,
            requests: 0,
            rows: 0,
            bad: 0,
            job,
        }
    }

    /// The same with the access tokens of this process, which are kept in its store.
    #[must_use]
    pub fn with_tokens(mut self, tokens: Arc<Tokens>) -> Self {
        self.tokens = tokens;
        self
    }

    /// The same behind live requests, and no more often than `rate` over all that is read under this name.
    #[must_use]
    pub fn giving_way(mut self, name: &str, rate: Option<Rate>) -> Self {
        self.precedence = Precedence::Replay;
        self.pace = rate.map(|rate| (name.to_owned(), RateLimit::quota(rate.requests, rate.per)));
        self
    }

    /// The same, where the run before read a listing of one page and was given this validator for it.
    #[must_use]
    pub fn with_tag(mut self, tag: Option<PageTag>) -> Self {
        self.tag = tag.filter(|_| self.job.stream.conditional);
        self
    }

    /// The hash of the account and the listing that sync tokens are made for.
    pub fn listing(&self) -> Result<String, ReadError> {
        let position = Position::default();
        let bare = Values::new(&self.job.inputs, &Window::default(), &position);
        let url = url_of(&self.job.stream, &bare).map_err(|error| self.unmade(&error))?;
        Ok(Hash::of(format!("{} {url}", self.job.account.bucket).as_bytes()).hex())
    }

    /// From the next walk on, what the source gave is asked with; `None` asks for everything.
    pub fn go_on_from(&mut self, token: Option<Value>) {
        self.window.token = token.unwrap_or_default();
    }

    /// Asks for the first token of a source that does not list what there is.
    pub async fn first_token(&mut self, start: &TokenStart) -> Result<Value, ReadError> {
        let values = Values::new(&self.job.inputs, &self.window, &Position::default());
        let stream = Arc::clone(&self.job.stream);
        let made = start_url_of(&stream, start, &values)
            .and_then(|url| headers_of(&stream, &values).map(|headers| (url, headers)));
        let (url, headers) = made.map_err(|error| self.unmade(&error))?;
        let good = self.fetch(&url, &headers).await?;
        let body = good.reply.json().unwrap_or(RawValue::NULL);
        self.token_at(&start.token, body, &good)?.ok_or_else(|| {
            self.failed(Some(&url), "the answer holds no token where `token_start` looks for it")
        })
    }

    /// Begins a walk over the records within these bounds: from its first page, or from one that an earlier
    /// walk over them had come to.
    pub fn begin(&mut self, bounds: Bounds, page: Option<&PageMark>) -> Result<(), ReadError> {
        let rule = self.job.stream.incremental.as_ref();
        let order = rule.map_or(RowOrder::None, |rule| rule.row_order);
        let start = bounds.start.filter(|_| rule.is_some_and(|rule| rule.stop_at_start));
        self.window.start = self.spelled(bounds.start, VersionFormat::write_lower);
        self.window.end = self.spelled(bounds.end, VersionFormat::write_upper);
        self.is_from_start = bounds.start.is_none();
        self.pager = Pager::new(self.job.stream.pagination.clone(), order, start);
        match page.filter(|page| page.sync_token == self.window.token) {
            Some(page) => self.pager.go_on_at(page).map_err(|error| self.failed(None, &error.to_string())),
            None => Ok(()),
        }
    }

    /// Whether the walk has come to its end.
    pub const fn is_over(&self) -> bool {
        self.pager.is_over()
    }

    /// A bound as the API spells it; null where there is none.
    fn spelled(
        &self,
        bound: Option<Version>,
        write: impl Fn(&VersionFormat, Version, Option<&TimeZone>) -> Value,
    ) -> Value {
        match (&self.job.stream.incremental, bound) {
            (Some(rule), Some(bound)) => write(&rule.request_format, bound, rule.timezone.as_ref()),
            _ => Value::Null,
        }
    }

    /// The lower bound of a walk that goes on at a version, which is asked for again.
    fn lower(&self, version: Version) -> Value {
        let bounds = self.job.window.bounds(Step { from: Some(version), to: None });
        self.spelled(bounds.start, VersionFormat::write_lower)
    }

    /// How many requests were sent, repeated ones and redirects included.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// The next page; `None` after the last one. The first page comes even where it is empty. After an
    /// error the same page is asked for again.
    pub async fn next_page(&mut self) -> Result<Option<Page>, ReadError> {
        let asked = self.pager.ask().map_err(|error| self.failed(None, &error.to_string()))?;
        let Some((position, url)) = asked else { return Ok(None) };
        let (url, mut headers) = self.request(position, url).map_err(|error| self.unmade(&error))?;
        let request = self.identity(&url, &headers);
        if let Some(tag) = self.tag.take_if(|tag| self.number == 0 && tag.request == request)
            && let Ok(etag) = HeaderValue::from_str(&tag.etag)
        {
            headers.insert(IF_NONE_MATCH, etag);
        }
        let good = self.fetch(&url, &headers).await?;
        let mut page = self.extract(&good)?;
        if self.job.stream.conditional && page.number == 1 && self.pager.is_over() {
            let etag =
                headers.get(IF_NONE_MATCH).filter(|_| good.is_unmodified).or(good.reply.headers.get(ETAG));
            let etag = etag.and_then(|etag| etag.to_str().ok());
            page.tag = etag.map(|etag| PageTag { request, etag: etag.to_owned() });
        }
        self.number = page.number;
        tracing::debug!(
            job = self.job.name,
            account = self.job.account.bucket,
            page = page.number,
            status = good.reply.status.as_u16(),
            rows = page.rows,
            "page read"
        );
        Ok(Some(page))
    }

    /// The request for a page, not signed yet.
    fn request(&self, position: &Position, url: Option<&Url>) -> Result<(Url, HeaderMap), RequestError> {
        let stream = &self.job.stream;
        let window = match position.from {
            Some(from) => Window { start: self.lower(from), ..self.window.clone() },
            None => self.window.clone(),
        };
        let values = Values::new(&self.job.inputs, &window, position);
        let url = match (url, &window.token) {
            (Some(url), _) => url.clone(),
            (None, Value::String(link))
                if position.first && stream.sync.as_ref().is_some_and(|sync| sync.is_url) =>
            {
                onward(&url_of(stream, &values)?, link)?
            }
            (None, _) => url_of(stream, &values)?,
        };
        Ok((url, headers_of(stream, &values)?))
    }

    fn unmade(&self, error: &RequestError) -> ReadError {
        self.failed(None, &format!("the request cannot be made: {error}"))
    }

    /// What shapes an answer and what is read from it, as a hash.
    fn identity(&self, url: &Url, headers: &HeaderMap) -> String {
        let Job { detect, ignored, .. } = &*self.job;
        let rules = format!("{} {detect:?} {ignored:?}", self.job.fingerprint());
        Hash::of(format!("{rules} {url} {headers:?}").as_bytes()).hex()
    }

    /// Asks for one page until it comes or the bounds are reached.
    async fn fetch(&mut self, url: &Url, headers: &HeaderMap) -> Result<Good, ReadError> {
        let job = Arc::clone(&self.job);
        let mut spent = Spent::default();
        loop {
            let credential = self.may_ask(&mut spent, url).await?;
            let asked_at = self.clock.now();
            // Built for every attempt anew: a token may have run out since the last one.
            let auth = credential.as_ref().map_or(&job.account.auth, |credential| &credential.auth);
            let call = Call { url, headers, auth, plain: spent.plain };
            let answer = match self.http.get(&call, self.clock.as_ref(), &mut self.requests).await {
                Ok(answer) => answer,
                Err(error) if error.may_pass() => {
                    spent.plain |= matches!(error, HttpError::Broken(_));
                    self.wait_out(&mut spent, url, None, &error.to_string()).await?;
                    continue;
                }
                Err(error) => return Err(self.failed(Some(url), &error.to_string())),
            };
            let answered_at = self.clock.now();
            let Answer { url: from, status, headers: answered, body, begun_at } = answer;
            let date = date_of(&answered);
            let format = job.stream.records.format;
            let text = decode(body, header(&answered, "content-type").as_deref(), format);
            let reply = Reply::new(status, answered, text, date.unwrap_or(begun_at), format, &self.secrets);
            self.heed_quotas(url, &reply)?;
            let verdict = judge(&job.stream, &self.inputs, &reply);
            match verdict {
                Verdict::NotModified if !headers.contains_key(IF_NONE_MATCH) => {
                    return Err(self.failed(Some(url), "answered 304 to a request that named no `ETag`"));
                }
                Verdict::Data | Verdict::Empty | Verdict::NotModified => {
                    return Ok(Good {
                        is_empty: !matches!(verdict, Verdict::Data),
                        is_unmodified: matches!(verdict, Verdict::NotModified),
                        source_time: source_time(asked_at, begun_at, date),
                        is_dated: date.is_some(),
                        reply,
                        url: from,
                        asked_at,
                        answered_at,
                    });
                }
                Verdict::RateLimited { plea, reason } => self.be_patient(&mut spent, url, plea, &reason)?,
                Verdict::Retry { wait, reason } => self.wait_out(&mut spent, url, wait, &reason).await?,
                Verdict::RefreshAuth { reason } => {
                    self.renew(&mut spent, url, credential.as_ref(), &reason).await?;
                }
                // Behind the first page it is the page's token that is gone.
                Verdict::ResetToken { reason } if self.pager.is_at_start() => {
                    return Err(ReadError::Reset { reason: self.reason(Some(url), &reason) });
                }
                Verdict::ResetToken { reason } | Verdict::RestartWindow { reason } => {
                    return Err(ReadError::Restart { reason: self.reason(Some(url), &reason) });
                }
                Verdict::SplitWindow { reason } => {
                    return Err(ReadError::TooMuch { reason: self.reason(Some(url), &reason) });
                }
                Verdict::Fail { reason } => return Err(self.failed(Some(url), &reason)),
            }
        }
    }

    fn parked(&self, url: &Url, bucket: &str, until: Instant, reason: &str) -> ReadError {
        let reason = format!("{reason}; the account may ask again at {until}");
        ReadError::RateLimited { bucket: bucket.to_owned(), until, reason: self.reason(Some(url), &reason) }
    }

    fn failed(&self, url: Option<&Url>, reason: &str) -> ReadError {
        ReadError::Failed { reason: self.reason(url, reason) }
    }

    /// A reason that names the job, the page and the URL, without secrets.
    fn reason(&self, url: Option<&Url>, reason: &str) -> String {
        let page = self.number.saturating_add(1);
        let place = url.map(|url| format!(" (GET {})", self.secrets.url(url))).unwrap_or_default();
        format!("job `{}`, page {page}{place}: {}", self.job.name, self.secrets.hide(reason))
    }
}

/// The source's clock, from the `Date` header.
fn date_of(headers: &HeaderMap) -> Option<Instant> {
    let date = header(headers, "date")?;
    jiff::fmt::rfc2822::parse(date.trim()).ok().map(|date| Instant::from(date.timestamp()))
}
