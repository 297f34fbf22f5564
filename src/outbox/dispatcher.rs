//! Delivers the events of one destination: for ever beside the scheduler, or until nothing is due.
//!
//! Why no event is sent twice at once: a claim is a compare-and-set in the store that gives one holder a
//! fence and a lease of four timeouts, a send begins only while one timeout of it is left and ends within that, and a
//! settlement under an older fence is refused. A claim is one request: the halves of a batch that is split are claimed
//! anew. What a crash leaves behind becomes claimable when its lease runs out.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::sender::{Sender, Sent};
use crate::{
    config::destination::Destination,
    domain::{
        batch::BatchRules,
        clock::Clock,
        delivery::{self, Answer, Next, Verdict},
        instant::Instant,
        lane::OnDead,
    },
    limit::Pace,
    store::{Attempt, ClaimRules, ClaimedMessage, JobId, Settled, Store, StoreError},
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
    /// How often it may be sent something; `None` as often as there is.
    pace: Option<Pace>,
}

/// What a drain did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Events delivered, by job.
    pub delivered: HashMap<JobId, u64>,
    /// Requests that did not deliver.
    pub failed: u64,
    /// Why the last attempt failed, where one did.
    pub last_error: Option<String>,
}

/// How one message came out.
struct Outcome {
    job: JobId,
    /// `None` where the claim ran out before it was sent or settled.
    next: Option<Next>,
    /// How many events it settled.
    events: u64,
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
        let pace = destination.rate_limit.and_then(|rate| Pace::new(rate, Arc::clone(&clock)));
        Ok(Self { store, clock, destination, sender, pace })
    }

    /// Delivers until `stop`, waking at once when `fresh` changes. What is under way is brought to its end.
    pub async fn run(&self, mut fresh: watch::Receiver<u64>, stop: CancellationToken) {
        let mut sending = JoinSet::new();
        while !stop.is_cancelled() {
            fresh.mark_unchanged();
            let wait = match self.fill(&mut sending, self.destination.batch).await {
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
    /// What is under way is brought to its end even where the store fails; that is then the error. No batch
    /// lingers: all that could join it is there.
    pub async fn drain(&self, stop: &CancellationToken) -> Result<Drained, StoreError> {
        let mut drained = Drained::default();
        let mut failed = None;
        let mut in_a_row = 0;
        let mut is_busy = false;
        let mut sending = JoinSet::new();
        let batch = self.destination.batch.map(|batch| BatchRules { linger: Duration::ZERO, ..batch });
        loop {
            let hopeless = in_a_row >= HOPELESS.saturating_mul(self.destination.concurrency);
            if !(hopeless || is_busy || failed.is_some() || stop.is_cancelled()) {
                let filled = self.fill(&mut sending, batch).await;
                if filled.is_ok() && sending.is_empty() && self.is_paced().await? {
                    let wait = self.pace.as_ref().map_or(Duration::ZERO, Pace::wait);
                    let _ = stop.run_until_cancelled(self.clock.sleep(wait)).await;
                    continue;
                }
                failed = filled.err();
            }
            let Some(outcome) = sending.join_next().await else { break };
            match outcome.map_err(|_| StoreError::Database(sqlx::Error::WorkerCrashed)).flatten() {
                Ok(Outcome { job, next: Some(Next::Delivered), events, .. }) => {
                    *drained.delivered.entry(job).or_default() += events;
                    in_a_row = 0;
                }
                Ok(Outcome { next: Some(Next::Split { .. }), .. }) => drained.failed += 1,
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

    /// Whether something is due that only the pace keeps back.
    async fn is_paced(&self) -> Result<bool, StoreError> {
        if self.pace.as_ref().is_none_or(|pace| pace.wait().is_zero()) {
            return Ok(false);
        }
        let due = self.store.next_due(&self.destination.name, Duration::ZERO).await?;
        Ok(due.is_some_and(|due| due.is_zero()))
    }

    /// Starts as many sends as there is room for. Returns how long nothing more can be sent.
    async fn fill(
        &self,
        sending: &mut JoinSet<Result<Outcome, StoreError>>,
        batch: Option<BatchRules>,
    ) -> Result<Duration, StoreError> {
        loop {
            let busy = u32::try_from(sending.len()).unwrap_or(u32::MAX);
            let room = self.destination.concurrency.saturating_sub(busy);
            let wait = self.pace.as_ref().map_or(Duration::ZERO, Pace::wait);
            if room == 0 || !wait.is_zero() {
                return Ok(if room == 0 { IDLE_LOOK } else { wait });
            }
            // Under a pace one at a time, each counted once there is something to send.
            let most = if self.pace.is_some() { 1 } else { room };
            let started = self.start(most, batch, sending).await?;
            if started > 0 && self.pace.as_ref().is_some_and(Pace::take) {
                continue;
            }
            // Where nothing is to be had, the end of what is under way is what changes that, or that one has lingered.
            if started == most || (started == 0 && batch.is_none() && !sending.is_empty()) {
                return Ok(IDLE_LOOK);
            }
            let linger = batch.map_or(Duration::ZERO, |batch| batch.linger);
            let wait = self.store.next_due(&self.destination.name, linger).await?.unwrap_or(IDLE_LOOK);
            return Ok(wait.clamp(SHORTEST_LOOK, IDLE_LOOK));
        }
    }

    /// Starts to send as many messages as are to be had, `most` at most; returns how many.
    async fn start(
        &self,
        most: u32,
        batch: Option<BatchRules>,
        sending: &mut JoinSet<Result<Outcome, StoreError>>,
    ) -> Result<u32, StoreError> {
        let rules = ClaimRules {
            messages: most,
            ttl: lease(&self.destination),
            batch,
            coalesces: self.destination.lanes.coalesces,
        };
        let claimed_at = self.clock.now();
        let claims = self.store.claim_messages(&self.destination.name, &rules).await?;
        let claimed = u32::try_from(claims.len()).unwrap_or(u32::MAX);
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
        Ok(claimed)
    }

    fn tell(&self, outcome: &Result<Result<Outcome, StoreError>, tokio::task::JoinError>) {
        match outcome {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::error!(destination = %self.destination.name, %error, "an answer could not be stored; what it was for will be sent again");
            }
            Err(error) => {
                tracing::error!(destination = %self.destination.name, %error, "a delivery ended unexpectedly");
            }
        }
    }
}

/// Sends one message, claimed no earlier than `claimed_at`, and settles it.
async fn deliver(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    destination: Arc<Destination>,
    sender: Arc<Sender>,
    claim: ClaimedMessage,
    claimed_at: Instant,
) -> Result<Outcome, StoreError> {
    let sent_at = clock.now();
    if sent_at.since(claimed_at) > lease(&destination).saturating_sub(destination.timeout) {
        // This process stood still: another may be sending it before this send would end.
        tracing::warn!(destination = %destination.name, id = %claim.id, "claimed too long ago to be sent; it is claimed anew");
        let error = Some("claimed too long ago to be sent".to_owned());
        return Ok(Outcome { job: claim.job, next: None, events: 0, is_busy: false, error });
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
        on_dead: destination.lanes.on_dead,
        random: fastrand::f64(),
    };
    let settled = settle(&*store, &*clock, &destination, &claim, &attempt).await?;
    let (name, message, events) = (&destination.name, &claim.id, claim.events.len());
    let error = attempt.error.as_deref().unwrap_or_default();
    let Some(settled) = settled else {
        tracing::warn!(destination = %name, id = %message, "another process took this message over before its answer was stored");
        return Ok(Outcome { job: claim.job, next: None, events: 0, is_busy, error: attempt.error });
    };
    match settled.next {
        Next::Delivered => tracing::debug!(destination = %name, id = %message, events, ?took, "delivered"),
        Next::Again { after, .. } => tracing::warn!(
            destination = %name, id = %message, events, attempt = claim.tried.tries + 1, error, again_in = ?after,
            "not delivered, tried again later"
        ),
        Next::Split { .. } => tracing::warn!(
            destination = %name, id = %message, events, error,
            "not delivered, tried again in two halves to find the event that it failed for"
        ),
        Next::Dead if destination.lanes.on_dead == OnDead::Hold => tracing::error!(
            destination = %name, id = %message, error,
            "other events are taken, this one is not: it is held, and later ones of its key wait for a person"
        ),
        Next::Dead => {
            tracing::error!(destination = %name, id = %message, error, "a dead letter: other events are taken, this one is not");
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
    let Settled { next, events, .. } = settled;
    Ok(Outcome { job: claim.job, next: Some(next), events, is_busy, error: attempt.error })
}

/// Stores an answer, again and again for as long as the claim is ours: an answer that is not stored is an
/// event that is sent twice. It is a compare-and-set, so that once more does no harm.
async fn settle(
    store: &dyn Store,
    clock: &dyn Clock,
    destination: &Destination,
    claim: &ClaimedMessage,
    attempt: &Attempt,
) -> Result<Option<Settled>, StoreError> {
    let until = attempt.sent_at.plus(lease(destination));
    let mut pause = SETTLE_PAUSE;
    loop {
        match store.settle_message(claim, attempt).await {
            Err(error) if clock.now().plus(pause) < until => {
                tracing::warn!(destination = %destination.name, id = %claim.id, %error, "the answer could not be stored; trying again");
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
