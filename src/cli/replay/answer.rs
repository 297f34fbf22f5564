//! What is told of a replay, for people and for programs.

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    app::{App, By, Replayed},
    cli::{Exit, sync::counted},
    config::job::Job,
    domain::{
        run::{Counts, RunStatus},
        task::{Plan, Resend, TaskState},
        units::format_duration,
        version::Version,
    },
    store::TaskView,
};

/// A window as people see it.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct Window {
    from: Option<Value>,
    to: Option<Value>,
}

impl Window {
    pub(in crate::cli) fn of(plan: &Plan, job: Option<&Job>) -> Self {
        let shown = |version: Option<Version>| version.map(|version| shown(version, job));
        Self { from: shown(plan.from), to: shown(plan.to) }
    }

    /// `2026-01-01T00:00:00Z to 2026-02-01T00:00:00Z`.
    pub(in crate::cli) fn text(&self) -> String {
        let bound = |bound: &Option<Value>, open: &str| match bound {
            None => open.to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        if self.from.is_none() && self.to.is_none() {
            return "everything".to_owned();
        }
        format!("{} to {}", bound(&self.from, "the beginning"), bound(&self.to, "the end"))
    }
}

/// A version as the job shows it; a job that is not in the file any more shows the number.
pub(super) fn shown(version: Version, job: Option<&Job>) -> Value {
    job.map_or_else(|| Value::from(version.0), |job| job.version_format().show(version))
}

/// What a replay is going to do.
pub(in crate::cli) fn told_plan(app: &App, job: &Job, plan: &Plan) -> String {
    let steps = app.engine.steps_of(job, plan);
    let window = Window::of(plan, Some(job)).text();
    let keys = match plan.keys.len() as u64 {
        0 => String::new(),
        count => format!(", {} only", counted(count, "key")),
    };
    let rate = plan.rate.map(|rate| format!(", {rate} at most")).unwrap_or_default();
    let sends = match plan.resend {
        Resend::Changed => "what the job does not know yet is sent",
        Resend::All => "all that it reads is sent, under new ids",
        Resend::None => "nothing is sent",
    };
    format!(
        "{window}{keys}; {}, so {} at least{rate}; {sends}",
        counted(steps, "step"),
        counted(steps, "request")
    )
}

/// A replay, for programs.
pub(in crate::cli) fn told(task: &TaskView, job: Option<&Job>) -> Value {
    let mut line = json!({
        "replay": task.id, "uid": task.uid, "job": task.job, "state": task.state, "window": Window::of(&task.plan, job),
        "keys": task.plan.keys.len(), "emit": task.plan.resend, "rate": task.plan.rate.map(|rate| rate.to_string()),
        "worker": task.worker, "runs": task.runs, "requests": task.requests, "pages": task.pages,
        "delivered": task.delivered, "pending": task.pending, "dead": task.dead,
        "read_to": task.reached.max(task.read_to).map(|version| shown(version, job)), "failures": task.failures,
        "asked_for_at": task.created_at, "ended_at": task.ended_at, "took_seconds": task.took.as_secs_f64(),
        "reason": task.reason,
    });
    // Counts are numbers under names: they always become an object.
    let _ = with_counts(&mut line, &task.counts);
    line
}

/// Puts the counts beside what else an object says.
pub(super) fn with_counts(line: &mut Value, counts: &Counts) -> serde_json::Result<()> {
    if let (Some(line), Value::Object(counts)) = (line.as_object_mut(), serde_json::to_value(counts)?) {
        line.extend(counts);
    }
    Ok(())
}

/// How the command ends.
pub(super) fn exit_of(replayed: &Replayed) -> Exit {
    let task = &replayed.task;
    match (task.state, &replayed.by) {
        _ if replayed.store_error.is_some() => Exit::Failed,
        (TaskState::Done, _) if task.pending == 0 && task.dead == 0 => Exit::Good,
        (TaskState::Done, _) | (TaskState::Open, By::WorkerStill) => Exit::Partly,
        (TaskState::Open, By::Command(report)) if report.status == RunStatus::RateLimited => Exit::Partly,
        _ => Exit::Failed,
    }
}

/// How a replay stands, for people.
pub(super) fn text(replayed: &Replayed) -> String {
    let task = &replayed.task;
    let id = task.id.0;
    let mut lines = summary(task);
    let trouble = match (&replayed.by, task.state) {
        (By::Command(report), TaskState::Open) => report.reason.clone(),
        (_, TaskState::Cancelled) => Some("it was cancelled".to_owned()),
        _ => task.reason.clone(),
    };
    lines.extend(trouble.map(|reason| format!("why: {reason}")));
    lines.extend(replayed.store_error.as_ref().map(|error| format!("why: {error}")));
    lines.extend(replayed.delivery_error.as_ref().map(|error| format!("last delivery error: {error}")));
    match (task.state, &replayed.by) {
        (TaskState::Open, By::WorkerStill) => {
            lines.push(format!(
                "another process has it, and goes on with it if it lives: `onlynew replays show {id}` tells how far it is, and \
                 `onlynew replays resume {id}` goes on where nobody does"
            ));
        }
        (TaskState::Open | TaskState::Failed, _) => lines.push(format!(
            "it goes on with `onlynew replays resume {id}`, or with the same command again; `onlynew replays cancel {id}` gives \
             it up"
        )),
        _ => {}
    }
    lines.join("\n")
}

/// What a replay has done, in a few lines.
pub(in crate::cli) fn summary(task: &TaskView) -> Vec<String> {
    let Counts { records, created, updated, deleted, restored, unchanged, stale, events, .. } = task.counts;
    let took = format_duration(task.took);
    let mut lines = vec![
        format!(
            "replay {} of {}: {} {} {took}; {} in {}, {} and {}",
            task.id.0,
            task.job,
            task.state.name(),
            if task.ended_at.is_some() { "after" } else { "for" },
            counted(records, "record"),
            counted(task.pages, "page"),
            counted(task.requests, "request"),
            counted(task.runs, "run"),
        ),
        format!(
            "{created} new, {updated} changed, {deleted} deleted, {restored} restored, {unchanged} known, {stale} older than \
             what is stored"
        ),
        format!(
            "{}: {} delivered, {} waiting, {} dead",
            counted(events, "event"),
            task.delivered,
            task.pending,
            task.dead
        ),
    ];
    lines.extend(set_aside(&task.counts));
    lines
}

/// What was left undecided.
pub(super) fn set_aside(counts: &Counts) -> impl Iterator<Item = String> + use<> {
    let told = |count: u64, what: &str| (count > 0).then(|| format!("{} {what}", counted(count, "record")));
    [
        told(counts.quarantined, "could not be read and set aside"),
        told(counts.conflicts, "left undecided: their key is not unique"),
        told(counts.skipped, "left out for want of a version"),
    ]
    .into_iter()
    .flatten()
}
