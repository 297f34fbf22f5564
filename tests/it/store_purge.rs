//! The contract of a purge: what goes, what stays whatever its age, and that nobody is disturbed by it.

use std::{sync::Arc, time::Duration};

use onlynew::{
    domain::instant::Instant,
    store::{EventFilter, EventState, EventView, Granted, Purge, Store, Taken, Wish},
};

use crate::{
    both,
    support::{
        database::Database,
        messages::{alone, delivered},
        pages::{DESTINATION, LONG, NEW_RUN, RunningJob, record},
        purges::{deliver, ended, take, take_all},
    },
};

both!(
    bodies_go_of_events_that_are_settled_for_good_and_of_no_others,
    events_go_with_their_attempts_and_sequences_go_on,
    an_event_that_was_sent_again_goes_as_a_whole_and_only_once_it_is_settled,
    a_purged_event_is_shown_as_such_and_not_sent_again,
    a_purge_goes_in_bites_and_pages_are_committed_between_them,
    two_who_purge_at_once_take_each_event_once,
    what_is_sent_again_while_bodies_are_purged_keeps_its_body,
    events_are_delivered_whole_while_all_that_is_settled_is_purged_at_once,
    runs_go_but_for_those_under_way_and_the_last_of_each_job,
    the_last_run_that_was_well_stays_for_what_it_covered,
    what_a_person_accepted_is_kept_by_its_own_age,
    a_run_of_very_many_pages_goes_in_bites,
);

/// Later than all that a test stores.
const LATER: Instant = Instant::from_seconds(99_000_000_000);

/// When what is old was settled, and behind it.
const OLD: i64 = 1_000;
const NOT_OLD: Instant = Instant::from_micros(OLD + 1);

/// A job whose keys `0` to `count` have one delivered event each, settled long ago.
async fn with_old_events(store: &Arc<dyn Store>, database: &Database, count: usize) -> RunningJob {
    let job = RunningJob::start(store, "issues").await;
    job.commit(1, (0..count).map(|key| record(&key.to_string(), 1, "a")).collect()).await;
    database.tamper(&format!("UPDATE event SET state = 'delivered', settled_at = {OLD}, tries = 1")).await;
    database.tamper("DELETE FROM outbox_head").await;
    job
}

async fn listed(store: &Arc<dyn Store>) -> Vec<EventView> {
    let all = EventFilter {
        until: None,
        states: EventState::ALL.to_vec(),
        job: None,
        destination: None,
        key: None,
        reason: None,
        since: None,
    };
    store.events(&all, u32::MAX).await.unwrap()
}

async fn bodies_go_of_events_that_are_settled_for_good_and_of_no_others(database: Database) {
    let store = database.open().await;
    let job = RunningJob::start(&store, "issues").await;
    let states = ["delivered", "superseded", "discarded", "dead", "pending", "held", "leased", "young"];
    job.commit(1, states.iter().map(|state| record(state, 1, "a")).collect()).await;
    for state in ["delivered", "superseded", "discarded", "dead"] {
        let settled = format!("UPDATE event SET state = key, settled_at = {OLD} WHERE key = '{state}'");
        database.tamper(&settled).await;
        database.tamper(&format!("DELETE FROM outbox_head WHERE lane = '{state}'")).await;
    }
    database.tamper("UPDATE event SET state = 'delivered', settled_at = 5000 WHERE key = 'young'").await;
    database.tamper("DELETE FROM outbox_head WHERE lane = 'young'").await;
    database.tamper("UPDATE outbox_head SET held = TRUE WHERE lane = 'held'").await;
    database.tamper("UPDATE outbox_head SET leased = TRUE WHERE lane = 'leased'").await;

    let purge = Purge::Payloads(NOT_OLD);
    assert_eq!(store.purgeable(&purge).await.unwrap(), 3);
    assert_eq!(take(&store, &purge).await, Taken { rows: 3, next: None });
    assert_eq!(take(&store, &purge).await, Taken::default());
    let gone =
        database.texts("SELECT key FROM event WHERE body = '' AND purged_at > 1000 ORDER BY key").await;
    assert_eq!(gone, ["delivered", "discarded", "superseded"]);
    assert_eq!(take_all(&store, Purge::Attempts(LATER)).await, 3, "a body goes before its event");
    assert_eq!(database.number("(SELECT count(*) FROM event WHERE body LIKE '{%')").await, 5);
}

async fn events_go_with_their_attempts_and_sequences_go_on(database: Database) {
    let store = database.open().await;
    let job = RunningJob::start(&store, "issues").await;
    job.commit(1, vec![record("1", 1, "a"), record("2", 1, "a")]).await;
    deliver(&store).await;
    database.tamper(&format!("UPDATE event SET settled_at = {OLD} WHERE key = '1'")).await;
    assert_eq!(store.purgeable(&Purge::Attempts(NOT_OLD)).await.unwrap(), 2);
    assert_eq!(take_all(&store, Purge::Payloads(NOT_OLD)).await, 1);
    assert_eq!(store.purgeable(&Purge::Attempts(NOT_OLD)).await.unwrap(), 2);
    assert_eq!(take(&store, &Purge::Attempts(NOT_OLD)).await, Taken { rows: 2, next: None });
    assert_eq!(database.number("(SELECT count(*) FROM attempt)").await, 1);
    job.commit(2, vec![record("1", 2, "b")]).await;
    deliver(&store).await;
    let events = database.texts("SELECT key || ' ' || sequence || ' ' || state FROM event ORDER BY position");
    assert_eq!(events.await, ["2 1 delivered", "1 2 delivered"]);
}

async fn an_event_that_was_sent_again_goes_as_a_whole_and_only_once_it_is_settled(database: Database) {
    let store = database.open().await;
    let _job = with_old_events(&store, &database, 2).await;
    let event = listed(&store).await.remove(0);
    assert_eq!(store.grant(event.position, Wish::Redeliver).await.unwrap(), Granted::Done);
    let bodies = "(SELECT count(*) FROM event WHERE body <> '')";
    assert_eq!(take_all(&store, Purge::Payloads(LATER)).await, 1, "only the other one");
    assert_eq!(database.number(bodies).await, 2);
    deliver(&store).await;
    assert_eq!(take_all(&store, Purge::Payloads(NOT_OLD)).await, 0, "the latest time counts");
    assert_eq!(take_all(&store, Purge::Payloads(LATER)).await, 2);
    assert_eq!(database.number(bodies).await, 0);
    assert_eq!(take_all(&store, Purge::Attempts(LATER)).await, 4, "three events and one attempt");
}

async fn a_purged_event_is_shown_as_such_and_not_sent_again(database: Database) {
    let store = database.open().await;
    let _job = with_old_events(&store, &database, 1).await;
    let event = listed(&store).await.remove(0);
    assert_eq!(event.purged_at, None);
    take_all(&store, Purge::Payloads(LATER)).await;
    assert_eq!(store.grant(event.position, Wish::Redeliver).await.unwrap(), Granted::Purged);
    assert_eq!(
        store.grant(event.position, Wish::Discard).await.unwrap(),
        Granted::Not(EventState::Delivered)
    );
    let purged = listed(&store).await.remove(0);
    assert!(purged.purged_at.is_some() && purged.state == EventState::Delivered, "{purged:?}");
    let story = store.event_story(&event.event_id).await.unwrap().unwrap();
    assert_eq!(story.body, None);
    take_all(&store, Purge::Attempts(LATER)).await;
    assert_eq!(store.grant(event.position, Wish::Redeliver).await.unwrap(), Granted::Purged);
    assert!(store.event_story(&event.event_id).await.unwrap().is_none());
}

async fn a_purge_goes_in_bites_and_pages_are_committed_between_them(database: Database) {
    let store = database.open().await;
    let job = with_old_events(&store, &database, 1_100).await;
    let mut next = Some(Purge::Payloads(NOT_OLD));
    let mut bites = Vec::new();
    let mut number = 1;
    while let Some(purge) = next {
        let taken = take(&store, &purge).await;
        bites.push(taken.rows);
        number += 1;
        let counts = job.commit(number, vec![record("0", i64::from(number), "b")]).await;
        assert_eq!(counts.updated, 1, "after {bites:?}");
        next = taken.next;
    }
    assert_eq!(bites, [500, 500, 100]);
    database.tamper("UPDATE event SET settled_at = 1 WHERE key = '7' AND state = 'delivered'").await;
    database
        .tamper(
            "INSERT INTO attempt (position, fence, outcome, ambiguous, answer, sent_at, took)
                 SELECT old.position, 1, 'again', FALSE, '', 1, 1 FROM event AS old CROSS JOIN event AS many
                 WHERE old.key = '7' AND many.purged_at IS NOT NULL",
        )
        .await;
    database
        .tamper(
            "INSERT INTO attempt (position, fence, outcome, ambiguous, answer, sent_at, took)
                 SELECT position, 1, 'again', FALSE, '', 1, 1 FROM attempt",
        )
        .await;
    let first = take(&store, &Purge::Attempts(NOT_OLD)).await;
    assert_eq!((first.rows, first.next.is_some()), (2_000, true), "no more at once than that");
    assert_eq!(take_all(&store, Purge::Attempts(NOT_OLD)).await, 1_100 + 200);
    assert_eq!(database.number("(SELECT count(*) FROM event WHERE state <> 'pending')").await, 0);
}

async fn two_who_purge_at_once_take_each_event_once(database: Database) {
    let (one, other) = database.open_two().await;
    let _job = with_old_events(&one, &database, 1_300).await;
    let both = [one.clone(), other].map(|store| {
        tokio::spawn(async move {
            let bodies = take_all(&store, Purge::Payloads(NOT_OLD)).await;
            (bodies, take_all(&store, Purge::Attempts(NOT_OLD)).await)
        })
    });
    let (mut bodies, mut events) = (0, 0);
    for taken in both {
        let taken = taken.await.unwrap();
        bodies += taken.0;
        events += taken.1;
    }
    // What one of them held was passed over by the other.
    bodies += take_all(&one, Purge::Payloads(NOT_OLD)).await;
    events += take_all(&one, Purge::Attempts(NOT_OLD)).await;
    assert_eq!((bodies, events), (1_300, 1_300));
}

async fn what_is_sent_again_while_bodies_are_purged_keeps_its_body(database: Database) {
    let (one, other) = database.open_two().await;
    let _job = with_old_events(&one, &database, 120).await;
    let events = listed(&one).await;
    let purging = tokio::spawn(async move {
        for _ in 0..20 {
            take_all(&other, Purge::Payloads(LATER)).await;
            tokio::task::yield_now().await;
        }
    });
    let mut granted = Vec::new();
    for event in events.iter().rev() {
        granted.push(one.grant(event.position, Wish::Redeliver).await.unwrap());
    }
    purging.await.unwrap();
    let done = granted.iter().filter(|granted| **granted == Granted::Done).count();
    assert!(granted.iter().all(|granted| matches!(granted, Granted::Done | Granted::Purged)), "{granted:?}");
    let number =
        async |sql: &str| database.number(&format!("(SELECT count(*) FROM event WHERE {sql})")).await;
    let done = i64::try_from(done).unwrap();
    assert_eq!(number("state = 'pending'").await, done);
    assert_eq!(number("state = 'pending' AND body LIKE '{%'").await, done);
    assert_eq!(number("state = 'delivered' AND body = ''").await, 120 - done, "the others went");
}

async fn events_are_delivered_whole_while_all_that_is_settled_is_purged_at_once(database: Database) {
    let (one, other) = database.open_two().await;
    let job = RunningJob::start(&one, "issues").await;
    let (stop, mut stopped) = tokio::sync::watch::channel(false);
    let purging = tokio::spawn(async move {
        let mut rows = 0;
        while !*stopped.borrow_and_update() {
            rows += take_all(&other, Purge::Payloads(LATER)).await;
            take_all(&other, Purge::Attempts(LATER)).await;
        }
        rows += take_all(&other, Purge::Payloads(LATER)).await;
        take_all(&other, Purge::Attempts(LATER)).await;
        rows
    });
    for number in 1..=15 {
        let page = (0..6).map(|key| record(&key.to_string(), i64::from(number), "x")).collect();
        job.commit(number, page).await;
        let claims = one.claim_messages(DESTINATION, &alone(10, LONG)).await.unwrap();
        for claim in &claims {
            let body: serde_json::Value = serde_json::from_str(&claim.body().unwrap()).unwrap();
            assert_eq!(body["id"], claim.id.as_str());
            assert!(one.settle_message(claim, &delivered()).await.unwrap().is_some());
        }
    }
    deliver(&one).await;
    stop.send(true).unwrap();
    assert_eq!(purging.await.unwrap(), 90);
    for table in ["event", "attempt", "outbox_head"] {
        assert_eq!(database.number(&format!("(SELECT count(*) FROM {table})")).await, 0, "{table}");
    }
}

async fn runs_go_but_for_those_under_way_and_the_last_of_each_job(database: Database) {
    let store = database.open().await;
    let mut under_way = RunningJob::start(&store, "under way").await;
    let mut idle = RunningJob::start(&store, "idle").await;
    for job in [&mut under_way, &mut idle] {
        for _ in 0..3 {
            store.finish_run(&job.lease, job.run, &ended(None)).await.unwrap();
            job.run = store.start_run(&job.lease, &NEW_RUN).await.unwrap();
        }
    }
    store.finish_run(&idle.lease, idle.run, &ended(None)).await.unwrap();
    let last = store.job_view("idle").await.unwrap().unwrap().last_run;
    assert_eq!(store.purgeable(&Purge::Pages(LATER)).await.unwrap(), 5);
    assert_eq!(take(&store, &Purge::Pages(NOT_OLD)).await, Taken::default());
    assert_eq!(take(&store, &Purge::Pages(LATER)).await, Taken { rows: 5, next: None });
    let left = database.texts("SELECT status FROM run ORDER BY id").await;
    assert_eq!(left, ["ok", "running", "ok"], "the last one that was well stays, and the last one");
    assert_eq!(store.job_view("idle").await.unwrap().unwrap().last_run, last);
    assert_eq!(under_way.commit(1, vec![record("1", 1, "a")]).await.created, 1);
    database.tamper(&format!("UPDATE run SET pages = 400, status = 'ok', ended_at = {OLD}")).await;
    for _ in 0..3 {
        let run = store.start_run(&under_way.lease, &NEW_RUN).await.unwrap();
        store.finish_run(&under_way.lease, run, &ended(None)).await.unwrap();
        database.tamper("UPDATE run SET pages = 400").await;
    }
    let taken = take(&store, &Purge::Pages(LATER)).await;
    assert_eq!((taken.rows, taken.next), (1, Some(Purge::Pages(LATER))), "a run of many pages goes alone");
    assert_eq!(take_all(&store, Purge::Pages(LATER)).await, 3);
}

async fn the_last_run_that_was_well_stays_for_what_it_covered(database: Database) {
    let store = database.open().await;
    let mut job = RunningJob::start(&store, "issues").await;
    store.finish_run(&job.lease, job.run, &ended(None)).await.unwrap();
    for _ in 0..2 {
        job.run = store.start_run(&job.lease, &NEW_RUN).await.unwrap();
        store.finish_run(&job.lease, job.run, &ended(None)).await.unwrap();
        database.tamper("UPDATE run SET status = 'failed' WHERE id = (SELECT max(id) FROM run)").await;
    }
    assert_eq!(take(&store, &Purge::Pages(LATER)).await, Taken::default());
    assert_eq!(database.number("(SELECT count(*) FROM run)").await, 3);
}

async fn what_a_person_accepted_is_kept_by_its_own_age(database: Database) {
    let store = database.open().await;
    let mut job = RunningJob::start(&store, "issues").await;
    job.commit(1, vec![record("1", 1, "a")]).await;
    job.commit(2, vec![record("2", 1, "a")]).await;
    database
        .tamper("UPDATE sighting SET page = 0, decided_at = decided_at + 86400000000 WHERE page = 2")
        .await;
    for _ in 0..2 {
        store.finish_run(&job.lease, job.run, &ended(None)).await.unwrap();
        job.run = store.start_run(&job.lease, &NEW_RUN).await.unwrap();
    }
    let soon = store.now().await.unwrap().plus(Duration::from_hours(1));
    assert_eq!(take(&store, &Purge::Pages(soon)).await, Taken { rows: 1, next: None });
    assert_eq!(database.texts("SELECT CAST(page AS TEXT) FROM sighting").await, ["0"]);
    let later = soon.plus(Duration::from_hours(48));
    assert_eq!(take_all(&store, Purge::Pages(later)).await, 1);
    assert_eq!(database.number("(SELECT count(*) FROM sighting)").await, 0);
}

async fn a_run_of_very_many_pages_goes_in_bites(database: Database) {
    let store = database.open().await;
    let mut job = RunningJob::start(&store, "issues").await;
    for page in 1..=3 {
        job.commit(page, vec![record("1", 1, "a")]).await;
    }
    for _ in 0..9 {
        database
            .tamper(
                "INSERT INTO sighting (job, partition, run, page, asked_at, answered_at, decided_at, keys)
                 SELECT job, partition, run, page, asked_at, answered_at, decided_at, keys FROM sighting",
            )
            .await;
    }
    for _ in 0..2 {
        store.finish_run(&job.lease, job.run, &ended(None)).await.unwrap();
        job.run = store.start_run(&job.lease, &NEW_RUN).await.unwrap();
    }
    let left = async || database.number("(SELECT count(*) FROM sighting)").await;
    let bite = Taken { rows: 0, next: Some(Purge::Pages(LATER)) };
    assert_eq!((take(&store, &Purge::Pages(LATER)).await, left().await), (bite, 536));
    assert_eq!((take(&store, &Purge::Pages(LATER)).await.rows, left().await), (1, 0));
}

#[tokio::test]
async fn a_sqlite_file_that_was_made_new_gives_room_back_and_its_log_is_cut_off() {
    let database = Database::sqlite();
    let store = database.open().await;
    let path = database.url().strip_prefix("sqlite://").unwrap().to_owned();
    let length = |suffix: &str| std::fs::metadata(format!("{path}{suffix}")).unwrap().len();
    let job = RunningJob::start(&store, "issues").await;
    let content = "x".repeat(3_000);
    job.commit(1, (0..1_500).map(|key| record(&key.to_string(), 1, &content)).collect()).await;
    database.tamper(&format!("UPDATE event SET state = 'delivered', settled_at = {OLD}")).await;
    database.tamper("DELETE FROM outbox_head").await;
    assert!(!store.tidy().await.unwrap(), "there is nothing to give back");
    assert_eq!(length("-wal"), 0);
    let before = length("");
    take_all(&store, Purge::Payloads(LATER)).await;
    take_all(&store, Purge::Attempts(LATER)).await;
    let mut bites = 0;
    while store.tidy().await.unwrap() {
        bites += 1;
    }
    assert!(bites > 3, "{bites} bites");
    assert_eq!(length("-wal"), 0);
    assert!(length("") < before / 4, "{} of {before} bytes", length(""));
}

#[tokio::test]
async fn a_sqlite_file_of_an_earlier_release_keeps_its_room() {
    let database = Database::sqlite();
    let store = database.open().await;
    let job = RunningJob::start(&store, "issues").await;
    job.commit(1, (0..300).map(|key| record(&key.to_string(), 1, &"x".repeat(3_000))).collect()).await;
    store.close().await;
    database.tamper("PRAGMA journal_mode = DELETE").await;
    {
        let mut beside = database.connect().await;
        beside.tamper("PRAGMA auto_vacuum = NONE").await;
        beside.tamper("VACUUM").await;
    }
    let store = database.open().await;
    database.tamper("DELETE FROM outbox_head").await;
    database.tamper("DELETE FROM event").await;
    assert_eq!(database.texts("SELECT CAST(auto_vacuum AS TEXT) FROM pragma_auto_vacuum()").await, ["0"]);
    assert!(database.number("(SELECT freelist_count FROM pragma_freelist_count())").await > 100);
    assert!(!store.tidy().await.unwrap());
}
