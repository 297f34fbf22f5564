//! What pages found of their keys, and what runs covered: one row a page and one a step, never one a record.

use super::{
    JobLease, PageCommit, RunId, StoreError,
    dialect::{Dialect, sql},
    run::WHOLE,
};
use crate::domain::{
    coverage::Covered,
    instant::Instant,
    sighting::{Sighting, encode},
    version::Version,
};

/// Keeps what a page found of its keys. Each commit leaves a row of its own, also of a page that is committed again:
/// the second time was a decision too, which found what the first had stored.
pub(super) async fn insert<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    page: &PageCommit,
    sightings: &[Sighting],
) -> Result<(), StoreError> {
    sql::<DB>(
        "INSERT INTO sighting (job, partition, run, page, asked_at, answered_at, decided_at, keys)
         VALUES ($1, $2, $3, $4, $5, $6, {now}, $7)",
    )
    .bind(lease.job.0)
    .text(WHOLE)
    .bind(page.run.0)
    .bind(i64::from(page.number))
    .bind(page.rules.asked_at.micros())
    .bind(page.rules.answered_at.micros())
    .bind(encode(sightings))
    .run(db)
    .await?;
    Ok(())
}

/// Keeps what a step of a run covered, once however often it is said. The job's row must be held.
pub(super) async fn cover<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    run: RunId,
    covered: Option<Covered>,
) -> Result<(), StoreError> {
    let Some(Covered { from, to, read_at }) = covered else { return Ok(()) };
    let version = |version: Option<Version>| version.map(|Version(version)| version);
    sql::<DB>(
        "INSERT INTO covered (job, partition, run, from_version, to_version, read_at)
         SELECT $1, $2, $3, $4, $5, $6 WHERE NOT EXISTS (
            SELECT 1 FROM covered AS told
            WHERE told.job = $1 AND told.run = $3 AND told.partition = $2
              AND told.from_version IS NOT DISTINCT FROM $4 AND told.to_version IS NOT DISTINCT FROM $5)",
    )
    .bind(lease.job.0)
    .text(WHOLE)
    .bind(run.0)
    .bind(version(from))
    .bind(version(to))
    .bind(Instant::micros(read_at))
    .run(db)
    .await?;
    Ok(())
}
