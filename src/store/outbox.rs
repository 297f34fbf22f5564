//! The outbox: events in the order of their keys, claimed and settled.
//!
//! A key (destination, job, partition, record key) that has unsettled events has one row in `outbox_head`,
//! which names the earliest of them. Only heads are claimed, so that two claims can never hold one key,
//! events that wait behind a head cost nothing, and a key's events go out in the order in which they were stored:
//! by sequence, redeliveries behind what waited when they were asked for.
//!
//! Why no event is left without a head, and nothing deadlocks, on PostgreSQL (on SQLite every writing
//! transaction is alone):
//! - [`insert`] meets an existing head with an update, which locks it. A settlement of that key locks the
//!   same row first and looks for the next event in a later statement, which sees all that was committed
//!   before the lock was got. So either the settlement sees the new event, or the insert finds the head
//!   gone and makes it anew.
//! - Whoever locks several heads locks them in the order of their keys: [`insert`], whose heads are all of
//!   one job and one destination. [`settle`] and a [person's wish](super::wish) lock one. [`claim`] passes over what is
//!   locked and waits for nobody. So no two can wait for each other.
//! - [`settle`] locks the destination's row after its head, and where that has opened, further heads after
//!   it: those alone that nobody holds, so that it waits for none.
//! - The row of an event that waits is written only by who holds its key's head. One that is settled has no head;
//!   it is written only by a person's wish, which locks it first and then waits for one head at most, to store the
//!   redelivery. Nobody who holds a head waits for a settled row.

use std::time::Duration;

use serde::Serialize;

use super::{
    Attempt, ClaimedEvent, JobId, Settled, StoreError,
    destination::{self, Admission, Heard, Shut},
    dialect::{Dialect, sql, without_nul},
    rows,
    run::WHOLE,
};
use crate::domain::{
    delivery::{self, Next, Tried, Verdict},
    event::Event,
    health::Said,
    instant::micros_of,
};

/// Stores a page's events, which are in key order, and makes heads for keys that have none. An id that is
/// stored already is an error: it would be another change under the same name.
pub(super) async fn insert<DB: Dialect>(
    db: &mut DB::Connection,
    job: JobId,
    destination: &str,
    events: &[Event],
) -> Result<(), StoreError> {
    #[derive(Serialize)]
    struct New<'a> {
        id: &'a str,
        key: &'a str,
        sequence: i64,
        kind: &'static str,
        body: &'a str,
    }
    if events.is_empty() {
        return Ok(());
    }
    let new = events.iter().map(|event| New {
        id: &event.id,
        key: event.key.as_str(),
        sequence: event.sequence,
        kind: event.kind.event_type(),
        body: &event.body,
    });
    sql::<DB>(
        "INSERT INTO event (event_id, destination, job, partition, key, sequence, kind, body, created_at)
         SELECT new.value ->> 'id', $1, $2, $3, new.value ->> 'key', CAST(new.value ->> 'sequence' AS BIGINT),
                new.value ->> 'kind', new.value ->> 'body', {now}
         FROM {each}($4{json}) AS new",
    )
    .text(destination)
    .bind(job.0)
    .text(WHOLE)
    .bind(serde_json::to_string(&new.collect::<Vec<_>>())?)
    .run(db)
    .await?;
    let ids = serde_json::to_string(&events.iter().map(|event| &event.id).collect::<Vec<_>>())?;
    sql::<DB>(
        "INSERT INTO outbox_head (destination, job, partition, key, position, due_at)
         SELECT event.destination, event.job, event.partition, event.key, event.position, {now}
         FROM {each_text}($1{json}) AS new CROSS JOIN event
         WHERE event.event_id = new.value ORDER BY event.key
         ON CONFLICT (destination, job, partition, key) DO UPDATE SET position = outbox_head.position",
    )
    .bind(ids)
    .run(db)
    .await?;
    Ok(())
}

pub(super) async fn claim<DB: Dialect>(
    db: &mut DB::Connection,
    destination: &str,
    limit: u32,
    ttl: Duration,
) -> Result<Vec<ClaimedEvent>, StoreError> {
    let (heads, is_probe) = match destination::admit::<DB>(db, destination, limit).await? {
        Admission::None => return Ok(Vec::new()),
        Admission::Due(room) => {
            let heads = sql::<DB>(
                "SELECT position FROM outbox_head WHERE destination = $1 AND due_at <= {now}
                 ORDER BY due_at, position LIMIT $2 {skip_locked}",
            );
            (heads.text(destination).bind(i64::from(room)).all(db).await?, false)
        }
        // The one that was not tried for longest: no single event can hold a destination shut.
        Admission::Probe => {
            let heads = sql::<DB>(
                "SELECT position FROM outbox_head WHERE destination = $1 AND (due_at <= {now} OR NOT leased)
                 ORDER BY tried_at NULLS FIRST, position LIMIT 1 {skip_locked}",
            );
            (heads.text(destination).all(db).await?, true)
        }
    };
    if heads.is_empty() || (is_probe && !destination::take_probe::<DB>(db, destination, ttl).await?) {
        return Ok(Vec::new());
    }
    let positions =
        heads.iter().map(|row| rows::get::<DB, i64>(row, "position")).collect::<Result<Vec<_>, _>>()?;
    let positions = serde_json::to_string(&positions)?;

    // A head that was leased until now: its sender may have got as far as sending.
    sql::<DB>(
        "UPDATE event SET ambiguous = TRUE, tries = tries + 1
         WHERE position IN (SELECT head.position FROM {each_text}($1{json}) AS claimed CROSS JOIN outbox_head AS head
                            WHERE head.position = CAST(claimed.value AS BIGINT) AND head.leased)",
    )
    .bind(positions.clone())
    .run(db)
    .await?;
    // Read before the heads are taken: when they were tried before.
    let claimed = sql::<DB>(
        "SELECT event.position, event.event_id, event.job, event.body, event.spent, event.tries, head.fence + 1 AS fence,
                head.tried_at
         FROM {each_text}($1{json}) AS claimed CROSS JOIN outbox_head AS head CROSS JOIN event
         WHERE head.position = CAST(claimed.value AS BIGINT) AND event.position = head.position
         ORDER BY event.position",
    )
    .bind(positions.clone())
    .all(db)
    .await?;
    sql::<DB>(
        "UPDATE outbox_head SET leased = TRUE, fence = fence + 1, due_at = {now} + $2, tried_at = {now}
         WHERE position IN (SELECT CAST(claimed.value AS BIGINT) FROM {each_text}($1{json}) AS claimed)",
    )
    .bind(positions)
    .bind(micros_of(ttl))
    .run(db)
    .await?;
    claimed.iter().map(|row| claimed_event::<DB>(row, destination, is_probe)).collect()
}

fn claimed_event<DB: Dialect>(
    row: &DB::Row,
    destination: &str,
    is_probe: bool,
) -> Result<ClaimedEvent, StoreError> {
    Ok(ClaimedEvent {
        position: rows::get::<DB, _>(row, "position")?,
        event_id: rows::get::<DB, _>(row, "event_id")?,
        destination: destination.to_owned(),
        job: JobId(rows::get::<DB, _>(row, "job")?),
        body: rows::get::<DB, _>(row, "body")?,
        tried: Tried {
            tries: rows::number::<DB>(row, "tries")?,
            spent: rows::number::<DB>(row, "spent")?,
            tried_at: rows::maybe_instant::<DB>(row, "tried_at")?,
            is_probe,
        },
        fence: rows::get::<DB, _>(row, "fence")?,
    })
}

pub(super) async fn settle<DB: Dialect>(
    db: &mut DB::Connection,
    claim: &ClaimedEvent,
    attempt: &Attempt,
) -> Result<Option<Settled>, StoreError> {
    let held = sql::<DB>(
        "SELECT tried_at FROM outbox_head WHERE position = $1 AND fence = $2 AND leased {for_update}",
    )
    .bind(claim.position)
    .bind(claim.fence)
    .first(db)
    .await?;
    let Some(held) = held else { return Ok(None) };
    // None where it was turned over meanwhile to another destination, of which this attempt says nothing.
    let claimed_at = rows::maybe_instant::<DB>(&held, "tried_at")?;
    let said = Said {
        verdict: attempt.verdict,
        is_probe: claim.tried.is_probe,
        claimed_at: claimed_at.unwrap_or_default(),
        why: attempt.error.as_deref(),
        delays: &attempt.delays,
        random: attempt.random,
    };
    let Heard { before, after, at } = destination::hear::<DB>(db, &claim.destination, &said).await?;
    let next = delivery::next(attempt.verdict, claim.tried, &before, &attempt.delays, attempt.random);
    let ended = Ended::of(next, attempt.verdict);
    sql::<DB>(
        "UPDATE outbox_head SET leased = FALSE, due_at = COALESCE({now} + $2, due_at), tried_at = $3
         WHERE position = $1",
    )
    .bind(claim.position)
    .bind(ended.again_after.map(|after| if claimed_at.is_some() { micros_of(after) } else { 0 }))
    .bind(claimed_at.map(|_| at.micros()))
    .run(db)
    .await?;
    sql::<DB>(
        "INSERT INTO attempt (position, fence, outcome, ambiguous, status, error, answer, sent_at, took)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    )
    .bind(claim.position)
    .bind(claim.fence)
    .text(ended.outcome)
    .bind(ended.ambiguous)
    .bind(attempt.status.map(i64::from))
    .bind(attempt.error.as_deref().map(without_nul))
    .text(&attempt.answer)
    .bind(attempt.sent_at.micros())
    .bind(micros_of(attempt.took))
    .run(db)
    .await?;
    let written = sql::<DB>(
        "UPDATE event SET state = $2, spent = spent + $3, tries = tries + 1,
            ambiguous = ambiguous OR $4,
            settled_at = CASE WHEN $2 = 'pending' THEN NULL ELSE {now} END
         WHERE position = $1 AND state = 'pending'",
    )
    .bind(claim.position)
    .text(ended.state)
    .bind(i64::from(ended.spent))
    .bind(ended.ambiguous)
    .run(db)
    .await?;
    if written != 1 {
        return Err(StoreError::Inconsistent(format!("the head at {} is settled already", claim.position)));
    }
    if ended.again_after.is_none() {
        move_head::<DB>(db, claim.position).await?;
    }
    let settled = Settled { next, before: before.condition, after: after.condition };
    if settled.has_opened() || settled.has_recovered() {
        destination::wake::<DB>(db, &claim.destination).await?;
    }
    Ok(Some(settled))
}

/// What a settlement writes.
struct Ended {
    outcome: &'static str,
    state: &'static str,
    spent: bool,
    ambiguous: bool,
    again_after: Option<Duration>,
}

impl Ended {
    fn of(next: Next, verdict: Verdict) -> Self {
        let settled =
            |state, spent| Self { outcome: state, state, spent, ambiguous: false, again_after: None };
        match next {
            Next::Delivered => settled("delivered", false),
            Next::Dead => settled("dead", true),
            Next::Again { after, spent, ambiguous } => Self {
                outcome: if verdict == Verdict::Refused { "refused" } else { "again" },
                state: "pending",
                spent,
                ambiguous,
                again_after: Some(after),
            },
        }
    }
}

/// Turns a settled event's head over to the key's next event, due at once, or takes it away.
pub(super) async fn move_head<DB: Dialect>(db: &mut DB::Connection, settled: i64) -> Result<(), StoreError> {
    // A statement of its own after the one that locked the head: see the top of this file.
    let next = sql::<DB>(
        "SELECT event.position FROM outbox_head AS head JOIN event
           ON event.destination = head.destination AND event.job = head.job
          AND event.partition = head.partition AND event.key = head.key AND event.state = 'pending'
         WHERE head.position = $1 ORDER BY event.position LIMIT 1",
    )
    .bind(settled)
    .first(db)
    .await?;
    match next {
        Some(row) => {
            sql::<DB>(
                "UPDATE outbox_head SET position = $2, due_at = {now}, leased = FALSE, tried_at = NULL
                 WHERE position = $1",
            )
            .bind(settled)
            .bind(rows::get::<DB, i64>(&row, "position")?)
            .run(db)
            .await?
        }
        None => sql::<DB>("DELETE FROM outbox_head WHERE position = $1").bind(settled).run(db).await?,
    };
    Ok(())
}

/// Turns waiting events over to another destination, due at once: what the old one answered says nothing of the
/// new one. A key that has a head there already (two processes read different files) keeps both heads, and so
/// both orders, until one of them is empty; of a key with heads at several others, the earliest goes alone.
pub(super) async fn readdress<DB: Dialect>(
    db: &mut DB::Connection,
    job: JobId,
    destination: &str,
) -> Result<u64, StoreError> {
    let heads = sql::<DB>(
        "SELECT head.position FROM outbox_head AS head
         WHERE head.job = $1 AND head.partition = $2 AND head.destination <> $3
           AND NOT EXISTS (SELECT 1 FROM outbox_head AS other WHERE other.job = head.job
                           AND other.partition = head.partition AND other.key = head.key
                           AND (other.destination = $3 OR other.position < head.position))
         ORDER BY head.key {for_update}",
    )
    .bind(job.0)
    .text(WHOLE)
    .text(destination)
    .all(db)
    .await?;
    if heads.is_empty() {
        return Ok(0);
    }
    let heads =
        heads.iter().map(|row| rows::get::<DB, i64>(row, "position")).collect::<Result<Vec<_>, _>>()?;
    let heads = serde_json::to_string(&heads)?;
    let moved = sql::<DB>(
        "UPDATE event SET destination = $2 WHERE position IN (
             SELECT waiting.position FROM {each_text}($1{json}) AS moved
               JOIN outbox_head AS head ON head.position = CAST(moved.value AS BIGINT)
               JOIN event AS waiting ON waiting.destination = head.destination AND waiting.job = head.job
                AND waiting.partition = head.partition AND waiting.key = head.key AND waiting.state = 'pending')",
    )
    .bind(heads.clone())
    .text(destination)
    .run(db)
    .await?;
    sql::<DB>(
        "UPDATE outbox_head SET destination = $2, tried_at = NULL,
            due_at = CASE WHEN leased THEN due_at ELSE {now} END
         WHERE position IN (SELECT CAST(moved.value AS BIGINT) FROM {each_text}($1{json}) AS moved)",
    )
    .bind(heads)
    .text(destination)
    .run(db)
    .await?;
    Ok(moved)
}

pub(super) async fn next_due<DB: Dialect>(
    db: &mut DB::Connection,
    destination: &str,
) -> Result<Option<Duration>, StoreError> {
    let row = sql::<DB>("SELECT min(due_at) - {now} AS wait FROM outbox_head WHERE destination = $1")
        .text(destination)
        .one(db)
        .await?;
    let Some(wait) = rows::get::<DB, Option<i64>>(&row, "wait")? else { return Ok(None) };
    let due = Duration::from_micros(u64::try_from(wait).unwrap_or(0));
    // Where only probes are sent, nobody waits for an event to be due.
    Ok(match destination::shut_for::<DB>(db, destination).await? {
        Shut::Paused => None,
        Shut::UntilProbed(wait) => Some(wait),
        Shut::Until(wait) => Some(due.max(wait)),
    })
}
