//! Everything that needs more than one floor, a database or a network, in one binary.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a failing test may panic"
)]

mod allow_private;
mod cases_batches;
mod cases_clocks;
mod cases_crashes;
mod cases_deciding;
mod cases_delivery;
mod cases_edits;
mod cases_edits_tasks;
mod cases_limits;
mod cases_pages;
mod cases_reading;
mod cases_replay;
mod cases_resume;
mod cases_retention;
mod cases_running;
mod cases_sweeps;
mod cases_tokens;
mod cases_versions;
mod cases_windows;
mod cli;
mod cli_gate;
mod cli_outbox;
mod cli_replay;
mod cli_verify;
mod cli_why;
mod config;
mod connector;
mod connector_errors;
mod connector_formats;
mod connector_job;
mod connector_limits;
mod connector_login;
mod connector_oauth;
mod connector_pages;
mod connector_quota;
mod connector_wire;
mod decide_model;
mod delivery_headers;
mod delivery_model;
mod delivery_tls;
mod floors;
mod gate_processes;
mod histories;
mod hooks;
mod hostile_receiver;
mod lateness;
mod locks;
mod news;
mod quarantine;
mod server_gate;
mod store_batches;
mod store_destination;
mod store_floor;
mod store_gate;
mod store_jobs;
mod store_lanes;
mod store_open;
mod store_outbox;
mod store_pages;
mod store_purge;
mod store_sightings;
mod store_sweeps;
mod store_tasks;
mod store_tokens;
mod store_wishes;
mod support;
mod sweep_histories;
mod upgrade;
mod year;
