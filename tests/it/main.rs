//! The integration tests: one binary, real sockets.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failing test may panic")]

mod connector;
mod connector_errors;
mod connector_job;
mod connector_limits;
mod connector_wire;
mod support;
