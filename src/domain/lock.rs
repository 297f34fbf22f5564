//! Locks: one holder at a time of what must not be done by two at once.
//!
//! A lock is a lease with a fence: whoever holds it may be gone before it is let go, so that it runs out, and whatever a
//! late holder writes can be told by its lower fence. Only the database's clock counts.

use std::time::Duration;

use super::instant::Instant;

/// How long a lock is held where nothing else is said, at least and at most.
pub const LEASE: Duration = Duration::from_mins(1);
/// The shortest lease.
pub const SHORTEST_LEASE: Duration = Duration::from_secs(1);
/// The longest lease.
pub const LONGEST_LEASE: Duration = Duration::from_hours(24);
/// The longest time that somebody waits for a lock.
pub const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// What is stored of a lock, as far as it decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The number of its last acquisition, greater than all before.
    pub fence: i64,
    /// It was let go.
    pub is_released: bool,
    /// Until when its holder has it.
    pub lease_until: Instant,
}

/// Whether a lock can be had now; `Some(true)` from a holder that never let it go.
pub fn acquire(held: Option<&Held>, now: Instant) -> Option<bool> {
    match held {
        None => Some(false),
        Some(held) if held.is_released => Some(false),
        Some(held) => (held.lease_until <= now).then_some(true),
    }
}

/// What a holder does with its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Keeps it for so long from now.
    Renew(Duration),
    /// Lets it go.
    Release,
}

/// Whether a holder may do what it wants to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// The lock is its own.
    Yes,
    /// It has let it go before.
    Repeated,
    /// The lock is another's by now, or was let go.
    Lost,
}

/// Judges an act under `fence`. A lease that ran out takes nothing away as long as nobody else has had the lock since.
pub const fn act(held: Held, fence: i64, act: Act) -> Allowed {
    match act {
        _ if held.fence != fence => Allowed::Lost,
        Act::Release if held.is_released => Allowed::Repeated,
        Act::Renew(_) if held.is_released => Allowed::Lost,
        _ => Allowed::Yes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_seconds(100);

    fn held(is_released: bool, lease_until: i64) -> Held {
        Held { fence: 7, is_released, lease_until: Instant::from_seconds(lease_until) }
    }

    #[test]
    fn a_lock_is_had_by_one_at_a_time() {
        let table = [
            (None, Some(false)),
            (Some(held(false, 101)), None),
            (Some(held(false, 100)), Some(true)),
            (Some(held(false, 99)), Some(true)),
            (Some(held(true, 101)), Some(false)),
            (Some(held(true, 99)), Some(false)),
        ];
        for (held, answer) in table {
            assert_eq!(acquire(held.as_ref(), NOW), answer, "{held:?}");
        }
    }

    #[test]
    fn a_holder_acts_under_its_fence_alone() {
        let renew = Act::Renew(LEASE);
        let table = [
            (false, 7, renew, Allowed::Yes),
            (false, 7, Act::Release, Allowed::Yes),
            (false, 6, renew, Allowed::Lost),
            (false, 8, Act::Release, Allowed::Lost),
            (true, 7, renew, Allowed::Lost),
            (true, 7, Act::Release, Allowed::Repeated),
            (true, 6, Act::Release, Allowed::Lost),
        ];
        for (is_released, fence, wanted, allowed) in table {
            for lease_until in [99, 101] {
                assert_eq!(
                    act(held(is_released, lease_until), fence, wanted),
                    allowed,
                    "{is_released} {fence} {wanted:?}"
                );
            }
        }
    }
}
