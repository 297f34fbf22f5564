//! Time that never goes back, made from a clock that may be set: what has passed is added up, and a clock
//! that is set back by an hour adds nothing instead of shutting every gate for an hour.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::domain::{clock::Clock, instant::Instant};

/// The time that has passed on a [`Clock`], for governor, gates and paces.
#[derive(Clone, Debug)]
pub(crate) struct Steady {
    clock: Arc<dyn Clock>,
    read: Arc<Mutex<Reading>>,
}

#[derive(Debug)]
struct Reading {
    last: Instant,
    elapsed: Duration,
}

impl Steady {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let reading = Reading { last: clock.now(), elapsed: Duration::ZERO };
        Self { clock, read: Arc::new(Mutex::new(reading)) }
    }

    /// What has passed since this clock was made.
    pub(crate) fn elapsed(&self) -> Duration {
        let mut reading = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        reading.elapsed = reading.elapsed.saturating_add(now.since(reading.last));
        reading.last = now;
        reading.elapsed
    }
}

impl governor::clock::Clock for Steady {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.elapsed()
    }
}
