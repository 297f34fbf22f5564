//! The outbox: events in the order of their lanes, claimed and settled.
//!
//! A lane (destination, job, partition, and the record's key or, where no order is kept, the event's id) that has
//! unsettled events has one row in `outbox_head`, which names the earliest of them. Only heads are claimed, so that two
//! claims can never hold one lane, events that wait behind a head cost nothing, and a lane's events go out in the order
//! in which they were stored: by sequence, redeliveries behind what waited when they were asked for.
//!
//! Why no event is left without a head, and nothing deadlocks, on PostgreSQL (on SQLite every writing
//! transaction is alone):
//! - [`insert`] meets an existing head with an update, which locks it. A settlement of that lane locks the
//!   same row first and looks for the next event in a later statement, which sees all that was committed
//!   before the lock was got. So either the settlement sees the new event, or the insert finds the head
//!   gone and makes it anew.
//! - Whoever locks several heads locks them in the order of their lanes: [`insert`] and a
//!   [settlement](super::settle), whose heads are all of one job and one destination, and [`readdress`]. A
//!   [person's wish](super::wish) locks one. A [claim](super::claim) passes over what is locked and waits for nobody. So
//!   no two can wait for each other.
//! - A settlement locks the destination's row after its heads, and where that has opened, further heads after
//!   it: those alone that nobody holds, so that it waits for none.
//! - The row of an event that waits is written only by who holds its lane's head. One that is settled has no head;
//!   it is written only by a person's wish, which locks it first and then waits for one head at most, to store the
//!   redelivery. Nobody who holds a head waits for a settled row.

use std::{collections::HashMap, time::Duration};

use serde::Serialize;

use super::{
    JobId, PageCommit, StoreError,
    destination::{self, Shut},
    dialect::{Dialect, sql},
    news, rows,
    run::WHOLE,
};
use crate::domain::{
    event::{ChangeKind, Event, SentEvent},
    key::RecordKey,
    lane::Order,
    page::SeenRecord,
    task::TaskId,
};

/// When a head is due that waits for a person.
pub(super) const NEVER: i64 = i64::MAX;

/// Stores a page's events, which are in key order, and makes heads for keys that have none. An id that is
/// stored already is an error: it would be another change under the same name.
pub(super) async fn insert<DB: Dialect>(
    db: &mut DB::Connection,
    job: JobId,
    page: &PageCommit,
    events: &[Event],
) -> Result<(), StoreError> {
    let replay = page.rules.replay.as_ref().map(|replay| replay.task);
    insert_to::<DB>(db, job, &page.destination, page.order, replay, events).await
}

/// The same for events that no page made.
pub(super) async fn insert_to<DB: Dialect>(
    db: &mut DB::Connection,
    job: JobId,
    destination: &str,
    order: Order,
    replay: Option<TaskId>,
    events: &[Event],
) -> Result<(), StoreError> {
    #[derive(Serialize)]
    struct New<'a> {
        id: &'a str,
        key: &'a str,
        lane: &'a str,
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
        lane: match order {
            Order::Key => event.key.as_str(),
            Order::None => &event.id,
        },
        sequence: event.sequence,
        kind: event.event_type,
        body: &event.body,
    });
    sql::<DB>(
        "INSERT INTO event (event_id, destination, job, partition, key, lane, sequence, kind, body, replay, created_at)
         SELECT new.value ->> 'id', $1, $2, $3, new.value ->> 'key', new.value ->> 'lane', CAST(new.value ->> 'sequence' AS BIGINT),
                new.value ->> 'kind', new.value ->> 'body', $5, {now}
         FROM {each}($4{json}) AS new",
    )
    .text(destination)
    .bind(job.0)
    .text(WHOLE)
    .bind(serde_json::to_string(&new.collect::<Vec<_>>())?)
    .bind(replay.map(|TaskId(replay)| replay))
    .run(db)
    .await?;
    let ids = serde_json::to_string(&events.iter().map(|event| &event.id).collect::<Vec<_>>())?;
    sql::<DB>(
        "INSERT INTO outbox_head (destination, job, partition, lane, position, due_at)
         SELECT event.destination, event.job, event.partition, event.lane, event.position, {now}
         FROM {each_text}($1{json}) AS new CROSS JOIN event
         WHERE event.event_id = new.value ORDER BY event.lane
         ON CONFLICT (destination, job, partition, lane) DO UPDATE SET position = outbox_head.position",
    )
    .bind(ids)
    .run(db)
    .await?;
    news::tell::<DB>(db, destination).await
}

/// What a replay has sent of these records' keys already.
pub(super) async fn sent_by<DB: Dialect>(
    db: &mut DB::Connection,
    replay: TaskId,
    records: &[&SeenRecord],
) -> Result<HashMap<RecordKey, Vec<SentEvent>>, StoreError> {
    let keys: Vec<&str> = records.iter().map(|record| record.key.as_str()).collect();
    let rows = sql::<DB>(
        "SELECT event.key, event.event_id, event.kind, event.sequence
         FROM {each_text}($2{json}) AS seen CROSS JOIN event WHERE event.replay = $1 AND event.key = seen.value",
    )
    .bind(replay.0)
    .bind(serde_json::to_string(&keys)?)
    .all(db)
    .await?;
    let mut sent: HashMap<_, Vec<_>> = HashMap::new();
    for row in rows {
        let kind: String = rows::get::<DB, _>(&row, "kind")?;
        let event = SentEvent {
            id: rows::get::<DB, _>(&row, "event_id")?,
            kind: ChangeKind::from_event_type(&kind).ok_or_else(|| rows::unreadable("kind", &kind))?,
            sequence: rows::get::<DB, _>(&row, "sequence")?,
        };
        sent.entry(RecordKey::from_stored(rows::get::<DB, _>(&row, "key")?)).or_default().push(event);
    }
    Ok(sent)
}

/// Turns the heads of settled events over to the next events of their lanes, due at once, or takes them away.
/// `settled` is a JSON list of positions.
pub(super) async fn move_heads<DB: Dialect>(
    db: &mut DB::Connection,
    settled: &str,
) -> Result<(), StoreError> {
    // A statement of its own after the one that locked the heads: see the top of this file.
    sql::<DB>(
        "UPDATE outbox_head SET due_at = {now}, leased = FALSE, held = FALSE, message = NULL, tried_at = NULL,
            position = COALESCE(
                (SELECT min(event.position) FROM event
                 WHERE event.destination = outbox_head.destination AND event.job = outbox_head.job
                   AND event.partition = outbox_head.partition AND event.lane = outbox_head.lane
                   AND event.state = 'pending'), position)
         WHERE position IN (SELECT CAST(settled.value AS BIGINT) FROM {each_text}($1{json}) AS settled)",
    )
    .text(settled)
    .run(db)
    .await?;
    sql::<DB>(
        "DELETE FROM outbox_head
         WHERE position IN (SELECT CAST(settled.value AS BIGINT) FROM {each_text}($1{json}) AS settled)",
    )
    .text(settled)
    .run(db)
    .await?;
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
         WHERE head.position IN (SELECT min(first.position) FROM outbox_head AS first
                                 WHERE first.job = $1 AND first.partition = $2 AND first.destination <> $3
                                 GROUP BY first.lane)
           AND NOT EXISTS (SELECT 1 FROM outbox_head AS other
                           WHERE other.destination = $3 AND other.job = head.job AND other.partition = head.partition
                             AND other.lane = head.lane)
         ORDER BY head.lane {for_update}",
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
                AND waiting.partition = head.partition AND waiting.lane = head.lane AND waiting.state = 'pending')",
    )
    .bind(heads.clone())
    .text(destination)
    .run(db)
    .await?;
    sql::<DB>(
        "UPDATE outbox_head SET destination = $2, tried_at = NULL, message = NULL, held = FALSE,
            due_at = CASE WHEN leased THEN due_at ELSE {now} END
         WHERE position IN (SELECT CAST(moved.value AS BIGINT) FROM {each_text}($1{json}) AS moved)",
    )
    .bind(heads)
    .text(destination)
    .run(db)
    .await?;
    news::tell::<DB>(db, destination).await?;
    Ok(moved)
}

pub(super) async fn next_due<DB: Dialect>(
    db: &mut DB::Connection,
    destination: &str,
    linger: Duration,
) -> Result<Option<Duration>, StoreError> {
    let row = sql::<DB>(
        "SELECT min(due_at) - {now} AS wait FROM outbox_head WHERE destination = $1 AND due_at < $2",
    )
    .text(destination)
    .bind(NEVER)
    .one(db)
    .await?;
    let Some(wait) = rows::get::<DB, Option<i64>>(&row, "wait")? else { return Ok(None) };
    let due = match u64::try_from(wait) {
        Ok(wait) => Duration::from_micros(wait),
        // What is due and was not taken lingers.
        Err(_) => linger.saturating_sub(Duration::from_micros(wait.unsigned_abs())),
    };
    // Where only probes are sent, nobody waits for an event to be due.
    Ok(match destination::shut_for::<DB>(db, destination).await? {
        Shut::Paused => None,
        Shut::UntilProbed(wait) => Some(wait),
        Shut::Until(wait) => Some(due.max(wait)),
    })
}
