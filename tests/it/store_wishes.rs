//! The contract of what a person does to single events: retry, redeliver, discard.

use std::{sync::Arc, time::Duration};

use onlynew::{
    domain::delivery::{Next, Verdict},
    store::{Attempt, ClaimedMessage, EventFilter, EventState, EventView, Granted, Store, Wish},
};

use crate::{
    both,
    support::{
        database::Database,
        messages::{alone, attempt, delivered},
        pages::{DESTINATION, LONG, RunningJob, record},
    },
};

both!(
    a_dead_event_that_is_retried_goes_behind_what_waits_of_its_key,
    a_redelivery_has_the_same_id_and_bytes_and_is_a_new_row,
    an_event_is_sent_again_once_however_many_ask_for_it,
    a_retried_event_that_waits_is_due_at_once,
    a_discarded_head_lets_the_next_event_of_its_key_go,
    a_discarded_event_that_waits_behind_another_is_never_sent,
    what_is_being_sent_is_not_discarded,
    a_claim_that_ran_out_is_discarded_and_its_answer_comes_too_late,
    a_claim_that_ran_out_is_either_settled_or_discarded,
    a_dead_event_is_either_discarded_or_sent_again,
    events_discarded_while_others_are_settled_leave_no_key_without_a_head,
    events_sent_again_while_others_are_settled_are_not_forgotten,
    an_id_that_is_stored_already_is_still_an_error,
    events_are_listed_by_what_a_person_asks_for,
    an_event_s_story_tells_every_attempt,
    a_fault_in_a_retry_leaves_nothing_behind,
);

/// A destination that has just taken an event of key `other`, so that a refusal is the event's own fault.
struct Story {
    store: Arc<dyn Store>,
    job: RunningJob,
    pages: u32,
}

impl Story {
    async fn new(database: &Database) -> Self {
        let store = database.open().await;
        let job = RunningJob::start(&store, "issues").await;
        Self { store, job, pages: 0 }
    }

    /// Stores the next event of a key.
    async fn change(&mut self, key: &str) {
        self.pages += 1;
        self.job.commit(self.pages, vec![record(key, i64::from(self.pages), "x")]).await;
    }

    async fn claim(&self) -> Vec<ClaimedMessage> {
        self.store.claim_messages(DESTINATION, &alone(10, LONG)).await.unwrap()
    }

    async fn claim_one(&self) -> ClaimedMessage {
        let mut claims = self.claim().await;
        assert_eq!(claims.len(), 1, "{claims:?}");
        claims.remove(0)
    }

    async fn settle(&self, claim: &ClaimedMessage, attempt: &Attempt) -> Next {
        self.store.settle_message(claim, attempt).await.unwrap().unwrap().next
    }

    /// Delivers the earliest event that may be claimed, and returns its sequence.
    async fn deliver_one(&self) -> i64 {
        let claim = self.claim_one().await;
        self.settle(&claim, &delivered()).await;
        sequence(&claim)
    }

    /// A key `1` whose first event is dead.
    async fn with_dead(database: &Database) -> (Self, EventView) {
        let mut story = Self::new(database).await;
        story.change("1").await;
        story.change("other").await;
        let claims = story.claim().await;
        story.settle(&claims[1], &delivered()).await;
        assert_eq!(story.settle(&claims[0], &attempt(Verdict::Refused)).await, Next::Dead);
        let dead = story.listed(&[EventState::Dead]).await.remove(0);
        (story, dead)
    }

    async fn listed(&self, states: &[EventState]) -> Vec<EventView> {
        self.store.events(&in_states(states), 100).await.unwrap()
    }

    async fn grant(&self, event: &EventView, wish: Wish) -> Granted {
        self.store.grant(event.position, wish).await.unwrap()
    }
}

fn in_states(states: &[EventState]) -> EventFilter {
    EventFilter {
        states: states.to_vec(),
        job: None,
        destination: None,
        key: None,
        reason: None,
        since: None,
        until: None,
    }
}

fn sequence(claim: &ClaimedMessage) -> i64 {
    let body: serde_json::Value = serde_json::from_str(&claim.events[0].body).unwrap();
    body["sequence"].as_i64().unwrap()
}

async fn a_dead_event_that_is_retried_goes_behind_what_waits_of_its_key(database: Database) {
    let (mut story, dead) = Story::with_dead(&database).await;
    story.change("1").await;
    story.change("1").await;
    assert_eq!(story.grant(&dead, Wish::Retry).await, Granted::Done);
    story.change("1").await;
    let mut sent = Vec::new();
    for _ in 0..4 {
        sent.push(story.deliver_one().await);
    }
    assert_eq!(sent, [2, 3, 1, 4]);
    assert_eq!(story.claim().await, []);
    assert_eq!(database.number("(SELECT count(*) FROM outbox_head)").await, 0);
}

async fn a_redelivery_has_the_same_id_and_bytes_and_is_a_new_row(database: Database) {
    let mut story = Story::new(&database).await;
    story.change("1").await;
    let first = story.claim_one().await;
    story.settle(&first, &delivered()).await;
    let event = story.listed(&[EventState::Delivered]).await.remove(0);
    assert_eq!(story.grant(&event, Wish::Retry).await, Granted::Not(EventState::Delivered));
    assert_eq!(story.grant(&event, Wish::Discard).await, Granted::Not(EventState::Delivered));
    assert_eq!(story.grant(&event, Wish::Redeliver).await, Granted::Done);

    let again = story.listed(&[EventState::Pending]).await.remove(0);
    assert_eq!((again.event_id.as_str(), again.redelivery, again.tries), (first.id.as_str(), 1, 0));
    assert_eq!(story.grant(&again, Wish::Redeliver).await, Granted::Not(EventState::Pending));
    let second = story.claim_one().await;
    assert_eq!((&second.id, second.body().unwrap()), (&first.id, first.body().unwrap()));
    assert_ne!(second.events[0].position, first.events[0].position);
    assert_eq!(database.texts("SELECT state FROM event ORDER BY position").await, ["delivered", "pending"]);
    story.settle(&second, &delivered()).await;
    let settled = story.listed(&EventState::ALL).await;
    assert_eq!((settled.len(), settled[0].redelivery, settled[0].state), (1, 1, EventState::Delivered));
}

async fn an_event_is_sent_again_once_however_many_ask_for_it(database: Database) {
    let (story, dead) = Story::with_dead(&database).await;
    let before = story.store.job_view("issues").await.unwrap().unwrap();
    assert_eq!((before.pending, before.dead), (0, 1));
    let (one, other) = database.open_two().await;
    let asked = (0..6).map(|index| {
        let store = [&one, &other][index % 2].clone();
        tokio::spawn(async move { store.grant(dead.position, Wish::Retry).await.unwrap() })
    });
    let mut granted = Vec::new();
    for asked in asked.collect::<Vec<_>>() {
        granted.push(asked.await.unwrap());
    }
    assert_eq!(granted.iter().filter(|granted| **granted == Granted::Done).count(), 1, "{granted:?}");
    assert_eq!(granted.iter().filter(|granted| **granted == Granted::SentAgain).count(), 5, "{granted:?}");
    assert_eq!(story.listed(&[EventState::Dead]).await, []);
    assert_eq!(story.listed(&[EventState::Pending]).await[0].redelivery, 1);
    let after = story.store.job_view("issues").await.unwrap().unwrap();
    assert_eq!((after.pending, after.dead), (1, 0), "it counts as waiting and no more as dead");
    story.deliver_one().await;
    assert_eq!(story.claim().await, []);
}

async fn a_retried_event_that_waits_is_due_at_once(database: Database) {
    let mut story = Story::new(&database).await;
    story.change("1").await;
    story.change("1").await;
    let claim = story.claim_one().await;
    let events = story.listed(&[EventState::Pending]).await;
    assert!(events[0].leased && !events[1].leased && events[1].blocked, "{events:?}");
    assert_eq!(story.grant(&events[0], Wish::Retry).await, Granted::BeingSent);
    let failed = Attempt {
        delays: Arc::new([Duration::from_hours(1)]),
        ..attempt(Verdict::Failed { ambiguous: true, at_least: None })
    };
    story.settle(&claim, &failed).await;
    assert_eq!(story.claim().await, []);
    let waiting = story.listed(&[EventState::Pending]).await.remove(0);
    assert!(waiting.ambiguous && waiting.next_attempt_at > Some(waiting.created_at), "{waiting:?}");
    assert_eq!(story.grant(&events[1], Wish::Retry).await, Granted::Blocked);
    assert_eq!(story.claim().await, []);
    assert_eq!(story.grant(&waiting, Wish::Retry).await, Granted::Done);
    assert_eq!((sequence(&story.claim_one().await), story.claim().await.len()), (1, 0));
}

async fn a_discarded_head_lets_the_next_event_of_its_key_go(database: Database) {
    let mut story = Story::new(&database).await;
    story.change("1").await;
    story.change("1").await;
    let events = story.listed(&[EventState::Pending]).await;
    assert_eq!(story.grant(&events[0], Wish::Discard).await, Granted::Done);
    assert_eq!(story.grant(&events[0], Wish::Discard).await, Granted::Not(EventState::Discarded));
    assert_eq!(story.grant(&events[0], Wish::Retry).await, Granted::Not(EventState::Discarded));
    assert_eq!(story.deliver_one().await, 2);
    story.change("1").await;
    assert_eq!(
        story.grant(&story.listed(&[EventState::Pending]).await[0], Wish::Discard).await,
        Granted::Done
    );
    assert_eq!(database.number("(SELECT count(*) FROM outbox_head)").await, 0);
    story.change("1").await;
    assert_eq!(story.deliver_one().await, 4);
    assert_eq!(story.listed(&[EventState::Discarded]).await.len(), 2, "they are kept");
}

async fn a_discarded_event_that_waits_behind_another_is_never_sent(database: Database) {
    let mut story = Story::new(&database).await;
    for _ in 0..3 {
        story.change("1").await;
    }
    let claim = story.claim_one().await;
    let events = story.listed(&[EventState::Pending]).await;
    assert_eq!(story.grant(&events[1], Wish::Discard).await, Granted::Done);
    story.settle(&claim, &delivered()).await;
    assert_eq!(story.deliver_one().await, 3);
    assert_eq!(story.claim().await, []);
}

async fn what_is_being_sent_is_not_discarded(database: Database) {
    let mut story = Story::new(&database).await;
    story.change("1").await;
    let claim = story.claim_one().await;
    let event = story.listed(&[EventState::Pending]).await.remove(0);
    assert_eq!(story.grant(&event, Wish::Discard).await, Granted::BeingSent);
    assert_eq!(story.settle(&claim, &delivered()).await, Next::Delivered);
    assert_eq!(story.grant(&event, Wish::Discard).await, Granted::Not(EventState::Delivered));
}

async fn a_claim_that_ran_out_is_discarded_and_its_answer_comes_too_late(database: Database) {
    let mut story = Story::new(&database).await;
    story.change("1").await;
    story.change("1").await;
    let old =
        story.store.claim_messages(DESTINATION, &alone(1, Duration::from_millis(1))).await.unwrap().remove(0);
    tokio::time::sleep(Duration::from_millis(20)).await;
    let event = story.listed(&[EventState::Pending]).await.remove(0);
    assert!(!event.leased);
    assert_eq!(story.grant(&event, Wish::Discard).await, Granted::Done);
    assert!(story.listed(&[EventState::Discarded]).await[0].ambiguous, "it may have been sent");
    assert!(story.store.settle_message(&old, &delivered()).await.unwrap().is_none());
    let next = story.claim_one().await;
    assert_eq!((sequence(&next), next.tried.tries), (2, 0), "it was not under way");
    assert_eq!(database.number("(SELECT count(*) FROM event WHERE ambiguous)").await, 1);
}

async fn a_claim_that_ran_out_is_either_settled_or_discarded(database: Database) {
    let mut story = Story::new(&database).await;
    let (settler, discarder) = database.open_two().await;
    for _ in 0..30 {
        story.change("1").await;
        story.change("1").await;
        let claim =
            story.store.claim_messages(DESTINATION, &alone(1, Duration::ZERO)).await.unwrap().remove(0);
        tokio::time::sleep(Duration::from_millis(2)).await;
        let (settler, position) = (settler.clone(), claim.events[0].position);
        let settled =
            tokio::spawn(async move { settler.settle_message(&claim, &delivered()).await.unwrap() });
        let discarded = discarder.grant(position, Wish::Discard).await.unwrap();
        match (settled.await.unwrap().is_some(), discarded) {
            (true, Granted::JustSettled | Granted::Not(EventState::Delivered)) | (false, Granted::Done) => {}
            both => panic!("{both:?}"),
        }
        story.deliver_one().await;
        assert_eq!(database.number("(SELECT count(*) FROM outbox_head)").await, 0);
    }
}

async fn a_dead_event_is_either_discarded_or_sent_again(database: Database) {
    let (mut story, first) = Story::with_dead(&database).await;
    let (one, other) = database.open_two().await;
    let mut dead = first;
    for _ in 0..15 {
        let position = dead.position;
        let (retrier, discarder) = (one.clone(), other.clone());
        let retry = tokio::spawn(async move { retrier.grant(position, Wish::Retry).await.unwrap() });
        let discard = discarder.grant(position, Wish::Discard).await.unwrap();
        match (retry.await.unwrap(), discard) {
            (Granted::Done, Granted::SentAgain) | (Granted::Not(EventState::Discarded), Granted::Done) => {}
            both => panic!("{both:?}"),
        }
        // Another one to decide about; a destination that takes events lets refusals count.
        while let Some(claim) = story.claim().await.pop() {
            story.settle(&claim, &delivered()).await;
        }
        story.change("1").await;
        story.change("other").await;
        for claim in story.claim().await.iter().rev() {
            let verdict = if claim.events[0].body.contains(r#""key":"1""#) {
                Verdict::Refused
            } else {
                Verdict::Delivered
            };
            story.settle(claim, &attempt(verdict)).await;
        }
        dead = story.listed(&[EventState::Dead]).await.pop().unwrap();
    }
}

async fn events_discarded_while_others_are_settled_leave_no_key_without_a_head(database: Database) {
    let mut story = Story::new(&database).await;
    let (settler, discarder) = database.open_two().await;
    for _ in 0..25 {
        story.change("1").await;
        story.change("1").await;
        let claim = story.claim_one().await;
        let waiting = story.listed(&[EventState::Pending]).await;
        let behind = waiting.last().unwrap().position;
        let settler = settler.clone();
        let settled =
            tokio::spawn(async move { settler.settle_message(&claim, &delivered()).await.unwrap() });
        assert_eq!(discarder.grant(behind, Wish::Discard).await.unwrap(), Granted::Done);
        assert!(settled.await.unwrap().is_some());
        assert_eq!(story.claim().await, [], "what was discarded is not sent");
        assert_eq!(database.number("(SELECT count(*) FROM outbox_head)").await, 0);
    }
}

async fn events_sent_again_while_others_are_settled_are_not_forgotten(database: Database) {
    let mut story = Story::new(&database).await;
    let (settler, person) = database.open_two().await;
    story.change("1").await;
    story.deliver_one().await;
    for _ in 0..25 {
        let sent = story.listed(&[EventState::Delivered]).await.pop().unwrap();
        story.change("1").await;
        let claim = story.claim_one().await;
        let settler = settler.clone();
        let settled =
            tokio::spawn(async move { settler.settle_message(&claim, &delivered()).await.unwrap() });
        assert_eq!(person.grant(sent.position, Wish::Redeliver).await.unwrap(), Granted::Done);
        assert!(settled.await.unwrap().is_some());
        assert_eq!(story.deliver_one().await, sent.sequence);
        assert_eq!(database.number("(SELECT count(*) FROM outbox_head)").await, 0);
    }
}

async fn an_id_that_is_stored_already_is_still_an_error(database: Database) {
    let (mut story, dead) = Story::with_dead(&database).await;
    assert_eq!(story.grant(&dead, Wish::Retry).await, Granted::Done);
    let before = database.number("(SELECT count(*) FROM event)").await;
    // What a restored backup of the rows alone would lead to.
    database.tamper("DELETE FROM record").await;
    story.pages = 0;
    let page = story.job.page(1, vec![record("1", 1, "x")]);
    assert!(story.store.commit_page(&story.job.lease, &page).await.is_err());
    assert_eq!(database.number("(SELECT count(*) FROM event)").await, before);
}

async fn events_are_listed_by_what_a_person_asks_for(database: Database) {
    let (mut story, dead) = Story::with_dead(&database).await;
    for key in ["a", "b", "c"] {
        story.change(key).await;
    }
    let keys = async |filter: EventFilter, limit| {
        let listed = story.store.events(&filter, limit).await.unwrap();
        listed.into_iter().map(|event| event.key).collect::<Vec<_>>()
    };
    let open = in_states(&[EventState::Pending, EventState::Dead]);
    assert_eq!(keys(open.clone(), 100).await, ["1", "a", "b", "c"]);
    assert_eq!(keys(open.clone(), 2).await, ["b", "c"], "the newest, and newest last");
    assert_eq!(keys(in_states(&EventState::ALL), 100).await, ["1", "other", "a", "b", "c"]);
    assert_eq!(keys(EventFilter { key: Some("b".into()), ..open.clone() }, 9).await, ["b"]);
    assert_eq!(keys(EventFilter { reason: Some("WH".into()), ..open.clone() }, 9).await, ["1"]);
    assert_eq!(keys(EventFilter { reason: Some("%".into()), ..open.clone() }, 9).await, [""; 0]);
    for wrong in [
        EventFilter { job: Some("other".into()), ..open.clone() },
        EventFilter { destination: Some("other".into()), ..open.clone() },
        EventFilter { since: Some(story.store.now().await.unwrap().plus(LONG)), ..open.clone() },
        EventFilter { until: Some(dead.created_at), ..open.clone() },
    ] {
        assert_eq!(keys(wrong.clone(), 9).await, [""; 0], "{wrong:?}");
    }
    let right = EventFilter {
        job: Some("issues".into()),
        destination: Some(DESTINATION.into()),
        since: Some(dead.created_at),
        until: Some(story.store.now().await.unwrap().plus(LONG)),
        ..open
    };
    assert_eq!(keys(right, 9).await.len(), 4);

    let found = story.store.find_events(&dead.event_id[..12]).await.unwrap();
    assert_eq!(found, [dead]);
    assert_eq!(story.store.find_events("evt_").await.unwrap().len(), 2);
    assert_eq!(story.store.find_events("evt_x").await.unwrap(), []);
}

async fn an_event_s_story_tells_every_attempt(database: Database) {
    let (story, dead) = Story::with_dead(&database).await;
    story.grant(&dead, Wish::Retry).await;
    let claim = story.claim_one().await;
    story.settle(&claim, &delivered()).await;
    let told = story.store.event_story(&dead.event_id).await.unwrap().unwrap();
    assert_eq!(told.body.as_deref(), Some(&*claim.body().unwrap()));
    let attempts: Vec<_> =
        told.attempts.iter().map(|attempt| (attempt.redelivery, attempt.outcome.as_str())).collect();
    assert_eq!(attempts, [(0, "dead"), (1, "delivered")]);
    assert_eq!((told.attempts[0].status, told.attempts[0].error.as_deref()), (Some(200), Some("why")));
    assert_eq!(told.attempts[0].took, Duration::from_millis(3));
    assert!(story.store.event_story("evt_0").await.unwrap().is_none());
}

async fn a_fault_in_a_retry_leaves_nothing_behind(database: Database) {
    let (story, dead) = Story::with_dead(&database).await;
    database.break_on("outbox_head", "INSERT", "NEW.position > 0").await;
    assert!(story.store.grant(dead.position, Wish::Retry).await.is_err());
    database.mend("outbox_head").await;
    assert_eq!(story.listed(&[EventState::Dead]).await, std::slice::from_ref(&dead));
    assert_eq!(story.grant(&dead, Wish::Retry).await, Granted::Done);
    story.deliver_one().await;
}
