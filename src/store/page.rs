//! A page in one transaction: what differs is locked, decided and written together with its events and
//! the run's counts. The number of statements does not depend on the number of records.
//!
//! Order of locks: the job's row, then records in key order, then outbox heads in key order. Everyone who
//! writes records holds the job's row first, so that pages of one job take turns.

use std::collections::HashMap;

use serde::Serialize;

use super::{
    JobLease, PageCommit, PageOutcome, QuarantinedRecord, StoreError, account,
    dialect::{Dialect, sql, without_nul},
    job, outbox, rows,
    run::{self, WHOLE},
};
use crate::domain::{
    content::Hash,
    instant::Instant,
    key::RecordKey,
    page::{RecordWrite, SeenRecord, StoredRecord, decide_page, one_of_each_key},
    run::Counts,
};

/// Commits one page. `records` counts all that the page held, quarantined ones too, and is the sum of the
/// other counts but `events`; of two sightings of one key on the page the one that lost counts as unchanged.
pub(super) async fn commit<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    page: &PageCommit,
) -> Result<PageOutcome, StoreError> {
    job::hold::<DB>(db, lease).await?;
    let counts = Counts {
        quarantined: page.quarantined.len() as u64,
        records: (page.records.len() + page.quarantined.len()) as u64,
        ..decide::<DB>(db, lease, page).await?
    };
    quarantine::<DB>(db, lease, page).await?;
    run::count_page::<DB>(db, lease, page.run, page.number, page.requests, &counts).await?;
    Ok(PageOutcome { counts })
}

async fn decide<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    page: &PageCommit,
) -> Result<Counts, StoreError> {
    if page.records.is_empty() {
        return Ok(Counts::default());
    }
    let mut records = one_of_each_key(&page.records);
    let stored = lock_differing::<DB>(db, lease, &records).await?;
    records.retain(|record| stored.contains_key(&record.key));
    let known = stored.into_iter().filter_map(|(key, record)| Some((key, record?))).collect();

    let decision = decide_page(&records, &known, &page.rules, account::now::<DB>(db).await?)?;
    write_records::<DB>(db, lease, &decision.writes).await?;
    outbox::insert::<DB>(db, lease.job, &page.destination, &decision.events).await?;
    let passed_over = (page.records.len() - records.len()) as u64;
    Ok(Counts { unchanged: decision.counts.unchanged + passed_over, ..decision.counts })
}

/// The rows that have to be decided, locked; without a state where the key was not known before.
///
/// An unknown key gets a placeholder row, which only this transaction sees: with it there is a row to
/// lock, and of two transactions that meet a key first at one moment the second waits here and then finds
/// the first one's state. A key without a state is always written by its decision, so that no placeholder
/// stays.
async fn lock_differing<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    records: &[&SeenRecord],
) -> Result<HashMap<RecordKey, Option<StoredRecord>>, StoreError> {
    #[derive(Serialize)]
    struct Sighting<'a> {
        key: &'a str,
        fingerprint: String,
    }
    let sightings = records
        .iter()
        .map(|record| Sighting { key: record.key.as_str(), fingerprint: record.fingerprint.hex() });
    let page = serde_json::to_string(&sightings.collect::<Vec<_>>())?;

    sql::<DB>(
        "INSERT INTO record (job, partition, key, first_seen_at, changed_at)
         SELECT $1, $2, seen.value ->> 'key', {now}, {now} FROM {each}($3{json}) AS seen
         WHERE TRUE ORDER BY seen.value ->> 'key' COLLATE {bytewise}
         ON CONFLICT (job, partition, key) DO NOTHING",
    )
    .bind(lease.job.0)
    .text(WHOLE)
    .bind(page.clone())
    .run(db)
    .await?;
    // CROSS JOIN: SQLite reads the page first and looks each of its keys up.
    let rows = sql::<DB>(
        "SELECT record.key, record.version, record.hash, record.deleted, record.provisional,
                record.versionless, record.answered_at, record.sequence
         FROM {each}($3{json}) AS seen CROSS JOIN record
         WHERE record.job = $1 AND record.partition = $2 AND record.key = seen.value ->> 'key'
           AND (record.fingerprint IS NULL
                OR record.fingerprint <> {unhex}(seen.value ->> 'fingerprint'{hex})
                OR record.deleted IS NOT NULL OR record.provisional)
         ORDER BY record.key {for_update}",
    )
    .bind(lease.job.0)
    .text(WHOLE)
    .bind(page)
    .all(db)
    .await?;
    rows.iter().map(rows::record::<DB>).collect()
}

async fn write_records<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    writes: &[RecordWrite],
) -> Result<(), StoreError> {
    #[derive(Serialize)]
    struct Written<'a> {
        key: &'a str,
        version: Option<i64>,
        hash: String,
        fingerprint: String,
        deleted: Option<&'static str>,
        provisional: bool,
        versionless: bool,
        answered_at: i64,
        sequence: i64,
    }
    if writes.is_empty() {
        return Ok(());
    }
    let written = writes.iter().map(|write| Written {
        key: write.key.as_str(),
        version: write.state.version.map(|version| version.0),
        hash: write.state.hash.hex(),
        fingerprint: write.fingerprint.hex(),
        deleted: write.state.deleted.map(rows::deletion_name),
        provisional: write.state.provisional,
        versionless: write.state.versionless,
        answered_at: write.state.answered_at.micros(),
        sequence: write.sequence,
    });
    let count = sql::<DB>(
        "INSERT INTO record (job, partition, key, version, hash, fingerprint, deleted, provisional,
                             versionless, answered_at, sequence, first_seen_at, changed_at)
         SELECT $1, $2, new.value ->> 'key', CAST(new.value ->> 'version' AS BIGINT),
                {unhex}(new.value ->> 'hash'{hex}), {unhex}(new.value ->> 'fingerprint'{hex}),
                new.value ->> 'deleted', CAST(new.value ->> 'provisional' AS BOOLEAN),
                CAST(new.value ->> 'versionless' AS BOOLEAN), CAST(new.value ->> 'answered_at' AS BIGINT),
                CAST(new.value ->> 'sequence' AS BIGINT), {now}, {now}
         FROM {each}($3{json}) AS new WHERE TRUE
         ON CONFLICT (job, partition, key) DO UPDATE SET
            version = excluded.version, hash = excluded.hash, fingerprint = excluded.fingerprint,
            deleted = excluded.deleted, provisional = excluded.provisional,
            versionless = excluded.versionless, answered_at = excluded.answered_at,
            sequence = excluded.sequence, changed_at = excluded.changed_at",
    )
    .bind(lease.job.0)
    .text(WHOLE)
    .bind(serde_json::to_string(&written.collect::<Vec<_>>())?)
    .run(db)
    .await?;
    if count == writes.len() as u64 {
        Ok(())
    } else {
        Err(StoreError::Inconsistent(format!("{count} of {} records were written", writes.len())))
    }
}

/// Keeps the records that could not be read, one row for each text: a broken record that comes back with
/// every poll adds nothing but its count.
async fn quarantine<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    page: &PageCommit,
) -> Result<(), StoreError> {
    #[derive(Serialize)]
    struct Broken {
        raw_hash: String,
        raw: String,
        reason: String,
    }
    if page.quarantined.is_empty() {
        return Ok(());
    }
    let broken = |record: &QuarantinedRecord| {
        let raw_hash = Hash::of(record.raw.as_bytes());
        let raw = hex(record.raw.as_bytes());
        (raw_hash, Broken { raw_hash: raw_hash.hex(), raw, reason: without_nul(&record.reason) })
    };
    // One of each, since no statement may write a row twice.
    let broken: HashMap<Hash, Broken> = page.quarantined.iter().map(broken).collect();
    sql::<DB>(
        "INSERT INTO quarantine (job, partition, raw_hash, raw, reason, run, asked_at, answered_at,
                                 first_seen_at, last_seen_at)
         SELECT $1, $2, {unhex}(new.value ->> 'raw_hash'{hex}), {unhex}(new.value ->> 'raw'{hex}),
                new.value ->> 'reason', $4, $5, $6, {now}, {now}
         FROM {each}($3{json}) AS new WHERE TRUE
         ON CONFLICT (job, partition, raw_hash) DO UPDATE SET
            reason = excluded.reason, run = excluded.run, asked_at = excluded.asked_at,
            answered_at = excluded.answered_at, last_seen_at = excluded.last_seen_at,
            times = quarantine.times + 1",
    )
    .bind(lease.job.0)
    .text(WHOLE)
    .bind(serde_json::to_string(&broken.into_values().collect::<Vec<_>>())?)
    .bind(page.run.0)
    .bind(Instant::micros(page.rules.asked_at))
    .bind(Instant::micros(page.rules.answered_at))
    .run(db)
    .await?;
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
