//! The delivery of events, lived through step by step over a real store: dispatchers that die and stand still, a
//! receiver that refuses, fails and loses answers, requests that arrive late, persons who retry, discard and turn over.
//! Beside it a model of what must be: each step says what it may have changed, and what is found is held against that.
//! Everything follows from the seed but the moments within a second; no history waits in real time.

mod plan;
mod receiver;
mod sending;
mod table;
mod wishes;
mod world;

pub use world::{Counted, live};

/// What is wrong, for a person.
type Wrong = String;
