//! `onlynew state lateness JOB`: how late changes of a job were found.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Exit, Session, bad_input, find_job, table};
use crate::domain::{
    lateness::{EVIDENCE, Histogram, bound_of},
    units::format_duration,
};

pub(super) async fn run(session: &Session, job: &str) -> anyhow::Result<Exit> {
    let app = session.open("warn").await?;
    let job = find_job(&app.config, job)?;
    let row = app.row_of(job).await?;
    let Some(row) = row else {
        return Err(bad_input(format!(
            "the job `{0}` has never run; `onlynew sync {0}` runs it once",
            job.name
        )));
    };
    let histogram = app.store.lateness(row.id).await?;
    app.store.close().await;
    let mut answer = shown(&histogram, job.window.lookback);
    if let Some(answer) = answer.as_object_mut() {
        answer.insert("job".to_owned(), json!(job.name));
        answer.insert("buckets".to_owned(), buckets(&histogram));
    }
    session.answer(&answer, || text(&histogram, job.window.lookback));
    Ok(Exit::Good)
}

/// What is known of late changes, for programs.
pub(super) fn shown(histogram: &Histogram, lookback: Duration) -> Value {
    json!({
        "changes": histogram.changes(), "needed": EVIDENCE,
        "p999_seconds": histogram.p999().map(|p999| p999.as_secs_f64()),
        "lookback_seconds": lookback.as_secs_f64(), "advice": histogram.advice(lookback),
    })
}

fn buckets(histogram: &Histogram) -> Value {
    let buckets = histogram.0.iter().map(|(bucket, tally)| {
        json!({
            "up_to_seconds": bound_of(*bucket).map(|bound| bound.as_secs()), "live": tally.live,
            "missed": tally.missed, "longest_seconds": tally.longest.as_secs_f64(),
        })
    });
    buckets.collect()
}

fn text(histogram: &Histogram, lookback: Duration) -> String {
    let rows = histogram.0.iter().map(|(bucket, tally)| {
        let bound = bound_of(*bucket).map_or_else(|| "more".to_owned(), format_duration);
        [bound, tally.live.to_string(), tally.missed.to_string(), format_duration(tally.longest)]
    });
    let told = match (histogram.advice(lookback), histogram.p999()) {
        (Some(advice), _) => advice,
        (None, Some(p999)) => {
            format!(
                "p99.9 lateness {} is within lookback {}",
                format_duration(p999),
                format_duration(lookback)
            )
        }
        (None, None) => {
            format!(
                "{} changes measured; {EVIDENCE} are needed to say what one in a thousand is",
                histogram.changes()
            )
        }
    };
    format!("{}\n\n{told}", table::table(["late by up to", "live", "missed", "longest"], rows))
}
