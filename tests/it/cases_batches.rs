//! Batches and paces, told through the whole engine on both databases.

use std::time::Duration;

use serde_json::json;

use crate::{
    both,
    support::{
        database::Database,
        rig::{Job, Rig, page_of},
        server::{Asked, Reply},
    },
};

both!(
    one_request_brings_what_a_sync_found,
    a_record_that_is_refused_is_found_in_its_batch,
    a_limited_destination_is_sent_everything_in_its_time,
    an_event_of_a_batch_is_shown_with_the_batch,
);

const ROWS: [(u32, &str); 5] = [
    (1, "2026-09-21T10:00:01Z"),
    (2, "2026-09-21T10:00:02Z"),
    (3, "2026-09-21T10:00:03Z"),
    (4, "2026-09-21T10:00:04Z"),
    (5, "2026-09-21T10:00:05Z"),
];

/// A rig with five rows, whose destination has these keys as well.
async fn rig(database: Database, keys: &str) -> Rig {
    let rig = Rig::new(database, Job::default(), |asked| page_of(&ROWS, asked, 10)).await;
    rig.rewrite("concurrency: 8", keys);
    rig
}

/// The keys of the events of a request.
fn keys(asked: &Asked) -> Vec<String> {
    let body = asked.json();
    let events = body["events"].as_array().unwrap();
    events.iter().map(|event| event["key"].as_str().unwrap().to_owned()).collect()
}

async fn one_request_brings_what_a_sync_found(database: Database) {
    let rig = rig(database, "batch: {linger: 5m}").await;
    let synced = rig.sync().await;
    assert_eq!((synced.delivered, synced.pending, synced.dead), (5, 0, 0));
    let asked = rig.receiver.asked();
    assert_eq!(asked.len(), 1, "nothing lingers where nothing can come");
    assert_eq!(keys(&asked[0]), ["1", "2", "3", "4", "5"]);
    let body = asked[0].json();
    assert_eq!(
        (&body["job"], &body["batch_id"]),
        (&json!("rows"), &json!(asked[0].header("idempotency-key")))
    );
    assert_eq!(asked[0].header("webhook-id"), asked[0].header("idempotency-key"));
    assert_eq!(body["events"][0]["data"]["id"], json!(1));
}

async fn a_record_that_is_refused_is_found_in_its_batch(database: Database) {
    let rig = rig(database, "batch: {max_events: 100}, concurrency: 1").await;
    rig.rewrite("delays: [50ms]", "delays: [1h]");
    rig.receiver
        .now_answers(|asked| Reply::status(if keys(asked).contains(&"4".to_owned()) { 400 } else { 204 }));
    let synced = rig.sync().await;
    assert_eq!((synced.delivered, synced.pending, synced.dead), (4, 1, 0));
    rig.leases_run_out().await;
    assert_eq!(rig.sync().await.dead, 1, "another one was taken since");
    let requests: Vec<_> = rig.receiver.asked().iter().map(keys).collect();
    let expected =
        [vec!["1", "2", "3", "4", "5"], vec!["1", "2", "3"], vec!["4", "5"], vec!["4"], vec!["5"], vec!["4"]];
    assert_eq!(requests, expected);
    assert_eq!(rig.database.texts("SELECT key FROM event WHERE state = 'dead'").await, ["4"]);
}

async fn a_limited_destination_is_sent_everything_in_its_time(database: Database) {
    let rig = rig(database, "rate_limit: {requests: 2, per: 10m}").await;
    let synced = rig.sync().await;
    assert_eq!((synced.delivered, synced.pending), (5, 0));
    let apart = Duration::from_mins(5);
    let waits = rig.clock.waits.lock().unwrap().clone();
    let waited: Duration = waits.iter().sum();
    assert!(waited + Duration::from_secs(30) >= apart * 4 && waited <= apart * 4, "{waits:?}");
}

async fn an_event_of_a_batch_is_shown_with_the_batch(database: Database) {
    let rig = rig(database, "batch: {}").await;
    rig.receiver.now_answers(|_| Reply::status(502));
    assert_eq!(rig.sync().await.pending, 5);
    let asked = rig.receiver.asked();
    let id = asked[0].json()["events"][1]["id"].as_str().unwrap().to_owned();
    let (_, shown, _) = rig.command(&["outbox", "show", &id, "--json"]).await;
    let batch = json!(asked[0].header("idempotency-key"));
    assert_eq!((&shown["batch"], &shown["headers"]["Idempotency-Key"]), (&batch, &batch));
    let first = &shown["attempts"][0];
    assert_eq!(
        (&first["class"], &first["batch"], &first["ambiguous"]),
        (&json!("lost"), &batch, &json!(true))
    );
}
