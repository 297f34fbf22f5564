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

/// How long a source asks to be left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plea {
    /// The answer says so.
    Told(Duration),
    /// The answer does not say, but its documentation does: so long at least, and longer each time.
    AtLeast(Duration),
    /// Nobody says.
    Untold,
}

impl Plea {
    /// The wait after plea number `pleas` (from 1) about one request. What the answer says is never
    /// multiplied (field case C12); a wait that nobody told of grows as `backoff` does.
    pub fn wait(self, pleas: u32, backoff: Backoff, random: f64) -> Duration {
        match self {
            Self::Told(wait) => wait,
            // The first is as long as the connector says, also where that is beyond every cap.
            Self::AtLeast(wait) => {
                Backoff { base: wait, cap: LONGEST_GROWTH.max(wait), ..backoff }.wait(pleas, 0.0)
            }
            Self::Untold => backoff.wait(pleas, random).max(SHORTEST_PLEA),
        }
    }
}

/// How long a wait that grows may become.
const LONGEST_GROWTH: Duration = Duration::from_mins(15);

/// The shortest wait where nobody says how long.
const SHORTEST_PLEA: Duration = Duration::from_millis(100);

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

    #[test]
    fn c12_c14_a_told_wait_is_never_multiplied_and_an_untold_one_grows() {
        let minute = Duration::from_mins(1);
        let waits =
            |plea: Plea| (1..7).map(|n| plea.wait(n, Backoff::default(), 0.0).as_secs()).collect::<Vec<_>>();
        assert_eq!(waits(Plea::Told(54 * Duration::from_secs(1))), [54; 6]);
        assert_eq!(waits(Plea::AtLeast(minute)), [60, 120, 240, 480, 900, 900]);
        assert_eq!(waits(Plea::Untold), [1, 2, 4, 8, 16, 32]);
        assert_eq!(Plea::AtLeast(60 * minute).wait(3, Backoff::default(), 0.0), 60 * minute);
    }
}
