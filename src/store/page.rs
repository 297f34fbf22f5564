//! A page in one transaction: what differs is locked, decided and written together with its events and
//! the run's counts. The number of statements does not depend on the number of records.
//!
//! Order of locks: the row of the job, or of the task that the page is read for, then records in key order, then outbox
//! heads in key order. Live pages of one job take turns by its row; pages of tasks go beside them, and of two that meet the
//! same keys the second waits at the first of them. Why they never wait for each other: each inserts its new keys in key
//! order, and locks what it knew before, in key order too, only once that is done. Of the keys that the other has inserted
//! and not committed a page can hold none by then, since its own insert would have waited for them.

use std::collections::{HashMap, HashSet};

use serde::Serialize;

use super::{
    JobLease, PageCommit, PageOutcome, RunId, StoreError, account,
    dialect::{Dialect, sql},
    floor, job, lateness, outbox, quarantine, rows,
    run::{self, WHOLE},
    sighting,
};
use crate::domain::{
    content::Hash,
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
    let counts = whole_counts(page, &decided);
    quarantine::insert::<DB>(db, lease, page).await?;
    run::count_page::<DB>(db, lease, page.run, page.number, page.requests, &counts).await?;
    if page.is_unmodified {
        run::mark_unmodified::<DB>(db, page.run).await?;
    }
    run::keep_bookmark::<DB>(db, lease, page.bookmark.as_ref(), page.is_unmodified).await?;
    Ok(PageOutcome { counts, ..decided })
}

/// What committing a page would answer. The transaction must be undone.
pub(super) async fn preview<DB: Dialect>(
    db: &mut DB::Connection,
    name: &str,
    page: &PageCommit,
) -> Result<PageOutcome, StoreError> {
    let job = job::register::<DB>(db, name, None).await?.id;
    // Nothing stays, so that it does not matter who holds the job.
    let nobody = JobLease { job, task: None, owner: String::new(), epoch: 0 };
    let decided = decide::<DB>(db, &nobody, page, None).await?;
    Ok(PageOutcome { counts: whole_counts(page, &decided), ..decided })
}

fn whole_counts(page: &PageCommit, decided: &PageOutcome) -> Counts {
    Counts {
        quarantined: page.quarantined.len() as u64,
        skipped: page.skipped,
        records: (page.records.len() + page.quarantined.len()) as u64 + page.skipped,
        ..decided.counts
    }
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
    let rules = floor::under::<DB>(db, lease, &page.rules).await?;
    let barred = floor::barred::<DB>(db, lease, &rules, &records).await?;
    let resends = page.rules.replay.as_ref().filter(|replay| replay.resends);
    let stored = lock_differing::<DB>(db, lease, &records, &barred, resends.is_some()).await?;
    // The first sighting of a key is found at once, and says little where the bytes are known: the others come before.
    let mut sightings: Vec<Sighting> =
        outdone.iter().map(|record| Sighting::outdone(&record.key, record.version)).collect();
    records.retain(|record| {
        let is_decided = stored.contains_key(&record.key) || barred.contains(&record.key);
        if !is_decided {
            sightings.push(Sighting::known(&record.key));
        }
        is_decided
    });
    let known = stored.into_iter().filter_map(|(key, record)| Some((key, record?))).collect();
    let sent = match resends {
        Some(replay) => outbox::sent_by::<DB>(db, replay.task, &records).await?,
        None => HashMap::new(),
    };

    let decision = decide_page(&records, &known, &sent, &rules, run, account::now::<DB>(db).await?)?;
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

/// The rows that have to be decided, locked; without a state where the key was not known before. Where the page is
/// `whole`, those whose bytes are known are among them.
///
/// An unknown key gets a placeholder row, which only this transaction sees: with it there is a row to
/// lock, and of two transactions that meet a key first at one moment the second waits here and then finds
/// the first one's state. A key without a state is always written by its decision, so that no placeholder
/// stays; those that are `barred`, which would not be, are left out.
async fn lock_differing<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    records: &[&SeenRecord],
    barred: &HashSet<RecordKey>,
    whole: bool,
) -> Result<HashMap<RecordKey, Option<StoredRecord>>, StoreError> {
    #[derive(Serialize)]
    struct Row<'a> {
        key: &'a str,
        fingerprint: String,
    }
    let page = records
        .iter()
        .filter(|record| !barred.contains(&record.key))
        .map(|record| Row { key: record.key.as_str(), fingerprint: record.fingerprint.hex() });
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
                record.versionless, record.answered_at, record.hash_run, record.sequence,
                record.forgotten_at
         FROM {each}($3{json}) AS seen CROSS JOIN record
         WHERE record.job = $1 AND record.partition = $2 AND record.key = seen.value ->> 'key'
           AND ($4 OR record.fingerprint IS NULL
                OR record.fingerprint <> {unhex}(seen.value ->> 'fingerprint'{hex})
                OR record.deleted IS NOT NULL OR record.provisional)
         ORDER BY record.key {for_update}",
    )
    .bind(lease.job.0)
    .text(WHOLE)
    .bind(page)
    .bind(whole)
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
        fingerprint: Option<String>,
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
        fingerprint: write.fingerprint.map(Hash::hex),
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
            version = excluded.version, hash = excluded.hash,
            fingerprint = COALESCE(excluded.fingerprint, record.fingerprint),
            deleted = excluded.deleted, provisional = excluded.provisional,
            versionless = excluded.versionless, answered_at = excluded.answered_at, forgotten_at = NULL,
            hash_run = excluded.hash_run, sequence = excluded.sequence,
            changed_at = CASE WHEN excluded.fingerprint IS NULL THEN record.changed_at ELSE excluded.changed_at END",
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
