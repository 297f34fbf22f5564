//! Patience: Retry-After in every shape, limits spoken in bodies, and the same page asked for again.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use onlynew::{
    config::{
        account::RateLimit,
        stream::{ErrorAction, PageKind, WaitUnit},
    },
    connector::{PageReader, ReadError},
    domain::clock::Clock,
    limit::Limits,
};
use serde_json::json;

use crate::{
    connector_job::{CountingClock, Draft, START, body, wait_from},
    support::source::{Answer, Source},
};

fn good() -> Answer {
    Answer::json(&json!({"items": [{"id": 1}]}))
}

#[tokio::test]
async fn c12_retry_after_in_every_shape_on_429_and_503() {
    let cases = [
        (Some("120"), 120),
        (Some(" 120 "), 120),
        (Some("0"), 1),
        (Some("1.5"), 2),
        (Some("Mon, 21 Sep 2026 14:15:20 GMT"), 120),
        (Some("Mon, 21 Sep 2026 14:11:20 GMT"), 1),
        (Some("-1"), 1),
        (Some("abc"), 1),
        (Some("inf"), 1),
        (Some("nan"), 1),
        (None, 1),
    ];
    for status in [429, 503] {
        for (value, expected) in cases {
            let limited = match value {
                Some(value) => Answer::status(status).header("Retry-After", value),
                None => Answer::status(status),
            };
            let source = Source::script([limited, good()]).await;
            let clock = CountingClock::start();
            let walk = Draft::new(&source.url()).read_on(&clock).await;
            assert_eq!(walk.keys(), ["1"]);
            assert_eq!(clock.waits(), [expected], "{status} {value:?}");
        }
        let source = Source::script([Answer::status(status).header("Retry-After", "86400"), good()]).await;
        let clock = CountingClock::start();
        let walk = Draft::new(&source.url()).read_on(&clock).await;
        let until = START.plus(Duration::from_hours(24));
        assert!(
            matches!(&walk.error, Some(ReadError::RateLimited { until: u, .. }) if *u == until),
            "{:?}",
            walk.error
        );
        assert_eq!((clock.waits().len(), source.asked().len()), (0, 1));
    }
}

#[tokio::test]
async fn an_http_date_counts_from_the_clock_of_the_source() {
    let limited = Answer::status(429)
        .header("Date", "Mon, 21 Sep 2020 10:00:00 GMT")
        .header("Retry-After", "Mon, 21 Sep 2020 10:00:30 GMT");
    let source = Source::script([limited, good()]).await;
    let clock = CountingClock::start();
    Draft::new(&source.url()).read_on(&clock).await.keys();
    assert_eq!(clock.waits(), [30]);
}

#[tokio::test]
async fn endless_pleas_for_patience_end_the_run_after_half_an_hour() {
    let source = Source::script([Answer::status(429).header("Retry-After", "600")]).await;
    let clock = CountingClock::start();
    let walk = Draft::new(&source.url()).read_on(&clock).await;
    assert!(matches!(walk.error, Some(ReadError::RateLimited { .. })), "{:?}", walk.error);
    assert_eq!(clock.waits(), [600, 600, 600]);

    let source = Source::script([Answer::status(429)]).await;
    let walk = Draft::new(&source.url()).read().await;
    assert!(matches!(walk.error, Some(ReadError::RateLimited { .. })), "{:?}", walk.error);
}

#[tokio::test]
async fn other_jobs_of_the_account_wait_too() {
    let source = Source::script([Answer::status(429).header("Retry-After", "3600"), good()]).await;
    let counting = CountingClock::start();
    let clock: Arc<dyn Clock> = counting.clone();
    let limits = Arc::new(Limits::new(Arc::clone(&clock)).with_random(|| 0.0));
    let reader = || {
        let (job, http) = Draft::new(&source.url()).job();
        PageReader::new(job, http, Arc::clone(&limits), Arc::clone(&clock))
    };
    assert!(matches!(reader().next_page().await, Err(ReadError::RateLimited { .. })));
    let mut other = reader();
    assert!(matches!(other.next_page().await, Err(ReadError::RateLimited { .. })));
    assert_eq!((source.asked().len(), other.requests()), (1, 0));
    counting.sleep(Duration::from_mins(50)).await;
    assert!(other.next_page().await.unwrap().is_some());
    assert_eq!(counting.waits(), [3_000, 600]);
}

#[tokio::test]
async fn c11_bodies_that_speak_of_limits_wait_and_the_same_page_comes_again() {
    let budget = wait_from(body("error_message"), WaitUnit::Seconds, Some("reset in ([0-9]+) seconds"));
    let cases = [
        (
            Answer::text(r#"{"errors":[{"type":"RATE_LIMIT"}]}"#).header("x-ratelimit-remaining", "0"),
            "headers['x-ratelimit-remaining'] == '0'",
            None,
            1,
        ),
        (
            Answer::text(r#"{"ok":false,"error":"ratelimited"}"#).header("Retry-After", "30"),
            "response.error == 'ratelimited'",
            None,
            30,
        ),
        (
            Answer::text(r#"{"status_code":429,"error_message":"budget exhausted, reset in 16 seconds"}"#),
            "response.status_code == 429",
            Some(budget),
            16,
        ),
    ];
    for (limited, when, wait, expected) in cases {
        let first = Answer::json(&json!({"items": [{"id": 1}], "next": "b"}));
        let second = Answer::json(&json!({"items": [{"id": 2}]}));
        let source = Source::script([first, limited, second]).await;
        let clock = CountingClock::start();
        let walk = Draft::new(&source.url())
            .query("cursor", "{{ page.token }}")
            .pages(PageKind::Token(body("next")))
            .error(None, when, ErrorAction::RateLimited, wait)
            .read_on(&clock)
            .await;
        assert_eq!(walk.keys(), ["1", "2"]);
        assert_eq!(source.params("cursor"), ["-", "b", "b"]);
        assert_eq!(clock.waits(), [expected]);
    }
}

#[tokio::test]
async fn c15_a_429_in_the_middle_repeats_that_page_alone() {
    let pages = || {
        let page = |id: usize| json!({"items": [{"id": id}], "next": format!("t{id}"), "total": 4});
        let mut last = page(4);
        last["next"] = json!(null);
        [
            Answer::json(&page(1)),
            Answer::json(&page(2)),
            Answer::status(429).header("Retry-After", "1"),
            Answer::json(&page(3)),
            Answer::json(&last),
        ]
    };
    let source = Source::script(pages()).await;
    let draft = Draft::new(&source.url()).query("at", "{{ page.token }}");
    let walk = draft.pages(PageKind::Token(body("next"))).read().await;
    assert_eq!((walk.keys(), walk.requests), (vec!["1", "2", "3", "4"], 5));
    assert_eq!(source.params("at"), ["-", "t1", "t2", "t2", "t3"]);

    let source = Source::script(pages()).await;
    let draft = Draft::new(&source.url()).query("at", "{{ page.offset }}").total("total");
    assert_eq!(draft.pages(PageKind::Offset).read().await.keys(), ["1", "2", "3", "4"]);
    assert_eq!(source.params("at"), ["0", "1", "2", "2", "3"]);
}

#[tokio::test]
async fn every_page_takes_its_turn_in_the_quota() {
    let source = Source::start(|asked| {
        let from = asked.number("offset");
        Answer::json(&json!({"items": [{"id": from}], "total": 4}))
    })
    .await;
    let clock = CountingClock::start();
    let mut draft =
        Draft::new(&source.url()).query("offset", "{{ page.offset }}").pages(PageKind::Offset).total("total");
    draft.rate_limit = NonZeroU32::new(6).map(|requests| RateLimit::quota(requests, Duration::from_mins(1)));
    assert_eq!(draft.read_on(&clock).await.keys().len(), 4);
    assert_eq!(clock.waits(), [10, 10, 10]);
}
