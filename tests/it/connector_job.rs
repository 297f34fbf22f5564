//! Jobs made by hand, a clock that counts waits instead of waiting, and a walk over all pages.

use std::{
    num::NonZeroU32,
    sync::{Arc, Mutex},
    time::Duration,
};

use onlynew::{
    config::{
        account::{Account, Auth, RateLimit},
        destination::{Destination, WebhookAuth},
        job::{FirstRun, Job},
        stream::{
            ErrorAction, ErrorRule, Incremental, Missing, PageKind, Pagination, Place, RecordFormat, Records,
            Shape, Stream, WaitRule, WaitUnit,
        },
        template::{Expression, Scope, Template},
    },
    connector::{Http, HttpOptions, Page, PageReader, ReadError},
    domain::{
        allow_private::AllowPrivate,
        clock::{Clock, Wait},
        decide::Detect,
        event::ChangeKind,
        fires::Schedule,
        instant::Instant,
        json_path::JsonPath,
        key::KeyType,
        lane::Lanes,
        numbers::Numbers,
        order::RowOrder,
        version::{Version, VersionFormat},
        version_field::OnMissingVersion,
        window::{Bounds, WindowRule},
    },
    limit::Limits,
};
use serde_json::{Map, Value};

/// The inputs that templates of these tests may name.
const INPUTS: [&str; 2] = ["repo", "labels"];

/// 2026-09-21T14:13:20Z, when these tests begin.
pub const START: Instant = Instant::from_seconds(1_790_000_000);

/// A clock that jumps instead of waiting.
#[derive(Debug)]
pub struct CountingClock {
    now: Mutex<Instant>,
    waits: Mutex<Vec<Duration>>,
}

impl CountingClock {
    pub fn start() -> Arc<Self> {
        Arc::new(Self { now: Mutex::new(START), waits: Mutex::default() })
    }

    /// The waits so far, in seconds, rounded up. Those of a pace too fast to be felt are left out.
    pub fn waits(&self) -> Vec<u64> {
        let whole = |wait: &Duration| wait.as_secs() + u64::from(wait.subsec_micros() > 0);
        let waits = self.waits.lock().unwrap();
        waits.iter().filter(|wait| **wait >= Duration::from_millis(1)).map(whole).collect()
    }
}

impl Clock for CountingClock {
    fn now(&self) -> Instant {
        *self.now.lock().unwrap()
    }

    fn sleep(&self, duration: Duration) -> Wait<'_> {
        self.waits.lock().unwrap().push(duration);
        let mut now = self.now.lock().unwrap();
        *now = now.plus(duration);
        Box::pin(std::future::ready(()))
    }
}

/// A job in the making: a plain stream of `$.items` with the key `id` and one page.
pub struct Draft {
    pub stream: Stream,
    pub auth: Auth,
    pub rate_limit: Option<RateLimit>,
    pub inputs: Map<String, Value>,
    pub options: HttpOptions,
    pub ignored: Vec<JsonPath>,
    open_start: bool,
}

impl Draft {
    pub fn new(base_url: &str) -> Self {
        Self {
            stream: Stream {
                base_url: Template::Literal(base_url.to_owned()),
                path: Template::Literal("/items".to_owned()),
                query: Vec::new(),
                headers: Vec::new(),
                records: Records {
                    path: "$.items".parse().unwrap(),
                    filter: None,
                    missing: Missing::Fail,
                    format: RecordFormat::Json,
                    shape: Shape::List,
                },
                primary_key: vec!["id".parse().unwrap()],
                key_type: KeyType::Loose,
                incremental: None,
                sync: None,
                conditional: false,
                bounded: false,
                pagination: Pagination::plain(PageKind::Single),
                errors: Vec::new(),
                rate_limit: None,
                deleted_when: None,
            },
            auth: Auth::None,
            rate_limit: None,
            inputs: Map::new(),
            options: HttpOptions::default(),
            ignored: Vec::new(),
            open_start: false,
        }
    }

    /// Leaves a place out of the content.
    pub fn ignore(mut self, path: &str) -> Self {
        self.ignored.push(path.parse().unwrap());
        self
    }

    /// A source that leaves out rows at the bound itself.
    pub fn open_start(mut self) -> Self {
        self.open_start = true;
        self
    }

    pub fn path(mut self, path: &str) -> Self {
        self.stream.path = template(path);
        self
    }

    pub fn query(mut self, name: &str, value: &str) -> Self {
        self.stream.query.push((name.to_owned(), template(value)));
        self
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.stream.headers.push((name.to_owned(), template(value)));
        self
    }

    pub fn records(mut self, path: &str) -> Self {
        self.stream.records.path = path.parse().unwrap();
        self
    }

    pub fn filter(mut self, rule: &str) -> Self {
        self.stream.records.filter = Some(record_rule(rule));
        self
    }

    pub fn deleted_when(mut self, rule: &str) -> Self {
        self.stream.deleted_when = Some(record_rule(rule));
        self
    }

    pub fn pages(mut self, kind: PageKind) -> Self {
        self.stream.pagination.kind = kind;
        self
    }

    /// The same over rows that can move between its pages.
    pub fn shifting(mut self, kind: PageKind) -> Self {
        self.stream.pagination.shifts = true;
        self.pages(kind)
    }

    pub fn stop_condition(mut self, rule: &str) -> Self {
        let inputs = INPUTS.map(str::to_owned);
        let rule = Expression::parse(rule, Scope::Answer { inputs: &inputs }).unwrap();
        self.stream.pagination.stop = Some(Arc::new(rule));
        self
    }

    pub fn max_pages(mut self, most: u32) -> Self {
        self.stream.pagination.max_pages = NonZeroU32::new(most);
        self
    }

    /// Versions of a listing that is newest first and not filtered.
    pub fn newest_first(self, format: VersionFormat) -> Self {
        let mut draft = self.versions(format);
        draft.stream.incremental.as_mut().unwrap().stop_at_start = true;
        draft
    }

    pub fn has_more(mut self, path: &str) -> Self {
        self.stream.pagination.has_more = Some(body(path));
        self
    }

    pub fn total(mut self, path: &str) -> Self {
        self.stream.pagination.total = Some(body(path));
        self
    }

    pub fn versions(mut self, format: VersionFormat) -> Self {
        self.stream.incremental = Some(Incremental {
            field: "updated_at".parse().unwrap(),
            request_format: format.clone(),
            format,
            timezone: None,
            row_order: RowOrder::None,
            stop_at_start: false,
        });
        self
    }

    pub fn auth(mut self, auth: Auth) -> Self {
        self.auth = auth;
        self
    }

    pub fn input(mut self, name: &str, value: Value) -> Self {
        self.inputs.insert(name.to_owned(), value);
        self
    }

    pub fn error(
        mut self,
        status: Option<u16>,
        when: &str,
        action: ErrorAction,
        wait: Option<WaitRule>,
    ) -> Self {
        let inputs = INPUTS.map(str::to_owned);
        let when =
            (!when.is_empty()).then(|| Expression::parse(when, Scope::Answer { inputs: &inputs }).unwrap());
        self.stream.errors.push(ErrorRule { status, when, action, wait });
        self
    }

    pub fn job(self) -> (Arc<Job>, Http) {
        let http = Http::new(self.options, AllowPrivate::Auto).unwrap();
        let account = Account {
            bucket: "acme".into(),
            connector: "test".into(),
            auth: self.auth,
            rate_limit: self.rate_limit,
        };
        let destination = Destination {
            name: "d".into(),
            url: "http://n8n.test/webhook/d".parse().unwrap(),
            auth: WebhookAuth::None,
            signing_keys: Vec::new(),
            allow_private: AllowPrivate::Auto,
            concurrency: 1,
            timeout: Duration::from_secs(30),
            delays: Vec::new(),
            batch: None,
            lanes: Lanes::default(),
            rate_limit: None,
        };
        let job = Job {
            renamed_from: None,
            name: "orders".into(),
            account: Arc::new(account),
            stream_name: "items".into(),
            stream: Arc::new(self.stream),
            given: self.inputs.keys().cloned().collect(),
            inputs: self.inputs,
            schedule: Schedule::Every(Duration::from_mins(1)),
            window: WindowRule {
                start: None,
                lookback: Duration::ZERO,
                settle: Duration::ZERO,
                step: None,
                granularity: Duration::ZERO,
                precision: 1,
                open_start: self.open_start,
                open_end: false,
                is_time: true,
            },
            first_run: FirstRun::Emit,
            detect: Detect::Version,
            ignored: self.ignored,
            on_missing_version: OnMissingVersion::Include,
            numbers: Numbers::Safe,
            emit: ChangeKind::ALL.to_vec(),
            sweep: None,
            destination: Arc::new(destination),
            hidden: Arc::new([]),
        };
        (Arc::new(job), http)
    }

    /// A reader on a clock, without jitter.
    pub fn reader(self, from: Option<Version>, clock: &Arc<CountingClock>) -> PageReader {
        let clock: Arc<dyn Clock> = clock.clone();
        let limits = Arc::new(Limits::new(Arc::clone(&clock)).with_random(|| 0.0));
        let (job, http) = self.job();
        let mut reader = PageReader::new(job, http, limits, clock);
        reader.begin(Bounds { start: from, end: None }, None).unwrap();
        reader
    }

    /// Reads all pages, without really waiting.
    pub async fn read(self) -> Walk {
        self.read_on(&CountingClock::start()).await
    }

    /// Reads all pages on a clock.
    pub async fn read_on(self, clock: &Arc<CountingClock>) -> Walk {
        walk(self.reader(None, clock)).await
    }
}

/// Reads all pages.
pub async fn walk(mut reader: PageReader) -> Walk {
    let mut walk = Walk { pages: Vec::new(), error: None, requests: 0 };
    loop {
        match reader.next_page().await {
            Ok(Some(page)) => walk.pages.push(page),
            Ok(None) => break,
            Err(error) => {
                walk.error = Some(error);
                break;
            }
        }
    }
    walk.requests = reader.requests();
    walk
}

/// The pages of a walk, and how it ended.
pub struct Walk {
    pub pages: Vec<Page>,
    pub error: Option<ReadError>,
    pub requests: u64,
}

impl Walk {
    /// The keys of a walk that came to its end.
    pub fn keys(&self) -> Vec<&str> {
        assert_eq!(self.error, None);
        self.read_keys()
    }

    /// The keys that were read, whatever came then.
    pub fn read_keys(&self) -> Vec<&str> {
        self.pages.iter().flat_map(|page| &page.records).map(|record| record.key.as_str()).collect()
    }

    /// Why the walk failed.
    pub fn failure(&self) -> &str {
        match &self.error {
            Some(ReadError::Failed { reason }) => reason,
            other => panic!("{other:?} with {:?}", self.read_keys()),
        }
    }
}

pub fn body(path: &str) -> Place {
    Place::Body(path.parse().unwrap())
}

pub fn wait_from(place: Place, unit: WaitUnit, pattern: Option<&str>) -> WaitRule {
    let pattern = pattern.map(|pattern| regex_lite::Regex::new(pattern).unwrap());
    WaitRule::From { place, unit, pattern }
}

fn template(source: &str) -> Template {
    let inputs = INPUTS.map(str::to_owned);
    Template::parse(source, Scope::Request { inputs: &inputs }).unwrap()
}

fn record_rule(rule: &str) -> Expression {
    let inputs = INPUTS.map(str::to_owned);
    Expression::parse(rule, Scope::Record { inputs: &inputs }).unwrap()
}
