//! Delivers the events of one destination: for ever beside the scheduler, or until nothing is due.
//!
//! Why no event is sent twice at once: a claim is a compare-and-set in the store that gives one holder a
//! fence and a lease of four timeouts, a send begins only while one timeout of it is left and ends within that, and a
//! settlement under an older fence is refused. What a crash leaves behind becomes claimable when its lease runs out.

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
    store::{Attempt, ClaimedEvent, JobId, Settled, Store, StoreError},
};

/// How often an idle dispatcher looks for events that other processes stored.
const IDLE_LOOK: Duration = Duration::from_secs(1);
/// How soon it looks again at most: what is due may be held back until another process's delivery has ended.
const SHORTEST_LOOK: Duration = Duration::from_millis(100);
/// How long it waits after the store failed.
const STORE_PAUSE: Duration = Duration::from_secs(2);
/// How long after a failure an answer is stored again, at first.
const SETTLE_PAUSE: Duration = Duration::from_millis(100);
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
    /// `None` where the claim ran out before it was sent or settled.
    next: Option<Next>,
    /// The receiver asks to be left alone.
    is_busy: bool,
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
        while !stop.is_cancelled() {
            fresh.mark_unchanged();
            let wait = match self.fill(&mut sending).await {
                Ok(wait) => wait,
                Err(error) => {
                    tracing::error!(destination = %self.destination.name, %error, "the store failed; deliveries wait");
                    STORE_PAUSE
                }
            };
            tokio::select! {
                Some(outcome) = sending.join_next() => self.tell(&outcome),
                Ok(()) = fresh.changed() => {}
                () = self.clock.sleep(wait) => {}
                () = stop.cancelled() => {}
            }
        }
        while sending.join_next().await.is_some() {}
    }

    /// Delivers until nothing is due, until the destination is plainly not answering, or until `stop`.
    /// What is under way is brought to its end even where the store fails; that is then the error.
    pub async fn drain(&self, stop: &CancellationToken) -> Result<Drained, StoreError> {
        let mut drained = Drained::default();
        let mut failed = None;
        let mut in_a_row = 0;
        let mut is_busy = false;
        let mut sending = JoinSet::new();
        loop {
            let hopeless = in_a_row >= HOPELESS.saturating_mul(self.destination.concurrency);
            if !(hopeless || is_busy || failed.is_some() || stop.is_cancelled()) {
                failed = self.fill(&mut sending).await.err();
            }
            let Some(outcome) = sending.join_next().await else { break };
            match outcome.map_err(|_| StoreError::Database(sqlx::Error::WorkerCrashed)).flatten() {
                Ok(Outcome { job, next: Some(Next::Delivered), .. }) => {
                    *drained.delivered.entry(job).or_default() += 1;
                    in_a_row = 0;
                }
                Ok(outcome) => {
                    drained.failed += 1;
                    drained.last_error = outcome.error;
                    in_a_row += 1;
                    is_busy |= outcome.is_busy;
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(drained), Err)
    }

    /// Starts as many sends as there is room for. Returns how long nothing more can be due.
    async fn fill(&self, sending: &mut JoinSet<Result<Outcome, StoreError>>) -> Result<Duration, StoreError> {
        let busy = u32::try_from(sending.len()).unwrap_or(u32::MAX);
        let Some(room) = self.destination.concurrency.checked_sub(busy).and_then(NonZeroU32::new) else {
            return Ok(IDLE_LOOK);
        };
        let lease = lease(&self.destination);
        let claimed_at = self.clock.now();
        let claims = self.store.claim_events(&self.destination.name, room.get(), lease).await?;
        let full = claims.len() == usize::try_from(room.get()).unwrap_or(usize::MAX);
        let none = claims.is_empty();
        for claim in claims {
            sending.spawn(deliver(
                Arc::clone(&self.store),
                Arc::clone(&self.clock),
                Arc::clone(&self.destination),
                Arc::clone(&self.sender),
                claim,
                claimed_at,
            ));
        }
        // Where nothing is to be had, the end of what is under way is what changes that.
        if full || (none && !sending.is_empty()) {
            return Ok(IDLE_LOOK);
        }
        let wait = self.store.next_due(&self.destination.name).await?.unwrap_or(IDLE_LOOK);
        Ok(wait.clamp(SHORTEST_LOOK, IDLE_LOOK))
    }

    fn tell(&self, outcome: &Result<Result<Outcome, StoreError>, tokio::task::JoinError>) {
        match outcome {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::error!(destination = %self.destination.name, %error, "an answer could not be stored; its event will be sent again");
            }
            Err(error) => {
                tracing::error!(destination = %self.destination.name, %error, "a delivery ended unexpectedly");
            }
        }
    }
}

/// Sends one event, claimed no earlier than `claimed_at`, and settles it.
async fn deliver(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    destination: Arc<Destination>,
    sender: Arc<Sender>,
    claim: ClaimedEvent,
    claimed_at: Instant,
) -> Result<Outcome, StoreError> {
    let sent_at = clock.now();
    if sent_at.since(claimed_at) > lease(&destination).saturating_sub(destination.timeout) {
        // This process stood still: another may be sending the event before this send would end.
        tracing::warn!(destination = %destination.name, event = %claim.event_id, "claimed too long ago to be sent; it is claimed anew");
        let error = Some("claimed too long ago to be sent".to_owned());
        return Ok(Outcome { job: claim.job, next: None, is_busy: false, error });
    }
    let Sent { answer, error, body } = sender.send(&destination, &claim, &*clock).await;
    let took = clock.now().since(sent_at);
    let verdict = delivery::judge(answer);
    let is_busy = matches!(verdict, Verdict::Wait(_));
    let status = match answer {
        Answer::Status { code, .. } => Some(code),
        Answer::Unreached | Answer::Untrusted | Answer::Lost => None,
    };
    let attempt = Attempt {
        status,
        error,
        answer: body,
        sent_at,
        took,
        verdict,
        delays: destination.delays.as_slice().into(),
        random: fastrand::f64(),
    };
    let settled = settle(&*store, &*clock, &destination, &claim, &attempt).await?;
    let (name, event) = (&destination.name, &claim.event_id);
    let error = attempt.error.as_deref().unwrap_or_default();
    let Some(settled) = settled else {
        tracing::warn!(destination = %name, %event, "another process took this event over before its answer was stored");
        return Ok(Outcome { job: claim.job, next: None, is_busy, error: attempt.error });
    };
    match settled.next {
        Next::Delivered => tracing::debug!(destination = %name, %event, ?took, "delivered"),
        Next::Again { after, .. } => tracing::warn!(
            destination = %name, %event, attempt = claim.tried.tries + 1, error, again_in = ?after,
            "not delivered, tried again later"
        ),
        Next::Dead => {
            tracing::error!(destination = %name, %event, error, "a dead letter: other events are taken, this one is not");
        }
    }
    if settled.has_shut() {
        tracing::error!(
            destination = %name, condition = settled.after.name(), error,
            "the destination takes no events: they wait, and one at a time tries whether it does again"
        );
    }
    if settled.has_opened() {
        tracing::info!(destination = %name, "the destination takes events again");
    }
    Ok(Outcome { job: claim.job, next: Some(settled.next), is_busy, error: attempt.error })
}

/// Stores an answer, again and again for as long as the claim is ours: an answer that is not stored is an
/// event that is sent twice. It is a compare-and-set, so that once more does no harm.
async fn settle(
    store: &dyn Store,
    clock: &dyn Clock,
    destination: &Destination,
    claim: &ClaimedEvent,
    attempt: &Attempt,
) -> Result<Option<Settled>, StoreError> {
    let until = attempt.sent_at.plus(lease(destination));
    let mut pause = SETTLE_PAUSE;
    loop {
        match store.settle_event(claim, attempt).await {
            Err(error) if clock.now().plus(pause) < until => {
                tracing::warn!(destination = %destination.name, event = %claim.event_id, %error, "the answer could not be stored; trying again");
                clock.sleep(pause).await;
                pause *= 2;
            }
            settled => return settled,
        }
    }
}

/// How long a claim lasts: four times as long as a send may take.
fn lease(destination: &Destination) -> Duration {
    destination.timeout.saturating_mul(4)
}
