//! The pages of one run, one after another. A page that does not come is asked for again, by itself:
//! nothing starts over, and the walk moves on only behind a page that was read (field cases C15, C16).

mod access;
#[cfg(any(test, fuzzing))]
pub(super) mod fuzzing;

use std::{sync::Arc, time::Duration};

use minijinja::Value as Slot;
use reqwest::header::HeaderMap;
use serde_json::{Value, value::RawValue};
use url::Url;

use super::{
    auth::Secrets,
    body::{
        list::{List, list},
        records::{Reading, RecordsError, too_many_bad},
        text::decode,
    },
    http::{Answer, Call, Http, HttpError},
    marks,
    next::PageFacts,
    pager::Pager,
    place::header,
    request::{Values, headers_of, url_of},
    tokens::Tokens,
    verdict::{Reply, Verdict, judge, stops},
};
use crate::{
    config::{job::Job, template::template_value},
    domain::{
        backoff::{Backoff, Plea, jittered},
        clock::Clock,
        instant::Instant,
        page::SeenRecord,
        version::Version,
        window::{Bounds, Step, source_time},
    },
    limit::{LONGEST_WAIT, Limits},
    store::QuarantinedRecord,
};

/// The longest time that one page may be waited for in all, where the source asks for patience.
const LONGEST_PATIENCE: Duration = Duration::from_mins(30);

/// A page of records.
#[derive(Debug)]
pub struct Page {
    /// Its number in the run, from 1.
    pub number: u32,
    /// Its records that pass the filter, a key possibly more than once.
    pub records: Vec<SeenRecord>,
    /// Its records that could not be read.
    pub quarantined: Vec<QuarantinedRecord>,
    /// How many were left out for want of a version.
    pub skipped: u64,
    /// Its rows as they came, before the filter.
    pub rows: usize,
    /// The highest version among its rows.
    pub max_version: Option<Version>,
    /// When it was asked for, by our clock: the attempt that brought it.
    pub asked_at: Instant,
    /// When it had come, by our clock.
    pub answered_at: Instant,
    /// When it was asked for, by the source's clock.
    pub source_time: Instant,
}

/// Why a page was not read. It is never the end of the data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The source wants to be left alone for longer than a run may wait.
    #[error("{reason}")]
    RateLimited {
        /// Who is to leave it alone: the account's bucket, or a stream's own.
        bucket: String,
        /// Until when, by our clock.
        until: Instant,
        /// What it said.
        reason: String,
    },
    /// The page cannot be read, or not now.
    #[error("{reason}")]
    Failed {
        /// Why, and what to look at.
        reason: String,
    },
}

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
    secrets: Secrets,
    inputs: Slot,
    window: [Value; 2],
    pager: Pager,
    number: u32,
    requests: u64,
    rows: usize,
    bad: usize,
}

/// An answer that holds data.
struct Good {
    reply: Reply,
    /// The answer says by itself that there are no records.
    is_empty: bool,
    url: Url,
    asked_at: Instant,
    answered_at: Instant,
    source_time: Instant,
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
            secrets: Secrets::of(&job.account.auth).and(&job.hidden),
            inputs: template_value(&Value::Object(job.inputs.clone())),
            window: [Value::Null, Value::Null],
            pager: Pager::new(job.stream.pagination.clone(), None),
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

    /// Begins a walk over the records within these bounds, from its first page.
    pub fn begin(&mut self, bounds: Bounds) {
        let stops_at_start = self.job.stream.incremental.as_ref().is_some_and(|rule| rule.stop_at_start);
        self.window = [self.spelled(bounds.start), self.spelled(bounds.end)];
        self.pager = Pager::new(self.job.stream.pagination.clone(), bounds.start.filter(|_| stops_at_start));
    }

    /// A bound as the API spells it; null where there is none.
    fn spelled(&self, bound: Option<Version>) -> Value {
        match (&self.job.stream.incremental, bound) {
            (Some(incremental), Some(bound)) => {
                incremental.request_format.write(bound, incremental.timezone.as_ref())
            }
            _ => Value::Null,
        }
    }

    /// The bounds of a walk that goes on at a version, which is asked for again.
    fn bounds_from(&self, version: Version) -> Bounds {
        self.job.window.bounds(Step { from: Some(version), to: None })
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
        let stream = Arc::clone(&self.job.stream);
        let moved = position.from.map(|from| self.spelled(self.bounds_from(from).start));
        let [start, end] = &self.window;
        let window = [moved.as_ref().unwrap_or(start).clone(), end.clone()];
        let values = Values::new(&self.job.inputs, &window, position);
        let made = url
            .map_or_else(|| url_of(&stream, &values), |url| Ok(url.clone()))
            .and_then(|url| headers_of(&stream, &values).map(|headers| (url, headers)));
        let (url, headers) =
            made.map_err(|error| self.failed(None, &format!("the request cannot be made: {error}")))?;

        let good = self.fetch(&url, &headers).await?;
        let page = self.extract(&good)?;
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
            let Answer { url: from, status, headers, body, begun_at } = answer;
            let date = date_of(&headers);
            let format = job.stream.records.format;
            let text = decode(body, header(&headers, "content-type").as_deref(), format);
            let reply = Reply::new(status, headers, text, date.unwrap_or(begun_at), format, &self.secrets);
            self.heed_quotas(url, &reply)?;
            let verdict = judge(&job.stream, &self.inputs, &reply);
            match verdict {
                Verdict::Data | Verdict::Empty => {
                    let is_empty = matches!(verdict, Verdict::Empty);
                    let source_time = source_time(asked_at, begun_at, date);
                    return Ok(Good { reply, is_empty, url: from, asked_at, answered_at, source_time });
                }
                Verdict::RateLimited { plea, reason } => self.be_patient(&mut spent, url, plea, &reason)?,
                Verdict::Retry { wait, reason } => self.wait_out(&mut spent, url, wait, &reason).await?,
                Verdict::RefreshAuth { reason } => {
                    self.renew(&mut spent, url, credential.as_ref(), &reason).await?;
                }
                Verdict::Fail { reason } => return Err(self.failed(Some(url), &reason)),
            }
        }
    }

    /// Waits before a page is tried again, or gives up.
    async fn wait_out(
        &self,
        spent: &mut Spent,
        url: &Url,
        wait: Option<Duration>,
        reason: &str,
    ) -> Result<(), ReadError> {
        spent.failures += 1;
        if spent.failures >= self.backoff.tries {
            let reason = format!("{reason}; tried {} times", spent.failures);
            return Err(self.failed(Some(url), &reason));
        }
        // Before jitter is added, which very long waits have no room for.
        if let Some(wait) = wait.filter(|wait| *wait > LONGEST_WAIT) {
            return Err(self.parked(url, &self.job.account.bucket, self.clock.now().plus(wait), reason));
        }
        let random = self.limits.random();
        let wait =
            wait.map_or_else(|| self.backoff.wait(spent.failures, random), |wait| jittered(wait, random));
        self.log_wait(wait, reason);
        self.clock.sleep(wait).await;
        Ok(())
    }

    /// Shuts the account's gate, behind which this page waits like everybody else. Such waits spend no
    /// try, but neither they nor their sum may be endless.
    fn be_patient(&self, spent: &mut Spent, url: &Url, plea: Plea, reason: &str) -> Result<(), ReadError> {
        spent.pleas = spent.pleas.saturating_add(1);
        let wait = plea.wait(spent.pleas, self.backoff, self.limits.random());
        spent.patience = spent.patience.saturating_add(wait);
        let until = self.clock.now().plus(wait);
        self.limits.hold(&self.job.account.bucket, until);
        if wait > LONGEST_WAIT || spent.patience > LONGEST_PATIENCE {
            return Err(self.parked(url, &self.job.account.bucket, until, reason));
        }
        self.log_wait(wait, reason);
        Ok(())
    }

    fn log_wait(&self, wait: Duration, reason: &str) {
        tracing::warn!(
            job = self.job.name,
            account = self.job.account.bucket,
            page = self.number.saturating_add(1),
            wait = ?wait,
            reason,
            "the same page will be asked for again"
        );
    }

    /// The records of an answer. The walk moves on only where all of it could be read.
    fn extract(&mut self, good: &Good) -> Result<Page, ReadError> {
        let url = Some(&good.url);
        let stream = &self.job.stream;
        let body = good.reply.json().unwrap_or(RawValue::NULL);
        let failed = |error: RecordsError| {
            let beginning = self.secrets.excerpt(body.get(), 200);
            self.failed(url, &format!("{error}; it begins with `{beginning}`"))
        };
        let list = match &good.reply.body {
            _ if good.is_empty => List::empty(),
            Ok(document) => list(document, stream).map_err(failed)?,
            // The verdict called it data all the same: an empty body that stands for an empty list.
            Err(_) => List::empty(),
        };
        let rows = list.rows().map_err(failed)?;
        let marks = marks::of(&rows, stream, &self.job.ignored);
        // Where pages overlap, what a page brings again is no record of its own.
        let fresh: Vec<(usize, &RawValue)> = rows
            .iter()
            .copied()
            .enumerate()
            .zip(self.pager.fresh(&marks))
            .filter_map(|(row, is_fresh)| is_fresh.then_some(row))
            .collect();
        let reading = Reading {
            job: &self.job,
            inputs: &self.inputs,
            damaged: good.reply.damaged,
            unread_since: good.source_time,
        };
        let read = reading.page(&fresh, &list).map_err(failed)?;
        let (all, bad) =
            (self.rows.saturating_add(fresh.len()), self.bad.saturating_add(read.quarantined.len()));
        if let Some(first) = read.quarantined.first().filter(|_| too_many_bad(bad, all)) {
            return Err(failed(RecordsError::TooManyBad { bad, rows: all, reason: first.reason.clone() }));
        }
        let stops = stops(stream, &self.inputs, &good.reply)
            .map_err(|error| self.failed(url, &format!("`stop_condition` fails: {error}")))?;
        let (headers, rows, marks) = (&good.reply.headers, &rows, &marks);
        let facts = PageFacts { url: &good.url, body, headers, rows, marks, stops };
        if let Err(error) = self.pager.advance(&facts) {
            return Err(self.failed(url, &error.to_string()));
        }
        if let Some(clamp) = self.pager.take_clamp() {
            tracing::info!(
                job = self.job.name,
                asked = clamp.asked,
                received = clamp.received,
                "the source gives smaller pages than it is asked for"
            );
        }
        (self.rows, self.bad) = (all, bad);
        Ok(Page {
            number: self.number.saturating_add(1),
            records: read.records,
            quarantined: read.quarantined,
            skipped: read.skipped,
            rows: rows.len(),
            max_version: read.max_version,
            asked_at: good.asked_at,
            answered_at: good.answered_at,
            source_time: good.source_time,
        })
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
