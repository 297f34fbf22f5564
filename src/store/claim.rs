//! Taking messages of the outbox for sending. Whoever claims passes over what is locked and waits for nobody; the
//! order of locks stands at the top of `outbox.rs`.
//!
//! Why what may have been received is repeated as it was: its heads carry the message they were sent in until an answer
//! settles it. They are taken together or not at all: where another transaction holds one of them, the count
//! of those that carry the message, told after ours are locked, is not the count of those we hold. Where one has left
//! (a person discarded it), the message is named anew by what it still holds.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;

use super::{
    ClaimRules, ClaimedEvent, ClaimedMessage, JobId, StoreError,
    coalesce::coalesce,
    destination::{self, Admission},
    dialect::{Dialect, sql},
    rows,
};
use crate::domain::{
    batch::{Waiting, batch_id},
    delivery::Tried,
    instant::{Instant, micros_of},
};

/// A head that this transaction has locked.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) position: i64,
    job: i64,
    /// What it was sent in before, where that may have been received.
    pub(super) message: Option<String>,
}

pub(super) async fn claim<DB: Dialect>(
    db: &mut DB::Connection,
    destination: &str,
    rules: &ClaimRules,
) -> Result<Vec<ClaimedMessage>, StoreError> {
    let admission = destination::admit::<DB>(db, destination, rules.messages).await?;
    let (mut heads, room) = match admission {
        Admission::None => return Ok(Vec::new()),
        Admission::Due(room) => (due::<DB>(db, destination, rules, room).await?, room),
        Admission::Probe => (least_tried::<DB>(db, destination).await?, 1),
    };
    let is_probe = matches!(admission, Admission::Probe);
    if heads.is_empty() {
        return Ok(Vec::new());
    }
    if rules.coalesces {
        coalesce::<DB>(db, &mut heads).await?;
    }
    let room = usize::try_from(room).unwrap_or(usize::MAX);
    let mut messages = repeats::<DB>(db, destination, &heads).await?;
    messages.extend(fresh::<DB>(db, rules, is_probe, &heads).await?);
    messages.sort_unstable_by_key(|message| message.order);
    messages.truncate(room);
    // Only now: the right to probe would be taken for nothing where no message is whole.
    if messages.is_empty() || (is_probe && !destination::take_probe::<DB>(db, destination, rules.ttl).await?)
    {
        return Ok(Vec::new());
    }
    take::<DB>(db, destination, rules.ttl, is_probe, messages).await
}

/// The heads that are due, the longest due first.
async fn due<DB: Dialect>(
    db: &mut DB::Connection,
    destination: &str,
    rules: &ClaimRules,
    room: u32,
) -> Result<Vec<Head>, StoreError> {
    let each = rules.batch.map_or(1, |batch| batch.max_events.get());
    let rows = sql::<DB>(
        "SELECT position, job, message FROM outbox_head
         WHERE destination = $1 AND due_at <= {now} AND NOT held ORDER BY due_at, position LIMIT $2 {skip_locked}",
    )
    .text(destination)
    .bind(i64::from(room) * i64::from(each))
    .all(db)
    .await?;
    rows.iter().map(head::<DB>).collect()
}

/// The head that was not tried for longest, due or not: no single event can hold a destination shut.
async fn least_tried<DB: Dialect>(
    db: &mut DB::Connection,
    destination: &str,
) -> Result<Vec<Head>, StoreError> {
    let rows = sql::<DB>(
        "SELECT position, job, message FROM outbox_head
         WHERE destination = $1 AND (due_at <= {now} OR NOT leased) AND NOT held
         ORDER BY tried_at NULLS FIRST, position LIMIT 1 {skip_locked}",
    )
    .text(destination)
    .all(db)
    .await?;
    rows.iter().map(head::<DB>).collect()
}

fn head<DB: Dialect>(row: &DB::Row) -> Result<Head, StoreError> {
    Ok(Head {
        position: rows::get::<DB, _>(row, "position")?,
        job: rows::get::<DB, _>(row, "job")?,
        message: rows::get::<DB, _>(row, "message")?,
    })
}

/// A message that is going to be taken.
#[derive(Debug)]
struct Message {
    /// By the place of its first head among those that are due.
    order: usize,
    positions: Vec<i64>,
    /// What it was sent as before.
    was: Option<String>,
    /// It goes in the form of a batch, were it with one event.
    is_batch: bool,
}

/// The messages that some of these heads were sent in, with all heads that carry them, as far as they are whole.
async fn repeats<DB: Dialect>(
    db: &mut DB::Connection,
    destination: &str,
    heads: &[Head],
) -> Result<Vec<Message>, StoreError> {
    let mut wanted: BTreeMap<&str, usize> = BTreeMap::new();
    for (order, head) in heads.iter().enumerate() {
        if let Some(message) = &head.message {
            wanted.entry(message).or_insert(order);
        }
    }
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let names = serde_json::to_string(&wanted.keys().collect::<Vec<_>>())?;
    // Found first and locked then: in one statement PostgreSQL may choose to compare all heads with all.
    let found = sql::<DB>(
        "SELECT head.position FROM {each_text}($1{json}) AS wanted CROSS JOIN outbox_head AS head
         WHERE head.destination = $2 AND head.message = wanted.value AND head.message IS NOT NULL",
    )
    .bind(names.clone())
    .text(destination)
    .all(db)
    .await?;
    let found =
        found.iter().map(|row| rows::get::<DB, i64>(row, "position")).collect::<Result<Vec<_>, _>>()?;
    let held = sql::<DB>(
        "SELECT position, message FROM outbox_head
         WHERE position IN (SELECT CAST(found.value AS BIGINT) FROM {each_text}($1{json}) AS found)
           AND destination = $2 AND message IS NOT NULL AND NOT (leased AND due_at > {now})
         ORDER BY position {skip_locked}",
    )
    .bind(serde_json::to_string(&found)?)
    .text(destination)
    .all(db)
    .await?;
    let mut positions: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for row in held {
        let position = rows::get::<DB, i64>(&row, "position")?;
        positions.entry(rows::get::<DB, _>(&row, "message")?).or_default().push(position);
    }
    // A statement of its own after the one that locked: it sees those that others hold.
    let whole = sql::<DB>(
        "SELECT head.message, count(*) AS count, min(event.event_id) AS event_id
         FROM {each_text}($1{json}) AS wanted CROSS JOIN outbox_head AS head CROSS JOIN event
         WHERE head.destination = $2 AND head.message = wanted.value AND head.message IS NOT NULL
           AND event.position = head.position
         GROUP BY head.message",
    )
    .bind(names)
    .text(destination)
    .all(db)
    .await?;
    let mut messages = Vec::new();
    for row in whole {
        let message: String = rows::get::<DB, _>(&row, "message")?;
        let held = positions.remove(&message).unwrap_or_default();
        if rows::count::<DB>(&row, "count")? == held.len() as u64 {
            let is_batch = rows::get::<DB, String>(&row, "event_id")? != message;
            let order = wanted.get(message.as_str()).copied().unwrap_or_default();
            messages.push(Message { order, positions: held, was: Some(message), is_batch });
        }
    }
    Ok(messages)
}

/// The messages that heads make which carry none.
async fn fresh<DB: Dialect>(
    db: &mut DB::Connection,
    rules: &ClaimRules,
    is_probe: bool,
    heads: &[Head],
) -> Result<Vec<Message>, StoreError> {
    let free: Vec<_> = heads.iter().enumerate().filter(|(_, head)| head.message.is_none()).collect();
    let alone = |is_batch| {
        free.iter().map(move |(order, head)| Message {
            order: *order,
            positions: vec![head.position],
            was: None,
            is_batch,
        })
    };
    let Some(batch) = &rules.batch else { return Ok(alone(false).collect()) };
    if is_probe || free.is_empty() {
        return Ok(alone(true).collect());
    }
    let positions: Vec<_> = free.iter().map(|(_, head)| head.position).collect();
    let sizes = sql::<DB>(
        "SELECT event.position, CAST(octet_length(event.body) AS BIGINT) AS bytes, {now} - event.created_at AS waited
         FROM {each_text}($1{json}) AS free CROSS JOIN event WHERE event.position = CAST(free.value AS BIGINT)",
    )
    .bind(serde_json::to_string(&positions)?)
    .all(db)
    .await?;
    let mut known = BTreeMap::new();
    for row in sizes {
        let waited = u64::try_from(rows::get::<DB, i64>(&row, "waited")?).unwrap_or(0);
        let facts = (rows::count::<DB>(&row, "bytes")?, Duration::from_micros(waited));
        known.insert(rows::get::<DB, i64>(&row, "position")?, facts);
    }
    let waiting = free.into_iter().map(|(order, head)| {
        let (bytes, waited) = known.get(&head.position).copied().unwrap_or_default();
        Waiting { of: (order, head.position), job: head.job, bytes, waited }
    });
    let packed = batch.pack(waiting, rules.messages as usize).into_iter().map(|heads| {
        let mut positions: Vec<_> = heads.iter().map(|(_, position)| *position).collect();
        positions.sort_unstable();
        let order = heads.first().map_or(usize::MAX, |(order, _)| *order);
        Message { order, positions, was: None, is_batch: true }
    });
    Ok(packed.collect())
}

/// Takes the heads of these messages.
async fn take<DB: Dialect>(
    db: &mut DB::Connection,
    destination: &str,
    ttl: Duration,
    is_probe: bool,
    messages: Vec<Message>,
) -> Result<Vec<ClaimedMessage>, StoreError> {
    #[derive(Serialize)]
    struct Taken<'a> {
        position: i64,
        message: &'a str,
    }
    let positions: Vec<_> = messages.iter().flat_map(|message| &message.positions).copied().collect();
    let mut events = read::<DB>(db, &positions).await?;
    let claimed: Vec<_> = messages
        .iter()
        .map(|message| {
            let of_message: Vec<_> =
                message.positions.iter().filter_map(|position| events.remove(position)).collect();
            claimed(destination, is_probe, message, of_message)
        })
        .collect();
    let taken: Vec<_> = claimed
        .iter()
        .flat_map(|message| message.events.iter().map(|event| (event.position, &message.id)))
        .map(|(position, message)| Taken { position, message })
        .collect();
    sql::<DB>(
        "UPDATE outbox_head SET leased = TRUE, fence = fence + 1, due_at = {now} + $2, tried_at = {now},
            message = taken.value ->> 'message'
         FROM {each}($1{json}) AS taken
         WHERE outbox_head.position = CAST(taken.value ->> 'position' AS BIGINT)",
    )
    .bind(serde_json::to_string(&taken)?)
    .bind(micros_of(ttl))
    .run(db)
    .await?;
    Ok(claimed)
}

/// What is known of a head's event.
struct Known {
    event: ClaimedEvent,
    job: i64,
    tries: u32,
    spent: u32,
    tried_at: Option<Instant>,
    is_ambiguous: bool,
}

/// Reads the events of heads before they are taken. One that was leased until now counts as tried: its sender may have
/// got as far as sending.
async fn read<DB: Dialect>(
    db: &mut DB::Connection,
    positions: &[i64],
) -> Result<BTreeMap<i64, Known>, StoreError> {
    let positions = serde_json::to_string(positions)?;
    sql::<DB>(
        "UPDATE event SET ambiguous = TRUE, tries = tries + 1
         WHERE position IN (SELECT head.position FROM {each_text}($1{json}) AS claimed CROSS JOIN outbox_head AS head
                            WHERE head.position = CAST(claimed.value AS BIGINT) AND head.leased)",
    )
    .bind(positions.clone())
    .run(db)
    .await?;
    let rows = sql::<DB>(
        "SELECT event.position, event.event_id, event.job, event.body, event.spent, event.tries, event.ambiguous,
                head.fence + 1 AS fence, head.tried_at
         FROM {each_text}($1{json}) AS claimed CROSS JOIN outbox_head AS head CROSS JOIN event
         WHERE head.position = CAST(claimed.value AS BIGINT) AND event.position = head.position",
    )
    .bind(positions)
    .all(db)
    .await?;
    rows.iter().map(|row| known::<DB>(row).map(|known| (known.event.position, known))).collect()
}

fn known<DB: Dialect>(row: &DB::Row) -> Result<Known, StoreError> {
    Ok(Known {
        event: ClaimedEvent {
            position: rows::get::<DB, _>(row, "position")?,
            event_id: rows::get::<DB, _>(row, "event_id")?,
            body: rows::get::<DB, String>(row, "body")?.into(),
            fence: rows::get::<DB, _>(row, "fence")?,
        },
        job: rows::get::<DB, _>(row, "job")?,
        tries: rows::number::<DB>(row, "tries")?,
        spent: rows::number::<DB>(row, "spent")?,
        tried_at: rows::maybe_instant::<DB>(row, "tried_at")?,
        is_ambiguous: rows::get::<DB, _>(row, "ambiguous")?,
    })
}

/// A message with its events. Of what is known of them that counts which holds it back the least, but for the last try:
/// there is evidence for all only where there is for the one that was tried last.
fn claimed(destination: &str, is_probe: bool, message: &Message, events: Vec<Known>) -> ClaimedMessage {
    let tried = Tried {
        tries: events.iter().map(|known| known.tries).min().unwrap_or_default(),
        spent: events.iter().map(|known| known.spent).min().unwrap_or_default(),
        tried_at: events.iter().filter_map(|known| known.tried_at).max(),
        is_probe,
        is_batch: events.len() > 1,
        is_ambiguous: message.was.is_some() && events.iter().any(|known| known.is_ambiguous),
    };
    let job = JobId(events.first().map(|known| known.job).unwrap_or_default());
    let events: Vec<_> = events.into_iter().map(|known| known.event).collect();
    let id = match &*events {
        [event] if !message.is_batch => event.event_id.clone(),
        events => batch_id(events.iter().map(|event| event.event_id.as_str())),
    };
    let (destination, is_repeat) = (destination.to_owned(), message.was.is_some());
    ClaimedMessage { id, destination, job, events, tried, is_repeat }
}
