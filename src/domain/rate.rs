//! Rates: so many requests in any period.

use std::{num::NonZeroU32, time::Duration};

use serde::{Deserialize, Serialize};

/// Never more than `requests` in any period of `per`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// How many.
    pub requests: NonZeroU32,
    /// In how long.
    pub per: Duration,
}

impl Rate {
    /// The time between two requests, rounded up, so that rounding never lets one more in.
    pub fn period(&self) -> Duration {
        let nanos = self.per.as_nanos().div_ceil(u128::from(self.requests.get()));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_rounded_up() {
        let period = |requests, nanos| {
            Rate { requests: NonZeroU32::new(requests).unwrap(), per: Duration::from_nanos(nanos) }.period()
        };
        assert_eq!(period(3, 9), Duration::from_nanos(3));
        assert_eq!(period(3, 10), Duration::from_nanos(4));
        assert_eq!(period(9, 0), Duration::ZERO);
    }
}
