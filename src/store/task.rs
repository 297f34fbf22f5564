//! Tasks: walks beside the live one, each with a lease and a progress of its own, so that a task and the live run of its
//! job never wait for each other's source.
//!
//! A page of a task is committed under the task's row as a live page is under the job's; what both decide at once is put
//! in order by the records themselves, which every page locks by key.

use std::time::Duration;

use super::{
    JobId, JobLease, Opened, Progress, RunEnd, StoreError, TaskView,
    dialect::{Dialect, sql, without_nul},
    rows,
    run::signed,
    sweep,
};
use crate::domain::{
    bookmark::Bookmark,
    instant::micros_of,
    run::RunStatus,
    task::{Plan, TaskId, TaskKind, TaskState},
    version::Version,
};

/// The open task of this plan, begun anew where there is none that could go on; another one of its kind is in the way
/// while it is open.
pub(super) async fn open<DB: Dialect>(
    db: &mut DB::Connection,
    job: JobId,
    kind: TaskKind,
    plan: &Plan,
) -> Result<Opened, StoreError> {
    let text = serde_json::to_string(plan)?;
    // Who opens tasks of a job takes turns.
    sql::<DB>("SELECT id FROM job WHERE id = $1 {for_update}").bind(job.0).one(db).await?;
    let latest = sql::<DB>(
        "SELECT id, state, plan FROM task WHERE job = $1 AND kind = $2 AND (state = 'open' OR (state = 'failed' AND plan = $3))
         ORDER BY state = 'open' DESC, id DESC LIMIT 1",
    )
    .bind(job.0)
    .text(kind.name())
    .text(&text)
    .first(db)
    .await?;
    let Some(row) = latest else {
        let row = sql::<DB>(
            "INSERT INTO task (job, uid, kind, plan, created_at) VALUES ($1, {uid}, $2, $3, {now}) RETURNING id",
        )
        .bind(job.0)
        .text(kind.name())
        .text(&text)
        .one(db)
        .await?;
        return Ok(Opened::New(TaskId(rows::get::<DB, _>(&row, "id")?)));
    };
    let id = TaskId(rows::get::<DB, _>(&row, "id")?);
    let (state, known) = (rows::get::<DB, String>(&row, "state")?, rows::get::<DB, String>(&row, "plan")?);
    if known != text {
        return Ok(Opened::Another(id));
    }
    if state == TaskState::Failed.name() {
        sql::<DB>("UPDATE task SET state = 'open', failures = 0, ended_at = NULL WHERE id = $1")
            .bind(id.0)
            .run(db)
            .await?;
    }
    Ok(Opened::GoesOn(id))
}

/// Ends a task that nobody wants any more, for a reason or on a person's word; `false` where it has ended already.
pub(super) async fn cancel<DB: Dialect>(
    db: &mut DB::Connection,
    id: TaskId,
    reason: Option<&str>,
) -> Result<bool, StoreError> {
    let cancelled = sql::<DB>(
        "UPDATE task SET state = 'cancelled', ended_at = {now}, bookmark = NULL, reason = COALESCE($2, reason)
         WHERE id = $1 AND state IN ('open', 'failed')",
    )
    .bind(id.0)
    .bind(reason.map(without_nul))
    .run(db)
    .await?;
    cut_off_runs::<DB>(db, id, reason.unwrap_or("cancelled")).await?;
    Ok(cancelled == 1)
}

/// Ends the runs of a task that has ended: nobody goes on with them.
pub(super) async fn cut_off_runs<DB: Dialect>(
    db: &mut DB::Connection,
    id: TaskId,
    reason: &str,
) -> Result<(), StoreError> {
    sql::<DB>(
        "UPDATE run SET status = $2, reason = $3, ended_at = {now} WHERE task = $1 AND status = 'running'",
    )
    .bind(id.0)
    .text(RunStatus::Interrupted.name())
    .text(&without_nul(reason))
    .run(db)
    .await?;
    Ok(())
}

/// Locks every row under which a page of the job is committed: its own, then those of its open tasks by number. Whoever
/// holds two of these rows holds that of the job first.
pub(super) async fn lock_walks<DB: Dialect>(db: &mut DB::Connection, job: JobId) -> Result<(), StoreError> {
    sql::<DB>("SELECT id FROM job WHERE id = $1 {for_update}").bind(job.0).first(db).await?;
    sql::<DB>("SELECT id FROM task WHERE job = $1 AND state = 'open' ORDER BY id {for_update}")
        .bind(job.0)
        .all(db)
        .await?;
    Ok(())
}

/// Ends all tasks of a job whose state is forgotten, also those that could be begun again. Whoever works on one has lost
/// it. The job's row must be held.
pub(super) async fn cancel_all<DB: Dialect>(db: &mut DB::Connection, job: JobId) -> Result<u64, StoreError> {
    let open = sql::<DB>(
        "SELECT id FROM task WHERE job = $1 AND state IN ('open', 'failed') ORDER BY id {for_update}",
    )
    .bind(job.0)
    .all(db)
    .await?;
    let ids = open.iter().map(|row| rows::get::<DB, i64>(row, "id")).collect::<Result<Vec<_>, _>>()?;
    let mut cancelled = 0;
    for id in ids {
        sql::<DB>(
            "UPDATE task SET lease_epoch = lease_epoch + 1, lease_owner = NULL, lease_until = NULL WHERE id = $1",
        )
        .bind(id)
        .run(db)
        .await?;
        cancelled += u64::from(cancel::<DB>(db, TaskId(id), None).await?);
    }
    Ok(cancelled)
}

pub(super) async fn lease<DB: Dialect>(
    db: &mut DB::Connection,
    id: TaskId,
    owner: &str,
    ttl: Duration,
) -> Result<Option<JobLease>, StoreError> {
    let taken = sql::<DB>(
        "UPDATE task SET lease_owner = $2, lease_epoch = lease_epoch + 1, lease_until = {now} + $3
         WHERE id = $1 AND state = 'open' AND (lease_owner IS NULL OR lease_until <= {now})
         RETURNING job, lease_epoch",
    )
    .bind(id.0)
    .text(owner)
    .bind(micros_of(ttl))
    .first(db)
    .await?;
    taken
        .map(|row| {
            Ok(JobLease {
                job: JobId(rows::get::<DB, _>(&row, "job")?),
                task: Some(id),
                owner: owner.to_owned(),
                epoch: rows::get::<DB, i64>(&row, "lease_epoch")?,
            })
        })
        .transpose()
}

/// Locks the task's row until the transaction ends, and fails where the lease is another's by now or the task has ended.
pub(super) async fn hold<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    id: TaskId,
) -> Result<(), StoreError> {
    let held = sql::<DB>(
        "SELECT state FROM task WHERE id = $1 AND lease_epoch = $2 AND lease_owner = $3 {for_update}",
    )
    .bind(id.0)
    .bind(lease.epoch)
    .text(&lease.owner)
    .first(db)
    .await?;
    let row = held.ok_or(StoreError::LeaseLost)?;
    if rows::get::<DB, String>(&row, "state")? == TaskState::Open.name() {
        Ok(())
    } else {
        Err(StoreError::Ended)
    }
}

pub(super) async fn renew<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    id: TaskId,
    ttl: Duration,
) -> Result<bool, StoreError> {
    let renewed = sql::<DB>(
        "UPDATE task SET lease_until = {now} + $4
         WHERE id = $1 AND lease_epoch = $2 AND lease_owner = $3 AND state = 'open'",
    )
    .bind(id.0)
    .bind(lease.epoch)
    .text(&lease.owner)
    .bind(micros_of(ttl))
    .run(db)
    .await?;
    Ok(renewed == 1)
}

pub(super) async fn release<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    id: TaskId,
) -> Result<(), StoreError> {
    sql::<DB>(
        "UPDATE task SET lease_owner = NULL, lease_until = NULL
         WHERE id = $1 AND lease_epoch = $2 AND lease_owner = $3",
    )
    .bind(id.0)
    .bind(lease.epoch)
    .text(&lease.owner)
    .run(db)
    .await?;
    Ok(())
}

/// How far the task has read, in the words of a job's progress.
pub(super) async fn progress<DB: Dialect>(
    db: &mut DB::Connection,
    id: TaskId,
) -> Result<Progress, StoreError> {
    let row =
        sql::<DB>("SELECT read_to, bookmark, failures FROM task WHERE id = $1").bind(id.0).one(db).await?;
    Ok(Progress {
        watermark: rows::get::<DB, Option<i64>>(&row, "read_to")?.map(Version),
        bookmark: rows::json::<DB, _>(&row, "bookmark")?,
        failures: rows::number::<DB>(&row, "failures")?,
        ..Progress::default()
    })
}

/// Keeps where the walk stands. The task's row must be held.
pub(super) async fn keep_bookmark<DB: Dialect>(
    db: &mut DB::Connection,
    id: TaskId,
    bookmark: Option<&Bookmark>,
) -> Result<(), StoreError> {
    sql::<DB>("UPDATE task SET bookmark = $2 WHERE id = $1 AND bookmark IS DISTINCT FROM $2")
        .bind(id.0)
        .bind(bookmark.map(serde_json::to_string).transpose()?)
        .run(db)
        .await?;
    Ok(())
}

/// Takes in that the window is read up to a version. The task's row must be held.
pub(super) async fn advance<DB: Dialect>(
    db: &mut DB::Connection,
    id: TaskId,
    read_to: Option<Version>,
) -> Result<(), StoreError> {
    sql::<DB>(
        "UPDATE task SET failures = 0, bookmark = NULL,
            read_to = CASE WHEN read_to > $2 OR $2 IS NULL THEN read_to ELSE $2 END
         WHERE id = $1",
    )
    .bind(id.0)
    .bind(read_to.map(|Version(read_to)| read_to))
    .run(db)
    .await?;
    Ok(())
}

/// Takes in how a run of the task ended. The task's row must be held.
pub(super) async fn finish<DB: Dialect>(
    db: &mut DB::Connection,
    id: TaskId,
    end: &RunEnd,
) -> Result<(), StoreError> {
    let failures = progress::<DB>(db, id).await?.failures.saturating_add(u32::from(end.at_source));
    let state = match end.status {
        RunStatus::Ok => TaskState::Done,
        _ => TaskState::after_failures(failures),
    };
    if state == TaskState::Done {
        advance::<DB>(db, id, end.watermark).await?;
    }
    sql::<DB>(
        "UPDATE task SET state = $2, reason = $3, failures = $4, ended_at = CASE WHEN $2 = 'open' THEN NULL ELSE {now} END
         WHERE id = $1",
    )
    .bind(id.0)
    .text(state.name())
    .bind(end.reason.as_deref().map(without_nul))
    .bind(signed(if state == TaskState::Done { 0 } else { failures.into() }))
    .run(db)
    .await?;
    if state == TaskState::Done { sweep::was_read::<DB>(db, id).await } else { Ok(()) }
}

/// The open replays that nobody works on, the oldest first, with their jobs' names.
pub(super) async fn waiting<DB: Dialect>(
    db: &mut DB::Connection,
) -> Result<Vec<(TaskId, String)>, StoreError> {
    // The sign keeps SQLite to the index of open tasks.
    let rows = sql::<DB>(
        "SELECT task.id, job.name FROM task JOIN job ON job.id = task.job
         WHERE task.state = 'open' AND task.kind = 'replay' AND (task.lease_owner IS NULL OR task.lease_until <= {now}) ORDER BY +task.id",
    )
    .all(db)
    .await?;
    rows.iter()
        .map(|row| Ok((TaskId(rows::get::<DB, _>(row, "id")?), rows::get::<DB, _>(row, "name")?)))
        .collect()
}

/// What a person sees of tasks, newest last: of one, or of the newest `limit` of a kind.
pub(super) async fn views<DB: Dialect>(
    db: &mut DB::Connection,
    id: Option<TaskId>,
    kind: Option<TaskKind>,
    only_open: bool,
    limit: u32,
) -> Result<Vec<TaskView>, StoreError> {
    let rows = sql::<DB>(
        "SELECT task.id, task.uid, job.name, task.kind, task.plan, task.state, task.reason, task.read_to,
            task.failures, task.bookmark, task.created_at, task.ended_at, {now} AS now,
            (SELECT count(*) FROM event WHERE event.replay = task.id AND event.state = 'delivered') AS delivered,
            (SELECT count(*) FROM event WHERE event.replay = task.id AND event.state = 'pending') AS pending,
            (SELECT count(*) FROM event WHERE event.replay = task.id AND event.state = 'dead') AS dead,
            CASE WHEN task.lease_until > {now} THEN task.lease_owner ELSE NULL END AS lease_owner,
            task.lease_owner IS NOT NULL AND task.lease_until <= {now} AS is_left,
            count(run.id) AS runs,
            CAST(COALESCE(sum(run.requests), 0) AS BIGINT) AS requests,
            CAST(COALESCE(sum(run.pages), 0) AS BIGINT) AS pages,
            CAST(COALESCE(sum(run.records), 0) AS BIGINT) AS records,
            CAST(COALESCE(sum(run.created), 0) AS BIGINT) AS created,
            CAST(COALESCE(sum(run.updated), 0) AS BIGINT) AS updated,
            CAST(COALESCE(sum(run.deleted), 0) AS BIGINT) AS deleted,
            CAST(COALESCE(sum(run.restored), 0) AS BIGINT) AS restored,
            CAST(COALESCE(sum(run.unchanged), 0) AS BIGINT) AS unchanged,
            CAST(COALESCE(sum(run.stale), 0) AS BIGINT) AS stale,
            CAST(COALESCE(sum(run.conflicts), 0) AS BIGINT) AS conflicts,
            CAST(COALESCE(sum(run.quarantined), 0) AS BIGINT) AS quarantined,
            CAST(COALESCE(sum(run.skipped), 0) AS BIGINT) AS skipped,
            CAST(COALESCE(sum(run.below_floor), 0) AS BIGINT) AS below_floor,
            CAST(COALESCE(sum(run.events), 0) AS BIGINT) AS events
         FROM task JOIN job ON job.id = task.job LEFT JOIN run ON run.task = task.id
         WHERE ($1 IS NULL OR task.id = $1) AND (NOT $2 OR task.state = 'open') AND ($4 IS NULL OR task.kind = $4)
         GROUP BY task.id, job.name ORDER BY task.id DESC LIMIT $3",
    )
    .bind(id.map(|TaskId(id)| id))
    .bind(only_open)
    .bind(i64::from(limit))
    .bind(kind.map(|kind| kind.name().to_owned()))
    .all(db)
    .await?;
    rows.iter().rev().map(view::<DB>).collect()
}

fn view<DB: Dialect>(row: &DB::Row) -> Result<TaskView, StoreError> {
    let (kind, state): (String, String) =
        (rows::get::<DB, _>(row, "kind")?, rows::get::<DB, _>(row, "state")?);
    let bookmark: Option<Bookmark> = rows::json::<DB, _>(row, "bookmark")?;
    let (created_at, ended_at) =
        (rows::instant::<DB>(row, "created_at")?, rows::maybe_instant::<DB>(row, "ended_at")?);
    let until = ended_at.unwrap_or(rows::instant::<DB>(row, "now")?);
    Ok(TaskView {
        id: TaskId(rows::get::<DB, _>(row, "id")?),
        uid: rows::get::<DB, _>(row, "uid")?,
        job: rows::get::<DB, _>(row, "name")?,
        kind: TaskKind::from_name(&kind).ok_or_else(|| rows::unreadable("kind", &kind))?,
        plan: rows::json::<DB, _>(row, "plan")?.ok_or_else(|| rows::unreadable("plan", "no plan"))?,
        state: TaskState::from_name(&state).ok_or_else(|| rows::unreadable("state", &state))?,
        reason: rows::get::<DB, _>(row, "reason")?,
        read_to: rows::get::<DB, Option<i64>>(row, "read_to")?.map(Version),
        failures: rows::number::<DB>(row, "failures")?,
        reached: bookmark.and_then(|mark| mark.risen_to.or(mark.step.from)),
        created_at,
        ended_at,
        took: until.since(created_at),
        worker: rows::get::<DB, _>(row, "lease_owner")?,
        is_left: rows::get::<DB, _>(row, "is_left")?,
        runs: rows::count::<DB>(row, "runs")?,
        requests: rows::count::<DB>(row, "requests")?,
        pages: rows::count::<DB>(row, "pages")?,
        counts: rows::counts::<DB>(row)?,
        delivered: rows::count::<DB>(row, "delivered")?,
        pending: rows::count::<DB>(row, "pending")?,
        dead: rows::count::<DB>(row, "dead")?,
    })
}
