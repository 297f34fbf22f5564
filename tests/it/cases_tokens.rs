//! Streams that go on from what the source gave: sync tokens, delta links, and answers that have not changed.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use onlynew::domain::{clock::Clock, run::RunStatus};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    both,
    support::{
        database::Database,
        rig::{Job, Rig},
        server::{Asked, Reply},
    },
};

const BY_TOKEN: Job<'_> = Job {
    query: r#"{syncToken: "{{ window.token }}", cursor: "{{ page.token }}"}"#,
    pagination: "{type: cursor, token_path: $.next}",
    source: "incremental: {state: token, token_path: $.sync, field: updated_at}",
    rest: "",
};

/// A source of changes: a token is how many of them its holder has been told of.
#[derive(Clone, Default)]
struct Feed {
    changes: Arc<Mutex<Vec<Value>>>,
    /// Tokens below this one are forgotten.
    forgotten: Arc<Mutex<usize>>,
}

impl Feed {
    fn add(&self, id: u32, second: u32) {
        let at = format!("2026-09-21T10:00:{second:02}Z");
        self.changes.lock().unwrap().push(json!({"id": id, "updated_at": at}));
    }

    /// Two changes a page; the last page holds the next token.
    fn answer(&self, asked: &Asked) -> Reply {
        let changes = self.changes.lock().unwrap();
        let told: usize = asked.param("syncToken").parse().unwrap_or(0);
        if asked.query.contains_key("syncToken") && told < *self.forgotten.lock().unwrap() {
            return Reply::status(410);
        }
        let start = told + asked.param("cursor").parse().unwrap_or(0);
        let items: Vec<_> = changes.iter().skip(start).take(2).collect();
        let page = if start + 2 < changes.len() {
            json!({"items": items, "next": (start + 2 - told).to_string()})
        } else {
            json!({"items": items, "sync": changes.len().to_string()})
        };
        Reply::Json(page.to_string())
    }

    async fn rig(&self, database: Database, job: Job<'_>) -> Rig {
        let feed = self.clone();
        Rig::new(database, job, move |asked| feed.answer(asked)).await
    }
}

/// What the requests of one more run, which must end well, say in a parameter.
async fn next_run_says(rig: &Rig, name: &str) -> Vec<String> {
    let before = rig.source.asked().len();
    let report = rig.sync().await.report;
    assert_eq!(report.status, RunStatus::Ok, "{:?}", report.reason);
    rig.source.asked()[before..].iter().map(|asked| asked.param(name).to_owned()).collect()
}

async fn a_run_goes_on_from_the_token_of_the_run_before(database: Database) {
    let feed = Feed::default();
    (1..=3).for_each(|id| feed.add(id, id));
    let rig = feed.rig(database, BY_TOKEN).await;
    assert_eq!(next_run_says(&rig, "syncToken").await, ["", ""], "everything, in two pages");
    feed.add(1, 9);
    assert_eq!(next_run_says(&rig, "syncToken").await, ["3"]);
    assert_eq!(next_run_says(&rig, "syncToken").await, ["4"]);
    let sent = rig.sent();
    assert_eq!(sent.len(), 4);
    assert!(sent.contains(&("1".into(), "record.updated".into())), "{sent:?}");
    assert!(!rig.has_watermark().await, "versions say nothing of what is complete here");
}

async fn a_run_that_fails_keeps_the_token_before_it(database: Database) {
    let feed = Feed::default();
    feed.add(1, 1);
    let rig = feed.rig(database, BY_TOKEN).await;
    rig.sync().await;
    (2..=5).for_each(|id| feed.add(id, id));
    rig.source.now_answers({
        let feed = feed.clone();
        move |asked| if asked.param("cursor").is_empty() { feed.answer(asked) } else { Reply::status(403) }
    });
    assert_eq!(rig.sync().await.report.status, RunStatus::Failed);
    rig.source.now_answers(move |asked| feed.answer(asked));
    assert_eq!(next_run_says(&rig, "syncToken").await, ["1", "1"]);
    assert_eq!(rig.sent_keys(), ["1", "2", "3", "4", "5"]);
}

async fn a_forgotten_token_means_a_new_beginning(database: Database) {
    let feed = Feed::default();
    (1..=3).for_each(|id| feed.add(id, id));
    let rig = feed.rig(database, BY_TOKEN).await;
    rig.sync().await;
    feed.add(4, 4);
    *feed.forgotten.lock().unwrap() = 4;
    assert_eq!(next_run_says(&rig, "syncToken").await, ["3", "", ""], "410, then everything");
    assert_eq!(rig.sent_keys(), ["1", "2", "3", "4"], "the store absorbs the repeats");
    assert_eq!(next_run_says(&rig, "syncToken").await, ["4"]);
}

async fn an_answer_may_say_that_the_token_is_forgotten(database: Database) {
    let source = "incremental: {state: token, token_path: $.sync}\n      \
                  errors: [{status: 400, action: reset_token}]";
    let feed = Feed::default();
    feed.add(1, 1);
    let rig = feed.rig(database, Job { source, ..BY_TOKEN }).await;
    rig.sync().await;
    rig.source.now_answers({
        let feed = feed.clone();
        move |asked| {
            if asked.query.contains_key("syncToken") { Reply::status(400) } else { feed.answer(asked) }
        }
    });
    assert_eq!(next_run_says(&rig, "syncToken").await, ["1", ""]);
    rig.source.now_answers(|_| Reply::status(400));
    let report = rig.sync().await.report;
    assert_eq!(
        report.status,
        RunStatus::Failed,
        "a source that forgets nothing at all is not asked for ever"
    );
    assert_eq!(rig.sent_keys(), ["1"]);
}

async fn a_token_older_than_its_retention_is_not_asked_with(database: Database) {
    let source = "incremental: {state: token, token_path: $.sync, retention: 1h}";
    let feed = Feed::default();
    feed.add(1, 1);
    let rig = feed.rig(database, Job { source, ..BY_TOKEN }).await;
    rig.sync().await;
    assert_eq!(next_run_says(&rig, "syncToken").await, ["1"]);
    rig.clock.sleep(Duration::from_hours(1)).await;
    assert_eq!(next_run_says(&rig, "syncToken").await, [""]);
    assert_eq!(rig.sent_keys(), ["1"]);
}

async fn a_token_of_another_listing_is_not_used(database: Database) {
    let feed = Feed::default();
    feed.add(1, 1);
    let rig = feed.rig(database, BY_TOKEN).await;
    rig.sync().await;
    let query = r#"{syncToken: "{{ window.token }}", cursor: "{{ page.token }}", calendar: other}"#;
    rig.configure(Job { query, ..BY_TOKEN });
    assert_eq!(next_run_says(&rig, "syncToken").await, [""]);
}

async fn a_last_page_without_a_token_fails_the_run(database: Database) {
    let rig = Rig::new(database, BY_TOKEN, |_| Reply::Json(r#"{"items": []}"#.into())).await;
    let report = rig.sync().await.report;
    assert_eq!(report.status, RunStatus::Failed);
    assert!(report.reason.unwrap().contains("`token_path`"));
}

async fn a_delta_link_is_the_first_page_of_the_next_run(database: Database) {
    let source = "incremental: {state: url, token_path: $.delta, field: updated_at}";
    let job =
        Job { query: "{top: 2}", pagination: "{type: next_url, next_url_path: $.next}", source, rest: "" };
    let rig = Rig::new(database, job, |asked| {
        let page = match (asked.param("skip"), asked.param("delta")) {
            ("", "") => {
                json!({"items": [{"id": 1, "updated_at": "2026-09-21T10:00:01Z"}], "next": "/rows?skip=1"})
            }
            ("1", _) => {
                json!({"items": [{"id": 2, "updated_at": "2026-09-21T10:00:02Z"}], "delta": "/rows?delta=a"})
            }
            (_, "a") => {
                json!({"items": [{"id": 2, "updated_at": "2026-09-21T10:00:03Z"}], "delta": "/rows?delta=b"})
            }
            (_, token) => json!({"items": [], "delta": format!("/rows?delta={token}")}),
        };
        Reply::Json(page.to_string())
    })
    .await;
    assert_eq!(next_run_says(&rig, "delta").await, ["", ""]);
    assert_eq!(next_run_says(&rig, "delta").await, ["a"]);
    assert_eq!(next_run_says(&rig, "delta").await, ["b"]);
    assert_eq!(rig.sent_keys(), ["1", "2", "2"]);
}

async fn a_delta_link_that_leads_away_is_not_followed(database: Database) {
    let source = "incremental: {state: url, token_path: $.delta}";
    let job = Job { query: "{}", pagination: "{type: none}", source, rest: "" };
    let page = r#"{"items": [{"id": 1}], "delta": "https://elsewhere.example/rows"}"#;
    let rig = Rig::new(database, job, move |_| Reply::Json(page.into())).await;
    assert_eq!(rig.sync().await.report.status, RunStatus::Ok);
    let report = rig.sync().await.report;
    assert_eq!((report.status, rig.source.asked().len()), (RunStatus::Failed, 1));
}

const WITH_START: &str = "incremental: {state: token, token_path: $.sync, field: updated_at, \
                          token_start: {path: /start, query: {first: 'yes'}, token_path: $.startToken}}";

async fn a_first_token_is_asked_for_where_the_source_lists_nothing(database: Database) {
    let feed = Feed::default();
    feed.add(1, 1);
    let is_broken = Arc::new(AtomicBool::new(true));
    let rig = Rig::new(database, Job { source: WITH_START, ..BY_TOKEN }, {
        let (feed, is_broken) = (feed.clone(), Arc::clone(&is_broken));
        move |asked| {
            if asked.param("first") == "yes" {
                let token = feed.changes.lock().unwrap().len().to_string();
                return Reply::Json(json!({"startToken": token}).to_string());
            }
            if is_broken.load(Ordering::SeqCst) { Reply::status(403) } else { feed.answer(asked) }
        }
    })
    .await;
    assert_eq!(rig.sync().await.report.status, RunStatus::Failed, "it has the token and no page");
    feed.add(2, 2);
    is_broken.store(false, Ordering::SeqCst);
    assert_eq!(next_run_says(&rig, "syncToken").await, ["1"], "the first one: a second would pass over 2");
    assert_eq!(rig.sent_keys(), ["2"]);

    *feed.forgotten.lock().unwrap() = 5;
    (3..=5).for_each(|id| feed.add(id, id));
    let report = rig.sync().await.report;
    assert_eq!(report.status, RunStatus::Failed);
    assert!(report.reason.unwrap().contains("may be missing"), "a gap is told of");
    feed.add(6, 6);
    assert_eq!(next_run_says(&rig, "syncToken").await, ["5"]);
    assert_eq!(rig.sent_keys(), ["2", "6"]);
}

async fn a_first_token_is_the_baseline_of_what_comes_after_it(database: Database) {
    let feed = Feed::default();
    feed.add(1, 1);
    let rig = Rig::new(database, Job { source: WITH_START, ..BY_TOKEN }, {
        let feed = feed.clone();
        move |asked| match asked.param("first") {
            "yes" => Reply::Json(json!({"startToken": "1"}).to_string()),
            _ => feed.answer(asked),
        }
    })
    .await;
    rig.configure_baseline();
    // It comes after the token and before the first page.
    feed.add(2, 2);
    assert_eq!(next_run_says(&rig, "syncToken").await, ["", "1"]);
    assert_eq!(rig.sent_keys(), ["2"], "what the token does not know of yet is new");
}

async fn a_record_that_changes_twice_in_a_feed_is_told_of_twice(database: Database) {
    let source = "incremental: {state: token, token_path: $.sync}";
    let pages = |values: [&'static str; 2]| {
        move |asked: &Asked| {
            let (value, next) = match asked.param("cursor") {
                "" => (values[0], json!({"next": "2"})),
                _ => (values[1], json!({"sync": "1"})),
            };
            let mut page = next;
            page["items"] = json!([{"id": 1, "value": value}]);
            Reply::Json(page.to_string())
        }
    };
    let rig = Rig::new(database, Job { source, ..BY_TOKEN }, pages(["a", "a"])).await;
    rig.sync().await;
    rig.source.now_answers(pages(["b", "c"]));
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.counts.updated, report.reason), (RunStatus::Ok, 2, None));
    let values: Vec<_> =
        rig.receiver.asked().iter().map(|asked| asked.json()["data"]["value"].clone()).collect();
    assert_eq!(values, ["a", "b", "c"]);
}

async fn a_page_token_that_died_costs_no_sync_token(database: Database) {
    let feed = Feed::default();
    feed.add(1, 1);
    let rig = feed.rig(database, BY_TOKEN).await;
    rig.sync().await;
    (2..=5).for_each(|id| feed.add(id, id));
    let died = AtomicBool::new(false);
    rig.source.now_answers({
        let feed = feed.clone();
        move |asked| {
            let dies = !asked.param("cursor").is_empty() && !died.swap(true, Ordering::SeqCst);
            if dies { Reply::status(410) } else { feed.answer(asked) }
        }
    });
    assert_eq!(next_run_says(&rig, "syncToken").await, ["1", "1", "1", "1"], "from the first page again");
    assert_eq!(rig.sent_keys(), ["1", "2", "3", "4", "5"]);
}

async fn what_a_new_beginning_cannot_tell_is_said(database: Database) {
    let source = "incremental: {state: token, token_path: $.sync, field: updated_at}\n      \
                  deleted_when: record.gone";
    let feed = Feed::default();
    feed.add(1, 1);
    let rig = feed.rig(database, Job { source, ..BY_TOKEN }).await;
    rig.sync().await;
    *feed.forgotten.lock().unwrap() = 2;
    let report = rig.sync().await.report;
    assert_eq!(report.status, RunStatus::Ok);
    assert!(report.reason.unwrap().contains("what was deleted"));
}

async fn a_run_of_a_token_stream_goes_on_at_its_page(database: Database) {
    let feed = Feed::default();
    (1..=5).for_each(|id| feed.add(id, id));
    let pagination = "{type: cursor, token_path: $.next, token_ttl: 10m}";
    let rig = feed.rig(database, Job { pagination, ..BY_TOKEN }).await;
    rig.source.now_answers({
        let feed = feed.clone();
        move |asked| if asked.param("cursor") == "4" { Reply::Hold } else { feed.answer(asked) }
    });
    let mut killed = rig.spawn(&["sync", "rows"]);
    rig.source.wait_until(|asked| asked.len() == 3).await;
    killed.kill().await.unwrap();
    rig.leases_run_out().await;
    rig.source.now_answers(move |asked| feed.answer(asked));
    assert_eq!(next_run_says(&rig, "cursor").await, ["4"]);
    assert_eq!(rig.sent_keys(), ["1", "2", "3", "4", "5"]);
    assert_eq!(next_run_says(&rig, "syncToken").await, ["5"]);
}

/// A source that answers 304 to the validator of what it would answer.
fn tagged(rows: &Mutex<Vec<u32>>, asked: &Asked) -> Reply {
    let rows = rows.lock().unwrap();
    let etag = format!("\"{rows:?}\"");
    if asked.header("if-none-match") == etag {
        return Reply::Status(304, vec![("etag", etag)], String::new());
    }
    let items: Vec<_> =
        rows.iter().map(|id| json!({"id": id, "updated_at": format!("2026-09-21T10:00:0{id}Z")})).collect();
    Reply::Status(200, vec![("etag", etag)], json!({"items": items}).to_string())
}

async fn validators(rig: &Rig) -> Vec<String> {
    let report = rig.sync().await.report;
    assert_eq!(report.status, RunStatus::Ok, "{:?}", report.reason);
    rig.source.asked().iter().map(|asked| asked.header("if-none-match").to_owned()).collect()
}

async fn with_validators(database: Database) -> (Rig, Arc<Mutex<Vec<u32>>>) {
    let rows = Arc::new(Mutex::new(vec![1, 2]));
    let job = Job {
        pagination: "{type: link_header}",
        query: r#"{since: "{{ window.start }}"}"#,
        ..Job::default()
    };
    let rig = Rig::new(database, job, {
        let rows = Arc::clone(&rows);
        move |asked| tagged(&rows, asked)
    })
    .await;
    rig.rewrite("request: {path", "request: {conditional: true, path");
    (rig, rows)
}

async fn an_answer_that_has_not_changed_is_not_read_again(database: Database) {
    let (rig, rows) = with_validators(database).await;
    // The lower bound moves with the first run: it is another listing then.
    assert_eq!(validators(&rig).await, ["",][..]);
    assert_eq!(validators(&rig).await, ["", ""]);
    rig.database.tamper("UPDATE progress SET complete_through = 0").await;
    assert_eq!(validators(&rig).await[2], "\"[1, 2]\"");
    assert_eq!(validators(&rig).await[3], "\"[1, 2]\"", "the validator of the answer before counts on");
    let through = rig.database.number("(SELECT complete_through FROM progress)").await;
    assert!(through > 0, "a run that finds nothing new is complete");
    rows.lock().unwrap().push(3);
    assert_eq!(validators(&rig).await[4], "\"[1, 2]\"");
    assert_eq!(rig.sent_keys(), ["1", "2", "3"]);
}

async fn a_listing_that_was_read_in_part_is_not_taken_for_the_one_before(database: Database) {
    let (rig, rows) = with_validators(database).await;
    for _ in 0..2 {
        validators(&rig).await;
    }
    // It grows by a page, which fails, and goes back to what it was.
    rig.source.now_answers(|asked| {
        if asked.param("page") == "2" {
            return Reply::status(403);
        }
        let next = "</rows?page=2>; rel=\"next\"".to_owned();
        let page = json!({"items": [{"id": 1, "updated_at": "2026-09-21T10:00:05Z"}]});
        Reply::Status(200, vec![("link", next)], page.to_string())
    });
    assert_eq!(rig.sync().await.report.status, RunStatus::Failed);
    rig.source.now_answers(move |asked| tagged(&rows, asked));
    assert_eq!(validators(&rig).await.last().unwrap(), "", "what is stored is not what it was then");
}

async fn a_last_page_that_was_read_ends_the_run_also_where_the_process_stops(database: Database) {
    let stop = CancellationToken::new();
    let rig = Rig::new(database, Job::default(), {
        let stop = stop.clone();
        move |_| {
            stop.cancel();
            Reply::Json(json!({"items": [{"id": 1, "updated_at": "2026-09-21T10:00:05Z"}]}).to_string())
        }
    })
    .await;
    let app = rig.real_time_app().await;
    let job = Arc::clone(&app.config.jobs["rows"]);
    let report = app.sync(&job, &stop).await.unwrap().report;
    assert_eq!((report.status, report.reason), (RunStatus::Ok, None));
}

async fn a_listing_of_several_pages_is_read_as_a_whole(database: Database) {
    let rig = Rig::new(database, Job::default(), |asked| {
        let (id, next) = if asked.param("cursor").is_empty() { (1, Some("2")) } else { (2, None) };
        let page = json!({"items": [{"id": id, "updated_at": "2026-09-21T10:00:00Z"}], "next": next});
        Reply::Status(200, vec![("etag", "\"same\"".into())], page.to_string())
    })
    .await;
    rig.rewrite("request: {path", "request: {conditional: true, path");
    for _ in 0..3 {
        assert!(validators(&rig).await.iter().all(String::is_empty), "page 1 says nothing of page 2");
    }
    assert_eq!(rig.source.asked().len(), 6);
}

async fn other_rules_for_the_same_answer_read_it_again(database: Database) {
    let (rig, _) = with_validators(database).await;
    for _ in 0..3 {
        validators(&rig).await;
    }
    rig.rewrite("primary_key: [id]", "primary_key: [id, updated_at]");
    rig.keep().await;
    assert_eq!(validators(&rig).await[3], "");
    assert_eq!(rig.sent_keys().len(), 4);
}

async fn an_unasked_304_is_no_answer(database: Database) {
    let (rig, _) = with_validators(database).await;
    rig.source.now_answers(|_| Reply::status(304));
    let report = rig.sync().await.report;
    assert_eq!(report.status, RunStatus::Failed);
    assert!(report.reason.unwrap().contains("304"));
}

both!(
    a_run_goes_on_from_the_token_of_the_run_before,
    a_run_that_fails_keeps_the_token_before_it,
    a_forgotten_token_means_a_new_beginning,
    an_answer_may_say_that_the_token_is_forgotten,
    a_token_older_than_its_retention_is_not_asked_with,
    a_token_of_another_listing_is_not_used,
    a_last_page_without_a_token_fails_the_run,
    a_delta_link_is_the_first_page_of_the_next_run,
    a_delta_link_that_leads_away_is_not_followed,
    a_first_token_is_asked_for_where_the_source_lists_nothing,
    a_first_token_is_the_baseline_of_what_comes_after_it,
    a_record_that_changes_twice_in_a_feed_is_told_of_twice,
    a_page_token_that_died_costs_no_sync_token,
    what_a_new_beginning_cannot_tell_is_said,
    a_listing_that_was_read_in_part_is_not_taken_for_the_one_before,
    a_last_page_that_was_read_ends_the_run_also_where_the_process_stops,
    a_run_of_a_token_stream_goes_on_at_its_page,
    an_answer_that_has_not_changed_is_not_read_again,
    a_listing_of_several_pages_is_read_as_a_whole,
    other_rules_for_the_same_answer_read_it_again,
    an_unasked_304_is_no_answer,
);
