//! Field cases about reading, told through the whole engine on both databases.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use onlynew::domain::run::RunStatus;
use serde_json::{Value, json};

use crate::{
    both,
    cli::terminate,
    support::{
        database::Database,
        rig::{Job, Rig, page_of, page_of_values},
        server::{Asked, Reply},
        source::{Answer, Source},
    },
};

const ROWS: [(u32, &str); 5] = [
    (1, "2026-09-21T10:00:00Z"),
    (2, "2026-09-21T10:00:01Z"),
    (3, "2026-09-21T10:00:01Z"),
    (4, "2026-09-21T10:00:02Z"),
    (5, "2026-09-21T10:00:02Z"),
];

const C04: [&str; 3] = [
    r#"{"items":[{"id":7,"updated_at":"2026-09-21T10:00:00Z","price":10.0,"tags":["a","b"],
        "img":"https://cdn.test/x?sig=1","views":5}],"next":null}"#,
    // Other spelling, another signature, another counter.
    r#"{"items":[{"views":6,"tags":["a","b"],"img":"https://cdn.test/x?sig=2","price":10,
        "updated_at":"2026-09-21T10:00:00Z","id":7}],"next":null}"#,
    // And another order of the list.
    r#"{"items":[{"views":7,"tags":["b","a"],"img":"https://cdn.test/x?sig=3","price":10,
        "updated_at":"2026-09-21T10:00:00Z","id":7}],"next":null}"#,
];

/// The same row three times; `expected` is how many events each sighting sends.
async fn c04(database: Database, changes: &str, expected: [u64; 3]) {
    let rig = Rig::new(database, Job { rest: changes, ..Job::default() }, |_| Reply::Hold).await;
    for (row, expected) in C04.into_iter().zip(expected) {
        rig.source.now_answers(move |_| Reply::Json(row.to_owned()));
        assert_eq!(rig.sync().await.report.counts.events, expected, "{row}");
        assert_eq!(rig.sync().await.report.counts.events, 0, "again: {row}");
    }
}

async fn c04_by_version_an_overlap_of_unchanged_rows_is_silent(database: Database) {
    c04(database, "", [1, 0, 0]).await;
}

async fn c04_by_content_what_always_differs_can_be_ignored(database: Database) {
    c04(database, "changes: {detect: content, ignore_fields: [img, views]}", [1, 0, 1]).await;
}

async fn c04_by_content_every_difference_is_a_change(database: Database) {
    c04(database, "changes: {detect: content}", [1, 1, 1]).await;
}

/// 1,300 rows, of which a page never holds more than 500.
fn c08(asked: &Asked) -> Reply {
    let offset: usize = asked.param("offset").parse().unwrap();
    let ids = (offset..1_300).take(500);
    let items: Vec<Value> = ids.map(|id| json!({"id": id, "updated_at": "2026-09-21T10:00:00Z"})).collect();
    Reply::Json(json!({"items": items}).to_string())
}

const C08_QUERY: &str = r#"{limit: 1000, offset: "{{ page.offset }}"}"#;

async fn c08_smaller_pages_than_asked_for_are_told_of_once(database: Database) {
    let job = Job { query: C08_QUERY, pagination: "{type: offset}", ..Job::default() };
    let rig = Rig::new(database, job, c08).await;
    rig.configure_baseline();
    rig.configure_every("1d");
    let running = rig.spawn(&["run"]);
    rig.source.wait_until(|asked| asked.len() == 4).await;
    terminate(&running);
    let told = String::from_utf8(running.wait_with_output().await.unwrap().stderr).unwrap();
    assert_eq!(told.matches("smaller pages than it is asked for").count(), 1, "{told}");
    assert!(told.contains("asked=1000") && told.contains("received=500"), "{told}");
}

async fn c08_a_server_that_serves_smaller_pages_than_asked_for(database: Database) {
    let job = |pagination| Job { query: C08_QUERY, pagination, ..Job::default() };
    let rig = Rig::new(database, job("{type: offset}"), c08).await;
    let synced = rig.sync().await;
    let counts = synced.report.counts;
    assert_eq!((synced.report.status, synced.delivered), (RunStatus::Ok, 1_300));
    assert_eq!((counts.records, counts.created, counts.unchanged), (1_300, 1_300, 0), "no row counts twice");
    let asked_since = |before: usize| -> Vec<String> {
        rig.source.asked().iter().skip(before).map(|asked| asked.param("offset").to_owned()).collect()
    };
    assert_eq!(asked_since(0), ["0", "499", "998", "1299"], "each page overlaps the one before by a row");

    rig.configure(job("{type: offset, shifts: false}"));
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.counts.unchanged, report.counts.events), (RunStatus::Ok, 1_300, 0));
    assert_eq!(asked_since(4), ["0", "500", "1000", "1300"], "where rows keep their places it need not");
}

const RULES: &str = r#"incremental: {field: updated_at}
      errors:
        - {when: "response.errors[0].type == 'RATE_LIMIT'", action: rate_limited, wait: {from: "header:X-Wait"}}
        - {when: "response.error == 'ratelimited'", action: rate_limited, wait: 3s}
        - {when: "response.status_code == 429", action: rate_limited, wait: {from: $.error_message, pattern: "in (\\d+) seconds"}}"#;

async fn c11_a_rate_limit_that_calls_itself_200_is_waited_for(database: Database) {
    let answers = [
        (json!({"errors": [{"type": "RATE_LIMIT"}]}), 7),
        (json!({"ok": false, "error": "ratelimited"}), 3),
        (json!({"status_code": 429, "error_message": "budget exhausted, reset in 16 seconds"}), 16),
    ];
    let job = Job { source: RULES, ..Job::default() };
    // Each of the three pages is refused once: a source that goes on refusing is waited for longer.
    let times = Arc::new(AtomicUsize::new(0));
    let bodies = answers.clone();
    let rig = Rig::new(database, job, move |asked| {
        let time = times.fetch_add(1, Ordering::SeqCst);
        match bodies.get(time / 2) {
            Some((body, _)) if time.is_multiple_of(2) => Reply::Status(
                200,
                vec![("content-type", "application/json".into()), ("x-wait", "7".into())],
                body.to_string(),
            ),
            _ => page_of(&ROWS, asked, 2),
        }
    })
    .await;
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.requests, report.counts.created), (RunStatus::Ok, 6, 5));
    let waits = rig.clock.waits.lock().unwrap().clone();
    for (_, seconds) in answers {
        let held = |wait: &&std::time::Duration| (seconds..=seconds * 5 / 4 + 1).contains(&wait.as_secs());
        assert!(waits.iter().any(|wait| held(&wait)), "{seconds} s in {waits:?}");
    }
}

async fn c11_what_is_not_data_fails_the_run_and_moves_nothing(database: Database) {
    let html = Reply::Status(
        200,
        vec![("content-type", "text/html".into())],
        "<html><form>log in</form></html>".into(),
    );
    let cases = [
        ("an HTML page", html, "web page", 5),
        ("no bytes at all", Reply::status(200), "empty", 5),
        ("a null list", Reply::Json(r#"{"items":null}"#.into()), "$.items", 1),
        ("another shape", Reply::Json(r#"{"rows":[]}"#.into()), "$.items", 1),
        ("garbage", Reply::Json(r#"{"items":[{"id""#.into()), "JSON", 5),
        ("a server error", Reply::status(500), "500", 5),
        ("no permission", Reply::status(403), "403", 1),
    ];
    let rig = Rig::new(database, Job::default(), |asked| page_of(&ROWS[..2], asked, 10)).await;
    let before = rig.sync().await.report;
    for (name, reply, told, requests) in cases {
        rig.source.now_answers(move |_| reply.clone());
        let report = rig.sync().await.report;
        assert_eq!(
            (report.status, report.requests),
            (RunStatus::Failed, requests),
            "{name}: {:?}",
            report.reason
        );
        assert!(report.reason.as_ref().unwrap().contains(told), "{name}: {:?}", report.reason);
        assert_eq!(report.watermark, before.watermark, "{name}");
    }
    rig.source.now_answers(|asked| page_of(&ROWS[..3], asked, 10));
    assert_eq!(rig.sync().await.report.counts.events, 1);
    assert_eq!(rig.sent_keys(), ["1", "2", "3"]);
}

async fn c15_a_429_in_the_middle_asks_for_the_same_page_again(database: Database) {
    let cursor = Job::default();
    let offset = Job {
        query: r#"{cursor: "{{ page.offset }}"}"#,
        pagination: "{type: offset, total_path: $.total, shifts: false}",
        ..Job::default()
    };
    let rows: Vec<Value> = (0..8).map(|id| json!({"id": id, "updated_at": "2026-09-21T10:00:00Z"})).collect();
    let rig = Rig::new(database, cursor, |_| Reply::Hold).await;
    for (job, pages) in [(cursor, ["", "2", "4", "4", "6"]), (offset, ["0", "2", "4", "4", "6"])] {
        rig.configure(job);
        let refused = Mutex::new(false);
        let rows = rows.clone();
        let before = rig.source.asked().len();
        rig.source.now_answers(move |asked| {
            let mut refused = refused.lock().unwrap();
            if asked.param("cursor") == "4" && !std::mem::replace(&mut *refused, true) {
                return Reply::Status(429, vec![("retry-after", "1".into())], String::new());
            }
            let Reply::Json(page) = page_of_values(
                &rows,
                &Asked {
                    query: [("cursor".to_owned(), asked.param("cursor").to_owned())].into(),
                    ..asked.clone()
                },
                2,
            ) else {
                panic!()
            };
            let mut page: Value = serde_json::from_str(&page).unwrap();
            page["total"] = json!(8);
            Reply::Json(page.to_string())
        });
        assert_eq!(rig.sync().await.report.status, RunStatus::Ok);
        let asked: Vec<_> =
            rig.source.asked()[before..].iter().map(|asked| asked.param("cursor").to_owned()).collect();
        assert_eq!(asked, pages);
    }
    assert_eq!(rig.sent_keys(), ["0", "1", "2", "3", "4", "5", "6", "7"], "each row once over both walks");
}

async fn c16_retries_used_up_are_not_the_end_of_the_data(database: Database) {
    let rig = Rig::new(database, Job::default(), |asked| match asked.param("cursor") {
        "" => page_of(&ROWS[..4], asked, 2),
        _ => Reply::status(500),
    })
    .await;
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.pages, report.counts.events), (RunStatus::Failed, 1, 2));
    assert!(report.reason.unwrap().contains("500"));
    assert!(!rig.has_watermark().await);
    assert_eq!(rig.sent_keys(), ["1", "2"], "what was read is sent");

    rig.source.now_answers(|asked| page_of(&ROWS[..4], asked, 2));
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.counts.events), (RunStatus::Ok, 2));
    assert_eq!(rig.sent_keys(), ["1", "2", "3", "4"]);
}

async fn c16_no_way_of_failing_is_the_end_of_the_data(database: Database) {
    let cut = Answer::Cut { body: br#"{"items":[]}"#.to_vec(), missing: 10 };
    let rig = Rig::new(database, Job::default(), |asked| page_of(&ROWS[..1], asked, 2)).await;
    let before = rig.sync().await.report.watermark;
    for (number, (name, answer, told)) in (1..).zip([
        ("the connection is reset", Answer::Close, "no answer"),
        ("the body is cut", cut, "before message length"),
        ("the server fails", Answer::status(502), "502"),
    ]) {
        let rows = move |ids: [u32; 2]| {
            let row = |id: u32| json!({"id": number * 10 + id, "updated_at": "2026-09-21T10:00:00Z"});
            ids.map(row)
        };
        let is_broken = Arc::new(AtomicBool::new(true));
        let broken = Arc::clone(&is_broken);
        let source = Source::start(move |asked| match asked.param("cursor") {
            None => Answer::json(&json!({"items": rows([1, 2]), "next": "2"})),
            Some(_) if broken.load(Ordering::SeqCst) => answer.clone(),
            Some(_) => Answer::json(&json!({"items": rows([3, 4]), "next": null})),
        })
        .await;
        rig.configure(Job::default());
        rig.read_from(&source.url());
        rig.keep().await;
        let report = rig.sync().await.report;
        assert_eq!((report.status, report.counts.events), (RunStatus::Failed, 2), "{name}");
        assert!(report.reason.as_ref().unwrap().contains(told), "{name}: {:?}", report.reason);
        assert_eq!(report.watermark, before, "{name}");

        is_broken.store(false, Ordering::SeqCst);
        let report = rig.sync().await.report;
        assert_eq!(
            (report.status, report.counts.created, report.counts.unchanged),
            (RunStatus::Ok, 2, 2),
            "{name}"
        );
    }
    rig.configure(Job::default());
    rig.read_from("http://nobody.invalid");
    rig.keep().await;
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.pages, report.watermark), (RunStatus::Failed, 0, before));
    assert!(report.reason.as_ref().unwrap().contains("no connection"), "{:?}", report.reason);
    assert_eq!(
        rig.sent_keys(),
        ["1", "11", "12", "13", "14", "21", "22", "23", "24", "31", "32", "33", "34"]
    );
}

/// A value that goes from up to down and up again, one state a run.
async fn c26(database: Database, changes: &str) {
    let state = Arc::new(Mutex::new(("up", "2026-09-21T10:00:00Z")));
    let shown = Arc::clone(&state);
    let rig = Rig::new(database, Job { rest: changes, ..Job::default() }, move |asked| {
        let (state, at) = *shown.lock().unwrap();
        page_of_values(&[json!({"id": 1, "updated_at": at, "state": state})], asked, 2)
    })
    .await;
    for (value, at) in
        [("up", "2026-09-21T10:00:00Z"), ("down", "2026-09-21T10:00:10Z"), ("up", "2026-09-21T10:00:20Z")]
    {
        *state.lock().unwrap() = (value, at);
        assert_eq!(rig.sync().await.report.counts.events, 1);
        assert_eq!(rig.sync().await.report.counts.events, 0);
    }
    let states: Vec<_> =
        rig.receiver.asked().iter().map(|asked| asked.json()["data"]["state"].clone()).collect();
    assert_eq!(states, ["up", "down", "up"]);
}

async fn c26_by_version_a_value_that_goes_back_is_sent_each_time(database: Database) {
    c26(database, "changes: {detect: version}").await;
}

async fn c26_by_content_a_value_that_goes_back_is_sent_each_time(database: Database) {
    c26(database, "changes: {detect: content}").await;
}

both!(
    c04_by_version_an_overlap_of_unchanged_rows_is_silent,
    c04_by_content_what_always_differs_can_be_ignored,
    c04_by_content_every_difference_is_a_change,
    c08_a_server_that_serves_smaller_pages_than_asked_for,
    c08_smaller_pages_than_asked_for_are_told_of_once,
    c11_a_rate_limit_that_calls_itself_200_is_waited_for,
    c11_what_is_not_data_fails_the_run_and_moves_nothing,
    c15_a_429_in_the_middle_asks_for_the_same_page_again,
    c16_retries_used_up_are_not_the_end_of_the_data,
    c16_no_way_of_failing_is_the_end_of_the_data,
    c26_by_version_a_value_that_goes_back_is_sent_each_time,
    c26_by_content_a_value_that_goes_back_is_sent_each_time,
);
