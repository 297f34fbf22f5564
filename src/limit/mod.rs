//! How often a source may be asked: one bucket an account, shared by all its jobs, and one more for a
//! stream that the vendor limits by itself; each with a pace (governor) and a gate that stays shut until
//! the source wants to hear from us again.
//!
//! Both live in memory; what has to survive a restart is put into the store by the engine and told to the
//! gate again.

mod bucket;
mod clock;
mod pace;
mod steady;

pub use bucket::{Ask, Held, LONGEST_WAIT, Limits, Precedence};
pub use clock::SystemClock;
pub use pace::Pace;
