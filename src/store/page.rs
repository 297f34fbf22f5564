//! A page in one transaction: what differs is locked, decided and written together with its events and
//! the run's counts. The number of statements does not depend on the number of records.
//!
//! Order of locks: the row of the job, or of the task that the page is read for, then records in key order, then outbox
//! heads in key order. Live pages of one job take turns by its row; pages of tasks go beside them, and of two that meet the
//! same keys the second waits at the first of them. Why they never wait for each other: each inserts its new keys in key
//! order, and locks what it knew before, in key order too, only once that is done. Of the keys that the other has inserted
//! and not committed a page can hold none by then, since its own insert would have waited for them.

use std::collections::HashMap;

use serde::Serialize;

use super::{
    JobLease, PageCommit, PageOutcome, RunId, StoreError, account,
    dialect::{Dialect, sql},
    job, lateness, outbox, quarantine, rows,
    run::{self, WHOLE},
    sighting,
};
use crate::domain::{
    key::RecordKey,
    page::{RecordWrite, SeenRecord, StoredRecord, decide_page, one_of_each_key},
    run::Counts,
    sighting::Sighting,
};

/// Commits one page. `records` counts all that the page held, quarantined and skipped ones too, and is the sum of the
/// other counts but `events`; of two sightings of one key on the page the one that lost counts as unchanged.
pub(super) async fn commit<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    page: &PageCommit,
) -> Result<PageOutcome, StoreError> {
    job::hold::<DB>(db, lease).await?;
    let decided = decide::<DB>(db, lease, page, Some(page.run)).await?;
    let counts = Counts {
        quarantined: page.quarantined.len() as u64,
        skipped: page.skipped,
        records: (page.records.len() + page.quarantined.len()) as u64 + page.skipped,
        ..decided.counts
    };
    quarantine::insert::<DB>(db, lease, page).await?;
    run::count_page::<DB>(db, lease, page.run, page.number, page.requests, &counts).await?;
    if page.is_unmodified {
        run::mark_unmodified::<DB>(db, page.run).await?;
    }
    run::keep_bookmark::<DB>(db, lease, page.bookmark.as_ref(), page.is_unmodified).await?;
    Ok(PageOutcome { counts, ..decided })
}

/// Decides the records of a page, of `run` where one has just read it, and writes what follows. The job's row must be
/// held.
pub(super) async fn decide<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    page: &PageCommit,
    run: Option<RunId>,
) -> Result<PageOutcome, StoreError> {
    if page.records.is_empty() {
        return Ok(PageOutcome::default());
    }
    let (mut records, outdone) = one_of_each_key(&page.records, page.rules.is_feed);
    let stored = lock_differing::<DB>(db, lease, &records).await?;
    // The first sighting of a key is found at once, and says little where the bytes are known: the others come before.
    let mut sightings: Vec<Sighting> =
        outdone.iter().map(|record| Sighting::outdone(&record.key, record.version)).collect();
    records.retain(|record| {
        let differs = stored.contains_key(&record.key);
        if !differs {
            sightings.push(Sighting::known(&record.key));
        }
        differs
    });
    let known = stored.into_iter().filter_map(|(key, record)| Some((key, record?))).collect();

    let decision = decide_page(&records, &known, &page.rules, run, account::now::<DB>(db).await?)?;
    // Before the events that follow, so that it is also told before them.
    if let Some(measure) = page.measure.filter(|_| decision.counts.has_changes()) {
        lateness::count::<DB>(db, lease, measure, &decision.sightings).await?;
    }
    sightings.extend(decision.sightings);
    sighting::insert::<DB>(db, lease, page, &sightings).await?;
    write_records::<DB>(db, lease, &decision.writes).await?;
    outbox::insert::<DB>(db, lease.job, page, &decision.events).await?;
    quarantine::remove_read::<DB>(db, lease.job, &records).await?;
    let passed_over = (page.records.len() - records.len()) as u64;
    let counts = Counts { unchanged: decision.counts.unchanged + passed_over, ..decision.counts };
    Ok(PageOutcome { counts, conflict: decision.conflict, stale_reads: decision.stale_reads })
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
    struct Row<'a> {
        key: &'a str,
        fingerprint: String,
    }
    let page =
        records.iter().map(|record| Row { key: record.key.as_str(), fingerprint: record.fingerprint.hex() });
    let page = serde_json::to_string(&page.collect::<Vec<_>>())?;

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
                record.versionless, record.answered_at, record.hash_run, record.sequence
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
        hash_run: Option<i64>,
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
        hash_run: write.state.hash_run.map(|run| run.0),
        sequence: write.sequence,
    });
    let count = sql::<DB>(
        "INSERT INTO record (job, partition, key, version, hash, fingerprint, deleted, provisional,
                             versionless, answered_at, hash_run, sequence, first_seen_at, changed_at)
         SELECT $1, $2, new.value ->> 'key', CAST(new.value ->> 'version' AS BIGINT),
                {unhex}(new.value ->> 'hash'{hex}), {unhex}(new.value ->> 'fingerprint'{hex}),
                new.value ->> 'deleted', CAST(new.value ->> 'provisional' AS BOOLEAN),
                CAST(new.value ->> 'versionless' AS BOOLEAN), CAST(new.value ->> 'answered_at' AS BIGINT),
                CAST(new.value ->> 'hash_run' AS BIGINT), CAST(new.value ->> 'sequence' AS BIGINT), {now}, {now}
         FROM {each}($3{json}) AS new WHERE TRUE
         ON CONFLICT (job, partition, key) DO UPDATE SET
            version = excluded.version, hash = excluded.hash, fingerprint = excluded.fingerprint,
            deleted = excluded.deleted, provisional = excluded.provisional,
            versionless = excluded.versionless, answered_at = excluded.answered_at,
            hash_run = excluded.hash_run, sequence = excluded.sequence, changed_at = excluded.changed_at",
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
