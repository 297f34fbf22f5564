//! What several tests need.

pub mod source;
