//! Sweeps: what is known beside their tasks, and the marking of what is gone.
//!
//! Why nothing is marked that a page has met: a page of any run is committed under the row of the job or of an open task,
//! and a batch of marks holds all of these rows first. So whatever page was to touch one of its keys is committed, and its
//! sightings are taken in, or it is decided later against the mark, and the key comes back. The number of the last
//! sighting, read under the same locks, is a fence: all below it is committed, and later batches begin behind it.
//!
//! Order of locks: the row of the job, the rows of its open tasks by number, then records in key order, then outbox heads.
//! Whoever else holds two of these rows holds that of the job first.

use std::collections::HashSet;

use super::{
    GoneBatch, JobId, JobLease, Marked, NewSweep, StoreError, SweepOpened, SweepView, Touched,
    dialect::{Dialect, sql, without_nul},
    lateness, outbox, rows,
    run::{WHOLE, signed},
    task,
};
use crate::domain::{
    decide::Stored,
    event::{Change, ChangeKind, Event},
    instant::{Instant, micros_of},
    key::RecordKey,
    lateness::Measured,
    page::{Kept, StoredRecord},
    reconcile::{Phase, Standing},
    sighting::{KeyMark, decode},
    task::{TaskId, TaskKind, TaskState},
    version::Version,
};

/// Opens a sweep where `after` is still the newest one of the job and is not open, or asks what nobody has answered.
pub(super) async fn open<DB: Dialect>(
    db: &mut DB::Connection,
    job: JobId,
    new: &NewSweep,
) -> Result<SweepOpened, StoreError> {
    sql::<DB>("SELECT id FROM job WHERE id = $1 {for_update}").bind(job.0).one(db).await?;
    let newest = sql::<DB>("SELECT task FROM sweep WHERE job = $1 ORDER BY task DESC LIMIT 1")
        .bind(job.0)
        .first(db)
        .await?;
    let newest = newest.map(|row| rows::get::<DB, _>(&row, "task")).transpose()?.map(TaskId);
    if newest != new.after {
        return Ok(SweepOpened::Overtaken);
    }
    if !knows_what_stood::<DB>(db, job).await? {
        return Ok(SweepOpened::TooEarly);
    }
    if let Some(newest) = newest
        && is_open::<DB>(db, newest).await?
        && !end_unanswered::<DB>(db, newest).await?
    {
        return Ok(SweepOpened::Overtaken);
    }
    let row = sql::<DB>(
        "INSERT INTO task (job, uid, kind, plan, created_at) VALUES ($1, {uid}, $2, $3, {now}) RETURNING id",
    )
    .bind(job.0)
    .text(TaskKind::Reconcile.name())
    .text(&serde_json::to_string(&new.plan)?)
    .one(db)
    .await?;
    let id = TaskId(rows::get::<DB, _>(&row, "id")?);
    sql::<DB>("INSERT INTO sweep (task, job, fingerprint, reach) VALUES ($1, $2, $3, $4)")
        .bind(id.0)
        .bind(job.0)
        .text(&new.fingerprint)
        .bind(micros_of(new.reach))
        .run(db)
        .await?;
    Ok(SweepOpened::Begun(id))
}

/// Whether all that stood when the job began is recorded. Before, a sweep would meet it as created, and send it.
async fn knows_what_stood<DB: Dialect>(db: &mut DB::Connection, job: JobId) -> Result<bool, StoreError> {
    let complete = sql::<DB>(
        "SELECT 1 AS one FROM progress
         WHERE job = $1 AND partition = $2 AND complete_through IS NOT NULL AND NOT baseline_open",
    );
    Ok(complete.bind(job.0).text(WHOLE).first(db).await?.is_some())
}

/// Locks the task's row, which whoever answers for it locks as well.
async fn is_open<DB: Dialect>(db: &mut DB::Connection, id: TaskId) -> Result<bool, StoreError> {
    let row = sql::<DB>("SELECT state FROM task WHERE id = $1 {for_update}").bind(id.0).first(db).await?;
    let state = row.map(|row| rows::get::<DB, String>(&row, "state")).transpose()?;
    Ok(state.is_some_and(|state| state == TaskState::Open.name()))
}

/// Ends a sweep that asks what nobody has answered; `false` where it does not ask. The task's row must be held.
async fn end_unanswered<DB: Dialect>(db: &mut DB::Connection, id: TaskId) -> Result<bool, StoreError> {
    let asks = sql::<DB>("SELECT 1 AS one FROM sweep WHERE task = $1 AND phase = $2 AND accepted_at IS NULL");
    if asks.bind(id.0).text(Phase::Asking.name()).first(db).await?.is_none() {
        return Ok(false);
    }
    let reason = "nobody said whether what it found gone is deleted before the next sweep was due";
    task::cancel::<DB>(db, id, Some(reason)).await
}

/// Takes in that a sweep has read everything: its task stays open. Nothing for a task of another kind. The task's row
/// must be held.
pub(super) async fn was_read<DB: Dialect>(db: &mut DB::Connection, id: TaskId) -> Result<(), StoreError> {
    let was_read = sql::<DB>(
        "UPDATE sweep SET phase = $2, read_at = {now}, read_by_run = (SELECT max(run.id) FROM run WHERE run.job = sweep.job)
         WHERE task = $1 AND phase = $3",
    )
    .bind(id.0)
    .text(Phase::Waiting.name())
    .text(Phase::Reading.name())
    .run(db)
    .await?;
    if was_read == 1 {
        sql::<DB>("UPDATE task SET state = $2, ended_at = NULL WHERE id = $1")
            .bind(id.0)
            .text(TaskState::Open.name())
            .run(db)
            .await?;
    }
    Ok(())
}

/// Adds what a page of a sweep found that polling had passed. Nothing for a task of another kind.
pub(super) async fn missed<DB: Dialect>(
    db: &mut DB::Connection,
    id: TaskId,
    measured: &Measured,
) -> Result<(), StoreError> {
    let (missed, longest) = lateness::numbers(measured);
    sql::<DB>(
        "UPDATE sweep SET missed = missed + $2, longest = CASE WHEN longest > $3 THEN longest ELSE $3 END
         WHERE task = $1",
    )
    .bind(id.0)
    .bind(missed)
    .bind(longest)
    .run(db)
    .await?;
    Ok(())
}

/// The newest sweep of a job.
pub(super) async fn last<DB: Dialect>(
    db: &mut DB::Connection,
    job: JobId,
) -> Result<Option<SweepView>, StoreError> {
    // A run that went on where one before it was cut off was planned when that one was.
    let row = sql::<DB>(
        "SELECT task.id, task.state, task.reason, task.plan, task.created_at, task.ended_at, {now} AS now,
            sweep.fingerprint, sweep.reach, sweep.phase, sweep.read_at, sweep.accepted_at IS NOT NULL AS is_accepted,
            sweep.gone, sweep.of_keys, sweep.deleted, sweep.missed, sweep.longest,
            EXISTS (SELECT 1 FROM run WHERE run.job = sweep.job AND run.task IS NULL AND run.id > sweep.read_by_run
                AND run.status = 'ok' AND NOT run.resumed AND NOT run.unmodified AND run.quarantined = 0 AND run.skipped = 0
                AND run.started_at >= sweep.read_at + sweep.reach) AS has_passed,
            (SELECT CAST(COALESCE(sum(run.records), 0) AS BIGINT) FROM run WHERE run.task = task.id) AS records,
            (SELECT CAST(COALESCE(sum(run.quarantined + run.skipped), 0) AS BIGINT) FROM run WHERE run.task = task.id) AS unread
         FROM sweep JOIN task ON task.id = sweep.task WHERE sweep.job = $1 ORDER BY sweep.task DESC LIMIT 1",
    )
    .bind(job.0)
    .first(db)
    .await?;
    row.map(|row| view::<DB>(&row)).transpose()
}

fn view<DB: Dialect>(row: &DB::Row) -> Result<SweepView, StoreError> {
    let (state, phase): (String, String) =
        (rows::get::<DB, _>(row, "state")?, rows::get::<DB, _>(row, "phase")?);
    let count = |column| -> Result<Option<u64>, StoreError> {
        let count = rows::get::<DB, Option<i64>>(row, column)?;
        Ok(count.and_then(|count| u64::try_from(count).ok()))
    };
    Ok(SweepView {
        task: TaskId(rows::get::<DB, _>(row, "id")?),
        state: TaskState::from_name(&state).ok_or_else(|| rows::unreadable("state", &state))?,
        phase: Phase::from_name(&phase).ok_or_else(|| rows::unreadable("phase", &phase))?,
        reason: rows::get::<DB, _>(row, "reason")?,
        plan: rows::json::<DB, _>(row, "plan")?.ok_or_else(|| rows::unreadable("plan", "no plan"))?,
        fingerprint: rows::get::<DB, _>(row, "fingerprint")?,
        reach: rows::duration::<DB>(row, "reach")?,
        created_at: rows::instant::<DB>(row, "created_at")?,
        read_at: rows::maybe_instant::<DB>(row, "read_at")?,
        ended_at: rows::maybe_instant::<DB>(row, "ended_at")?,
        now: rows::instant::<DB>(row, "now")?,
        has_passed: rows::get::<DB, _>(row, "has_passed")?,
        is_accepted: rows::get::<DB, _>(row, "is_accepted")?,
        records: rows::count::<DB>(row, "records")?,
        unread: rows::count::<DB>(row, "unread")?,
        missed: rows::count::<DB>(row, "missed")?,
        longest: rows::duration::<DB>(row, "longest")?,
        gone: count("gone")?,
        of_keys: count("of_keys")?,
        deleted: rows::count::<DB>(row, "deleted")?,
    })
}

/// When the first live run of a job was complete, by the database's clock.
pub(super) async fn first_complete<DB: Dialect>(
    db: &mut DB::Connection,
    job: JobId,
) -> Result<Option<Instant>, StoreError> {
    let row = sql::<DB>(
        "SELECT ended_at FROM run WHERE job = $1 AND task IS NULL AND status = 'ok' ORDER BY id LIMIT 1",
    )
    .bind(job.0)
    .first(db)
    .await?;
    Ok(row.map(|row| rows::maybe_instant::<DB>(&row, "ended_at")).transpose()?.flatten())
}

/// Has the next live run read what it would else be told to be unchanged: what is unchanged is not named.
pub(super) async fn read_afresh<DB: Dialect>(db: &mut DB::Connection, job: JobId) -> Result<(), StoreError> {
    sql::<DB>(
        "UPDATE progress SET page_tag = NULL WHERE job = $1 AND partition = $2 AND page_tag IS NOT NULL",
    )
    .bind(job.0)
    .text(WHOLE)
    .run(db)
    .await?;
    Ok(())
}

/// Moves a sweep on to a phase, with what it counted.
pub(super) async fn set_phase<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    phase: Phase,
    gone: u64,
    of_keys: u64,
) -> Result<(), StoreError> {
    let id = held::<DB>(db, lease).await?;
    sql::<DB>("UPDATE sweep SET phase = $2, gone = $3, of_keys = $4 WHERE task = $1")
        .bind(id.0)
        .text(phase.name())
        .bind(signed(gone))
        .bind(signed(of_keys))
        .run(db)
        .await?;
    Ok(())
}

/// Ends a sweep.
pub(super) async fn end<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    state: TaskState,
    reason: Option<&str>,
) -> Result<(), StoreError> {
    let id = held::<DB>(db, lease).await?;
    sql::<DB>("UPDATE task SET state = $2, reason = $3, ended_at = {now}, bookmark = NULL WHERE id = $1")
        .bind(id.0)
        .text(state.name())
        .bind(reason.map(without_nul))
        .run(db)
        .await?;
    task::cut_off_runs::<DB>(db, id, reason.unwrap_or("the sweep has ended")).await
}

/// Takes a person's word for what a sweep asks; `false` where it does not ask.
pub(super) async fn accept<DB: Dialect>(db: &mut DB::Connection, id: TaskId) -> Result<bool, StoreError> {
    if !is_open::<DB>(db, id).await? {
        return Ok(false);
    }
    let accepted = sql::<DB>("UPDATE sweep SET accepted_at = {now} WHERE task = $1 AND phase = $2")
        .bind(id.0)
        .text(Phase::Asking.name())
        .run(db)
        .await?;
    Ok(accepted == 1)
}

/// The keys that are not deleted, behind `after` in key order: with a lower bound those alone whose version is not below
/// it.
pub(super) async fn standing<DB: Dialect>(
    db: &mut DB::Connection,
    job: JobId,
    from: Option<Version>,
    after: &str,
    limit: u32,
) -> Result<Vec<Standing>, StoreError> {
    let rows = sql::<DB>(
        "SELECT key, changed_at FROM record
         WHERE job = $1 AND partition = $2 AND key > $3 AND deleted IS NULL AND hash IS NOT NULL
           AND ($4 IS NULL OR version >= $4)
         ORDER BY key LIMIT $5",
    )
    .bind(job.0)
    .text(WHOLE)
    .text(after)
    .bind(from.map(|Version(from)| from))
    .bind(i64::from(limit))
    .all(db)
    .await?;
    rows.iter()
        .map(|row| {
            Ok(Standing {
                key: RecordKey::from_stored(rows::get::<DB, _>(row, "key")?),
                changed_at: rows::instant::<DB>(row, "changed_at")?,
            })
        })
        .collect()
}

/// The fence of a sweep: the number of the last sighting of its job, below which none is still to be committed.
pub(super) async fn fence<DB: Dialect>(db: &mut DB::Connection, lease: &JobLease) -> Result<i64, StoreError> {
    lock_walks::<DB>(db, lease).await?;
    let row = sql::<DB>("SELECT COALESCE(max(id), 0) AS fence FROM sighting").one(db).await?;
    rows::get::<DB, _>(&row, "fence")
}

/// The marks of keys that pages met since an instant, in the sightings behind `after` and up to `fence`.
pub(super) async fn touched<DB: Dialect>(
    db: &mut DB::Connection,
    job: JobId,
    since: Instant,
    after: i64,
    fence: i64,
    limit: u32,
) -> Result<Touched, StoreError> {
    let rows = sql::<DB>(
        "SELECT id, keys FROM sighting WHERE job = $1 AND decided_at >= $2 AND id > $3 AND id <= $4 ORDER BY id LIMIT $5",
    )
    .bind(job.0)
    .bind(since.micros())
    .bind(after)
    .bind(fence)
    .bind(i64::from(limit))
    .all(db)
    .await?;
    take_in::<DB>(&rows, after)
}

fn take_in<DB: Dialect>(rows: &[DB::Row], after: i64) -> Result<Touched, StoreError> {
    let mut touched = Touched { up_to: after, marks: HashSet::new(), is_all: rows.is_empty() };
    for row in rows {
        let keys: Option<Vec<u8>> = rows::get::<DB, _>(row, "keys")?;
        let id: i64 = rows::get::<DB, _>(row, "id")?;
        let sightings = keys.and_then(|keys| decode(&keys)).ok_or_else(|| rows::unreadable("keys", id))?;
        touched.marks.extend(sightings.into_iter().map(|sighting| sighting.key));
        touched.up_to = touched.up_to.max(id);
    }
    Ok(touched)
}

/// Marks a batch of keys as deleted and stores their events, unless a page met them behind the batch's fence, or they
/// were written.
pub(super) async fn mark<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    batch: &GoneBatch,
) -> Result<Marked, StoreError> {
    let id = lock_walks::<DB>(db, lease).await?;
    let rows = sql::<DB>("SELECT id, keys FROM sighting WHERE id > $1 AND +job = $2 ORDER BY id")
        .bind(batch.fence)
        .bind(lease.job.0)
        .all(db)
        .await?;
    let met = take_in::<DB>(&rows, batch.fence)?;
    let gone = lock_gone::<DB>(db, lease, batch, &met.marks).await?;
    let is_sent = batch.emit.contains(&ChangeKind::Deleted);
    if !gone.is_empty() {
        let keys = serde_json::to_string(&gone.iter().map(|gone| gone.key.as_str()).collect::<Vec<_>>())?;
        let marked = sql::<DB>(
            "UPDATE record SET deleted = 'reconciled', sequence = sequence + $4, changed_at = {now}
             WHERE job = $1 AND partition = $2 AND key IN (SELECT gone.value FROM {each_text}($3{json}) AS gone)",
        )
        .bind(lease.job.0)
        .text(WHOLE)
        .bind(keys)
        .bind(i64::from(is_sent))
        .run(db)
        .await?;
        if marked != gone.len() as u64 {
            return Err(StoreError::Inconsistent(format!("{marked} of {} keys were marked", gone.len())));
        }
    }
    if is_sent {
        let events = gone.iter().map(|gone| event(batch, gone)).collect::<Result<Vec<_>, _>>()?;
        outbox::insert_to::<DB>(db, lease.job, &batch.destination, batch.order, None, &events).await?;
    }
    sql::<DB>("UPDATE sweep SET deleted = deleted + $2 WHERE task = $1")
        .bind(id.0)
        .bind(signed(gone.len() as u64))
        .run(db)
        .await?;
    Ok(Marked { deleted: gone.len() as u64, has_events: is_sent && !gone.is_empty(), met })
}

/// The event of a key that is gone. Of its record nothing is known any more: `data` is null.
fn event(batch: &GoneBatch, Gone { key, state, sequence }: &Gone) -> Result<Event, serde_json::Error> {
    Event::new(
        &batch.source,
        &Change {
            kind: ChangeKind::Deleted,
            key,
            version: state.version,
            previous_version: state.version,
            sequence: sequence + 1,
            hash: state.hash,
            re_seen: false,
            observed_at: batch.observed_at,
            replay: None,
            data: serde_json::from_str("null")?,
        },
    )
}

/// A record that is still gone.
struct Gone {
    key: RecordKey,
    state: Stored,
    sequence: i64,
}

/// The records of a batch that are still gone, locked in key order.
async fn lock_gone<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    batch: &GoneBatch,
    met: &HashSet<KeyMark>,
) -> Result<Vec<Gone>, StoreError> {
    let keys = batch.keys.iter().filter(|key| !met.contains(&KeyMark::of(key)));
    let keys = serde_json::to_string(&keys.map(RecordKey::as_str).collect::<Vec<_>>())?;
    let rows = sql::<DB>(
        "SELECT record.key, record.version, record.hash, record.deleted, record.provisional,
                record.versionless, record.answered_at, record.hash_run, record.sequence, record.forgotten_at
         FROM {each_text}($3{json}) AS gone CROSS JOIN record
         WHERE record.job = $1 AND record.partition = $2 AND record.key = gone.value
           AND record.deleted IS NULL AND record.changed_at < $4
         ORDER BY record.key {for_update}",
    )
    .bind(lease.job.0)
    .text(WHOLE)
    .bind(keys)
    .bind(batch.since.micros())
    .all(db)
    .await?;
    let records = rows.iter().map(rows::record::<DB>).collect::<Result<Vec<_>, _>>()?;
    let gone = |(key, record): (RecordKey, Option<StoredRecord>)| match record? {
        StoredRecord { kept: Kept::State(state), sequence } => Some(Gone { key, state, sequence }),
        StoredRecord { kept: Kept::Forgotten(_), .. } => None,
    };
    Ok(records.into_iter().filter_map(gone).collect())
}

/// Locks every row under which a page of the job is committed, and fails where the sweep is another's by now.
async fn lock_walks<DB: Dialect>(db: &mut DB::Connection, lease: &JobLease) -> Result<TaskId, StoreError> {
    task::lock_walks::<DB>(db, lease.job).await?;
    held::<DB>(db, lease).await
}

/// Holds the sweep's own task.
async fn held<DB: Dialect>(db: &mut DB::Connection, lease: &JobLease) -> Result<TaskId, StoreError> {
    let id = lease.task.ok_or_else(|| StoreError::Inconsistent("a sweep has no task".to_owned()))?;
    task::hold::<DB>(db, lease, id).await?;
    Ok(id)
}
