//! One answer read as a run reads it, from its bytes to the request for the next page.

use std::{
    num::NonZeroU32,
    sync::{Arc, LazyLock},
};

use reqwest::header::HeaderValue;

use super::*;
use crate::{
    config::{
        account::RateLimit,
        job::Job,
        load_str,
        stream::{Place, WaitRule, WaitUnit},
        template::{Expression, Scope},
    },
    connector::{
        HttpOptions,
        body::records::read_one,
        quota::pause_after,
        request::{Values, headers_of, url_of},
    },
    domain::{
        allow_private::AllowPrivate,
        backoff::Plea,
        clock::Wait,
        decide::Detect,
        event::{ChangeKind, EventSource},
        page::{PageRules, Silence, decide_page, one_of_each_key},
    },
};

const ADDRESS: &str = "https://a.test/v1/rows?page=1";
const NOW: Instant = Instant::from_seconds(1_790_000_000);

/// Streams of every format, shape and pagination, told apart by the first byte of an input.
static JOBS: LazyLock<Vec<Arc<Job>>> = LazyLock::new(|| {
    let streams = [
        (
            "records: {path: $.items, filter: record.n > 1}",
            "[id]",
            "{type: offset, has_more_path: $.more, total_path: $.total}",
        ),
        (
            "records: {path: $.items}",
            "[id, $.a.b]",
            "{type: cursor, token_path: $.next, stop_condition: not response.more}",
        ),
        ("records: {path: $.rates, entries: {key_as: id}}", "[id]", "{type: cursor, token_field: id}"),
        ("records: {path: $.rows, columns: $.head}", "[id]", "{type: next_url, next_url_path: $.next}"),
        ("records: {format: ndjson}", "[id]", "{type: link_header}"),
        ("records: {format: csv}", "[id]", "{type: page_number}"),
        ("records: {format: csv, delimiter: ';', missing: empty}", "[id]", "{type: none}"),
        (
            "records: {format: xml, path: $.rss.channel.item}",
            "[guid]",
            "{type: page_number, total_pages_path: $.rss.pages}",
        ),
        ("records: {missing: empty}", "[id]", "{type: keyset}"),
    ];
    let jobs = streams.into_iter().enumerate().map(|(number, (records, key, pagination))| {
        let yaml = format!(
            r#"
jobs:
  rows:
    source:
      base_url: https://a.test/v1
      request:
        path: /rows/{{{{ page.token }}}}
        query: {{since: "{{{{ window.start }}}}", after: "{{{{ page.token }}}}", offset: "{{{{ page.offset }}}}", page: "{{{{ page.number }}}}"}}
      {records}
      primary_key: {key}
      incremental: {{field: [updated_at, $.meta.at], format: {format}}}
      pagination: {pagination}
      deleted_when: record.state == 'gone'
      errors:
        - {{status: 200, when: response.error.code > 3, action: rate_limited, wait: {{from: $.error.wait, unit: {unit}}}}}
        - {{status: 200, when: response.error, action: retry, wait: {{from: $.error.wait, pattern: "([0-9]+)"}}}}
    every: 1m
    changes: {{ignore_fields: [views, $.a.b, "$.tags[0]"]}}
    destination: https://b.test/webhook
"#,
            format = ["auto, timezone: Europe/Zagreb", "iso8601, timezone: UTC", "epoch_ms", "decimal", "date, timezone: UTC"][number % 5],
            unit = ["seconds", "epoch_s", "epoch_ms", "iso8601"][number % 4],
        );
        let config = load_str("jobs.yaml", &yaml, std::path::Path::new(""), &|_| None);
        Arc::clone(&config.unwrap_or_else(|errors| panic!("{errors}")).jobs["rows"])
    });
    jobs.collect()
});

static HTTP: LazyLock<Http> =
    LazyLock::new(|| Http::new(HttpOptions::default(), AllowPrivate::default()).unwrap());

static QUOTA: LazyLock<RateLimit> = LazyLock::new(|| RateLimit {
    remaining: Some(Place::Header("x-left".to_owned())),
    reset: Some(Arc::new(WaitRule::From {
        place: Place::Body("$.reset".parse().unwrap()),
        unit: WaitUnit::EpochS,
        pattern: None,
    })),
    pause: Expression::parse("response.pause", Scope::Answer { inputs: &[] }).ok().map(Arc::new),
    ..RateLimit::quota(NonZeroU32::MIN, Duration::from_secs(1))
});

/// What answers say of themselves, told apart by the second byte of an input.
const HEADS: [(u16, Option<&str>); 8] = [
    (200, None),
    (200, Some("application/json; charset=utf-8")),
    (200, Some("text/csv; charset=windows-1252")),
    (200, Some("application/xml; charset=utf-16le")),
    (200, Some("text/html")),
    (204, None),
    (429, Some("application/json")),
    (503, None),
];

#[derive(Debug)]
struct Standing;

impl Clock for Standing {
    fn now(&self) -> Instant {
        NOW
    }

    fn sleep(&self, _: Duration) -> Wait<'_> {
        Box::pin(std::future::ready(()))
    }
}

/// An answer of any bytes leads to records that can be stored and sent, or to an error, and never to another
/// host.
pub fn page(data: &[u8]) {
    let [kind, head, body @ ..] = data else { return };
    let place = |byte: u8, of: usize| usize::from(byte.wrapping_sub(b'0')) % of;
    let job = &JOBS[place(*kind, JOBS.len())];
    let (status, content_type) = HEADS[place(*head, HEADS.len())];
    let clock: Arc<dyn Clock> = Arc::new(Standing);
    let mut reader =
        PageReader::new(Arc::clone(job), HTTP.clone(), Arc::new(Limits::new(Arc::clone(&clock))), clock);
    let begun = reader.begin(Bounds { start: Some(Version(0)), end: None }, None);
    debug_assert!(begun.is_ok(), "a walk begins without a page to go on at");
    // The same answer again is what a source gives that goes in circles.
    for _ in 0..2 {
        let Some(good) = answer(&reader, status, content_type, body) else { return };
        let Ok(page) = reader.extract(&good) else { return };
        check(job, &page);
        ask(&reader, job);
    }
}

fn answer(reader: &PageReader, status: u16, content_type: Option<&str>, body: &[u8]) -> Option<Good> {
    let mut headers = HeaderMap::new();
    if let Some(kind) = content_type {
        headers.insert("content-type", HeaderValue::from_str(kind).unwrap());
    }
    let first_line = body.split(|byte| *byte == b'\n').next().unwrap_or_default();
    for name in ["link", "retry-after", "x-left"] {
        if let Ok(value) = HeaderValue::from_bytes(first_line) {
            headers.insert(name, value);
        }
    }
    let (url, status) = (ADDRESS.parse().unwrap(), status.try_into().unwrap());
    let format = reader.job.stream.records.format;
    let text = decode(body.to_vec(), content_type, format);
    let reply = Reply::new(status, headers, text, NOW, format, &reader.secrets);
    if let Ok(Some(pause)) = pause_after(&QUOTA, &reader.inputs, &reply) {
        assert!(NOW.plus(pause) > NOW);
    }
    let is_empty = match judge(&reader.job.stream, &reader.inputs, &reply) {
        Verdict::Data => false,
        Verdict::Empty => true,
        Verdict::RateLimited { plea, .. } => {
            assert!(plea.wait(3, Backoff::default(), 0.9) > Duration::ZERO);
            return None;
        }
        Verdict::Retry { wait: Some(wait), .. } => {
            assert!(NOW.plus(Plea::Told(wait).wait(1, Backoff::default(), 0.9)) > NOW);
            return None;
        }
        _ => return None,
    };
    Some(Good {
        reply,
        is_empty,
        url,
        is_unmodified: false,
        asked_at: NOW,
        answered_at: NOW,
        source_time: NOW,
        is_dated: false,
    })
}

fn check(job: &Job, page: &Page) {
    assert!(
        page.records.len() + page.quarantined.len() + usize::try_from(page.skipped).unwrap() <= page.rows
    );
    for record in &page.records {
        assert!(!record.key.as_str().is_empty() && !record.key.as_str().contains('\0'));
        assert!(record.version <= page.max_version);
        let again = read_one(job, record.raw.get()).unwrap().unwrap();
        assert_eq!((&again.key, again.version, again.flagged), (&record.key, record.version, record.flagged));
    }
    let rules = PageRules {
        replay: None,
        detect: Detect::Either,
        ignored: job.ignored.clone(),
        emit: ChangeKind::ALL.to_vec(),
        silence: Silence::Never,
        settled_until: None,
        asked_at: page.asked_at,
        answered_at: page.answered_at,
        tolerance: None,
        is_feed: false,
        source: EventSource {
            job_uid: "uid".into(),
            job: job.name.clone(),
            connector: "source".into(),
            stream: job.stream_name.clone(),
            format: job.version_format(),
            numbers: job.numbers,
        },
    };
    let (records, _) = one_of_each_key(&page.records, false);
    let decided = decide_page(&records, &std::collections::HashMap::new(), &rules, None, NOW).unwrap();
    assert_eq!(decided.writes.len(), records.len());
    for event in &decided.events {
        assert!(crate::domain::json::parse(&event.body).is_ok());
    }
}

/// Makes the request for the next page, if there is one.
fn ask(reader: &PageReader, job: &Job) {
    let Ok(Some((position, url))) = reader.pager.ask() else { return };
    let values = Values::new(&job.inputs, &reader.window, position);
    drop(headers_of(&job.stream, &values));
    if let Ok(url) = url.map_or_else(|| url_of(&job.stream, &values), |url| Ok(url.clone())) {
        assert_eq!(url.origin(), ADDRESS.parse::<Url>().unwrap().origin());
    }
}
