//! A small source with a will of its own, an engine over it that is let down in every way a machine can
//! let it down, and an oracle that says what must have come out. Everything that happens in a history
//! follows from its seed; no history waits in real time.

mod api;
mod clock;
mod gates;
mod lane;
mod log;
mod oracle;
mod plan;
mod receiver;
mod store;
mod world;

pub use lane::Lane;
