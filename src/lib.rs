//! onlynew polls source APIs on a schedule and hands n8n only what is new.
//!
//! The crate is one house of several floors, and a floor imports only what stands below it:
//! `cli` → `demo` → `app` → `schedule`, `server` → `engine`, `intake`, `outbox` → `connector` → `limit` → `store` → `config` → `domain`.
//! `telemetry` may be used by any floor. `docs/ARCHITECTURE.md` shows the way of one record through them.
#![cfg_attr(test, expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failing test may panic"))]

pub mod app;
pub mod cli;
pub mod config;
pub mod connector;
pub mod demo;
pub mod domain;
pub mod engine;
pub mod intake;
pub mod limit;
pub mod outbox;
pub mod schedule;
pub mod server;
pub mod store;
pub mod telemetry;
