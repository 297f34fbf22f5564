//! The command line: what a person types and what they read back. Answers go to standard output, tables
//! for people and `--json` for programs; logs and errors go to standard error.
//!
//! Exit codes: 0 good, 1 failed, 2 bad input, 3 partly.

mod accept;
mod check;
mod connectors;
mod demo;
mod gate;
mod hooks;
mod init;
mod lateness;
mod outbox;
mod plan;
mod quarantine;
mod redeliver;
mod replay;
mod replays;
mod run;
mod state;
mod status;
mod sweep;
mod sync;
mod table;
mod verify;
mod why;

use std::{io::Write, path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

use crate::{
    app::App,
    config::{self, Config, ConfigErrors, job::Job},
    telemetry::{self, LogFormat},
};

/// What `--help` says at its end.
const HELP: &str = "\
Exit codes: 0 good, 1 failed, 2 bad input, 3 partly (put off by the source, or events that still wait).
Logs go to standard error; ONLYNEW_LOG=onlynew=debug shows more of them.
The store is the `store:` of the jobs file; by default onlynew.db beside it.";

/// Polls source APIs on a schedule and hands n8n only what is new.
#[derive(Debug, Parser)]
#[command(name = "onlynew", version, max_term_width = 100, after_help = HELP)]
struct Cli {
    /// The jobs file.
    #[arg(short, long, global = true, default_value = "jobs.yaml", value_name = "FILE")]
    config: PathBuf,
    /// Answer in JSON.
    #[arg(long, global = true)]
    json: bool,
    /// How log lines look.
    #[arg(long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    log: LogFormat,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show it all at work: a source with every bad habit, a receiver and the engine in one process.
    Demo(demo::Demo),
    /// Write a jobs.yaml to start from.
    Init(init::Init),
    /// Check the jobs file and start nothing.
    Check,
    /// Show when a job fires and what it will ask for.
    Plan(plan::Plan),
    /// Run one job now, deliver what it finds, and stop.
    Sync(sync::Sync),
    /// Read everything of one job now, so that it shows what is gone.
    Sweep(sweep::Sweep),
    /// Run all jobs on their schedules and deliver what they find, until stopped.
    Run,
    /// Read a window of a job again, beside its live runs, and send what was missed.
    Replay(replay::Replay),
    /// Look into replays; resume or cancel them.
    Replays(replays::Replays),
    /// Send events again that were delivered or are dead, under the same ids.
    Redeliver(redeliver::Redeliver),
    /// Show every job: its last run, its watermark, what waits.
    Status,
    /// Tell why a record did or did not become an event, what a run did, or what was never read.
    Why(why::Why),
    /// Check that everything holds in the store that must hold at every moment; changes nothing.
    Verify,
    /// Say what becomes of what is stored of a job that was edited.
    Accept(accept::Accept),
    /// Look into what is kept of a job, or give it another name.
    #[command(subcommand)]
    State(state::State),
    /// Settle records that could not be read.
    #[command(subcommand)]
    Quarantine(quarantine::Quarantine),
    /// Look into the outbox: retry, redeliver or discard events, pause destinations.
    #[command(subcommand)]
    Outbox(outbox::Outbox),
    /// Look into the gate: which side effects were let through, which were not, and why.
    #[command(subcommand)]
    Gate(gate::Gate),
    /// Show what came in by webhooks, and how often it came again.
    Hooks,
    /// Print the JSON Schema of the jobs file or of a connector file.
    Schema(check::Schema),
    /// Look into the connectors.
    #[command(subcommand)]
    Connectors(connectors::Connectors),
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    Good,
    Failed,
    Partly,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Good => Self::SUCCESS,
            Exit::Failed => Self::from(1),
            Exit::Partly => Self::from(3),
        }
    }
}

/// What the person typed or wrote cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct BadInput {
    message: String,
    json: Option<serde_json::Value>,
}

/// An error of what the person typed.
fn bad_input(message: impl Into<String>) -> anyhow::Error {
    BadInput { message: message.into(), json: None }.into()
}

/// A configuration that cannot be used, for people and for programs.
fn bad_config(errors: &ConfigErrors) -> anyhow::Error {
    let json = serde_json::json!({"ok": false, "errors": errors.errors});
    BadInput { message: errors.to_string(), json: Some(json) }.into()
}

/// What every command is given.
struct Session {
    path: PathBuf,
    json: bool,
    log: LogFormat,
}

/// Parses the command line, runs the command and returns its exit code.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start the runtime: {error}");
            return Exit::Failed.into();
        }
    };
    let json = cli.json;
    match runtime.block_on(dispatch(cli)) {
        Ok(exit) => exit.into(),
        Err(error) => report(&error, json),
    }
}

async fn dispatch(cli: Cli) -> anyhow::Result<Exit> {
    let context = Session { path: cli.config, json: cli.json, log: cli.log };
    match cli.command {
        Command::Demo(demo) => demo.run(&context).await,
        Command::Init(init) => init.run(&context),
        Command::Check => check::run(&context),
        Command::Plan(plan) => plan.run(&context).await,
        Command::Sync(sync) => sync.run(&context).await,
        Command::Sweep(sweep) => sweep.run(&context).await,
        Command::Run => run::run(&context).await,
        Command::Replay(replay) => replay.run(&context).await,
        Command::Replays(replays) => replays.run(&context).await,
        Command::Redeliver(redeliver) => redeliver.run(&context).await,
        Command::Status => status::run(&context).await,
        Command::Why(why) => why.run(&context).await,
        Command::Verify => verify::run(&context).await,
        Command::Accept(accept) => accept.run(&context).await,
        Command::State(state) => state.run(&context).await,
        Command::Quarantine(quarantine) => quarantine.run(&context).await,
        Command::Outbox(outbox) => outbox.run(&context).await,
        Command::Gate(gate) => gate.run(&context).await,
        Command::Hooks => hooks::run(&context).await,
        Command::Schema(schema) => schema.run(),
        Command::Connectors(connectors) => connectors.run(&context),
    }
}

impl Session {
    /// The jobs file, checked whole.
    fn load(&self) -> anyhow::Result<Config> {
        let variable = |name: &str| std::env::var(name).ok();
        config::load(&self.path, &variable).map_err(|errors| bad_config(&errors))
    }

    /// The jobs file and its store. Warnings of the file are logged.
    async fn open(&self, level: &str) -> anyhow::Result<App> {
        telemetry::start(self.log, level);
        let config = self.load()?;
        for warning in &config.warnings {
            tracing::warn!("{warning}");
        }
        App::open(config).await
    }

    /// Prints an answer: as JSON on one line, or as `text`.
    fn answer(&self, json: &serde_json::Value, text: impl FnOnce() -> String) {
        if self.json {
            print_line(&json.to_string());
        } else {
            print_line(&text());
        }
    }
}

/// The job of this name, or an error that names the jobs there are.
fn find_job<'c>(config: &'c Config, name: &str) -> anyhow::Result<&'c std::sync::Arc<Job>> {
    config.jobs.get(name).ok_or_else(|| {
        let names: Vec<&str> = config.jobs.keys().map(String::as_str).collect();
        bad_input(format!("there is no job `{name}`; the jobs are: {}", names.join(", ")))
    })
}

fn report(error: &anyhow::Error, json: bool) -> ExitCode {
    let bad = error.downcast_ref::<BadInput>();
    let message = causes(error);
    if json {
        let answer = bad.and_then(|bad| bad.json.clone());
        print_line(&answer.unwrap_or_else(|| serde_json::json!({"ok": false, "error": message})).to_string());
    } else {
        eprintln!("error: {message}");
    }
    if bad.is_some() { ExitCode::from(2) } else { Exit::Failed.into() }
}

/// An error with its causes, each said once.
fn causes(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |told, cause| {
        if told.contains(&cause) {
            told
        } else if told.is_empty() {
            cause
        } else {
            format!("{told}: {cause}")
        }
    })
}

/// Prints a line. A reader that has gone away is no error: the program ends as if it had been read.
fn print_line(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}");
}
