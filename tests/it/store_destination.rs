//! What happens where a destination opens: what is due then, and what is left as it is.

use std::{sync::Arc, time::Duration};

use onlynew::{
    domain::{delivery::Verdict, health::Condition},
    store::{ClaimedMessage, Store},
};

use crate::{
    both,
    store_outbox::{FAILED, attempt, claim, claim_one, delivered, slow},
    support::{
        database::Database,
        pages::{DESTINATION, RunningJob, record},
    },
};

both!(
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
