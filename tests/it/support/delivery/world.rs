//! A history: the steps, and what each may have changed.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use fastrand::Rng;
use onlynew::store::{ClaimedMessage, Store, Wish};

use super::{
    Wrong,
    plan::{Plan, chance},
    receiver::{Mood, Received},
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
pub(super) struct Flight {
    pub(super) dispatcher: usize,
    pub(super) claim: ClaimedMessage,
    pub(super) claimed_at: i64,
    pub(super) received: Option<Received>,
}

/// The message that an event may have been received in.
#[derive(Clone, Debug)]
pub(super) struct Frozen {
    pub(super) with: BTreeSet<i64>,
    pub(super) id: Option<String>,
}

pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) rng: Rng,
    pub(super) store: Arc<dyn Store>,
    pub(super) beside: Beside,
    pub(super) jobs: Vec<RunningJob>,
    /// The destination of each job.
    pub(super) places: Vec<usize>,
    pub(super) pages: u32,
    pub(super) made: u64,
    pub(super) clock: i64,
    pub(super) moods: Vec<Mood>,
    pub(super) table: Table,
    pub(super) flights: Vec<Flight>,
    /// Requests whose senders have given up.
    pub(super) wandering: Vec<ClaimedMessage>,
    /// Lanes that are claimed, and until when.
    pub(super) live: Vec<((i64, String), i64, i64)>,
    pub(super) frozen: BTreeMap<i64, Frozen>,
    pub(super) bodies: HashMap<String, String>,
    pub(super) executed: BTreeMap<i64, u32>,
    pub(super) calm: bool,
    pub(super) counted: Counted,
    pub(super) story: Vec<String>,
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
    pub(super) async fn go(&mut self) -> Result<(), Wrong> {
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

    pub(super) async fn step(&mut self) -> Result<(), Wrong> {
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
            0..8 => {
                let messages = self.rng.u32(1..=3);
                self.claim(messages).await
            }
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

    pub(super) async fn pass(&mut self, seconds: i64) {
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
                "UPDATE event SET created_at = created_at - {micros} WHERE state = 'pending' AND job IN ({jobs})"
            ))
            .await;
        self.beside
            .tamper(&format!(
                "UPDATE destination SET since = since - {micros}, not_before = not_before - {micros},
                    delivered_at = delivered_at - {micros} WHERE name LIKE 'd{seed}x%'"
            ))
            .await;
    }

    pub(super) fn job_list(&self) -> String {
        self.jobs.iter().map(|job| job.row.id.0.to_string()).collect::<Vec<_>>().join(",")
    }

    /// Reads the store; of the events that were known those alone may have another state that `may` names.
    pub(super) async fn look(&mut self, may: impl Fn(i64, &str) -> bool) -> Result<(), Wrong> {
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
    pub(super) async fn commit(&mut self, calm: bool) -> Result<(), Wrong> {
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

    /// What was delivered was acted on. All that is settled otherwise was allowed when it was.
    pub(super) fn check_the_end(&mut self) -> Result<(), Wrong> {
        // The newest of a lane is the latest change, and the last that it was sent again.
        let mut change = BTreeMap::new();
        let mut newest = BTreeMap::new();
        for (position, row) in &self.table.0 {
            if row.state == "delivered" && !self.executed.contains_key(position) {
                return Err(format!("{position} is delivered, and was never acted on"));
            }
            self.counted.superseded += u64::from(row.state == "superseded");
            let place = (*change.entry(&row.id).or_insert(position), position, &row.state);
            newest.entry(row.lane()).and_modify(|known| *known = place.max(*known)).or_insert(place);
        }
        match newest.values().find(|(.., state)| *state == "superseded") {
            Some((_, position, _)) => Err(format!("{position} is superseded by nothing")),
            None => Ok(()),
        }
    }
}
