//! `onlynew why JOB …`: why a record did or did not become an event, what a run did, and what was never read.

mod gap;
mod hook;
mod key;
mod run;

use std::sync::Arc;

use clap::Args;
use serde_json::Value;

use super::{Exit, Session, bad_input, find_job};
use crate::{app::App, config::job::Job, domain::version::Version, store::JobRow};

/// How many readings and events are looked at, where nothing else is said.
const LIMIT: u32 = 1_000;

/// Arguments of `why`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 answered; 1 the key or run is not known to the job, or a part of the gap was never read.
A key of several parts is written as it is shown, [\"7\",\"en\"], or 7,en.")]
pub(super) struct Why {
    /// The job's or the hook's name in the jobs file.
    job: String,
    /// The record's key: tell all that happened to it.
    #[arg(required_unless_present_any = ["event", "run", "gap"], conflicts_with_all = ["run", "gap"])]
    key: Option<String>,
    /// Tell the story of this event alone: its id, or the beginning of it.
    #[arg(long, value_name = "ID", conflicts_with_all = ["run", "gap"])]
    event: Option<String>,
    /// Tell what this run asked for, what its pages decided and how it ended.
    #[arg(long, value_name = "N", conflicts_with = "gap")]
    run: Option<i64>,
    /// Tell which versions from FROM up to TO were read completely, by which runs: dates, timestamps, or numbers.
    #[arg(long, num_args = 2, value_names = ["FROM", "TO"], allow_hyphen_values = true)]
    gap: Option<Vec<String>>,
    /// How many readings, events and parts are told, the newest of them.
    #[arg(long, value_name = "N", default_value_t = LIMIT, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

/// What is asked about.
struct Asked {
    app: App,
    job: Arc<Job>,
    row: JobRow,
    limit: u32,
}

impl Why {
    pub(super) async fn run(&self, session: &Session) -> anyhow::Result<Exit> {
        let app = session.open("warn").await?;
        if let Some(hook) = app.config.hooks.get(&self.job) {
            let exit = hook::tell(session, &app, hook, self.key.as_deref(), self.limit).await;
            app.store.close().await;
            return exit;
        }
        let job = Arc::clone(find_job(&app.config, &self.job)?);
        let Some(row) = app.row_of(&job).await? else {
            return Err(bad_input(format!(
                "the job `{0}` has never run; `onlynew sync {0}` runs it once",
                job.name
            )));
        };
        let asked = Asked { app, job, row, limit: self.limit };
        let exit = match (&self.key, &self.event, self.run, self.gap.as_deref()) {
            (_, _, Some(run), _) => run::tell(session, &asked, run).await,
            (_, _, _, Some([from, to])) => gap::tell(session, &asked, from, to).await,
            (key, event, ..) => key::tell(session, &asked, key.as_deref(), event.as_deref()).await,
        };
        asked.app.store.close().await;
        exit
    }
}

impl Asked {
    /// A version as people see it.
    fn show(&self, version: Version) -> String {
        match self.job.version_format().show(version) {
            Value::String(text) => text,
            other => other.to_string(),
        }
    }

    /// The same for programs.
    fn value(&self, version: Option<Version>) -> Option<Value> {
        version.map(|version| self.job.version_format().show(version))
    }
}
