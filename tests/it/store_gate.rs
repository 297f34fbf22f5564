//! The contract of the gate's keys: one is let through at a time, fences never repeat, and what was counted is never
//! counted less.

use std::{collections::HashSet, sync::Arc, time::Duration};

use onlynew::{
    domain::{
        gate::{Act, AfterDone, AfterFailure, Allowed, Answer, GateState, ScopeRules},
        instant::Instant,
    },
    store::{Acquired, Acted, KeyAct, KeyAsk, KeyFilter, Purge, Released, Store, Totals},
};

use crate::{
    both,
    support::{
        database::Database,
        gate::{acquire, act, ask, key, started},
        purges::{take, take_all},
    },
};

both!(
    a_key_goes_from_hand_to_hand_and_its_result_stays,
    a_lease_that_ran_out_is_taken_over_and_its_holder_is_told,
    of_all_who_ask_at_once_one_is_let_through,
    a_batch_is_answered_as_a_whole_and_its_duplicates_as_such,
    batches_that_meet_in_other_orders_do_not_wait_for_one_another_for_ever,
    a_key_that_was_forgotten_has_a_new_fence_and_its_counts_stay,
    a_key_is_forgotten_when_its_time_is_over_not_when_the_janitor_comes,
    a_person_forgets_a_key_or_ends_its_lease,
    what_fails_in_the_middle_of_an_acquisition_leaves_nothing,
    a_result_that_is_too_large_is_not_kept,
    a_clock_that_is_set_back_or_forward_lets_nobody_in_beside_a_holder,
    a_hundred_thousand_keys_are_forgotten_while_others_are_acquired,
);

const RULES: ScopeRules = ScopeRules {
    lease: Duration::from_mins(10),
    retention: Some(Duration::from_hours(24)),
    after_done: AfterDone::Replay,
    after_failure: AfterFailure::Retry,
    max_result: 64,
};

async fn a_key_goes_from_hand_to_hand_and_its_result_stays(database: Database) {
    let store = database.open().await;
    let mut first = ask("1");
    first.owner = Some("ana\0".into());
    first.fingerprint = Some("9.90 EUR".into());
    first.metadata = Some(r#"{"order":"\u0000"}"#.into());
    let got = acquire(&store, &RULES, &first).await;
    assert_eq!(
        (got.answer, got.view.state(), got.view.takeover),
        (Answer::Started { takeover: false }, GateState::InProgress, false)
    );
    assert_eq!((got.view.times_seen, got.view.lease_until), (1, got.now.plus(RULES.lease)));
    let again = acquire(&store, &RULES, &ask("1")).await;
    assert_eq!(
        (again.answer, again.view.fence, again.view.times_seen),
        (Answer::InProgress, got.view.fence, 2)
    );
    assert_eq!(again.view.owner.as_deref(), Some("ana\u{2400}"), "who asked in vain is nobody's owner");
    let mut other = ask("1");
    other.fingerprint = Some("99.90 EUR".into());
    assert_eq!(acquire(&store, &RULES, &other).await.answer, Answer::Mismatch);

    let failed = act(&store, &RULES, "1", got.view.fence, Act::Fail).await.unwrap();
    assert_eq!((failed.allowed, failed.view.state()), (Allowed::Yes, GateState::Failed));
    assert_eq!(failed.view.reason.as_deref(), Some("because"));
    let retried = acquire(&store, &RULES, &ask("1")).await;
    assert_eq!((retried.answer, retried.view.reason), (Answer::Started { takeover: false }, None));
    assert_eq!(retried.view.fingerprint.as_deref(), Some("9.90 EUR"), "it is still about the same");
    assert!(retried.view.fence > got.view.fence);
    let lost = act(&store, &RULES, "1", got.view.fence, Act::Complete).await.unwrap();
    assert_eq!((lost.allowed, lost.view.state()), (Allowed::Lost, GateState::InProgress));

    for allowed in [Allowed::Yes, Allowed::Repeated] {
        let Acted { allowed: found, view } =
            act(&store, &RULES, "1", retried.view.fence, Act::Complete).await.unwrap();
        assert_eq!(
            (found, view.state(), view.result.as_deref()),
            (allowed, GateState::Done, Some(r#"{"id":7}"#))
        );
    }
    let done = acquire(&store, &RULES, &first).await;
    assert_eq!((done.answer, done.view.result.as_deref()), (Answer::Done, Some(r#"{"id":7}"#)));
    assert_eq!(done.view, store.gate_key("charge", &key("1")).await.unwrap().unwrap());
    assert_eq!((done.view.times_seen, done.view.times_started), (5, 2));
    let rejects = ScopeRules { after_done: AfterDone::Reject, ..RULES };
    assert_eq!(acquire(&store, &rejects, &ask("1")).await.answer, Answer::Rejected);
    let reruns = ScopeRules { after_done: AfterDone::Rerun, ..RULES };
    let rerun = acquire(&store, &reruns, &other).await;
    assert_eq!((rerun.answer, rerun.view.result), (Answer::Started { takeover: false }, None));
    assert_eq!(rerun.view.fingerprint.as_deref(), Some("99.90 EUR"));
    assert!(act(&store, &RULES, "2", 1, Act::Complete).await.is_none());
    assert_eq!(store.gate_key("other", &key("1")).await.unwrap(), None);
}

async fn a_lease_that_ran_out_is_taken_over_and_its_holder_is_told(database: Database) {
    let store = database.open().await;
    let first = acquire(&store, &RULES, &ask("1")).await.view;
    let renewed = act(&store, &RULES, "1", first.fence, Act::Renew).await.unwrap();
    assert!(renewed.allowed == Allowed::Yes && renewed.view.lease_until >= first.lease_until);
    database.tamper("UPDATE gate_key SET lease_until = 5").await;
    let renewed = act(&store, &RULES, "1", first.fence, Act::Renew).await.unwrap();
    assert_eq!(renewed.allowed, Allowed::Yes, "nobody has taken it over");
    database.tamper("UPDATE gate_key SET lease_until = 5").await;
    let second = acquire(&store, &RULES, &ask("1")).await;
    assert_eq!((second.answer, second.view.takeover), (Answer::Started { takeover: true }, true));
    assert!(second.view.fence > first.fence);
    for what in [Act::Complete, Act::Fail, Act::Renew] {
        assert_eq!(act(&store, &RULES, "1", first.fence, what).await.unwrap().allowed, Allowed::Lost);
    }
    let done = act(&store, &RULES, "1", second.view.fence, Act::Complete).await.unwrap();
    assert_eq!((done.allowed, done.view.times_taken_over), (Allowed::Yes, 1));
}

async fn of_all_who_ask_at_once_one_is_let_through(database: Database) {
    let (one, other) = database.open_two().await;
    for round in 0..5 {
        let asks: Vec<_> = (0..24)
            .map(|number| {
                let store = Arc::clone(if number % 2 == 0 { &one } else { &other });
                tokio::spawn(async move { acquire(&store, &RULES, &ask(&round.to_string())).await })
            })
            .collect();
        let mut let_in = Vec::new();
        for asked in asks {
            let Acquired { answer, view, .. } = asked.await.unwrap();
            match answer {
                Answer::Started { takeover: false } => let_in.push(view.fence),
                answer => assert_eq!(answer, Answer::InProgress),
            }
        }
        assert_eq!(let_in.len(), 1, "{let_in:?}");
        let view = one.gate_key("charge", &key(&round.to_string())).await.unwrap().unwrap();
        assert_eq!((view.fence, view.times_seen, view.times_started), (let_in[0], 24, 1));
    }
}

async fn a_batch_is_answered_as_a_whole_and_its_duplicates_as_such(database: Database) {
    let store = database.open().await;
    let known = acquire(&store, &RULES, &ask("b")).await.view;
    let asks: Vec<KeyAsk> = ["c", "b", "a", "c", "a"].map(ask).into();
    let got = store.acquire_keys("charge", &RULES, &asks).await.unwrap();
    let answers: Vec<_> = got.iter().map(|got| (got.view.key.as_str(), started(got))).collect();
    assert_eq!(answers, [("c", true), ("b", false), ("a", true), ("c", false), ("a", false)]);
    let fences: HashSet<i64> = got.iter().map(|got| got.view.fence).collect();
    assert!(fences.len() == 3 && fences.contains(&known.fence));
    let listed =
        store.gate_keys(&KeyFilter { only_repeated: true, ..KeyFilter::default() }, 10).await.unwrap();
    assert_eq!(listed.len(), 3);
    assert_eq!(store.acquire_keys("charge", &RULES, &[]).await.unwrap(), []);
}

async fn batches_that_meet_in_other_orders_do_not_wait_for_one_another_for_ever(database: Database) {
    let (one, other) = database.open_two().await;
    let tasks: Vec<_> = (0..8)
        .map(|number| {
            let store = Arc::clone(if number % 2 == 0 { &one } else { &other });
            tokio::spawn(async move {
                let mut begun = 0;
                for round in 0..10 {
                    let mut asks: Vec<_> = (0..20).map(|at| ask(&format!("{}", round * 10 + at))).collect();
                    if number % 2 == 0 {
                        asks.reverse();
                    }
                    let got = store.acquire_keys("charge", &RULES, &asks).await.unwrap();
                    begun += got.iter().filter(|got| started(got)).count();
                }
                begun
            })
        })
        .collect();
    let mut begun = 0;
    for task in tasks {
        begun += task.await.unwrap();
    }
    assert_eq!(begun, 110, "each key once");
    assert_eq!(database.number("(SELECT count(DISTINCT fence) FROM gate_key)").await, 110);
}

async fn totals(store: &Arc<dyn Store>) -> Totals {
    store.gate_scopes().await.unwrap()[0].totals
}

async fn a_key_that_was_forgotten_has_a_new_fence_and_its_counts_stay(database: Database) {
    let store = database.open().await;
    let mut fences = HashSet::new();
    let mut before = Totals::default();
    for round in 0..4 {
        let got = acquire(&store, &RULES, &ask("1")).await;
        assert!(started(&got) && fences.insert(got.view.fence), "{round}: {got:?}");
        acquire(&store, &RULES, &ask("1")).await;
        act(&store, &RULES, "1", got.view.fence, Act::Complete).await.unwrap();
        let counted = totals(&store).await;
        assert_eq!((counted.asked, counted.started), (before.asked + 2, before.started + 1));
        assert_eq!((counted.keys, counted.duplicates()), (round + 1, round + 1));
        before = counted;
        database.tamper("UPDATE gate_key SET changed_at = 5").await;
        match round {
            0 => {
                let purge = Purge::GateKeys { scope: "charge".into(), before: Instant::from_seconds(1) };
                assert_eq!(store.purgeable(&purge).await.unwrap(), 1);
                assert_eq!(take(&store, &purge).await.rows, 1);
            }
            1 => assert_eq!(store.release_key("charge", &key("1"), false).await.unwrap(), Released::Done),
            _ => {}
        }
        assert_eq!(totals(&store).await, before, "{round}");
    }
}

async fn a_key_is_forgotten_when_its_time_is_over_not_when_the_janitor_comes(database: Database) {
    let store = database.open().await;
    let got = acquire(&store, &RULES, &ask("1")).await.view;
    act(&store, &RULES, "1", got.fence, Act::Complete).await.unwrap();
    let day = i64::try_from(Duration::from_hours(24).as_micros()).unwrap();
    database.tamper(&format!("UPDATE gate_key SET changed_at = changed_at - {day} + 60000000")).await;
    assert_eq!(acquire(&store, &RULES, &ask("1")).await.answer, Answer::Done);
    database.tamper("UPDATE gate_key SET changed_at = changed_at - 60000000").await;
    let again = acquire(&store, &RULES, &ask("1")).await;
    assert_eq!(again.answer, Answer::Started { takeover: false });
    assert_eq!((again.view.times_seen, again.view.first_seen), (1, again.now), "it is a new life");
    let never = ScopeRules { retention: None, ..RULES };
    act(&store, &RULES, "1", again.view.fence, Act::Complete).await.unwrap();
    database.tamper("UPDATE gate_key SET changed_at = 5").await;
    assert_eq!(acquire(&store, &never, &ask("1")).await.answer, Answer::Done);
}

async fn a_person_forgets_a_key_or_ends_its_lease(database: Database) {
    let store = database.open().await;
    let first = acquire(&store, &RULES, &ask("1")).await.view;
    assert_eq!(store.release_key("charge", &key("1"), false).await.unwrap(), Released::Held);
    assert!(store.expire_key("charge", &key("1")).await.unwrap());
    assert!(!store.expire_key("charge", &key("1")).await.unwrap(), "nobody has it");
    let stale = KeyFilter { only_stale: true, ..KeyFilter::default() };
    assert_eq!(store.gate_keys(&stale, 10).await.unwrap().len(), 1);
    let second = acquire(&store, &RULES, &ask("1")).await;
    assert_eq!(second.answer, Answer::Started { takeover: true });
    assert_eq!(store.gate_keys(&stale, 10).await.unwrap(), []);
    assert_eq!(store.release_key("charge", &key("1"), true).await.unwrap(), Released::Done);
    assert_eq!(store.release_key("charge", &key("1"), true).await.unwrap(), Released::Unknown);
    for fence in [first.fence, second.view.fence] {
        assert!(act(&store, &RULES, "1", fence, Act::Complete).await.is_none());
    }
    assert!(!store.expire_key("charge", &key("1")).await.unwrap());
    let third = acquire(&store, &RULES, &ask("1")).await;
    assert!(started(&third) && third.view.fence > second.view.fence);
}

async fn what_fails_in_the_middle_of_an_acquisition_leaves_nothing(database: Database) {
    let store = database.open().await;
    let first = acquire(&store, &RULES, &ask("1")).await.view;
    database.break_on("gate_key", "UPDATE", "NEW.state = 'in_progress' AND OLD.state = 'new'").await;
    let failed = store.acquire_keys("charge", &RULES, &["1", "2"].map(ask)).await;
    assert!(failed.unwrap_err().to_string().contains("broken by the test"));
    assert_eq!(database.texts("SELECT key FROM gate_key").await, ["1"]);
    assert_eq!(store.gate_key("charge", &key("1")).await.unwrap().unwrap(), first);
    database.mend("gate_key").await;
    let second = acquire(&store, &RULES, &ask("2")).await;
    assert!(started(&second) && second.view.fence > first.fence);
}

async fn a_result_that_is_too_large_is_not_kept(database: Database) {
    let store = database.open().await;
    for (length, kept) in [(64, true), (65, false)] {
        let name = length.to_string();
        let got = acquire(&store, &RULES, &ask(&name)).await.view;
        let result = format!("\"{}\"", "x".repeat(length - 2));
        let act = KeyAct {
            key: key(&name),
            fence: got.fence,
            act: Act::Complete,
            result: Some(result.clone()),
            reason: None,
            rules: RULES,
        };
        store.act_on_key("charge", &act).await.unwrap().unwrap();
        let done = acquire(&store, &RULES, &ask(&name)).await;
        assert_eq!((done.answer, done.view.result_dropped), (Answer::Done, !kept));
        assert_eq!(done.view.result, Some(result).filter(|_| kept));
    }
}

/// All instants that are stored move, which is to those who ask as if the database's clock had moved the other way.
async fn shift(database: &Database, seconds: i64) {
    let micros = seconds * 1_000_000;
    let moved = |column| format!("{column} = {column} + {micros}");
    let columns = ["lease_until", "first_seen_at", "last_seen_at", "changed_at"].map(moved).join(", ");
    database.tamper(&format!("UPDATE gate_key SET {columns}")).await;
}

async fn a_clock_that_is_set_back_or_forward_lets_nobody_in_beside_a_holder(database: Database) {
    let store = database.open().await;
    let first = acquire(&store, &RULES, &ask("1")).await.view;
    shift(&database, 3_600).await;
    for _ in 0..2 {
        assert_eq!(
            acquire(&store, &RULES, &ask("1")).await.answer,
            Answer::InProgress,
            "set back by an hour"
        );
    }
    let renewed = act(&store, &RULES, "1", first.fence, Act::Renew).await.unwrap().view;
    assert!(renewed.lease_until > first.lease_until, "a lease is never made shorter");
    shift(&database, -3 * 3_600).await;
    let second = acquire(&store, &RULES, &ask("1")).await;
    assert_eq!(
        second.answer,
        Answer::Started { takeover: true },
        "set forward: it looks as if the lease had run out"
    );
    assert_eq!(act(&store, &RULES, "1", first.fence, Act::Complete).await.unwrap().allowed, Allowed::Lost);
    assert!(second.view.fence > first.fence);
    shift(&database, 3 * 3_600).await;
    assert_eq!(acquire(&store, &RULES, &ask("1")).await.answer, Answer::InProgress);
    assert_eq!(
        act(&store, &RULES, "1", second.view.fence, Act::Complete).await.unwrap().allowed,
        Allowed::Yes
    );
    shift(&database, 3 * 3_600).await;
    assert_eq!(acquire(&store, &RULES, &ask("1")).await.answer, Answer::Done, "what is done stays done");
}

async fn a_hundred_thousand_keys_are_forgotten_while_others_are_acquired(database: Database) {
    const KEYS: usize = 100_000;
    let (one, other) = database.open_two().await;
    for chunk in 0..KEYS / 1_000 {
        let asks: Vec<_> = (0..1_000).map(|at| ask(&format!("{:06}", chunk * 1_000 + at))).collect();
        one.acquire_keys("charge", &RULES, &asks).await.unwrap();
    }
    database.tamper("UPDATE gate_key SET state = 'done', changed_at = 5 WHERE key < '090000'").await;
    database.tamper("UPDATE gate_key SET changed_at = 5 WHERE key >= '090000'").await;
    let before = totals(&one).await;
    assert_eq!((before.keys, before.started), (100_000, 100_000));
    let purge = Purge::GateKeys { scope: "charge".into(), before: Instant::from_seconds(1) };
    let purging = tokio::spawn(async move { take_all(&other, purge).await });
    let (mut asked, mut again) = (0, 0);
    while !purging.is_finished() {
        // In turn one that is being forgotten, one that somebody has, and one that is new.
        for name in [format!("{asked:06}"), format!("{:06}", 90_000 + asked), format!("new {asked}")] {
            let got = acquire(&one, &RULES, &ask(&name)).await;
            let is_held = name.starts_with("09");
            assert_eq!(started(&got), !is_held, "{name}: {got:?}");
            assert!(is_held || got.view.times_seen == 1);
            again += u64::from(!is_held);
        }
        asked += 1;
    }
    assert!(purging.await.unwrap() > 0);
    let after = totals(&one).await;
    assert_eq!(
        (after.keys, after.started),
        (before.keys + again, before.started + again),
        "each has a life more"
    );
    assert_eq!(after.asked, before.asked + 3 * asked);
    let number =
        async |which: &str| database.number(&format!("(SELECT count(*) FROM gate_key WHERE {which})")).await;
    assert_eq!(number("changed_at = 5 AND state = 'done'").await, 0);
    assert_eq!(number("key LIKE '09%'").await, 10_000, "what somebody has stays");
    assert_eq!(database.number("(SELECT count(*) - count(DISTINCT fence) FROM gate_key)").await, 0);
}
