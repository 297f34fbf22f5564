//! Field cases about late rows and clocks that differ, told through the whole engine on both databases.

use std::time::Duration;

use jiff::Timestamp;
use onlynew::domain::{clock::machine_time, instant::Instant, run::RunStatus};
use serde_json::json;

use crate::{
    both,
    support::{
        database::Database,
        rig::{Job, Rig, page_of},
        server::{Asked, Reply},
    },
};

const LOOKS_BACK_A_MINUTE: Job<'_> = Job {
    query: r#"{since: "{{ window.start }}", cursor: "{{ page.token }}"}"#,
    pagination: "{type: cursor, token_path: $.next}",
    source: "incremental: {field: updated_at}",
    rest: "window: {lookback: 60s}",
};

/// A moment of the day that these stories happen on.
fn at(time: &str) -> Instant {
    format!("2026-09-21T{time}Z").parse().unwrap()
}

/// The same page, told at `now` by the source's clock; without one it tells no time that can be read.
fn dated(page: Reply, now: Option<Instant>) -> Reply {
    let Reply::Json(text) = page else { panic!("no page: {page:?}") };
    let date = now.map_or_else(
        || "some time".to_owned(),
        |now| {
            let now = Timestamp::from_microsecond(now.micros()).unwrap();
            now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
        },
    );
    Reply::Status(200, vec![("content-type", "application/json".into()), ("date", date)], text)
}

async fn c03_a_row_that_becomes_visible_late_is_met_within_the_lookback(database: Database) {
    let x = (1, "2026-09-21T12:04:50Z");
    let y = (2, "2026-09-21T12:04:40Z");
    let rig = Rig::new(database, LOOKS_BACK_A_MINUTE, move |asked| page_of(&[x], asked, 10)).await;
    assert_eq!(rig.sync().await.report.watermark, Some(json!(x.1)));
    rig.source.now_answers(move |asked| page_of(&[x, y], asked, 10));
    let counts = rig.sync().await.report.counts;
    assert_eq!((counts.created, counts.unchanged, counts.events), (1, 1, 1));
    assert_eq!(rig.sync().await.report.counts.events, 0);
    assert_eq!(rig.sent_keys(), ["1", "2"]);
}

async fn c03_a_row_that_becomes_visible_later_than_that_is_not_met(database: Database) {
    let seen = [(1, "2026-09-21T12:04:50Z"), (3, "2026-09-21T12:14:50Z")];
    let late = (2, "2026-09-21T12:04:40Z");
    let rig = Rig::new(database, LOOKS_BACK_A_MINUTE, move |asked| page_of(&seen, asked, 10)).await;
    rig.sync().await;
    rig.source.now_answers(move |asked| page_of(&[seen[0], seen[1], late], asked, 10));
    let counts = rig.sync().await.report.counts;
    assert_eq!((counts.records, counts.events), (1, 0), "the lookback reaches ten minutes less far");
}

async fn c21_a_record_from_the_future_holds_nothing_up(database: Database) {
    let future = (2, "2099-01-01T00:00:00Z");
    let (a, c) = ((1, "2026-09-21T10:00:00Z"), (3, "2026-09-21T10:05:00Z"));
    let rig = Rig::new(database, LOOKS_BACK_A_MINUTE, move |asked| {
        dated(page_of(&[a, future], asked, 10), Some(at("10:01:00")))
    })
    .await;
    rig.clock.stand_at(at("10:01:00"));
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.counts.events), (RunStatus::Ok, 2));
    assert_eq!(report.watermark, Some(json!("2026-09-21T10:01:00Z")), "no further than the source's clock");

    rig.source.now_answers(move |asked| dated(page_of(&[a, future, c], asked, 10), Some(at("10:06:00"))));
    rig.clock.stand_at(at("10:06:00"));
    let report = rig.sync().await.report;
    assert_eq!((report.counts.created, report.counts.events), (1, 1));
    assert_eq!(report.watermark, Some(json!("2026-09-21T10:06:00Z")));
    assert_eq!(rig.sync().await.report.counts.events, 0);
    assert_eq!(rig.sent_keys(), ["1", "2", "3"]);
}

/// What the source holds at 10:00, and what at 10:02.
const FIRST: &[(u32, &str)] = &[(1, "2026-09-21T09:10:00Z"), (2, "2026-09-21T09:59:50Z")];
const SECOND: &[(u32, &str)] = &[
    (1, "2026-09-21T09:10:00Z"),
    (2, "2026-09-21T09:59:50Z"),
    (3, "2026-09-21T09:58:30Z"),
    (4, "2026-09-21T10:00:10Z"),
    (5, "2026-09-21T10:01:59Z"),
];

/// Two runs two minutes apart, with a clock of ours that is `skew` seconds ahead of the source's. Between them rows
/// appear, one of them with a version from before the first run.
async fn c21(database: Database, skew: i64) {
    let ours = |time: &str| Instant::from_micros(at(time).micros() + skew * 1_000_000);
    let start = "2026-09-21T09:00:00Z";
    let mut from = 0;
    let rig = Rig::new(database, Job::default(), |_| Reply::Hold).await;
    drop(rig.database.open().await);
    let bounded = r#"{since: "{{ window.start }}", to: "{{ window.end }}", cursor: "{{ page.token }}"}"#;
    let steps = format!("window: {{lookback: 5m, start: \"{start}\", step: 30m}}");
    let open = Job { rest: "window: {lookback: 5m}", ..Job::default() };
    for (job, is_dated) in [
        (open, true),
        (open, false),
        (Job { query: bounded, rest: &steps, ..open }, true),
        (Job { query: bounded, rest: &steps, ..open }, false),
    ] {
        rig.configure(job);
        rig.database.tamper("UPDATE progress SET watermark = NULL").await;
        // Other records for each story.
        let ids = from;
        from += 10;
        let answer = move |rows: &'static [(u32, &'static str)], now: &str| {
            let now = is_dated.then(|| at(now));
            move |asked: &Asked| {
                let end: Option<Instant> = asked.query.get("to").map(|end| end.parse().unwrap());
                let rows: Vec<_> = rows
                    .iter()
                    .filter(|(_, at)| end.is_none_or(|end| at.parse::<Instant>().unwrap() <= end))
                    .map(|(id, at)| (id + ids, *at))
                    .collect();
                dated(page_of(&rows, asked, 2), now)
            }
        };
        rig.source.now_answers(answer(FIRST, "10:00:00"));
        rig.clock.stand_at(ours("10:00:00"));
        let report = rig.sync().await.report;
        assert_eq!((report.status, report.counts.events), (RunStatus::Ok, 2), "{skew} s, {job:?}");
        rig.source.now_answers(answer(SECOND, "10:02:00"));
        rig.clock.stand_at(ours("10:02:00"));
        let report = rig.sync().await.report;
        assert_eq!((report.status, report.counts.events), (RunStatus::Ok, 3), "{skew} s, {job:?}");
        assert_eq!(rig.sync().await.report.counts.events, 0, "{skew} s, {job:?}");
    }
}

async fn c21_a_clock_of_ours_three_minutes_behind_loses_nothing(database: Database) {
    c21(database, -180).await;
}

async fn c21_a_clock_of_ours_three_minutes_ahead_loses_nothing(database: Database) {
    c21(database, 180).await;
}

async fn c21_clocks_too_far_apart_for_the_lookback_are_warned_of_once_a_run(database: Database) {
    let rows = [(1, "2026-09-21T10:00:00Z"), (2, "2026-09-21T10:00:01Z")];
    let minutes = |minutes: i64| Some(minutes * 60);
    let rig = Rig::new(database, Job::default(), |_| Reply::Hold).await;
    let warned = [(minutes(3), "ahead of"), (minutes(-3), "behind")];
    let silent = [(minutes(2), ""), (minutes(-2), ""), (Some(0), ""), (None, "")];
    for (ahead, side) in warned.into_iter().chain(silent) {
        rig.source.now_answers(move |asked| {
            let now = ahead.map(|ahead| Instant::from_micros(machine_time().micros() + ahead * 1_000_000));
            dated(page_of(&rows, asked, 1), now)
        });
        let (code, line, errors) = rig.command(&["sync", "rows", "--json"]).await;
        assert_eq!((code, &line["pages"]), (0, &json!(2)), "{errors}");
        if side.is_empty() {
            assert_eq!(errors, "", "{ahead:?}");
            continue;
        }
        let told = format!("the source's clock is {side} ours");
        assert_eq!(
            (errors.matches(&told).count(), errors.matches("WARN").count()),
            (1, 1),
            "{ahead:?}: {errors}"
        );
        for part in
            ["source=", "ours=", "lookback=\"5m\"", "set this machine's clock right", "window.lookback"]
        {
            assert!(errors.contains(part), "{part}: {errors}");
        }
    }
    // Where the source tells no time, how far it is away is a guess.
    rig.configure(LOOKS_BACK_A_MINUTE);
    assert_eq!(rig.command(&["sync", "rows"]).await.2, "");
    // By content alone there is no window that clocks could spoil.
    rig.configure(Job { source: "", query: r#"{cursor: "{{ page.token }}"}"#, ..Job::default() });
    rig.source.now_answers(move |asked| {
        dated(page_of(&rows, asked, 1), Some(machine_time().plus(Duration::from_hours(1))))
    });
    assert_eq!(rig.command(&["sync", "rows"]).await.2, "");
}

both!(
    c03_a_row_that_becomes_visible_late_is_met_within_the_lookback,
    c03_a_row_that_becomes_visible_later_than_that_is_not_met,
    c21_a_record_from_the_future_holds_nothing_up,
    c21_a_clock_of_ours_three_minutes_behind_loses_nothing,
    c21_a_clock_of_ours_three_minutes_ahead_loses_nothing,
    c21_clocks_too_far_apart_for_the_lookback_are_warned_of_once_a_run,
);
