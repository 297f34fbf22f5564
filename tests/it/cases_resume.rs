//! Runs that go on where one before them was cut off, walks that begin anew, and windows that are asked for
//! in halves because the source does not give all of them at once.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use onlynew::domain::{clock::Clock, instant::Instant, run::RunStatus};
use serde_json::{Value, json};

use crate::{
    both,
    support::{
        database::Database,
        rig::{Job, Rig},
        server::{Asked, Reply},
    },
};

/// Five rows a second apart, oldest first.
const RISING: [u32; 5] = [1, 2, 3, 4, 5];

fn row(id: u32) -> Value {
    json!({"id": id, "updated_at": at(id)})
}

fn at(id: u32) -> String {
    format!("2026-09-21T10:00:0{id}Z")
}

/// The rows from `since` on in the order given, one a page; the next page's token is the number of rows read.
fn listed(order: &[u32], asked: &Asked) -> Reply {
    let since: Option<Instant> = asked.query.get("since").map(|since| since.parse().unwrap());
    let rows: Vec<u32> = order
        .iter()
        .copied()
        .filter(|id| since.is_none_or(|since| at(*id).parse::<Instant>().unwrap() >= since))
        .collect();
    let start: usize = asked.param("cursor").parse().unwrap_or(0);
    let next = (start + 1 < rows.len()).then(|| (start + 1).to_string());
    let items: Vec<_> = rows.iter().skip(start).take(1).map(|id| row(*id)).collect();
    Reply::Json(json!({"items": items, "next": next}).to_string())
}

/// A rig whose process was killed while it waited for the page behind `cursor`, and whose source answers
/// again.
async fn killed_at(database: Database, job: Job<'_>, order: &'static [u32], cursor: &'static str) -> Rig {
    let hold = move |asked: &Asked| match asked.param("cursor") {
        held if held == cursor => Reply::Hold,
        _ => listed(order, asked),
    };
    let rig = Rig::new(database, job, hold).await;
    let mut killed = rig.spawn(&["sync", "rows"]);
    rig.source.wait_until(|asked| asked.last().is_some_and(|last| last.param("cursor") == cursor)).await;
    killed.kill().await.unwrap();
    assert!(!rig.has_watermark().await, "it never moves within a step");
    rig.leases_run_out().await;
    rig.source.now_answers(move |asked| listed(order, asked));
    rig
}

/// The `since` and `cursor` of the requests that one more run sends, which must end well.
async fn next_run_asks(rig: &Rig) -> Vec<(String, String)> {
    let before = rig.source.asked().len();
    let report = rig.sync().await.report;
    assert_eq!(report.status, RunStatus::Ok, "{:?}", report.reason);
    let asked = rig.source.asked();
    asked[before..]
        .iter()
        .map(|asked| (asked.param("since").to_owned(), asked.param("cursor").to_owned()))
        .collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(since, cursor)| ((*since).to_owned(), (*cursor).to_owned())).collect()
}

const SORTED: Job<'_> = Job {
    query: r#"{since: "{{ window.start }}", cursor: "{{ page.token }}"}"#,
    pagination: "{type: cursor, token_path: $.next}",
    source: "incremental: {field: updated_at, row_order: asc}",
    rest: "window: {start: 2026-09-01, lookback: 1s}",
};
const WITH_TTL: Job<'_> =
    Job { pagination: "{type: cursor, token_path: $.next, token_ttl: 10m}", source: UNSORTED, ..SORTED };
const UNSORTED: &str = "incremental: {field: updated_at}";

async fn c30_an_unsorted_listing_is_read_from_its_beginning(database: Database) {
    let job = Job { source: UNSORTED, ..SORTED };
    let rig = killed_at(database, job, &[5, 1, 3, 2, 4], "1").await;
    let asked = next_run_asks(&rig).await;
    assert_eq!(asked[0], pairs(&[("2026-09-01T00:00:00Z", "")])[0]);
    assert_eq!(rig.sent_keys(), ["1", "2", "3", "4", "5"]);
}

async fn c30_a_sorted_listing_goes_on_at_the_last_row(database: Database) {
    let rig = killed_at(database, SORTED, &RISING, "3").await;
    let asked = next_run_asks(&rig).await;
    let from = "2026-09-21T10:00:03Z";
    assert_eq!(asked, pairs(&[(from, ""), (from, "1"), (from, "2")]), "that row again, and those behind it");
    assert_eq!(rig.sent_keys(), ["1", "2", "3", "4", "5"]);
    let asked = next_run_asks(&rig).await;
    assert_eq!(asked[0].0, "2026-09-21T10:00:03Z", "W - lookback - granularity: the walk reached its end");
}

async fn c30_an_order_that_is_broken_counts_for_nothing(database: Database) {
    let rig = killed_at(database, SORTED, &[2, 1, 3, 4, 5], "3").await;
    let asked = next_run_asks(&rig).await;
    assert_eq!(asked[0].0, "2026-09-01T00:00:00Z");
    assert_eq!(rig.sent_keys(), ["1", "2", "3", "4", "5"]);
}

async fn c30_an_order_that_was_broken_before_a_run_went_on_stays_so(database: Database) {
    let job = Job { pagination: WITH_TTL.pagination, ..SORTED };
    let rig = killed_at(database, job, &[3, 1, 4, 5, 2], "2").await;
    // It goes on at its page, where the order looks good, and is killed again.
    rig.source.now_answers(|asked| match asked.param("cursor") {
        "4" => Reply::Hold,
        _ => listed(&[3, 1, 4, 5, 2], asked),
    });
    let mut killed = rig.spawn(&["sync", "rows"]);
    rig.source.wait_until(|asked| asked.last().is_some_and(|last| last.param("cursor") == "4")).await;
    killed.kill().await.unwrap();
    rig.leases_run_out().await;
    rig.source.now_answers(|asked| listed(&[3, 1, 4, 5, 2], asked));
    rig.clock.sleep(Duration::from_mins(10)).await;
    assert_eq!(next_run_asks(&rig).await[0].0, "2026-09-01T00:00:00Z");
    assert_eq!(rig.sent_keys(), ["1", "2", "3", "4", "5"]);
}

async fn a_keyset_walk_goes_on_although_its_pages_overlap(database: Database) {
    let job = Job {
        query: r#"{since: "{{ window.start }}"}"#,
        pagination: "{type: keyset, has_more_path: $.more}",
        source: UNSORTED,
        ..SORTED
    };
    // Bounds are spelled in seconds, versions in milliseconds: the second of the last row comes again.
    let rows = ["01.100", "01.700", "02.050", "02.100", "03.100", "04.100"];
    let answer = move |asked: &Asked| {
        let since: Instant = asked.param("since").parse().unwrap();
        let at = |second: &&str| format!("2026-09-21T10:00:{second}Z");
        let rows: Vec<_> = rows
            .iter()
            .enumerate()
            .filter(|(_, row)| at(row).parse::<Instant>().unwrap() >= since)
            .map(|(id, row)| json!({"id": id, "updated_at": at(row)}))
            .collect();
        Reply::Json(json!({"items": &rows[..rows.len().min(4)], "more": rows.len() > 4}).to_string())
    };
    let rig = Rig::new(database, job, move |asked| match asked.param("since") {
        "2026-09-01T00:00:00Z" => answer(asked),
        "2026-09-21T10:00:02Z" => {
            let again = [(2, "02.050"), (3, "02.100"), (4, "03.100")];
            let rows =
                again.map(|(id, at)| json!({"id": id, "updated_at": format!("2026-09-21T10:00:{at}Z")}));
            Reply::Json(json!({"items": rows, "more": true}).to_string())
        }
        _ => Reply::Hold,
    })
    .await;
    let mut killed = rig.spawn(&["sync", "rows"]);
    rig.source.wait_until(|asked| asked.len() == 3).await;
    killed.kill().await.unwrap();
    rig.leases_run_out().await;
    rig.source.now_answers(answer);
    assert_eq!(next_run_asks(&rig).await[0].0, "2026-09-21T10:00:03Z");
    assert_eq!(rig.sent_keys().len(), 6);
}

async fn rows_without_a_version_are_not_passed_over_in_a_walk_without_a_lower_bound(database: Database) {
    let rig = killed_at(database, Job { rest: "", ..SORTED }, &RISING, "3").await;
    assert_eq!(next_run_asks(&rig).await[0].0, "", "the source would leave them out from a bound on");
    assert_eq!(rig.sent_keys(), ["1", "2", "3", "4", "5"]);
}

async fn a_run_goes_on_at_its_page_while_the_token_lasts(database: Database) {
    let rig = killed_at(database, WITH_TTL, &[5, 1, 3, 2, 4], "3").await;
    let since = "2026-09-01T00:00:00Z";
    assert_eq!(next_run_asks(&rig).await, pairs(&[(since, "3"), (since, "4")]));
    assert_eq!(rig.sent_keys(), ["1", "2", "3", "4", "5"]);
    let asked = next_run_asks(&rig).await;
    assert_eq!(asked[0].0, "2026-09-21T10:00:03Z", "what was seen before the kill counts");
}

async fn a_token_that_is_too_old_is_not_used(database: Database) {
    let rig = killed_at(database, WITH_TTL, &[5, 1, 3, 2, 4], "3").await;
    rig.clock.sleep(Duration::from_mins(10)).await;
    assert_eq!(next_run_asks(&rig).await[0], pairs(&[("2026-09-01T00:00:00Z", "")])[0]);
    assert_eq!(rig.sent_keys(), ["1", "2", "3", "4", "5"]);
}

async fn a_run_with_other_requests_begins_anew(database: Database) {
    let rig = killed_at(database, WITH_TTL, &RISING, "3").await;
    rig.configure(Job {
        query: r#"{since: "{{ window.start }}", cursor: "{{ page.token }}", state: all}"#,
        ..WITH_TTL
    });
    assert_eq!(next_run_asks(&rig).await[0], pairs(&[("2026-09-01T00:00:00Z", "")])[0]);
}

async fn a_page_that_a_run_failed_at_is_not_asked_for_again(database: Database) {
    let rig = Rig::new(database, WITH_TTL, |asked| match asked.param("cursor") {
        "2" => Reply::status(403),
        _ => listed(&RISING, asked),
    })
    .await;
    assert_eq!(rig.sync().await.report.status, RunStatus::Failed);
    rig.source.now_answers(|asked| listed(&RISING, asked));
    assert_eq!(next_run_asks(&rig).await[0], pairs(&[("2026-09-01T00:00:00Z", "")])[0]);
    assert_eq!(rig.sent_keys(), ["1", "2", "3", "4", "5"]);
}

async fn a_sorted_listing_that_failed_goes_on_at_the_last_row(database: Database) {
    let rig = Rig::new(database, SORTED, |asked| match asked.param("cursor") {
        "2" => Reply::status(403),
        _ => listed(&RISING, asked),
    })
    .await;
    assert_eq!(rig.sync().await.report.status, RunStatus::Failed);
    rig.source.now_answers(|asked| listed(&RISING, asked));
    assert_eq!(next_run_asks(&rig).await[0].0, "2026-09-21T10:00:02Z");
    assert_eq!(rig.sent_keys(), ["1", "2", "3", "4", "5"]);
}

/// `refused` answers that the token is dead, then good ones.
async fn with_dead_tokens(database: Database, refused: usize) -> Rig {
    let left = Arc::new(AtomicUsize::new(refused));
    let job = Job {
        source: "incremental: {field: updated_at}\n      errors: [{status: 410, action: restart_window}]",
        ..SORTED
    };
    Rig::new(database, job, move |asked| {
        let is_dead = asked.param("cursor") == "3"
            && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if is_dead { Reply::status(410) } else { listed(&RISING, asked) }
    })
    .await
}

async fn a_walk_whose_token_dies_begins_anew_within_its_run(database: Database) {
    let rig = with_dead_tokens(database, 3).await;
    let cursors: Vec<_> = next_run_asks(&rig).await.into_iter().map(|(_, cursor)| cursor).collect();
    let walk = ["", "1", "2", "3"];
    assert_eq!(cursors, [&walk[..], &walk, &walk, &walk, &["4"]].concat());
    assert_eq!(rig.sent_keys(), ["1", "2", "3", "4", "5"]);
}

async fn a_walk_whose_token_always_dies_fails(database: Database) {
    let rig = with_dead_tokens(database, usize::MAX).await;
    let report = rig.sync().await.report;
    assert_eq!(report.status, RunStatus::Failed);
    assert!(report.reason.unwrap().contains("begun anew 3 times"));
    assert!(!rig.has_watermark().await);
    assert_eq!(rig.sent_keys(), ["1", "2", "3"], "what was read is kept");
}

/// A source of one row at each of these instants that gives no more than three rows of one listing.
fn capped(rows: &[&str], asked: &Asked, tells: bool) -> Reply {
    let bound = |name: &str| asked.query.get(name).map(|bound| bound.parse::<Instant>().unwrap());
    let (from, to) = (bound("from"), bound("to"));
    let fitting: Vec<_> = rows
        .iter()
        .enumerate()
        .map(|(id, at)| (id, at.parse::<Instant>().unwrap()))
        .filter(|(_, at)| from.is_none_or(|from| *at >= from) && to.is_none_or(|to| *at <= to))
        .collect();
    let total = tells.then_some(fitting.len());
    let items: Vec<_> =
        fitting.iter().take(3).map(|(id, at)| json!({"id": id, "updated_at": at.to_string()})).collect();
    Reply::Json(json!({"items": items, "total": total}).to_string())
}

const CAPPED: Job<'_> = Job {
    query: r#"{from: "{{ window.start }}", to: "{{ window.end }}"}"#,
    pagination: "{type: none, max_rows: 3}",
    source: "incremental: {field: updated_at, request_format: iso8601}",
    rest: "window: {start: 2026-09-21}",
};
const DENSE: [&str; 8] = [
    "2026-09-21T10:00:00Z",
    "2026-09-21T10:00:01Z",
    "2026-09-21T10:00:02Z",
    "2026-09-21T10:00:03Z",
    "2026-09-21T10:00:04Z",
    "2026-09-21T23:00:00Z",
    "2026-09-22T01:00:00Z",
    "2026-09-23T01:00:00Z",
];

async fn a_window_with_too_many_rows_is_asked_for_in_halves(database: Database) {
    let rig = Rig::new(database, CAPPED, |asked| capped(&DENSE, asked, false)).await;
    rig.clock.stand_at("2026-09-25T00:00:00Z".parse().unwrap());
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.counts.events), (RunStatus::Ok, 8), "{:?}", report.reason);
    assert!(rig.source.asked().len() < 60, "halving finds the dense second in {}", rig.source.asked().len());
    assert!(!rig.source.asked().last().unwrap().query.contains_key("to"), "the last part is open");
    assert_eq!(rig.sync().await.report.counts.events, 0);
}

async fn a_source_that_tells_how_many_rows_there_are_is_believed(database: Database) {
    let job = Job { pagination: "{type: offset, max_rows: 3, total_path: $.total, shifts: false}", ..CAPPED };
    let query = r#"{from: "{{ window.start }}", to: "{{ window.end }}", offset: "{{ page.offset }}"}"#;
    let rig = Rig::new(database, Job { query, ..job }, |asked| capped(&DENSE, asked, true)).await;
    rig.clock.stand_at("2026-09-25T00:00:00Z".parse().unwrap());
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.counts.events), (RunStatus::Ok, 8), "{:?}", report.reason);
}

async fn too_many_rows_of_one_instant_fail_the_run(database: Database) {
    let same = ["2026-09-21T10:00:00Z"; 4];
    let rig = Rig::new(database, CAPPED, move |asked| capped(&same, asked, false)).await;
    let report = rig.sync().await.report;
    assert_eq!(report.status, RunStatus::Failed);
    let reason = report.reason.unwrap();
    assert!(
        reason.contains("no more than 3 rows") && reason.contains("cannot be made any shorter"),
        "{reason}"
    );
    let watermark = rig.database.texts("SELECT CAST(watermark AS TEXT) FROM progress").await;
    let at: Instant = same[0].parse().unwrap();
    assert!(
        watermark[0].parse::<i64>().unwrap() <= at.micros(),
        "what lies before is complete: {watermark:?}"
    );
}

async fn a_cap_that_cannot_be_split_is_told_of(database: Database) {
    let rig = Rig::new(database, CAPPED, |asked| capped(&DENSE, asked, false)).await;
    for (job, expected) in [
        (Job { query: r#"{from: "{{ window.start }}"}"#, ..CAPPED }, "never use `window.end`"),
        (Job { rest: "", ..CAPPED }, "set `window.start`"),
    ] {
        rig.configure(job);
        let report = rig.sync().await.report;
        assert_eq!(report.status, RunStatus::Failed);
        let reason = report.reason.unwrap();
        assert!(reason.contains(expected), "{reason}");
    }
}

async fn an_answer_may_say_that_the_window_is_too_long(database: Database) {
    let job = Job {
        pagination: "{type: none}",
        source: "incremental: {field: updated_at, request_format: iso8601}\n      errors: [{status: 413, action: split_window}]",
        ..CAPPED
    };
    let rig = Rig::new(database, job, |asked| {
        let bound = |name: &str| asked.query.get(name).map(|bound| bound.parse::<Instant>().unwrap());
        let to = bound("to").unwrap_or_else(|| "2026-09-25T00:00:00Z".parse().unwrap());
        if to.since(bound("from").unwrap()) > Duration::from_hours(30) {
            return Reply::status(413);
        }
        capped(&DENSE[5..], asked, false)
    })
    .await;
    rig.clock.stand_at("2026-09-25T00:00:00Z".parse().unwrap());
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.counts.events), (RunStatus::Ok, 3), "{:?}", report.reason);
}

/// Versions that are plain numbers, two rows a page, sorted by id; row 1 changes once page 1 was read.
async fn counted(database: Database, source: &'static str) -> Rig {
    let job = Job {
        query: r#"{since: "{{ window.start }}", cursor: "{{ page.token }}"}"#,
        source,
        rest: "",
        ..SORTED
    };
    let versions = Arc::new(Mutex::new([10, 3, 4, 5]));
    Rig::new(database, job, move |asked| {
        let mut versions = versions.lock().unwrap();
        let since: i64 = asked.param("since").parse().unwrap_or(0);
        let rows: Vec<Value> = (0..4)
            .filter(|id| versions[*id] >= since)
            .map(|id| json!({"id": id, "revision": versions[id]}))
            .collect();
        let start: usize = asked.param("cursor").parse().unwrap_or(0);
        if start == 0 && versions[0] == 10 {
            (versions[0], versions[3]) = (20, 21);
        }
        let next = (start + 2 < rows.len()).then(|| (start + 2).to_string());
        let items: Vec<_> = rows.iter().skip(start).take(2).collect();
        Reply::Json(json!({"items": items, "next": next}).to_string())
    })
    .await
}

async fn a_number_that_grew_behind_the_reader_is_met_again(database: Database) {
    let rig = counted(database, "incremental: {field: revision, format: integer}").await;
    rig.sync().await;
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.counts.updated), (RunStatus::Ok, 1));
    let sent = rig.sent();
    assert_eq!(sent.iter().filter(|(key, _)| key == "0").count(), 2, "{sent:?}");
}

both!(
    c30_an_unsorted_listing_is_read_from_its_beginning,
    c30_a_sorted_listing_goes_on_at_the_last_row,
    c30_an_order_that_is_broken_counts_for_nothing,
    c30_an_order_that_was_broken_before_a_run_went_on_stays_so,
    a_keyset_walk_goes_on_although_its_pages_overlap,
    rows_without_a_version_are_not_passed_over_in_a_walk_without_a_lower_bound,
    a_run_goes_on_at_its_page_while_the_token_lasts,
    a_token_that_is_too_old_is_not_used,
    a_run_with_other_requests_begins_anew,
    a_page_that_a_run_failed_at_is_not_asked_for_again,
    a_sorted_listing_that_failed_goes_on_at_the_last_row,
    a_walk_whose_token_dies_begins_anew_within_its_run,
    a_walk_whose_token_always_dies_fails,
    a_window_with_too_many_rows_is_asked_for_in_halves,
    a_source_that_tells_how_many_rows_there_are_is_believed,
    too_many_rows_of_one_instant_fail_the_run,
    a_cap_that_cannot_be_split_is_told_of,
    an_answer_may_say_that_the_window_is_too_long,
    a_number_that_grew_behind_the_reader_is_met_again,
);
