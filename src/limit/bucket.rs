//! The buckets. Whoever asks stands in line, waits for the gate of its bucket first and for its pace
//! second, and is let through together with every other bucket that the request counts in. Jitter goes
//! upwards only, so that nobody asks before the source wants to be asked.
//!
//! Live requests go before those of replays. Why that holds: a live one counts as waiting in a bucket from before it
//! stands in line there until it is let through, and a replay is let through only in an instant in which it holds the
//! lines of all its buckets and nobody live counts in any. It holds them for that instant alone and sleeps beside the
//! line, so that a live one never waits for a replay's wait, but at most for the cell that one has just taken. A live
//! one that still waits for a bucket in front counts in none behind, so that a stream which is slow by itself keeps no
//! replay from the account's free cells. Replays stand in a line of their own, of which the first one tries
//! whenever a cell is free and whenever the last live one has gone: a cell that nobody live waits for is a
//! replay's. Nobody live waits for that line, and a replay waits for no live line, so that no two wait for each
//! other; and a cell is taken last, without a wait behind it, so that whoever is dropped before has taken nothing.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::{MutexGuard, watch};

use super::{pace::Pace, steady::Steady};
use crate::{
    config::account::{Account, RateLimit},
    domain::{backoff::jittered, clock::Clock, instant::Instant, rate::Rate},
};

/// The longest wait that a run sits out; for a longer one it gives its worker back.
pub const LONGEST_WAIT: Duration = Duration::from_mins(15);

/// What lies between two requests that were held by the same gate, jitter aside: a source that has just
/// recovered is not asked by everybody at once.
const APART: Duration = Duration::from_millis(100);

/// Whose request it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precedence {
    /// That of a live run, which goes first.
    #[default]
    Live,
    /// That of a replay or a sweep, which takes what live runs leave.
    Replay,
}

/// A bucket that a request counts in.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Its name.
    pub bucket: &'a str,
    /// Its quota.
    pub limit: Option<&'a RateLimit>,
}

impl<'a> From<&'a Account> for Ask<'a> {
    fn from(account: &'a Account) -> Self {
        Self { bucket: &account.bucket, limit: account.rate_limit.as_ref() }
    }
}

/// A bucket may not be asked for longer than a run may wait.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{bucket}` may not ask again before {until}")]
pub struct Held {
    /// The bucket's name.
    pub bucket: String,
    /// When it may.
    pub until: Instant,
}

/// The buckets of all accounts; one such value a process.
#[derive(Debug)]
pub struct Limits {
    clock: Arc<dyn Clock>,
    time: Steady,
    random: fn() -> f64,
    buckets: Mutex<HashMap<String, Arc<Bucket>>>,
}

#[derive(Debug, Default)]
struct Bucket {
    /// When the gate opens, in the time of [`Steady`].
    opens: Mutex<Duration>,
    pace: Mutex<Option<Arc<Pace>>>,
    /// Whoever waits, waits in line, so that nobody starves and nobody is woken in vain.
    line: tokio::sync::Mutex<()>,
    /// How many live requests stand in line.
    live: watch::Sender<u32>,
    /// The line of the replays, of whom the first one stands beside the other line.
    replays: tokio::sync::Mutex<()>,
}

/// A live request's place in the line of one bucket.
struct Place<'a> {
    _line: MutexGuard<'a, ()>,
    _counted: Counted<'a>,
}

/// A live request that counts in a bucket for as long as this lives.
struct Counted<'a>(&'a Bucket);

impl<'a> Counted<'a> {
    fn new(bucket: &'a Bucket) -> Self {
        bucket.live.send_modify(|live| *live += 1);
        Self(bucket)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.live.send_modify(|live| *live -= 1);
    }
}

/// One bucket of a request that is to be admitted.
struct Turn<'a> {
    name: &'a str,
    bucket: Arc<Bucket>,
    pace: Option<Arc<Pace>>,
}

impl Limits {
    /// Buckets that wait on `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let time = Steady::new(Arc::clone(&clock));
        Self { clock, time, random: fastrand::f64, buckets: Mutex::default() }
    }

    /// The same with another source of jitter: numbers in [0, 1).
    #[must_use]
    pub fn with_random(mut self, random: fn() -> f64) -> Self {
        self.random = random;
        self
    }

    /// A number in [0, 1) for jitter.
    pub fn random(&self) -> f64 {
        (self.random)()
    }

    /// Waits until one request may be sent that counts in all these buckets. Buckets that few share stand
    /// before those that many share, in every call in the same order. Fails, without waiting, where one of
    /// them keeps it for longer than [`LONGEST_WAIT`]; a replay waits for live requests for as long as it takes. A caller
    /// that is dropped while it waits takes nothing.
    pub async fn admit(&self, precedence: Precedence, asks: &[Ask<'_>]) -> Result<(), Held> {
        let turns: Vec<Turn<'_>> = asks
            .iter()
            .map(|ask| {
                let bucket = self.bucket(ask.bucket);
                let pace = ask.limit.and_then(|limit| bucket.pace(limit, &self.time));
                Turn { name: ask.bucket, bucket, pace }
            })
            .collect();
        match precedence {
            Precedence::Live => self.admit_live(&turns).await,
            Precedence::Replay => self.admit_replay(&turns).await,
        }
    }

    async fn admit_live(&self, turns: &[Turn<'_>]) -> Result<(), Held> {
        loop {
            let mut places = Vec::with_capacity(turns.len());
            for turn in turns {
                places.push(self.reach(turn).await?);
            }
            // The places in line keep everybody else from taking in between.
            if self.take(turns) {
                return Ok(());
            }
        }
    }

    async fn admit_replay(&self, turns: &[Turn<'_>]) -> Result<(), Held> {
        loop {
            let mut places = Vec::with_capacity(turns.len());
            for turn in turns {
                places.push(self.reach_beside(turn).await?);
            }
            let lines: Result<Vec<_>, _> = turns.iter().map(|turn| turn.bucket.line.try_lock()).collect();
            // A line that somebody has is a live one's, who counts until it has left it.
            if lines.is_ok() && turns.iter().all(|turn| !turn.bucket.has_live()) && self.take(turns) {
                return Ok(());
            }
        }
    }

    /// Takes a cell of each, where all gates and paces are open: one may have shut while the last one was waited for.
    fn take(&self, turns: &[Turn<'_>]) -> bool {
        turns.iter().all(|turn| turn.opens_in(&self.time).is_zero()) && turns.iter().all(Turn::take)
    }

    /// Waits in the line of one bucket until it is open. The place in line goes with the answer.
    async fn reach<'t>(&self, turn: &'t Turn<'_>) -> Result<Place<'t>, Held> {
        let was_shut = !turn.bucket.shut_for(&self.time).is_zero();
        let counted = Counted::new(&turn.bucket);
        let (line, follows) = match turn.bucket.line.try_lock() {
            Ok(line) => (line, false),
            Err(_) => (turn.bucket.line.lock().await, was_shut),
        };
        self.wait_for(turn, follows).await?;
        Ok(Place { _line: line, _counted: counted })
    }

    /// Waits first among the replays of one bucket until it is open and nobody live stands in line.
    async fn reach_beside<'t>(&self, turn: &'t Turn<'_>) -> Result<MutexGuard<'t, ()>, Held> {
        let was_shut = !turn.bucket.shut_for(&self.time).is_zero();
        let (place, follows) = match turn.bucket.replays.try_lock() {
            Ok(place) => (place, false),
            Err(_) => (turn.bucket.replays.lock().await, was_shut),
        };
        turn.bucket.without_live().await;
        self.wait_for(turn, follows).await?;
        Ok(place)
    }

    /// Waits until a bucket is open, and a little longer behind others that were held by its gate.
    async fn wait_for(&self, turn: &Turn<'_>, mut follows: bool) -> Result<(), Held> {
        loop {
            let shut = turn.bucket.shut_for(&self.time);
            let needed = turn.opens_in(&self.time);
            if needed > LONGEST_WAIT {
                return Err(Held { bucket: turn.name.to_owned(), until: self.clock.now().plus(needed) });
            }
            let wait = if !shut.is_zero() {
                jittered(shut, self.random()).max(needed)
            } else if follows {
                jittered(APART, self.random()).max(needed)
            } else {
                needed
            };
            if wait.is_zero() {
                return Ok(());
            }
            follows = false;
            self.clock.sleep(whole_micros(wait)).await;
        }
    }

    /// Shuts the gate of a bucket until `until`; a later instant that is set already stays.
    pub fn hold(&self, bucket: &str, until: Instant) {
        let wait = until.since(self.clock.now());
        let opens = self.time.elapsed().saturating_add(wait);
        let bucket = self.bucket(bucket);
        let mut gate = bucket.opens.lock().unwrap_or_else(PoisonError::into_inner);
        *gate = opens.max(*gate);
    }

    /// Forgets a bucket that nobody is going to ask any more.
    pub fn forget(&self, name: &str) {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    fn bucket(&self, name: &str) -> Arc<Bucket> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        match buckets.get(name) {
            Some(bucket) => Arc::clone(bucket),
            None => Arc::clone(buckets.entry(name.to_owned()).or_default()),
        }
    }
}

impl Turn<'_> {
    /// How long the gate and the pace keep everybody.
    fn opens_in(&self, time: &Steady) -> Duration {
        let pace = self.pace.as_ref().map_or(Duration::ZERO, |pace| pace.wait());
        self.bucket.shut_for(time).max(pace)
    }

    fn take(&self) -> bool {
        self.pace.as_ref().is_none_or(|pace| pace.take())
    }
}

impl Bucket {
    fn has_live(&self) -> bool {
        *self.live.borrow() > 0
    }

    /// Waits until nobody live stands in line.
    async fn without_live(&self) {
        // The sender lives as long as the bucket.
        let _ = self.live.subscribe().wait_for(|live| *live == 0).await;
    }

    fn shut_for(&self, time: &Steady) -> Duration {
        let opens = *self.opens.lock().unwrap_or_else(PoisonError::into_inner);
        opens.saturating_sub(time.elapsed())
    }

    /// The bucket's pace. Where two inline accounts share a bucket, the slower limit holds for both.
    fn pace(&self, limit: &RateLimit, time: &Steady) -> Option<Arc<Pace>> {
        let rate = Rate { requests: limit.requests, per: limit.per };
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        if pace.as_ref().is_none_or(|pace| pace.period() < rate.period()) {
            let slower = Pace::on(rate, time)?.after(pace.as_deref());
            *pace = Some(Arc::new(slower));
        }
        pace.clone()
    }
}

/// Clocks count in microseconds: a shorter wait would end before its time.
fn whole_micros(wait: Duration) -> Duration {
    Duration::from_micros(u64::try_from(wait.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
