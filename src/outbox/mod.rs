//! The outbox's way out: claims due events, sends each as one POST, and settles it by the answer.
//!
//! Only a key's earliest unsettled event can be claimed, so a key's events leave in order while all keys
//! leave side by side.

mod credential;
mod dispatcher;
mod headers;
#[cfg_attr(not(test), expect(dead_code, reason = "the dispatcher asks it next"))]
mod pace;
mod sender;

pub use dispatcher::{Dispatcher, Drained};
pub use headers::naming;
pub use sender::{Sender, Sent};
