//! What a person types about replays and redeliveries, and what they read back.

use serde_json::{Value, json};

use crate::{
    both,
    support::{
        database::Database,
        rig::{Job, Rig, page_of},
        server::{Asked, Reply},
    },
};

const ROWS: [(u32, &str); 2] = [(1, "2026-09-21T10:00:00Z"), (2, "2026-09-21T10:00:01Z")];

/// What the command says against what was typed: a bad input.
async fn refused(rig: &Rig, arguments: &[&str]) -> String {
    let (code, line, errors) = rig.command(&[arguments, &["--json"]].concat()).await;
    assert_eq!(code, 2, "{arguments:?}: {line} {errors}");
    line["error"].as_str().map_or(format!("{line} {errors}"), str::to_owned)
}

async fn what_cannot_be_replayed_is_refused_with_a_reason(database: Database) {
    let rig = Rig::new(database, Job::default(), |asked| page_of(&ROWS, asked, 10)).await;
    let cases: [(&[&str], &str); 8] = [
        (&["replay", "others"], "there is no job `others`"),
        (&["replay", "rows", "--from", "soon"], "`--from soon` is no version of `rows`"),
        (&["replay", "rows", "--from", "2026-09-02", "--to", "2026-09-02"], "the window is empty"),
        (&["replay", "rows", "--rate", "fast"], "10/s, 100/m or 1/30s"),
        (&["replay", "rows", "--rate", "1/h"], "one request in 15 minutes is the slowest"),
        (&["replay", "rows", "--keys-from", "/nowhere/at/all"], "cannot read keys from /nowhere/at/all"),
        (&["replays", "show", "7"], "there is no replay 7"),
        (&["redeliver"], "name events, or say which"),
    ];
    for (arguments, expected) in cases {
        let told = refused(&rig, arguments).await;
        assert!(told.contains(expected), "{arguments:?}: {told}");
    }
    rig.configure(Job { source: "", query: "{}", pagination: "{type: none}", ..Job::default() });
    let told = refused(&rig, &["replay", "rows", "--from", "2026-09-01"]).await;
    assert!(told.contains("its records have no versions"), "{told}");
    rig.rewrite("primary_key: [id]", "primary_key: [id, updated_at]");
    let told = refused(&rig, &["replay", "rows", "--key", "7"]).await;
    assert!(told.contains("its keys have 2 parts (id, updated_at)"), "{told}");
    let by_token = "incremental: {field: updated_at, state: token, token_path: $.sync}";
    let query = r#"{token: "{{ window.token }}"}"#;
    rig.configure(Job { source: by_token, query, pagination: "{type: none}", rest: "" });
    let told = refused(&rig, &["replay", "rows"]).await;
    assert!(told.contains("tells of changes by a token"), "{told}");
    assert_eq!(rig.database.number("(SELECT count(*) FROM task)").await, 0);
    assert!(rig.source.asked().is_empty());
}

async fn a_replay_tells_its_plan_before_and_its_sum_after(database: Database) {
    let rig = Rig::new(database, Job::default(), |asked| page_of(&ROWS, asked, 1)).await;
    rig.add_file("keys", "1\n\n 2 \n1\n");
    let file = rig.path("keys");
    let arguments = ["replay", "rows", "--from", "2026-09-21", "--rate", "100/s", "--keys-from", &file];
    let (code, line, errors) = rig.command(&[&arguments[..], &["--dry-run", "--json"]].concat()).await;
    assert_eq!(
        (code, &line["dry_run"], &line["created"], &line["requests"]),
        (0, &json!(true), &json!(2), &json!(2))
    );
    let plan = "replay of rows: 2026-09-21T00:00:00Z to the end, 2 keys only; 1 step, so 1 request at least, 100/s at most; \
                what the job does not know yet is sent";
    assert!(errors.contains(plan), "{errors}");
    assert_eq!(rig.database.number("(SELECT count(*) FROM job)").await, 0);

    let (code, line, errors) = rig.command(&[&arguments[..], &["--json"]].concat()).await;
    assert_eq!(code, 0, "{line} {errors}");
    assert!(errors.contains(plan), "{errors}");
    let expected = json!({
        "replay": 1, "job": "rows", "state": "done", "window": {"from": "2026-09-21T00:00:00Z", "to": null}, "keys": 2,
        "emit": "changed", "rate": "100/s", "runs": 1, "requests": 2, "pages": 2, "records": 2, "created": 2, "stale": 0,
        "events": 2, "delivered": 2, "pending": 0, "dead": 0, "worked_by": "command", "reason": null,
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&line[name], value, "{name}");
    }
    let output = rig.spawn(&["replays"]).wait_with_output().await.unwrap();
    let listed = String::from_utf8(output.stdout).unwrap();
    assert!(listed.contains("2026-09-21T00:00:00Z to the end") && listed.contains("done"), "{listed}");
    let output = rig.spawn(&["replays", "show", "1"]).wait_with_output().await.unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains("2 events: 2 delivered, 0 waiting, 0 dead"), "{shown}");
    let (code, line, _) = rig.command(&["replays", "cancel", "1", "--json"]).await;
    assert_eq!((code, &line["cancelled"]), (1, &json!(false)));
    let told = refused(&rig, &["replays", "resume", "1"]).await;
    assert!(told.contains("replay 1 has ended (done)"), "{told}");
}

async fn a_replay_that_fails_is_resumed_or_given_up(database: Database) {
    let rig = Rig::new(database, Job::default(), |_| Reply::status(401)).await;
    let output = rig.spawn(&["replay", "rows"]).wait_with_output().await.unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(told.contains("why: ") && told.contains("`onlynew replays resume 1`"), "{told}");
    let output = rig.spawn(&["status"]).wait_with_output().await.unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.contains("rows: replay 1 (everything) is open"), "{told}");
    rig.source.now_answers(|asked| page_of(&ROWS, asked, 10));
    let (code, line, errors) = rig.command(&["replays", "resume", "1", "--json"]).await;
    assert_eq!((code, &line["state"], &line["runs"]), (0, &json!("done"), &json!(2)), "{line} {errors}");

    rig.source.now_answers(|_| Reply::Status(429, vec![("retry-after", "3600".into())], String::new()));
    let (code, line, _) = rig.command(&["replay", "rows", "--json"]).await;
    assert_eq!((code, &line["state"]), (3, &json!("open")), "put off by the source: {line}");
    let (code, line, _) = rig.command(&["replays", "cancel", "2", "--json"]).await;
    assert_eq!((code, &line["cancelled"]), (0, &json!(true)));
    let (_, told, _) = rig.command(&["status", "--json"]).await;
    assert_eq!(told["replays"], json!([]));
}

async fn events_are_redelivered_by_id_and_by_filter(database: Database) {
    let rig = Rig::new(database, Job::default(), |asked| page_of(&ROWS, asked, 10)).await;
    rig.sync().await;
    let ids = |asked: &[Asked]| -> Vec<Value> {
        let mut ids: Vec<Value> = asked.iter().map(|asked| asked.json()["id"].clone()).collect();
        ids.sort_by_key(ToString::to_string);
        ids
    };
    let sent = ids(&rig.receiver.asked());
    let first = sent[0].as_str().unwrap();

    let (code, line, _) = rig.command(&["redeliver", "--job", "rows", "--dry-run", "--json"]).await;
    assert_eq!((code, &line["count"]), (0, &json!(2)));
    let (_, line, _) =
        rig.command(&["redeliver", "--job", "rows", "--to", "1h", "--dry-run", "--json"]).await;
    assert_eq!(line["count"], json!(0), "stored before an hour ago");
    let (_, line, _) =
        rig.command(&["redeliver", "--job", "rows", "--state", "dead", "--dry-run", "--json"]).await;
    assert_eq!(line["count"], json!(0));
    let (code, line, _) = rig.command(&["redeliver", first, "--json"]).await;
    assert_eq!((code, &line["done"], &line["not_done"]), (0, &json!(1), &json!(0)), "{line}");
    rig.sync().await;
    let (code, line, _) = rig.command(&["redeliver", "--from", "1h", "--json"]).await;
    assert_eq!((code, &line["done"]), (0, &json!(2)), "{line}");
    rig.sync().await;
    let asked = rig.receiver.asked();
    assert_eq!((asked.len(), &ids(&asked[3..])), (5, &sent), "under the same ids");

    rig.database.tamper("UPDATE event SET state = 'dead'").await;
    let (code, line, _) = rig.command(&["redeliver", "--job", "rows", "--state", "dead", "--json"]).await;
    assert_eq!((code, &line["done"]), (0, &json!(2)), "{line}");
    let (code, ..) = rig.command(&["redeliver", first, "--job", "rows"]).await;
    assert_eq!(code, 2, "ids and filters do not go together");
}

async fn a_replay_waits_for_the_baseline_unless_all_of_it_is_meant(database: Database) {
    let rig = Rig::new(database, Job::default(), |asked| page_of(&ROWS, asked, 10)).await;
    rig.configure_baseline();
    let told = refused(&rig, &["replay", "rows"]).await;
    assert!(told.contains("has not taken its baseline yet") && told.contains("onlynew sync rows"), "{told}");
    rig.sync().await;
    let (code, line, _) = rig.command(&["replay", "rows", "--json"]).await;
    assert_eq!((code, &line["events"]), (0, &json!(0)));
    let (code, ..) = rig.command(&["accept", "rows", "baseline", "--anyway"]).await;
    assert_eq!(code, 0);
    refused(&rig, &["replay", "rows"]).await;
    let (code, line, _) = rig.command(&["replay", "rows", "--emit", "none", "--json"]).await;
    assert_eq!((code, &line["created"], &line["events"]), (0, &json!(2), &json!(0)));
    assert!(rig.receiver.asked().is_empty());
}

async fn a_replay_whose_worker_was_killed_is_taken_over_by_the_command_that_waits(database: Database) {
    use tokio::io::{AsyncBufReadExt, BufReader};

    let rig = Rig::new(database, Job::default(), |_| Reply::Hold).await;
    let mut killed = rig.spawn(&["replay", "rows"]);
    rig.source.wait_until(|asked| !asked.is_empty()).await;
    killed.kill().await.unwrap();
    rig.source.now_answers(|asked| page_of(&ROWS, asked, 10));
    let mut waiting = rig.spawn(&["replay", "rows", "--json"]);
    let mut lines = BufReader::new(waiting.stderr.take().unwrap()).lines();
    while !lines.next_line().await.unwrap().unwrap().contains("goes on") {}
    rig.leases_run_out().await;
    let output = waiting.wait_with_output().await.unwrap();
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&line["state"], &line["worked_by"]), (&json!("done"), &json!("command")), "{line}");
    assert_eq!(rig.sent_keys(), ["1", "2"]);
}

both!(
    a_replay_waits_for_the_baseline_unless_all_of_it_is_meant,
    a_replay_whose_worker_was_killed_is_taken_over_by_the_command_that_waits,
    what_cannot_be_replayed_is_refused_with_a_reason,
    a_replay_tells_its_plan_before_and_its_sum_after,
    a_replay_that_fails_is_resumed_or_given_up,
    events_are_redelivered_by_id_and_by_filter,
);
