//! Time as a parameter. Whoever needs the time of day or has to wait takes a [`Clock`]; the ambient
//! clock is read in this file alone, and clippy keeps it so.

use std::{fmt::Debug, pin::Pin, time::Duration};

use super::instant::Instant;

/// A boxed wait, so that [`Clock`] stays object-safe.
pub type Wait<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Where the time comes from and how waiting is done.
pub trait Clock: Debug + Send + Sync {
    /// The time of day.
    fn now(&self) -> Instant;
    /// Waits for `duration`.
    fn sleep(&self, duration: Duration) -> Wait<'_>;
}

/// The machine's time of day, in microseconds since 1970 in UTC.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the ambient clock")]
pub fn machine_time() -> Instant {
    Instant::from(jiff::Timestamp::now())
}
