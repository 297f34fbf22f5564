//! What a job's stored state rests on, its beginning anew under another identity, and its name.
//!
//! Order of locks of a new beginning: the job's row, then its tasks, then records. Whoever writes a page of a task holds
//! the task's row before any record, so that it has either committed before or cannot commit any more.

use super::{
    Begun, JobId, JobLease, Renamed, StoreError,
    dialect::{Dialect, sql, unhurried},
    job, rows,
    run::WHOLE,
    task,
};
use crate::domain::identity::Identity;

pub(super) async fn keep<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    identity: &Identity,
) -> Result<(), StoreError> {
    // A task's lease is another row, which is held after the job's.
    sql::<DB>("SELECT id FROM job WHERE id = $1 {for_update}").bind(lease.job.0).one(db).await?;
    job::hold::<DB>(db, lease).await?;
    sql::<DB>("UPDATE job SET identity = $2 WHERE id = $1")
        .bind(lease.job.0)
        .bind(serde_json::to_string(identity)?)
        .run(db)
        .await?;
    Ok(())
}

pub(super) async fn begin_anew<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    identity: &Identity,
    baseline: bool,
) -> Result<Begun, StoreError> {
    unhurried::<DB>(db).await?;
    job::hold::<DB>(db, lease).await?;
    let tasks = task::cancel_all::<DB>(db, lease.job).await?;
    let records = forget::<DB>(db, lease.job, "DELETE FROM record WHERE job = $1").await?;
    let quarantined = forget::<DB>(db, lease.job, "DELETE FROM quarantine WHERE job = $1").await?;
    // What was read to its end was read under the other identity.
    forget::<DB>(db, lease.job, "DELETE FROM covered WHERE job = $1").await?;
    forget::<DB>(db, lease.job, "DELETE FROM lateness WHERE job = $1").await?;
    forget::<DB>(db, lease.job, "DELETE FROM progress WHERE job = $1").await?;
    sql::<DB>("INSERT INTO progress (job, partition, baseline_open) VALUES ($1, $2, $3)")
        .bind(lease.job.0)
        .text(WHOLE)
        .bind(baseline)
        .run(db)
        .await?;
    sql::<DB>(
        "UPDATE job SET identity = $2, uid = {uid}, begun_behind = (SELECT COALESCE(max(position), 0) FROM event)
         WHERE id = $1",
    )
    .bind(lease.job.0)
    .bind(serde_json::to_string(identity)?)
    .run(db)
    .await?;
    Ok(Begun { records, quarantined, tasks })
}

async fn forget<DB: Dialect>(
    db: &mut DB::Connection,
    job: JobId,
    statement: &'static str,
) -> Result<u64, StoreError> {
    Ok(sql::<DB>(statement).bind(job.0).run(db).await?)
}

/// Gives the job called `from` the name `to`. `even_held` says whether also while somebody holds its lease.
pub(super) async fn rename<DB: Dialect>(
    db: &mut DB::Connection,
    from: &str,
    to: &str,
    even_held: bool,
) -> Result<Renamed, StoreError> {
    let found = sql::<DB>(
        "SELECT id, CASE WHEN lease_until > {now} THEN lease_owner ELSE NULL END AS lease_owner
         FROM job WHERE name = $1 {for_update}",
    )
    .text(from)
    .first(db)
    .await?;
    let Some(row) = found else { return Ok(Renamed::Unknown) };
    if job::find::<DB>(db, to).await?.is_some() {
        return Ok(Renamed::Taken);
    }
    if !even_held && rows::get::<DB, Option<String>>(&row, "lease_owner")?.is_some() {
        return Ok(Renamed::Held);
    }
    sql::<DB>("UPDATE job SET name = $2 WHERE id = $1")
        .bind(rows::get::<DB, i64>(&row, "id")?)
        .text(to)
        .run(db)
        .await?;
    Ok(Renamed::Done)
}
