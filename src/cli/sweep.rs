//! `onlynew sweep JOB`: a sweep now, as far as it may go, and a person's word for what it asks.

use clap::Args;
use serde_json::{Value, json};

use super::{Exit, Session, bad_input, find_job, run::stop_on_signal};
use crate::{
    app::{App, Swept},
    domain::{
        reconcile::{Phase, passes_from},
        run::RunStatus,
        task::TaskState,
        units::format_duration,
    },
    store::SweepView,
};

/// Arguments of `sweep`.
#[derive(Debug, Args)]
pub(super) struct Sweep {
    /// The job's name in the jobs file.
    job: String,
    /// Let the sweep that asks mark as deleted all that it found gone.
    #[arg(long)]
    accept_deletes: bool,
    /// End the sweep that is open: nothing more is marked as deleted.
    #[arg(long, conflicts_with = "accept_deletes")]
    cancel: bool,
}

impl Sweep {
    pub(super) async fn run(&self, session: &Session) -> anyhow::Result<Exit> {
        let app = session.open("warn").await?;
        let job = find_job(&app.config, &self.job)?;
        let name = &job.name;
        if self.cancel {
            return cancel(session, &app, name).await;
        }
        if job.sweep.is_none() {
            return Err(bad_input(format!(
                "the job `{name}` is not swept: add `deletes: {{mode: reconcile}}` to it"
            )));
        }
        if self.accept_deletes {
            let asks = match app.store.find_job(name).await? {
                Some(row) => app.store.last_sweep(row.id).await?,
                None => None,
            };
            let accepted = match asks {
                Some(asks) => app.store.accept_deletes(asks.task).await?,
                None => false,
            };
            if !accepted {
                return Err(bad_input(format!(
                    "no sweep of `{name}` asks for anything; `onlynew status` shows when one does"
                )));
            }
        }
        let stop = stop_on_signal()?;
        let swept = app.sweep(job, &stop).await?;
        app.store.close().await;
        let Some(swept) = swept else {
            return Err(bad_input(format!(
                "the job `{name}` has not read yet what stood when it began, and a sweep would send all of that; \
                 `onlynew sync {name}` runs it once"
            )));
        };
        let mut answer = shown(&swept.sweep);
        if let Some(answer) = answer.as_object_mut() {
            let run = swept.report.as_ref();
            answer.insert("job".to_owned(), json!(name));
            answer.insert("run".to_owned(), json!(run.and_then(|report| report.run)));
            answer.insert("run_status".to_owned(), json!(run.map(|report| report.status)));
            answer.insert("why".to_owned(), json!(run.and_then(|report| report.reason.clone())));
            answer.insert("delivered".to_owned(), json!(swept.delivered));
            answer.insert("pending".to_owned(), json!(swept.pending));
        }
        session.answer(&answer, || text(name, &swept));
        Ok(exit_of(&swept))
    }
}

async fn cancel(session: &Session, app: &App, job: &str) -> anyhow::Result<Exit> {
    let last = match app.store.find_job(job).await? {
        Some(row) => app.store.last_sweep(row.id).await?,
        None => None,
    };
    let open = last.filter(|last| last.state == TaskState::Open);
    let cancelled = match &open {
        Some(open) => app.store.cancel_task(open.task, None).await?,
        None => false,
    };
    app.store.close().await;
    let Some(open) = open.filter(|_| cancelled) else {
        return Err(bad_input(format!("no sweep of `{job}` is open")));
    };
    session.answer(&json!({"job": job, "task": open.task, "cancelled": true}), || {
        format!("{job}: the sweep is cancelled; what it marked as deleted stays marked ({})", open.deleted)
    });
    Ok(Exit::Good)
}

fn exit_of(swept: &Swept) -> Exit {
    let has_failed = swept
        .report
        .as_ref()
        .is_some_and(|run| matches!(run.status, RunStatus::Failed | RunStatus::Interrupted));
    match swept.sweep.state {
        TaskState::Failed | TaskState::Cancelled => Exit::Failed,
        _ if has_failed => Exit::Failed,
        TaskState::Done if swept.pending == 0 => Exit::Good,
        TaskState::Done | TaskState::Open => Exit::Partly,
    }
}

fn text(job: &str, swept: &Swept) -> String {
    let sweep = &swept.sweep;
    let mut lines = vec![format!("{job}: {}", line(sweep))];
    if swept.is_elsewhere {
        lines.push("another process works on it".to_owned());
    }
    lines.extend(asks(job, sweep));
    let reason =
        swept.report.as_ref().and_then(|report| report.reason.clone()).or_else(|| sweep.reason.clone());
    lines.extend(reason.map(|reason| format!("why: {reason}")));
    lines.push(format!("{} delivered, {} waiting", swept.delivered, swept.pending));
    lines.join("\n")
}

/// A sweep in one line.
fn line(sweep: &SweepView) -> String {
    let SweepView { records, missed, deleted, longest, .. } = sweep;
    let late = if longest.is_zero() {
        String::new()
    } else {
        format!(", the latest up to {} late", format_duration(*longest))
    };
    let gone =
        sweep.gone.map_or_else(String::new, |gone| format!(", {gone} gone, {deleted} marked as deleted"));
    let stands = match (sweep.state, sweep.phase, sweep.read_at) {
        (TaskState::Open, Phase::Waiting, Some(read_at)) => {
            format!("waits for a live run that begins after {}", passes_from(read_at, sweep.reach))
        }
        (TaskState::Open, phase, _) => phase.name().to_owned(),
        (state, ..) => state.name().to_owned(),
    };
    format!("{stands}: {records} seen, {missed} missed by polling{late}{gone}")
}

/// What a sweep asks, for a person.
pub(super) fn asks(job: &str, sweep: &SweepView) -> Option<String> {
    sweep.asks().then(|| {
        format!(
            "{job}: a sweep found {} of {} keys gone, more than `deletes.max_ratio` allows; if that is right, \
             `onlynew sweep {job} --accept-deletes` marks them as deleted",
            sweep.gone.unwrap_or_default(),
            sweep.of_keys.unwrap_or_default()
        )
    })
}

/// A sweep for programs.
pub(super) fn shown(sweep: &SweepView) -> Value {
    json!({
        "task": sweep.task, "state": sweep.state,
        "phase": (sweep.state == TaskState::Open).then_some(sweep.phase),
        "seen": sweep.records, "missed": sweep.missed, "late_seconds": sweep.longest.as_secs_f64(),
        "gone": sweep.gone, "of_keys": sweep.of_keys, "deleted": sweep.deleted,
        "asks": sweep.asks(),
        "waits_until": sweep.read_at.map(|read_at| passes_from(read_at, sweep.reach)),
        "created_at": sweep.created_at, "read_at": sweep.read_at, "ended_at": sweep.ended_at, "reason": sweep.reason,
    })
}
