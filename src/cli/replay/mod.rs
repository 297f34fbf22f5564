//! `onlynew replay JOB`: a window is read again, beside the live job, and what was missed is sent.

pub(super) mod answer;
mod asked;
mod screen;

use std::{path::PathBuf, sync::Arc};

use clap::{Args, ValueEnum};
use serde_json::json;

use self::{answer::Window, screen::Screen};
use super::{Exit, Session, bad_input, find_job, run::stop_on_signal, sync::counted};
use crate::{
    app::{App, By},
    config::job::{FirstRun, Job},
    domain::{
        rate::Rate,
        run::{Counts, RunStatus},
        task::{Plan, Resend, TaskId},
    },
    engine::RunReport,
    store::Opened,
};

/// What `replay --help` says at its end.
const HELP: &str = "\
A running `onlynew run` takes the replay up, so that its requests share the account's rate limit with the live runs, and go
behind them; where none runs, this command reads by itself. Either way it goes on after a crash: type the same command
again, or `onlynew replays resume N`. The watermark of the job stays where it is, and nothing newer is overwritten.";

/// Arguments of `replay`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Replay {
    /// The job's name in the jobs file.
    job: String,
    /// The first version: 2026-11-30, 2026-11-30T10:00:00Z, or a number where versions are numbers. A day or a time without
    /// an offset is one of the stream's `timezone`.
    #[arg(long, value_name = "VERSION")]
    from: Option<String>,
    /// The version after the last: the window is [from, to).
    #[arg(long, value_name = "VERSION")]
    to: Option<String>,
    /// Only the record of this key, as `outbox list` shows it; may be given several times. Without a window all is read.
    #[arg(long = "key", value_name = "KEY")]
    keys: Vec<String>,
    /// Only the records of the keys in this file, one a line; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    keys_from: Option<PathBuf>,
    /// What is sent: what the job does not know yet; all that is read, under new ids; or nothing, so that it is recorded
    /// only.
    #[arg(long, value_enum, default_value_t)]
    emit: Emit,
    /// How often the source is asked at most, beside its own limits: 10/s, 100/m, 1/30s.
    #[arg(long, value_name = "N/TIME", value_parser = rate)]
    rate: Option<Rate>,
    /// Read the window and count what would be done. Nothing is written, and nothing is sent.
    #[arg(long)]
    dry_run: bool,
}

/// What is sent.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Emit {
    #[default]
    Changed,
    All,
    None,
}

impl From<Emit> for Resend {
    fn from(emit: Emit) -> Self {
        match emit {
            Emit::Changed => Self::Changed,
            Emit::All => Self::All,
            Emit::None => Self::None,
        }
    }
}

/// A request less often than that would wait for longer than a run does.
fn rate(text: &str) -> Result<Rate, String> {
    let rate: Rate = text.parse().map_err(|error: crate::domain::rate::NoRate| error.to_string())?;
    let most = crate::limit::LONGEST_WAIT;
    if rate.period() > most { Err("one request in 15 minutes is the slowest".to_owned()) } else { Ok(rate) }
}

impl Replay {
    pub(super) async fn run(&self, session: &Session) -> anyhow::Result<Exit> {
        let app = session.open("warn").await?;
        let exit = self.replay(session, &app).await;
        app.store.close().await;
        exit
    }

    async fn replay(&self, session: &Session, app: &App) -> anyhow::Result<Exit> {
        let job = find_job(&app.config, &self.job)?;
        let plan = self.plan(job)?;
        say(&format!("replay of {}: {}", job.name, answer::told_plan(app, job, &plan)));
        if self.dry_run {
            return try_out(session, app, job, &plan).await;
        }
        self.check_state(app, job, &plan).await?;
        match app.ask_for_replay(job, &plan).await? {
            Opened::New(id) => see_through(session, app, job, &plan, id).await,
            Opened::GoesOn(id) => {
                say(&format!("it was asked for before, as replay {}, and goes on", id.0));
                see_through(session, app, job, &plan, id).await
            }
            Opened::Another(id) => anyhow::bail!(
                "the replay {0} of `{1}` is under way with another plan: `onlynew replays show {0}` shows it; wait for its \
                 end, or give it up with `onlynew replays cancel {0}`",
                id.0,
                job.name
            ),
        }
    }
}

impl Replay {
    /// Refuses what would send all that stands before the job has taken its baseline, and tells of what is forgotten.
    async fn check_state(&self, app: &App, job: &Arc<Job>, plan: &Plan) -> anyhow::Result<()> {
        let progress = app.view_of(job).await?.and_then(|view| view.progress);
        let has_baseline = match &progress {
            Some(progress) => !progress.baseline_open,
            None => job.first_run == FirstRun::Emit,
        };
        if !has_baseline && plan.resend == Resend::Changed {
            return Err(bad_input(format!(
                "`{0}` has not taken its baseline yet, so that a replay would send as new all that it reads: `onlynew sync {0}` \
                 takes it; where that is meant to be sent, say `--emit all`",
                job.name
            )));
        }
        let floor = progress.and_then(|progress| progress.floor);
        let reaches_below = floor.filter(|floor| plan.from.is_none_or(|from| from < *floor));
        if let Some(floor) = reaches_below.filter(|_| plan.resend == Resend::Changed) {
            say(&format!(
                "versions below {} are forgotten (`retention.keys`): what is read there is sent again, marked `re_seen`; \
                 `--emit none` records it only",
                job.version_format().show(floor).to_string().replace('"', "")
            ));
        }
        Ok(())
    }
}

/// Sees a replay through and tells how it stands then.
pub(super) async fn see_through(
    session: &Session,
    app: &App,
    job: &Arc<Job>,
    plan: &Plan,
    id: TaskId,
) -> anyhow::Result<Exit> {
    let stop = stop_on_signal()?;
    let screen = Screen::new(session, job, plan);
    let replayed = app.see_through(job, id, &|task| screen.show_task(task), &stop).await;
    screen.clear();
    let replayed = replayed?;
    let exit = answer::exit_of(&replayed);
    let mut line = answer::told(&replayed.task, Some(job));
    if let Some(line) = line.as_object_mut() {
        line.insert("worked_by".to_owned(), by_name(&replayed.by).into());
        if let Some(error) = &replayed.store_error {
            line.insert("reason".to_owned(), error.to_string().into());
        }
    }
    session.answer(&line, || answer::text(&replayed));
    Ok(exit)
}

const fn by_name(by: &By) -> &'static str {
    match by {
        By::Command(_) => "command",
        By::Worker | By::WorkerStill => "worker",
        By::Nobody => "nobody",
    }
}

/// Reads the window for nothing but the counts.
async fn try_out(session: &Session, app: &App, job: &Arc<Job>, plan: &Plan) -> anyhow::Result<Exit> {
    let stop = stop_on_signal()?;
    let screen = Screen::new(session, job, plan);
    let report = app.engine.try_out(job, plan, &|report| screen.show_run(report), &stop).await;
    screen.clear();
    let RunReport { status, requests, pages, counts, reason, .. } = report?;
    let mut line = json!({
        "job": job.name, "dry_run": true, "status": status, "window": Window::of(plan, Some(job)), "requests": requests,
        "pages": pages, "reason": reason.as_ref().filter(|_| status != RunStatus::Interrupted),
    });
    answer::with_counts(&mut line, &counts)?;
    session.answer(&line, || {
        let Counts { records, created, updated, deleted, restored, unchanged, stale, events, .. } = counts;
        let mut lines = vec![
            format!(
                "dry run of {}: {}, {} in {} and {}",
                job.name,
                if status == RunStatus::Interrupted { "stopped" } else { status.name() },
                counted(records, "record"),
                counted(pages, "page"),
                counted(requests, "request"),
            ),
            format!(
                "it would be {created} new, {updated} changed, {deleted} deleted, {restored} restored, {unchanged} known, \
                 {stale} older than what is stored, and {} sent",
                counted(events, "event")
            ),
        ];
        lines.extend(answer::set_aside(&counts));
        if status == RunStatus::Interrupted {
            lines.push("so far: the window was not read to its end".to_owned());
        } else {
            lines.extend(reason.as_ref().map(|reason| format!("why: {reason}")));
        }
        lines.push("nothing was written and nothing was sent".to_owned());
        lines.join("\n")
    });
    Ok(match status {
        RunStatus::Ok => Exit::Good,
        RunStatus::Failed => Exit::Failed,
        _ => Exit::Partly,
    })
}

/// Says something beside the answer.
pub(super) fn say(text: &str) {
    use std::io::Write;
    // A reader that has gone away is no error.
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
