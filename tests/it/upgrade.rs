//! A store of an earlier release goes on: what it knows is known, what waits is delivered, and only what is new is sent.
//!
//! The stores in `tests/fixtures/upgrade` were written by the release whose last migration their names tell: two records
//! sent, one of them changed, a dead letter, a record without a key, a failed run, and an event that waits.

use onlynew::domain::run::RunStatus;
use serde_json::{Value, json};

use crate::{
    both,
    support::{
        database::{Database, unsound},
        rig::{Job, Rig, page_of_values},
    },
};

both!(what_an_earlier_release_stored_is_known_and_only_what_is_new_is_sent);

fn rows() -> Vec<Value> {
    vec![
        json!({"id": 1, "updated_at": "2026-09-21T10:00:00Z", "name": "a"}),
        json!({"id": 2, "updated_at": "2026-09-21T10:05:00Z", "name": "changed"}),
        json!({"id": 3, "updated_at": "2026-09-21T10:05:01Z"}),
        json!({"id": 4, "updated_at": "2026-09-21T10:06:00Z"}),
        json!({"id": 5, "updated_at": "2026-09-21T10:07:00Z"}),
    ]
}

async fn what_an_earlier_release_stored_is_known_and_only_what_is_new_is_sent(database: Database) {
    let kind = if database.url().starts_with("sqlite") { "sqlite" } else { "postgres" };
    let path = format!("{}/tests/fixtures/upgrade/{kind}_0008.sql", env!("CARGO_MANIFEST_DIR"));
    database.connect().await.script(&std::fs::read_to_string(path).unwrap()).await;
    let store = database.open().await;
    assert_eq!(unsound(&store).await, None);
    store.close().await;

    let job = Job { query: r#"{since: "{{ window.start }}"}"#, pagination: "{type: none}", ..Job::default() };
    let rig = Rig::new(database, job, |asked| page_of_values(&rows(), asked, 10)).await;
    rig.leases_run_out().await;
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.counts.events), (RunStatus::Ok, 1), "{:?}", report.reason);
    assert_eq!(rig.sent_keys(), ["4", "5"], "what waited, and what is new");
    let (code, replayed, errors) = rig.command(&["replay", "rows", "--json"]).await;
    assert_eq!((code, &replayed["events"], &replayed["records"]), (0, &json!(0), &json!(5)), "{errors}");
    let (code, told, _) = rig.command(&["outbox", "list", "--state", "dead", "--json"]).await;
    assert_eq!((code, &told["events"][0]["key"]), (0, &json!("3")), "{told}");
    let (code, told, _) = rig.command(&["quarantine", "list", "rows", "--json"]).await;
    assert_eq!(code, 0);
    assert_eq!(told["records"][0]["reason"], "the primary key's part `id` is missing, null or empty");
    let (code, told, errors) = rig.command(&["why", "rows", "2", "--json"]).await;
    assert_eq!(code, 0, "{told} {errors}");
    let store = rig.database.open().await;
    assert_eq!(unsound(&store).await, None);
    store.close().await;
}
