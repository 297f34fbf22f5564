//! Failures: what is tried again, what is not, and that none of it looks like the end of the data.

use std::time::Duration;

use onlynew::{
    config::stream::{ErrorAction, PageKind, WaitRule},
    connector::{HttpOptions, ReadError},
};
use serde_json::json;

use crate::{
    connector_job::{CountingClock, Draft, body},
    support::source::{Answer, Source},
};

fn first() -> Answer {
    Answer::json(&json!({"items": [{"id": 1}, {"id": 2}], "next": "b"}))
}

fn draft(source: &Source) -> Draft {
    Draft::new(&source.url()).query("cursor", "{{ page.token }}").pages(PageKind::Token(body("next")))
}

#[tokio::test]
async fn c11_what_is_no_data_is_tried_again_and_then_fails() {
    let html = Answer::text("<!doctype html><title>Log in</title>").header("content-type", "text/html");
    for (answer, expected) in [
        (html, "Log in"),
        (Answer::text("<html>"), "a web page"),
        (Answer::text(""), "an empty body"),
        (Answer::text("{\"items\":[{\"id\":1}"), "not JSON"),
    ] {
        let source = Source::script([answer.clone()]).await;
        let clock = CountingClock::start();
        let walk = Draft::new(&source.url()).read_on(&clock).await;
        assert!(walk.failure().contains(expected), "{}", walk.failure());
        assert!(walk.failure().contains("tried 5 times"), "{}", walk.failure());
        assert_eq!((source.asked().len(), clock.waits()), (5, vec![1, 2, 4, 8]));

        let source = Source::script([answer, Answer::text(r#"{"items":[{"id":1}]}"#)]).await;
        assert_eq!(Draft::new(&source.url()).read().await.keys(), ["1"]);
    }
}

#[tokio::test]
async fn c11_a_missing_or_null_list_fails_at_once_and_says_where() {
    for text in [r#"{"data":null}"#, r#"{"error":"x"}"#] {
        let source = Source::script([Answer::text(text)]).await;
        let walk = Draft::new(&source.url()).records("$.data").read().await;
        let reason = walk.failure();
        for part in ["job `orders`", "page 1", "/items", "`$.data` is missing or null", text] {
            assert!(reason.contains(part), "{part}: {reason}");
        }
        assert_eq!(source.asked().len(), 1);
    }
}

#[tokio::test]
async fn c16_tries_used_up_are_a_failure_and_never_the_end() {
    let cut = Answer::Cut { body: br#"{"items":[]}"#.to_vec(), missing: 10 };
    for (answer, expected) in [
        (Answer::status(500), "500"),
        (Answer::status(502), "502"),
        (Answer::status(503), "503"),
        (Answer::status(408), "408"),
        (Answer::Hang, "in time"),
        (Answer::Close, "no answer"),
        (cut, "before message length"),
    ] {
        let source = Source::script([first(), answer]).await;
        let mut draft = draft(&source);
        draft.options = HttpOptions { total_timeout: Duration::from_millis(150), ..draft.options };
        let walk = draft.read().await;
        assert_eq!(walk.read_keys(), ["1", "2"]);
        let reason = walk.failure();
        assert!(reason.contains("page 2") && reason.contains(expected), "{expected}: {reason}");
        assert_eq!((walk.requests, source.asked().len()), (6, 6), "{expected}");
    }
}

#[tokio::test]
async fn c16_nobody_at_the_address_is_a_failure() {
    let gone = Source::script([first()]).await.url();
    for (url, expected) in [(gone.as_str(), "no connection"), ("http://nobody.invalid", "no connection")] {
        let walk = Draft::new(url).read().await;
        let reason = walk.failure();
        assert!(reason.contains(expected) && reason.contains("tried 5 times"), "{reason}");
        assert_eq!(walk.requests, 5);
    }
}

#[tokio::test]
async fn a_page_that_comes_after_all_goes_on_where_the_walk_stood() {
    let second = Answer::json(&json!({"items": [{"id": 3}]}));
    let source = Source::script([first(), Answer::status(500), Answer::Close, second]).await;
    assert_eq!(draft(&source).read().await.keys(), ["1", "2", "3"]);
    assert_eq!(source.params("cursor"), ["-", "b", "b", "b"]);
}

#[tokio::test]
async fn refusals_fail_at_once_with_advice() {
    for (status, expected) in [
        (401, "check the account's `auth`"),
        (403, "permissions"),
        (404, "`path`"),
        (400, "`query`"),
        (422, "`query`"),
        (304, "redirect"),
        (418, "would not help"),
    ] {
        let source = Source::script([Answer::status(status)]).await;
        let walk = Draft::new(&source.url()).read().await;
        let reason = walk.failure();
        assert!(reason.contains(expected) && reason.contains(&status.to_string()), "{reason}");
        assert_eq!(source.asked().len(), 1);
    }
}

#[tokio::test]
async fn the_rules_of_the_connector_come_first_and_in_order() {
    let ok = Answer::json(&json!({"items": [{"id": 1}]}));
    let rules = |source: &Source| {
        Draft::new(&source.url())
            .error(
                Some(404),
                "response.code == 'busy'",
                ErrorAction::Retry,
                Some(WaitRule::Fixed(Duration::from_secs(7))),
            )
            .error(Some(404), "", ErrorAction::Fail, None)
            .error(Some(500), "", ErrorAction::Fail, None)
    };
    let busy = || Answer::Whole { status: 404, headers: vec![], body: br#"{"code":"busy"}"#.to_vec() };
    let source = Source::script([busy(), ok.clone()]).await;
    let clock = CountingClock::start();
    assert_eq!(rules(&source).read_on(&clock).await.keys(), ["1"]);
    assert_eq!(clock.waits(), [7]);

    let source = Source::script([busy()]).await;
    assert!(rules(&source).read().await.failure().contains("tried 5 times"));

    for status in [404, 500] {
        let source = Source::script([Answer::status(status), ok.clone()]).await;
        assert!(rules(&source).read().await.failure().contains("a rule of `errors`"));
        assert_eq!(source.asked().len(), 1);
    }

    let source = Source::script([Answer::text("not json"), ok]).await;
    let draft = Draft::new(&source.url()).error(None, "response is none", ErrorAction::RateLimited, None);
    assert_eq!(draft.read().await.keys(), ["1"]);
}

#[tokio::test]
async fn a_wait_beyond_the_cap_is_not_cut_short() {
    let hour = Some(WaitRule::Fixed(Duration::from_secs(3_600)));
    for action in [ErrorAction::Retry, ErrorAction::RateLimited] {
        let source = Source::script([Answer::status(500)]).await;
        let clock = CountingClock::start();
        let rule = match &hour {
            Some(WaitRule::Fixed(wait)) => Some(WaitRule::Fixed(*wait)),
            _ => None,
        };
        let walk = Draft::new(&source.url()).error(Some(500), "", action, rule).read_on(&clock).await;
        assert!(matches!(walk.error, Some(ReadError::RateLimited { .. })), "{:?}", walk.error);
        assert!(clock.waits().is_empty());
    }
}
