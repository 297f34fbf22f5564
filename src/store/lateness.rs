//! How late records show up, counted by bucket in the transaction of the page that found them.

use serde::Serialize;

use super::{
    JobId, JobLease, StoreError,
    dialect::{Dialect, sql},
    rows,
    run::{WHOLE, signed},
    sweep,
};
use crate::domain::{
    instant::micros_of,
    lateness::{Histogram, Measure, Measured, Tally, measure},
    sighting::Sighting,
    version::Version,
};

/// Counts what a page found late. The row of the job or of the task must be held, and the page's records.
pub(super) async fn count<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    how: Measure,
    sightings: &[Sighting],
) -> Result<(), StoreError> {
    let watermark = match how {
        Measure::Live(_) => None,
        // A live run moves it only once it has stored what it read below, so that what is new here is not its own.
        Measure::Beside(_) => watermark::<DB>(db, lease.job).await?,
    };
    let measured = measure(sightings, how, watermark);
    add::<DB>(db, lease.job, &measured).await?;
    match lease.task {
        Some(task) if measured.missed > 0 => sweep::missed::<DB>(db, task, &measured).await,
        _ => Ok(()),
    }
}

async fn watermark<DB: Dialect>(db: &mut DB::Connection, job: JobId) -> Result<Option<Version>, StoreError> {
    let row = sql::<DB>("SELECT watermark FROM progress WHERE job = $1 AND partition = $2")
        .bind(job.0)
        .text(WHOLE)
        .first(db)
        .await?;
    Ok(row.map(|row| rows::get::<DB, Option<i64>>(&row, "watermark")).transpose()?.flatten().map(Version))
}

/// In the order of the buckets, so that two pages never wait for each other.
async fn add<DB: Dialect>(
    db: &mut DB::Connection,
    job: JobId,
    measured: &Measured,
) -> Result<(), StoreError> {
    #[derive(Serialize)]
    struct Added {
        bucket: usize,
        live: u64,
        missed: u64,
        longest: i64,
    }
    if measured.buckets.is_empty() {
        return Ok(());
    }
    let added = measured.buckets.iter().map(|(bucket, tally)| Added {
        bucket: *bucket,
        live: tally.live,
        missed: tally.missed,
        longest: micros_of(tally.longest),
    });
    sql::<DB>(
        "INSERT INTO lateness (job, bucket, live, missed, longest)
         SELECT $1, CAST(added.value ->> 'bucket' AS BIGINT), CAST(added.value ->> 'live' AS BIGINT),
                CAST(added.value ->> 'missed' AS BIGINT), CAST(added.value ->> 'longest' AS BIGINT)
         FROM {each}($2{json}) AS added WHERE TRUE ORDER BY 2
         ON CONFLICT (job, bucket) DO UPDATE SET
            live = lateness.live + excluded.live, missed = lateness.missed + excluded.missed,
            longest = CASE WHEN lateness.longest > excluded.longest THEN lateness.longest ELSE excluded.longest END",
    )
    .bind(job.0)
    .bind(serde_json::to_string(&added.collect::<Vec<_>>())?)
    .run(db)
    .await?;
    Ok(())
}

/// All that is known of a job.
pub(super) async fn histogram<DB: Dialect>(
    db: &mut DB::Connection,
    job: JobId,
) -> Result<Histogram, StoreError> {
    let rows = sql::<DB>("SELECT bucket, live, missed, longest FROM lateness WHERE job = $1 ORDER BY bucket")
        .bind(job.0)
        .all(db)
        .await?;
    let bucket = |row: &DB::Row| -> Result<_, StoreError> {
        let bucket = usize::try_from(rows::count::<DB>(row, "bucket")?).unwrap_or(usize::MAX);
        let tally = Tally {
            live: rows::count::<DB>(row, "live")?,
            missed: rows::count::<DB>(row, "missed")?,
            longest: rows::duration::<DB>(row, "longest")?,
        };
        Ok((bucket, tally))
    };
    Ok(Histogram(rows.iter().map(bucket).collect::<Result<_, _>>()?))
}

/// What a sweep missed, in the numbers of the store.
pub(super) fn numbers(measured: &Measured) -> (i64, i64) {
    (signed(measured.missed), micros_of(measured.longest_missed))
}
