//! `onlynew sync JOB`: one run now, and the delivery of what it found and of what was already due.

use std::{io::IsTerminal, time::Duration};

use clap::Args;
use indicatif::ProgressBar;
use serde::Serialize;

use super::{Exit, Session, find_job, outbox::destinations, run::stop_on_signal};
use crate::{
    app::Synced,
    domain::run::{Counts, RunKind, RunStatus},
    store::RunId,
};

/// Arguments of `sync`.
#[derive(Debug, Args)]
pub(super) struct Sync {
    /// The job's name in the jobs file.
    job: String,
}

/// The last line of `sync --json`. `delivered` is what this sync delivered of the job; `pending` and
/// `dead` are what the job has waiting and given up afterwards; `skipped` stands there only where
/// `on_missing_version: skip` left records out, `conflicts` only where a key is not unique, `below_floor` only where
/// records were passed over since keys are forgotten.
#[derive(Debug, Serialize)]
struct Line {
    job: String,
    run: Option<RunId>,
    status: RunStatus,
    kind: RunKind,
    requests: u64,
    pages: u64,
    #[serde(flatten)]
    counts: Counts,
    delivered: u64,
    pending: u64,
    dead: u64,
    watermark: Option<serde_json::Value>,
    reason: Option<String>,
}

impl Sync {
    pub(super) async fn run(&self, session: &Session) -> anyhow::Result<Exit> {
        let app = session.open("warn").await?;
        let job = find_job(&app.config, &self.job)?;
        let progress = progress_bar(session, &self.job);
        let stop = stop_on_signal()?;
        let synced = app.sync(job, &stop).await;
        progress.finish_and_clear();
        let synced = synced?;
        let waits = if synced.pending == 0 {
            None
        } else {
            destinations::find(&app, &job.destination.name).await?.trouble()
        };
        app.store.close().await;

        let exit = exit_of(&synced);
        let delivery_error = synced.delivery_error.clone();
        let line = Line::from(synced);
        session
            .answer(&serde_json::to_value(&line)?, || line.text(delivery_error.as_deref(), waits.as_deref()));
        Ok(exit)
    }
}

fn progress_bar(session: &Session, job: &str) -> ProgressBar {
    if session.json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner().with_message(format!("syncing {job}"));
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

fn exit_of(synced: &Synced) -> Exit {
    match synced.report.status {
        _ if synced.store_error.is_some() => Exit::Failed,
        RunStatus::Ok if synced.pending == 0 && synced.newly_dead == 0 => Exit::Good,
        RunStatus::Failed | RunStatus::Interrupted | RunStatus::Asks => Exit::Failed,
        _ => Exit::Partly,
    }
}

impl From<Synced> for Line {
    fn from(synced: Synced) -> Self {
        let Synced { report, delivered, pending, dead, store_error, .. } = synced;
        let status = match report.status {
            _ if store_error.is_some() => RunStatus::Failed,
            RunStatus::Interrupted => RunStatus::Failed,
            status => status,
        };
        Self {
            job: report.job,
            run: report.run,
            status,
            kind: report.kind,
            requests: report.requests,
            pages: report.pages,
            counts: report.counts,
            delivered,
            pending,
            dead,
            watermark: report.watermark,
            reason: report.reason.or(store_error.map(|error| error.to_string())),
        }
    }
}

impl Line {
    fn text(&self, delivery_error: Option<&str>, waits: Option<&str>) -> String {
        let Counts {
            created, updated, deleted, restored, unchanged, stale, quarantined, below_floor, ..
        } = self.counts;
        let mut lines = vec![format!(
            "{}: {}, {} in {}: {} new, {} changed, {} deleted, {} restored, {} known",
            self.job,
            self.status.name(),
            counted(self.counts.records, "record"),
            counted(self.pages, "page"),
            created,
            updated,
            deleted,
            restored,
            unchanged + stale,
        )];
        if created > 0 && self.counts.events == 0 {
            lines.push(
                "recorded, nothing sent: a first run is silent without `first_run: emit`; `changes.emit` names what is sent"
                    .to_owned(),
            );
        }
        let Self { delivered, pending, dead, .. } = self;
        lines.push(format!(
            "{}: {delivered} delivered, {pending} waiting, {dead} dead",
            counted(self.counts.events, "new event")
        ));
        if quarantined > 0 {
            lines.push(format!("{} could not be read and set aside", counted(quarantined, "record")));
        }
        if below_floor > 0 {
            let passed_over = counted(below_floor, "record");
            lines.push(format!(
                "{passed_over} below the floor of forgotten keys passed over (`retention.keys`)"
            ));
        }
        lines.extend(self.reason.as_ref().map(|reason| format!("why: {reason}")));
        lines.extend(delivery_error.map(|error| format!("last delivery error: {error}")));
        lines.extend(waits.map(str::to_owned));
        lines.join("\n")
    }
}

/// `1 record`, `2 records`.
pub(super) fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
