//! The contract of the outbox: one claim a key, in order, and nothing lost or undone.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use onlynew::{
    domain::delivery::{Next, Tried, Verdict},
    store::{Attempt, Store},
};

use crate::{
    both,
    support::{
        database::Database,
        messages::{
            FAILED, alone, attempt, claim, claim_one, delivered, job_with_events, place, slow, two_claims,
        },
        pages::{DESTINATION, LONG, RunningJob, record},
    },
};

both!(
    only_the_earliest_event_of_a_key_is_claimed,
    many_claimers_never_hold_one_key_twice_and_keep_its_order,
    events_stored_while_others_are_settled_are_not_forgotten,
    a_claim_that_ran_out_goes_to_another_and_is_void,
    a_claim_that_ran_out_unnoticed_still_settles,
    attempts_count_once_the_destination_took_another_event,
    a_dead_letter_lets_the_next_event_of_its_key_go,
    what_is_settled_stays_settled,
    a_fault_in_a_settlement_leaves_the_claim_as_it_was,
    how_long_until_the_next_is_due_is_told,
    destinations_do_not_see_each_other_s_events,
    a_key_that_waits_at_two_destinations_moves_on_in_its_order,
    what_one_destination_answered_says_nothing_of_the_next_one,
);

async fn only_the_earliest_event_of_a_key_is_claimed(database: Database) {
    let store = database.open().await;
    let job = job_with_events(&store, 3).await;
    job.commit(4, vec![record("2", 1, "x")]).await;
    let claims = claim(&store).await;
    assert_eq!(claims.iter().map(place).collect::<Vec<_>>(), [("1".to_owned(), 1), ("2".to_owned(), 1)]);
    assert!(claims.iter().all(|claim| claim.job == job.row.id && claim.tried == Tried::default()));
    assert_eq!(claim(&store).await, []);
    assert!(store.settle_message(&claims[0], &delivered()).await.unwrap().is_some());
    assert_eq!(place(&claim_one(&store).await), ("1".to_owned(), 2));
    let view = store.job_view("issues").await.unwrap().unwrap();
    assert_eq!((view.pending, view.delivered, view.dead), (3, 1, 0));
}

/// What the claimers saw: which keys are out, and the sequences that were settled for good.
#[derive(Default)]
struct Witness {
    out: HashMap<String, i64>,
    settled: HashMap<String, Vec<i64>>,
}

async fn many_claimers_never_hold_one_key_twice_and_keep_its_order(database: Database) {
    const KEYS: i64 = 6;
    const EVENTS: i64 = 8;
    let (one, other) = database.open_two().await;
    let job = RunningJob::start(&one, "issues").await;
    let witness = Arc::new(Mutex::new(Witness::default()));
    let mut tasks = vec![tokio::spawn(async move {
        for version in 1..=EVENTS {
            let page = (0..KEYS).map(|key| record(&format!("k{key}"), version, "x")).collect();
            job.commit(u32::try_from(version).unwrap(), page).await;
        }
    })];
    for index in 0..8 {
        let store = [&one, &other][index % 2].clone();
        let witness = witness.clone();
        tasks.push(tokio::spawn(async move { deliver_all(&store, &witness, KEYS * EVENTS).await }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    for (key, sequences) in &witness.lock().unwrap().settled {
        assert_eq!(*sequences, (1..=EVENTS).collect::<Vec<_>>(), "{key}");
    }
    assert_eq!(one.next_due(DESTINATION, Duration::ZERO).await.unwrap(), None);
    assert_eq!(database.number("(SELECT count(*) FROM event WHERE state = 'pending')").await, 0);
}

/// Claims and settles, well or badly, until `count` events are settled for good.
async fn deliver_all(store: &Arc<dyn Store>, witness: &Mutex<Witness>, count: i64) {
    loop {
        let claims = store.claim_messages(DESTINATION, &alone(fastrand::u32(1..4), LONG)).await.unwrap();
        for claim in &claims {
            let (key, sequence) = place(claim);
            let held = witness.lock().unwrap().out.insert(key.clone(), sequence);
            assert_eq!(held, None, "{key} is out twice");
        }
        let settled: usize = witness.lock().unwrap().settled.values().map(Vec::len).sum();
        if settled >= usize::try_from(count).unwrap() {
            return;
        }
        tokio::time::sleep(Duration::from_micros(fastrand::u64(0..3_000))).await;
        for claim in &claims {
            let (key, sequence) = place(claim);
            let chance = fastrand::u8(0..10);
            {
                let mut witness = witness.lock().unwrap();
                witness.out.remove(&key);
                if chance >= 4 {
                    witness.settled.entry(key).or_default().push(sequence);
                }
            }
            let attempt = match chance {
                0..4 => Attempt {
                    // So many that none of these events comes to its end.
                    delays: Arc::new([Duration::from_millis(fastrand::u64(0..3)); 1_000]),
                    ..attempt(FAILED)
                },
                _ => delivered(),
            };
            assert!(store.settle_message(claim, &attempt).await.unwrap().is_some());
        }
    }
}

async fn events_stored_while_others_are_settled_are_not_forgotten(database: Database) {
    let (one, other) = database.open_two().await;
    let job = job_with_events(&one, 1).await;
    // Every round the key's last event is settled at the moment when its next one is stored.
    for number in 2..=40 {
        let claim = claim_one(&other).await;
        let settler = other.clone();
        let settled =
            tokio::spawn(async move { settler.settle_message(&claim, &delivered()).await.unwrap() });
        job.commit(number, vec![record("1", i64::from(number), "x")]).await;
        assert!(settled.await.unwrap().is_some());
    }
    assert_eq!(place(&claim_one(&one).await), ("1".to_owned(), 40));
}

async fn a_claim_that_ran_out_goes_to_another_and_is_void(database: Database) {
    let (one, other) = database.open_two().await;
    job_with_events(&one, 2).await;
    let old = one.claim_messages(DESTINATION, &alone(1, Duration::from_millis(1))).await.unwrap().remove(0);
    tokio::time::sleep(Duration::from_millis(20)).await;
    let new = claim_one(&other).await;
    assert_eq!((new.events[0].position, new.tried.spent, new.tried.tries), (old.events[0].position, 0, 1));
    assert!(new.events[0].fence > old.events[0].fence);
    assert_eq!(database.number("(SELECT count(*) FROM event WHERE ambiguous)").await, 1);

    assert!(one.settle_message(&old, &delivered()).await.unwrap().is_none());
    assert_eq!(claim(&one).await, []);
    assert_eq!(database.number("(SELECT count(*) FROM attempt)").await, 0);
    assert!(other.settle_message(&new, &delivered()).await.unwrap().is_some());
    let may_have_come_twice = "(SELECT count(*) FROM event WHERE ambiguous AND state = 'delivered')";
    assert_eq!(database.number(may_have_come_twice).await, 1);
}

async fn a_claim_that_ran_out_unnoticed_still_settles(database: Database) {
    let store = database.open().await;
    job_with_events(&store, 1).await;
    let claims = store.claim_messages(DESTINATION, &alone(1, Duration::from_millis(1))).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(store.settle_message(&claims[0], &delivered()).await.unwrap().is_some());
    assert_eq!(claim(&store).await, []);
}

async fn attempts_count_once_the_destination_took_another_event(database: Database) {
    let store = database.open().await;
    let (mut one, other) = two_claims(&store).await;
    let mut spent = Vec::new();
    let mut fail = async || {
        let settled = store.settle_message(&one, &attempt(FAILED)).await.unwrap().unwrap();
        if settled.next != Next::Dead {
            one = claim_one(&store).await;
            spent.push((one.tried.spent, one.tried.tries));
        }
        settled.next
    };
    fail().await;
    fail().await;
    assert!(store.settle_message(&other, &delivered()).await.unwrap().is_some());
    fail().await;
    fail().await;
    assert_eq!(spent, [(0, 1), (0, 2), (1, 3), (1, 4)]);
    let outcomes = database.texts("SELECT outcome FROM attempt ORDER BY id").await;
    assert_eq!(outcomes, ["again", "again", "delivered", "again", "again"]);
}

async fn a_dead_letter_lets_the_next_event_of_its_key_go(database: Database) {
    let store = database.open().await;
    let job = job_with_events(&store, 2).await;
    job.commit(3, vec![record("2", 1, "x")]).await;
    let mut claims = claim(&store).await.into_iter();
    let (first, other) = (claims.next().unwrap(), claims.next().unwrap());
    // The destination has taken one, so that it is the event which is refused.
    assert!(store.settle_message(&other, &delivered()).await.unwrap().is_some());
    let settled = store.settle_message(&first, &attempt(Verdict::Refused)).await.unwrap().unwrap();
    assert_eq!(settled.next, Next::Dead);
    assert_eq!(place(&claim_one(&store).await), ("1".to_owned(), 2));
    let view = store.job_view("issues").await.unwrap().unwrap();
    assert_eq!((view.pending, view.delivered, view.dead), (1, 1, 1));
}

async fn what_is_settled_stays_settled(database: Database) {
    let store = database.open().await;
    job_with_events(&store, 1).await;
    let claim = claim_one(&store).await;
    assert!(store.settle_message(&claim, &delivered()).await.unwrap().is_some());
    for next in [delivered(), attempt(Verdict::Refused), attempt(FAILED)] {
        assert!(store.settle_message(&claim, &next).await.unwrap().is_none());
    }
    let view = store.job_view("issues").await.unwrap().unwrap();
    assert_eq!((view.pending, view.delivered, view.dead), (0, 1, 0));
    assert_eq!(database.number("(SELECT count(*) FROM attempt)").await, 1);
}

async fn a_fault_in_a_settlement_leaves_the_claim_as_it_was(database: Database) {
    let store = database.open().await;
    job_with_events(&store, 2).await;
    let claim = claim_one(&store).await;
    for (table, operation, condition) in [
        ("attempt", "INSERT", "NEW.fence > 0"),
        ("event", "UPDATE", "NEW.state = 'delivered'"),
        ("outbox_head", "UPDATE", "NEW.position > OLD.position"),
    ] {
        database.break_on(table, operation, condition).await;
        assert!(store.settle_message(&claim, &delivered()).await.is_err(), "{table}");
        database.mend(table).await;
        assert_eq!(self::claim(&store).await, [], "{table}");
        assert_eq!(database.number("(SELECT count(*) FROM attempt)").await, 0, "{table}");
    }
    assert!(store.settle_message(&claim, &delivered()).await.unwrap().is_some());
    assert_eq!(place(&claim_one(&store).await), ("1".to_owned(), 2));
}

async fn how_long_until_the_next_is_due_is_told(database: Database) {
    let store = database.open().await;
    assert_eq!(store.next_due(DESTINATION, Duration::ZERO).await.unwrap(), None);
    job_with_events(&store, 1).await;
    assert_eq!(store.next_due(DESTINATION, Duration::ZERO).await.unwrap(), Some(Duration::ZERO));
    let claim = claim_one(&store).await;
    assert!(
        store
            .settle_message(
                &claim,
                &Attempt { delays: Arc::new([Duration::from_mins(1)]), ..attempt(FAILED) }
            )
            .await
            .unwrap()
            .is_some()
    );
    let wait = store.next_due(DESTINATION, Duration::ZERO).await.unwrap().unwrap();
    assert!(wait <= Duration::from_mins(1) && wait > Duration::from_secs(30), "{wait:?}");
    assert_eq!(self::claim(&store).await, []);
}

async fn destinations_do_not_see_each_other_s_events(database: Database) {
    let store = database.open().await;
    let job = job_with_events(&store, 1).await;
    let mut page = job.page(2, vec![record("1", 2, "x")]);
    page.destination = "elsewhere".into();
    job.commit_page(&page).await;
    let elsewhere = store.claim_messages("elsewhere", &alone(10, LONG)).await.unwrap();
    assert_eq!(elsewhere.iter().map(place).collect::<Vec<_>>(), [("1".to_owned(), 2)]);
    assert_eq!(place(&claim_one(&store).await), ("1".to_owned(), 1));
    assert_eq!(store.next_due("nowhere", Duration::ZERO).await.unwrap(), None);
}

async fn a_key_that_waits_at_two_destinations_moves_on_in_its_order(database: Database) {
    let store = database.open().await;
    let job = job_with_events(&store, 2).await;
    let mut page = job.page(3, vec![record("1", 3, "x")]);
    page.destination = "elsewhere".into();
    job.commit_page(&page).await;
    let mut moved = Vec::new();
    let mut places = Vec::new();
    for _ in 0..3 {
        moved.push(store.readdress(job.row.id, "new").await.unwrap());
        while let Some(claim) = store.claim_messages("new", &alone(10, LONG)).await.unwrap().pop() {
            places.push(place(&claim).1);
            store.settle_message(&claim, &delivered()).await.unwrap();
        }
    }
    assert_eq!((moved, places), (vec![2, 1, 0], vec![1, 2, 3]));
}

async fn what_one_destination_answered_says_nothing_of_the_next_one(database: Database) {
    let store = database.open().await;
    let (waits, is_being_sent) = two_claims(&store).await;
    store.settle_message(&waits, &slow(FAILED)).await.unwrap();
    assert_eq!(store.readdress(waits.job, "new").await.unwrap(), 2);
    let claim = async || store.claim_messages("new", &alone(10, LONG)).await.unwrap();
    let there = claim().await;
    assert_eq!(
        there.iter().map(|claim| claim.events[0].position).collect::<Vec<_>>(),
        [waits.events[0].position]
    );
    assert_eq!(there[0].tried.tried_at, None);
    store.settle_message(&is_being_sent, &slow(FAILED)).await.unwrap();
    let there = claim().await;
    assert_eq!(
        there.iter().map(|claim| claim.events[0].position).collect::<Vec<_>>(),
        [is_being_sent.events[0].position]
    );
    assert_eq!(there[0].tried.tried_at, None);
}
