//! The outbox's way out: claims messages that are due, sends each as one POST, and settles it by the answer.
//!
//! Only a lane's earliest unsettled event can be claimed, so a key's events leave in order while all keys
//! leave side by side.

mod credential;
mod dispatcher;
mod headers;
mod sender;

pub use dispatcher::{Dispatcher, Drained};
pub use headers::naming;
pub use sender::{Sender, Sent};
