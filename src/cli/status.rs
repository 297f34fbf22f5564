//! `onlynew status`: every job at a glance, and the destinations that are not well.

use serde_json::{Value, json};

use super::{Exit, Session, outbox::destinations::Known, table};
use crate::{
    app::App,
    config::job::Job,
    domain::{
        clock::machine_time, identity::Question, instant::Instant, run::RunStatus, units::format_duration,
    },
    engine::edited,
    store::JobView,
};

pub(super) async fn run(session: &Session) -> anyhow::Result<Exit> {
    let app = session.open("warn").await?;
    let now = machine_time();
    let mut rows = Vec::new();
    for job in app.config.jobs.values() {
        rows.push(Row::new(&app, job, now).await?);
    }
    let destinations = Known::all(&app).await?;
    app.store.close().await;
    let jobs: Vec<Value> = rows.iter().map(Row::json).collect();
    let told: Vec<Value> = destinations.iter().map(Known::json).collect();
    session.answer(&json!({"jobs": jobs, "destinations": told}), || {
        let jobs = table::table(
            ["job", "last run", "status", "complete through", "lag", "pending", "dead", "next run"],
            rows.iter().map(Row::cells),
        );
        let trouble: Vec<String> = destinations.iter().filter_map(Known::trouble).collect();
        let asked = rows.iter().filter_map(Row::asked);
        let told: Vec<String> = asked.chain(trouble).collect();
        if told.is_empty() { jobs } else { format!("{jobs}\n\n{}", told.join("\n")) }
    });
    Ok(Exit::Good)
}

struct Row {
    job: String,
    view: Option<JobView>,
    watermark: Option<Value>,
    next: Option<Instant>,
    now: Instant,
    question: Option<Question>,
}

impl Row {
    async fn new(app: &App, job: &Job, now: Instant) -> anyhow::Result<Self> {
        let view = app.store.job_view(&job.name).await?;
        let watermark = view.as_ref().and_then(|view| view.progress.as_ref()?.watermark);
        let last = view.as_ref().and_then(|view| view.row.last_fire);
        let next = match last {
            Some(last) => job.schedule.next(last),
            None if job.schedule.starts_at_once() => Some(now),
            None => job.schedule.next(now),
        };
        let watermark = watermark.map(|version| job.version_format().show(version));
        let question = view.as_ref().and_then(|view| edited(job, &view.row));
        Ok(Self { job: job.name.clone(), view, watermark, next, now, question })
    }

    /// What it asks, because it was edited.
    fn asked(&self) -> Option<String> {
        self.question.as_ref().map(|question| format!("{}: {question}", self.job))
    }

    fn complete_through(&self) -> Option<Instant> {
        self.view.as_ref()?.progress.as_ref()?.complete_through
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
            "next_run": self.next, "edited": self.question.as_ref().map(|question| &question.edited),
        })
    }

    fn cells(&self) -> [String; 8] {
        let run = self.view.as_ref().and_then(|view| view.last_run.as_ref());
        let whole = table::to_the_second;
        let lag = self.complete_through().map(|through| {
            let seconds = std::time::Duration::from_secs(self.now.since(through).as_secs());
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
