//! Field cases about processes that are killed and processes side by side, told through the real binary and the
//! whole engine on both databases.

use std::time::Duration;

use onlynew::domain::{clock::machine_time, run::RunStatus};
use serde_json::json;

use crate::{
    both,
    cli::terminate,
    support::{
        database::Database,
        rig::{Job, Rig, page_of},
        server::{Asked, Reply},
    },
};

const C01: [(u32, &str); 5] = [
    (1, "2026-09-21T10:00:00Z"),
    (2, "2026-09-21T10:00:01Z"),
    (3, "2026-09-21T10:00:01Z"),
    (4, "2026-09-21T10:00:02Z"),
    (5, "2026-09-21T10:00:02Z"),
];

async fn c01_the_same_timestamp_on_both_sides_of_a_page_break_and_a_crash(database: Database) {
    let job = Job { rest: "window: {lookback: 60s}", ..Job::default() };
    let hold_page_two = |asked: &Asked| match asked.param("cursor") {
        "" => page_of(&C01[..4], asked, 2),
        _ => Reply::Hold,
    };
    let rig = Rig::new(database, job, hold_page_two).await;
    let mut killed = rig.spawn(&["sync", "rows"]);
    rig.source.wait_until(|asked| asked.len() == 2).await;
    killed.kill().await.unwrap();
    assert_eq!(rig.database.number("(SELECT count(*) FROM record)").await, 2, "page one is committed");
    assert!(!rig.has_watermark().await);

    rig.leases_run_out().await;
    rig.source.now_answers(|asked| page_of(&C01[..4], asked, 2));
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.counts.created, report.counts.unchanged), (RunStatus::Ok, 2, 2));

    rig.source.now_answers(|asked| page_of(&C01, asked, 2));
    let report = rig.sync().await.report;
    assert_eq!((report.counts.created, report.counts.events), (1, 1));
    assert_eq!(rig.sent_keys(), ["1", "2", "3", "4", "5"]);
}

const C02: [(u32, &str); 6] = [
    (1, "2026-09-21T10:00:00Z"),
    (2, "2026-09-21T10:00:01Z"),
    (3, "2026-09-21T10:00:02Z"),
    (4, "2026-09-21T10:00:03Z"),
    (5, "2026-09-21T10:00:04Z"),
    (6, "2026-09-21T10:00:05Z"),
];

/// After the fault: nothing may be missing below the watermark, and a run makes everything good.
async fn c02_made_good(rig: &Rig) {
    if rig.has_watermark().await {
        assert_eq!(rig.database.number("(SELECT count(*) FROM record)").await, 6);
    }
    rig.leases_run_out().await;
    rig.source.now_answers(|asked| page_of(&C02, asked, 2));
    rig.receiver.now_answers(|_| Reply::status(200));
    let synced = rig.sync().await;
    assert_eq!((synced.report.status, synced.pending), (RunStatus::Ok, 0));
    assert_eq!(rig.database.number("(SELECT count(*) FROM record)").await, 6);
    assert_eq!(rig.database.number("(SELECT count(*) FROM event WHERE state = 'delivered')").await, 6);
    assert_eq!(rig.database.number("(SELECT count(DISTINCT event_id) FROM event)").await, 6);
}

/// A rig whose source holds the page with this token until the process is killed.
async fn c02_killed_while_asking_for(database: Database, token: &'static str) -> Rig {
    let rig = Rig::new(database, Job::default(), move |asked| match asked.param("cursor") {
        held if held == token => Reply::Hold,
        _ => page_of(&C02, asked, 2),
    })
    .await;
    let mut killed = rig.spawn(&["sync", "rows"]);
    rig.source.wait_until(|asked| asked.iter().any(|asked| asked.param("cursor") == token)).await;
    killed.kill().await.unwrap();
    rig
}

async fn c02_killed_before_a_page_was_answered(database: Database) {
    let rig = c02_killed_while_asking_for(database, "2").await;
    assert_eq!(rig.database.number("(SELECT count(*) FROM event)").await, 2);
    c02_made_good(&rig).await;
    assert_eq!(rig.sent_keys(), ["1", "2", "3", "4", "5", "6"]);
}

async fn c02_killed_after_a_page_was_committed(database: Database) {
    let rig = c02_killed_while_asking_for(database, "4").await;
    assert_eq!(rig.database.number("(SELECT count(*) FROM event)").await, 4);
    c02_made_good(&rig).await;
    assert_eq!(rig.sent_keys(), ["1", "2", "3", "4", "5", "6"]);
}

async fn c02_killed_in_the_middle_of_deliveries(database: Database) {
    let rig = Rig::new(database, Job::default(), |asked| page_of(&C02, asked, 2)).await;
    rig.receiver
        .now_answers(|asked| if asked.json()["key"] == "3" { Reply::Hold } else { Reply::status(200) });
    let mut killed = rig.spawn(&["sync", "rows"]);
    rig.receiver.wait_until(|asked| asked.iter().any(|asked| asked.json()["key"] == "3")).await;
    killed.kill().await.unwrap();
    assert!(rig.has_watermark().await, "the run itself was complete");
    c02_made_good(&rig).await;
    let of_three: Vec<Asked> =
        rig.receiver.asked().into_iter().filter(|asked| asked.json()["key"] == "3").collect();
    assert_eq!(of_three.len(), 2, "the lost answer is asked for again");
    assert_eq!(of_three[0].body, of_three[1].body);
    assert_eq!(of_three[0].header("idempotency-key"), of_three[1].header("idempotency-key"));
}

/// A process that is killed in the middle of a transaction, while the database is at work on what meets `condition`.
async fn c02_killed_at(database: Database, table: &str, operation: &str, condition: &str) {
    let rig = Rig::new(database, Job::default(), |asked| page_of(&C02, asked, 2)).await;
    drop(rig.database.open().await);
    rig.database.stall_on(table, operation, condition).await;
    let mut killed = rig.spawn(&["sync", "rows"]);
    let pages = if table == "progress" { 3 } else { 2 };
    rig.source.wait_until(|asked| asked.len() == pages).await;
    // Once it has its answer it is at the stalled statement in no time; earlier is only another moment of these.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(killed.try_wait().unwrap().is_none(), "it stands still there");
    killed.kill().await.unwrap();
    rig.database.mend(table).await;
    let committed = i64::try_from(pages - 1).unwrap() * 2 + if table == "progress" { 2 } else { 0 };
    assert_eq!(rig.database.number("(SELECT count(*) FROM record)").await, committed);
    assert_eq!(rig.database.number("(SELECT count(*) FROM event)").await, committed);
    assert!(!rig.has_watermark().await);
    c02_made_good(&rig).await;
    assert_eq!(rig.sent_keys(), ["1", "2", "3", "4", "5", "6"]);
}

async fn c02_killed_after_a_page_was_fetched(database: Database) {
    c02_killed_at(database, "record", "INSERT", "NEW.key = '3'").await;
}

async fn c02_killed_after_the_upsert_of_a_row(database: Database) {
    c02_killed_at(database, "record", "UPDATE", "NEW.key = '4'").await;
}

async fn c02_killed_after_an_event_was_stored(database: Database) {
    c02_killed_at(database, "event", "INSERT", "NEW.key = '4'").await;
}

async fn c02_killed_when_the_watermark_is_written(database: Database) {
    c02_killed_at(database, "progress", "UPDATE", "NEW.watermark IS NOT NULL").await;
}

/// A fault of the database itself in the middle of page two's transaction, or of the run's end.
async fn c02_fault(database: Database, table: &str, operation: &str, condition: &str) {
    let rig = Rig::new(database, Job::default(), |asked| page_of(&C02, asked, 2)).await;
    drop(rig.database.open().await);
    rig.database.break_on(table, operation, condition).await;
    let synced = rig.sync().await;
    assert_eq!(synced.report.status, RunStatus::Failed);
    assert!(
        synced.report.reason.as_ref().unwrap().contains("broken by the test"),
        "{:?}",
        synced.report.reason
    );
    assert!(!rig.has_watermark().await);
    rig.database.mend(table).await;
    c02_made_good(&rig).await;
    assert_eq!(rig.sent_keys(), ["1", "2", "3", "4", "5", "6"]);
}

async fn c02_a_fault_after_the_upsert_of_a_row(database: Database) {
    c02_fault(database, "record", "UPDATE", "NEW.key = '4'").await;
}

async fn c02_a_fault_after_an_event_was_stored(database: Database) {
    c02_fault(database, "event", "INSERT", "NEW.key = '4'").await;
}

async fn c02_a_fault_when_the_watermark_is_written(database: Database) {
    c02_fault(database, "progress", "UPDATE", "NEW.watermark IS NOT NULL").await;
}

/// Runs of the job that were under way at once, by the database's clock.
const AT_ONCE: &str = "(SELECT count(*) FROM run AS a JOIN run AS b
    ON a.id < b.id AND (a.ended_at IS NULL OR b.started_at < a.ended_at))";

/// What a run takes that is due every second.
const LONG: Duration = Duration::from_millis(2_500);

async fn c37_a_run_longer_than_its_interval_never_runs_twice_at_once(database: Database) {
    let is_shared = database.url().starts_with("postgres");
    let slow = |asked: &Asked| Reply::Slow(LONG, Box::new(page_of(&C02, asked, 10)));
    let rig = Rig::new(database, Job::default(), slow).await;
    let first = rig.spawn(&["--log", "json", "run"]);
    // SQLite is for one `run` alone; other commands work beside it.
    let second = is_shared.then(|| rig.spawn(&["--log", "json", "run"]));
    rig.source.wait_until(|asked| !asked.is_empty()).await;
    let (code, line, _) = rig.command(&["sync", "rows", "--json"]).await;
    assert_eq!((code, &line["status"]), (3, &json!("skipped")), "a run by hand is refused, not dropped");
    rig.source.wait_until(|asked| asked.len() == 3).await;
    let mut told = String::new();
    let processes: Vec<_> = [Some(first), second].into_iter().flatten().collect();
    processes.iter().for_each(terminate);
    for process in processes {
        let output = process.wait_with_output().await.unwrap();
        assert!(output.status.success());
        told.push_str(str::from_utf8(&output.stderr).unwrap());
    }
    assert_eq!(rig.database.number(AT_ONCE).await, 0);
    assert_eq!(
        rig.database.number("(SELECT count(*) FROM run WHERE status = 'ok')").await,
        3,
        "the last page of the third was under way, and ended it"
    );
    assert_eq!(rig.sent_keys(), ["1", "2", "3", "4", "5", "6"]);
    // Of the two or three instants that pass during a run the last is made good, and the others are counted.
    assert!(told.contains(r#""skipped_overlap":1"#) || told.contains(r#""skipped_overlap":2"#), "{told}");
}

async fn c37_a_killed_run_is_followed_by_the_next_when_its_lease_ends(database: Database) {
    let rig = Rig::new(database, Job::default(), |_| Reply::Hold).await;
    let mut killed = rig.spawn(&["run"]);
    rig.source.wait_until(|asked| asked.len() == 1).await;
    killed.kill().await.unwrap();
    // Half a minute is what a lease lasts; two seconds do as well.
    let until = machine_time().plus(Duration::from_secs(2)).micros();
    rig.database.tamper(&format!("UPDATE job SET lease_until = {until}")).await;

    rig.source.now_answers(|asked| page_of(&C02, asked, 10));
    let mut next = rig.spawn(&["run"]);
    rig.receiver.wait_until(|asked| asked.len() == 6).await;
    terminate(&next);
    assert!(next.wait().await.unwrap().success());
    assert!(rig.database.number("(SELECT min(started_at) FROM run WHERE status = 'ok')").await >= until);
    assert_eq!(rig.database.texts("SELECT reason FROM run ORDER BY id LIMIT 1").await, ["interrupted"]);
    assert_eq!(rig.sent_keys(), ["1", "2", "3", "4", "5", "6"]);
}

both!(
    c01_the_same_timestamp_on_both_sides_of_a_page_break_and_a_crash,
    c02_killed_before_a_page_was_answered,
    c02_killed_after_a_page_was_committed,
    c02_killed_in_the_middle_of_deliveries,
    c02_killed_after_a_page_was_fetched,
    c02_killed_after_the_upsert_of_a_row,
    c02_killed_after_an_event_was_stored,
    c02_killed_when_the_watermark_is_written,
    c02_a_fault_after_the_upsert_of_a_row,
    c02_a_fault_after_an_event_was_stored,
    c02_a_fault_when_the_watermark_is_written,
    c37_a_run_longer_than_its_interval_never_runs_twice_at_once,
    c37_a_killed_run_is_followed_by_the_next_when_its_lease_ends,
);
