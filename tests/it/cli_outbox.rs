//! `onlynew outbox …` by the real binary.

use serde_json::{Value, json};

use crate::{
    both,
    support::{
        database::Database,
        rig::{Job, Rig, page_of},
        server::{Asked, Reply},
    },
};

const ROWS: [(u32, &str); 3] =
    [(1, "2026-09-21T10:00:00Z"), (2, "2026-09-21T10:00:01Z"), (3, "2026-09-21T10:00:02Z")];

/// One answer for the event of key 2, and 200 for the others.
fn but_for_2(status: u16) -> impl Fn(&Asked) -> Reply {
    move |asked| Reply::status(if asked.json()["key"] == "2" { status } else { 200 })
}

/// A job of three rows, read from a source that is asked for them once.
struct Story {
    rig: Rig,
}

impl Story {
    /// Its events were sent to a receiver that has something against key 2.
    async fn with_one_left(database: Database, status: u16) -> Self {
        let rig = Rig::new(database, Job::default(), |asked| page_of(&ROWS, asked, 10)).await;
        rig.rewrite("concurrency: 8", "concurrency: 1");
        rig.rewrite("delays: [50ms]", "delays: [1h]");
        rig.receiver.now_answers(but_for_2(status));
        rig.sync().await;
        Self { rig }
    }

    /// The event of key 2 is dead: n8n took another one just before.
    async fn with_dead(database: Database) -> Self {
        let story = Self::with_one_left(database, 422).await;
        assert_eq!(story.listed(&["--state", "dead"]).await.len(), 1);
        story
    }

    async fn command(&self, arguments: &[&str]) -> (i32, Value) {
        let (code, answer, _) = self.rig.command(&[&["outbox"], arguments, &["--json"]].concat()).await;
        (code, answer)
    }

    /// What a person reads, and the exit code.
    async fn read(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.rig.spawn(&[&["outbox"], arguments].concat()).wait_with_output().await.unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(text).unwrap())
    }

    async fn listed(&self, arguments: &[&str]) -> Vec<Value> {
        let (code, answer) = self.command(&[&["list"], arguments].concat()).await;
        assert_eq!(code, 0, "{answer}");
        answer["events"].as_array().unwrap().clone()
    }

    /// The id of the event of a key.
    async fn id(&self, key: &str) -> String {
        let listed = self.listed(&["--key", key, "--state", "pending,delivered,dead,discarded"]).await;
        listed[0]["event"].as_str().unwrap().to_owned()
    }

    /// The bodies that n8n was sent of the event of key 2.
    fn sent(&self) -> Vec<String> {
        let asked = self.rig.receiver.asked();
        asked.iter().filter(|asked| asked.json()["key"] == "2").map(|asked| asked.body.clone()).collect()
    }
}

async fn the_list_tells_what_is_not_delivered_and_why(database: Database) {
    let story = Story::with_dead(database).await;
    let listed = story.listed(&[]).await;
    assert_eq!(listed.len(), 1, "{listed:?}");
    let event = &listed[0];
    assert_eq!(
        (&event["job"], &event["key"], &event["type"], &event["state"], &event["destination"]),
        (&json!("rows"), &json!("2"), &json!("record.created"), &json!("dead"), &json!("n8n"))
    );
    assert!(event["last_error"].as_str().unwrap().contains("422"), "{event}");
    let (_, answer) = story.command(&["list", "--state", "delivered", "--limit", "1"]).await;
    assert_eq!((answer["events"].as_array().unwrap().len(), &answer["more"]), (1, &json!(true)));
    let (code, text) = story.read(&["list", "--state", "delivered,dead", "--limit", "2"]).await;
    assert!(code == 0 && text.contains("there are more, older than these 2"), "{text}");
    assert_eq!(story.listed(&["--since", "1h", "--job", "rows", "--reason", "422"]).await.len(), 1);
    assert!(story.listed(&["--since", "2100-01-01T00:00:00Z"]).await.is_empty());
    assert!(story.listed(&["--reason", "423"]).await.is_empty());
    let (_, text) = story.read(&["list", "--key", "1"]).await;
    assert_eq!(text, "no event is pending, held or dead here\n");
    for wrong in [
        &["list", "--job", "row"][..],
        &["list", "--destination", "nn"],
        &["list", "--since", "soon"],
        &["list", "--state", "lost"],
        &["show", "evt_zzz"],
        &["show", "evt_"],
        &["pause", "nn"],
        &["resume", "nn"],
        &["retry"],
        &["retry", "zzz"],
        &["discard", "--all"],
        &["retry", "--all", "--dry-run"],
        &["discard", "evt_", "--key", "2"],
    ] {
        assert_eq!(story.command(wrong).await.0, 2, "{wrong:?}");
    }
}

async fn an_event_is_shown_with_its_body_and_every_attempt(database: Database) {
    let story = Story::with_dead(database).await;
    let id = story.id("2").await;
    let (code, shown) = story.command(&["show", &id[4..10]]).await;
    assert_eq!((code, &shown["event"], &shown["sequence"]), (0, &json!(id), &json!(1)));
    assert_eq!(
        (&shown["headers"]["Idempotency-Key"], &shown["headers"]["webhook-id"]),
        (&json!(id), &json!(id))
    );
    assert_eq!(shown["body"], json!(story.sent()[0]));
    let attempts = shown["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), story.sent().len());
    let last = attempts.last().unwrap();
    assert_eq!(
        (&last["status"], &last["outcome"], &last["ambiguous"]),
        (&json!(422), &json!("dead"), &json!(false))
    );
    let (_, text) = story.read(&["show", &id]).await;
    assert!(text.contains(&format!("Idempotency-Key: {id}")) && text.contains("\"key\": \"2\""), "{text}");
    assert_eq!(text.matches("answered 422").count(), 2, "the last error and its attempt: {text}");
}

async fn a_dead_event_is_sent_again_with_the_same_bytes(database: Database) {
    let story = Story::with_dead(database).await;
    let (id, before) = (story.id("2").await, story.sent().len());
    story.rig.receiver.now_answers(|_| Reply::status(200));
    let (code, dry) = story.command(&["retry", "--all", "--reason", "422", "--dry-run"]).await;
    assert_eq!((code, &dry["count"], &dry["events"][0]["event"]), (0, &json!(1), &json!(id)));
    assert_eq!(story.listed(&["--state", "dead"]).await.len(), 1, "nothing was done");
    let (code, text) = story.read(&["retry", "--all", "--reason", "422"]).await;
    assert_eq!((code, text.as_str()), (0, "1 event retried\n"));
    let (code, again) = story.command(&["retry", "--all", "--state", "dead"]).await;
    assert_eq!((code, &again["done"]), (0, &json!(0)), "it is not dead any more");
    let listed = story.listed(&[]).await;
    assert_eq!((&listed[0]["state"], &listed[0]["redelivery"]), (&json!("pending"), &json!(1)));
    let (_, status, _) = story.rig.command(&["status", "--json"]).await;
    assert_eq!((&status["jobs"][0]["dead"], &status["jobs"][0]["pending"]), (&json!(0), &json!(1)));

    story.rig.sync().await;
    let sent = story.sent();
    assert_eq!(sent.len(), before + 1);
    assert!(sent.iter().all(|body| *body == sent[0]), "{sent:?}");
    let (_, shown) = story.command(&["show", &id]).await;
    assert_eq!(
        (&shown["state"], shown["attempts"].as_array().unwrap().len()),
        (&json!("delivered"), before + 1)
    );
}

async fn a_delivered_event_is_sent_again_only_where_that_is_said(database: Database) {
    let story = Story::with_one_left(database, 200).await;
    let id = story.id("2").await;
    let (code, answer) = story.command(&["retry", &id]).await;
    assert_eq!((code, &answer["not_done"]), (1, &json!(1)));
    assert!(answer["events"][0]["message"].as_str().unwrap().contains("outbox redeliver"), "{answer}");
    assert_eq!(story.command(&["discard", &id]).await.0, 1);
    let (code, answer) = story.command(&["redeliver", &id, &id[..20]]).await;
    assert_eq!((code, answer["events"].as_array().unwrap().len()), (0, 1), "each once");
    story.rig.sync().await;
    let sent = story.sent();
    assert_eq!((sent.len(), &sent[0]), (2, &sent[1]));
}

async fn a_discarded_event_is_kept_and_never_sent(database: Database) {
    let story = Story::with_one_left(database, 500).await;
    let (waiting, delivered) = (story.id("2").await, story.id("1").await);
    story.rig.database.tamper("UPDATE outbox_head SET leased = TRUE, due_at = 9000000000000000").await;
    let (code, answer) = story.command(&["discard", &waiting]).await;
    assert_eq!(code, 1);
    assert!(answer["events"][0]["message"].as_str().unwrap().contains("it is being sent"), "{answer}");
    assert_eq!(story.listed(&[]).await[0]["leased"], json!(true));
    story.rig.leases_run_out().await;
    let (code, answer) = story.command(&["discard", &waiting, &delivered]).await;
    assert_eq!((code, &answer["done"], &answer["not_done"]), (3, &json!(1), &json!(1)));

    let before = story.sent().len();
    story.rig.receiver.now_answers(|_| Reply::status(200));
    story.rig.sync().await;
    assert_eq!(story.sent().len(), before);
    assert!(story.listed(&[]).await.is_empty());
    assert_eq!(story.listed(&["--state", "discarded"]).await[0]["event"], json!(waiting));
    let (_, state, _) = story.rig.command(&["state", "show", "rows", "--json"]).await;
    assert_eq!(state["events"], json!({"pending": 0, "delivered": 2, "dead": 0}));
}

async fn a_discarded_dead_letter_counts_no_more(database: Database) {
    let story = Story::with_dead(database).await;
    let (code, text) = story.read(&["discard", "--all", "--job", "rows"]).await;
    assert_eq!((code, text.as_str()), (0, "1 event discarded\n"));
    let (_, status, _) = story.rig.command(&["status", "--json"]).await;
    assert_eq!(status["jobs"][0]["dead"], json!(0));
}

async fn a_paused_destination_is_sent_nothing_until_it_is_resumed(database: Database) {
    let story = Story::with_one_left(database, 500).await;
    let (code, paused) = story.command(&["pause", "n8n"]).await;
    assert_eq!((code, &paused["changed"], &paused["pending"]), (0, &json!(true), &json!(1)));
    assert_eq!(story.command(&["pause", "n8n"]).await.1["changed"], json!(false));
    let output = story.rig.spawn(&["status"]).wait_with_output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\n\nn8n is paused since ") && text.contains("1 event waits for it"), "{text}");

    let before = story.sent().len();
    story.rig.receiver.now_answers(|_| Reply::status(200));
    story.rig.leases_run_out().await;
    story.rig.sync().await;
    assert_eq!(story.sent().len(), before);
    assert_eq!(story.command(&["resume", "n8n"]).await.1["changed"], json!(true));
    story.rig.sync().await;
    assert_eq!(story.sent().len(), before + 1);
}

async fn a_parked_destination_is_told_of_and_asked_at_once_when_resumed(database: Database) {
    let story = Story::with_one_left(database, 200).await;
    let quiet = story.rig.spawn(&["status"]).wait_with_output().await.unwrap();
    assert!(!String::from_utf8(quiet.stdout).unwrap().contains("n8n"), "all is well");
    story.rig.receiver.now_answers(|_| Reply::status(401));
    assert_eq!(story.command(&["redeliver", &story.id("2").await]).await.0, 0);
    story.rig.sync().await;
    let (_, answer) = story.command(&["destinations"]).await;
    let parked = &answer["destinations"][0];
    assert_eq!(
        (&parked["destination"], &parked["condition"], &parked["pending"], &parked["configured"]),
        (&json!("n8n"), &json!("parked"), &json!(1), &json!(true))
    );
    assert!(parked["next_attempt_at"].is_string() && parked["reason"].is_string(), "{parked}");
    let (_, status, _) = story.rig.command(&["status", "--json"]).await;
    assert_eq!(status["destinations"][0]["condition"], json!("parked"));
    let output = story.rig.spawn(&["status"]).wait_with_output().await.unwrap();
    assert!(String::from_utf8(output.stdout).unwrap().contains("n8n is parked since "));

    story.rig.receiver.now_answers(|_| Reply::status(200));
    let (before, polls) = (story.sent().len(), story.rig.source.asked().len());
    let mut running = story.rig.spawn(&["run"]);
    story.rig.source.wait_until(|asked| asked.len() >= polls + 2).await;
    assert_eq!(story.sent().len(), before, "it is left alone for a while");
    let (code, resumed) = story.command(&["resume", "n8n"]).await;
    assert_eq!((code, &resumed["changed"], &resumed["next_attempt_at"]), (0, &json!(false), &Value::Null));
    story.rig.receiver.wait_until(|asked| asked.len() > before + 2).await;
    assert_eq!(story.sent().len(), before + 1);
    running.kill().await.unwrap();
}

async fn a_destination_that_wants_to_be_left_alone_is_told_of_and_can_be_overruled(database: Database) {
    let rig = Rig::new(database, Job::default(), |asked| page_of(&ROWS, asked, 10)).await;
    rig.receiver.now_answers(|_| Reply::Status(429, vec![("retry-after", "7200".to_owned())], String::new()));
    let story = Story { rig };
    let (code, _, _) = story.rig.command(&["sync", "rows"]).await;
    assert_eq!(code, 3);
    let asked = story.rig.receiver.asked().len();
    story.rig.receiver.now_answers(|_| Reply::status(200));

    let told = "at once by `onlynew outbox resume n8n`";
    let output = story.rig.spawn(&["sync", "rows"]).wait_with_output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(told), "a sync says why its events wait: {text}");
    let (code, text) = story.read(&["retry", "--all", "--job", "rows"]).await;
    assert!(code == 0 && text.contains("3 events retried") && text.contains(told), "{text}");
    assert!(text.contains("429 Too Many Requests; 3 events wait for it"), "{text}");
    assert_eq!(story.rig.receiver.asked().len(), asked, "it is left alone");

    let (_, resumed) = story.command(&["resume", "n8n"]).await;
    assert_eq!(resumed["message"], json!("it was not paused; it is asked at once"));
    story.rig.sync().await;
    assert_eq!(story.rig.receiver.asked().len(), asked + 3);
}

async fn a_batch_is_shown_by_the_events_in_it(database: Database) {
    let rig = Rig::new(database, Job::default(), |asked| page_of(&ROWS, asked, 10)).await;
    rig.rewrite("concurrency: 8", "batch: {max_events: 100}");
    let story = Story { rig };
    story.rig.sync().await;
    let batch = story.rig.receiver.asked()[0].header("webhook-id").to_owned();
    assert!(batch.starts_with("bat_"), "{batch}");
    let (code, shown) = story.command(&["show", &batch[..12]]).await;
    let keys: Vec<_> = shown["events"].as_array().unwrap().iter().map(|event| event["key"].clone()).collect();
    assert_eq!((code, keys), (0, vec![json!("1"), json!("2"), json!("3")]));
    let (code, text) = story.read(&["show", "bat_none"]).await;
    assert!(code == 2 && text.contains("no batch"), "{text}");
}

async fn a_destination_that_was_never_asked_is_listed_with_what_waits(database: Database) {
    let rig = Rig::new(database, Job::default(), |asked| page_of(&ROWS, asked, 10)).await;
    let story = Story { rig };
    let (_, answer) = story.command(&["destinations"]).await;
    let expected = json!({
        "destination": "n8n", "condition": "well", "since": null, "reason": null, "pending": 0,
        "next_attempt_at": null, "paused_at": null, "configured": true,
    });
    assert_eq!(answer["destinations"], json!([expected]));
    story.command(&["pause", "n8n"]).await;
    story.rig.sync().await;
    // As if events had been stored for it and no process had come to send them.
    story.rig.database.tamper("DELETE FROM destination").await;
    story.rig.rename_destination("other");
    let (_, answer) = story.command(&["destinations"]).await;
    let told: Vec<_> = answer["destinations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|told| (told["destination"].clone(), told["configured"].clone(), told["pending"].clone()))
        .collect();
    assert_eq!(told, [(json!("n8n"), json!(false), json!(3)), (json!("other"), json!(true), json!(0))]);
}

both!(
    the_list_tells_what_is_not_delivered_and_why,
    an_event_is_shown_with_its_body_and_every_attempt,
    a_dead_event_is_sent_again_with_the_same_bytes,
    a_delivered_event_is_sent_again_only_where_that_is_said,
    a_discarded_event_is_kept_and_never_sent,
    a_discarded_dead_letter_counts_no_more,
    a_paused_destination_is_sent_nothing_until_it_is_resumed,
    a_parked_destination_is_told_of_and_asked_at_once_when_resumed,
    a_destination_that_wants_to_be_left_alone_is_told_of_and_can_be_overruled,
    a_batch_is_shown_by_the_events_in_it,
    a_destination_that_was_never_asked_is_listed_with_what_waits,
);
