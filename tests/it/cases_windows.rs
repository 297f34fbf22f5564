//! Windows in steps: how they tile, what a failure does to them, and where the watermark stands meanwhile.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use onlynew::domain::{instant::Instant, run::RunStatus};
use serde_json::json;

use crate::{
    both,
    support::{
        database::Database,
        rig::{Job, Rig},
        server::{Asked, Reply},
    },
};

/// A source that can be asked for an end; `open` says on which sides it leaves out rows at the bound.
const BOUNDED: Job<'_> = Job {
    query: r#"{from: "{{ window.start }}", to: "{{ window.end }}"}"#,
    pagination: "{type: none}",
    source: "incremental: {field: updated_at, request_format: iso8601}",
    rest: "window: {start: 2026-09-01, step: 1d, lookback: 1h}",
};

fn within(rows: &[(u32, &str)], asked: &Asked, open_start: bool, open_end: bool) -> Reply {
    let bound = |name: &str| asked.query.get(name).map(|bound| bound.parse::<Instant>().unwrap());
    let (from, to) = (bound("from"), bound("to"));
    let rows: Vec<_> = rows
        .iter()
        .filter(|(_, at)| {
            let at: Instant = at.parse().unwrap();
            let after = from.is_none_or(|from| if open_start { at > from } else { at >= from });
            after && to.is_none_or(|to| if open_end { at < to } else { at <= to })
        })
        .map(|(id, at)| json!({"id": id, "updated_at": at}))
        .collect();
    Reply::Json(json!({"items": rows}).to_string())
}

/// Rows on both sides of an edge between two steps, and on the edge itself.
const EDGE: [(u32, &str); 4] = [
    (1, "2026-09-01T23:59:59.412Z"),
    (2, "2026-09-02T00:00:00Z"),
    (3, "2026-09-02T00:00:00.001Z"),
    (4, "2026-09-03T12:00:00Z"),
];

async fn c28(database: Database, open_start: bool, open_end: bool) {
    let side = |open| if open { "open" } else { "closed" };
    let source = format!(
        "incremental: {{field: updated_at, request_format: iso8601, range_start: {}, range_end: {}}}",
        side(open_start),
        side(open_end)
    );
    let job = Job { source: &source, ..BOUNDED };
    let rig = Rig::new(database, job, move |asked| within(&EDGE, asked, open_start, open_end)).await;
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.counts.events), (RunStatus::Ok, 4));
    assert_eq!(rig.sent_keys(), ["1", "2", "3", "4"]);
    let asked = rig.source.asked();
    assert!(asked.len() > 60, "a step a day: {}", asked.len());
    assert!(asked[0].param("from") <= "2026-09-01T00:00:00Z");
    assert!(!asked.last().unwrap().query.contains_key("to"), "the last step is open");
    let watermark = report.watermark.unwrap();
    assert!(watermark.as_str().unwrap() > "2026-11", "closed steps move it, rows or not: {watermark}");
    assert_eq!(rig.sync().await.report.counts.events, 0);
}

async fn c28_steps_meet_without_gap_or_double_where_both_bounds_are_closed(database: Database) {
    c28(database, false, false).await;
}

async fn c28_steps_meet_without_gap_or_double_where_the_end_is_open(database: Database) {
    c28(database, false, true).await;
}

async fn c28_steps_meet_without_gap_or_double_where_the_start_is_open(database: Database) {
    c28(database, true, false).await;
}

async fn c28_steps_meet_without_gap_or_double_where_both_bounds_are_open(database: Database) {
    c28(database, true, true).await;
}

async fn a_failure_keeps_the_steps_before_it_and_goes_on_from_there(database: Database) {
    let broken = Arc::new(AtomicBool::new(true));
    let is_broken = Arc::clone(&broken);
    let rig = Rig::new(database, BOUNDED, move |asked| match asked.param("from") {
        from if from >= "2026-09-03" && is_broken.load(Ordering::SeqCst) => Reply::status(403),
        _ => within(&EDGE, asked, false, false),
    })
    .await;
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.counts.events), (RunStatus::Failed, 3));
    let watermark = rig.database.texts("SELECT CAST(watermark AS TEXT) FROM progress").await;
    let moved: Instant = "2026-09-03T00:00:00Z".parse().unwrap();
    assert_eq!(watermark, [moved.micros().to_string()], "two steps are complete");

    broken.store(false, Ordering::SeqCst);
    let before = rig.source.asked().len();
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.counts.events), (RunStatus::Ok, 1));
    let first = rig.source.asked()[before].param("from").to_owned();
    assert_eq!(first, "2026-09-02T22:59:59Z", "the lookback before the watermark, not the beginning");
}

async fn a_window_that_keeps_failing_is_asked_for_in_halves(database: Database) {
    // A source that gives up on more than an hour at a time.
    let job = Job { rest: "window: {start: 2026-11-29, lookback: 1h}", ..BOUNDED };
    let rows = [(1, "2026-11-29T10:00:00Z"), (2, "2026-11-29T20:00:00Z")];
    let rig = Rig::new(database, job, move |asked| {
        let bound = |name: &str| asked.query.get(name).map(|bound| bound.parse::<Instant>().unwrap());
        let from = bound("from").unwrap();
        let to = bound("to").unwrap_or_else(|| "2026-12-01T00:00:00Z".parse().unwrap());
        if to.since(from).as_secs() > 16 * 3600 {
            Reply::status(403)
        } else {
            within(&rows, asked, false, false)
        }
    })
    .await;
    rig.clock.stand_at("2026-12-01T00:00:00Z".parse().unwrap());
    let mut failed = 0;
    while rig.sync().await.report.status == RunStatus::Failed {
        failed += 1;
        assert!(failed < 10, "it never gets through");
    }
    assert_eq!(failed, 6, "three failures halve it once, three more halve it again");
    assert_eq!(rig.sent_keys(), ["1", "2"]);
    assert_eq!(rig.database.number("(SELECT failures FROM progress)").await, 0);
}

async fn a_source_that_cannot_be_asked_for_less_is_told_of(database: Database) {
    let rig = Rig::new(database, Job::default(), |_| Reply::status(403)).await;
    for _ in 0..3 {
        let reason = rig.sync().await.report.reason.unwrap();
        assert!(!reason.contains("in a row"), "{reason}");
    }
    let reason = rig.sync().await.report.reason.unwrap();
    assert!(reason.contains("4 runs have failed here in a row") && reason.contains("window.end"), "{reason}");
}

/// A source that compares local times as texts, when clocks are put back: 02:10 comes after 02:55.
async fn a_row_of_the_hour_that_comes_twice_is_not_left_out(database: Database) {
    let job = Job {
        query: r#"{since: "{{ window.start }}"}"#,
        pagination: "{type: none}",
        source: "incremental: {field: at, format: '%Y-%m-%d %H:%M:%S', timezone: Europe/Zagreb}",
        rest: "window: {lookback: 1m}",
    };
    let rows = Arc::new(Mutex::new(vec![(1, "2026-10-25 02:55:00")]));
    let rig = Rig::new(database, job, {
        let rows = Arc::clone(&rows);
        move |asked| {
            let rows = rows.lock().unwrap();
            let items: Vec<_> = rows
                .iter()
                .filter(|(_, at)| *at >= asked.param("since"))
                .map(|(id, at)| json!({"id": id, "at": at}))
                .collect();
            Reply::Json(json!({"items": items}).to_string())
        }
    })
    .await;
    rig.clock.stand_at("2026-10-25T00:56:00Z".parse().unwrap());
    rig.sync().await;
    rows.lock().unwrap().push((2, "2026-10-25 02:10:00"));
    rig.clock.stand_at("2026-10-25T01:11:00Z".parse().unwrap());
    assert_eq!(rig.sync().await.report.counts.created, 1);
    assert_eq!(rig.source.asked()[1].param("since"), "2026-10-25 02:00:00");
    assert_eq!(rig.sent_keys(), ["1", "2"]);
}

both!(
    a_row_of_the_hour_that_comes_twice_is_not_left_out,
    c28_steps_meet_without_gap_or_double_where_both_bounds_are_closed,
    c28_steps_meet_without_gap_or_double_where_the_end_is_open,
    c28_steps_meet_without_gap_or_double_where_the_start_is_open,
    c28_steps_meet_without_gap_or_double_where_both_bounds_are_open,
    a_failure_keeps_the_steps_before_it_and_goes_on_from_there,
    a_window_that_keeps_failing_is_asked_for_in_halves,
    a_source_that_cannot_be_asked_for_less_is_told_of,
);
