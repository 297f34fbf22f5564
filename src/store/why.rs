//! The facts that the answer to "why" is made of. A key's pages are found inside the database by the mark of the key;
//! what is found is decoded here.

use std::collections::HashMap;

use super::{
    Coverage, JobId, RunId, RunView, StoreError,
    dialect::{Dialect, sql},
    event, rows,
    run::WHOLE,
};
use crate::domain::{
    coverage::Covered,
    event_state::EventState,
    facts::{AttemptFact, EventFact, KeyFacts, PageFact, Reading, RecordFact, RunFacts},
    instant::Instant,
    key::RecordKey,
    run::RunKind,
    sighting::{self, Finding, KeyMark, LONGEST, NOTHING_NEW, Sighting},
    version::Version,
};

/// How many keys beside an unknown one are told, on each side.
const NEAR: i64 = 3;

/// How many runs that did not complete are told.
const FAILED: i64 = 100;

/// What is stored of the first of `keys` that is known, or of the first.
pub(super) async fn key<DB: Dialect>(
    db: &mut DB::Connection,
    job: JobId,
    keys: &[RecordKey],
    limit: u32,
) -> Result<KeyFacts, StoreError> {
    let mut chosen = keys.first();
    let mut record = None;
    for key in keys {
        record = self::record::<DB>(db, job, key).await?;
        if record.is_some() {
            chosen = Some(key);
            break;
        }
    }
    let key = chosen.cloned().unwrap_or_else(|| RecordKey::from_stored(String::new()));
    let (readings, more_readings) = readings::<DB>(db, job, &key, limit).await?;
    let (events, more_events) = events::<DB>(db, job, &key, limit).await?;
    let quarantined = sql::<DB>(
        "SELECT count(*) AS broken FROM quarantine WHERE job = $1 AND partition = $2 AND skipped_at IS NULL",
    )
    .bind(job.0)
    .text(WHOLE)
    .one(db)
    .await?;
    let quarantined = rows::count::<DB>(&quarantined, "broken")?;
    let mut facts =
        KeyFacts { key, record, readings, more_readings, events, more_events, quarantined, near: Vec::new() };
    if !facts.is_known() {
        facts.near = near::<DB>(db, job, &facts.key).await?;
    }
    Ok(facts)
}

async fn record<DB: Dialect>(
    db: &mut DB::Connection,
    job: JobId,
    key: &RecordKey,
) -> Result<Option<RecordFact>, StoreError> {
    let row = sql::<DB>(
        "SELECT version, deleted, first_seen_at, changed_at, forgotten_at IS NOT NULL AS is_forgotten FROM record
         WHERE job = $1 AND partition = $2 AND key = $3",
    )
    .bind(job.0)
    .text(WHOLE)
    .text(key.as_str())
    .first(db)
    .await?;
    let fact = |row: &DB::Row| {
        let deleted = rows::get::<DB, Option<String>>(row, "deleted")?;
        Ok(RecordFact {
            version: rows::get::<DB, Option<i64>>(row, "version")?.map(Version),
            is_forgotten: rows::get::<DB, _>(row, "is_forgotten")?,
            deleted: deleted.map(|name| rows::deletion(&name)).transpose()?,
            first_seen_at: rows::instant::<DB>(row, "first_seen_at")?,
            changed_at: rows::instant::<DB>(row, "changed_at")?,
        })
    };
    row.as_ref().map(fact).transpose()
}

/// Every reading of a key, the oldest first, and how many were left out.
///
/// A page is searched for the mark of the key once, for what is written from there on. That says all: of a page that
/// held the key several times the others come first, and only such a page is read whole. A match that lies across two
/// sightings is as unlikely as two keys of one mark.
async fn readings<DB: Dialect>(
    db: &mut DB::Connection,
    job: JobId,
    key: &RecordKey,
    limit: u32,
) -> Result<(Vec<Reading>, u64), StoreError> {
    let mark = KeyMark::of(key);
    let mut found = sql::<DB>(
        "WITH searched AS MATERIALIZED (
             SELECT id, run, page, asked_at, decided_at,
                    substr(keys, {instr}(keys, $3), CAST($4 AS INTEGER)) AS entry
             FROM sighting WHERE job = $1 AND partition = $2)
         SELECT id, run, page, asked_at, decided_at, entry, count(*) OVER () AS total,
                (SELECT walk.kind FROM run AS walk WHERE walk.id = searched.run) AS kind
         FROM searched WHERE substr(entry, 1, 8) = $3
         ORDER BY substr(entry, 9, 1) IN ($5, $6, $7), id DESC LIMIT $8",
    )
    .bind(job.0)
    .text(WHOLE)
    .bind(mark.0.to_vec())
    .bind(i64::from(LONGEST));
    for decision in NOTHING_NEW {
        found = found.bind(vec![decision]);
    }
    let rows = found.bind(i64::from(limit)).all(db).await?;
    let total = rows.first().map(|row| rows::count::<DB>(row, "total")).transpose()?.unwrap_or(0);
    let left_out = total.saturating_sub(rows.len() as u64);
    let mut told = Vec::with_capacity(rows.len());
    for row in &rows {
        let id: i64 = rows::get::<DB, _>(row, "id")?;
        let entry = rows::get::<DB, Option<Vec<u8>>>(row, "entry")?.unwrap_or_default();
        let first = sighting::first(&entry).ok_or_else(|| rows::unreadable("keys of sighting", id))?;
        let sightings = match first.finding {
            Finding::Outdone => all_on_page::<DB>(db, id).await?,
            _ => vec![first],
        };
        for sighting in sightings.into_iter().filter(|sighting| sighting.key == mark) {
            told.push((id, reading::<DB>(row, sighting)?));
        }
    }
    // Stable: what a page held several times stays in its order.
    told.sort_by_key(|(id, _)| *id);
    Ok((told.into_iter().map(|(_, reading)| reading).collect(), left_out))
}

fn reading<DB: Dialect>(row: &DB::Row, sighting: Sighting) -> Result<Reading, StoreError> {
    Ok(Reading {
        run: RunId(rows::get::<DB, _>(row, "run")?),
        kind: rows::get::<DB, Option<String>>(row, "kind")?.and_then(|name| RunKind::from_name(&name)),
        page: rows::number::<DB>(row, "page")?,
        asked_at: rows::instant::<DB>(row, "asked_at")?,
        decided_at: rows::instant::<DB>(row, "decided_at")?,
        finding: sighting.finding,
        silent: sighting.silent,
        version: sighting.version,
    })
}

async fn all_on_page<DB: Dialect>(db: &mut DB::Connection, id: i64) -> Result<Vec<Sighting>, StoreError> {
    let row = sql::<DB>("SELECT id, keys FROM sighting WHERE id = $1").bind(id).one(db).await?;
    sightings::<DB>(&row)
}

/// All that a page found, from the columns `id` and `keys`.
fn sightings<DB: Dialect>(row: &DB::Row) -> Result<Vec<Sighting>, StoreError> {
    let keys = rows::get::<DB, Option<Vec<u8>>>(row, "keys")?.unwrap_or_default();
    let id: i64 = rows::get::<DB, _>(row, "id")?;
    sighting::decode(&keys).ok_or_else(|| rows::unreadable("keys of sighting", id))
}

/// The newest events of a key in the order of the outbox with their attempts, and how many are older.
async fn events<DB: Dialect>(
    db: &mut DB::Connection,
    job: JobId,
    key: &RecordKey,
    limit: u32,
) -> Result<(Vec<EventFact>, u64), StoreError> {
    let rows = sql::<DB>(
        "SELECT event.position, event.event_id, event.redelivery, event.sequence, event.kind, event.destination, event.replay IS NOT NULL AS replayed,
                event.tries, event.ambiguous, event.created_at, event.settled_at, count(*) OVER () AS total,
                CASE WHEN head.held THEN 'held' ELSE event.state END AS state,
                head.position AS head, head.due_at, head.leased AND head.due_at > {now} AS leased
         FROM event LEFT JOIN outbox_head AS head ON head.position = event.position
         WHERE event.job = $1 AND event.partition = $2 AND event.key = $3
         ORDER BY event.position DESC LIMIT $4",
    )
    .bind(job.0)
    .text(WHOLE)
    .text(key.as_str())
    .bind(i64::from(limit))
    .all(db)
    .await?;
    let total = rows.first().map(|row| rows::count::<DB>(row, "total")).transpose()?.unwrap_or(0);
    let older = total.saturating_sub(rows.len() as u64);
    let mut positions = Vec::with_capacity(rows.len());
    for row in &rows {
        positions.push(rows::get::<DB, i64>(row, "position")?);
    }
    let mut attempts = attempts::<DB>(db, &positions).await?;
    let mut events = Vec::with_capacity(rows.len());
    for (row, position) in rows.iter().zip(positions).rev() {
        let mut event = event_fact::<DB>(row)?;
        event.attempts = attempts.remove(&position).unwrap_or_default();
        events.push(event);
    }
    Ok((events, older))
}

fn event_fact<DB: Dialect>(row: &DB::Row) -> Result<EventFact, StoreError> {
    let state = event::state::<DB>(row)?;
    let is_head = rows::get::<DB, Option<i64>>(row, "head")?.is_some();
    let leased = rows::get::<DB, Option<bool>>(row, "leased")?.unwrap_or(false);
    let due_at = rows::maybe_instant::<DB>(row, "due_at")?;
    Ok(EventFact {
        id: rows::get::<DB, _>(row, "event_id")?,
        redelivery: rows::number::<DB>(row, "redelivery")?,
        sequence: rows::get::<DB, _>(row, "sequence")?,
        kind: rows::get::<DB, _>(row, "kind")?,
        replayed: rows::get::<DB, _>(row, "replayed")?,
        destination: rows::get::<DB, _>(row, "destination")?,
        tries: rows::count::<DB>(row, "tries")?,
        state,
        ambiguous: rows::get::<DB, _>(row, "ambiguous")?,
        leased,
        blocked: state == EventState::Pending && !is_head,
        created_at: rows::instant::<DB>(row, "created_at")?,
        settled_at: rows::maybe_instant::<DB>(row, "settled_at")?,
        next_attempt_at: due_at.filter(|_| !leased && state == EventState::Pending),
        attempts: Vec::new(),
    })
}

/// The attempts for the events at these positions, the oldest first.
async fn attempts<DB: Dialect>(
    db: &mut DB::Connection,
    positions: &[i64],
) -> Result<HashMap<i64, Vec<AttemptFact>>, StoreError> {
    let mut attempts: HashMap<i64, Vec<AttemptFact>> = HashMap::new();
    if positions.is_empty() {
        return Ok(attempts);
    }
    let rows = sql::<DB>(
        "SELECT attempt.position, outcome, class, batch, ambiguous, status, error, sent_at, took
         FROM {each_text}($1{json}) AS asked CROSS JOIN attempt
         WHERE attempt.position = CAST(asked.value AS BIGINT) ORDER BY attempt.id",
    )
    .bind(serde_json::to_string(positions)?)
    .all(db)
    .await?;
    for row in &rows {
        attempts.entry(rows::get::<DB, _>(row, "position")?).or_default().push(AttemptFact {
            outcome: rows::get::<DB, _>(row, "outcome")?,
            class: rows::get::<DB, _>(row, "class")?,
            batch: rows::get::<DB, _>(row, "batch")?,
            ambiguous: rows::get::<DB, _>(row, "ambiguous")?,
            status: rows::get::<DB, _>(row, "status")?,
            error: rows::get::<DB, _>(row, "error")?,
            sent_at: rows::instant::<DB>(row, "sent_at")?,
            took: std::time::Duration::from_micros(rows::count::<DB>(row, "took")?),
        });
    }
    Ok(attempts)
}

/// The keys beside an unknown one.
async fn near<DB: Dialect>(
    db: &mut DB::Connection,
    job: JobId,
    key: &RecordKey,
) -> Result<Vec<String>, StoreError> {
    let mut near = Vec::new();
    let before = sql::<DB>(
        "SELECT key FROM record WHERE job = $1 AND partition = $2 AND key < $3 ORDER BY key DESC LIMIT $4",
    );
    let after = sql::<DB>(
        "SELECT key FROM record WHERE job = $1 AND partition = $2 AND key > $3 ORDER BY key LIMIT $4",
    );
    for side in [before, after] {
        let rows = side.bind(job.0).text(WHOLE).text(key.as_str()).bind(NEAR).all(db).await?;
        for row in &rows {
            near.push(rows::get::<DB, String>(row, "key")?);
        }
    }
    near.sort();
    Ok(near)
}

/// A run of a job, and what it read; `None` where the job has no such run.
pub(super) async fn run<DB: Dialect>(
    db: &mut DB::Connection,
    job: JobId,
    run: RunId,
) -> Result<Option<(RunView, RunFacts)>, StoreError> {
    let row = sql::<DB>("SELECT run.*, id AS run_id FROM run WHERE id = $1 AND job = $2")
        .bind(run.0)
        .bind(job.0)
        .first(db)
        .await?;
    let Some(row) = row else { return Ok(None) };
    let Some(view) = rows::run::<DB>(&row)? else { return Ok(None) };
    let mut facts = RunFacts {
        from: rows::get::<DB, Option<i64>>(&row, "from_version")?.map(Version),
        ..RunFacts::default()
    };
    let pages = sql::<DB>(
        "SELECT id, page, asked_at, answered_at, keys FROM sighting WHERE job = $1 AND run = $2 ORDER BY id",
    );
    for row in &pages.bind(job.0).bind(run.0).all(db).await? {
        facts.pages.push(page::<DB>(row)?);
    }
    let covered = sql::<DB>(
        "SELECT run, from_version, to_version, read_at FROM covered WHERE job = $1 AND run = $2 ORDER BY id",
    );
    for row in &covered.bind(job.0).bind(run.0).all(db).await? {
        facts.covered.push(covered_by::<DB>(row)?.1);
    }
    Ok(Some((view, facts)))
}

fn page<DB: Dialect>(row: &DB::Row) -> Result<PageFact, StoreError> {
    let mut page = PageFact {
        page: rows::number::<DB>(row, "page")?,
        asked_at: rows::instant::<DB>(row, "asked_at")?,
        answered_at: rows::instant::<DB>(row, "answered_at")?,
        found: std::collections::BTreeMap::new(),
    };
    for sighting in sightings::<DB>(row)? {
        *page.found.entry((sighting.finding, sighting.silent)).or_default() += 1;
    }
    Ok(page)
}

fn covered_by<DB: Dialect>(row: &DB::Row) -> Result<(RunId, Covered), StoreError> {
    let covered = Covered {
        from: rows::get::<DB, Option<i64>>(row, "from_version")?.map(Version),
        to: rows::get::<DB, Option<i64>>(row, "to_version")?.map(Version),
        read_at: rows::instant::<DB>(row, "read_at")?,
    };
    Ok((RunId(rows::get::<DB, _>(row, "run")?), covered))
}

/// Who covered parts of [`from`, `to`), and which runs asked for a part of it and did not come to its end: those that
/// began at `since` or later.
pub(super) async fn coverage<DB: Dialect>(
    db: &mut DB::Connection,
    job: JobId,
    (Version(from), Version(to)): (Version, Version),
    since: Option<Instant>,
) -> Result<Coverage, StoreError> {
    let covered = sql::<DB>(
        "SELECT run, from_version, to_version, read_at FROM covered
         WHERE job = $1 AND partition = $2 AND (from_version IS NULL OR from_version < $4)
           AND (to_version IS NULL OR to_version > $3)",
    );
    let covered = covered.bind(job.0).text(WHOLE).bind(from).bind(to).all(db).await?;
    let cut_off = sql::<DB>(
        "SELECT run.*, id AS run_id, count(*) OVER () AS total FROM run
         WHERE job = $1 AND status NOT IN ('ok', 'running') AND (from_version IS NULL OR from_version < $2)
           AND ($3 IS NULL OR started_at >= $3)
         ORDER BY id DESC LIMIT $4",
    );
    let cut_off = cut_off.bind(job.0).bind(to).bind(since.map(Instant::micros)).bind(FAILED).all(db).await?;
    let total = cut_off.first().map(|row| rows::count::<DB>(row, "total")).transpose()?.unwrap_or(0);
    let mut runs = Vec::new();
    for row in cut_off.iter().rev() {
        runs.extend(rows::run::<DB>(row)?);
    }
    Ok(Coverage {
        covered: covered.iter().map(covered_by::<DB>).collect::<Result<_, _>>()?,
        more_cut_off: total.saturating_sub(runs.len() as u64),
        cut_off: runs,
    })
}
