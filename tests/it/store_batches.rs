//! The contract of messages: what goes together, what is repeated as it was, and how a batch is taken apart.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use onlynew::{
    domain::{
        batch::BatchRules,
        delivery::{Next, Verdict},
    },
    store::{ClaimRules, ClaimedMessage, Store, Wish},
};

use crate::{
    both,
    support::{
        database::Database,
        messages::{FAILED, alone, attempt, delivered, slow},
        pages::{DESTINATION, LONG, RunningJob, record},
    },
};

both!(
    a_batch_holds_one_event_of_a_key_and_one_job,
    what_is_not_full_lingers,
    a_batch_that_may_have_been_received_is_repeated_as_it_was,
    a_batch_whose_sender_died_is_repeated_as_it_was,
    a_batch_that_was_not_received_is_made_anew,
    a_batch_is_repeated_whole_or_not_at_all,
    one_that_is_discarded_leaves_the_others_to_a_batch_of_their_own,
    a_refused_batch_is_split_until_the_one_is_found,
    a_batch_that_is_too_large_is_split_and_may_not_have_been_received,
    what_fails_for_one_of_a_batch_kills_none_of_the_others,
    what_counts_against_a_batch_does_not_count_against_its_last_half,
    an_event_that_went_alone_is_repeated_alone,
    an_event_goes_alone_to_where_it_is_turned_over,
    a_probe_is_a_batch_of_one,
    a_destination_that_recovers_counts_requests_and_not_events,
);

const LOST: Verdict = Verdict::Failed { ambiguous: true, at_least: None };

/// Takes so many batches of up to three events.
fn batches(messages: u32, linger: Duration) -> ClaimRules {
    let batch = BatchRules { max_events: NonZeroU32::new(3).unwrap(), max_bytes: 100_000, linger };
    ClaimRules { batch: Some(batch), ..alone(messages, LONG) }
}

async fn claim(store: &Arc<dyn Store>) -> Vec<ClaimedMessage> {
    store.claim_messages(DESTINATION, &batches(10, Duration::ZERO)).await.unwrap()
}

async fn claim_one(store: &Arc<dyn Store>) -> ClaimedMessage {
    let mut claims = claim(store).await;
    assert_eq!(claims.len(), 1, "{claims:?}");
    claims.remove(0)
}

async fn settle(store: &Arc<dyn Store>, claim: &ClaimedMessage, verdict: Verdict) -> Next {
    store.settle_message(claim, &attempt(verdict)).await.unwrap().unwrap().next
}

/// A job with one event for each of these keys.
async fn job(store: &Arc<dyn Store>, name: &str, keys: &[&str]) -> RunningJob {
    let job = RunningJob::start(store, name).await;
    job.commit(1, keys.iter().map(|key| record(key, 1, "x")).collect()).await;
    job
}

/// The keys of a message, in order.
fn keys(message: &ClaimedMessage) -> Vec<String> {
    let key = |body: &str| {
        serde_json::from_str::<serde_json::Value>(body).unwrap()["key"].as_str().unwrap().to_owned()
    };
    message.events.iter().map(|event| key(&event.body)).collect()
}

async fn a_batch_holds_one_event_of_a_key_and_one_job(database: Database) {
    let store = database.open().await;
    let first = job(&store, "issues", &["1", "2", "3", "4"]).await;
    first.commit(2, vec![record("1", 2, "y")]).await;
    job(&store, "orders", &["1"]).await;
    let claims = claim(&store).await;
    assert_eq!(claims.iter().map(keys).collect::<Vec<_>>(), [vec!["1", "2", "3"], vec!["4"], vec!["1"]]);
    assert!(claims[0].tried.is_batch && !claims[1].tried.is_batch && claims[0].job == first.row.id);
    let body: serde_json::Value = serde_json::from_str(&claims[0].body().unwrap()).unwrap();
    assert_eq!((&body["batch_id"], &body["job"]), (&claims[0].id.clone().into(), &"issues".into()));
    assert_eq!(body["events"][2]["key"], "3");
    assert!(claims.iter().all(|claim| claim.id.starts_with("bat_") && !claim.is_repeat));

    assert_eq!(settle(&store, &claims[0], Verdict::Delivered).await, Next::Delivered);
    let next = claim_one(&store).await;
    assert_eq!(
        (keys(&next), database.number("(SELECT count(*) FROM event WHERE state = 'delivered')").await),
        (vec!["1".to_owned()], 3)
    );
    let story = store.event_story(&claims[0].events[1].event_id).await.unwrap().unwrap();
    assert_eq!(story.attempts[0].batch.as_ref(), Some(&claims[0].id));
}

async fn what_is_not_full_lingers(database: Database) {
    let store = database.open().await;
    let job = job(&store, "issues", &["1", "2"]).await;
    let lingering = batches(10, LONG);
    let taken = async || store.claim_messages(DESTINATION, &lingering).await.unwrap();
    assert_eq!(taken().await, []);
    let wait = store.next_due(DESTINATION, LONG).await.unwrap().unwrap();
    assert!(wait <= LONG && wait > LONG / 2, "{wait:?}");
    assert_eq!(store.next_due(DESTINATION, Duration::ZERO).await.unwrap(), Some(Duration::ZERO));
    job.commit(2, vec![record("3", 1, "x"), record("4", 1, "x")]).await;
    assert_eq!(taken().await.iter().map(keys).collect::<Vec<_>>(), [["1", "2", "3"]]);
    job.commit(3, vec![record("4", 2, "y")]).await;
    database.tamper("UPDATE event SET created_at = 0 WHERE key = '4'").await;
    let lingered = taken().await;
    assert_eq!(lingered.iter().map(keys).collect::<Vec<_>>(), [["4"]]);
    settle(&store, &lingered[0], Verdict::Delivered).await;
    assert_eq!(
        taken().await.iter().map(keys).collect::<Vec<_>>(),
        [["4"]],
        "it lingered behind the one before"
    );
}

async fn a_batch_that_may_have_been_received_is_repeated_as_it_was(database: Database) {
    let store = database.open().await;
    let job = job(&store, "issues", &["1", "2"]).await;
    let first = claim_one(&store).await;
    let expected = Next::Again { after: Duration::ZERO, spent: false, ambiguous: true };
    assert_eq!(settle(&store, &first, LOST).await, expected);
    job.commit(2, vec![record("0", 1, "x"), record("3", 1, "x"), record("1", 2, "y")]).await;

    for verdict in [Verdict::Unreached, Verdict::Wait(Duration::ZERO), Verdict::Delivered] {
        database
            .tamper("UPDATE destination SET not_before = NULL, condition = 'well', delivered_at = NULL")
            .await;
        let claims = claim(&store).await;
        let again = claims.iter().find(|claim| claim.id == first.id).unwrap();
        assert!(again.is_repeat && again.tried.is_ambiguous);
        assert_eq!(again.body().unwrap(), first.body().unwrap());
        for claim in claims.iter().filter(|claim| claim.id != first.id) {
            assert_eq!((keys(claim), claim.is_repeat), (vec!["0".to_owned(), "3".to_owned()], false));
            settle(&store, claim, Verdict::Unreached).await;
        }
        settle(&store, again, verdict).await;
    }
    let rest = claim(&store).await;
    assert_eq!(rest.iter().flat_map(keys).collect::<Vec<_>>(), ["0", "1", "3"]);
}

async fn a_batch_whose_sender_died_is_repeated_as_it_was(database: Database) {
    let store = database.open().await;
    job(&store, "issues", &["1", "2", "3", "4"]).await;
    let (dead, other) = match &*claim(&store).await {
        [dead, other] => (dead.clone(), other.clone()),
        claims => panic!("{claims:?}"),
    };
    settle(&store, &other, FAILED).await;
    database.tamper("UPDATE outbox_head SET due_at = 0").await;
    let claims = claim(&store).await;
    assert_eq!(claims.iter().map(keys).collect::<Vec<_>>(), [keys(&dead), keys(&other)]);
    assert_eq!(
        (&claims[0].id, claims[0].tried.is_ambiguous, claims[1].tried.is_ambiguous),
        (&dead.id, true, false)
    );
    assert!(store.settle_message(&dead, &delivered()).await.unwrap().is_none(), "its fences are lost");
    assert_eq!(database.number("(SELECT count(*) FROM event WHERE ambiguous AND tries = 1)").await, 3);
}

async fn a_batch_that_was_not_received_is_made_anew(database: Database) {
    let store = database.open().await;
    let job = job(&store, "issues", &["1", "2"]).await;
    let first = claim_one(&store).await;
    settle(&store, &first, FAILED).await;
    job.commit(2, vec![record("3", 1, "x")]).await;
    let again = claim_one(&store).await;
    assert_eq!((keys(&again).len(), again.is_repeat, again.tried.tries), (3, false, 0));
    assert_ne!(again.id, first.id);
}

async fn a_batch_is_repeated_whole_or_not_at_all(database: Database) {
    let store = database.open().await;
    job(&store, "issues", &["1", "2"]).await;
    let first = claim_one(&store).await;
    settle(&store, &first, LOST).await;
    let held = format!(
        "UPDATE outbox_head SET leased = TRUE, due_at = 9000000000000000 WHERE position = {}",
        first.events[1].position
    );
    database.tamper(&held).await;
    assert_eq!(claim(&store).await, []);
    database.tamper("UPDATE outbox_head SET leased = FALSE").await;
    assert_eq!(claim_one(&store).await.id, first.id, "one of it is due");
}

async fn one_that_is_discarded_leaves_the_others_to_a_batch_of_their_own(database: Database) {
    let store = database.open().await;
    job(&store, "issues", &["1", "2", "3"]).await;
    let first = claim_one(&store).await;
    settle(&store, &first, LOST).await;
    store.grant(first.events[1].position, Wish::Discard).await.unwrap();
    let rest = claim_one(&store).await;
    assert_eq!(keys(&rest), ["1", "3"]);
    assert!(rest.id != first.id && rest.is_repeat && rest.tried.is_ambiguous);
}

async fn a_refused_batch_is_split_until_the_one_is_found(database: Database) {
    let store = database.open().await;
    job(&store, "issues", &["1", "2", "3"]).await;
    let first = claim_one(&store).await;
    assert_eq!(settle(&store, &first, Verdict::Refused).await, Next::Split { ambiguous: true });
    let halves = claim(&store).await;
    assert_eq!(halves.iter().map(keys).collect::<Vec<_>>(), [vec!["1", "2"], vec!["3"]]);
    assert!(
        halves.iter().all(|half| half.is_repeat && half.tried.is_ambiguous && half.id.starts_with("bat_"))
    );
    assert_eq!(settle(&store, &halves[1], Verdict::Delivered).await, Next::Delivered);
    assert_eq!(settle(&store, &halves[0], Verdict::Refused).await, Next::Split { ambiguous: true });
    let quarters = claim(&store).await;
    assert_eq!(quarters.iter().map(keys).collect::<Vec<_>>(), [["1"], ["2"]]);
    assert_eq!(settle(&store, &quarters[0], Verdict::Delivered).await, Next::Delivered);
    assert_eq!(settle(&store, &quarters[1], Verdict::Refused).await, Next::Dead);
    assert_eq!(
        database.texts("SELECT state FROM event ORDER BY position").await,
        ["delivered", "dead", "delivered"]
    );
    let outcomes = "SELECT outcome || ' ' || class FROM attempt JOIN event ON event.position = attempt.position WHERE key = '2' ORDER BY attempt.id";
    assert_eq!(database.texts(outcomes).await, ["split refused", "split refused", "dead refused"]);
}

async fn a_batch_that_is_too_large_is_split_and_may_not_have_been_received(database: Database) {
    let store = database.open().await;
    job(&store, "issues", &["1", "2"]).await;
    let first = claim_one(&store).await;
    assert_eq!(settle(&store, &first, Verdict::TooLarge).await, Next::Split { ambiguous: false });
    let halves = claim(&store).await;
    assert!(halves.len() == 2 && halves.iter().all(|half| half.is_repeat && !half.tried.is_ambiguous));
    assert_eq!(database.number("(SELECT count(*) FROM event WHERE ambiguous)").await, 0);
    settle(&store, &halves[0], FAILED).await;
    assert_eq!(claim_one(&store).await.id, halves[0].id, "it is not put together again");
}

async fn what_fails_for_one_of_a_batch_kills_none_of_the_others(database: Database) {
    let store = database.open().await;
    let job = job(&store, "issues", &["1", "2", "3", "4", "5", "6"]).await;
    let mut dead = Vec::new();
    for round in 0..60_u32 {
        let claims = claim(&store).await;
        if claims.is_empty() {
            break;
        }
        for message in &claims {
            let verdict = if keys(message).contains(&"2".to_owned()) { FAILED } else { Verdict::Delivered };
            if settle(&store, message, verdict).await == Next::Dead {
                dead.extend(keys(message));
            }
        }
        job.commit(round + 2, vec![record("7", i64::from(round) + 1, "x")]).await;
        database.tamper("UPDATE outbox_head SET due_at = 0").await;
        if !dead.is_empty() {
            break;
        }
    }
    assert_eq!(dead, ["2"]);
    assert_eq!(database.texts("SELECT key FROM event WHERE state = 'dead'").await, ["2"]);
}

async fn what_counts_against_a_batch_does_not_count_against_its_last_half(database: Database) {
    let store = database.open().await;
    job(&store, "issues", &["1", "2", "3"]).await;
    let first = claim_one(&store).await;
    settle(&store, &first, LOST).await;
    database.tamper("UPDATE event SET spent = 1").await;
    let took_others = "UPDATE destination SET delivered_at = 9000000000000000";
    database.tamper(took_others).await;
    let again = claim_one(&store).await;
    assert_eq!(settle(&store, &again, LOST).await, Next::Split { ambiguous: true });
    assert_eq!(
        database.texts("SELECT CAST(spent AS TEXT) FROM event ORDER BY position").await,
        ["1", "1", "0"]
    );
    let halves = claim(&store).await;
    database.tamper(took_others).await;
    assert_eq!(settle(&store, &halves[0], LOST).await, Next::Split { ambiguous: true });
    assert!(matches!(settle(&store, &halves[1], FAILED).await, Next::Again { spent: true, .. }));
    assert_eq!(
        database.texts("SELECT CAST(spent AS TEXT) FROM event ORDER BY position").await,
        ["0", "0", "1"]
    );
}

async fn an_event_that_went_alone_is_repeated_alone(database: Database) {
    let store = database.open().await;
    job(&store, "issues", &["1", "2"]).await;
    let first = store.claim_messages(DESTINATION, &alone(1, LONG)).await.unwrap().remove(0);
    settle(&store, &first, LOST).await;
    let claims = claim(&store).await;
    assert_eq!(claims.len(), 2);
    let again = claims.iter().find(|claim| claim.id == first.id).unwrap();
    assert_eq!(again.body().unwrap(), first.body().unwrap());
    settle(&store, again, LOST).await;
    assert_eq!(store.claim_messages(DESTINATION, &alone(9, LONG)).await.unwrap()[0].id, first.id);
}

async fn an_event_goes_alone_to_where_it_is_turned_over(database: Database) {
    let store = database.open().await;
    let job = job(&store, "issues", &["1", "2", "3", "4"]).await;
    let claims = claim(&store).await;
    settle(&store, &claims[0], LOST).await;
    assert_eq!(store.readdress(job.row.id, "elsewhere").await.unwrap(), 4);
    settle(&store, &claims[1], LOST).await;
    let there = store.claim_messages("elsewhere", &alone(9, LONG)).await.unwrap();
    assert_eq!(there.len(), 4);
    assert!(there.iter().all(|claim| claim.id == claim.events[0].event_id && !claim.is_repeat));
}

async fn a_probe_is_a_batch_of_one(database: Database) {
    let store = database.open().await;
    job(&store, "issues", &["1", "2", "3", "4"]).await;
    let claims = claim(&store).await;
    settle(&store, &claims[0], Verdict::Misplaced).await;
    settle(&store, &claims[1], LOST).await;
    let probe = claim_one(&store).await;
    assert!(probe.tried.is_probe && probe.events.len() == 1 && probe.id.starts_with("bat_"));
}

async fn a_destination_that_recovers_counts_requests_and_not_events(database: Database) {
    let store = database.open().await;
    let all = ["1", "2", "3", "4", "5", "6", "7", "8", "9"];
    job(&store, "issues", &all).await;
    let claims = claim(&store).await;
    store.settle_message(&claims[0], &slow(Verdict::Misplaced)).await.unwrap();
    assert!(store.settle_message(&claims[1], &delivered()).await.unwrap().unwrap().has_opened());
    let room_for_one = claim_one(&store).await;
    assert_eq!(room_for_one.events.len(), 3);
    assert_eq!(claim(&store).await, []);
    settle(&store, &room_for_one, Verdict::Delivered).await;
}
