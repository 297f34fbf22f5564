//! Our clock: the world's, more or less wrong. Who waits lets the world's time go by.

use std::{sync::Arc, time::Duration};

use onlynew::domain::{
    clock::{Clock, Wait},
    instant::Instant,
};

use super::lane::Scene;

/// The clock of the machine that polls.
#[derive(Clone, Debug)]
pub struct ModelClock(pub Arc<Scene>);

impl Clock for ModelClock {
    fn now(&self) -> Instant {
        let world = self.0.world();
        Instant::from_micros(world.now + world.plan.skew)
    }

    fn sleep(&self, duration: Duration) -> Wait<'_> {
        self.0.world().pass(i64::try_from(duration.as_micros()).unwrap());
        Box::pin(tokio::task::yield_now())
    }
}
