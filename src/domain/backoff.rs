//! Waits that grow: how long to leave a source alone after a failed request.

use std::time::Duration;

/// A doubling wait with a ceiling and jitter upwards only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The wait after the first failure.
    pub base: Duration,
    /// The longest wait before jitter.
    pub cap: Duration,
    /// How many times one request is tried in all.
    pub tries: u32,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { base: Duration::from_secs(1), cap: Duration::from_mins(1), tries: 5 }
    }
}

impl Backoff {
    /// The wait after failure number `failures` (from 1). `random` in [0, 1) stretches it by up to 25 %.
    pub fn wait(self, failures: u32, random: f64) -> Duration {
        let doubled =
            self.base.saturating_mul(1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX));
        jittered(doubled.min(self.cap), random)
    }
}

/// A wait stretched by up to a quarter, never shortened: `random` is in [0, 1).
pub fn jittered(wait: Duration, random: f64) -> Duration {
    wait.mul_f64(1.0 + 0.25 * random.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_cap_and_jitter_only_upwards() {
        let backoff = Backoff::default();
        let waits: Vec<u64> = (1..9).map(|failures| backoff.wait(failures, 0.0).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff.wait(u32::MAX, 1.0), Duration::from_secs(75));
        assert!(backoff.wait(1, 0.999) > Duration::from_secs(1));
    }
}
