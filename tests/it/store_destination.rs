//! The contract of destinations: what they are sent while they are not well, and what is due where one opens.

use std::{sync::Arc, time::Duration};

use onlynew::{
    domain::{
        delivery::{Next, Verdict},
        health::Condition,
    },
    store::{ClaimedMessage, Settled, Store},
};

use crate::{
    both,
    support::{
        database::Database,
        messages::{
            FAILED, alone, attempt, claim, claim_one, delivered, job_with_events, place, slow, two_claims,
        },
        pages::{DESTINATION, RunningJob, record},
    },
};

both!(
    a_destination_that_fails_is_probed_with_one_event_after_another,
    a_parked_destination_waits_and_all_that_waits_is_due_once_it_opens,
    a_probe_whose_process_died_is_sent_again,
    a_paused_destination_is_sent_nothing,
    a_busy_destination_is_left_alone_by_everyone,
    an_event_that_something_counts_against_keeps_its_schedule_when_its_destination_opens,
    what_was_passed_over_when_a_destination_opened_is_due_once_it_is_well,
    what_was_begun_before_a_destination_opened_neither_shuts_it_nor_holds_it_up,
    a_wait_that_a_wrong_clock_wrote_holds_nothing,
);

/// So many keys with one event each, all claimed, and time enough gone that what follows is later.
async fn claims_of(store: &Arc<dyn Store>, keys: u32) -> Vec<ClaimedMessage> {
    let job = RunningJob::start(store, "issues").await;
    job.commit(1, (1..=keys).map(|key| record(&key.to_string(), 1, "x")).collect()).await;
    let claims = claim(store).await;
    assert_eq!(claims.len(), usize::try_from(keys).unwrap());
    tokio::time::sleep(Duration::from_millis(5)).await;
    claims
}

async fn an_event_that_something_counts_against_keeps_its_schedule_when_its_destination_opens(
    database: Database,
) {
    let store = database.open().await;
    let claims = claims_of(&store, 4).await;
    store.settle_message(&claims[0], &attempt(FAILED)).await.unwrap();
    store.settle_message(&claims[1], &delivered()).await.unwrap();
    let counted = claim_one(&store).await;
    store.settle_message(&counted, &slow(FAILED)).await.unwrap();
    store.settle_message(&claims[2], &slow(Verdict::Misplaced)).await.unwrap();
    let opened = store.settle_message(&claims[3], &delivered()).await.unwrap().unwrap();
    assert!(opened.has_opened());
    let woken = claim_one(&store).await;
    assert_eq!(woken.events[0].position, claims[2].events[0].position);
    store.settle_message(&woken, &delivered()).await.unwrap();
    assert_eq!(claim(&store).await, []);
    assert!(store.next_due(DESTINATION, Duration::ZERO).await.unwrap() > Some(Duration::from_mins(30)));
}

async fn what_was_passed_over_when_a_destination_opened_is_due_once_it_is_well(database: Database) {
    let store = database.open().await;
    let claims = claims_of(&store, 8).await;
    store.settle_message(&claims[0], &slow(Verdict::Misplaced)).await.unwrap();
    assert!(store.settle_message(&claims[1], &delivered()).await.unwrap().unwrap().has_opened());
    // As if somebody had held it at that moment.
    let at = claims[0].events[0].position;
    database.tamper(&format!("UPDATE outbox_head SET due_at = 9000000000000000 WHERE position = {at}")).await;
    let mut last = None;
    for claim in &claims[2..] {
        assert_eq!(self::claim(&store).await, []);
        last = store.settle_message(claim, &delivered()).await.unwrap();
    }
    assert!(last.unwrap().has_recovered());
    assert_eq!(claim_one(&store).await.events[0].position, at);
}

async fn what_was_begun_before_a_destination_opened_neither_shuts_it_nor_holds_it_up(database: Database) {
    let store = database.open().await;
    let claims = claims_of(&store, 4).await;
    store.settle_message(&claims[0], &attempt(Verdict::Misplaced)).await.unwrap();
    assert!(store.settle_message(&claims[1], &delivered()).await.unwrap().unwrap().has_opened());
    let late = store.settle_message(&claims[2], &slow(FAILED)).await.unwrap().unwrap();
    assert_eq!(late.after, Condition::Recovering);
    let fresh = claim_one(&store).await;
    assert_eq!(
        fresh.events[0].position, claims[0].events[0].position,
        "another one is under way since before it was opened"
    );
    assert_eq!(claim(&store).await, []);
    let failed = store.settle_message(&fresh, &slow(FAILED)).await.unwrap().unwrap();
    assert!(failed.has_shut());
}

async fn a_wait_that_a_wrong_clock_wrote_holds_nothing(database: Database) {
    let store = database.open().await;
    let claims = claims_of(&store, 2).await;
    store.settle_message(&claims[0], &attempt(Verdict::Wait(Duration::ZERO))).await.unwrap();
    database.tamper("UPDATE destination SET not_before = 9000000000000000").await;
    assert_eq!(store.next_due(DESTINATION, Duration::ZERO).await.unwrap(), Some(Duration::ZERO));
    let again = claim_one(&store).await;
    store.settle_message(&again, &attempt(Verdict::Misplaced)).await.unwrap();
    database.tamper("UPDATE destination SET not_before = 9000000000000000").await;
    assert!(claim_one(&store).await.tried.is_probe);
}

async fn a_destination_that_fails_is_probed_with_one_event_after_another(database: Database) {
    let store = database.open().await;
    let job = job_with_events(&store, 1).await;
    job.commit(2, (2..=5).map(|key| record(&key.to_string(), 1, "x")).collect()).await;
    let mut shut = None;
    for claim in claim(&store).await {
        shut = store.settle_message(&claim, &attempt(FAILED)).await.unwrap();
    }
    let shut = shut.unwrap();
    assert!(shut.has_shut() && shut.after == Condition::Failing, "{shut:?}");
    let view = store.destinations().await.unwrap().remove(0);
    assert_eq!((view.health.condition, view.health.failures, view.pending), (Condition::Failing, 5, 5));
    assert_eq!(view.health.reason.as_deref(), Some("why"));

    let mut probed = Vec::new();
    for _ in 0..4 {
        let probe = claim_one(&store).await;
        assert!(probe.tried.is_probe);
        assert_eq!(claim(&store).await, [], "one at a time");
        store.settle_message(&probe, &attempt(FAILED)).await.unwrap();
        probed.push(place(&probe).0);
    }
    assert_eq!(probed, ["1", "2", "3", "4"], "the one that was not tried for longest");
    let probe = claim_one(&store).await;
    let settled = store.settle_message(&probe, &delivered()).await.unwrap().unwrap();
    assert!(settled.has_opened());
    let first = claim_one(&store).await;
    assert_eq!(claim(&store).await, [], "a few at a time");
    store.settle_message(&first, &delivered()).await.unwrap();
    assert_eq!(claim(&store).await.len(), 2);
}

async fn a_parked_destination_waits_and_all_that_waits_is_due_once_it_opens(database: Database) {
    let store = database.open().await;
    let (one, other) = two_claims(&store).await;
    store.settle_message(&one, &slow(FAILED)).await.unwrap();
    let parked = store.settle_message(&other, &slow(Verdict::Misplaced)).await.unwrap().unwrap();
    assert_eq!(parked.after, Condition::Parked);
    assert_eq!(claim(&store).await, []);
    let wait = store.next_due(DESTINATION, Duration::ZERO).await.unwrap().unwrap();
    assert!(wait > Duration::from_mins(14) && wait < Duration::from_mins(20), "{wait:?}");
    store.probe_destination(DESTINATION).await.unwrap();
    assert_eq!(store.next_due(DESTINATION, Duration::ZERO).await.unwrap(), Some(Duration::ZERO));
    let probe = claim_one(&store).await;
    store.settle_message(&probe, &slow(Verdict::Delivered)).await.unwrap();
    assert_eq!(claim(&store).await.len(), 1, "it does not wait for its hour");
}

async fn a_probe_whose_process_died_is_sent_again(database: Database) {
    let store = database.open().await;
    let (one, _other) = two_claims(&store).await;
    store.settle_message(&one, &attempt(Verdict::Misplaced)).await.unwrap();
    let probe = store.claim_messages(DESTINATION, &alone(10, Duration::from_millis(1))).await.unwrap();
    assert_eq!(probe.len(), 1);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(claim(&store).await.len(), 1);
}

async fn a_paused_destination_is_sent_nothing(database: Database) {
    let store = database.open().await;
    job_with_events(&store, 1).await;
    assert!(store.pause_destination(DESTINATION, true).await.unwrap());
    assert!(!store.pause_destination(DESTINATION, true).await.unwrap());
    assert_eq!(claim(&store).await, []);
    assert_eq!(store.next_due(DESTINATION, Duration::ZERO).await.unwrap(), None);
    assert!(store.destinations().await.unwrap()[0].paused_at.is_some());
    assert!(store.pause_destination(DESTINATION, false).await.unwrap());
    claim_one(&store).await;
}

async fn a_busy_destination_is_left_alone_by_everyone(database: Database) {
    let (store, other_store) = database.open_two().await;
    let job = job_with_events(&store, 1).await;
    let one = claim_one(&store).await;
    job.commit(2, vec![record("2", 1, "x")]).await;
    let settled = store.settle_message(&one, &attempt(Verdict::Wait(Duration::from_mins(1)))).await.unwrap();
    assert!(matches!(settled, Some(Settled { next: Next::Again { spent: false, .. }, .. })), "{settled:?}");
    assert_eq!(claim(&other_store).await, []);
    store.probe_destination(DESTINATION).await.unwrap();
    assert_eq!(claim(&store).await, [], "it asked for that");
}
