//! A history: the steps, and what each may have changed.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use fastrand::Rng;
use onlynew::{
    domain::{
        batch::batch_id,
        delivery::{Answer, Next, Verdict, judge},
        instant::Instant,
        lane::OnDead,
    },
    store::{Attempt, ClaimedMessage, Granted, Store, Wish},
};

use super::{
    Wrong,
    plan::{LEASE, Plan, TIMEOUT, chance},
    receiver::{Mood, Received, receive},
    table::Table,
};
use crate::support::{
    database::{Beside, Database},
    pages::{RunningJob, record},
};

/// What happened, so that a test can see that enough did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    pub executed: u64,
    pub repeated: u64,
    pub split: u64,
    pub dead: u64,
    pub superseded: u64,
    pub void: u64,
}

impl Counted {
    pub fn add(&mut self, other: Self) {
        self.executed += other.executed;
        self.repeated += other.repeated;
        self.split += other.split;
        self.dead += other.dead;
        self.superseded += other.superseded;
        self.void += other.void;
    }
}

/// A claim in somebody's hands.
struct Flight {
    dispatcher: usize,
    claim: ClaimedMessage,
    claimed_at: i64,
    received: Option<Received>,
}

/// The message that an event may have been received in.
#[derive(Clone, Debug)]
struct Frozen {
    with: BTreeSet<i64>,
    id: Option<String>,
}

struct World {
    plan: Plan,
    rng: Rng,
    store: Arc<dyn Store>,
    beside: Beside,
    jobs: Vec<RunningJob>,
    /// The destination of each job.
    places: Vec<usize>,
    pages: u32,
    made: u64,
    clock: i64,
    moods: Vec<Mood>,
    table: Table,
    flights: Vec<Flight>,
    /// Requests whose senders have given up.
    wandering: Vec<ClaimedMessage>,
    /// Lanes that are claimed, and until when.
    live: Vec<((i64, String), i64, i64)>,
    frozen: BTreeMap<i64, Frozen>,
    bodies: HashMap<String, String>,
    executed: BTreeMap<i64, u32>,
    calm: bool,
    counted: Counted,
    story: Vec<String>,
}

/// Lives through the history of a seed; what is wrong comes with its story.
pub async fn live(seed: u64, database: &Database, store: &Arc<dyn Store>) -> Result<Counted, String> {
    let mut rng = Rng::with_seed(seed);
    let plan = Plan::of(seed, &mut rng);
    let mut jobs = Vec::new();
    for number in 0..plan.jobs {
        jobs.push(RunningJob::start(store, &format!("j{seed}x{number}")).await);
    }
    let mut world = World {
        places: vec![0; jobs.len()],
        moods: vec![Mood::Well; plan.destinations.len()],
        store: store.clone(),
        beside: database.connect().await,
        jobs,
        plan,
        rng,
        pages: 0,
        made: 0,
        clock: 0,
        table: Table::default(),
        flights: Vec::new(),
        wandering: Vec::new(),
        live: Vec::new(),
        frozen: BTreeMap::new(),
        bodies: HashMap::new(),
        executed: BTreeMap::new(),
        calm: false,
        counted: Counted::default(),
        story: Vec::new(),
    };
    match world.go().await {
        Ok(()) => Ok(world.counted),
        Err(wrong) => Err(format!("{wrong}\n{:?}\n  {}", world.plan, world.story.join("\n  "))),
    }
}

impl World {
    async fn go(&mut self) -> Result<(), Wrong> {
        for _ in 0..self.plan.steps {
            self.step().await?;
        }
        self.calm = true;
        self.moods.fill(Mood::Well);
        for place in self.plan.destinations.clone() {
            self.store.pause_destination(&place, false).await.unwrap();
        }
        for _ in 0..150 {
            if !self.table.0.values().any(|row| row.is_pending() && row.lane == "witness") {
                self.commit(true).await?;
            }
            while !self.flights.is_empty() {
                self.fly(0, true).await?;
            }
            self.pass(7_200).await;
            for _ in 0..10 {
                let before = self.flights.len();
                self.pass(6).await;
                self.claim(8).await?;
                if self.flights.len() == before {
                    break;
                }
                while !self.flights.is_empty() {
                    self.fly(0, true).await?;
                }
            }
            let held: Vec<_> = self
                .table
                .0
                .iter()
                .filter(|(_, row)| row.head.as_ref().is_some_and(|head| head.held))
                .collect();
            if let Some(position) = held.first().map(|(position, _)| **position) {
                self.wish(position, Wish::Discard).await?;
            }
            if self.table.0.values().all(|row| !row.is_pending()) {
                return self.check_the_end();
            }
        }
        let waiting: Vec<_> = self.table.0.iter().filter(|(_, row)| row.is_pending()).collect();
        Err(format!("although all has been well for long, these still wait: {waiting:?}"))
    }

    async fn step(&mut self) -> Result<(), Wrong> {
        if chance(&mut self.rng, self.plan.moody) {
            let place = self.rng.usize(..self.moods.len());
            self.moods[place] = Mood::any(&mut self.rng);
            self.story.push(format!("{}: the receiver of {place} is {:?}", self.clock, self.moods[place]));
        }
        if chance(&mut self.rng, self.plan.deadly) {
            let dead = self.rng.usize(..3);
            self.story.push(format!("{}: dispatcher {dead} dies", self.clock));
            self.flights.retain(|flight| flight.dispatcher != dead);
        }
        if chance(&mut self.rng, self.plan.wishful) {
            return self.person().await;
        }
        match self.rng.u8(..20) {
            0..4 if self.table.0.len() < 40 => self.commit(false).await,
            0..8 => self.claim(self.plan.seed as u32 % 3 + 1).await,
            8..16 if !self.flights.is_empty() => {
                let flight = self.rng.usize(..self.flights.len());
                self.fly(flight, false).await
            }
            16 | 17 if !self.wandering.is_empty() => {
                let at = self.rng.usize(..self.wandering.len());
                let request = self.wandering.swap_remove(at);
                self.story.push(format!("{}: {} arrives late", self.clock, request.id));
                self.arrive(&request).map(drop)
            }
            _ => {
                let seconds = [1, 5, 10, 45, 120, 3_600][self.rng.usize(..6)];
                self.pass(seconds).await;
                Ok(())
            }
        }
    }

    async fn pass(&mut self, seconds: i64) {
        self.clock += seconds;
        let micros = seconds * 1_000_000;
        let (jobs, seed) = (self.job_list(), self.plan.seed);
        self.beside
            .tamper(&format!(
                "UPDATE outbox_head SET tried_at = tried_at - {micros},
                    due_at = CASE WHEN due_at = {} THEN due_at ELSE due_at - {micros} END WHERE job IN ({jobs})",
                i64::MAX
            ))
            .await;
        self.beside
            .tamper(&format!(
                "UPDATE destination SET since = since - {micros}, not_before = not_before - {micros},
                    delivered_at = delivered_at - {micros} WHERE name LIKE 'd{seed}x%'"
            ))
            .await;
    }

    fn job_list(&self) -> String {
        self.jobs.iter().map(|job| job.row.id.0.to_string()).collect::<Vec<_>>().join(",")
    }

    /// Reads the store; of the events that were known those alone may have another state that `may` names.
    async fn look(&mut self, may: impl Fn(i64, &str) -> bool) -> Result<(), Wrong> {
        let jobs = self.job_list();
        let now = Table::read(&mut self.beside, &jobs).await;
        for (position, was) in &self.table.0 {
            let is = now.row(*position)?;
            if was.state != is.state
                && !(may(*position, &is.state) && (was.is_pending() || was.state == "dead"))
            {
                return Err(format!("{position} was {} and is {}", was.state, is.state));
            }
            if was.ambiguous && !is.ambiguous {
                return Err(format!("{position} is not ambiguous any more"));
            }
        }
        if now.0.len() as u64 != self.made {
            return Err(format!("{} events were made, {} are there", self.made, now.0.len()));
        }
        now.check()?;
        self.table = now;
        Ok(())
    }

    /// New events; a witness that is good where all is well.
    async fn commit(&mut self, calm: bool) -> Result<(), Wrong> {
        self.pages += 1;
        let number = self.rng.usize(..self.jobs.len());
        let mut records = Vec::new();
        for key in 0..self.plan.keys {
            let poison = super::plan::POISONS[self.rng.usize(..3)];
            if !calm && chance(&mut self.rng, 0.4) {
                let text = if chance(&mut self.rng, self.plan.poison) { poison } else { "good" };
                records.push(record(&format!("k{key}"), i64::from(self.pages), text));
            }
        }
        if calm {
            records.push(record("witness", i64::from(self.pages), "good"));
        }
        let mut page = self.jobs[number].page(self.pages, records);
        page.destination = self.plan.destinations[self.places[number]].clone();
        page.order = self.plan.order;
        self.made += self.jobs[number].commit_page(&page).await.events;
        self.look(|_, _| false).await
    }

    async fn claim(&mut self, messages: u32) -> Result<(), Wrong> {
        let dispatcher = self.rng.usize(..3);
        let rules = self.plan.rules(dispatcher, messages);
        let place = self.rng.usize(..self.plan.destinations.len());
        let places = if self.calm { 0..self.plan.destinations.len() } else { place..place + 1 };
        for place in places {
            let name = self.plan.destinations[place].clone();
            let claims = self.store.claim_messages(&name, &rules).await.unwrap();
            let (frozen, plan) = (self.frozen.clone(), self.plan.clone());
            self.look(|position, state| {
                state == "superseded" && plan.coalesces && !frozen.contains_key(&position)
            })
            .await?;
            for claim in claims {
                self.check_claim(&claim, rules.batch.is_some())?;
                self.flights.push(Flight { dispatcher, claim, claimed_at: self.clock, received: None });
            }
        }
        Ok(())
    }

    fn check_claim(&mut self, claim: &ClaimedMessage, is_batch: bool) -> Result<(), Wrong> {
        let all: BTreeSet<_> = claim.events.iter().map(|event| event.position).collect();
        self.story.push(format!("{}: claims {} {all:?} {:?}", self.clock, claim.id, claim.tried));
        self.counted.repeated += u64::from(claim.is_repeat);
        if all.len() > self.plan.most_events()
            || all.is_empty()
            || (all.len() > 1 && !is_batch && !claim.is_repeat)
        {
            return Err(format!("{} has {} events", claim.id, all.len()));
        }
        for position in &all {
            let row = self.table.row(*position)?;
            if row.job != claim.job.0 {
                return Err(format!("{} holds an event of another job", claim.id));
            }
            let lane = row.lane();
            if let Some((_, _, other)) =
                self.live.iter().find(|(of, until, _)| *of == lane && *until > self.clock)
            {
                return Err(format!("{position} is claimed while {other} of its lane is"));
            }
            let frozen = self.frozen.get(position);
            let same_id = frozen.and_then(|frozen| frozen.id.as_ref()).is_none_or(|id| *id == claim.id);
            if claim.is_repeat != frozen.is_some()
                || frozen.is_some_and(|frozen| frozen.with != all)
                || !same_id
            {
                return Err(format!(
                    "{position} was sent in {frozen:?} and is claimed in {} {all:?}",
                    claim.id
                ));
            }
            self.live.push((lane, self.clock + LEASE, *position));
        }
        let body = claim.body().unwrap().into_owned();
        if self.bodies.entry(claim.id.clone()).or_insert_with(|| body.clone()) != &body {
            return Err(format!("{} has another body than before", claim.id));
        }
        self.freeze(&all, Some(claim.id.clone()));
        Ok(())
    }

    fn freeze(&mut self, all: &BTreeSet<i64>, id: Option<String>) {
        for position in all {
            self.frozen.insert(*position, Frozen { with: all.clone(), id: id.clone() });
        }
    }

    /// A request reaches the receiver.
    fn arrive(&mut self, claim: &ClaimedMessage) -> Result<Received, Wrong> {
        let place = self.plan.destinations.iter().position(|name| *name == claim.destination).unwrap();
        let mut poisons = Vec::new();
        for event in &claim.events {
            poisons.push(self.table.row(event.position)?.poison);
        }
        let received = receive(self.moods[place], &self.plan, &mut self.rng, self.calm, &poisons);
        self.story.push(format!("{}: {} is received: {received:?}", self.clock, claim.id));
        for event in claim.events.iter().take(received.executed) {
            let position = event.position;
            let times = self.executed.entry(position).or_default();
            *times += 1;
            self.counted.executed += 1;
            if *times > 1 && !self.table.row(position)?.ambiguous {
                return Err(format!("{position} is acted on again and nothing on record says why"));
            }
            let before = self.table.waiting_before(position);
            if !before.is_empty() {
                return Err(format!("{position} is acted on while {before:?} wait before it"));
            }
        }
        Ok(received)
    }

    /// The next thing that happens to a claim.
    async fn fly(&mut self, at: usize, to_the_end: bool) -> Result<(), Wrong> {
        let mut flight = self.flights.swap_remove(at);
        let received = if let Some(received) = flight.received {
            received
        } else if self.clock - flight.claimed_at > LEASE - TIMEOUT {
            self.story.push(format!("{}: {} was claimed too long ago", self.clock, flight.claim.id));
            return Ok(());
        } else if !self.calm && chance(&mut self.rng, 0.15) {
            self.wandering.push(flight.claim.clone());
            Received { answer: Answer::Lost, executed: 0, of_event: false }
        } else {
            self.arrive(&flight.claim)?
        };
        if to_the_end || chance(&mut self.rng, 0.6) {
            return self.settle(&flight.claim, received).await;
        }
        flight.received = Some(received);
        self.flights.push(flight);
        Ok(())
    }

    async fn settle(&mut self, claim: &ClaimedMessage, received: Received) -> Result<(), Wrong> {
        let verdict = judge(received.answer);
        let attempt = Attempt {
            status: None,
            error: Some("why".into()),
            answer: String::new(),
            sent_at: Instant::from_seconds(self.clock),
            took: Duration::from_secs(1),
            verdict,
            delays: self.plan.delays.clone().into(),
            on_dead: self.plan.on_dead,
            random: self.rng.f64(),
        };
        let mut held = BTreeSet::new();
        let mut turned_over = BTreeSet::new();
        for event in &claim.events {
            let head = self.table.row(event.position)?.head.as_ref();
            if let Some(head) = head.filter(|head| head.leased && head.fence == event.fence) {
                held.insert(event.position);
                turned_over.extend(head.turned_over.then_some(event.position));
            }
        }
        let settled = self.store.settle_message(claim, &attempt).await.unwrap();
        self.story.push(format!("{}: settles {} {held:?}: {settled:?}", self.clock, claim.id));
        let events = settled.map_or(0, |settled| settled.events);
        if events != held.len() as u64 {
            return Err(format!("{} settles {events} events and holds {held:?}", claim.id));
        }
        let Some(settled) = settled else {
            self.counted.void += 1;
            return Ok(());
        };
        let next = settled.next;
        let becomes = match next {
            Next::Delivered => "delivered",
            Next::Dead if self.plan.on_dead == OnDead::Skip => "dead",
            _ => "pending",
        };
        self.look(|position, state| held.contains(&position) && state == becomes).await?;
        if held.iter().any(|position| self.table.0[position].state != becomes) {
            return Err(format!("not all of {held:?} are {becomes}"));
        }
        self.live.retain(|(_, _, position)| !held.contains(position));
        for position in &held {
            self.frozen.remove(position);
        }
        match next {
            Next::Delivered => {}
            Next::Dead => {
                self.counted.dead += 1;
                // Where a receiver begins to refuse everything, or fails an event again and again while it takes
                // others, nobody can tell that the event is good.
                let is_doubtful = !received.of_event && (verdict == Verdict::Refused || !self.calm);
                let is_good = claim.events.iter().any(|event| self.table.0[&event.position].poison.is_none());
                if claim.events.len() > 1 || (is_good && !is_doubtful) {
                    return Err(format!("{} is dead", claim.id));
                }
            }
            Next::Again { ambiguous, .. } if claim.is_repeat || ambiguous => {
                let id = (held.len() == claim.events.len()).then(|| claim.id.clone());
                self.freeze(&held, id);
            }
            Next::Again { .. } => {}
            Next::Split { .. } => {
                self.counted.split += 1;
                let all: Vec<_> = held.iter().copied().collect();
                let (one, other) = all.split_at(all.len().div_ceil(2));
                for half in [one, other] {
                    let id = batch_id(half.iter().map(|position| self.table.0[position].id.as_str()));
                    self.freeze(&half.iter().copied().collect(), Some(id));
                }
            }
        }
        for position in &turned_over {
            self.leave(*position);
        }
        Ok(())
    }

    /// An event is no more of the message that it was sent in.
    fn leave(&mut self, position: i64) {
        self.frozen.remove(&position);
        for frozen in self.frozen.values_mut().filter(|frozen| frozen.with.contains(&position)) {
            frozen.with.remove(&position);
            frozen.id = None;
        }
    }

    async fn person(&mut self) -> Result<(), Wrong> {
        let place = self.rng.usize(..self.plan.destinations.len());
        let name = self.plan.destinations[place].clone();
        match self.rng.u8(..10) {
            0 => drop(self.store.pause_destination(&name, true).await.unwrap()),
            1 | 2 => drop(self.store.pause_destination(&name, false).await.unwrap()),
            3 => self.store.probe_destination(&name).await.unwrap(),
            4 => {
                let number = self.rng.usize(..self.jobs.len());
                self.places[number] = place;
                let job = self.jobs[number].row.id;
                self.story.push(format!("{}: {job:?} goes to {name}", self.clock));
                let of_job = |row: &super::table::Row| row.job == job.0 && row.destination != name;
                let moved: Vec<_> =
                    self.table.0.iter().filter(|(_, row)| of_job(row)).map(|(at, _)| *at).collect();
                self.store.readdress(job, &name).await.unwrap();
                for position in moved {
                    self.leave(position);
                }
                return self.look(|_, _| false).await;
            }
            _ if self.table.0.is_empty() => {}
            _ => {
                let index = self.rng.usize(..self.table.0.len());
                let position = *self.table.0.keys().nth(index).unwrap();
                let wish = [Wish::Retry, Wish::Redeliver, Wish::Discard][self.rng.usize(..3)];
                return self.wish(position, wish).await;
            }
        }
        Ok(())
    }

    async fn wish(&mut self, position: i64, wish: Wish) -> Result<(), Wrong> {
        let was_pending = self.table.row(position)?.is_pending();
        let granted = self.store.grant(position, wish).await.unwrap();
        self.story.push(format!("{}: {wish:?} of {position}: {granted:?}", self.clock));
        if granted != Granted::Done {
            return self.look(|_, _| false).await;
        }
        self.made += u64::from(wish != Wish::Discard && !was_pending);
        self.look(|at, state| at == position && wish == Wish::Discard && state == "discarded").await?;
        if wish == Wish::Discard {
            let is_live = |live: &&(_, i64, i64)| live.2 == position && live.1 > self.clock;
            if self.live.iter().any(|live| is_live(&live)) {
                return Err(format!("{position} is discarded while it is being sent"));
            }
            self.leave(position);
        }
        Ok(())
    }

    /// What was delivered was acted on. All that is settled otherwise was allowed when it was.
    fn check_the_end(&mut self) -> Result<(), Wrong> {
        let mut newest = BTreeMap::new();
        for (position, row) in &self.table.0 {
            if row.state == "delivered" && !self.executed.contains_key(position) {
                return Err(format!("{position} is delivered, and was never acted on"));
            }
            self.counted.superseded += u64::from(row.state == "superseded");
            newest.insert(row.lane(), (position, &row.state));
        }
        match newest.values().find(|(_, state)| *state == "superseded") {
            Some((position, _)) => Err(format!("{position} is superseded by nothing")),
            None => Ok(()),
        }
    }
}
