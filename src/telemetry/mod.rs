//! Logs: one line an event on standard error, as text for people or as JSON for programs, with the same
//! field names everywhere. Standard output belongs to the answer of the command.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::{EnvFilter, fmt};

/// The variable that sets what is logged, in the form `info,onlynew=debug`.
pub const LOG_VARIABLE: &str = "ONLYNEW_LOG";

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// A line for people.
    #[default]
    Text,
    /// A JSON object.
    Json,
}

/// Starts logging at `level` unless the environment names another filter. Does nothing the second time.
pub fn start(format: LogFormat, level: &str) {
    let filter = EnvFilter::try_from_env(LOG_VARIABLE)
        .unwrap_or_else(|_| EnvFilter::new(format!("warn,onlynew={level}")));
    let lines = fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    let started = match format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    drop(started);
}
