//! What a person sees of the jobs: one statement, so that its numbers belong to one moment.

use super::{
    JobView, RunView, StoreError,
    dialect::{Dialect, sql},
    job, rows,
    run::WHOLE,
};
use crate::domain::{instant::Instant, run::RunStatus};

/// The job called `name`, or all jobs by name.
pub(super) async fn jobs<DB: Dialect>(
    db: &mut DB::Connection,
    name: Option<&str>,
) -> Result<Vec<JobView>, StoreError> {
    let rows = sql::<DB>(concat!(
        "SELECT ",
        job::is_blank!(),
        ", job.name, job.id, job.uid, job.last_fire, job.identity, job.lease_owner, job.lease_until, {now} AS now,
            progress.watermark, progress.complete_through, progress.baseline_at, progress.baseline_open,
            progress.failures, progress.bookmark,
            progress.sync_token, progress.page_tag, progress.floor,
            (SELECT count(*) FROM record WHERE record.job = job.id) AS stored,
            (SELECT count(*) FROM quarantine WHERE quarantine.job = job.id AND quarantine.skipped_at IS NULL) AS broken,
            (SELECT count(*) FROM event WHERE event.job = job.id AND event.state = 'pending') AS pending,
            (SELECT count(*) FROM outbox_head WHERE outbox_head.job = job.id AND outbox_head.held) AS held,
            (SELECT count(*) FROM event WHERE event.job = job.id AND event.state = 'delivered') AS delivered,
            (SELECT count(*) FROM event WHERE event.job = job.id AND event.state = 'dead'
               AND NOT EXISTS (SELECT 1 FROM event AS later WHERE later.event_id = event.event_id
                               AND later.redelivery = event.redelivery + 1)) AS dead,
            (SELECT attempt.error FROM outbox_head JOIN attempt ON attempt.position = outbox_head.position
             WHERE outbox_head.job = job.id ORDER BY attempt.id DESC LIMIT 1) AS last_error,
            run.id AS run_id, run.kind, run.status, run.reason, run.resumed, run.started_at, run.ended_at, run.requests,
            run.pages, run.records, run.created, run.updated, run.deleted, run.restored, run.unchanged,
            run.stale, run.conflicts, run.quarantined, run.skipped, run.below_floor, run.events
         FROM job
         LEFT JOIN progress ON progress.job = job.id AND progress.partition = $2
         LEFT JOIN run ON run.id = (SELECT max(latest.id) FROM run AS latest WHERE latest.job = job.id AND latest.task IS NULL)
         WHERE $1 IS NULL OR job.name = $1
         ORDER BY job.name",
    ))
    .bind(name.map(super::dialect::without_nul))
    .text(WHOLE)
    .all(db)
    .await?;
    rows.iter().map(job_view::<DB>).collect()
}

fn job_view<DB: Dialect>(row: &DB::Row) -> Result<JobView, StoreError> {
    let progress = rows::get::<DB, Option<bool>>(row, "baseline_open")?
        .map(|_| rows::progress::<DB>(row))
        .transpose()?;
    let lease = lease::<DB>(row)?;
    let held = rows::count::<DB>(row, "held")?;
    Ok(JobView {
        name: rows::get::<DB, _>(row, "name")?,
        row: rows::job::<DB>(row)?,
        progress,
        records: rows::count::<DB>(row, "stored")?,
        quarantined: rows::count::<DB>(row, "broken")?,
        pending: rows::count::<DB>(row, "pending")?.saturating_sub(held),
        delivered: rows::count::<DB>(row, "delivered")?,
        dead: rows::count::<DB>(row, "dead")?.saturating_add(held),
        last_error: rows::get::<DB, _>(row, "last_error")?,
        last_run: last_run::<DB>(row, lease.is_some())?,
        lease,
    })
}

/// A lease that ran out is not held.
fn lease<DB: Dialect>(row: &DB::Row) -> Result<Option<(String, Instant)>, StoreError> {
    let owner = rows::get::<DB, Option<String>>(row, "lease_owner")?;
    let until = rows::maybe_instant::<DB>(row, "lease_until")?;
    let now = rows::instant::<DB>(row, "now")?;
    Ok(owner.zip(until).filter(|(_, until)| *until > now))
}

/// The last run. One that has no end and whose job nobody holds was cut off.
fn last_run<DB: Dialect>(row: &DB::Row, is_held: bool) -> Result<Option<RunView>, StoreError> {
    let run = rows::run::<DB>(row)?;
    Ok(run.map(|run| match run.status {
        RunStatus::Running if !is_held => RunView { status: RunStatus::Interrupted, ..run },
        _ => run,
    }))
}
