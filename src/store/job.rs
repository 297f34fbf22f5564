//! Jobs and the right to run them. A lease is a row's owner and epoch: whoever writes for a job locks that
//! row first and compares, so that a holder who was replaced can write nothing.

use std::time::Duration;

use super::{
    JobId, JobLease, JobRow, StoreError,
    dialect::{Dialect, sql},
    rows, task,
};
use crate::domain::instant::{Instant, micros_of};

/// Whether nothing is stored that an edit could give another meaning, as an expression over `job`.
macro_rules! is_blank {
    () => {
        "(NOT EXISTS (SELECT 1 FROM record WHERE record.job = job.id)
          AND NOT EXISTS (SELECT 1 FROM quarantine WHERE quarantine.job = job.id)
          AND NOT EXISTS (SELECT 1 FROM progress AS reached WHERE reached.job = job.id
             AND (reached.watermark IS NOT NULL OR reached.complete_through IS NOT NULL
                  OR reached.bookmark IS NOT NULL OR reached.sync_token IS NOT NULL))) AS is_blank"
    };
}

pub(super) use is_blank;

pub(super) async fn register<DB: Dialect>(
    db: &mut DB::Connection,
    name: &str,
    first_fire_after: Option<Instant>,
) -> Result<JobRow, StoreError> {
    if let Some(job) = find::<DB>(db, name).await? {
        return Ok(job);
    }
    // Where another process registers the job at this moment, its row is the one that is found.
    sql::<DB>("INSERT INTO job (name, uid, last_fire) VALUES ($1, {uid}, $2) ON CONFLICT (name) DO NOTHING")
        .text(name)
        .bind(first_fire_after.map(Instant::micros))
        .run(db)
        .await?;
    let job = find::<DB>(db, name).await?;
    job.ok_or_else(|| StoreError::Inconsistent(format!("the job {name} is gone")))
}

pub(super) async fn find<DB: Dialect>(
    db: &mut DB::Connection,
    name: &str,
) -> Result<Option<JobRow>, StoreError> {
    let row = sql::<DB>(concat!(
        "SELECT id, uid, last_fire, identity, ",
        is_blank!(),
        ", (SELECT status FROM run WHERE run.job = job.id AND run.task IS NULL ORDER BY id DESC LIMIT 1) AS status
         FROM job WHERE name = $1",
    ))
    .text(name)
    .first(db)
    .await?;
    row.map(|row| rows::job::<DB>(&row)).transpose()
}

/// Locks the row of the job, or of the task that is worked on, until the transaction ends, and fails where the lease is
/// another's by now. A lease that ran out and that nobody took over still holds.
pub(super) async fn hold<DB: Dialect>(db: &mut DB::Connection, lease: &JobLease) -> Result<(), StoreError> {
    if let Some(id) = lease.task {
        return task::hold::<DB>(db, lease, id).await;
    }
    let held =
        sql::<DB>("SELECT id FROM job WHERE id = $1 AND lease_epoch = $2 AND lease_owner = $3 {for_update}")
            .bind(lease.job.0)
            .bind(lease.epoch)
            .text(&lease.owner)
            .first(db)
            .await?;
    held.map(drop).ok_or(StoreError::LeaseLost)
}

pub(super) async fn record_fire<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    expected: Option<Instant>,
    fire: Instant,
) -> Result<bool, StoreError> {
    hold::<DB>(db, lease).await?;
    let moved =
        sql::<DB>("UPDATE job SET last_fire = $3 WHERE id = $1 AND last_fire IS NOT DISTINCT FROM $2")
            .bind(lease.job.0)
            .bind(expected.map(Instant::micros))
            .bind(fire.micros())
            .run(db)
            .await?;
    Ok(moved == 1)
}

pub(super) async fn lease<DB: Dialect>(
    db: &mut DB::Connection,
    job: JobId,
    owner: &str,
    ttl: Duration,
) -> Result<Option<JobLease>, StoreError> {
    let taken = sql::<DB>(
        "UPDATE job SET lease_owner = $2, lease_epoch = lease_epoch + 1, lease_until = {now} + $3
         WHERE id = $1 AND (lease_owner IS NULL OR lease_until <= {now})
         RETURNING lease_epoch",
    )
    .bind(job.0)
    .text(owner)
    .bind(micros_of(ttl))
    .first(db)
    .await?;
    taken
        .map(|row| {
            Ok(JobLease {
                job,
                task: None,
                owner: owner.to_owned(),
                epoch: rows::get::<DB, i64>(&row, "lease_epoch")?,
            })
        })
        .transpose()
}

pub(super) async fn renew<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    ttl: Duration,
) -> Result<bool, StoreError> {
    if let Some(id) = lease.task {
        return task::renew::<DB>(db, lease, id, ttl).await;
    }
    let renewed = sql::<DB>(
        "UPDATE job SET lease_until = {now} + $4 WHERE id = $1 AND lease_epoch = $2 AND lease_owner = $3",
    )
    .bind(lease.job.0)
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
) -> Result<(), StoreError> {
    if let Some(id) = lease.task {
        return task::release::<DB>(db, lease, id).await;
    }
    sql::<DB>(
        "UPDATE job SET lease_owner = NULL, lease_until = NULL
         WHERE id = $1 AND lease_epoch = $2 AND lease_owner = $3",
    )
    .bind(lease.job.0)
    .bind(lease.epoch)
    .text(&lease.owner)
    .run(db)
    .await?;
    Ok(())
}
