//! Runs and what they move: the watermark, the instant of completeness and the baseline. Everything here
//! is written under the job's lease, in the transaction that checked it.

use super::{
    JobLease, NewRun, Progress, RunEnd, RunId, StoreError,
    dialect::{Dialect, sql},
    job, quarantine, rows, sighting, task,
};
use crate::domain::{
    bookmark::Bookmark,
    coverage::Covered,
    instant::Instant,
    run::{Counts, RunStatus},
    sync_token::{PageTag, SyncToken},
    task::TaskId,
    version::Version,
};

/// The one partition of a job that is not divided.
pub(super) const WHOLE: &str = "";

pub(super) async fn open_progress<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    baseline: bool,
) -> Result<Progress, StoreError> {
    job::hold::<DB>(db, lease).await?;
    if let Some(id) = lease.task {
        return task::progress::<DB>(db, id).await;
    }
    sql::<DB>(
        "INSERT INTO progress (job, partition, baseline_open) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
    )
    .bind(lease.job.0)
    .text(WHOLE)
    .bind(baseline)
    .run(db)
    .await?;
    progress::<DB>(db, lease).await
}

pub(super) async fn fix_baseline<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    at: Instant,
) -> Result<Instant, StoreError> {
    job::hold::<DB>(db, lease).await?;
    sql::<DB>(
        "UPDATE progress SET baseline_at = $3 WHERE job = $1 AND partition = $2 AND baseline_at IS NULL",
    )
    .bind(lease.job.0)
    .text(WHOLE)
    .bind(at.micros())
    .run(db)
    .await?;
    let fixed = progress::<DB>(db, lease).await?.baseline_at;
    fixed.ok_or_else(|| StoreError::Inconsistent("the baseline was not stored".to_owned()))
}

async fn progress<DB: Dialect>(db: &mut DB::Connection, lease: &JobLease) -> Result<Progress, StoreError> {
    let row = sql::<DB>(
        "SELECT watermark, complete_through, baseline_at, baseline_open, failures, bookmark, sync_token,
                page_tag, floor
         FROM progress
         WHERE job = $1 AND partition = $2",
    )
    .bind(lease.job.0)
    .text(WHOLE)
    .first(db)
    .await?
    .ok_or_else(|| StoreError::Inconsistent("the job has no progress yet".to_owned()))?;
    rows::progress::<DB>(&row)
}

pub(super) async fn start<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    run: NewRun,
) -> Result<RunId, StoreError> {
    job::hold::<DB>(db, lease).await?;
    sql::<DB>(
        "UPDATE run SET status = $2, reason = 'interrupted', ended_at = {now}
         WHERE job = $1 AND status = 'running' AND task IS NOT DISTINCT FROM $3",
    )
    .bind(lease.job.0)
    .text(RunStatus::Failed.name())
    .bind(lease.task.map(|TaskId(task)| task))
    .run(db)
    .await?;
    let row = sql::<DB>(
        "INSERT INTO run (job, task, kind, status, from_version, to_version, resumed, started_at)
         VALUES ($1, $6, $2, $3, $4, $7, $5, {now}) RETURNING id",
    )
    .bind(lease.job.0)
    .text(run.kind.name())
    .text(RunStatus::Running.name())
    .bind(run.from.map(|Version(from)| from))
    .bind(run.resumed)
    .bind(lease.task.map(|TaskId(task)| task))
    .bind(run.to.map(|Version(to)| to))
    .one(db)
    .await?;
    Ok(RunId(rows::get::<DB, _>(&row, "id")?))
}

/// Adds a page to its run. A page that was counted already (its commit's answer was lost, and it was
/// decided again) adds only what it changed this time.
pub(super) async fn count_page<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    run: RunId,
    number: u32,
    requests: u64,
    counts: &Counts,
) -> Result<(), StoreError> {
    let counted = sql::<DB>(
        "UPDATE run SET requests = $4,
            records = records + CASE WHEN pages < $3 THEN $5 ELSE 0 END,
            unchanged = unchanged + CASE WHEN pages < $3 THEN $6 ELSE 0 END,
            stale = stale + CASE WHEN pages < $3 THEN $7 ELSE 0 END,
            conflicts = conflicts + CASE WHEN pages < $3 THEN $15 ELSE 0 END,
            quarantined = quarantined + CASE WHEN pages < $3 THEN $8 ELSE 0 END,
            skipped = skipped + CASE WHEN pages < $3 THEN $14 ELSE 0 END,
            below_floor = below_floor + CASE WHEN pages < $3 THEN $16 ELSE 0 END,
            created = created + $9, updated = updated + $10, deleted = deleted + $11,
            restored = restored + $12, events = events + $13,
            pages = CASE WHEN pages < $3 THEN $3 ELSE pages END
         WHERE id = $1 AND job = $2 AND status = 'running'",
    )
    .bind(run.0)
    .bind(lease.job.0)
    .bind(i64::from(number))
    .bind(signed(requests))
    .bind(signed(counts.records))
    .bind(signed(counts.unchanged))
    .bind(signed(counts.stale))
    .bind(signed(counts.quarantined))
    .bind(signed(counts.created))
    .bind(signed(counts.updated))
    .bind(signed(counts.deleted))
    .bind(signed(counts.restored))
    .bind(signed(counts.events))
    .bind(signed(counts.skipped))
    .bind(signed(counts.conflicts))
    .bind(signed(counts.below_floor))
    .run(db)
    .await?;
    if counted == 1 { Ok(()) } else { Err(not_open(run)) }
}

/// Keeps that a page of the run told nothing of its keys.
pub(super) async fn mark_unmodified<DB: Dialect>(
    db: &mut DB::Connection,
    run: RunId,
) -> Result<(), StoreError> {
    sql::<DB>("UPDATE run SET unmodified = TRUE WHERE id = $1").bind(run.0).run(db).await?;
    Ok(())
}

/// Keeps where the walk stands, and the validator only behind a page that has not changed. The row of the
/// job or of the task must be held.
pub(super) async fn keep_bookmark<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    bookmark: Option<&Bookmark>,
    is_unmodified: bool,
) -> Result<(), StoreError> {
    if let Some(id) = lease.task {
        return task::keep_bookmark::<DB>(db, id, bookmark).await;
    }
    let text = bookmark.map(serde_json::to_string).transpose()?;
    sql::<DB>(
        "UPDATE progress SET bookmark = $3, page_tag = CASE WHEN $4 THEN page_tag ELSE NULL END
         WHERE job = $1 AND partition = $2
           AND (bookmark IS DISTINCT FROM $3 OR (page_tag IS NOT NULL AND NOT $4))",
    )
    .bind(lease.job.0)
    .text(WHOLE)
    .bind(text)
    .bind(is_unmodified)
    .run(db)
    .await?;
    Ok(())
}

pub(super) async fn finish<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    run: RunId,
    end: &RunEnd,
) -> Result<(), StoreError> {
    job::hold::<DB>(db, lease).await?;
    let closed = sql::<DB>(
        "UPDATE run SET status = $3, reason = $4, requests = $5, ended_at = {now}
         WHERE id = $1 AND job = $2 AND (status = 'running' OR status = $3)",
    )
    .bind(run.0)
    .bind(lease.job.0)
    .text(end.status.name())
    .bind(end.reason.as_deref().map(super::dialect::without_nul))
    .bind(signed(end.requests))
    .run(db)
    .await?;
    if closed != 1 {
        return Err(not_open(run));
    }
    if let Some(id) = lease.task {
        task::finish::<DB>(db, id, end).await?;
        let covered = end.covered.filter(|_| end.status == RunStatus::Ok);
        return sighting::cover::<DB>(db, lease, run, covered).await;
    }
    if let Some(token) = &end.sync_token {
        store_token::<DB>(db, lease, token).await?;
    }
    match end.status {
        RunStatus::Ok => {
            move_up::<DB>(db, lease, end.watermark, end.complete_through).await?;
            sighting::cover::<DB>(db, lease, run, end.covered).await?;
            keep_tag::<DB>(db, lease, end.page_tag.as_ref()).await
        }
        _ if end.at_source => {
            sql::<DB>("UPDATE progress SET failures = failures + 1 WHERE job = $1 AND partition = $2")
                .bind(lease.job.0)
                .text(WHOLE)
                .run(db)
                .await?;
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Keeps what the source gave to go on from.
pub(super) async fn keep_sync_token<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    token: &SyncToken,
) -> Result<(), StoreError> {
    job::hold::<DB>(db, lease).await?;
    store_token::<DB>(db, lease, token).await
}

async fn store_token<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    token: &SyncToken,
) -> Result<(), StoreError> {
    sql::<DB>("UPDATE progress SET sync_token = $3, bookmark = NULL WHERE job = $1 AND partition = $2")
        .bind(lease.job.0)
        .text(WHOLE)
        .bind(serde_json::to_string(token)?)
        .run(db)
        .await?;
    Ok(())
}

async fn keep_tag<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    tag: Option<&PageTag>,
) -> Result<(), StoreError> {
    sql::<DB>(
        "UPDATE progress SET page_tag = $3
         WHERE job = $1 AND partition = $2 AND page_tag IS DISTINCT FROM $3",
    )
    .bind(lease.job.0)
    .text(WHOLE)
    .bind(tag.map(serde_json::to_string).transpose()?)
    .run(db)
    .await?;
    Ok(())
}

/// Moves the watermark of a run that goes on.
pub(super) async fn advance<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    run: RunId,
    watermark: Option<Version>,
    covered: Option<Covered>,
) -> Result<(), StoreError> {
    job::hold::<DB>(db, lease).await?;
    let open = sql::<DB>("SELECT id FROM run WHERE id = $1 AND job = $2 AND status = 'running'")
        .bind(run.0)
        .bind(lease.job.0)
        .first(db)
        .await?;
    if open.is_none() {
        return Err(not_open(run));
    }
    match lease.task {
        Some(id) => task::advance::<DB>(db, id, watermark).await?,
        None => move_up::<DB>(db, lease, watermark, None).await?,
    }
    sighting::cover::<DB>(db, lease, run, covered).await
}

/// Neither ever moves back, whatever the caller computed it from.
async fn move_up<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    watermark: Option<Version>,
    complete_through: Option<Instant>,
) -> Result<(), StoreError> {
    // A record that could not be read may be older than anything the run has seen.
    let unread_since = quarantine::unread_since::<DB>(db, lease.job).await?;
    let complete_through = match (complete_through, unread_since) {
        (Some(through), Some(since)) => Some(through.min(since)),
        (through, _) => through,
    };
    sql::<DB>(
        "UPDATE progress SET failures = 0, bookmark = NULL,
            watermark = CASE WHEN watermark > $3 OR $3 IS NULL THEN watermark ELSE $3 END,
            complete_through =
                CASE WHEN complete_through > $4 OR $4 IS NULL THEN complete_through ELSE $4 END,
            baseline_open = baseline_open AND $4 IS NULL
         WHERE job = $1 AND partition = $2",
    )
    .bind(lease.job.0)
    .text(WHOLE)
    .bind(watermark.map(|Version(watermark)| watermark))
    .bind(complete_through.map(Instant::micros))
    .run(db)
    .await?;
    Ok(())
}

fn not_open(run: RunId) -> StoreError {
    StoreError::Inconsistent(format!("run {} is not open", run.0))
}

/// A count as both databases hold it.
pub(super) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
