//! The buckets. A request waits for the gate of its account first and for its pace second; jitter goes
//! upwards only, so that nobody asks before the source wants to be asked.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use governor::{
    Quota, RateLimiter,
    middleware::NoOpMiddleware,
    state::{InMemoryState, NotKeyed},
};

use super::steady::Steady;
use crate::{
    config::account::{Account, RateLimit},
    domain::{backoff::jittered, clock::Clock, instant::Instant},
};

/// The longest wait that a run sits out; for a longer one it gives its worker back.
pub const LONGEST_WAIT: Duration = Duration::from_secs(15 * 60);

/// The account may not ask for longer than a run may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the account may not ask again before {until}")]
pub struct Held {
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
    /// Whoever waits for the pace waits in line, so that nobody starves.
    line: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Pace {
    period: Duration,
    limiter: RateLimiter<NotKeyed, InMemoryState, Steady, NoOpMiddleware<Duration>>,
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

    /// Waits until the account may send one request. Fails, without waiting, where that is further away
    /// than [`LONGEST_WAIT`]. A caller that is dropped while it waits takes nothing.
    pub async fn admit(&self, account: &Account) -> Result<(), Held> {
        let bucket = self.bucket(&account.bucket);
        loop {
            self.pass_gate(&bucket).await?;
            let Some(pace) = account.rate_limit.and_then(|limit| bucket.pace(limit, &self.time)) else {
                return Ok(());
            };
            let _place = bucket.line.lock().await;
            // The gate may have shut while this request stood in line.
            while bucket.shut_for(&self.time).is_zero() {
                let Err(early) = pace.limiter.check() else { return Ok(()) };
                let wait = whole_micros(early.wait_time_from(self.time.elapsed()));
                self.refuse_beyond_cap(wait)?;
                self.clock.sleep(wait).await;
            }
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

    async fn pass_gate(&self, bucket: &Bucket) -> Result<(), Held> {
        loop {
            let wait = bucket.shut_for(&self.time);
            if wait.is_zero() {
                return Ok(());
            }
            self.refuse_beyond_cap(wait)?;
            // Each waiter has a jitter of its own: they must not all come back in the same instant.
            self.clock.sleep(whole_micros(jittered(wait, self.random()))).await;
        }
    }

    fn refuse_beyond_cap(&self, wait: Duration) -> Result<(), Held> {
        if wait > LONGEST_WAIT { Err(Held { until: self.clock.now().plus(wait) }) } else { Ok(()) }
    }

    fn bucket(&self, name: &str) -> Arc<Bucket> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        match buckets.get(name) {
            Some(bucket) => Arc::clone(bucket),
            None => Arc::clone(buckets.entry(name.to_owned()).or_default()),
        }
    }
}

impl Bucket {
    fn shut_for(&self, time: &Steady) -> Duration {
        let opens = *self.opens.lock().unwrap_or_else(PoisonError::into_inner);
        opens.saturating_sub(time.elapsed())
    }

    /// The bucket's pace. Where two inline accounts share a bucket, the slower limit holds for both.
    fn pace(&self, limit: RateLimit, time: &Steady) -> Option<Arc<Pace>> {
        let period = period_of(limit);
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        if pace.as_ref().is_none_or(|pace| pace.period < period) {
            // One cell a period (G1): a burst of the whole quota would admit it twice in one period.
            let quota = Quota::with_period(period)?;
            let limiter = RateLimiter::direct_with_clock(quota, time.clone());
            *pace = Some(Arc::new(Pace { period, limiter }));
        }
        pace.clone()
    }
}

/// The time between two requests, rounded up, so that rounding never lets one more in.
fn period_of(limit: RateLimit) -> Duration {
    let nanos = limit.per.as_nanos().div_ceil(u128::from(limit.requests.get()));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Clocks count in microseconds: a shorter wait would end before its time.
fn whole_micros(wait: Duration) -> Duration {
    Duration::from_micros(u64::try_from(wait.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::{config::account::Auth, domain::clock::Wait};

    /// A clock that jumps instead of waiting and keeps its waits.
    #[derive(Debug)]
    struct Jumping {
        now: Mutex<Instant>,
        waits: Mutex<Vec<Duration>>,
    }

    impl Jumping {
        fn start() -> Arc<Self> {
            Arc::new(Self { now: Mutex::new(Instant::from_seconds(1_000)), waits: Mutex::default() })
        }

        fn set(&self, now: Instant) {
            *self.now.lock().unwrap() = now;
        }

        fn waits(&self) -> Vec<Duration> {
            std::mem::take(&mut *self.waits.lock().unwrap())
        }
    }

    impl Clock for Jumping {
        fn now(&self) -> Instant {
            *self.now.lock().unwrap()
        }

        fn sleep(&self, duration: Duration) -> Wait<'_> {
            self.waits.lock().unwrap().push(duration);
            let mut now = self.now.lock().unwrap();
            *now = now.plus(duration);
            Box::pin(std::future::ready(()))
        }
    }

    fn account(bucket: &str, requests: u32, per: Duration) -> Account {
        let limit = NonZeroU32::new(requests).map(|requests| RateLimit { requests, per });
        Account { bucket: bucket.into(), connector: "c".into(), auth: Auth::None, rate_limit: limit }
    }

    fn limits(clock: &Arc<Jumping>) -> Limits {
        let clock: Arc<dyn Clock> = clock.clone();
        Limits::new(clock).with_random(|| 0.0)
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn no_period_admits_more_than_its_quota() {
        for (requests, per) in [(60, 60 * SECOND), (3, SECOND), (7, SECOND), (1, 10 * SECOND)] {
            let clock = Jumping::start();
            let limits = limits(&clock);
            let account = account("a", requests, per);
            let mut admitted = Vec::new();
            for _ in 0..requests * 3 {
                limits.admit(&account).await.unwrap();
                admitted.push(clock.now());
            }
            for first in &admitted {
                let within = admitted.iter().filter(|at| *at >= first && **at < first.plus(per)).count();
                assert!(within <= requests as usize, "{within} in {per:?} for a quota of {requests}");
            }
        }
    }

    #[tokio::test]
    async fn a_bucket_is_shared_by_name_and_the_slower_limit_holds() {
        let clock = Jumping::start();
        let limits = limits(&clock);
        limits.admit(&account("a", 10, SECOND)).await.unwrap();
        limits.admit(&account("b", 10, SECOND)).await.unwrap();
        assert!(clock.waits().is_empty());
        limits.admit(&account("a", 10, SECOND)).await.unwrap();
        assert_eq!(clock.waits(), [SECOND / 10]);
        limits.admit(&account("a", 1, SECOND)).await.unwrap();
        limits.admit(&account("a", 10, SECOND)).await.unwrap();
        assert_eq!(clock.waits(), [SECOND]);
    }

    #[tokio::test]
    async fn a_shut_gate_holds_all_jobs_of_the_account_and_no_other() {
        let clock = Jumping::start();
        let limits = limits(&clock);
        limits.hold("a", clock.now().plus(120 * SECOND));
        limits.hold("a", clock.now().plus(20 * SECOND));
        limits.admit(&account("b", 0, SECOND)).await.unwrap();
        assert!(clock.waits().is_empty());
        limits.admit(&account("a", 0, SECOND)).await.unwrap();
        assert_eq!(clock.waits(), [120 * SECOND]);
    }

    #[tokio::test]
    async fn jitter_only_makes_waits_longer() {
        let clock = Jumping::start();
        let limits = limits(&clock).with_random(|| 0.999);
        limits.hold("a", clock.now().plus(100 * SECOND));
        limits.admit(&account("a", 0, SECOND)).await.unwrap();
        let waits = clock.waits();
        assert!(waits.len() == 1 && waits[0] > 120 * SECOND && waits[0] < 125 * SECOND, "{waits:?}");
    }

    #[tokio::test]
    async fn nobody_waits_for_longer_than_the_cap() {
        let clock = Jumping::start();
        let limits = limits(&clock);
        let until = clock.now().plus(86_400 * SECOND);
        limits.hold("a", until);
        assert_eq!(limits.admit(&account("a", 0, SECOND)).await, Err(Held { until }));
        let daily = account("b", 1, 86_400 * SECOND);
        limits.admit(&daily).await.unwrap();
        assert_eq!(limits.admit(&daily).await, Err(Held { until }));
        assert!(clock.waits().is_empty());
    }

    #[tokio::test]
    async fn a_clock_that_is_set_back_does_not_shut_the_gate_for_longer() {
        let clock = Jumping::start();
        let limits = limits(&clock);
        let account = account("a", 1, 10 * SECOND);
        limits.admit(&account).await.unwrap();
        limits.hold("a", clock.now().plus(30 * SECOND));
        clock.set(Instant::from_seconds(10));
        limits.admit(&account).await.unwrap();
        assert_eq!(clock.waits(), [30 * SECOND]);
    }
}
