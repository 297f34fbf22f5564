//! Rates: so many requests in any period, spread over it, with a small part of them at once.

use std::{num::NonZeroU32, time::Duration};

/// Never more than `requests` in any period of `per`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How many.
    pub requests: NonZeroU32,
    /// In how long.
    pub per: Duration,
}

/// What was sent under a rate, by the generic cell rate algorithm. Moments are durations since any fixed one.
///
/// A tenth of the requests may go at once after a rest. They are taken from what is spread over the period, so that
/// a period which begins with a burst holds no more than any other; a burst of all of them would let twice as many
/// through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spent {
    /// How many may go at once.
    burst: u32,
    /// What lies between two requests beyond those.
    apart: Duration,
    /// When everything that was sent will be made up for.
    even_at: Duration,
}

impl Spent {
    /// Nothing, under this rate.
    pub fn none(rate: Rate) -> Self {
        let requests = rate.requests.get();
        let burst = 1 + requests / 10;
        // A period holds the burst and one request for each `apart` that begins in it after the first.
        let spread = u128::from(requests - requests / 10);
        // Whole microseconds, as clocks count, and upwards, so that rounding never lets one more through.
        let micros = rate.per.as_micros().div_ceil(spread);
        let apart = Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX));
        Self { burst, apart, even_at: Duration::ZERO }
    }

    /// How many more may be sent at `now`.
    pub fn left(&self, now: Duration) -> u32 {
        let owed = self.even_at.saturating_sub(now).as_nanos().div_ceil(self.apart.as_nanos().max(1));
        self.burst.saturating_sub(u32::try_from(owed).unwrap_or(u32::MAX))
    }

    /// How long after `now` one more may be sent.
    pub fn wait(&self, now: Duration) -> Duration {
        let may_owe = self.apart.saturating_mul(self.burst - 1);
        self.even_at.saturating_sub(now).saturating_sub(may_owe)
    }

    /// The same after `requests` more were sent at `now`, no more than were [`left`](Self::left).
    #[must_use]
    pub fn and(self, requests: u32, now: Duration) -> Self {
        let even_at = self.even_at.max(now).saturating_add(self.apart.saturating_mul(requests));
        Self { even_at, ..self }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rate(requests: u32, per: Duration) -> Rate {
        Rate { requests: NonZeroU32::new(requests).unwrap(), per }
    }

    const SECOND: Duration = Duration::from_secs(1);

    proptest! {
        #[test]
        fn no_period_holds_more_than_its_requests(
            requests in 1..60_u32,
            per in 1..5_000_000_u64,
            steps in prop::collection::vec((0..3_u8, 0..1_000_u64, 1..12_u32), 1..200),
        ) {
            let per = Duration::from_micros(per);
            let mut spent = Spent::none(rate(requests, per));
            let mut now = Duration::from_micros(7);
            let mut sent: Vec<(Duration, u32)> = Vec::new();
            for (kind, part, most) in steps {
                match kind {
                    0 => now += spent.wait(now),
                    1 => now += Duration::from_micros(u64::try_from(per.as_micros()).unwrap() * part / 1_000),
                    _ => {}
                }
                prop_assert_eq!(spent.wait(now).is_zero(), spent.left(now) > 0);
                let taken = most.min(spent.left(now));
                spent = spent.and(taken, now);
                sent.push((now, taken));
            }
            for (first, _) in &sent {
                let within = sent.iter().filter(|(at, _)| at >= first && *at < *first + per);
                prop_assert!(within.map(|(_, taken)| taken).sum::<u32>() <= requests, "{:?}", sent);
            }
        }
    }

    #[test]
    fn a_tenth_may_go_at_once_and_the_rest_is_spread() {
        // requests, at once, milliseconds apart
        for (requests, burst, apart) in [(1, 1, 1_000), (4, 1, 250), (9, 1, 112), (10, 2, 112), (100, 11, 12)]
        {
            let spent = Spent::none(rate(requests, SECOND));
            assert_eq!(spent.left(Duration::ZERO), burst, "{requests}");
            let spent = spent.and(burst, Duration::ZERO);
            assert_eq!(spent.left(Duration::ZERO), 0, "{requests}");
            let wait = spent.wait(Duration::ZERO);
            assert_eq!(wait.as_micros().div_ceil(1_000), apart, "{requests}");
            assert_eq!((spent.left(wait.mul_f64(0.999)), spent.left(wait)), (0, 1), "{requests}");
            assert_eq!(spent.left(SECOND), burst, "a rest of a period makes up for everything");
        }
    }

    #[test]
    fn a_rest_saves_no_more_than_a_burst() {
        let spent = Spent::none(rate(10, SECOND)).and(2, Duration::ZERO);
        assert_eq!(spent.left(Duration::from_hours(1)), 2);
    }

    #[test]
    fn rates_beyond_what_clocks_count_are_slower_and_not_faster() {
        let spent = Spent::none(rate(u32::MAX, Duration::from_millis(1)));
        assert_eq!(spent.apart, Duration::from_micros(1));
        let slow = Spent::none(rate(1, Duration::MAX)).and(1, SECOND);
        assert_eq!(slow.left(Duration::from_hours(24 * 365)), 0);
    }
}
