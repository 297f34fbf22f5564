//! The machine's clock as the program uses it; tests bring their own.

use std::time::Duration;

use crate::domain::{
    clock::{Clock, Wait, machine_time},
    instant::Instant,
};

/// The machine's time of day, and real waits.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        machine_time()
    }

    fn sleep(&self, duration: Duration) -> Wait<'_> {
        Box::pin(tokio::time::sleep(duration))
    }
}
