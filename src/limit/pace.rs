//! The pace of one bucket or one destination: one request a period, evenly.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use governor::{
    Quota, RateLimiter,
    middleware::NoOpMiddleware,
    state::{InMemoryState, NotKeyed},
};

use super::steady::Steady;
use crate::domain::{clock::Clock, rate::Rate};

/// Governor keeps the pace, but cannot be asked without taking; whoever waits for several things at once has to know
/// first, so that it is remembered here when the next cell is free.
#[derive(Debug)]
pub struct Pace {
    time: Steady,
    period: Duration,
    limiter: RateLimiter<NotKeyed, InMemoryState, Steady, NoOpMiddleware<Duration>>,
    free_at: Mutex<Duration>,
}

impl Pace {
    /// A pace that has a rest behind it; `None` where the rate is none.
    pub fn new(rate: Rate, clock: Arc<dyn Clock>) -> Option<Self> {
        Self::on(rate, &Steady::new(clock))
    }

    /// The same in the time of others.
    pub(super) fn on(rate: Rate, time: &Steady) -> Option<Self> {
        // One cell a period (G1): a burst of the whole quota would admit it twice in one period.
        let period = rate.period();
        let limiter = RateLimiter::direct_with_clock(Quota::with_period(period)?, time.clone());
        Some(Self { time: time.clone(), period, limiter, free_at: Mutex::default() })
    }

    /// The same that keeps those waiting who wait for `before`.
    #[must_use]
    pub(super) fn after(self, before: Option<&Self>) -> Self {
        Self { free_at: Mutex::new(before.map(Self::free_at).unwrap_or_default()), ..self }
    }

    pub(super) const fn period(&self) -> Duration {
        self.period
    }

    fn free_at(&self) -> Duration {
        *self.free_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long there is no cell.
    pub fn wait(&self) -> Duration {
        self.free_at().saturating_sub(self.time.elapsed())
    }

    /// Takes the cell; `false` where it is not free.
    pub fn take(&self) -> bool {
        let taken = self.limiter.check();
        let now = self.time.elapsed();
        let free_at = match &taken {
            Ok(()) => now.saturating_add(self.period),
            Err(early) => now.saturating_add(early.wait_time_from(now)),
        };
        *self.free_at.lock().unwrap_or_else(PoisonError::into_inner) = free_at;
        taken.is_ok()
    }
}
