//! `onlynew plan JOB`: when a job fires and what its next run asks for, without asking it.

use clap::Args;
use serde_json::json;

use super::{Exit, Session, bad_input, find_job, table};
use crate::{
    domain::{clock::machine_time, instant::Instant, window::Step},
    engine::edited,
};

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub(super) struct Plan {
    /// The job's name in the jobs file.
    job: String,
    /// The moment to plan from, an RFC 3339 timestamp. Default: now.
    #[arg(long, value_name = "INSTANT")]
    at: Option<Instant>,
    /// How many fires to show.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    fires: u16,
}

impl Plan {
    pub(super) async fn run(&self, session: &Session) -> anyhow::Result<Exit> {
        let app = session.open("warn").await?;
        let job = find_job(&app.config, &self.job)?;
        let at = self.at.unwrap_or_else(machine_time);
        let fires: Vec<Instant> =
            std::iter::successors(job.schedule.next(at), |last| job.schedule.next(*last))
                .take(self.fires.into())
                .collect();
        if fires.is_empty() {
            return Err(bad_input(format!("the job `{}` never fires after {at}", self.job)));
        }
        let view = app.view_of(job).await?;
        app.store.close().await;
        let question = view.as_ref().and_then(|view| edited(job, &view.row));
        let progress = view.and_then(|view| view.progress).unwrap_or_default();
        let watermark = progress.watermark;
        let floor = progress.floor.filter(|_| job.forgets_keys());
        let show = |version| job.version_format().show(version);
        let by_token = job.stream.sync.is_some();
        let token_of = progress.sync_token.filter(|_| by_token).map(|token| token.given_at);
        let versioned = job.stream.incremental.is_some() && !by_token;
        let step = Step { from: job.window.from_floor(watermark, floor), to: None };
        let from = job.window.bounds(step).start.filter(|_| versioned).map(show);
        let to = job.window.hi(at).filter(|_| versioned).map(show);
        let answer = json!({
            "job": job.name, "at": at, "fires": fires, "window": {"from": from, "to": to},
            "token_given_at": token_of,
            "watermark": watermark.map(show), "destination": job.destination.name,
            "edited": question.as_ref().map(|question| &question.edited),
        });
        session.answer(&answer, || {
            let bound = |bound: Option<serde_json::Value>| match bound {
                Some(serde_json::Value::String(text)) => text,
                Some(other) => other.to_string(),
                None => "-".to_owned(),
            };
            let fires: Vec<String> = fires.iter().map(ToString::to_string).collect();
            let lowest = match token_of {
                Some(given_at) => format!("what the source gave to go on from at {given_at}"),
                None if versioned || by_token => "none: everything".to_owned(),
                None => "none: this stream has no versions, each run is a full walk".to_owned(),
            };
            let plan = table::pairs([
                ("job", job.name.clone()),
                ("fires", fires.join("\n")),
                ("from", from.clone().map_or(lowest, |from| bound(Some(from)))),
                ("to", bound(to.clone())),
                ("watermark", bound(watermark.map(show))),
                ("destination", job.destination.name.clone()),
            ]);
            question.map_or_else(|| plan.clone(), |question| format!("{plan}\n\n{question}"))
        });
        Ok(Exit::Good)
    }
}
