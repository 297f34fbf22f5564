//! Field cases about what is kept no longer, told through the whole engine on both databases.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use onlynew::{
    domain::{clock::machine_time, run::RunStatus},
    schedule::Swept,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    both,
    support::{
        database::Database,
        rig::{Job, Rig, page_of_values},
        server::{Asked, Reply},
    },
};

both!(
    c27_a_source_that_lists_everything_each_time_does_not_flood_once_keys_are_forgotten,
    c27_a_record_that_is_accepted_below_the_floor_is_marked_as_seen_again,
    c27_history_has_no_cap_and_an_unchanged_id_is_told_once,
    a_window_does_not_reach_below_the_floor_however_long_its_lookback_grows,
    keys_of_a_stream_that_tells_of_changes_alone_are_never_forgotten,
    a_process_that_runs_purges_soon_after_its_start,
    a_person_purges_by_hand_and_sees_what_went,
    a_janitor_that_was_stopped_or_failed_finds_all_of_it_the_next_time,
);

const EVERYTHING: Job<'_> =
    Job { query: "{}", pagination: "{type: none}", source: "incremental: {field: updated_at}", rest: "" };

/// A rig that forgets keys after a year, whose source shows all that the second part holds.
async fn forgetful(database: Database, job: Job<'_>) -> (Rig, Arc<Mutex<Vec<Value>>>) {
    let rows = Arc::new(Mutex::new(Vec::new()));
    let now = Arc::clone(&rows);
    let rig = Rig::new(database, job, move |asked| {
        let rows = now.lock().unwrap();
        if rows.iter().any(Value::is_string) {
            let items: Vec<String> =
                rows.iter().map(|row| row.as_str().map_or(row.to_string(), str::to_owned)).collect();
            return Reply::Json(format!(r#"{{"items":[{}]}}"#, items.join(",")));
        }
        page_of_values(&rows, asked, usize::MAX / 2)
    })
    .await;
    rig.rewrite("destinations:", "retention: {keys: 365d}\ndestinations:");
    (rig, rows)
}

fn row(id: u32, updated_at: &str) -> Value {
    json!({"id": id, "updated_at": updated_at})
}

fn recent(id: u32) -> Value {
    row(id, &machine_time().minus(Duration::from_hours(1)).to_string())
}

async fn sweep(rig: &Rig) -> u64 {
    let app = rig.app().await;
    let swept = app.janitor().sweep(&CancellationToken::new()).await.unwrap();
    app.store.close().await;
    swept.keys
}

/// The events sent since `from`, as (key, type, `re_seen`, sequence).
fn told(rig: &Rig, from: usize) -> Vec<(String, String, Value, i64)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let bodies: Vec<Value> = rig.receiver.asked().iter().skip(from).map(Asked::json).collect();
    let told = bodies.iter().map(|body| {
        let re_seen = body.get("re_seen").cloned().unwrap_or_default();
        (text(&body["key"]), text(&body["type"]), re_seen, body["sequence"].as_i64().unwrap())
    });
    let mut told: Vec<_> = told.collect();
    told.sort_by_key(|told| told.0.clone());
    told
}

async fn c27_a_source_that_lists_everything_each_time_does_not_flood_once_keys_are_forgotten(
    database: Database,
) {
    let (rig, rows) = forgetful(database, EVERYTHING).await;
    let old = "2020-05-01T00:00:00Z";
    *rows.lock().unwrap() = vec![row(1, old), row(2, old), row(3, "2020-06-01T00:00:00Z"), recent(4)];
    assert_eq!(rig.sync().await.report.counts.created, 4);
    assert_eq!(sweep(&rig).await, 3);
    assert_eq!(sweep(&rig).await, 0, "what is forgotten is not forgotten again");
    let kept = "SELECT key FROM record WHERE forgotten_at IS NOT NULL AND hash IS NULL AND version IS NULL
                AND fingerprint IS NULL AND sequence = 1 ORDER BY key";
    assert_eq!(rig.database.texts(kept).await, ["1", "2", "3"]);
    rig.database.tamper("UPDATE record SET changed_at = 0").await;

    for known in [4, 5] {
        rows.lock().unwrap().truncate(4);
        rows.lock().unwrap().push(row(5, old));
        let synced = rig.sync().await;
        let counts = synced.report.counts;
        assert_eq!(synced.report.status, RunStatus::Ok, "{:?}", synced.report.reason);
        assert_eq!((counts.below_floor, counts.unchanged, counts.records), (4, 1, 5), "{known}");
        assert_eq!((rig.sent().len(), synced.pending), (4, 0), "none is sent again, and none that is older");
    }
    assert_eq!(rig.database.number("(SELECT count(*) FROM record)").await, 4, "the fifth has no row");
    assert_eq!(rig.database.number("(SELECT max(changed_at) FROM record)").await, 0, "nothing was written");
    assert_eq!(rig.database.number("(SELECT max(below_floor) FROM run)").await, 4);

    *rows.lock().unwrap() = vec![recent(1), row(2, old), recent(4), recent(5)];
    let counts = rig.sync().await.report.counts;
    assert_eq!((counts.updated, counts.created, counts.below_floor), (2, 1, 1));
    let expected = [("1", "updated", 2), ("4", "updated", 2), ("5", "created", 1)];
    let expected =
        expected.map(|(key, kind, sequence)| (key.into(), format!("record.{kind}"), Value::Null, sequence));
    assert_eq!(told(&rig, 4), expected);
    let first =
        rig.receiver.asked().iter().skip(4).map(Asked::json).find(|event| event["key"] == "1").unwrap();
    assert_eq!(first["previous_version"], Value::Null);
    assert_eq!(rig.database.number("(SELECT count(*) FROM record WHERE forgotten_at IS NULL)").await, 3);
}

async fn c27_a_record_that_is_accepted_below_the_floor_is_marked_as_seen_again(database: Database) {
    let (rig, rows) = forgetful(database, EVERYTHING).await;
    let old = "2020-05-01T00:00:00Z";
    *rows.lock().unwrap() = vec![row(1, old), recent(2)];
    rig.sync().await;
    assert_eq!(sweep(&rig).await, 1);
    // A version that cannot be read, until the job says how.
    *rows.lock().unwrap() = vec![
        Value::from(r#"{"id":1,"updated_at":"02.05.2020 00:00"}"#),
        Value::from(r#"{"id":3,"updated_at":"02.05.2020 00:00"}"#),
        recent(2),
    ];
    let counts = rig.sync().await.report.counts;
    assert_eq!(counts.quarantined, 2);
    rig.configure(Job {
        source: "incremental: {field: updated_at, format: \"%d.%m.%Y %H:%M\", timezone: UTC}",
        ..EVERYTHING
    });
    rig.keep().await;
    let app = rig.app().await;
    let job = Arc::clone(&app.config.jobs["rows"]);
    let found = app.store.find_job("rows").await.unwrap().unwrap();
    for record in app.store.quarantined(found.id).await.unwrap() {
        app.engine.accept(&job, &found, &record).await.unwrap();
    }
    let bodies = rig.database.texts("SELECT body FROM event WHERE state = 'pending' ORDER BY key").await;
    let bodies: Vec<Value> = bodies.iter().map(|body| serde_json::from_str(body).unwrap()).collect();
    let told: Vec<_> = bodies.iter().map(|body| (&body["key"], &body["type"], body.get("re_seen"))).collect();
    let (updated, created) = (json!("record.updated"), json!("record.created"));
    assert_eq!(
        told,
        [(&json!("1"), &updated, Some(&json!(true))), (&json!("3"), &created, None)],
        "what was known once is marked, what never was is new"
    );
}

async fn c27_history_has_no_cap_and_an_unchanged_id_is_told_once(database: Database) {
    let (rig, rows) = forgetful(database, EVERYTHING).await;
    for run in 0..4 {
        rows.lock().unwrap().extend((0..4).map(|at| recent(run * 4 + at)));
        assert_eq!(rig.sync().await.report.counts.created, 4);
    }
    rig.database.tamper("UPDATE record SET changed_at = 0, first_seen_at = 0").await;
    assert_eq!(sweep(&rig).await, 0, "a key goes by its version and not by when it was last seen");
    let counts = rig.sync().await.report.counts;
    assert_eq!((counts.unchanged, counts.events), (16, 0));
}

async fn a_window_does_not_reach_below_the_floor_however_long_its_lookback_grows(database: Database) {
    let (rig, rows) = forgetful(database, Job::default()).await;
    *rows.lock().unwrap() = vec![row(1, "2020-05-01T00:00:00Z"), recent(2)];
    rig.sync().await;
    assert_eq!(sweep(&rig).await, 1);
    let floor = rig.database.number("(SELECT floor FROM progress)").await;
    rig.rewrite("retention: {keys: 365d}\n", "");
    rig.configure(Job { rest: "window: {lookback: 5000d}", ..Job::default() });
    let counts = rig.sync().await.report.counts;
    assert_eq!((counts.records, counts.events), (1, 0), "the old one is not even asked for");
    let since: onlynew::domain::instant::Instant =
        rig.source.asked().last().unwrap().param("since").parse().unwrap();
    assert_eq!(since.micros(), floor);
    assert_eq!(floor % 86_400_000_000, 0, "it moves by whole days");
}

async fn keys_of_a_stream_that_tells_of_changes_alone_are_never_forgotten(database: Database) {
    let job = Job {
        query: r#"{token: "{{ window.token }}"}"#,
        pagination: "{type: none}",
        source: "incremental: {field: updated_at, state: token, token_path: $.token}",
        rest: "",
    };
    let source = |asked: &Asked| {
        let id = if asked.param("token").is_empty() { 1 } else { 2 };
        Reply::Json(json!({"items": [row(id, "2020-05-01T00:00:00Z")], "token": "t"}).to_string())
    };
    let rig = Rig::new(database, job, source).await;
    rig.rewrite("destinations:", "retention: {keys: 365d}\ndestinations:");
    rig.sync().await;
    assert_eq!(sweep(&rig).await, 0);
    let counts = rig.sync().await.report.counts;
    assert_eq!((counts.created, counts.below_floor), (1, 0), "it is told once, however old it is");
}

async fn a_process_that_runs_purges_soon_after_its_start(database: Database) {
    let (rig, rows) = forgetful(database, EVERYTHING).await;
    *rows.lock().unwrap() = vec![recent(1)];
    rig.sync().await;
    rig.database.tamper("UPDATE event SET settled_at = 1").await;
    rig.rewrite("keys: 365d", "keys: never");
    let (code, answer, _) = rig.command(&["state", "purge", "--dry-run", "--json"]).await;
    let expected = json!({"dry_run": true, "payloads": 1, "attempts": 2, "pages": 0, "keys": 0, "gate_keys": 0, "hook_keys": 0, "locks": 0});
    assert_eq!((code, answer), (0, expected));
    let mut process = rig.spawn(&["run"]);
    while rig.database.number("(SELECT count(*) FROM event)").await > 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    process.kill().await.unwrap();
}

async fn a_person_purges_by_hand_and_sees_what_went(database: Database) {
    let (rig, rows) = forgetful(database, EVERYTHING).await;
    *rows.lock().unwrap() = vec![row(1, "2020-05-01T00:00:00Z"), recent(2)];
    rig.sync().await;
    rig.database.tamper("UPDATE event SET settled_at = 1 WHERE key = '1'").await;
    rig.rewrite("keys: 365d", "keys: 365d, attempts: never");
    let purge = async |arguments: &[&str]| {
        let (code, answer, _) = rig.command(&[&["state", "purge", "--json"], arguments].concat()).await;
        assert_eq!(code, 0, "{answer}");
        answer
    };
    let went = |is_dry: bool, payloads: u64, keys: u64| json!({"dry_run": is_dry, "payloads": payloads, "attempts": 0, "pages": 0, "keys": keys, "gate_keys": 0, "hook_keys": 0, "locks": 0});
    assert_eq!(purge(&["--dry-run"]).await, went(true, 1, 1));
    assert_eq!(purge(&["--dry-run"]).await, went(true, 1, 1), "nothing was done");
    assert_eq!(purge(&[]).await, went(false, 1, 1));
    assert_eq!(purge(&[]).await, went(false, 0, 0));

    let purged = rig.database.texts("SELECT event_id FROM event WHERE purged_at IS NOT NULL").await.remove(0);
    let (code, shown, _) = rig.command(&["outbox", "show", &purged, "--json"]).await;
    assert_eq!((code, &shown["body"], &shown["state"]), (0, &Value::Null, &json!("delivered")));
    assert!(shown["purged_at"].is_string() && shown["attempts"].as_array().unwrap().len() == 1, "{shown}");
    let (code, answer, _) = rig.command(&["outbox", "redeliver", &purged, "--json"]).await;
    let message = "left as it is: its body is kept no longer (`retention.payloads`)";
    assert_eq!((code, &answer["events"][0]["message"]), (1, &json!(message)));
    let (_, state, _) = rig.command(&["state", "show", "rows", "--json"]).await;
    assert!(state["floor"].as_str().unwrap().ends_with("T00:00:00Z"), "{state}");
}

async fn a_janitor_that_was_stopped_or_failed_finds_all_of_it_the_next_time(database: Database) {
    let (rig, rows) = forgetful(database, EVERYTHING).await;
    *rows.lock().unwrap() = vec![row(1, "2020-05-01T00:00:00Z"), recent(2)];
    rig.sync().await;
    rig.database.tamper("UPDATE event SET settled_at = 1").await;
    let app = rig.app().await;
    let mut janitor = app.janitor();
    let stop = CancellationToken::new();
    stop.cancel();
    assert_eq!(janitor.sweep(&stop).await.unwrap(), Swept::default(), "it stops before the next bite");

    let go_on = CancellationToken::new();
    rig.database.break_on("record", "UPDATE", "NEW.hash IS NULL").await;
    assert!(janitor.sweep(&go_on).await.is_err());
    assert_eq!(rig.database.number("(SELECT count(*) FROM progress WHERE floor IS NOT NULL)").await, 0);
    rig.database.mend("record").await;
    let expected = Swept { keys: 1, ..Swept::default() };
    assert_eq!(janitor.sweep(&go_on).await.unwrap(), expected, "events went before");
    assert_eq!(janitor.sweep(&go_on).await.unwrap(), Swept::default());
    assert_eq!(rig.database.number("(SELECT count(*) FROM event)").await, 0);
    app.store.close().await;
}
