//! Field case C40, edits: a job that is edited between two polls loses nothing and floods nobody, and goes on under
//! another name.

use std::sync::{Arc, Mutex};

use onlynew::{config, domain::run::RunStatus};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio_util::sync::CancellationToken;

use crate::{
    both,
    support::{
        database::Database,
        rig::{Job, Rig, page_of},
        server::Reply,
    },
};

pub type Rows = Arc<Mutex<Vec<(u32, &'static str)>>>;

/// A rig that has sent two rows, the rows of its source, and its watermark.
pub async fn story(database: Database) -> (Rig, Rows, String) {
    let rows: Rows = Arc::new(Mutex::new(vec![(1, "2026-09-21T10:00:00Z"), (2, "2026-09-21T10:00:01Z")]));
    let shown = Arc::clone(&rows);
    let rig =
        Rig::new(database, Job::default(), move |asked| page_of(&shown.lock().unwrap(), asked, 2)).await;
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.counts.events), (RunStatus::Ok, 2), "{:?}", report.reason);
    let watermark = watermark(&rig).await;
    (rig, rows, watermark)
}

async fn watermark(rig: &Rig) -> String {
    rig.database
        .texts("SELECT CAST(watermark AS TEXT) FROM progress WHERE watermark IS NOT NULL")
        .await
        .concat()
}

/// All that is stored of jobs but who holds them and when they ran.
async fn kept(rig: &Rig) -> Vec<String> {
    let mut kept = Vec::new();
    for statement in [
        "SELECT name || uid || coalesce(identity, '-') FROM job ORDER BY id",
        "SELECT key || CAST(version AS TEXT) || CAST(sequence AS TEXT) FROM record ORDER BY job, key",
        "SELECT CAST(watermark AS TEXT) || CAST(complete_through AS TEXT) || CAST(failures AS TEXT) FROM progress",
        "SELECT event_id || state FROM event ORDER BY position",
        "SELECT CAST(id AS TEXT) || status FROM run ORDER BY id",
    ] {
        kept.extend(rig.database.texts(statement).await);
    }
    kept
}

pub async fn verified(rig: &Rig) {
    let store = rig.database.open().await;
    for checked in store.verify().await.unwrap() {
        assert!(checked.found.is_empty(), "{}: {:?}", checked.check.name, checked.found);
    }
    store.close().await;
}

async fn c40_an_edit_that_changes_no_meaning_keeps_the_watermark_and_the_row_in_between_arrives_once(
    database: Database,
) {
    let (rig, rows, before) = story(database).await;
    rows.lock().unwrap().push((3, "2026-09-21T10:00:02Z"));
    rig.configure(Job {
        query: r#"{since: "{{ window.start }}", cursor: "{{ page.token }}", per_page: "50"}"#,
        source: "incremental: {field: $.updated_at}\n      name: others",
        rest: "window: {lookback: 1h}\n    changes: {detect: either}",
        ..Job::default()
    });
    rig.configure_every("7m");
    for (events, sent) in [(1, 3), (0, 3)] {
        let report = rig.sync().await.report;
        assert_eq!((report.status, report.counts.events), (RunStatus::Ok, events), "{:?}", report.reason);
        assert_eq!(rig.sent_keys().len(), sent);
    }
    assert!(watermark(&rig).await > before);
    assert_eq!(rig.sent_keys(), ["1", "2", "3"]);
    verified(&rig).await;
}

async fn c40_another_key_version_or_endpoint_asks_and_nothing_is_read_until_it_is_taken_back(
    database: Database,
) {
    let (rig, rows, before) = story(database).await;
    rows.lock().unwrap().push((3, "2026-09-21T10:00:02Z"));
    let (asked, stored) = (rig.source.asked().len(), kept(&rig).await);
    for (from, to, part) in [
        ("primary_key: [id]", "primary_key: [id, updated_at]", "primary_key"),
        ("{field: updated_at}", "{field: created_at}", "incremental.field"),
        ("path: /rows", "path: /other", "request.path"),
        ("records: {path: $.items}", "records: {path: $.items, filter: 'record.id > 1'}", "records.filter"),
    ] {
        rig.rewrite(from, to);
        let report = rig.sync().await.report;
        let reason = report.reason.unwrap();
        assert_eq!((report.status, report.run), (RunStatus::Asks, None), "{reason}");
        for told in [part, "onlynew accept rows baseline", "onlynew accept rows emit", "take the edit back"] {
            assert!(reason.contains(told), "{told}: {reason}");
        }
        assert_eq!(kept(&rig).await, stored, "{part}");
        rig.rewrite(to, from);
    }
    assert_eq!((rig.source.asked().len(), watermark(&rig).await), (asked, before));
    assert_eq!(rig.sync().await.report.counts.events, 1);
    assert_eq!(rig.sent_keys(), ["1", "2", "3"]);
}

async fn every_command_says_what_an_edited_job_asks(database: Database) {
    let (rig, _, _) = story(database).await;
    let edited = json!(["primary_key"]);
    let (_, plan, _) = rig.command(&["plan", "rows", "--json"]).await;
    assert_eq!(plan["edited"], Value::Null);
    let (code, answer, _) = rig.command(&["accept", "rows", "baseline", "--json"]).await;
    assert_eq!(code, 2);
    assert!(answer["error"].as_str().unwrap().contains("--anyway"), "{answer}");

    rig.rewrite("primary_key: [id]", "primary_key: [updated_at]");
    let (code, synced, _) = rig.command(&["sync", "rows", "--json"]).await;
    assert_eq!((code, &synced["status"], &synced["run"]), (1, &json!("asks"), &Value::Null));
    let (_, plan, _) = rig.command(&["plan", "rows", "--json"]).await;
    let (_, status, _) = rig.command(&["status", "--json"]).await;
    let (_, state, _) = rig.command(&["state", "show", "rows", "--json"]).await;
    assert_eq!([&plan["edited"], &status["jobs"][0]["edited"], &state["edited"]], [&edited; 3]);
    rig.database.tamper("UPDATE job SET lease_owner = 'another', lease_until = 9000000000000000").await;
    let (code, answer, _) = rig.command(&["accept", "rows", "emit", "--json"]).await;
    assert_eq!((code, &answer["outcome"]), (1, &json!("busy")));
    assert_eq!(rig.command(&["accept", "row", "emit"]).await.0, 2);
    assert_eq!(rig.command(&["accept", "rows", "keep", "--anyway"]).await.0, 2);
}

async fn a_record_that_could_not_be_read_is_not_accepted_while_the_job_asks(database: Database) {
    let broken = r#"{"items": [{"id": 1, "updated_at": 1789984800}]}"#;
    let iso = Job {
        query: "{}",
        pagination: "{type: none}",
        source: "incremental: {field: updated_at, format: iso8601}",
        rest: "",
    };
    let rig = Rig::new(database, iso, move |_| Reply::Json(broken.to_owned())).await;
    rig.sync().await;
    let (_, listed, _) = rig.command(&["quarantine", "list", "rows", "--json"]).await;
    let id = listed["records"][0]["id"].as_str().unwrap();
    rig.rewrite("format: iso8601", "format: auto");
    let accept = ["quarantine", "accept", "rows", id, "--json"];
    let (code, answer, _) = rig.command(&accept).await;
    assert_eq!((code, &answer["outcome"]), (1, &json!("asks")));
    let (code, answer, _) = rig.command(&["accept", "rows", "keep", "--json"]).await;
    assert_eq!(
        (code, &answer["outcome"], &answer["edited"]),
        (0, &json!("kept"), &json!(["incremental.format"]))
    );
    let (code, answer, _) = rig.command(&accept).await;
    assert_eq!((code, &answer["outcome"]), (0, &json!("decided")));
}

async fn accepted_as_a_baseline_what_stands_is_silent_and_what_is_newer_is_sent(database: Database) {
    let (rig, rows, _) = story(database).await;
    let events = rig.database.texts("SELECT event_id FROM event ORDER BY position").await;
    rig.rewrite("primary_key: [id]", "primary_key: [id, updated_at]");
    rows.lock().unwrap().push((3, "2026-09-21T10:00:02Z"));
    let (code, answer, _) = rig.command(&["accept", "rows", "baseline", "--json"]).await;
    assert_eq!((code, &answer["outcome"], &answer["forgotten"]["records"]), (0, &json!("begun"), &json!(2)));
    assert_eq!((answer["edited"].clone(), watermark(&rig).await), (json!(["primary_key"]), String::new()));
    let counts = rig.sync().await.report.counts;
    assert_eq!((counts.created, counts.events), (3, 0));
    rows.lock().unwrap().push((4, "2099-09-21T10:00:03Z"));
    assert_eq!(rig.sync().await.report.counts.events, 1);
    assert_eq!(rig.sync().await.report.counts.events, 0);
    assert_eq!(rig.database.texts("SELECT event_id FROM event ORDER BY position").await[..2], events);
    assert_eq!(rig.database.number("(SELECT count(*) FROM run)").await, 4, "runs stay");
    verified(&rig).await;
}

async fn a_process_that_waits_for_an_answer_goes_on_once_it_is_given(database: Database) {
    let (rig, _, _) = story(database).await;
    rig.rewrite("path: /rows", "path: /other");
    let mut process = rig.spawn(&["run"]);
    let mut log = BufReader::new(process.stderr.take().unwrap()).lines();
    while !log.next_line().await.unwrap().expect("it goes on").contains("onlynew accept rows baseline") {}
    assert_eq!(rig.command(&["accept", "rows", "emit"]).await.0, 0);
    rig.receiver.wait_until(|asked| asked.len() == 4).await;
    assert_eq!(rig.sent_keys(), ["1", "1", "2", "2"]);
}

async fn a_process_with_the_file_from_before_asks_once_the_edit_is_accepted(database: Database) {
    let (rig, _, _) = story(database).await;
    let before = rig.app().await;
    rig.rewrite("path: /rows", "path: /other");
    assert_eq!(rig.command(&["accept", "rows", "baseline"]).await.0, 0);
    assert_eq!(rig.sync().await.report.status, RunStatus::Ok);
    let stored = kept(&rig).await;
    let job = Arc::clone(&before.config.jobs["rows"]);
    let report = before.sync(&job, &CancellationToken::new()).await.unwrap().report;
    assert_eq!(report.status, RunStatus::Asks);
    assert_eq!(kept(&rig).await, stored);
}

async fn accepted_to_emit_everything_is_sent_under_new_ids_behind_what_waits(database: Database) {
    let (rig, rows, _) = story(database).await;
    rig.rewrite("delays: [50ms]", "delays: [1h]");
    rig.receiver.now_answers(|_| Reply::status(500));
    rows.lock().unwrap()[0] = (1, "2026-09-21T10:00:05Z");
    assert_eq!(rig.sync().await.pending, 1);
    let sent = rig.sent().len();

    rig.rewrite("{field: updated_at}", "{field: updated_at, format: iso8601}");
    let (code, answer, _) = rig.command(&["accept", "rows", "emit", "--json"]).await;
    assert_eq!((code, &answer["pending"]), (0, &json!(1)));
    assert_eq!(rig.sync().await.report.counts.events, 2);
    verified(&rig).await;
    rig.receiver.now_answers(|_| Reply::status(200));
    rig.database.tamper("UPDATE outbox_head SET due_at = 0").await;
    rig.database.tamper("UPDATE destination SET not_before = NULL").await;
    assert_eq!(rig.sync().await.pending, 0);
    let of_one: Vec<_> =
        rig.sent()[sent..].iter().filter(|(key, _)| key == "1").map(|(_, kind)| kind.clone()).collect();
    let order: Vec<_> = of_one.into_iter().skip_while(|kind| kind != "record.created").collect();
    assert_eq!(order, ["record.created"], "what waited went before it");
    let ids = rig.database.number("(SELECT count(DISTINCT event_id) FROM event)").await;
    assert_eq!(
        (ids, rig.database.number("(SELECT count(*) FROM event WHERE state = 'delivered')").await),
        (5, 5)
    );
    verified(&rig).await;
}

async fn a_job_begins_anew_without_an_edit_only_on_a_persons_word(database: Database) {
    let (rig, _, _) = story(database).await;
    let stored = kept(&rig).await;
    for answer in ["baseline", "emit", "keep"] {
        assert_eq!(rig.command(&["accept", "rows", answer]).await.0, 2);
    }
    assert_eq!(kept(&rig).await, stored);
    let (code, answer, _) = rig.command(&["accept", "rows", "emit", "--anyway", "--json"]).await;
    assert_eq!((code, &answer["edited"]), (0, &Value::Null));
    assert_eq!(rig.sync().await.report.counts.events, 2);
    assert_eq!(rig.sent_keys(), ["1", "1", "2", "2"]);
    verified(&rig).await;
}

async fn a_job_of_which_nothing_is_stored_yet_can_be_put_right_without_a_question(database: Database) {
    let rig = Rig::new(database, Job::default(), |_| Reply::status(404)).await;
    assert_eq!(rig.sync().await.report.status, RunStatus::Failed);
    rig.rewrite("path: /rows", "path: /right");
    rig.source.now_answers(|asked| page_of(&[(1, "2026-09-21T10:00:00Z")], asked, 2));
    assert_eq!(rig.sync().await.report.status, RunStatus::Ok);
    rig.rewrite("path: /right", "path: /rows");
    assert_eq!(rig.sync().await.report.status, RunStatus::Asks, "by now something is");
}

async fn a_job_from_before_identities_were_kept_goes_on_and_keeps_its_own(database: Database) {
    let (rig, _, before) = story(database).await;
    rig.database.tamper("UPDATE job SET identity = NULL").await;
    assert_eq!(rig.sync().await.report.status, RunStatus::Ok);
    assert_eq!(watermark(&rig).await, before);
    rig.rewrite("path: /rows", "path: /other");
    assert_eq!(rig.sync().await.report.status, RunStatus::Asks);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_new_beginning_takes_as_long_as_it_takes() {
    let Some(database) = Database::postgres().await else { return };
    let (rig, _, _) = story(database).await;
    rig.rewrite("path: /rows", "path: /other");
    rig.database.break_on("record", "DELETE", "current_setting('statement_timeout') <> '0'").await;
    assert_eq!(rig.command(&["accept", "rows", "emit"]).await.0, 0);
}

async fn a_new_beginning_is_whole_or_nothing(database: Database) {
    let (rig, _, _) = story(database).await;
    let stored = kept(&rig).await;
    rig.rewrite("path: /rows", "path: /other");
    rig.database.break_on("job", "UPDATE", "NEW.begun_behind > 0").await;
    assert_eq!(rig.command(&["accept", "rows", "emit"]).await.0, 1);
    assert_eq!(kept(&rig).await, stored);
    rig.database.mend("job").await;
    assert_eq!(rig.command(&["accept", "rows", "emit"]).await.0, 0);
}

async fn a_job_goes_on_under_another_name(database: Database) {
    let (rig, rows, before) = story(database).await;
    rig.rewrite("delays: [50ms]", "delays: [1h]");
    rig.receiver.now_answers(|_| Reply::status(500));
    rows.lock().unwrap()[0] = (1, "2026-09-21T10:00:05Z");
    assert_eq!(rig.sync().await.pending, 1);
    rig.rewrite("  rows:\n", "  orders:\n    renamed_from: rows\n");
    let uid = rig.database.texts("SELECT uid FROM job").await;
    let (code, status, _) = rig.command(&["status", "--json"]).await;
    assert_eq!(
        (code, &status["jobs"][0]["job"], &status["jobs"][0]["pending"]),
        (0, &json!("orders"), &json!(1))
    );
    rows.lock().unwrap().push((3, "2026-09-21T10:00:06Z"));
    rig.receiver.now_answers(|_| Reply::status(200));
    rig.database.tamper("UPDATE outbox_head SET due_at = 0").await;
    for events in [1, 0] {
        let (_, synced, _) = rig.command(&["sync", "orders", "--json"]).await;
        assert_eq!((&synced["events"], &synced["status"]), (&json!(events), &json!("ok")), "{synced}");
    }
    assert_eq!(rig.database.texts("SELECT uid FROM job").await, uid, "one row, the same");
    assert!(watermark(&rig).await > before);
    // Where both names have a row, the key says nothing.
    drop(rig.database.open().await.register_job("rows", None).await.unwrap());
    assert_eq!(rig.command(&["sync", "orders"]).await.0, 0);
    assert_eq!(rig.database.number("(SELECT count(*) FROM job)").await, 2);
    verified(&rig).await;
}

async fn a_run_under_way_goes_on_while_its_job_is_renamed(database: Database) {
    let (rig, _, _) = story(database).await;
    let store = rig.database.open().await;
    let row = store.find_job("rows").await.unwrap().unwrap();
    let lease = store.lease_job(row.id, "worker", std::time::Duration::from_mins(10)).await.unwrap().unwrap();
    let (code, _, _) = rig.command(&["state", "rename", "rows", "orders", "--json"]).await;
    assert_eq!(code, 1, "not by hand");
    rig.rewrite("  rows:\n", "  orders:\n    renamed_from: rows\n");
    let (_, synced, _) = rig.command(&["sync", "orders", "--json"]).await;
    assert_eq!(synced["status"], json!("skipped"), "it waits for the run that holds it");
    assert!(store.open_progress(&lease, false).await.is_ok());
    assert!(store.find_job("rows").await.unwrap().is_none());
}

async fn a_command_that_only_looks_renames_nothing_and_says_what_will_be(database: Database) {
    let (rig, _, before) = story(database).await;
    rig.rewrite("  rows:\n", "  orders:\n    renamed_from: rows\n");
    for arguments in
        [&["verify"][..], &["status"], &["plan", "orders"], &["why", "orders", "1"], &["outbox", "list"]]
    {
        let (_, _, told) = rig.command(arguments).await;
        assert!(told.contains("what is kept of `rows` is taken over by `orders`"), "{arguments:?}: {told}");
        assert_eq!(rig.database.texts("SELECT name FROM job").await, ["rows"], "{arguments:?}");
    }
    let (code, synced, told) = rig.command(&["sync", "orders", "--json"]).await;
    assert_eq!((code, &synced["unchanged"]), (0, &json!(2)), "{synced} {told}");
    assert_eq!(rig.database.texts("SELECT name FROM job").await, ["orders"]);
    assert_eq!(watermark(&rig).await, before);
}

async fn a_job_is_renamed_by_hand(database: Database) {
    let (rig, _, _) = story(database).await;
    for (wrong, code) in [(["rows", "rows"], 2), (["other", "rows"], 2), (["other", "another"], 2)] {
        assert_eq!(rig.command(&["state", "rename", wrong[0], wrong[1]]).await.0, code, "{wrong:?}");
    }
    assert_eq!(rig.command(&["state", "rename", "rows", "orders"]).await.0, 0);
    rig.rewrite("  rows:\n", "  orders:\n");
    let (_, synced, _) = rig.command(&["sync", "orders", "--json"]).await;
    assert_eq!((&synced["events"], &synced["unchanged"]), (&json!(0), &json!(2)), "{synced}");
}

both!(
    c40_an_edit_that_changes_no_meaning_keeps_the_watermark_and_the_row_in_between_arrives_once,
    c40_another_key_version_or_endpoint_asks_and_nothing_is_read_until_it_is_taken_back,
    every_command_says_what_an_edited_job_asks,
    a_record_that_could_not_be_read_is_not_accepted_while_the_job_asks,
    accepted_as_a_baseline_what_stands_is_silent_and_what_is_newer_is_sent,
    a_process_that_waits_for_an_answer_goes_on_once_it_is_given,
    a_process_with_the_file_from_before_asks_once_the_edit_is_accepted,
    accepted_to_emit_everything_is_sent_under_new_ids_behind_what_waits,
    a_job_begins_anew_without_an_edit_only_on_a_persons_word,
    a_job_of_which_nothing_is_stored_yet_can_be_put_right_without_a_question,
    a_job_from_before_identities_were_kept_goes_on_and_keeps_its_own,
    a_new_beginning_is_whole_or_nothing,
    a_job_goes_on_under_another_name,
    a_run_under_way_goes_on_while_its_job_is_renamed,
    a_command_that_only_looks_renames_nothing_and_says_what_will_be,
    a_job_is_renamed_by_hand,
);

const BEFORE: &str = r#"
destinations: {n8n: {url: "http://localhost/webhook/x"}}
jobs:
  rows:
    source:
      base_url: "https://api.example.com"
      inputs: {team: {}, size: {type: integer}}
      request: {path: "/{{ inputs.team }}/rows", query: {since: "{{ window.start }}", until: "{{ window.end }}"}}
      records: {path: $.items}
      primary_key: [id]
      key_type: loose
      incremental: {field: updated_at, format: iso8601, timezone: Europe/Zagreb}
    with: {team: blue}
    changes: {ignore_fields: [views, meta.seen]}
    every: 1m
    destination: n8n
"#;

/// The edits of a job and the parts that ask.
#[test]
fn an_edit_asks_by_the_parts_that_give_what_is_stored_its_meaning() {
    let identity = |text: &str| {
        let config = config::load_str("jobs.yaml", text, std::path::Path::new("."), &|_| None);
        config.unwrap_or_else(|errors| panic!("{errors}")).jobs["rows"].identity()
    };
    let before = identity(BEFORE);
    // from, to, what asks
    let edits: [(&str, &str, &[&str]); 27] = [
        ("primary_key: [id]", "primary_key: [uuid]", &["primary_key"]),
        ("primary_key: [id]", "primary_key: [$.id]", &[]),
        ("primary_key: [id]", "primary_key: [\"$['id']\"]", &[]),
        ("key_type: loose", "key_type: strict", &["key_type"]),
        ("key_type: loose", "deleted_when: record.gone", &[]),
        ("https://api.example.com", "https://api.example.org", &["request.base_url"]),
        ("https://api.example.com", "https://api.example.com/", &[]),
        ("/{{ inputs.team }}/rows", "/{{inputs.team}}/rows/all", &["request.path"]),
        ("since: \"{{ window.start }}\"", "from: \"{{ window.start }}\"", &[]),
        ("request: {", "request: {headers: {X-Team: blue}, ", &[]),
        ("path: $.items", "path: $.rows", &["records.path"]),
        ("path: $.items", "path: items, missing: empty", &[]),
        ("path: $.items", "path: $.items, filter: \"record.open\"", &["records.filter"]),
        ("path: $.items", "path: $.items, entries: {key_as: id}", &["records.entries"]),
        ("path: $.items", "path: $.items, format: xml", &["records.format"]),
        ("path: $.items", "path: $.items, columns: $.head", &["records.columns"]),
        ("field: updated_at", "field: [updated_at, created_at]", &["incremental.field"]),
        ("format: iso8601", "format: \"%d.%m.%Y\"", &["incremental.format"]),
        ("timezone: Europe/Zagreb", "timezone: UTC", &["incremental.timezone"]),
        ("{team: blue}", "{team: red}", &["with.team"]),
        ("{team: blue}", "{team: blue, size: 5}", &["with.size"]),
        ("[views, meta.seen]", "[$.meta.seen, views, id, updated_at]", &[]),
        ("[views, meta.seen]", "[views]", &["changes.ignore_fields"]),
        ("changes: {", "changes: {detect: either, emit: [created], on_missing_version: skip, ", &[]),
        (
            "every: 1m",
            "every: 2m\n    first_run: emit\n    auth: {token: x}\n    rate_limit: {requests: 1, per: 1s}",
            &[],
        ),
        ("every: 1m", "every: 1m\n    window: {start: 2026-01-01, lookback: 1h, settle: 1m, step: 1d}", &[]),
        (
            "n8n: {url: \"http://localhost/webhook/x\"}",
            "n8n: {url: \"http://localhost/webhook/y\", order: none}",
            &[],
        ),
    ];
    let by_token = BEFORE
        .replace(
            "since: \"{{ window.start }}\", until: \"{{ window.end }}\"",
            "since: \"{{ window.token }}\"",
        )
        .replace("field: updated_at,", "field: updated_at, state: token, token_path: $.sync,");
    assert_eq!(identity(&by_token).edited_since(&before), ["incremental.state"]);
    for (from, to, asks) in edits {
        assert!(BEFORE.contains(from), "{from}");
        assert_eq!(identity(&BEFORE.replace(from, to)).edited_since(&before), asks, "{to}");
    }
}

/// Moved word for word, what is read stays the same.
#[test]
fn a_source_that_becomes_a_connector_file_keeps_what_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("connectors")).unwrap();
    let connector = r#"
base_url: "https://api.example.com"
inputs: {team: {}, size: {type: integer}, added_later: {default: x}}
streams:
  rows:
    request: {path: "/{{ inputs.team }}/rows", query: {since: "{{ window.start }}", until: "{{ window.end }}"}}
    records: {path: $.items}
    primary_key: [id]
    key_type: loose
    incremental: {field: updated_at, format: iso8601, timezone: Europe/Zagreb}
"#;
    std::fs::write(folder.path().join("connectors/mine.yaml"), connector).unwrap();
    let jobs = r#"
destinations: {n8n: {url: "http://localhost/webhook/x"}}
jobs:
  rows:
    connector: mine
    stream: rows
    with: {team: blue}
    changes: {ignore_fields: [views, meta.seen]}
    every: 1m
    destination: n8n
"#;
    let [inline, moved] = [BEFORE, jobs].map(|text| {
        let config = config::load_str("jobs.yaml", text, folder.path(), &|_| None);
        config.unwrap_or_else(|errors| panic!("{errors}")).jobs["rows"].identity()
    });
    assert_eq!(moved, inline);
}
