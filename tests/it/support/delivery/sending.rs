//! Claims, requests that reach the receiver, and settlements: what each of them may be and may change.

use std::{collections::BTreeSet, time::Duration};

use onlynew::{
    domain::{
        batch::batch_id,
        delivery::{Answer, Next, judge},
        instant::Instant,
        lane::OnDead,
    },
    store::{Attempt, ClaimedMessage},
};

use super::{
    Wrong,
    plan::{LEASE, TIMEOUT, chance},
    receiver::{Received, receive},
    world::{Flight, Frozen, World},
};

impl World {
    pub(super) async fn claim(&mut self, messages: u32) -> Result<(), Wrong> {
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

    pub(super) fn check_claim(&mut self, claim: &ClaimedMessage, is_batch: bool) -> Result<(), Wrong> {
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
        self.freeze(&all, Some(&claim.id));
        Ok(())
    }

    pub(super) fn freeze(&mut self, all: &BTreeSet<i64>, id: Option<&str>) {
        for position in all {
            let id = id.map(str::to_owned);
            self.frozen.insert(*position, Frozen { with: all.clone(), id });
        }
    }

    /// A request reaches the receiver.
    pub(super) fn arrive(&mut self, claim: &ClaimedMessage) -> Result<Received, Wrong> {
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
    pub(super) async fn fly(&mut self, at: usize, to_the_end: bool) -> Result<(), Wrong> {
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

    pub(super) async fn settle(&mut self, claim: &ClaimedMessage, received: Received) -> Result<(), Wrong> {
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
            Next::Dead => {
                self.counted.dead += 1;
                // Where a receiver begins to refuse everything, or fails an event again and again while it takes
                // others, nobody can tell that the event is good. Once all is well it does neither.
                let is_doubtful = !received.of_event;
                let is_good = claim.events.iter().any(|event| self.table.0[&event.position].poison.is_none());
                if claim.events.len() > 1 || (is_good && !is_doubtful) {
                    return Err(format!("{} is dead", claim.id));
                }
            }
            Next::Again { ambiguous, .. } if claim.is_repeat || ambiguous => {
                let id = (held.len() == claim.events.len()).then_some(claim.id.as_str());
                self.freeze(&held, id);
            }
            Next::Delivered | Next::Again { .. } => {}
            Next::Split { .. } => {
                self.counted.split += 1;
                let all: Vec<_> = held.iter().copied().collect();
                let (one, other) = all.split_at(all.len().div_ceil(2));
                for half in [one, other] {
                    let id = batch_id(half.iter().map(|position| self.table.0[position].id.as_str()));
                    self.freeze(&half.iter().copied().collect(), Some(&id));
                }
            }
        }
        for position in &turned_over {
            self.leave(*position);
        }
        Ok(())
    }
}
