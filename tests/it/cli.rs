//! The command line's contracts, by the real binary.

use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::{
    both,
    support::{
        database::Database,
        rig::{Job, Rig, page_of},
        server::Reply,
    },
};

const ROWS: [(u32, &str); 2] = [(1, "2026-09-21T10:00:00Z"), (2, "2026-09-21T10:00:01Z")];

/// Asks a process to stop.
pub fn terminate(child: &Child) {
    let id = child.id().unwrap().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
}

#[tokio::test]
async fn the_demo_ends_well_by_its_own_check() {
    let demo =
        Command::new(env!("CARGO_BIN_EXE_onlynew")).args(["demo", "--for", "3s"]).output().await.unwrap();
    let told = String::from_utf8(demo.stdout).unwrap();
    assert_eq!(demo.status.code(), Some(0), "{told}");
    let made: u32 = told.lines().last().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    assert!(
        made > 12 && told.contains(&format!("check: {made} changes made, {made} arrived: each once")),
        "{told}"
    );
    assert!(!told.contains(" 0 requests") && !told.contains(" 0 runs"), "{told}");

    let wrong =
        Command::new(env!("CARGO_BIN_EXE_onlynew")).args(["demo", "--for", "soon"]).output().await.unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8(wrong.stderr).unwrap().contains("like 90s or 5m"));
}

async fn sync_answers_with_one_line_of_json(database: Database) {
    let rig = Rig::new(database, Job::default(), |asked| page_of(&ROWS, asked, 1)).await;
    let (code, line, _) = rig.command(&["sync", "rows", "--json"]).await;
    let expected = json!({
        "job": "rows", "run": 1, "status": "ok", "kind": "live", "requests": 2, "pages": 2, "records": 2,
        "created": 2, "updated": 0, "deleted": 0, "restored": 0, "unchanged": 0, "stale": 0, "quarantined": 0,
        "events": 2, "delivered": 2, "pending": 0, "dead": 0, "watermark": "2026-09-21T10:00:01Z", "reason": null,
    });
    assert_eq!((code, line), (0, expected));

    rig.receiver.now_answers(|_| Reply::status(500));
    rig.source.now_answers(|asked| page_of(&[(3, "2026-09-21T10:00:02Z")], asked, 10));
    let (code, line, _) = rig.command(&["sync", "rows", "--json"]).await;
    assert_eq!((code, &line["status"], &line["pending"]), (3, &json!("ok"), &json!(1)));

    rig.source.now_answers(|_| Reply::status(401));
    let (code, line, _) = rig.command(&["sync", "rows", "--json"]).await;
    assert_eq!((code, &line["status"]), (1, &json!("failed")));
    assert!(line["reason"].as_str().unwrap().contains("401"), "{line}");
    assert_eq!(line["watermark"], "2026-09-21T10:00:02Z");
}

async fn c03_a_warning_of_the_jobs_file_is_told_and_changes_no_exit_code(database: Database) {
    let job = Job { rest: "window: {lookback: 0s}", ..Job::default() };
    let rig = Rig::new(database, job, |asked| page_of(&ROWS, asked, 10)).await;
    let told = "with a lookback of 0 a row that shows up late at the source is never met";
    let (code, checked, errors) = rig.command(&["check", "--json"]).await;
    assert_eq!((code, &checked["ok"], errors.as_str()), (0, &json!(true), ""));
    assert!(checked["warnings"][0].as_str().unwrap().contains(told), "{checked}");
    let output = rig.spawn(&["check"]).wait_with_output().await.unwrap();
    assert!(str::from_utf8(&output.stdout).unwrap().contains("warning: ") && output.status.success());
    let (code, line, errors) = rig.command(&["sync", "rows", "--json"]).await;
    assert_eq!((code, &line["events"], errors.matches(told).count()), (0, &json!(2), 1), "{errors}");
    let running = rig.spawn(&["run"]);
    rig.source.wait_until(|asked| asked.len() == 2).await;
    terminate(&running);
    let errors = String::from_utf8(running.wait_with_output().await.unwrap().stderr).unwrap();
    assert_eq!(errors.matches(told).count(), 1, "{errors}");
}

async fn a_second_run_of_a_job_is_skipped_while_the_first_is_under_way(database: Database) {
    let rig = Rig::new(database, Job::default(), |_| Reply::Hold).await;
    let mut first = rig.spawn(&["sync", "rows"]);
    rig.source.wait_until(|asked| asked.len() == 1).await;
    let (code, line, _) = rig.command(&["sync", "rows", "--json"]).await;
    assert_eq!((code, &line["status"], &line["run"]), (3, &json!("skipped"), &Value::Null));
    assert_eq!(rig.source.asked().len(), 1);
    first.kill().await.unwrap();
}

async fn sigterm_ends_a_run_cleanly(database: Database) {
    let rig = Rig::new(database, Job::default(), |asked| page_of(&ROWS, asked, 10)).await;
    let mut running = rig.spawn(&["run"]);
    rig.receiver.wait_until(|asked| asked.len() == 2).await;
    terminate(&running);
    assert_eq!(running.wait().await.unwrap().code(), Some(0));
    assert_eq!(rig.database.number("(SELECT count(*) FROM job WHERE lease_until IS NOT NULL)").await, 0);
    let (code, line, _) = rig.command(&["sync", "rows", "--json"]).await;
    assert_eq!(
        (code, &line["events"], &line["unchanged"]),
        (0, &json!(0), &json!(2)),
        "the lease was let go"
    );
}

async fn a_scheduled_job_polls_again_and_again_and_sends_each_change_once(database: Database) {
    let rig = Rig::new(database, Job::default(), |asked| page_of(&ROWS, asked, 10)).await;
    let mut running = rig.spawn(&["run"]);
    rig.source.wait_until(|asked| asked.len() == 3).await;
    terminate(&running);
    assert_eq!(running.wait().await.unwrap().code(), Some(0));
    assert_eq!(rig.sent_keys(), ["1", "2"]);
    assert!(rig.database.number("(SELECT count(*) FROM run WHERE status = 'ok')").await >= 2);
}

async fn plan_tells_the_fires_and_the_window(database: Database) {
    let job = Job { rest: "window: {lookback: 10m, settle: 30s}", ..Job::default() };
    let rig = Rig::new(database, job, |asked| page_of(&ROWS, asked, 10)).await;
    let plan = ["plan", "rows", "--at", "2026-11-30T10:00:00.5Z", "--fires", "2", "--json"];
    let (code, line, _) = rig.command(&plan).await;
    assert_eq!((code, &line["fires"]), (0, &json!(["2026-11-30T10:00:01Z", "2026-11-30T10:00:02Z"])));
    assert_eq!(line["window"], json!({"from": null, "to": "2026-11-30T09:59:30.5Z"}));
    rig.command(&["sync", "rows"]).await;
    let (_, line, _) = rig.command(&plan).await;
    assert_eq!(line["window"]["from"], "2026-09-21T09:50:00Z");
}

async fn status_and_state_tell_what_is_kept(database: Database) {
    let rig = Rig::new(database, Job::default(), |asked| page_of(&ROWS, asked, 10)).await;
    let (code, line, _) = rig.command(&["status", "--json"]).await;
    assert_eq!((code, &line["jobs"][0]["last_run"]), (0, &Value::Null));
    let (code, _, error) = rig.command(&["state", "show", "rows"]).await;
    assert_eq!(code, 2);
    assert!(error.contains("has never run"), "{error}");

    rig.command(&["sync", "rows"]).await;
    let (_, line, _) = rig.command(&["status", "--json"]).await;
    let job = &line["jobs"][0];
    assert_eq!(
        (&job["last_run"]["status"], &job["delivered"], &job["pending"]),
        (&json!("ok"), &json!(2), &json!(0))
    );
    let (_, line, _) = rig.command(&["state", "show", "rows", "--json"]).await;
    assert_eq!((&line["watermark"], &line["records"]), (&json!("2026-09-21T10:00:01Z"), &json!(2)));
}

async fn a_wrong_jobs_file_starts_nothing(database: Database) {
    let rig = Rig::new(database, Job::default(), |asked| page_of(&ROWS, asked, 10)).await;
    rig.configure(Job { rest: "chanegs: {}\n    windows: {}", ..Job::default() });
    for command in [&["check"][..], &["run"], &["sync", "rows"], &["plan", "rows"], &["status"]] {
        let (code, _, error) = rig.command(command).await;
        assert_eq!(code, 2, "{command:?}: {error}");
        assert!(error.contains("chanegs") && error.contains("windows"), "all errors at once: {error}");
    }
    let (code, answer, _) = rig.command(&["check", "--json"]).await;
    assert_eq!((code, &answer["ok"], answer["errors"].as_array().map(Vec::len)), (2, &json!(false), Some(2)));
    assert!(rig.source.asked().is_empty());
    let (code, _, error) = rig.command(&["sync", "row"]).await;
    assert_eq!(code, 2, "{error}");
}

both!(
    sync_answers_with_one_line_of_json,
    a_second_run_of_a_job_is_skipped_while_the_first_is_under_way,
    c03_a_warning_of_the_jobs_file_is_told_and_changes_no_exit_code,
    sigterm_ends_a_run_cleanly,
    a_scheduled_job_polls_again_and_again_and_sends_each_change_once,
    plan_tells_the_fires_and_the_window,
    status_and_state_tell_what_is_kept,
    a_wrong_jobs_file_starts_nothing,
);

#[test]
fn init_writes_a_jobs_file_that_is_good_and_overwrites_none() {
    let folder = tempfile::tempdir().unwrap();
    let onlynew = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_onlynew"));
        command.current_dir(folder.path()).env("GITHUB_TOKEN", "t").args(arguments).output().unwrap()
    };
    assert!(onlynew(&["init"]).status.success());
    let checked = onlynew(&["check"]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let again = onlynew(&["init"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&again.stderr).contains("left as it is"));
}

#[test]
fn connectors_are_listed_and_shown() {
    let onlynew = |arguments: &[&str]| {
        std::process::Command::new(env!("CARGO_BIN_EXE_onlynew")).args(arguments).output().unwrap()
    };
    let listed = String::from_utf8(onlynew(&["connectors", "list"]).stdout).unwrap();
    assert!(
        listed.contains("github") && listed.contains("stripe") && listed.contains("customers"),
        "{listed}"
    );
    let shown = onlynew(&["connectors", "show", "stripe"]);
    assert!(String::from_utf8(shown.stdout).unwrap().contains("/customers"));
    assert_eq!(onlynew(&["connectors", "show", "strip"]).status.code(), Some(2));
}
