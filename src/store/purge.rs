//! Takes away what is kept no longer, in small bites: each is a short transaction of its own, so that whoever writes
//! meanwhile waits for one bite at most.
//!
//! Why it may run in several processes, and beside all that others do, on PostgreSQL (on SQLite every writing
//! transaction is alone):
//! - Events go with all rows of their id, by the latest of them: it is locked first, and whoever sends an event again
//!   locks it first, too ([`wish`](super::wish)). A statement after the lock sees a redelivery that was stored before
//!   it; none can be stored after it. Rows that somebody else holds are passed over, so that two who purge take
//!   different events, and none waits for a person's wish while it holds something that one waits for.
//! - No head stands at a settled event, and attempts are stored for events that wait alone: nothing that goes is looked
//!   at by a claim or a settlement.
//! - Runs that have ended are written by nobody.
//! - Keys are forgotten under the locks of the job's row and of its open tasks, one of which every page holds, and the
//!   floor moves up in the transaction that forgets the first key below it: a page meets either the state of a key or the
//!   floor above it.

use super::{
    JobId, StoreError,
    dialect::{Dialect, sql},
    gate, hook, lock, rows,
    run::WHOLE,
    task,
};
use crate::domain::{instant::Instant, retention, version::Version, window::WindowRule};

/// What is to go because it is kept no longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purge {
    /// The bodies of events that were settled before.
    Payloads(Instant),
    /// Events that were settled before, and the attempts to deliver them; bodies have to go first.
    Attempts(Instant),
    /// Runs that ended before, and what their pages left.
    Pages(Instant),
    /// What the keys of a job were whose versions are lower.
    Keys {
        /// The job.
        job: JobId,
        /// Its window, which keys are kept for.
        window: WindowRule,
        /// Versions below this one are too old.
        before: Version,
        /// The first key to look at.
        from: String,
    },
    /// Keys of a scope of the gate that last changed then or before.
    GateKeys {
        /// The scope.
        scope: String,
        /// By when.
        before: Instant,
    },
    /// Keys of a hook that last came before.
    HookKeys {
        /// The hook.
        hook: JobId,
        /// When.
        before: Instant,
    },
    /// Locks whose leases ended before.
    Locks(Instant),
}

/// What one bite of a purge took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// How many rows went, or lost what they held.
    pub rows: u64,
    /// What goes on where this bite ended; `None` where there is no more.
    pub next: Option<Purge>,
}

/// How many events, runs or pages of runs one bite takes, and how many keys it looks at.
const BITE: i64 = 500;

/// How many attempts one bite takes: an event that met an outage has many.
const ATTEMPTS: i64 = 2000;

/// How many pages' findings one bite takes: a run may have read very many.
const PAGES: i64 = 1000;

/// Events whose latest row is settled for good. Without the states it would not be found by its index.
macro_rules! over {
    ($columns:literal, $end:literal) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM event
             WHERE event.purged_at IS NULL AND event.state IN ('delivered', 'superseded', 'discarded')
               AND event.settled_at < $1 AND ",
            latest!(),
            $end
        )
    };
}

/// The same of those whose bodies are gone. By its events a replay that may go on knows what it has sent.
macro_rules! bodiless {
    ($columns:literal, $end:literal) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM event WHERE event.purged_at IS NOT NULL AND event.settled_at < $1
               AND NOT EXISTS (SELECT 1 FROM task WHERE task.id = event.replay AND task.state IN ('open', 'failed')) AND ",
            latest!(),
            $end
        )
    };
}

macro_rules! latest {
    () => {
        "NOT EXISTS (SELECT 1 FROM event AS later WHERE later.event_id = event.event_id
                     AND later.redelivery = event.redelivery + 1)"
    };
}

/// Runs that have ended before the last one of their kind of their job, and before the last one that was well. What a task has counted is told as long as it
/// is open, and what a sweep proves rests on all that was met since it began, and for its reach before.
macro_rules! ended {
    ($columns:literal, $end:literal) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM run WHERE run.status <> 'running' AND run.ended_at < $1
               AND run.id < (SELECT later.id FROM run AS later WHERE later.job = run.job AND later.kind = run.kind
                             ORDER BY later.id DESC LIMIT 1)
               AND run.id < COALESCE((SELECT later.id FROM run AS later WHERE later.job = run.job AND later.kind = run.kind
                             AND later.status = 'ok' ORDER BY later.id DESC LIMIT 1), 9223372036854775807)
               AND NOT EXISTS (SELECT 1 FROM task WHERE task.id = run.task AND task.state = 'open')
               AND NOT EXISTS (SELECT 1 FROM task JOIN sweep ON sweep.task = task.id
                               WHERE task.job = run.job AND task.state = 'open'
                                 AND run.ended_at >= task.created_at - sweep.reach)",
            $end
        )
    };
}

/// Forgets the keys from `$4` on.
macro_rules! forget {
    ($end:literal) => {
        concat!(
            "UPDATE record SET version = NULL, hash = NULL, fingerprint = NULL, answered_at = NULL, hash_run = NULL,
                forgotten_at = {now}
             WHERE job = $1 AND partition = $2 AND version < $3 AND NOT provisional AND NOT versionless
               AND key >= $4",
            $end
        )
    };
}

/// What the pages of runs found: their numbers stand in `$1`, a JSON list. Records that a person accepted are of the run
/// that first met them, and are kept by their own age.
const SIGHTINGS: &str = "DELETE FROM sighting WHERE id IN (
    SELECT sighting.id FROM {each_text}($1{json}) AS old CROSS JOIN run CROSS JOIN sighting
    WHERE run.id = CAST(old.value AS BIGINT) AND sighting.job = run.job AND sighting.run = run.id AND sighting.page > 0
    LIMIT $2)";

/// What runs covered.
const COVERED: &str = "DELETE FROM covered WHERE (job, run) IN (
    SELECT run.job, run.id FROM {each_text}($1{json}) AS old CROSS JOIN run WHERE run.id = CAST(old.value AS BIGINT))";

/// Records that a person accepted, but for those that an open sweep is held against.
const ACCEPTED: &str = "DELETE FROM sighting WHERE id IN (
    SELECT sighting.id FROM sighting WHERE sighting.page = 0 AND sighting.decided_at < $1
       AND NOT EXISTS (SELECT 1 FROM task JOIN sweep ON sweep.task = task.id
                       WHERE task.job = sighting.job AND task.state = 'open'
                         AND sighting.decided_at >= task.created_at - sweep.reach)
    ORDER BY sighting.decided_at LIMIT $2)";

/// Takes one bite.
pub(super) async fn purge<DB: Dialect>(db: &mut DB::Connection, purge: &Purge) -> Result<Taken, StoreError> {
    match purge {
        Purge::Payloads(before) => purge_payloads::<DB>(db, *before).await,
        Purge::Attempts(before) => purge_attempts::<DB>(db, *before).await,
        Purge::Pages(before) => purge_pages::<DB>(db, *before).await,
        Purge::Keys { job, window, before, from } => {
            let slice = Slice { job: *job, window, before: *before, from };
            forget_keys::<DB>(db, &slice).await
        }
        Purge::GateKeys { scope, before } => gate::keys::purge::<DB>(db, scope, *before).await,
        Purge::HookKeys { hook, before } => hook::forget::<DB>(db, *hook, *before).await,
        Purge::Locks(before) => lock::forget::<DB>(db, *before).await,
    }
}

/// How much would go if all bites were taken now.
pub(super) async fn purgeable<DB: Dialect>(
    db: &mut DB::Connection,
    purge: &Purge,
) -> Result<u64, StoreError> {
    let (statement, before) = match purge {
        Purge::Payloads(before) => (over!("count(*) AS found", ""), *before),
        Purge::Attempts(before) => return purgeable_attempts::<DB>(db, *before).await,
        Purge::Pages(before) => (ended!("count(*) AS found", ""), *before),
        Purge::Locks(before) => (lock::PURGEABLE, *before),
        Purge::Keys { job, window, before, .. } => {
            return forgettable::<DB>(db, *job, window, *before).await;
        }
        Purge::HookKeys { hook, before } => return hook::forgettable::<DB>(db, *hook, *before).await,
        Purge::GateKeys { scope, before } => return gate::keys::purgeable::<DB>(db, scope, *before).await,
    };
    let row = sql::<DB>(statement).bind(before.micros()).one(db).await?;
    rows::count::<DB>(&row, "found")
}

async fn purge_payloads<DB: Dialect>(db: &mut DB::Connection, before: Instant) -> Result<Taken, StoreError> {
    let oldest = sql::<DB>(over!("event.event_id", " ORDER BY event.settled_at LIMIT $2 {skip_locked}"));
    let oldest = oldest.bind(before.micros()).bind(BITE).all(db).await?;
    let ids = hold::<DB>(db, &oldest, before).await?;
    let rows = sql::<DB>(
        "UPDATE event SET body = '', purged_at = {now}
         WHERE event_id IN (SELECT old.value FROM {each_text}($1{json}) AS old)",
    )
    .bind(ids.list)
    .run(db)
    .await?;
    Ok(Taken { rows, next: ids.is_full.then_some(Purge::Payloads(before)) })
}

async fn purge_attempts<DB: Dialect>(db: &mut DB::Connection, before: Instant) -> Result<Taken, StoreError> {
    let oldest = sql::<DB>(bodiless!("event.event_id", " ORDER BY event.settled_at LIMIT $2 {skip_locked}"));
    let oldest = oldest.bind(before.micros()).bind(BITE).all(db).await?;
    let ids = hold::<DB>(db, &oldest, before).await?;
    let next = Some(Purge::Attempts(before));
    let attempts = sql::<DB>(
        "DELETE FROM attempt WHERE id IN (
             SELECT attempt.id FROM {each_text}($1{json}) AS old CROSS JOIN event CROSS JOIN attempt
             WHERE event.event_id = old.value AND attempt.position = event.position LIMIT $2)",
    )
    .bind(ids.list.clone())
    .bind(ATTEMPTS)
    .run(db)
    .await?;
    if attempts >= ATTEMPTS.unsigned_abs() {
        return Ok(Taken { rows: attempts, next });
    }
    let events =
        sql::<DB>("DELETE FROM event WHERE event_id IN (SELECT old.value FROM {each_text}($1{json}) AS old)");
    let events = events.bind(ids.list).run(db).await?;
    Ok(Taken { rows: attempts + events, next: next.filter(|_| ids.is_full) })
}

/// Ids of events whose latest rows are locked.
struct Ids {
    /// As a JSON list.
    list: String,
    /// There may be more.
    is_full: bool,
}

/// Leaves those out that were sent again while their rows were about to be locked.
async fn hold<DB: Dialect>(
    db: &mut DB::Connection,
    locked: &[DB::Row],
    before: Instant,
) -> Result<Ids, StoreError> {
    let is_full = locked.len() as u64 >= BITE.unsigned_abs();
    let ids = |found: &[DB::Row]| {
        let ids = found.iter().map(|row| rows::get::<DB, String>(row, "event_id"));
        Ok::<_, StoreError>(serde_json::to_string(&ids.collect::<Result<Vec<_>, _>>()?)?)
    };
    let still_over = sql::<DB>(concat!(
        "SELECT event.event_id FROM {each_text}($1{json}) AS old CROSS JOIN event
         WHERE event.event_id = old.value AND event.settled_at < $2 AND ",
        latest!()
    ));
    let left = still_over.bind(ids(locked)?).bind(before.micros()).all(db).await?;
    Ok(Ids { list: ids(&left)?, is_full })
}

async fn purgeable_attempts<DB: Dialect>(
    db: &mut DB::Connection,
    before: Instant,
) -> Result<u64, StoreError> {
    // Bodies go first in the same purge, so that those still there count, too.
    let row = sql::<DB>(concat!(
        "SELECT CAST(COALESCE(SUM(1 + (SELECT count(*) FROM attempt WHERE attempt.position = one.position)), 0) AS BIGINT) AS found
         FROM (",
        over!("event.event_id", ""),
        " UNION ALL ",
        bodiless!("event.event_id", ""),
        ") AS old JOIN event AS one ON one.event_id = old.event_id"
    ))
    .bind(before.micros())
    .one(db)
    .await?;
    rows::count::<DB>(&row, "found")
}

/// Takes runs with all that their pages left, the oldest first, and then what people accepted. A run goes once nothing
/// of its pages is left.
async fn purge_pages<DB: Dialect>(db: &mut DB::Connection, before: Instant) -> Result<Taken, StoreError> {
    let found = sql::<DB>(ended!("run.id, run.pages", " ORDER BY run.ended_at LIMIT $2 {skip_locked}"))
        .bind(before.micros())
        .bind(BITE)
        .all(db)
        .await?;
    let mut runs: Vec<i64> = Vec::new();
    let mut pages = 0;
    for row in &found {
        pages += 1 + rows::get::<DB, i64>(row, "pages")?;
        if !runs.is_empty() && pages > BITE {
            break;
        }
        runs.push(rows::get::<DB, _>(row, "id")?);
    }
    let is_full = runs.len() < found.len() || found.len() as u64 >= BITE.unsigned_abs();
    let runs = serde_json::to_string(&runs)?;
    let next = Some(Purge::Pages(before));
    if sql::<DB>(SIGHTINGS).bind(runs.clone()).bind(PAGES).run(db).await? >= PAGES.unsigned_abs() {
        return Ok(Taken { rows: 0, next });
    }
    sql::<DB>(COVERED).bind(runs.clone()).run(db).await?;
    let gone = sql::<DB>(
        "DELETE FROM run WHERE id IN (SELECT CAST(old.value AS BIGINT) FROM {each_text}($1{json}) AS old)",
    );
    let gone = gone.bind(runs).run(db).await?;
    if is_full {
        return Ok(Taken { rows: gone, next });
    }
    let accepted = sql::<DB>(ACCEPTED).bind(before.micros()).bind(BITE).run(db).await?;
    Ok(Taken { rows: gone + accepted, next: next.filter(|_| accepted >= BITE.unsigned_abs()) })
}

/// A slice of a job's keys.
struct Slice<'a> {
    job: JobId,
    window: &'a WindowRule,
    before: Version,
    from: &'a str,
}

/// Forgets what the keys of a slice were, below the floor. Keys that may still change under their versions stay, and so
/// do those that were last told of without a version.
async fn forget_keys<DB: Dialect>(db: &mut DB::Connection, slice: &Slice<'_>) -> Result<Taken, StoreError> {
    task::lock_walks::<DB>(db, slice.job).await?;
    let Some(floor) = floor::<DB>(db, slice.job, slice.window, slice.before).await? else {
        return Ok(Taken::default());
    };
    sql::<DB>(
        "UPDATE progress SET floor = $3
         WHERE job = $1 AND partition = $2 AND (floor IS NULL OR floor < $3)",
    )
    .bind(slice.job.0)
    .text(WHOLE)
    .bind(floor.0)
    .run(db)
    .await?;
    let behind = sql::<DB>(
        "SELECT key FROM record WHERE job = $1 AND partition = $2 AND key >= $3 ORDER BY key LIMIT 1 OFFSET $4",
    )
    .bind(slice.job.0)
    .text(WHOLE)
    .text(slice.from)
    .bind(BITE)
    .first(db)
    .await?;
    let behind = behind.map(|row| rows::get::<DB, String>(&row, "key")).transpose()?;
    // Two statements, so that each is a range of the primary key.
    let forget =
        |statement| sql::<DB>(statement).bind(slice.job.0).text(WHOLE).bind(floor.0).text(slice.from);
    let rows = match &behind {
        Some(behind) => forget(forget!(" AND key < $5")).text(behind).run(db).await?,
        None => forget(forget!("")).run(db).await?,
    };
    let &Slice { job, window: &window, before, .. } = slice;
    Ok(Taken { rows, next: behind.map(|from| Purge::Keys { job, window, before, from }) })
}

/// Where the floor of a job moves; `None` before its first watermark.
async fn floor<DB: Dialect>(
    db: &mut DB::Connection,
    job: JobId,
    window: &WindowRule,
    before: Version,
) -> Result<Option<Version>, StoreError> {
    let progress = sql::<DB>("SELECT watermark, floor FROM progress WHERE job = $1 AND partition = $2");
    let Some(row) = progress.bind(job.0).text(WHOLE).first(db).await? else { return Ok(None) };
    let version = |column| Ok::<_, StoreError>(rows::get::<DB, Option<i64>>(&row, column)?.map(Version));
    let lowest = version("watermark")?.and_then(|watermark| window.from(Some(watermark)));
    Ok(retention::raised(version("floor")?, before, lowest))
}

async fn forgettable<DB: Dialect>(
    db: &mut DB::Connection,
    job: JobId,
    window: &WindowRule,
    before: Version,
) -> Result<u64, StoreError> {
    let Some(floor) = floor::<DB>(db, job, window, before).await? else { return Ok(0) };
    let row = sql::<DB>(
        "SELECT count(*) AS found FROM record
         WHERE job = $1 AND partition = $2 AND version < $3 AND NOT provisional AND NOT versionless",
    )
    .bind(job.0)
    .text(WHOLE)
    .bind(floor.0)
    .one(db)
    .await?;
    rows::count::<DB>(&row, "found")
}
