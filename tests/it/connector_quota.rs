//! What answers say about quotas, heeded before the next request; and two buckets for one request.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use onlynew::{
    config::{
        account::RateLimit,
        stream::{ErrorAction, PageKind, Place, WaitRule, WaitUnit},
        template::{Expression, Scope},
    },
    connector::ReadError,
};
use serde_json::json;

use crate::{
    connector_job::{CountingClock, Draft, START, body, wait_from},
    support::source::{Answer, Source},
};

const MINUTE: Duration = Duration::from_mins(1);

/// So many requests a minute.
fn quota(requests: u32) -> RateLimit {
    RateLimit::quota(NonZeroU32::new(requests).unwrap(), MINUTE)
}

/// A quota that nothing but the answers' words makes felt.
fn told() -> RateLimit {
    RateLimit { remaining: Some(Place::Header("x-left".into())), ..quota(60_000_000) }
}

fn reset(unit: WaitUnit) -> Arc<WaitRule> {
    Arc::new(wait_from(Place::Header("x-reset".into()), unit, None))
}

fn pause(text: &str) -> RateLimit {
    let pause = Expression::parse(text, Scope::Answer { inputs: &[] }).unwrap();
    RateLimit { pause: Some(Arc::new(pause)), ..quota(60_000_000) }
}

fn page(id: u32, last: u32) -> Answer {
    let next = (id < last).then_some(id + 1);
    Answer::json(
        &json!({"items": [{"id": id}], "next": next, "cost": {"asked": 100, "left": 40, "a_second": 50}}),
    )
}

fn draft(source: &Source, limit: RateLimit) -> Draft {
    let mut draft =
        Draft::new(&source.url()).query("cursor", "{{ page.token }}").pages(PageKind::Token(body("next")));
    draft.rate_limit = Some(limit);
    draft
}

#[tokio::test]
async fn an_empty_quota_is_waited_out_in_every_unit_before_the_next_request() {
    use WaitUnit::{EpochMs, EpochS, Iso8601, Seconds};
    // The source's clock is not ours: an hour behind.
    let date = "Mon, 21 Sep 2026 13:13:20 GMT";
    let cases = [
        (Seconds, "90", 90),
        (Seconds, "1.5", 2),
        (Seconds, "0", 1),
        (EpochS, "1789996490", 90),
        (EpochS, "1789996400", 1),
        (EpochS, "1789990000", 1),
        (EpochMs, "1789996490500", 91),
        (Iso8601, "2026-09-21T13:14:50Z", 90),
        // What makes no sense is a period of the quota: no reset is to be believed from a wrong unit.
        (Seconds, "1789996490", 60),
        (EpochS, "soon", 60),
        (EpochS, "-1", 1),
        (Iso8601, "", 60),
    ];
    for (unit, value, expected) in cases {
        let first = page(1, 2).header("Date", date).header("X-Left", "0").header("X-Reset", value);
        let source = Source::script([first, page(2, 2).header("X-Left", "59")]).await;
        let clock = CountingClock::start();
        let limit = RateLimit { reset: Some(reset(unit)), ..told() };
        assert_eq!(draft(&source, limit).read_on(&clock).await.keys(), ["1", "2"]);
        assert_eq!(clock.waits(), [expected], "{unit:?} {value}");
    }
}

#[tokio::test]
async fn a_quota_is_empty_at_zero_and_at_nothing_else() {
    for (left, expected) in [
        (Some("0"), vec![60]),
        (Some(" 0 "), vec![60]),
        (Some("0.5"), vec![60]),
        (Some("-3"), vec![60]),
        (Some("1"), vec![]),
        (Some("many"), vec![]),
        (Some(""), vec![]),
        (None, vec![]),
    ] {
        let first = left.map_or_else(|| page(1, 2), |left| page(1, 2).header("X-Left", left));
        let source = Source::script([first, page(2, 2)]).await;
        let clock = CountingClock::start();
        assert_eq!(draft(&source, told()).read_on(&clock).await.keys(), ["1", "2"]);
        assert_eq!(clock.waits(), expected, "{left:?}");
    }
    let source = Source::script([page(1, 2), page(2, 2)]).await;
    let clock = CountingClock::start();
    let in_body = RateLimit { remaining: Some(body("cost.left")), ..told() };
    draft(&source, in_body).read_on(&clock).await.keys();
    assert!(clock.waits().is_empty(), "40 are left");
}

#[tokio::test]
async fn an_empty_quota_beyond_the_cap_parks_the_run() {
    let source = Source::script([page(1, 2).header("X-Left", "0").header("X-Reset", "3600")]).await;
    let clock = CountingClock::start();
    let limit = RateLimit { reset: Some(reset(WaitUnit::Seconds)), ..told() };
    let walk = draft(&source, limit).read_on(&clock).await;
    assert_eq!(walk.read_keys(), ["1"]);
    let Some(ReadError::RateLimited { until, bucket, .. }) = &walk.error else { panic!("{:?}", walk.error) };
    assert_eq!((*until, bucket.as_str()), (START.plus(Duration::from_hours(1)), "acme"));
    assert_eq!((clock.waits().len(), source.asked().len()), (0, 1));
}

#[tokio::test]
async fn a_pause_is_counted_from_points_and_costs() {
    let cases = [
        ("(response.cost.asked - response.cost.left) / response.cost.a_second", vec![2]),
        ("headers['x-pause']", vec![7]),
        ("30 if status == 200 else 0", vec![30]),
        ("response.no.such.thing", vec![]),
        ("response.cost.left - response.cost.asked", vec![]),
    ];
    for (text, expected) in cases {
        let source = Source::script([page(1, 2).header("X-Pause", "7"), page(2, 2)]).await;
        let clock = CountingClock::start();
        assert_eq!(draft(&source, pause(text)).read_on(&clock).await.keys(), ["1", "2"]);
        assert_eq!(clock.waits(), expected, "{text}");
    }
    for text in ["'soon'", "true", "1e300", "response.cost"] {
        let source = Source::script([page(1, 2)]).await;
        let walk = draft(&source, pause(text)).read().await;
        assert!(walk.failure().contains("`pause` of the rate limit gave"), "{}", walk.failure());
    }
    let source = Source::script([page(1, 2)]).await;
    let walk = draft(&source, pause("response.cost.left / 0")).read().await;
    assert!(walk.failure().contains("`pause` of the rate limit"), "{}", walk.failure());
}

#[tokio::test]
async fn a_refusal_and_its_empty_quota_wait_for_the_longer_of_the_two() {
    let limited =
        Answer::status(429).header("Retry-After", "30").header("X-Left", "0").header("X-Reset", "45");
    let source = Source::script([limited, page(1, 1)]).await;
    let clock = CountingClock::start();
    let limit = RateLimit { reset: Some(reset(WaitUnit::Seconds)), ..told() };
    assert_eq!(draft(&source, limit).read_on(&clock).await.keys(), ["1"]);
    assert_eq!(clock.waits(), [45]);
}

#[tokio::test]
async fn a_stream_with_a_limit_of_its_own_passes_both_buckets() {
    let source = || Source::script((1..=4).map(|id| page(id, 4)).collect::<Vec<_>>());
    for (account, stream, expected) in [(6, 60, 30), (60, 6, 30), (20, 30, 9)] {
        let (source, clock) = (source().await, CountingClock::start());
        let mut draft = draft(&source, quota(account));
        draft.stream.rate_limit = Some(quota(stream));
        assert_eq!(draft.read_on(&clock).await.keys().len(), 4);
        assert_eq!(clock.waits().iter().sum::<u64>(), expected, "{account} and {stream}");
    }
    // What an answer says about the stream's quota shuts the stream's gate alone.
    let source = Source::script([page(1, 2).header("X-Left", "0"), page(2, 2)]).await;
    let clock = CountingClock::start();
    let mut draft = draft(&source, quota(60_000_000));
    draft.stream.rate_limit = Some(RateLimit { per: Duration::from_hours(1), ..told() });
    let walk = draft.read_on(&clock).await;
    let Some(ReadError::RateLimited { bucket, .. }) = &walk.error else { panic!("{:?}", walk.error) };
    assert_eq!(bucket, "acme/items");
}

#[tokio::test]
async fn c14_a_wait_that_only_the_connector_knows_grows_and_a_told_one_does_not() {
    let limited = || Answer::status(403);
    let source = Source::script([limited(), limited(), limited(), page(1, 1)]).await;
    let clock = CountingClock::start();
    let fixed = || Some(WaitRule::Fixed(MINUTE));
    let rules =
        |source: &Source| Draft::new(&source.url()).error(Some(403), "", ErrorAction::RateLimited, fixed());
    assert_eq!(rules(&source).read_on(&clock).await.keys(), ["1"]);
    assert_eq!(clock.waits(), [60, 120, 240]);

    let source = Source::script([limited()]).await;
    let clock = CountingClock::start();
    let walk = rules(&source).read_on(&clock).await;
    assert!(matches!(walk.error, Some(ReadError::RateLimited { .. })), "{:?}", walk.error);
    assert_eq!(clock.waits(), [60, 120, 240, 480, 900], "and half an hour in all is enough");

    // An answer that says less than the connector knows does not make the wait shorter.
    for (told, expected) in [("90", vec![90, 90]), ("30", vec![60, 120])] {
        let told = || limited().header("Retry-After", told);
        let source = Source::script([told(), told(), page(1, 1)]).await;
        let clock = CountingClock::start();
        assert_eq!(rules(&source).read_on(&clock).await.keys(), ["1"]);
        assert_eq!(clock.waits(), expected);
    }
}

#[tokio::test]
async fn an_answer_that_counts_as_empty_is_a_page_without_records() {
    let none = Answer::status(404);
    let source = Source::script([page(1, 2), none.clone()]).await;
    let rules =
        |source: &Source| draft(source, quota(60_000_000)).error(Some(404), "", ErrorAction::Empty, None);
    let walk = rules(&source).read().await;
    assert_eq!((walk.keys(), walk.pages.len()), (vec!["1"], 2));
    let source = Source::script([none]).await;
    let walk = rules(&source).read().await;
    assert_eq!((walk.keys().len(), walk.pages.len()), (0, 1));
}
