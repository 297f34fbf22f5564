//! `onlynew status`: every job at a glance, the destinations that are not well, and the replays that are not over.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Exit, Session, lateness, outbox::destinations::Known, replay, replays, sweep, table};
use crate::{
    app::App,
    config::job::Job,
    domain::{
        clock::machine_time, identity::Question, instant::Instant, lateness::Histogram, run::RunStatus,
        units::format_duration,
    },
    engine::edited,
    store::{JobView, SweepView},
};

pub(super) async fn run(session: &Session) -> anyhow::Result<Exit> {
    let app = session.open("warn").await?;
    let now = machine_time();
    let mut rows = Vec::new();
    for job in app.config.jobs.values() {
        rows.push(Row::new(&app, job, now).await?);
    }
    let destinations = Known::all(&app).await?;
    let open = replays::open_ones(&app).await?;
    app.store.close().await;
    let jobs: Vec<Value> = rows.iter().map(Row::json).collect();
    let told: Vec<Value> = destinations.iter().map(Known::json).collect();
    let replayed: Vec<Value> = open
        .iter()
        .map(|task| replay::answer::told(task, app.config.jobs.get(&task.job).map(AsRef::as_ref)))
        .collect();
    session.answer(&json!({"jobs": jobs, "destinations": told, "replays": replayed}), || {
        let jobs = table::table(
            ["job", "last run", "status", "complete through", "lag", "pending", "dead", "next run"],
            rows.iter().map(Row::cells),
        );
        let replays = open.iter().map(|task| replays::in_a_line(&app, task));
        let trouble = destinations.iter().filter_map(Known::trouble).chain(replays);
        let asked = rows.iter().filter_map(Row::asked);
        let told: Vec<String> = asked.chain(rows.iter().flat_map(Row::trouble)).chain(trouble).collect();
        if told.is_empty() { jobs } else { format!("{jobs}\n\n{}", told.join("\n")) }
    });
    Ok(Exit::Good)
}

struct Row {
    job: String,
    view: Option<JobView>,
    watermark: Option<Value>,
    next: Option<Instant>,
    sweep: Option<SweepView>,
    lateness: Histogram,
    lookback: Duration,
    now: Instant,
    question: Option<Question>,
}

impl Row {
    async fn new(app: &App, job: &Job, now: Instant) -> anyhow::Result<Self> {
        let view = app.view_of(job).await?;
        let watermark = view.as_ref().and_then(|view| view.progress.as_ref()?.watermark);
        let last = view.as_ref().and_then(|view| view.row.last_fire);
        let next = match last {
            Some(last) => job.schedule.next(last),
            None if job.schedule.starts_at_once() => Some(now),
            None => job.schedule.next(now),
        };
        let watermark = watermark.map(|version| job.version_format().show(version));
        let (sweep, lateness) = match &view {
            Some(view) => (app.store.last_sweep(view.row.id).await?, app.store.lateness(view.row.id).await?),
            None => (None, Histogram::default()),
        };
        let question = view.as_ref().and_then(|view| edited(job, &view.row));
        let lookback = job.window.lookback;
        Ok(Self { job: job.name.clone(), view, watermark, next, sweep, lateness, lookback, now, question })
    }

    /// What it asks, because it was edited.
    fn asked(&self) -> Option<String> {
        self.question.as_ref().map(|question| format!("{}: {question}", self.job))
    }

    fn complete_through(&self) -> Option<Instant> {
        self.view.as_ref()?.progress.as_ref()?.complete_through
    }

    /// What a person should know of the job.
    fn trouble(&self) -> Vec<String> {
        let asks = self.sweep.as_ref().and_then(|sweep| sweep::asks(&self.job, sweep));
        let late = self.lateness.advice(self.lookback).map(|advice| format!("{}: {advice}", self.job));
        asks.into_iter().chain(late).collect()
    }

    fn count(&self, of: impl Fn(&JobView) -> u64) -> u64 {
        self.view.as_ref().map_or(0, of)
    }

    fn json(&self) -> Value {
        let run = self.view.as_ref().and_then(|view| view.last_run.as_ref());
        json!({
            "job": self.job, "last_run": run, "watermark": self.watermark,
            "complete_through": self.complete_through(),
            "lag_seconds": self.complete_through().map(|through| self.now.since(through).as_secs()),
            "pending": self.count(|view| view.pending), "delivered": self.count(|view| view.delivered),
            "dead": self.count(|view| view.dead), "quarantined": self.count(|view| view.quarantined),
            "next_run": self.next, "sweep": self.sweep.as_ref().map(sweep::shown),
            "lateness": lateness::shown(&self.lateness, self.lookback),
            "edited": self.question.as_ref().map(|question| &question.edited),
        })
    }

    fn cells(&self) -> [String; 8] {
        let run = self.view.as_ref().and_then(|view| view.last_run.as_ref());
        let whole = table::to_the_second;
        let lag = self.complete_through().map(|through| {
            let seconds = Duration::from_secs(self.now.since(through).as_secs());
            format_duration(seconds)
        });
        [
            self.job.clone(),
            table::or_dash(run.map(|run| whole(run.started_at))),
            match (&self.question, run) {
                (Some(_), _) => RunStatus::Asks.name().to_owned(),
                (None, Some(run)) => run.status.name().to_owned(),
                (None, None) => "never ran".to_owned(),
            },
            table::or_dash(self.complete_through().map(whole)),
            table::or_dash(lag),
            self.count(|view| view.pending).to_string(),
            self.count(|view| view.dead).to_string(),
            table::or_dash(self.next.map(whole)),
        ]
    }
}
