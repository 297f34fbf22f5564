//! How many requests a destination may be sent now, where its configuration sets a limit.
//!
//! Whoever claims asks first, claims no more than it was granted, and tells how many requests came of it. Between
//! the two the grant is reserved, and what was not used is free again as if it had never been asked for. Governor
//! has no such way back, so that the pace is kept by `domain/rate.rs`.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    domain::{
        clock::Clock,
        rate::{Rate, Spent},
    },
    limit::Steady,
};

/// The pace of one destination, in memory.
#[derive(Debug)]
pub(super) struct Pace {
    /// `None` is no limit.
    limited: Option<Limited>,
}

#[derive(Debug)]
struct Limited {
    time: Steady,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    spent: Spent,
    reserved: u32,
}

/// Requests that may be sent. What is not spent is given back when this is dropped.
#[derive(Debug)]
#[must_use = "a grant that is dropped is given back"]
pub(super) struct Grant<'a> {
    limited: Option<&'a Limited>,
    requests: u32,
}

impl Pace {
    /// A pace that has a rest behind it.
    pub(super) fn new(rate: Option<Rate>, clock: Arc<dyn Clock>) -> Self {
        let limited = rate.map(|rate| Limited {
            time: Steady::new(clock),
            state: Mutex::new(State { spent: Spent::none(rate), reserved: 0 }),
        });
        Self { limited }
    }

    /// As many of `most` requests as may be sent now, which may be none.
    pub(super) fn grant(&self, most: u32) -> Grant<'_> {
        let Some(limited) = &self.limited else { return Grant { limited: None, requests: most } };
        let mut state = limited.state();
        let free = state.spent.left(limited.time.elapsed()).saturating_sub(state.reserved);
        let requests = free.min(most);
        state.reserved += requests;
        Grant { limited: Some(limited), requests }
    }

    /// How long none may be sent; nothing where one may, and where there is no limit.
    pub(super) fn wait(&self) -> Duration {
        self.limited
            .as_ref()
            .map_or(Duration::ZERO, |limited| limited.state().spent.wait(limited.time.elapsed()))
    }
}

impl Limited {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Grant<'_> {
    /// How many.
    pub(super) fn requests(&self) -> u32 {
        self.requests
    }

    /// So many of them are sent now, no more than were granted; the others are given back.
    pub(super) fn spend(self, requests: u32) {
        if let Some(limited) = self.limited {
            let mut state = limited.state();
            state.spent = state.spent.and(requests.min(self.requests), limited.time.elapsed());
        }
    }
}

impl Drop for Grant<'_> {
    fn drop(&mut self) {
        if let Some(limited) = self.limited {
            limited.state().reserved -= self.requests;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::domain::{clock::Wait, instant::Instant};

    /// A clock that stands until it is moved.
    #[derive(Debug)]
    struct Hands(Mutex<Instant>);

    impl Hands {
        fn forward(&self, by: Duration) {
            let mut now = self.0.lock().unwrap();
            *now = now.plus(by);
        }

        fn set(&self, now: Instant) {
            *self.0.lock().unwrap() = now;
        }
    }

    impl Clock for Hands {
        fn now(&self) -> Instant {
            *self.0.lock().unwrap()
        }

        fn sleep(&self, _: Duration) -> Wait<'_> {
            Box::pin(std::future::ready(()))
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    fn pace(requests: u32, per: Duration) -> (Pace, Arc<Hands>) {
        let clock = Arc::new(Hands(Mutex::new(Instant::from_seconds(1_000))));
        let rate = NonZeroU32::new(requests).map(|requests| Rate { requests, per });
        (Pace::new(rate, clock.clone()), clock)
    }

    #[test]
    fn without_a_limit_everything_is_granted() {
        let (pace, _) = pace(0, SECOND);
        for _ in 0..3 {
            let grant = pace.grant(64);
            assert_eq!(grant.requests(), 64);
            grant.spend(64);
            assert_eq!(pace.wait(), Duration::ZERO);
        }
    }

    #[test]
    fn what_is_spent_is_waited_for() {
        let (pace, clock) = pace(20, SECOND);
        let grant = pace.grant(8);
        assert_eq!(grant.requests(), 3);
        grant.spend(3);
        assert_eq!(pace.grant(8).requests(), 0);
        let wait = pace.wait();
        assert_eq!(wait.as_millis(), 55);
        clock.forward(wait);
        assert_eq!((pace.wait(), pace.grant(8).requests()), (Duration::ZERO, 1));
    }

    #[test]
    fn what_is_not_spent_is_free_at_once_and_saved_up_no_further() {
        let (pace, clock) = pace(20, SECOND);
        for _ in 0..100 {
            assert_eq!(pace.grant(8).requests(), 3, "a grant that is dropped costs nothing");
            pace.grant(8).spend(0);
            clock.forward(SECOND);
        }
        pace.grant(8).spend(1);
        assert_eq!(pace.grant(8).requests(), 2);
        let (slow, clock) = self::pace(1, SECOND);
        drop(slow.grant(1));
        clock.forward(SECOND * 9 / 10);
        slow.grant(1).spend(1);
        clock.forward(SECOND / 2);
        assert_eq!(
            slow.grant(1).requests(),
            0,
            "a second counts from what was sent, not from what was granted"
        );
        assert_eq!(slow.wait(), SECOND / 2);
    }

    #[test]
    fn a_grant_that_is_held_is_granted_to_nobody_else() {
        let (pace, clock) = pace(20, SECOND);
        let first = pace.grant(2);
        let second = pace.grant(2);
        assert_eq!((first.requests(), second.requests(), pace.grant(2).requests()), (2, 1, 0));
        drop(second);
        assert_eq!(pace.grant(2).requests(), 1);
        clock.forward(SECOND);
        first.spend(9);
        assert_eq!(pace.grant(8).requests(), 1, "no more is spent than was granted");
    }

    #[test]
    fn a_clock_that_is_set_back_keeps_nobody_waiting() {
        let (pace, clock) = pace(1, SECOND);
        pace.grant(1).spend(1);
        clock.set(Instant::from_seconds(500));
        assert_eq!(pace.wait(), SECOND);
        clock.forward(SECOND);
        assert_eq!(pace.grant(1).requests(), 1);
    }
}
