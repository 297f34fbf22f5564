//! Everything that needs more than one floor, or a database, in one binary.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failing test may panic")]

mod store_jobs;
mod store_open;
mod store_outbox;
mod store_pages;
mod support;
