//! Batches: several events in one request, at most one of each key.

use std::{num::NonZeroU32, time::Duration};

/// How many events go in one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchRules {
    /// The most events.
    pub max_events: NonZeroU32,
    /// The most bytes of the body. An event that is larger goes alone.
    pub max_bytes: u64,
    /// How long the first event waits for others.
    pub linger: Duration,
}
