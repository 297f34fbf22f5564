//! What two processes deliver to a receiver that behaves as badly as it can: two thousand events, none of them lost, out
//! of order, or sent again after the receiver had said that it has it. `ONLYNEW_HOSTILE=SEED` has the receiver draw
//! the same again.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    num::NonZeroU32,
    sync::Arc,
    time::Duration,
};

use onlynew::{
    config::destination::{Destination, WebhookAuth},
    domain::{allow_private::AllowPrivate, batch::BatchRules, health::Condition, lane::Lanes},
    limit::SystemClock,
    outbox::Dispatcher,
    store::{EventFilter, EventState, EventStory, EventView, Store},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    both,
    support::{
        database::Database,
        hostile::{Act, Arrival, FLOOD, Named, Phase, Receiver, Tastes},
        pages::{DESTINATION, RunningJob, record},
    },
};

const KEYS: i64 = 400;
const VERSIONS: i64 = 5;
const EVENTS: usize = 2_000;
const POISONED: usize = 12;
const CONCURRENCY: u32 = 16;
/// How long an answer may take, and within how much of that it counts as one that its sender must have seen.
const TIMEOUT: Duration = Duration::from_millis(800);
const IN_TIME: Duration = Duration::from_millis(400);
/// How many repeats may be put down to a machine that stood still for longer than that.
const STANDSTILLS: usize = 5;
const DEADLINE: Duration = Duration::from_secs(150);
/// How often what another process wrote is looked at.
const LOOK: Duration = Duration::from_millis(100);

both!(
    a_hostile_receiver_is_sent_everything_in_order_and_nothing_that_it_has,
    a_hostile_receiver_is_sent_everything_in_batches_too,
);

async fn a_hostile_receiver_is_sent_everything_in_order_and_nothing_that_it_has(database: Database) {
    survive(database, None).await;
}

async fn a_hostile_receiver_is_sent_everything_in_batches_too(database: Database) {
    let linger = Duration::from_millis(20);
    survive(
        database,
        Some(BatchRules { max_events: NonZeroU32::new(8).unwrap(), max_bytes: 100_000, linger }),
    )
    .await;
}

/// Delivers everything to a hostile receiver, in batches of these rules, and looks at what both sides have of it.
async fn survive(database: Database, batch: Option<BatchRules>) {
    let seed =
        std::env::var("ONLYNEW_HOSTILE").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    eprintln!("ONLYNEW_HOSTILE={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut tastes = Tastes::default();
    while tastes.poison.len() < POISONED {
        tastes.poison.insert((format!("k{}", random.i64(0..KEYS)), random.i64(1..=2)));
    }
    // A batch that is too large even so is split.
    tastes.most_events = batch.map(|batch| usize::try_from(batch.max_events.get()).unwrap() * 3 / 4);
    let receiver = Receiver::new(seed, tastes.clone());
    let scene = Scene::new(&database, &receiver, batch).await;

    if tokio::time::timeout(DEADLINE, scene.play(seed, &mut random)).await.is_err() {
        let waiting = scene.events(EventState::Pending).await;
        panic!(
            "seed {seed}: after {DEADLINE:?} {} events wait for {:?}, the first of them {:?}",
            waiting.len(),
            scene.one.destinations().await.unwrap(),
            waiting.first(),
        );
    }
    scene.audit(&tastes.poison).await;
}

/// A job's events, two processes that deliver them, and the receiver.
struct Scene {
    one: Arc<dyn Store>,
    other: Arc<dyn Store>,
    job: RunningJob,
    destination: Arc<Destination>,
    receiver: Receiver,
}

impl Scene {
    async fn new(database: &Database, receiver: &Receiver, batch: Option<BatchRules>) -> Self {
        let (one, other) = database.open_two().await;
        let mut job = RunningJob::start(&one, "issues").await;
        // Events have the same ids in every run.
        "hostile".clone_into(&mut job.row.uid);
        let destination = Arc::new(Destination {
            name: DESTINATION.to_owned(),
            url: receiver.url().parse().unwrap(),
            auth: WebhookAuth::None,
            signing_keys: Vec::new(),
            allow_private: AllowPrivate::default(),
            concurrency: CONCURRENCY,
            timeout: TIMEOUT,
            // So many that no event comes to its end by trouble that is not its own.
            delays: vec![Duration::from_millis(5); 1_000],
            batch,
            lanes: Lanes::default(),
            rate_limit: None,
        });
        Self { one, other, job, destination, receiver: receiver.clone() }
    }

    /// Delivers until nothing waits, through one trouble after another.
    async fn play(&self, seed: u64, random: &mut fastrand::Rng) {
        let stop = CancellationToken::new();
        let fresh = watch::Sender::new(0);
        let deliver = |store: &Arc<dyn Store>| {
            let destination = Arc::clone(&self.destination);
            let dispatcher = Dispatcher::new(Arc::clone(store), Arc::new(SystemClock), destination).unwrap();
            let (stored, stop) = (fresh.subscribe(), stop.clone());
            tokio::spawn(async move { dispatcher.run(stored, stop).await })
        };
        let running = [deliver(&self.one), deliver(&self.other)];
        let told = async {
            self.endure(random).await;
            self.until(async || self.waiting().await == 0).await;
        };
        tokio::join!(self.store_all(&fresh, seed), told);
        stop.cancel();
        for dispatcher in running {
            dispatcher.await.unwrap();
        }
    }

    /// Stores the events, the later ones while the earlier are delivered.
    async fn store_all(&self, fresh: &watch::Sender<u64>, seed: u64) {
        for version in 1..=VERSIONS {
            let content = seed.to_string();
            let page = (0..KEYS).map(|key| record(&format!("k{key}"), version, &content)).collect();
            self.job.commit(u32::try_from(version).unwrap(), page).await;
            fresh.send_modify(|pages| *pages += 1);
            self.receiver.wait_until(|log| sent(log) >= usize::try_from(version * KEYS / 4).unwrap()).await;
        }
    }

    /// Has the receiver go through all its phases, with something delivered before each.
    async fn endure(&self, random: &mut fastrand::Rng) {
        let mut phases =
            [Phase::Storm, Phase::Moved, Phase::Closed, Phase::NotRegistered, Phase::Storm, Phase::Closed];
        random.shuffle(&mut phases);
        for phase in phases {
            self.receiver.now(Phase::Fair(random.choice([6, 12, 24]).unwrap()));
            let before = sent(&self.receiver.log());
            self.receiver.wait_until(|log| sent(log) >= before + 150).await;
            let so_far = self.receiver.log().len();
            self.receiver.now(phase);
            match phase {
                Phase::Moved | Phase::NotRegistered => self.until_probed(Condition::Parked).await,
                Phase::Closed => self.until_probed(Condition::Failing).await,
                _ => self.receiver.wait_until(|log| has_stormed(log, so_far)).await,
            }
            if phase == Phase::Storm {
                let sent = stormy(&self.receiver.log(), so_far).len();
                // What was under way, and what was claimed while the first answer was being stored.
                let most = 4 * usize::try_from(CONCURRENCY).unwrap() + 8;
                assert!(sent <= most, "{sent} requests to a receiver that asks to be left alone");
            }
        }
        self.receiver.now(Phase::Fair(6));
    }

    async fn waiting(&self) -> usize {
        let view = self.one.job_view("issues").await.unwrap().unwrap();
        EVENTS - usize::try_from(view.delivered + view.dead).unwrap()
    }

    /// Waits until the destination is known to be so, and has been probed in vain.
    async fn until_probed(&self, condition: Condition) {
        self.until(async || {
            let known = self.one.destinations().await.unwrap();
            known.first().is_some_and(|known| known.health.condition == condition && known.health.probes >= 2)
        })
        .await;
    }

    async fn until(&self, condition: impl AsyncFn() -> bool) {
        while !condition().await {
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn events(&self, state: EventState) -> Vec<EventView> {
        let (job, destination, key, reason, since, until) = (None, None, None, None, None, None);
        let filter = EventFilter { states: vec![state], job, destination, key, reason, since, until };
        self.one.events(&filter, 10_000).await.unwrap()
    }

    /// Compares what the store knows with what the receiver had and did.
    async fn audit(&self, poison: &HashSet<(String, i64)>) {
        let log = self.receiver.log().clone();
        let log: Vec<&Arrival> = log.iter().collect();
        // In batches there are fewer requests, of which some may meet only a part of it.
        if self.destination.batch.is_none() {
            all_was_met(&log);
        }
        requests_name_themselves(&log);
        let delivered = self.events(EventState::Delivered).await;
        let lost = delivered.iter().filter(|event| !was_had(&log, &event.event_id)).count();
        assert_eq!(lost, 0, "events are delivered that the receiver never had");
        let dead = self.events(EventState::Dead).await;
        let dead: HashSet<_> = dead.into_iter().map(|event| (event.key, event.sequence)).collect();
        assert_eq!(dead, *poison, "dead are the events that are refused for themselves, and they alone");
        assert_eq!(delivered.len() + dead.len(), EVENTS);
        order_is_kept(&log, poison);

        let ambiguous: HashMap<_, _> =
            delivered.iter().map(|event| (event.event_id.as_str(), event.ambiguous)).collect();
        let mut doubled = 0;
        for (id, arrivals) in by_event(&log) {
            let taken = arrivals.iter().filter(|arrival| arrival.is_taken).count();
            let in_doubt = arrivals.iter().any(|arrival| arrival.act.is_ambiguous());
            doubled += usize::from(taken > 1);
            if let Some(ambiguous) = ambiguous.get(id) {
                assert!(*ambiguous || taken <= 1, "{id} was taken {taken} times, and nobody knows");
                assert!(*ambiguous || !in_doubt, "an answer about {id} was lost, and nobody knows");
            }
        }
        assert!(doubled > 0, "nothing was taken twice, so that nothing was to be known of that");
        let late = self.nothing_is_sent_again(&log).await;
        eprintln!("{} requests, {doubled} events taken twice, {late} answers that came late", log.len());
    }

    /// Nothing comes again of which the receiver had said in time that it has it. Returns of how much it had said so late.
    async fn nothing_is_sent_again(&self, log: &[&Arrival]) -> usize {
        let mut standstills = Vec::new();
        for (id, arrivals) in by_event(log) {
            let said = arrivals.iter().rev().skip(1);
            let Some(said) = said.rev().find(|one| one.act.says_taken() && one.answered_at.is_some()) else {
                continue;
            };
            let story = self.one.event_story(id).await.unwrap().unwrap();
            assert!(was_late(said, &story), "{id} came again after {said:?}: {story:?}");
            standstills.push(id);
        }
        assert!(standstills.len() <= STANDSTILLS, "too many answers came late: {standstills:?}");
        standstills.len()
    }
}

/// How many events came, each as often as it came.
fn sent(log: &[Arrival]) -> usize {
    log.iter().map(|arrival| arrival.events.len()).sum()
}

/// The requests from number `so_far` on that met a storm.
fn stormy(log: &[Arrival], so_far: usize) -> Vec<&Arrival> {
    log[so_far..].iter().filter(|arrival| arrival.phase == Phase::Storm).collect()
}

/// Whoever leaves it alone comes again after a second, and hears the same.
fn has_stormed(log: &[Arrival], so_far: usize) -> bool {
    let storm = stormy(log, so_far);
    storm.last().is_some_and(|last| last.at.since(storm[0].at) >= Duration::from_secs(1))
}

/// The receiver did all that it can do, or the test shows little.
fn all_was_met(log: &[&Arrival]) {
    let met: HashSet<Act> = log.iter().map(|arrival| arrival.act).collect();
    let acts = [
        Act::StatusAlone,
        Act::Trickle,
        Act::Flood,
        Act::Gate,
        Act::Reset,
        Act::Hang,
        Act::HangUp,
        Act::Gateway(502),
        Act::Gateway(504),
    ];
    for act in acts.into_iter().chain([200, 204, 404, 400, 500, 503, 408, 425, 409].map(Act::Status)) {
        assert!(met.contains(&act), "no {act:?} among {met:?}");
    }
    assert!(log.iter().any(|arrival| matches!(arrival.act, Act::Status(301..=307))));
    assert!(log.iter().any(|arrival| matches!(arrival.act, Act::Later(429 | 503))));
    let read = log.iter().map(|arrival| arrival.flooded).max().unwrap();
    assert!(read < FLOOD / 2, "{read} bytes of an answer were taken");
}

/// A request of one id is always the same but for its number, which rises, and its own times.
fn requests_name_themselves(log: &[&Arrival]) {
    let mut before: HashMap<&str, (u32, &str)> = HashMap::new();
    for arrival in log {
        assert_eq!(arrival.line, "POST /webhook/hostile HTTP/1.1", "nothing is followed");
        let (id, number) = (arrival.header("webhook-id"), arrival.number());
        assert_eq!(arrival.header("idempotency-key"), id);
        if arrival.body.is_empty() {
            continue;
        }
        let body: serde_json::Value = serde_json::from_str(&arrival.body).unwrap();
        let name = body.get("batch_id").unwrap_or(&body["id"]);
        assert_eq!(name, id);
        if let Some((last, same)) = before.insert(id, (number, &arrival.body)) {
            assert!(number > last, "{id} comes as attempt {number} after {last}");
            assert_eq!(arrival.body, same, "{id} is not what it was");
        }
    }
}

/// A key's events come one after the other: none before an earlier one is settled, and so all first times in order.
fn order_is_kept(log: &[&Arrival], poison: &HashSet<(String, i64)>) {
    let mut latest: HashMap<&str, i64> = HashMap::new();
    let mut taken: HashMap<&str, BTreeSet<i64>> = HashMap::new();
    for (arrival, Named { key, sequence, .. }) in
        log.iter().flat_map(|arrival| arrival.events.iter().map(move |event| (arrival, event)))
    {
        let latest = latest.entry(key).or_insert(*sequence);
        assert!(*latest <= *sequence, "{sequence} of {key} comes after {latest}");
        *latest = *sequence;
        if arrival.is_taken && taken.entry(key).or_default().insert(*sequence) {
            let due = (1..*sequence).filter(|earlier| !poison.contains(&(key.clone(), *earlier)));
            let missing: Vec<_> = due.filter(|earlier| !taken[key.as_str()].contains(earlier)).collect();
            assert!(missing.is_empty(), "{sequence} of {key} is taken before {missing:?}");
        }
    }
}

/// What came of each event, in order.
fn by_event<'a>(log: &[&'a Arrival]) -> BTreeMap<&'a str, Vec<&'a Arrival>> {
    let mut events: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for arrival in log {
        for event in &arrival.events {
            events.entry(event.id.as_str()).or_default().push(*arrival);
        }
    }
    events
}

/// The receiver took the event, and said so.
fn was_had(log: &[&Arrival], id: &str) -> bool {
    let of_it = || log.iter().filter(|arrival| arrival.events.iter().any(|event| event.id == id));
    of_it().any(|arrival| arrival.is_taken)
        && of_it().any(|arrival| arrival.act.says_taken() && arrival.answered_at.is_some())
}

/// The receiver said it so late that its sender need not have heard it: the attempt had used up much of its time.
fn was_late(said: &Arrival, story: &EventStory) -> bool {
    let mut before = story.attempts.iter().rev().filter(|attempt| attempt.sent_at <= said.at);
    match before.next() {
        // An attempt whose sender stood still until its claim was gone is not on record.
        Some(attempt) => said.answered_at.unwrap().since(attempt.sent_at) > IN_TIME,
        None => true,
    }
}
