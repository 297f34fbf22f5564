//! The contract of lanes: which events wait for one another, and what becomes of those behind one that is refused.

use std::{sync::Arc, time::Duration};

use onlynew::{
    domain::{
        delivery::{Next, Verdict},
        lane::{OnDead, Order},
    },
    store::{
        Attempt, ClaimRules, ClaimedMessage, EventFilter, EventState, EventView, Granted, PageCommit, Store,
        Wish,
    },
};

use crate::{
    both,
    support::{
        database::Database,
        messages::{FAILED, alone, attempt, delivered},
        pages::{DESTINATION, LONG, RunningJob, record},
    },
};

use EventState::{Delivered, Pending, Superseded};

both!(
    without_an_order_the_events_of_a_key_go_side_by_side,
    a_redelivery_without_an_order_waits_for_nobody,
    an_event_that_is_held_keeps_the_later_ones_of_its_key,
    a_held_event_that_is_retried_is_judged_anew,
    a_held_event_that_is_discarded_lets_the_next_one_go,
    a_held_event_is_free_at_another_destination,
    only_the_newest_of_several_that_wait_is_sent,
    an_older_change_that_is_sent_again_supersedes_nothing,
    what_may_have_been_received_is_not_superseded,
);

/// A job with `count` events of key 1 waiting.
async fn job(store: &Arc<dyn Store>, order: Order, count: u32) -> RunningJob {
    let job = RunningJob::start(store, "issues").await;
    for number in 1..=count {
        let page = job.page(number, vec![record("1", i64::from(number), "x")]);
        store.commit_page(&job.lease, &PageCommit { order, ..page }).await.unwrap();
    }
    job
}

async fn claim(store: &Arc<dyn Store>, rules: &ClaimRules) -> Vec<ClaimedMessage> {
    store.claim_messages(DESTINATION, rules).await.unwrap()
}

fn sequences(claims: &[ClaimedMessage]) -> Vec<i64> {
    let sequence =
        |body: &str| serde_json::from_str::<serde_json::Value>(body).unwrap()["sequence"].as_i64().unwrap();
    claims.iter().map(|claim| sequence(&claim.events[0].body)).collect()
}

/// What a person sees of all events.
async fn listed(store: &Arc<dyn Store>) -> Vec<EventView> {
    let filter = EventFilter {
        states: EventState::ALL.to_vec(),
        job: None,
        destination: None,
        key: None,
        reason: None,
        since: None,
        until: None,
    };
    store.events(&filter, 100).await.unwrap()
}

async fn states(store: &Arc<dyn Store>) -> Vec<EventState> {
    listed(store).await.iter().map(|event| event.state).collect()
}

fn held(verdict: Verdict) -> Attempt {
    Attempt { on_dead: OnDead::Hold, ..attempt(verdict) }
}

/// A store at whose destination the first of two events of key 1 is held, since another one was taken.
async fn with_held(database: &Database) -> (Arc<dyn Store>, RunningJob) {
    let store = database.open().await;
    let job = job(&store, Order::Key, 2).await;
    job.commit(3, vec![record("2", 1, "x")]).await;
    let claims = claim(&store, &alone(9, LONG)).await;
    store.settle_message(&claims[1], &delivered()).await.unwrap();
    let refused = store.settle_message(&claims[0], &held(Verdict::Refused)).await.unwrap().unwrap();
    assert_eq!(refused.next, Next::Dead);
    (store, job)
}

async fn without_an_order_the_events_of_a_key_go_side_by_side(database: Database) {
    let store = database.open().await;
    job(&store, Order::None, 3).await;
    let claims = claim(&store, &alone(9, LONG)).await;
    assert_eq!(sequences(&claims), [1, 2, 3]);
    store.settle_message(&claims[2], &delivered()).await.unwrap();
    store.settle_message(&claims[0], &attempt(FAILED)).await.unwrap();
    assert_eq!(sequences(&claim(&store, &alone(9, LONG)).await), [1]);
    assert_eq!(database.number("(SELECT count(*) FROM outbox_head)").await, 2);
}

async fn a_redelivery_without_an_order_waits_for_nobody(database: Database) {
    let store = database.open().await;
    job(&store, Order::None, 2).await;
    let claims = claim(&store, &alone(9, LONG)).await;
    store.settle_message(&claims[0], &delivered()).await.unwrap();
    let again = store.grant(claims[0].events[0].position, Wish::Redeliver).await.unwrap();
    assert_eq!((again, sequences(&claim(&store, &alone(9, LONG)).await)), (Granted::Done, vec![1]));
}

async fn an_event_that_is_held_keeps_the_later_ones_of_its_key(database: Database) {
    let (store, _) = with_held(&database).await;
    assert_eq!(claim(&store, &alone(9, LONG)).await, []);
    assert_eq!(store.next_due(DESTINATION, Duration::ZERO).await.unwrap(), None);
    let events = listed(&store).await;
    assert_eq!(
        (events[0].state, events[1].state, events[1].blocked),
        (EventState::Held, EventState::Pending, true)
    );
    assert_eq!(events[0].next_attempt_at, None);
    let view = store.job_view("issues").await.unwrap().unwrap();
    assert_eq!((view.pending, view.dead, view.delivered), (1, 1, 1));
    database.tamper("UPDATE destination SET condition = 'parked', not_before = NULL").await;
    assert_eq!(claim(&store, &alone(9, LONG)).await, [], "it is no probe either");
}

async fn a_held_event_that_is_retried_is_judged_anew(database: Database) {
    let (store, _) = with_held(&database).await;
    let event = listed(&store).await.remove(0);
    assert_eq!(store.grant(event.position, Wish::Retry).await.unwrap(), Granted::Done);
    assert_eq!(states(&store).await[0], EventState::Pending);
    assert_eq!(database.number("(SELECT sum(spent) FROM event)").await, 0);
    let again = claim(&store, &alone(9, LONG)).await;
    assert_eq!(sequences(&again), [1]);
    store.settle_message(&again[0], &delivered()).await.unwrap();
    assert_eq!(sequences(&claim(&store, &alone(9, LONG)).await), [2]);
}

async fn a_held_event_that_is_discarded_lets_the_next_one_go(database: Database) {
    let (store, _) = with_held(&database).await;
    let event = listed(&store).await.remove(0);
    assert_eq!(store.grant(event.position, Wish::Discard).await.unwrap(), Granted::Done);
    assert_eq!(states(&store).await[..2], [EventState::Discarded, EventState::Pending]);
    assert_eq!(sequences(&claim(&store, &alone(9, LONG)).await), [2]);
}

async fn a_held_event_is_free_at_another_destination(database: Database) {
    let (store, job) = with_held(&database).await;
    assert_eq!(store.readdress(job.row.id, "elsewhere").await.unwrap(), 2);
    let there = store.claim_messages("elsewhere", &alone(9, LONG)).await.unwrap();
    assert_eq!(sequences(&there), [1]);
    store.settle_message(&there[0], &delivered()).await.unwrap();
    assert_eq!(sequences(&store.claim_messages("elsewhere", &alone(9, LONG)).await.unwrap()), [2]);
}

async fn only_the_newest_of_several_that_wait_is_sent(database: Database) {
    let store = database.open().await;
    let job = job(&store, Order::Key, 3).await;
    job.commit(4, vec![record("2", 1, "x")]).await;
    let latest = ClaimRules { coalesces: true, ..alone(9, LONG) };
    let claims = claim(&store, &latest).await;
    assert_eq!(sequences(&claims), [3, 1]);
    assert_eq!(states(&store).await, [Superseded, Superseded, Pending, Pending]);
    job.commit(5, vec![record("1", 5, "x")]).await;
    job.commit(6, vec![record("1", 6, "x")]).await;
    store.settle_message(&claims[0], &delivered()).await.unwrap();
    let next = claim(&store, &latest).await;
    assert_eq!(sequences(&next), [5]);
    assert_eq!(states(&store).await[2..], [Delivered, Pending, Superseded, Pending]);
    store.settle_message(&next[0], &attempt(FAILED)).await.unwrap();
    job.commit(7, vec![record("1", 7, "x")]).await;
    assert_eq!(sequences(&claim(&store, &latest).await), [6], "nothing came of the one before");
    let superseded = listed(&store).await.remove(0);
    assert_eq!(store.grant(superseded.position, Wish::Retry).await.unwrap(), Granted::Not(Superseded));
}

async fn an_older_change_that_is_sent_again_supersedes_nothing(database: Database) {
    let store = database.open().await;
    let job = job(&store, Order::Key, 1).await;
    let latest = ClaimRules { coalesces: true, ..alone(9, LONG) };
    let first = claim(&store, &latest).await.remove(0);
    store.settle_message(&first, &delivered()).await.unwrap();
    job.commit(2, vec![record("1", 2, "x")]).await;
    assert_eq!(store.grant(first.events[0].position, Wish::Redeliver).await.unwrap(), Granted::Done);
    assert_eq!(sequences(&claim(&store, &latest).await), [2]);
    assert_eq!(
        database.texts("SELECT state FROM event ORDER BY position").await,
        ["delivered", "pending", "superseded"]
    );
}

async fn what_may_have_been_received_is_not_superseded(database: Database) {
    let store = database.open().await;
    let job = job(&store, Order::Key, 1).await;
    let latest = ClaimRules { coalesces: true, ..alone(9, LONG) };
    let first = claim(&store, &latest).await.remove(0);
    store
        .settle_message(&first, &attempt(Verdict::Failed { ambiguous: true, at_least: None }))
        .await
        .unwrap();
    job.commit(2, vec![record("1", 2, "x")]).await;
    let again = claim(&store, &latest).await;
    assert_eq!((again[0].id.as_str(), again[0].is_repeat), (first.id.as_str(), true));
    job.commit(3, vec![record("1", 3, "x")]).await;
    database.tamper("UPDATE outbox_head SET due_at = 0").await;
    assert_eq!(claim(&store, &latest).await[0].id, first.id, "nor is what a dead sender held");
}
