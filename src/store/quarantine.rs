//! Records that could not be read: kept once for each text, until a person settles them or the same text is
//! read after all. A text that was passed over stays, so that it is not listed anew when it comes again.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    JobId, JobLease, PageCommit, QuarantineView, QuarantinedRecord, RunId, StoreError,
    dialect::{Dialect, sql, without_nul},
    job, page, rows,
    run::WHOLE,
};
use crate::domain::{
    content::Hash,
    instant::Instant,
    page::{SeenRecord, Silence},
    run::Counts,
};

/// Keeps the records of a page that could not be read, one row for each text: a broken record that comes
/// back with every poll adds nothing but its count.
pub(super) async fn insert<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    page: &PageCommit,
) -> Result<(), StoreError> {
    let place = Place {
        job: lease.job,
        run: page.run.0,
        asked_at: page.rules.asked_at,
        answered_at: page.rules.answered_at,
        in_baseline: page.rules.silence != Silence::Never,
    };
    keep::<DB>(db, &place, &page.quarantined).await
}

/// Where records that could not be read came from.
pub(super) struct Place {
    pub(super) job: JobId,
    /// 0 for what nobody asked for.
    pub(super) run: i64,
    pub(super) asked_at: Instant,
    pub(super) answered_at: Instant,
    pub(super) in_baseline: bool,
}

/// Keeps records that could not be read.
pub(super) async fn keep<DB: Dialect>(
    db: &mut DB::Connection,
    place: &Place,
    records: &[QuarantinedRecord],
) -> Result<(), StoreError> {
    #[derive(Serialize)]
    struct Broken {
        raw_hash: String,
        raw: String,
        reason: String,
        unread_since: i64,
    }
    if records.is_empty() {
        return Ok(());
    }
    let broken = |record: &QuarantinedRecord| {
        let raw_hash = Hash::of(record.raw.as_bytes());
        let broken = Broken {
            raw_hash: raw_hash.hex(),
            raw: hex(record.raw.as_bytes()),
            reason: without_nul(&record.reason),
            unread_since: record.unread_since.micros(),
        };
        (raw_hash, broken)
    };
    // One of each, since no statement may write a row twice, and in one order, since others may write them too.
    let broken: BTreeMap<Hash, Broken> = records.iter().map(broken).collect();
    sql::<DB>(
        "INSERT INTO quarantine (job, partition, raw_hash, raw, reason, run, asked_at, answered_at,
                                 in_baseline, unread_since, first_seen_at, last_seen_at)
         SELECT $1, $2, {unhex}(new.value ->> 'raw_hash'{hex}), {unhex}(new.value ->> 'raw'{hex}),
                new.value ->> 'reason', $4, $5, $6, $7, CAST(new.value ->> 'unread_since' AS BIGINT), {now}, {now}
         FROM {each}($3{json}) AS new WHERE TRUE
         ON CONFLICT (job, partition, raw_hash) DO UPDATE SET
            reason = excluded.reason, run = excluded.run, asked_at = excluded.asked_at,
            answered_at = excluded.answered_at, last_seen_at = excluded.last_seen_at,
            times = quarantine.times + 1",
    )
    .bind(place.job.0)
    .text(WHOLE)
    .bind(serde_json::to_string(&broken.into_values().collect::<Vec<_>>())?)
    .bind(place.run)
    .bind(place.asked_at.micros())
    .bind(place.answered_at.micros())
    .bind(place.in_baseline)
    .run(db)
    .await?;
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Takes texts off the list that were read after all, as `records` of a page.
pub(super) async fn remove_read<DB: Dialect>(
    db: &mut DB::Connection,
    job: JobId,
    records: &[&SeenRecord],
) -> Result<(), StoreError> {
    if records.is_empty() {
        return Ok(());
    }
    let hashes: Vec<String> = records.iter().map(|record| record.fingerprint.hex()).collect();
    sql::<DB>(
        "DELETE FROM quarantine WHERE job = $1 AND partition = $2
            AND raw_hash IN (SELECT {unhex}(seen.value{hex}) FROM {each_text}($3{json}) AS seen)",
    )
    .bind(job.0)
    .text(WHOLE)
    .bind(serde_json::to_string(&hashes)?)
    .run(db)
    .await?;
    Ok(())
}

/// Since when the job has a record that is neither read nor passed over, by the source's clock.
pub(super) async fn unread_since<DB: Dialect>(
    db: &mut DB::Connection,
    job: JobId,
) -> Result<Option<Instant>, StoreError> {
    let row = sql::<DB>(
        "SELECT min(unread_since) AS unread_since FROM quarantine
         WHERE job = $1 AND partition = $2 AND skipped_at IS NULL",
    )
    .bind(job.0)
    .text(WHOLE)
    .one(db)
    .await?;
    rows::maybe_instant::<DB>(&row, "unread_since")
}

/// The job's list, oldest first, without the texts.
pub(super) async fn list<DB: Dialect>(
    db: &mut DB::Connection,
    job: JobId,
) -> Result<Vec<QuarantineView>, StoreError> {
    let rows = sql::<DB>(
        "SELECT raw_hash, reason, run, asked_at, answered_at, in_baseline, unread_since, times, first_seen_at,
                last_seen_at
         FROM quarantine WHERE job = $1 AND skipped_at IS NULL ORDER BY first_seen_at, raw_hash",
    )
    .bind(job.0)
    .all(db)
    .await?;
    rows.iter().map(view::<DB>).collect()
}

/// The text of a listed record.
pub(super) async fn text<DB: Dialect>(
    db: &mut DB::Connection,
    job: JobId,
    id: Hash,
) -> Result<Option<String>, StoreError> {
    let row = sql::<DB>(
        "SELECT raw FROM quarantine
         WHERE job = $1 AND partition = $2 AND raw_hash = {unhex}($3{hex}) AND skipped_at IS NULL",
    )
    .bind(job.0)
    .text(WHOLE)
    .bind(id.hex())
    .first(db)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let raw = rows::get::<DB, Option<Vec<u8>>>(&row, "raw")?.unwrap_or_default();
    String::from_utf8(raw).map(Some).map_err(|_| rows::unreadable("raw", id.hex()))
}

/// Decides a listed record, which is the only one of `page`, and takes it off the list, in the order of
/// locks that pages keep; `None` where it is not listed any more. A page without records only takes it off.
pub(super) async fn accept<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    id: Hash,
    page: &PageCommit,
) -> Result<Option<Counts>, StoreError> {
    job::hold::<DB>(db, lease).await?;
    if !remove::<DB>(db, lease.job, id).await? {
        return Ok(None);
    }
    page::decide::<DB>(db, lease, page, None).await.map(|decided| Some(decided.counts))
}

/// Takes a record off the list; `false` where it is not listed.
pub(super) async fn remove<DB: Dialect>(
    db: &mut DB::Connection,
    job: JobId,
    id: Hash,
) -> Result<bool, StoreError> {
    let taken = sql::<DB>(
        "DELETE FROM quarantine
         WHERE job = $1 AND partition = $2 AND raw_hash = {unhex}($3{hex}) AND skipped_at IS NULL",
    );
    Ok(taken.bind(job.0).text(WHOLE).bind(id.hex()).run(db).await? > 0)
}

/// Takes a record off the list for as long as its text stays the same; `false` where it is not listed.
pub(super) async fn skip<DB: Dialect>(
    db: &mut DB::Connection,
    job: JobId,
    id: Hash,
) -> Result<bool, StoreError> {
    let skipped = sql::<DB>(
        "UPDATE quarantine SET skipped_at = {now}
         WHERE job = $1 AND partition = $2 AND raw_hash = {unhex}($3{hex}) AND skipped_at IS NULL",
    )
    .bind(job.0)
    .text(WHOLE)
    .bind(id.hex())
    .run(db)
    .await?;
    Ok(skipped == 1)
}

fn view<DB: Dialect>(row: &DB::Row) -> Result<QuarantineView, StoreError> {
    let hash = rows::get::<DB, Option<Vec<u8>>>(row, "raw_hash")?.unwrap_or_default();
    Ok(QuarantineView {
        id: Hash::from_stored(&hash).ok_or_else(|| rows::unreadable("raw_hash", hash.len()))?,
        reason: rows::get::<DB, _>(row, "reason")?,
        run: RunId(rows::get::<DB, _>(row, "run")?),
        asked_at: rows::instant::<DB>(row, "asked_at")?,
        answered_at: rows::instant::<DB>(row, "answered_at")?,
        in_baseline: rows::get::<DB, _>(row, "in_baseline")?,
        unread_since: rows::instant::<DB>(row, "unread_since")?,
        times: rows::count::<DB>(row, "times")?,
        first_seen_at: rows::instant::<DB>(row, "first_seen_at")?,
        last_seen_at: rows::instant::<DB>(row, "last_seen_at")?,
    })
}
