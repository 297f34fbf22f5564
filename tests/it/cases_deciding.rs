//! Field cases about what counts as a change, told through the whole engine on both databases.

use std::sync::atomic::{AtomicUsize, Ordering};

use onlynew::domain::run::{Counts, RunStatus};
use serde_json::{Value, json};

use crate::{
    both,
    support::{
        database::Database,
        rig::{Job, Rig, page_of_values},
        server::{Asked, Reply},
    },
};

const CONTENT: Job<'_> = Job {
    query: r#"{cursor: "{{ page.token }}"}"#,
    pagination: "{type: cursor, token_path: $.next}",
    source: "incremental: {field: updated_at}",
    rest: "changes: {detect: content}",
};

/// Pages as they are written, one after another, whatever they hold.
fn pages(asked: &Asked, pages: &[Value]) -> Reply {
    let number: usize = asked.param("cursor").parse().unwrap_or(0);
    let next = (number + 1 < pages.len()).then(|| (number + 1).to_string());
    Reply::Json(json!({"items": pages[number], "next": next}).to_string())
}

async fn serving(database: Database, job: Job<'_>, served: &[Value]) -> Rig {
    let rig = Rig::new(database, job, |_| Reply::Hold).await;
    serve(&rig, served);
    rig
}

fn serve(rig: &Rig, served: &[Value]) {
    let served = served.to_vec();
    rig.source.now_answers(move |asked| pages(asked, &served));
}

/// The names that were sent, in order.
fn names(rig: &Rig) -> Vec<Value> {
    rig.receiver.asked().iter().map(|asked| asked.json()["data"]["name"].clone()).collect()
}

fn row(at: Option<&str>, name: &str) -> Value {
    json!([{"id": 5, "updated_at": at.map(|at| format!("2026-09-21T{at}:00Z")), "name": name}])
}

async fn c25_a_key_that_is_not_unique_sends_one_change_a_run_and_is_told_of(database: Database) {
    let same = Some("10:00");
    let served = [row(same, "a"), row(same, "b"), row(same, "c"), row(same, "d")];
    let rig = serving(database, CONTENT, &served).await;
    let report = rig.sync().await.report;
    assert_eq!((report.counts.created, report.counts.updated, report.counts.conflicts), (1, 1, 2));
    assert_eq!((report.status, report.counts.records, report.counts.events), (RunStatus::Ok, 4, 2));
    let reason = report.reason.unwrap();
    assert!(reason.contains("undecided: 2;") && reason.contains("`5`"), "{reason}");
    assert!(reason.contains("`primary_key` is not unique"), "{reason}");
    assert_eq!(rig.database.number("(SELECT conflicts FROM run)").await, 2);
    assert_eq!(rig.database.texts("SELECT reason FROM run").await, [reason]);

    // The record is another one in every run, and still no more than one change of it goes out.
    let (_, line, errors) = rig.command(&["sync", "rows", "--json"]).await;
    assert_eq!((&line["updated"], &line["conflicts"], &line["unchanged"]), (&json!(1), &json!(3), &json!(0)));
    assert_eq!(errors.matches("is not unique").count(), 1, "{errors}");
    let (_, status, _) = rig.command(&["status", "--json"]).await;
    assert_eq!(status["jobs"][0]["last_run"]["counts"]["conflicts"], 3);
    assert_eq!(names(&rig), ["a", "b", "a"]);

    serve(&rig, &[row(same, "a")]);
    let (_, line, errors) = rig.command(&["sync", "rows", "--json"]).await;
    assert_eq!((&line["conflicts"], &line["reason"], errors.as_str()), (&Value::Null, &Value::Null, ""));
}

async fn c25_a_record_that_changes_twice_while_it_is_read_is_told_by_the_next_run(database: Database) {
    let rig = serving(database, CONTENT, &[row(None, "a")]).await;
    rig.sync().await;
    serve(&rig, &[row(None, "b"), row(None, "c")]);
    let counts = rig.sync().await.report.counts;
    assert_eq!((counts.updated, counts.conflicts), (1, 1));
    serve(&rig, &[row(None, "c"), row(None, "c")]);
    let counts = rig.sync().await.report.counts;
    assert_eq!((counts.updated, counts.conflicts, counts.unchanged), (1, 0, 1), "nothing is lost");
    assert_eq!(names(&rig), ["a", "b", "c"]);
}

async fn c25_a_page_whose_commit_failed_is_no_conflict_when_it_is_read_again(database: Database) {
    let rig = serving(database, CONTENT, &[row(None, "a")]).await;
    rig.sync().await;
    serve(&rig, &[row(None, "b"), json!([{"id": 6, "updated_at": null, "name": "x"}])]);
    rig.database.break_on("record", "UPDATE", "NEW.key = '6'").await;
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.counts.updated), (RunStatus::Failed, 1));
    rig.database.mend("record").await;
    let report = rig.sync().await.report;
    assert_eq!((report.counts.unchanged, report.counts.created, report.counts.conflicts), (1, 1, 0));
    assert_eq!(report.reason, None);
}

/// One page with two versions of a key, then one with the older again, then the higher one with another content;
/// `last` is what the last one is counted as.
async fn c25(database: Database, changes: &str, last: Counts, sent: &[&str]) {
    let (ten_one, ten_two) = (Some("10:01"), Some("10:02"));
    let both = |rows: [Value; 2]| Value::from(rows.map(|row| row[0].clone()).to_vec());
    let job = Job { rest: changes, ..CONTENT };
    let rig =
        serving(database, job, &[both([row(ten_two, "b"), row(ten_one, "a")]), row(ten_one, "a")]).await;
    let counts = rig.sync().await.report.counts;
    let expected = Counts { records: 3, created: 1, unchanged: 1, stale: 1, events: 1, ..Counts::default() };
    assert_eq!(counts, expected);
    serve(&rig, &[row(ten_two, "c")]);
    assert_eq!(rig.sync().await.report.counts, Counts { records: 1, ..last });
    // The same answers give the same decisions, however often they come.
    let counts = rig.sync().await.report.counts;
    assert_eq!(counts, Counts { records: 1, unchanged: 1, ..Counts::default() });
    serve(&rig, &[row(ten_one, "a")]);
    for _ in 0..2 {
        assert_eq!(rig.sync().await.report.counts, Counts { records: 1, stale: 1, ..Counts::default() });
    }
    assert_eq!(names(&rig), sent);
    assert_eq!(rig.database.number("(SELECT count(*) FROM record)").await, 1);
}

async fn c25_by_version_the_first_content_of_the_highest_version_stays(database: Database) {
    let last = Counts { unchanged: 1, ..Counts::default() };
    c25(database, "changes: {detect: version}", last, &["b"]).await;
}

async fn c25_by_content_another_content_of_the_highest_version_is_a_change(database: Database) {
    let last = Counts { updated: 1, events: 1, ..Counts::default() };
    c25(database, "changes: {detect: content}", last, &["b", "c"]).await;
}

const ORDER: &str = r#"[{"id":9,"updated_at":"2026-09-21T10:00:00Z","items":[{"sku":"a","quantity":1}]}]"#;

/// A quantity changes and the version does not; returns the kinds of event that went out.
async fn c05(database: Database, changes: &str) -> (Rig, Vec<String>) {
    let order: Value = serde_json::from_str(ORDER).unwrap();
    let rig = serving(database, Job { rest: changes, ..CONTENT }, &[order]).await;
    rig.sync().await;
    serve(&rig, &[serde_json::from_str(&ORDER.replace("\"quantity\":1", "\"quantity\":2")).unwrap()]);
    rig.sync().await;
    rig.sync().await;
    let kinds = rig.sent().into_iter().map(|(_, kind)| kind).collect();
    (rig, kinds)
}

async fn c05_by_version_a_change_without_a_new_version_is_not_seen(database: Database) {
    assert_eq!(c05(database, "").await.1, ["record.created"]);
}

async fn c05_by_content_a_change_without_a_new_version_is_sent_once(database: Database) {
    let (rig, kinds) = c05(database, "changes: {detect: content}").await;
    assert_eq!(kinds, ["record.created", "record.updated"]);
    assert_eq!(rig.receiver.asked()[1].json()["data"]["items"][0]["quantity"], 2);
}

async fn c05_either_way_a_change_without_a_new_version_is_sent_once(database: Database) {
    assert_eq!(c05(database, "changes: {detect: either}").await.1, ["record.created", "record.updated"]);
}

async fn c05_outside_the_window_a_change_without_a_new_version_is_not_met(database: Database) {
    let edited = AtomicUsize::new(0);
    let job = Job { rest: "changes: {detect: content}\n    window: {lookback: 60s}", ..Job::default() };
    let rig = Rig::new(database, job, move |asked| {
        let name = if edited.fetch_add(1, Ordering::SeqCst) == 0 { "a" } else { "b" };
        let items = [
            json!({"id": 1, "updated_at": "2026-09-21T10:00:00Z", "name": name}),
            json!({"id": 2, "updated_at": "2026-09-21T10:02:00Z"}),
        ];
        page_of_values(&items, asked, 10)
    })
    .await;
    assert_eq!(rig.sync().await.report.counts.events, 2);
    let counts = rig.sync().await.report.counts;
    assert_eq!((counts.records, counts.events), (1, 0), "the source is not asked for it any more");
}

async fn c27_nothing_that_was_seen_is_forgotten(database: Database) {
    let rig = serving(database, CONTENT, &[]).await;
    let ids = |run: u32| (run * 4..run * 4 + 4).map(|id| json!({"id": id})).collect::<Vec<_>>();
    let mut listed = Vec::new();
    for run in 0..4 {
        listed.extend(ids(run));
        serve(&rig, &[Value::from(listed.clone())]);
        assert_eq!(rig.sync().await.report.counts.events, 4, "run {run}");
    }
    let forty_days = 40_i64 * 86_400 * 1_000_000;
    rig.database
        .tamper(&format!(
            "UPDATE record SET first_seen_at = first_seen_at - {forty_days}, changed_at = changed_at - {forty_days},
                answered_at = answered_at - {forty_days}"
        ))
        .await;
    serve(&rig, &[Value::from(ids(0))]);
    let counts = rig.sync().await.report.counts;
    assert_eq!((counts.unchanged, counts.events), (4, 0), "last seen 40 days ago");
    assert_eq!(rig.database.number("(SELECT count(*) FROM record)").await, 16);
}

/// The case speaks of 100,000 rows; so many fewer tell the same and do not hold the suite up.
const SHARED: usize = 10_000;
const A_PAGE: usize = 1_000;

async fn c27_rows_that_share_one_version_are_rows_of_the_store_and_nothing_else(database: Database) {
    let at = "2026-09-21T10:00:00Z";
    let rig = Rig::new(database, Job::default(), move |asked| {
        let from: usize = asked.param("cursor").parse().unwrap_or(0);
        let items: Vec<Value> = (from..from + A_PAGE).map(|id| json!({"id": id, "updated_at": at})).collect();
        let next = (from + A_PAGE < SHARED).then(|| (from + A_PAGE).to_string());
        Reply::Json(json!({"items": items, "next": next}).to_string())
    })
    .await;
    rig.configure_baseline();
    let report = rig.sync().await.report;
    assert_eq!((report.counts.created, report.pages), (SHARED as u64, (SHARED / A_PAGE) as u64));
    let report = rig.sync().await.report;
    assert_eq!((report.counts.unchanged, report.counts.events), (SHARED as u64, 0));
    assert_eq!(rig.sync().await.report.watermark, Some(json!(at)));
    let tables = "(SELECT count(*) FROM record) || ' ' || (SELECT count(*) FROM progress) || ' ' || \
                  (SELECT count(*) FROM run) || ' ' || (SELECT count(*) FROM event)";
    assert_eq!(rig.database.texts(&format!("SELECT {tables}")).await, [format!("{SHARED} 1 3 0")]);
}

both!(
    c05_by_version_a_change_without_a_new_version_is_not_seen,
    c05_by_content_a_change_without_a_new_version_is_sent_once,
    c05_either_way_a_change_without_a_new_version_is_sent_once,
    c05_outside_the_window_a_change_without_a_new_version_is_not_met,
    c25_a_key_that_is_not_unique_sends_one_change_a_run_and_is_told_of,
    c25_a_record_that_changes_twice_while_it_is_read_is_told_by_the_next_run,
    c25_a_page_whose_commit_failed_is_no_conflict_when_it_is_read_again,
    c25_by_version_the_first_content_of_the_highest_version_stays,
    c25_by_content_another_content_of_the_highest_version_is_a_change,
    c27_nothing_that_was_seen_is_forgotten,
    c27_rows_that_share_one_version_are_rows_of_the_store_and_nothing_else,
);
