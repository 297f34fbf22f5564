//! Replays, told through the whole engine on both databases: a window is read again beside the live job, and neither moves what
//! is the other's.

use std::{collections::HashSet, sync::Arc, time::Duration};

use onlynew::{
    app::{By, Replayed},
    domain::{
        instant::Instant,
        run::RunStatus,
        task::{Plan, Resend, TaskState},
        version::Version,
    },
    engine::RunReport,
    store::Opened,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::cases_running::run_app_until;
use crate::{
    both,
    support::{
        database::Database,
        rig::{Job, Rig, page_of, page_of_values},
        server::{Asked, Reply},
    },
};

fn version(at: &str) -> Version {
    Version(at.parse::<Instant>().unwrap().micros())
}

fn plan(from: &str, to: &str) -> Plan {
    Plan { from: Some(version(from)), to: Some(version(to)), ..Plan::default() }
}

/// One run of the replay of this plan, in this process.
async fn replay(rig: &Rig, plan: &Plan) -> Replayed {
    let app = rig.app().await;
    let job = Arc::clone(&app.config.jobs["rows"]);
    let (Opened::New(id) | Opened::GoesOn(id)) = app.ask_for_replay(&job, plan).await.unwrap() else {
        panic!("another replay is in the way")
    };
    let replayed = app.work_on(&job, id, &|_| {}, &CancellationToken::new()).await.unwrap().unwrap();
    app.store.close().await;
    replayed
}

/// What a replay would do.
async fn dry_run(rig: &Rig, plan: &Plan) -> RunReport {
    let app = rig.app().await;
    let job = Arc::clone(&app.config.jobs["rows"]);
    let report = app.engine.try_out(&job, plan, &|_| {}, &CancellationToken::new()).await.unwrap();
    app.store.close().await;
    report
}

/// The events sent behind the first `before`, as (key, type, version, replay).
fn sent_since(rig: &Rig, before: usize) -> Vec<(String, String, String, Option<String>)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let events = rig.receiver.asked().split_off(before);
    let mut sent: Vec<_> = events
        .iter()
        .map(Asked::json)
        .map(|event| {
            let replay = event["replay"].as_str().map(str::to_owned);
            (text(&event["key"]), text(&event["type"]), text(&event["version"]), replay)
        })
        .collect();
    sent.sort();
    sent
}

/// Every row of every table, as texts.
async fn everything(database: &Database) -> Vec<String> {
    let is_sqlite = database.url().starts_with("sqlite");
    let tables = if is_sqlite {
        "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
    } else {
        "SELECT CAST(tablename AS TEXT) FROM pg_tables WHERE schemaname = current_schema() ORDER BY tablename"
    };
    let mut rows = Vec::new();
    for table in database.texts(tables).await {
        let row = if is_sqlite {
            let columns = database.texts(&format!("SELECT name FROM pragma_table_info('{table}')")).await;
            let quoted: Vec<_> = columns.iter().map(|column| format!("quote(\"{column}\")")).collect();
            format!("'{table} ' || {}", quoted.join(" || ' ' || "))
        } else {
            format!("'{table} ' || CAST({table} AS TEXT)")
        };
        rows.extend(database.texts(&format!("SELECT {row} FROM {table} ORDER BY 1")).await);
    }
    rows
}

const STOOD: [(u32, &str); 2] = [(1, "2024-01-01T01:00:00Z"), (2, "2026-08-01T00:00:00Z")];
const REPLAYED: [(u32, &str); 3] =
    [(1, "2024-01-01T01:00:00Z"), (2, "2024-01-01T02:00:00Z"), (3, "2024-01-01T03:00:00Z")];

/// A job that knows two rows, of which a replica shows the second one as it was, and a third one.
async fn c40(database: Database, rest: &str) -> Rig {
    let job = Job { rest, ..Job::default() };
    let rig = Rig::new(database, job, |asked| page_of(&STOOD, asked, 10)).await;
    rig.sync().await;
    rig.source.now_answers(|asked| page_of(&REPLAYED, asked, 2));
    rig
}

fn first_of_2024() -> Plan {
    plan("2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z")
}

async fn c40_a_replay_sends_what_was_missed_and_moves_nothing_of_the_live_job(database: Database) {
    let rig = c40(database, "").await;
    let state = "SELECT CAST(watermark AS TEXT) || ' ' || CAST(complete_through AS TEXT) FROM progress";
    let progress = rig.database.texts(state).await;
    let replayed = replay(&rig, &first_of_2024()).await;
    let task = &replayed.task;
    assert_eq!((task.state, task.pending, task.delivered), (TaskState::Done, 0, 1), "{task:?}");
    assert_eq!((task.counts.created, task.counts.stale, task.counts.unchanged), (1, 1, 1));
    let sent = sent_since(&rig, 2);
    let expected =
        ("3".into(), "record.created".into(), "2024-01-01T03:00:00Z".into(), Some(task.uid.clone()));
    assert_eq!(sent, [expected]);
    assert_eq!(rig.database.texts(state).await, progress);
    assert!(matches!(&replayed.by, By::Command(report) if report.status == RunStatus::Ok));

    let twice = replay(&rig, &first_of_2024()).await.task;
    assert!(twice.id != task.id && twice.counts.events == 0, "{twice:?}");
}

async fn c40_a_replay_of_all_sends_each_row_and_overwrites_nothing(database: Database) {
    let rig = c40(database, "").await;
    let all = Plan { resend: Resend::All, ..first_of_2024() };
    let record =
        "SELECT CAST(version AS TEXT) || ' ' || CAST(changed_at AS TEXT) || ' ' || CAST(sequence AS TEXT)
                  FROM record WHERE key = '2'";
    let stood = rig.database.texts(record).await[0].clone();
    let first = replay(&rig, &all).await.task;
    let uid = Some(first.uid.clone());
    let sent = sent_since(&rig, 2);
    let expected = [
        ("1", "record.updated", "2024-01-01T01:00:00Z"),
        ("2", "record.updated", "2024-01-01T02:00:00Z"),
        ("3", "record.created", "2024-01-01T03:00:00Z"),
    ]
    .map(|(key, kind, version)| (key.to_owned(), kind.to_owned(), version.to_owned(), uid.clone()));
    assert_eq!(sent, expected);
    let now = rig.database.texts(record).await[0].clone();
    assert_eq!(now.strip_suffix('2'), stood.strip_suffix('1'), "its number alone has moved");

    let second = replay(&rig, &all).await.task;
    assert_eq!((second.counts.events, second.counts.stale, second.counts.unchanged), (3, 1, 2));
    let ids: HashSet<_> =
        rig.receiver.asked().iter().map(|asked| asked.json()["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids.len(), 2 + 3 + 3, "new ids each time");
    // The live job goes on where it was: what it knows is known.
    rig.source.now_answers(|asked| page_of(&STOOD, asked, 10));
    assert_eq!(rig.sync().await.report.counts.events, 0);
}

async fn a_replay_of_none_records_only(database: Database) {
    let rig = c40(database, "").await;
    let task = replay(&rig, &Plan { resend: Resend::None, ..first_of_2024() }).await.task;
    assert_eq!((task.counts.created, task.counts.events), (1, 0));
    assert_eq!(replay(&rig, &first_of_2024()).await.task.counts.events, 0, "it is known now");
}

async fn a_dry_run_counts_and_writes_nothing(database: Database) {
    let rig = Rig::new(database, Job::default(), |asked| page_of(&STOOD, asked, 10)).await;
    let app = rig.app().await;
    app.store.close().await;
    let empty = everything(&rig.database).await;
    let report = dry_run(&rig, &Plan::default()).await;
    assert_eq!((report.status, report.counts.created, report.counts.events), (RunStatus::Ok, 2, 2));
    assert_eq!(everything(&rig.database).await, empty, "also of a job that has never run");

    rig.sync().await;
    rig.source.now_answers(|asked| page_of(&REPLAYED, asked, 2));
    let before = everything(&rig.database).await;
    assert!(before.len() > empty.len() + 4);
    let report = dry_run(&rig, &first_of_2024()).await;
    let counts = report.counts;
    assert_eq!((report.requests, report.pages, counts.records), (2, 2, 3));
    assert_eq!((counts.created, counts.stale, counts.unchanged, counts.events), (1, 1, 1, 1));
    let all = dry_run(&rig, &Plan { resend: Resend::All, ..first_of_2024() }).await;
    assert_eq!(all.counts.events, 3);
    rig.source.now_answers(|_| Reply::Status(429, vec![("retry-after", "3600".into())], String::new()));
    assert_eq!(dry_run(&rig, &first_of_2024()).await.status, RunStatus::RateLimited);
    assert_eq!(everything(&rig.database).await, before);
    assert_eq!(rig.receiver.asked().len(), 2);
}

/// Rows that the live job does not look back to, and those that it does.
const OLD: [u32; 5] = [1, 2, 3, 4, 5];

fn old(id: u32) -> Value {
    json!({"id": id, "updated_at": format!("2026-09-21T10:00:0{id}Z")})
}

/// A row a page; a replay that comes to the page behind `held` is kept waiting.
fn beside_live(asked: &Asked, held: &str) -> Reply {
    let is_live = asked.param("since").starts_with("2026-09-21T11");
    if !is_live && asked.param("cursor") == held {
        return Reply::Hold;
    }
    let live = [7, 8].map(|id| json!({"id": id, "updated_at": format!("2026-09-21T11:00:0{id}Z")}));
    let rows: Vec<Value> = OLD.iter().map(|id| old(*id)).chain(live).collect();
    page_of_values(&rows, asked, 1)
}

const SINCE_ELEVEN: &str = "window: {start: \"2026-09-21T11:00:00Z\", lookback: 1s}";
const OF_TEN: [&str; 6] =
    ["replay", "rows", "--from", "2026-09-21T10:00:00Z", "--to", "2026-09-21T11:00:00Z"];

/// A rig whose replay was killed behind its third row, and whose live job has run since then.
async fn killed_replay(database: Database, source: &'static str, arguments: &[&str]) -> Rig {
    let job = Job { source, rest: SINCE_ELEVEN, ..Job::default() };
    let rig = Rig::new(database, job, |asked| beside_live(asked, "3")).await;
    let mut killed = rig.spawn(&[&OF_TEN[..], arguments].concat());
    rig.source.wait_until(|asked| asked.last().is_some_and(|last| last.param("cursor") == "3")).await;
    killed.kill().await.unwrap();
    let live = rig.sync().await;
    assert_eq!(live.report.counts.created, 2, "the live job does not wait for the replay");
    rig.leases_run_out().await;
    rig.source.now_answers(|asked| beside_live(asked, "never"));
    rig
}

async fn c40_a_replay_that_was_killed_goes_on_from_its_own_place(database: Database) {
    let source = "incremental: {field: updated_at, row_order: asc}";
    let rig = killed_replay(database, source, &[]).await;
    let before = rig.source.asked().len();
    let (code, line, errors) = rig.command(&[&OF_TEN[..], &["--json"]].concat()).await;
    assert_eq!((code, &line["state"], &line["runs"]), (0, &json!("done"), &json!(2)), "{line} {errors}");
    assert!(errors.contains("1 step, so 1 request at least") && errors.contains("goes on"), "{errors}");
    assert_eq!(line["worked_by"], "command");
    let asked = rig.source.asked();
    assert_eq!(asked[before].param("since"), "2026-09-21T10:00:03Z", "at the last row that was committed");
    assert_eq!(rig.sent_keys(), ["1", "2", "3", "4", "5", "7", "8"], "nothing is missing, nothing twice");
    assert_eq!(rig.sync().await.report.counts.events, 0);
}

async fn a_replay_of_all_that_was_killed_sends_each_row_once(database: Database) {
    let rig = killed_replay(database, "incremental: {field: updated_at}", &["--emit", "all"]).await;
    let before = rig.source.asked().len();
    let (code, line, errors) = rig.command(&[&OF_TEN[..], &["--emit", "all", "--json"]].concat()).await;
    assert_eq!((code, &line["events"], &line["delivered"]), (0, &json!(5), &json!(5)), "{line} {errors}");
    assert_eq!(rig.source.asked()[before].param("cursor"), "", "an unsorted listing begins anew");
    assert_eq!(rig.sent_keys(), ["1", "2", "3", "4", "5", "7", "8"]);
    let (code, line, _) = rig.command(&[&OF_TEN[..], &["--emit", "all", "--json"]].concat()).await;
    assert_eq!((code, &line["events"]), (0, &json!(5)), "another replay sends them again");
}

async fn c40_a_replay_that_meets_its_page_cap_is_never_complete(database: Database) {
    let capped = "{type: cursor, token_path: $.next, max_pages: 2}";
    let job = Job { pagination: capped, rest: SINCE_ELEVEN, ..Job::default() };
    let rig = Rig::new(database, job, |asked| beside_live(asked, "never")).await;
    let of_ten = plan("2026-09-21T10:00:00Z", "2026-09-21T11:00:00Z");
    for failures in 1..=6 {
        let task = replay(&rig, &of_ten).await.task;
        let expected = if failures < 6 { TaskState::Open } else { TaskState::Failed };
        assert_eq!((task.state, task.failures), (expected, failures), "{task:?}");
        assert!(task.reason.as_ref().unwrap().contains("max_pages"), "{task:?}");
    }
    let (_, told, _) = rig.command(&["status", "--json"]).await;
    assert_eq!((&told["replays"][0]["replay"], &told["replays"][0]["state"]), (&json!(1), &json!("failed")));
    rig.configure(Job { pagination: "{type: cursor, token_path: $.next, max_pages: 9}", ..job });
    let task = replay(&rig, &of_ten).await.task;
    assert_eq!(
        (task.id.0, task.state, task.runs, task.counts.created),
        (1, TaskState::Done, 7, 5),
        "{task:?}"
    );
    assert_eq!(rig.sent_keys(), ["1", "2", "3", "4", "5"]);
}

async fn c03_a_row_that_appears_behind_the_lookback_is_found_by_a_replay_once(database: Database) {
    const SEEN: (u32, &str) = (1, "2026-09-21T12:04:50Z");
    let job = Job { rest: "window: {lookback: 60s}", ..Job::default() };
    let rig = Rig::new(database, job, |asked| page_of(&[SEEN], asked, 10)).await;
    rig.sync().await;
    rig.source.now_answers(|asked| page_of(&[SEEN, (2, "2026-09-21T11:54:40Z")], asked, 10));
    assert_eq!(rig.sync().await.report.counts.events, 0, "it is behind the window");
    let day = plan("2026-09-21T00:00:00Z", "2026-09-22T00:00:00Z");
    assert_eq!(replay(&rig, &day).await.task.counts.events, 1);
    assert_eq!(replay(&rig, &day).await.task.counts.events, 0);
    assert_eq!(rig.sent_keys(), ["1", "2"]);
}

async fn c05_a_change_under_an_old_version_is_found_by_a_replay(database: Database) {
    let order = |quantity| json!({"id": 9, "updated_at": "2026-09-21T10:00:00Z", "quantity": quantity});
    let newer = || json!({"id": 10, "updated_at": "2026-09-21T12:00:00Z"});
    for (detect, expected) in [("version", 0), ("either", 1)] {
        let database = if database.url().starts_with("sqlite") {
            Database::sqlite()
        } else {
            Database::postgres().await.unwrap()
        };
        let rest = format!("changes: {{detect: {detect}}}");
        let job = Job { rest: &rest, ..Job::default() };
        let rig = Rig::new(database, job, move |asked| page_of_values(&[order(1), newer()], asked, 10)).await;
        rig.sync().await;
        rig.source.now_answers(move |asked| page_of_values(&[order(2), newer()], asked, 10));
        assert_eq!(rig.sync().await.report.counts.events, 0, "{detect}: it is outside the window");
        let task = replay(&rig, &plan("2026-09-21T00:00:00Z", "2026-09-22T00:00:00Z")).await.task;
        assert_eq!((task.counts.updated, task.counts.events), (expected, expected), "{detect}");
    }
}

async fn c25_a_replay_never_sends_an_older_version_after_a_newer_one(database: Database) {
    let row = |second, content| json!({"id": 5, "updated_at": format!("2026-09-21T10:02:0{second}Z"), "content": content});
    for (detect, expected) in [("version", 0), ("either", 1)] {
        let database = if database.url().starts_with("sqlite") {
            Database::sqlite()
        } else {
            Database::postgres().await.unwrap()
        };
        let rest = format!("changes: {{detect: {detect}}}");
        let job = Job { rest: &rest, ..Job::default() };
        let rig =
            Rig::new(database, job, move |asked| page_of_values(&[row(2, "b"), row(1, "a")], asked, 10))
                .await;
        assert_eq!(rig.sync().await.report.counts.events, 1);
        rig.source.now_answers(move |asked| page_of_values(&[row(1, "a")], asked, 10));
        let day = plan("2026-09-21T00:00:00Z", "2026-09-22T00:00:00Z");
        let task = replay(&rig, &day).await.task;
        assert_eq!((task.counts.stale, task.counts.events), (1, 0));
        rig.source.now_answers(move |asked| page_of_values(&[row(2, "c")], asked, 10));
        assert_eq!(replay(&rig, &day).await.task.counts.events, expected, "{detect}");
        let versions: Vec<_> =
            rig.receiver.asked().iter().map(|asked| asked.json()["version"].clone()).collect();
        assert!(versions.iter().all(|version| *version == "2026-09-21T10:02:02Z"), "{versions:?}");
    }
}

async fn c37_a_replay_beside_the_running_job_is_taken_up_and_never_dropped(database: Database) {
    let job = Job { rest: SINCE_ELEVEN, ..Job::default() };
    let rig = Rig::new(database, job, |asked| beside_live(asked, "2")).await;
    let app = rig.real_time_app().await;
    run_app_until(app, async {
        let mut command = rig.spawn(&[&OF_TEN[..], &["--json"]].concat());
        rig.source.wait_until(|asked| asked.iter().any(|asked| asked.param("cursor") == "2")).await;
        // Another one is told which one is in the way, and the live job runs on meanwhile.
        let (code, told, _) = rig.command(&["replay", "rows", "--json"]).await;
        let error = told["error"].as_str().unwrap().to_owned();
        assert!(code == 1 && error.contains("replay 1") && error.contains("replays cancel 1"), "{told}");
        let (_, shown, _) = rig.command(&["replays", "show", "1", "--json"]).await;
        assert!(shown["state"] == "open" && shown["worker"].is_string(), "{shown}");
        let live = |asked: &[Asked]| {
            asked.iter().filter(|asked| asked.param("since").starts_with("2026-09-21T11")).count()
        };
        let runs = live(&rig.source.asked());
        rig.source.wait_until(|asked| live(asked) > runs + 1).await;
        assert!(command.try_wait().unwrap().is_none(), "it watches");
        // The page that is waited for is never answered: whoever works on it is stopped and another one goes on.
        command.kill().await.unwrap();
        rig.source.now_answers(|asked| beside_live(asked, "never"));
    })
    .await;
    let app = rig.real_time_app().await;
    run_app_until(app, async {
        let (code, line, errors) = rig.command(&[&OF_TEN[..], &["--json"]].concat()).await;
        assert_eq!(
            (code, &line["state"], &line["worked_by"]),
            (0, &json!("done"), &json!("worker")),
            "{line} {errors}"
        );
        assert_eq!((&line["created"], &line["delivered"]), (&json!(5), &json!(5)), "{line}");
    })
    .await;
    assert_eq!(rig.sent_keys(), ["1", "2", "3", "4", "5", "7", "8"]);
}

async fn a_sorted_source_that_cannot_be_asked_for_an_end_is_read_to_it(database: Database) {
    let job = Job {
        source: "incremental: {field: updated_at, row_order: asc}",
        rest: SINCE_ELEVEN,
        ..Job::default()
    };
    let rig = Rig::new(database, job, |asked| beside_live(asked, "never")).await;
    let task = replay(&rig, &plan("2026-09-21T10:00:00Z", "2026-09-21T10:00:03Z")).await.task;
    assert_eq!((task.state, task.pages, task.counts.created), (TaskState::Done, 3, 2), "{task:?}");
    assert_eq!(rig.sent_keys(), ["1", "2"], "the row at the end does not belong to the window");
}

async fn a_source_that_can_be_asked_for_an_end_is_asked_step_by_step(database: Database) {
    let job = Job {
        query: r#"{since: "{{ window.start }}", until: "{{ window.end }}", cursor: "{{ page.token }}"}"#,
        rest: "window: {start: 2026-09-01, lookback: 1s, step: 2s}",
        ..Job::default()
    };
    let rig = Rig::new(database, job, |asked| {
        let until: Instant = asked.param("until").parse().unwrap();
        let rows: Vec<Value> = OLD
            .iter()
            .map(|id| old(*id))
            .filter(|row| row["updated_at"].as_str().unwrap().parse::<Instant>().unwrap() < until)
            .collect();
        page_of_values(&rows, asked, 10)
    })
    .await;
    let window = plan("2026-09-21T10:00:01Z", "2026-09-21T10:00:06Z");
    let app = rig.app().await;
    assert_eq!(app.engine.steps_of(&app.config.jobs["rows"], &window), 3);
    app.store.close().await;
    let task = replay(&rig, &window).await.task;
    assert_eq!((task.state, task.requests, task.read_to), (TaskState::Done, 3, window.to), "{task:?}");
    let last = rig.source.asked().last().unwrap().param("until").to_owned();
    assert_eq!(last, "2026-09-21T10:00:06Z", "the last step is closed");
    assert_eq!(rig.sent_keys(), ["1", "2", "3", "4", "5"]);
}

async fn a_replay_of_keys_keeps_to_them(database: Database) {
    let rig = Rig::new(database, Job::default(), |asked| page_of(&REPLAYED, asked, 2)).await;
    let task = replay(&rig, &Plan { keys: vec!["2".into(), "3".into()], ..Plan::default() }).await.task;
    assert_eq!((task.counts.created, task.counts.records), (2, 2));
    assert_eq!(rig.sent_keys(), ["2", "3"]);
}

async fn a_replay_asks_no_more_often_than_it_may(database: Database) {
    let rig = Rig::new(database, Job::default(), |asked| page_of(&REPLAYED, asked, 1)).await;
    let rate = Some("2/m".parse().unwrap());
    let task = replay(&rig, &Plan { rate, ..Plan::default() }).await.task;
    assert_eq!((task.requests, task.plan.rate), (3, rate));
    let waits = rig.clock.waits.lock().unwrap().clone();
    let long = waits.iter().filter(|wait| **wait > Duration::from_secs(25)).count();
    assert_eq!(long, 2, "one between two requests: {waits:?}");
}

async fn a_replay_before_the_first_run_leaves_the_baseline_as_it_is(database: Database) {
    let rig = Rig::new(database, Job::default(), |asked| page_of(&REPLAYED, asked, 10)).await;
    rig.configure_baseline();
    let task = replay(&rig, &plan("2024-01-01T00:00:00Z", "2024-01-01T02:00:00Z")).await.task;
    assert_eq!(task.counts.events, 1, "a replay is asked for: no baseline silences it");
    let live = rig.sync().await.report.counts;
    assert_eq!((live.created, live.unchanged, live.events), (2, 1, 0), "the others stood when it began");
    rig.source.now_answers(|asked| page_of(&[(4, "2024-01-01T04:00:00Z")], asked, 10));
    assert_eq!(rig.sync().await.report.counts.events, 1);
}

async fn a_replay_that_is_cancelled_stops_at_its_next_page(database: Database) {
    let rows: Vec<(u32, &'static str)> = (0..100).map(|id| (id, "2026-09-21T10:00:01Z")).collect();
    let rig = Rig::new(database, Job { rest: SINCE_ELEVEN, ..Job::default() }, move |asked| {
        Reply::Slow(Duration::from_millis(100), Box::new(page_of(&rows, asked, 1)))
    })
    .await;
    let app = rig.real_time_app().await;
    let job = Arc::clone(&app.config.jobs["rows"]);
    let Opened::New(id) = app.ask_for_replay(&job, &Plan::default()).await.unwrap() else { panic!() };
    let stop = CancellationToken::new();
    let working = app.work_on(&job, id, &|_| {}, &stop);
    let cancelling = async {
        rig.source.wait_until(|asked| asked.len() == 2).await;
        assert!(app.store.cancel_task(id, None).await.unwrap());
    };
    let (replayed, ()) = tokio::join!(working, cancelling);
    let Replayed { task, by, .. } = replayed.unwrap().unwrap();
    assert_eq!(task.state, TaskState::Cancelled);
    assert!(task.pages < 100 && matches!(by, By::Command(report) if report.status == RunStatus::Interrupted));
    assert_eq!(rig.receiver.asked().len() as u64, task.counts.events, "what it has stored is delivered");
    app.store.close().await;
    let statuses = rig.database.texts("SELECT status FROM run").await;
    assert_eq!(statuses, ["interrupted"]);
}

async fn a_replay_that_is_stopped_stays_open_and_goes_on(database: Database) {
    let rows: Vec<(u32, &'static str)> = (0..20).map(|id| (id, "2026-09-21T10:00:01Z")).collect();
    let rig = Rig::new(database, Job::default(), move |asked| {
        Reply::Slow(Duration::from_millis(50), Box::new(page_of(&rows, asked, 1)))
    })
    .await;
    let app = rig.real_time_app().await;
    let job = Arc::clone(&app.config.jobs["rows"]);
    let Opened::New(id) = app.ask_for_replay(&job, &Plan::default()).await.unwrap() else { panic!() };
    let stop = CancellationToken::new();
    let stopping = async {
        rig.source.wait_until(|asked| asked.len() == 3).await;
        stop.cancel();
    };
    let (replayed, ()) = tokio::join!(app.work_on(&job, id, &|_| {}, &stop), stopping);
    let task = replayed.unwrap().unwrap().task;
    assert!(task.state == TaskState::Open && task.failures == 0 && task.worker.is_none(), "{task:?}");
    app.store.close().await;
    let task = replay(&rig, &Plan::default()).await.task;
    assert_eq!((task.id, task.state, task.counts.created), (id, TaskState::Done, 20));
    assert_eq!(rig.sent_keys().len(), 20);
}

both!(
    c40_a_replay_sends_what_was_missed_and_moves_nothing_of_the_live_job,
    c40_a_replay_of_all_sends_each_row_and_overwrites_nothing,
    a_replay_of_none_records_only,
    a_dry_run_counts_and_writes_nothing,
    c40_a_replay_that_was_killed_goes_on_from_its_own_place,
    a_replay_of_all_that_was_killed_sends_each_row_once,
    c40_a_replay_that_meets_its_page_cap_is_never_complete,
    c03_a_row_that_appears_behind_the_lookback_is_found_by_a_replay_once,
    c05_a_change_under_an_old_version_is_found_by_a_replay,
    c25_a_replay_never_sends_an_older_version_after_a_newer_one,
    c37_a_replay_beside_the_running_job_is_taken_up_and_never_dropped,
    a_sorted_source_that_cannot_be_asked_for_an_end_is_read_to_it,
    a_source_that_can_be_asked_for_an_end_is_asked_step_by_step,
    a_replay_of_keys_keeps_to_them,
    a_replay_asks_no_more_often_than_it_may,
    a_replay_before_the_first_run_leaves_the_baseline_as_it_is,
    a_replay_that_is_cancelled_stops_at_its_next_page,
    a_replay_that_is_stopped_stays_open_and_goes_on,
);
