//! Delivers the events of one destination: for ever beside the scheduler, or until nothing is due.
//!
//! Why no event is sent twice at once: a claim is a compare-and-set in the store that gives one holder a
//! fence and a lease of four timeouts, a send ends within one timeout, and a settlement under an older
//! fence is refused. What a crash leaves behind becomes claimable when its lease runs out.

use std::{collections::HashMap, num::NonZeroU32, sync::Arc, time::Duration};

use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::sender::{Sender, Sent};
use crate::{
    config::destination::Destination,
    domain::{
        clock::Clock,
        delivery::{self, Answer, Next, Verdict},
        instant::Instant,
    },
    store::{Attempt, ClaimedEvent, JobId, Store, StoreError},
};

/// How often an idle dispatcher looks for events that other processes stored.
const IDLE_LOOK: Duration = Duration::from_secs(1);
/// How long it waits after the store failed.
const STORE_PAUSE: Duration = Duration::from_secs(2);
/// A drain gives up after so many failures in a row, times the destination's concurrency.
const HOPELESS: u32 = 3;

/// Delivers the events of one destination.
#[derive(Debug)]
pub struct Dispatcher {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    destination: Arc<Destination>,
    sender: Arc<Sender>,
}

/// What a drain did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Events delivered, by job.
    pub delivered: HashMap<JobId, u64>,
    /// Attempts that did not deliver.
    pub failed: u64,
    /// Why the last attempt failed, where one did.
    pub last_error: Option<String>,
}

/// How one event came out.
struct Outcome {
    job: JobId,
    next: Next,
    verdict: Verdict,
    error: Option<String>,
}

impl Dispatcher {
    /// A dispatcher for one destination. Fails only where no HTTP client can be built.
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        destination: Arc<Destination>,
    ) -> Result<Self, reqwest::Error> {
        let sender = Arc::new(Sender::new(&destination)?);
        Ok(Self { store, clock, destination, sender })
    }

    /// Delivers until `stop`, waking at once when `fresh` changes. What is under way is brought to its end.
    pub async fn run(&self, mut fresh: watch::Receiver<u64>, stop: CancellationToken) {
        let mut sending = JoinSet::new();
        let mut paused_until = Instant::default();
        while !stop.is_cancelled() {
            fresh.mark_unchanged();
            let wait = match self.fill(&mut sending, paused_until).await {
                Ok(wait) => wait,
                Err(error) => {
                    tracing::error!(destination = %self.destination.name, %error, "the store failed; deliveries wait");
                    STORE_PAUSE
                }
            };
            tokio::select! {
                Some(outcome) = sending.join_next() => {
                    if let Some(until) = self.busy_until(&outcome) {
                        paused_until = paused_until.max(until);
                    }
                }
                Ok(()) = fresh.changed() => {}
                () = self.clock.sleep(wait) => {}
                () = stop.cancelled() => {}
            }
        }
        while sending.join_next().await.is_some() {}
    }

    /// Delivers until nothing is due, until the destination is plainly not answering, or until `stop`.
    pub async fn drain(&self, stop: &CancellationToken) -> Result<Drained, StoreError> {
        let mut drained = Drained::default();
        let mut in_a_row = 0;
        let mut sending = JoinSet::new();
        loop {
            let hopeless = in_a_row >= HOPELESS.saturating_mul(self.destination.concurrency);
            if !hopeless && !stop.is_cancelled() {
                self.fill(&mut sending, Instant::default()).await?;
            }
            let Some(outcome) = sending.join_next().await else { return Ok(drained) };
            let Ok(outcome) = outcome else { continue };
            let outcome = outcome?;
            if outcome.next == Next::Delivered {
                *drained.delivered.entry(outcome.job).or_default() += 1;
                in_a_row = 0;
            } else {
                drained.failed += 1;
                drained.last_error = outcome.error;
                in_a_row = if matches!(outcome.verdict, Verdict::Wait(_)) {
                    u32::MAX
                } else {
                    in_a_row.saturating_add(1)
                };
            }
        }
    }

    /// Starts as many sends as there is room for. Returns how long nothing more can be due.
    async fn fill(
        &self,
        sending: &mut JoinSet<Result<Outcome, StoreError>>,
        paused_until: Instant,
    ) -> Result<Duration, StoreError> {
        let now = self.clock.now();
        if now < paused_until {
            return Ok(paused_until.since(now));
        }
        let busy = u32::try_from(sending.len()).unwrap_or(u32::MAX);
        let Some(room) = self.destination.concurrency.checked_sub(busy).and_then(NonZeroU32::new) else {
            return Ok(IDLE_LOOK);
        };
        let lease = self.destination.timeout.saturating_mul(4);
        let claims = self.store.claim_events(&self.destination.name, room.get(), lease).await?;
        let full = claims.len() == usize::try_from(room.get()).unwrap_or(usize::MAX);
        for claim in claims {
            sending.spawn(deliver(
                Arc::clone(&self.store),
                Arc::clone(&self.clock),
                Arc::clone(&self.destination),
                Arc::clone(&self.sender),
                claim,
            ));
        }
        if full {
            return Ok(IDLE_LOOK);
        }
        let due = self.store.next_due(&self.destination.name).await?;
        let wait = due.map_or(IDLE_LOOK, |due| due.since(now));
        Ok(wait.clamp(Duration::from_millis(10), IDLE_LOOK))
    }

    /// Until when a busy receiver asks to be left alone.
    fn busy_until(
        &self,
        outcome: &Result<Result<Outcome, StoreError>, tokio::task::JoinError>,
    ) -> Option<Instant> {
        match outcome {
            Ok(Ok(Outcome { verdict: Verdict::Wait(wait), .. })) => Some(self.clock.now().plus(*wait)),
            Ok(Ok(_)) => None,
            Ok(Err(error)) => {
                tracing::error!(destination = %self.destination.name, %error, "an answer could not be stored; its event will be sent again");
                None
            }
            Err(error) => {
                tracing::error!(destination = %self.destination.name, %error, "a delivery ended unexpectedly");
                None
            }
        }
    }
}

/// Sends one claimed event and settles it.
async fn deliver(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    destination: Arc<Destination>,
    sender: Arc<Sender>,
    claim: ClaimedEvent,
) -> Result<Outcome, StoreError> {
    let sent_at = clock.now();
    let Sent { answer, error, body } = sender.send(&destination, &claim, &*clock).await;
    let took = clock.now().since(sent_at);
    let verdict = delivery::judge(answer);
    let attempts = claim.attempts.saturating_add(1);
    let next = delivery::next(verdict, attempts, &destination.delays, store.now().await?, fastrand::f64());
    let status = match answer {
        Answer::Status { code, .. } => Some(code),
        Answer::Unreached | Answer::Lost => None,
    };
    let attempt = Attempt { status, error: error.clone(), answer: body, sent_at, took, next };
    let settled = store.settle_event(&claim, &attempt).await?;
    match next {
        _ if !settled => tracing::warn!(
            destination = %destination.name, event = %claim.event_id,
            "another process took this event over before its answer was stored"
        ),
        Next::Delivered => {
            tracing::debug!(destination = %destination.name, event = %claim.event_id, ?took, "delivered");
        }
        Next::Again { at, .. } => tracing::warn!(
            destination = %destination.name, event = %claim.event_id, attempt = claim.tries + 1,
            error = error.as_deref().unwrap_or_default(), next = %at, "not delivered, tried again later"
        ),
        Next::Dead => tracing::error!(
            destination = %destination.name, event = %claim.event_id,
            error = error.as_deref().unwrap_or_default(), "a dead letter: refused until the retries were used up"
        ),
    }
    Ok(Outcome { job: claim.job, next, verdict, error })
}
