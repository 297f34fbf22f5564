//! `onlynew why …` by the real binary.

use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::{
    both,
    support::{
        database::Database,
        rig::{Job, Rig, page_of},
        server::Reply,
    },
};

both!(
    the_story_of_a_key_is_told_from_its_first_reading_to_its_last_delivery,
    an_event_is_told_alone,
    a_key_that_was_never_seen_is_told_with_what_lies_beside_it,
    a_key_whose_delivery_was_lost_and_given_up_is_told_so,
    a_run_is_told_with_its_pages_and_what_it_covered,
    a_gap_is_told_with_who_read_it_and_who_failed,
    integer_versions_and_streams_without_versions_have_gaps_of_their_own,
    what_is_left_out_is_counted,
    a_key_of_several_parts_is_found_as_it_is_shown_and_as_it_is_typed,
    a_key_that_a_page_held_twice_is_told_with_both,
);

type Rows = Arc<Mutex<Vec<(u32, &'static str)>>>;

/// A job over rows that a test can change; its source fails while there are none.
async fn story(database: Database, job: Job<'_>) -> (Rig, Rows) {
    let rows: Rows = Arc::new(Mutex::new(vec![(1, "2026-09-21T10:00:00Z"), (2, "2026-09-21T10:00:01Z")]));
    let served = Arc::clone(&rows);
    let rig = Rig::new(database, job, move |asked| {
        let rows = served.lock().unwrap();
        if rows.is_empty() { Reply::status(400) } else { page_of(&rows, asked, 10) }
    })
    .await;
    (rig, rows)
}

async fn why(rig: &Rig, arguments: &[&str]) -> (i32, Value) {
    let (code, answer, error) = rig.command(&[&["why", "rows"], arguments, &["--json"]].concat()).await;
    assert!(!answer.is_null(), "{error}");
    (code, answer)
}

/// What a person reads.
async fn read(rig: &Rig, arguments: &[&str]) -> (i32, String) {
    let output = rig.spawn(&[&["why", "rows"], arguments].concat()).wait_with_output().await.unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(text).unwrap())
}

fn found(answer: &Value) -> Vec<&str> {
    answer["sightings"].as_array().unwrap().iter().map(|seen| seen["found"].as_str().unwrap()).collect()
}

/// The texts in `text`, each behind the one before.
fn in_order(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        let at = rest.find(part).unwrap_or_else(|| panic!("`{part}` is missing or too early in\n{text}"));
        rest = &rest[at + part.len()..];
    }
}

async fn the_story_of_a_key_is_told_from_its_first_reading_to_its_last_delivery(database: Database) {
    let (rig, rows) = story(database, Job::default()).await;
    for _ in 0..5 {
        rig.sync().await;
    }
    rows.lock().unwrap()[1] = (2, "2026-09-21T10:00:05Z");
    rig.sync().await;
    rows.lock().unwrap()[1] = (2, "2026-09-21T10:00:04Z");
    rig.sync().await;

    let (code, answer) = why(&rig, &["2"]).await;
    assert_eq!((code, answer["known"].as_bool()), (0, Some(true)));
    assert_eq!(
        found(&answer),
        ["created", "known", "known", "known", "known", "updated_by_version", "stale"]
    );
    assert_eq!(answer["record"]["version"], "2026-09-21T10:00:05Z");
    assert_eq!(answer["events"].as_array().unwrap().len(), 2);
    assert_eq!(answer["events"][1]["attempts"][0]["outcome"], "delivered");

    let (code, text) = read(&rig, &["2"]).await;
    assert_eq!(code, 0);
    in_order(
        &text,
        &[
            "the key 2 of rows is stored with version 2026-09-21T10:00:05Z",
            "last read",
            "was delivered",
            "rows reads again",
            "run 1, page 1 read it with version 2026-09-21T10:00:01Z: it is new",
            "(record.created, number 1 of this key) was stored for n8n",
            "sent: 200, delivered after",
            "run 2, page 1 read it with version 2026-09-21T10:00:01Z: nothing new",
            "… and 3 more runs saw the same bytes, last in run 5",
            "run 6, page 1 read it with version 2026-09-21T10:00:05Z: it changed, its version is newer than what was \
             stored (2026-09-21T10:00:01Z)",
            "(record.updated, number 2 of this key) was stored for n8n",
            "sent: 200, delivered after",
            "run 7, page 1 read it with version 2026-09-21T10:00:04Z: older than what is stored (2026-09-21T10:00:05Z), so \
             it was ignored",
        ],
    );
}

async fn an_event_is_told_alone(database: Database) {
    let (rig, rows) = story(database, Job::default()).await;
    rig.sync().await;
    rows.lock().unwrap()[1] = (2, "2026-09-21T10:00:05Z");
    rig.sync().await;
    let (_, answer) = why(&rig, &["2"]).await;
    let id = answer["events"][1]["event"].as_str().unwrap().to_owned();
    for arguments in [vec!["2", "--event", &id], vec!["--event", &id[..20]]] {
        let (code, answer) = why(&rig, &arguments).await;
        assert_eq!(code, 0);
        let story: Vec<_> =
            answer["story"].as_array().unwrap().iter().map(|line| line["text"].as_str().unwrap()).collect();
        assert_eq!(story.len(), 3, "{story:?}");
        assert!(story[0].starts_with("run 2, page 1 read it"), "{story:?}");
        assert!(story[1].starts_with(&format!("event {id} (record.updated")), "{story:?}");
        assert!(story[2].contains("delivered after"), "{story:?}");
    }
    assert_eq!(why(&rig, &["1", "--event", &id]).await.0, 2, "it is of another key");
    assert_eq!(read(&rig, &[]).await.0, 2, "nothing is asked");
    assert_eq!(read(&rig, &["1", "--run", "1"]).await.0, 2, "two things are asked");
}

async fn a_key_that_was_never_seen_is_told_with_what_lies_beside_it(database: Database) {
    let (rig, _) = story(database, Job::default()).await;
    assert_eq!(read(&rig, &["1"]).await.0, 2, "the job has never run");
    rig.sync().await;
    let (code, text) = read(&rig, &["11"]).await;
    assert_eq!(code, 1);
    in_order(
        &text,
        &["the key 11 was never seen by rows", "keys beside it: 1, 2", "--gap FROM TO", "reads again"],
    );
    let (code, answer) = why(&rig, &["11"]).await;
    assert_eq!((code, answer["known"].as_bool()), (1, Some(false)));
    assert_eq!(answer["near"], serde_json::json!(["1", "2"]));
    assert_eq!(why(&rig, &["1.0"]).await.0, 0, "it is the same key");
}

async fn a_key_whose_delivery_was_lost_and_given_up_is_told_so(database: Database) {
    let (rig, _) = story(database, Job::default()).await;
    let answers = Arc::new(Mutex::new(vec![500, 200]));
    rig.rewrite("delays: [50ms]", "delays: [1h]");
    rig.receiver.now_answers(move |asked| {
        Reply::status(if asked.json()["key"] == "1" {
            answers.lock().unwrap().pop().unwrap_or(200)
        } else {
            422
        })
    });
    rig.rewrite("concurrency: 8", "concurrency: 1");
    rig.sync().await;
    let (_, text) = read(&rig, &["2"]).await;
    in_order(
        &text,
        &["is a dead letter since", "`onlynew outbox retry evt_", "given up, it is a dead letter"],
    );
    let (_, answer) = why(&rig, &["2"]).await;
    let id = answer["events"][0]["event"].as_str().unwrap().to_owned();
    assert_eq!(rig.command(&["outbox", "discard", &id, "--json"]).await.0, 0);
    let (_, text) = read(&rig, &["2"]).await;
    in_order(&text, &["was discarded by a person", "given up", "a person discarded event"]);
}

async fn a_run_is_told_with_its_pages_and_what_it_covered(database: Database) {
    let (rig, rows) = story(database, Job::default()).await;
    rig.sync().await;
    rig.sync().await;
    let (code, text) = read(&rig, &["--run", "1"]).await;
    assert_eq!(code, 0);
    in_order(
        &text,
        &[
            "1 of rows, live",
            "no lower bound",
            "from the beginning up to",
            "2 records",
            "2 events",
            "2 created",
        ],
    );
    let (_, answer) = why(&rig, &["--run", "2"]).await;
    assert_eq!(answer["run"]["status"], "ok");
    assert_eq!(answer["pages"][0]["decided"][0]["found"], "known");
    assert_eq!(answer["pages"][0]["decided"][0]["records"], 2);
    assert_eq!(answer["from"], answer["covered"][0]["from"]);
    rows.lock().unwrap().clear();
    rig.sync().await;
    let (_, text) = read(&rig, &["--run", "3"]).await;
    in_order(&text, &["failed: ", "nothing to its end", "no page of it held a record"]);
    let (code, text) = read(&rig, &["--run", "99"]).await;
    assert_eq!(code, 1);
    assert!(text.contains("the job `rows` has no run 99; its last one is 3"), "{text}");
}

async fn a_gap_is_told_with_who_read_it_and_who_failed(database: Database) {
    let (rig, rows) = story(database, Job::default()).await;
    rig.configure(Job { rest: "window: {start: 2026-09-21T00:00:00Z}", ..Job::default() });
    rig.sync().await;
    let complete = rows.lock().unwrap().clone();
    rows.lock().unwrap().clear();
    rig.sync().await;
    *rows.lock().unwrap() = complete;
    rig.sync().await;

    let (code, answer) = why(&rig, &["--gap", "2026-09-20", "2026-09-22"]).await;
    assert_eq!((code, answer["complete"].as_bool()), (1, Some(false)));
    let parts: Vec<_> = answer["parts"].as_array().unwrap().iter().collect();
    let runs = |part: &Value| (part["first_read"]["run"].as_i64(), part["last_read"]["run"].as_i64());
    assert_eq!((parts[0]["from"].as_str(), runs(parts[0])), (Some("2026-09-20T00:00:00Z"), (None, None)));
    assert_eq!(parts[1]["from"], "2026-09-21T00:00:00Z");
    assert_eq!(runs(parts[1]), (Some(1), Some(1)), "before the lookback");
    assert_eq!(runs(parts[2]), (Some(1), Some(3)));
    assert_eq!(answer["cut_off"].as_array().unwrap().len(), 1);
    assert_eq!(answer["cut_off"][0]["id"], 2);

    let (code, text) = read(&rig, &["--gap", "2026-09-20", "2026-09-22"]).await;
    assert_eq!(code, 1);
    in_order(
        &text,
        &["a part of it was never read", "never", "(run 1)", "did not come to their end", "failed"],
    );
    let whole = ["--gap", "2026-09-21T09:00:00Z", "2026-09-21T10:00:00+00:00"];
    assert_eq!(why(&rig, &whole).await.0, 0);
    for wrong in [["2026-09-22", "2026-09-20"], ["yesterday", "2026-09-20"]] {
        assert_eq!(why(&rig, &["--gap", wrong[0], wrong[1]]).await.0, 2, "{wrong:?}");
    }
}

async fn integer_versions_and_streams_without_versions_have_gaps_of_their_own(database: Database) {
    let plain = Job { query: "{}", pagination: "{type: none}", source: "", rest: "" };
    let rig = Rig::new(database, plain, |_| {
        Reply::Json(r#"{"items": [{"id": 1, "revision": 3}, {"id": 2, "revision": 8}]}"#.to_owned())
    })
    .await;
    rig.sync().await;
    let (code, text) = read(&rig, &["--gap", "1", "9"]).await;
    assert_eq!(code, 2);
    assert!(text.contains("every run of it that is complete has read everything"), "{text}");
    let (_, answer) = why(&rig, &["--run", "1"]).await;
    assert_eq!(answer["covered"][0]["from"], Value::Null);

    rig.configure(Job { source: "incremental: {field: revision, format: integer}", ..plain });
    rig.keep().await;
    rig.database.tamper("DELETE FROM covered").await;
    rig.sync().await;
    assert_eq!(why(&rig, &["--gap", "-5", "9"]).await.0, 0, "8 was read");
    let (code, answer) = why(&rig, &["--gap", "1", "12"]).await;
    assert_eq!(code, 1);
    assert_eq!(answer["parts"][1]["from"], 9);
    assert_eq!(why(&rig, &["--gap", "2026-09-21", "2026-09-22"]).await.0, 2);
}

async fn what_is_left_out_is_counted(database: Database) {
    let (rig, rows) = story(database, Job::default()).await;
    for _ in 0..4 {
        rig.sync().await;
    }
    rows.lock().unwrap()[0] = (1, "2026-09-21T10:00:05Z");
    rig.sync().await;
    let (_, answer) = why(&rig, &["1", "--limit", "3"]).await;
    assert_eq!(found(&answer), ["created", "known", "updated_by_version"], "what found something is kept");
    assert_eq!(answer["more_sightings"], 2);
    let (_, answer) = why(&rig, &["1", "--limit", "1"]).await;
    assert_eq!((found(&answer), &answer["more_events"]), (vec!["updated_by_version"], &Value::from(1)));
    let (_, text) = read(&rig, &["1", "--limit", "3"]).await;
    assert!(
        text.contains("(2 more readings that found nothing new are left out; --limit 5 tells them too)"),
        "{text}"
    );
}

async fn a_key_of_several_parts_is_found_as_it_is_shown_and_as_it_is_typed(database: Database) {
    let plain = Job { query: "{}", pagination: "{type: none}", source: "", rest: "" };
    let rig =
        Rig::new(database, plain, |_| Reply::Json(r#"{"items": [{"id": 7, "lang": "en"}]}"#.to_owned()))
            .await;
    rig.rewrite("primary_key: [id]", "primary_key: [id, lang]");
    rig.sync().await;
    for key in [r#"["7","en"]"#, r#"[7, "en"]"#, "7,en"] {
        let (code, answer) = why(&rig, &[key]).await;
        assert_eq!((code, answer["key"].as_str()), (0, Some(r#"["7","en"]"#)), "{key}");
    }
}

async fn a_key_that_a_page_held_twice_is_told_with_both(database: Database) {
    let (rig, rows) = story(database, Job::default()).await;
    rows.lock().unwrap().extend([(2, "2026-09-21T10:00:03Z"), (3, "2026-09-21T10:00:04Z")]);
    rig.sync().await;
    let (_, answer) = why(&rig, &["2"]).await;
    assert_eq!(found(&answer), ["outdone", "created"]);
    assert_eq!(answer["sightings"][0]["version"], "2026-09-21T10:00:01Z");
    assert_eq!(answer["sightings"][1]["version"], "2026-09-21T10:00:03Z");
}
