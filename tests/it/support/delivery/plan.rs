//! What a history is like.

use std::{num::NonZeroU32, time::Duration};

use fastrand::Rng;
use onlynew::{
    domain::{
        batch::BatchRules,
        lane::{OnDead, Order},
    },
    store::ClaimRules,
};

/// The longest that a sender waits for an answer.
pub const TIMEOUT: i64 = 10;
/// How long a claim lasts.
pub const LEASE: i64 = 4 * TIMEOUT;

/// The poisons of events and the texts of their records.
pub const POISONS: [&str; 3] = ["p400", "p413", "p500"];

#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub keys: usize,
    pub jobs: usize,
    pub destinations: Vec<String>,
    /// The rules of each dispatcher: where they differ, files were read at different times.
    pub batches: [Option<BatchRules>; 3],
    pub order: Order,
    pub on_dead: OnDead,
    pub coalesces: bool,
    pub delays: Vec<Duration>,
    /// How likely an event is poison.
    pub poison: f64,
    /// The receiver takes no more events in one request.
    pub most: usize,
    /// How likely it acts on the events before one that it refuses.
    pub partial: f64,
    /// How likely one answer of a receiver that is well goes wrong.
    pub flaky: f64,
    /// How likely the receiver gets into another mood, a person acts, or a dispatcher dies, in one step.
    pub moody: f64,
    pub wishful: f64,
    pub deadly: f64,
    pub steps: usize,
}

impl Plan {
    pub fn of(seed: u64, rng: &mut Rng) -> Self {
        let batch = |rng: &mut Rng| {
            chance(rng, 0.75).then(|| BatchRules {
                max_events: NonZeroU32::new(rng.u32(2..=5)).unwrap(),
                max_bytes: if chance(rng, 0.2) { rng.u64(600..1_500) } else { 1 << 20 },
                linger: if chance(rng, 0.2) { Duration::from_secs(5) } else { Duration::ZERO },
            })
        };
        let one = batch(rng);
        let batches = if chance(rng, 0.15) { [one, batch(rng), batch(rng)] } else { [one; 3] };
        let destinations = if chance(rng, 0.3) { 2 } else { 1 };
        Self {
            seed,
            keys: rng.usize(3..=6),
            jobs: rng.usize(1..=2),
            destinations: (0..destinations).map(|number| format!("d{seed}x{number}")).collect(),
            batches,
            order: if chance(rng, 0.2) { Order::None } else { Order::Key },
            on_dead: if chance(rng, 0.4) { OnDead::Hold } else { OnDead::Skip },
            coalesces: chance(rng, 0.3),
            delays: (0..rng.usize(2..=5)).map(|_| Duration::from_secs(rng.u64(0..90))).collect(),
            poison: [0.0, 0.05, 0.15][rng.usize(..3)],
            most: if chance(rng, 0.3) { rng.usize(1..=3) } else { 99 },
            partial: [0.0, 0.5, 1.0][rng.usize(..3)],
            flaky: [0.0, 0.15, 0.3][rng.usize(..3)],
            moody: [0.0, 0.03, 0.06][rng.usize(..3)],
            wishful: [0.0, 0.03, 0.08][rng.usize(..3)],
            deadly: [0.0, 0.02, 0.05][rng.usize(..3)],
            steps: rng.usize(60..180),
        }
    }

    /// What a dispatcher may claim.
    pub fn rules(&self, dispatcher: usize, messages: u32) -> ClaimRules {
        let ttl = Duration::from_secs(LEASE.unsigned_abs());
        ClaimRules { messages, ttl, batch: self.batches[dispatcher], coalesces: self.coalesces }
    }

    /// The most events that any dispatcher puts in one message.
    pub fn most_events(&self) -> usize {
        let most = self.batches.iter().flatten().map(|batch| batch.max_events.get()).max();
        most.map_or(1, |most| usize::try_from(most).unwrap())
    }
}

pub fn chance(rng: &mut Rng, probability: f64) -> bool {
    rng.f64() < probability
}
