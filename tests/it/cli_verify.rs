//! `onlynew verify`: every check finds what it is there for, and nothing in a store that is sound.

use std::{collections::BTreeSet, sync::Arc};

use onlynew::{
    domain::{coverage::Covered, instant::Instant, run::RunStatus, version::Version},
    store::{RunEnd, Store, Wish},
};

use crate::{
    both,
    support::{
        database::Database,
        messages,
        pages::{DESTINATION, LONG, RunningJob, record},
        rig::{Job, Rig, page_of},
    },
};

both!(
    every_check_finds_what_it_is_there_for,
    a_store_that_is_sound_is_said_to_be,
    what_is_broken_is_told_with_what_to_do,
);

/// A row that a delivered event, a redelivery, two events of one key and an open run of another job have left.
async fn lived_in(store: &Arc<dyn Store>) {
    let job = RunningJob::start(store, "issues").await;
    job.commit(1, vec![record("2", 1, "a")]).await;
    for claim in store.claim_messages(DESTINATION, &messages::alone(1, LONG)).await.unwrap() {
        let position = claim.events[0].position;
        store.settle_message(&claim, &messages::delivered()).await.unwrap().unwrap();
        store.grant(position, Wish::Redeliver).await.unwrap();
    }
    job.commit(2, vec![record("1", 2, "a")]).await;
    job.commit(3, vec![record("1", 3, "b")]).await;
    let covered = Covered { from: None, to: Some(Version(4)), read_at: Instant::from_seconds(1) };
    let end = RunEnd {
        status: RunStatus::Ok,
        reason: None,
        at_source: false,
        requests: 3,
        watermark: Some(Version(3)),
        complete_through: Some(Instant::from_seconds(9)),
        covered: Some(covered),
        sync_token: None,
        page_tag: None,
    };
    store.finish_run(&job.lease, job.run, &end).await.unwrap();
    RunningJob::start(store, "orders").await.commit(1, vec![record("9", 1, "a")]).await;
}

async fn broken(store: &Arc<dyn Store>) -> BTreeSet<&'static str> {
    let checked = store.verify().await.unwrap();
    checked.iter().filter(|checked| !checked.found.is_empty()).map(|checked| checked.check.name).collect()
}

/// What is done behind the store's back, how it is undone, and which checks find it.
const TAMPERED: [(&str, &str, &[&str]); 25] = [
    (
        "UPDATE outbox_head SET lane = 'x' WHERE lane = '1'",
        "UPDATE outbox_head SET lane = '1' WHERE lane = 'x'",
        &["lanes_have_heads", "heads_name_waiting_events"],
    ),
    (
        "UPDATE outbox_head SET position = (SELECT max(position) FROM event WHERE key = '1') WHERE lane = '1'",
        "UPDATE outbox_head SET position = (SELECT min(position) FROM event WHERE key = '1') WHERE lane = '1'",
        &["heads_come_first"],
    ),
    (
        "UPDATE event SET state = 'delivered', settled_at = 1 WHERE key = '9'",
        "UPDATE event SET state = 'pending', settled_at = NULL WHERE key = '9'",
        &["heads_name_waiting_events"],
    ),
    (
        "UPDATE outbox_head SET held = TRUE WHERE lane = '1'",
        "UPDATE outbox_head SET held = FALSE WHERE lane = '1'",
        &["held_heads_are_never_due"],
    ),
    (
        "UPDATE outbox_head SET due_at = due_at + 1000000000000 WHERE lane = '1'",
        "UPDATE outbox_head SET due_at = due_at - 1000000000000 WHERE lane = '1'",
        &["held_heads_are_never_due"],
    ),
    (
        "UPDATE outbox_head SET leased = TRUE WHERE lane = '1'",
        "UPDATE outbox_head SET leased = FALSE WHERE lane = '1'",
        &["fences_grow"],
    ),
    (
        "UPDATE outbox_head SET message = 'bat_1' WHERE lane IN ('1', '9')",
        "UPDATE outbox_head SET message = NULL WHERE lane IN ('1', '9')",
        &["messages_are_of_one_job"],
    ),
    (
        "UPDATE event SET state = 'lost' WHERE state = 'delivered'",
        "UPDATE event SET state = 'delivered' WHERE state = 'lost'",
        &["events_have_known_states"],
    ),
    (
        "UPDATE event SET settled_at = NULL WHERE state = 'delivered'",
        "UPDATE event SET settled_at = 1 WHERE state = 'delivered'",
        &["settled_events_say_when"],
    ),
    (
        "UPDATE event SET settled_at = 1 WHERE key = '9'",
        "UPDATE event SET settled_at = NULL WHERE key = '9'",
        &["settled_events_say_when"],
    ),
    (
        "UPDATE event SET sequence = 1 WHERE kind = 'record.updated'",
        "UPDATE event SET sequence = 2 WHERE kind = 'record.updated'",
        &["sequences_are_unique"],
    ),
    (
        "UPDATE record SET sequence = 1 WHERE key = '1'",
        "UPDATE record SET sequence = 2 WHERE key = '1'",
        &["sequences_are_counted"],
    ),
    (
        "UPDATE event SET body = body || ' ' WHERE redelivery = 1",
        "UPDATE event SET body = (SELECT first.body FROM event AS first WHERE first.event_id = event.event_id
             AND first.redelivery = 0) WHERE redelivery = 1",
        &["redeliveries_are_the_same_event"],
    ),
    (
        "UPDATE event SET redelivery = 2 WHERE redelivery = 1",
        "UPDATE event SET redelivery = 1 WHERE redelivery = 2",
        &["redeliveries_are_the_same_event"],
    ),
    (
        "UPDATE event SET tries = 0 WHERE state = 'delivered'",
        "UPDATE event SET tries = 1 WHERE state = 'delivered'",
        &["attempts_are_of_events"],
    ),
    (
        "INSERT INTO attempt (position, fence, outcome, ambiguous, answer, sent_at, took)
         VALUES (999, 1, 'again', FALSE, '', 0, 0)",
        "DELETE FROM attempt WHERE position = 999",
        &["attempts_are_of_events"],
    ),
    (
        "INSERT INTO run (job, kind, status, started_at, ended_at) VALUES (99, 'live', 'ok', 0, 1)",
        "DELETE FROM run WHERE job = 99",
        &["everything_is_of_a_job"],
    ),
    (
        "INSERT INTO record (job, partition, key, first_seen_at, changed_at) SELECT id, '', 'x', 0, 0 FROM job
         WHERE name = 'issues'",
        "DELETE FROM record WHERE key = 'x'",
        &["records_have_states"],
    ),
    (
        "UPDATE job SET lease_until = lease_until + 10000000000",
        "UPDATE job SET lease_until = lease_until - 10000000000",
        &["leases_are_whole"],
    ),
    (
        "INSERT INTO run (job, kind, status, started_at) SELECT id, 'live', 'running', 0 FROM job WHERE name = 'orders'",
        "DELETE FROM run WHERE started_at = 0",
        &["one_run_at_a_time"],
    ),
    (
        "UPDATE run SET ended_at = 5 WHERE status = 'running'",
        "UPDATE run SET ended_at = NULL WHERE status = 'running'",
        &["ended_runs_say_when"],
    ),
    (
        "UPDATE run SET records = records + 1 WHERE status = 'ok'",
        "UPDATE run SET records = records - 1 WHERE status = 'ok'",
        &["counts_add_up"],
    ),
    (
        "UPDATE sighting SET run = (SELECT max(id) FROM run) WHERE page = 3",
        "UPDATE sighting SET run = (SELECT min(id) FROM run) WHERE page = 3",
        &["sightings_are_of_their_job"],
    ),
    (
        "INSERT INTO covered (job, partition, run, from_version, to_version, read_at)
         SELECT job, '', id, 3, 3, 0 FROM run WHERE status = 'ok'",
        "DELETE FROM covered WHERE from_version = 3",
        &["covered_steps_have_versions"],
    ),
    (
        "UPDATE progress SET watermark = watermark + 100",
        "UPDATE progress SET watermark = watermark - 100",
        &["watermarks_are_covered"],
    ),
];

async fn every_check_finds_what_it_is_there_for(database: Database) {
    let store = database.open().await;
    lived_in(&store).await;
    assert_eq!(broken(&store).await, BTreeSet::new());
    let mut beside = database.connect().await;
    // Some of it the database itself would refuse.
    let unguarded = if database.url().starts_with("sqlite") {
        "PRAGMA foreign_keys = OFF"
    } else {
        "SET session_replication_role = replica"
    };
    beside.tamper(unguarded).await;
    let destinations = (
        "UPDATE destination SET condition = 'gone'",
        "UPDATE destination SET condition = 'well'",
        ["destinations_have_known_conditions"].as_slice(),
    );
    let mut proved = BTreeSet::new();
    for (tampered, undone, found) in TAMPERED.into_iter().chain([destinations]) {
        beside.tamper(tampered).await;
        assert_eq!(broken(&store).await, found.iter().copied().collect(), "{tampered}");
        beside.tamper(undone).await;
        assert_eq!(broken(&store).await, BTreeSet::new(), "{undone}");
        proved.extend(found);
    }
    let all: BTreeSet<_> = store.verify().await.unwrap().iter().map(|checked| checked.check.name).collect();
    assert_eq!(proved, all, "every check is proved");
}

async fn a_store_that_is_sound_is_said_to_be(database: Database) {
    let rig =
        Rig::new(database, Job::default(), |asked| page_of(&[(1, "2026-09-21T10:00:00Z")], asked, 10)).await;
    for _ in 0..2 {
        rig.sync().await;
        let (code, answer, _) = rig.command(&["verify", "--json"]).await;
        assert_eq!((code, answer["ok"].as_bool()), (0, Some(true)), "{answer}");
    }
    let output = rig.spawn(&["verify"]).wait_with_output().await.unwrap();
    assert!(String::from_utf8(output.stdout).unwrap().contains("the store is sound"));
}

async fn what_is_broken_is_told_with_what_to_do(database: Database) {
    let rig =
        Rig::new(database, Job::default(), |asked| page_of(&[(1, "2026-09-21T10:00:00Z")], asked, 10)).await;
    rig.sync().await;
    rig.database.tamper("UPDATE event SET settled_at = NULL").await;
    let (code, answer, _) = rig.command(&["verify", "--json"]).await;
    assert_eq!((code, answer["ok"].as_bool()), (1, Some(false)));
    let checks = answer["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["check"] == "settled_events_say_when").unwrap();
    assert_eq!((check["ok"].as_bool(), check["found"].as_u64()), (Some(false), Some(1)));
    assert!(check["examples"][0].as_str().unwrap().contains("is delivered since no moment"), "{check}");
    let output = rig.spawn(&["verify"]).wait_with_output().await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    for expected in
        ["1 found", "no release writes this", "is delivered since no moment", "the store is not sound"]
    {
        assert!(text.contains(expected), "{text}");
    }
}
