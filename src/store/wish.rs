//! What a person does to single events: retry, redeliver, discard.
//!
//! A settled event stays settled: what is sent again is a new row of the same id, with the same sequence and the same
//! bytes, which goes behind what waits of its key. Only a dead one can still be discarded. The order of locks stands
//! at the top of `outbox.rs`.

use super::{
    EventState, StoreError,
    dialect::{Dialect, sql},
    event, news, outbox, rows,
};

/// What a person wants of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Try one that waits at once, and send a dead one again.
    Retry,
    /// Send a delivered one again.
    Redeliver,
    /// Never send one that waits or is dead.
    Discard,
}

/// What came of a wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granted {
    /// It was done.
    Done,
    /// A retry of an event that waits behind an earlier one of its key changes nothing.
    Blocked,
    /// Nothing was done, since it is being sent.
    BeingSent,
    /// Nothing was done, since its state does not allow it.
    Not(EventState),
    /// Nothing was done, since it was settled in the same moment.
    JustSettled,
    /// Nothing was done, since it was sent again already.
    SentAgain,
}

/// The head of an event's lane.
struct Head {
    position: i64,
    is_leased: bool,
    is_being_sent: bool,
}

pub(super) async fn grant<DB: Dialect>(
    db: &mut DB::Connection,
    position: i64,
    wish: Wish,
) -> Result<Granted, StoreError> {
    match (wish, hold::<DB>(db, position).await?) {
        (_, Held::Pending(head)) if head.position == position && head.is_being_sent => Ok(Granted::BeingSent),
        (Wish::Retry, Held::Pending(head)) if head.position == position => hurry::<DB>(db, position).await,
        (Wish::Retry, Held::Pending(_)) => Ok(Granted::Blocked),
        (Wish::Discard, Held::Pending(head)) => discard::<DB>(db, position, &head).await,
        (_, Held::Settled(_)) if is_sent_again::<DB>(db, position).await? => Ok(Granted::SentAgain),
        (Wish::Retry, Held::Settled(EventState::Dead))
        | (Wish::Redeliver, Held::Settled(EventState::Delivered)) => send_again::<DB>(db, position).await,
        (Wish::Discard, Held::Settled(EventState::Dead)) => discard_dead::<DB>(db, position).await,
        (_, Held::Settled(state)) => Ok(Granted::Not(state)),
        (Wish::Redeliver, Held::Pending(_)) => Ok(Granted::Not(EventState::Pending)),
        (_, Held::JustSettled) => Ok(Granted::JustSettled),
    }
}

/// An event that nobody else writes until this transaction ends.
enum Held {
    /// It waits, and the head of its key is locked.
    Pending(Head),
    /// Its row is locked.
    Settled(EventState),
    /// It was settled while its head was waited for. Its row is not locked: who holds a head waits for no row.
    JustSettled,
}

/// Locks an event: by its key's head where it waits, so that no settlement of an earlier event moves the head to it
/// meanwhile.
async fn hold<DB: Dialect>(db: &mut DB::Connection, position: i64) -> Result<Held, StoreError> {
    // Again where the event was settled or turned over to another destination between the two statements.
    for _ in 0..3 {
        let head = sql::<DB>(
            "SELECT position, leased, leased AND due_at > {now} AS is_being_sent FROM outbox_head
             WHERE (destination, job, partition, lane) = (SELECT event.destination, event.job, event.partition, event.lane
                    FROM event WHERE event.position = $1 AND event.state = 'pending') {for_update}",
        );
        if let Some(row) = head.bind(position).first(db).await? {
            let waits = sql::<DB>("SELECT position FROM event WHERE position = $1 AND state = 'pending'");
            if waits.bind(position).first(db).await?.is_none() {
                return Ok(Held::JustSettled);
            }
            return Ok(Held::Pending(Head {
                position: rows::get::<DB, _>(&row, "position")?,
                is_leased: rows::get::<DB, _>(&row, "leased")?,
                is_being_sent: rows::get::<DB, _>(&row, "is_being_sent")?,
            }));
        }
        let settled =
            sql::<DB>("SELECT state FROM event WHERE position = $1 AND state <> 'pending' {for_update}");
        if let Some(row) = settled.bind(position).first(db).await? {
            return Ok(Held::Settled(event::state::<DB>(&row)?));
        }
    }
    Err(StoreError::Inconsistent(format!("no event that can be held stands at {position}")))
}

/// Has the lane's first event due at once. One that was held is judged as if it had never been tried.
async fn hurry<DB: Dialect>(db: &mut DB::Connection, position: i64) -> Result<Granted, StoreError> {
    sql::<DB>(
        "UPDATE event SET spent = 0
         WHERE position = (SELECT head.position FROM outbox_head AS head WHERE head.position = $1 AND head.held)",
    )
    .bind(position)
    .run(db)
    .await?;
    let due = sql::<DB>(
        "UPDATE outbox_head SET due_at = {now}, held = FALSE WHERE position = $1 AND due_at > {now}",
    );
    if due.bind(position).run(db).await? > 0 {
        news::tell_of::<DB>(db, position).await?;
    }
    Ok(Granted::Done)
}

async fn is_sent_again<DB: Dialect>(db: &mut DB::Connection, position: i64) -> Result<bool, StoreError> {
    // A statement of its own after the one that locked the row: it sees what was committed before.
    let later = sql::<DB>(
        "SELECT later.position FROM event JOIN event AS later
           ON later.event_id = event.event_id AND later.redelivery = event.redelivery + 1
         WHERE event.position = $1",
    );
    Ok(later.bind(position).first(db).await?.is_some())
}

/// Stores a settled event once more. What may have been acted on before stays ambiguous.
async fn send_again<DB: Dialect>(db: &mut DB::Connection, position: i64) -> Result<Granted, StoreError> {
    sql::<DB>(
        "INSERT INTO event (event_id, redelivery, destination, job, partition, key, lane, sequence, kind, body, ambiguous,
                            created_at)
         SELECT event_id, redelivery + 1, destination, job, partition, key, lane, sequence, kind, body, ambiguous, {now}
         FROM event WHERE position = $1",
    )
    .bind(position)
    .run(db)
    .await?;
    sql::<DB>(
        "INSERT INTO outbox_head (destination, job, partition, lane, position, due_at)
         SELECT again.destination, again.job, again.partition, again.lane, again.position, {now}
         FROM event JOIN event AS again
           ON again.event_id = event.event_id AND again.redelivery = event.redelivery + 1
         WHERE event.position = $1
         ON CONFLICT (destination, job, partition, lane) DO UPDATE SET position = outbox_head.position",
    )
    .bind(position)
    .run(db)
    .await?;
    news::tell_of::<DB>(db, position).await?;
    Ok(Granted::Done)
}

/// Discards an event that waits. Where a sender had it and was not heard of again, it may have been sent.
async fn discard<DB: Dialect>(
    db: &mut DB::Connection,
    position: i64,
    head: &Head,
) -> Result<Granted, StoreError> {
    let is_head = head.position == position;
    sql::<DB>(
        "UPDATE event SET state = 'discarded', settled_at = {now}, ambiguous = ambiguous OR $2
         WHERE position = $1 AND state = 'pending'",
    )
    .bind(position)
    .bind(is_head && head.is_leased)
    .run(db)
    .await?;
    if is_head {
        outbox::move_heads::<DB>(db, &format!("[{position}]")).await?;
        news::tell_of::<DB>(db, position).await?;
    }
    Ok(Granted::Done)
}

async fn discard_dead<DB: Dialect>(db: &mut DB::Connection, position: i64) -> Result<Granted, StoreError> {
    sql::<DB>(
        "UPDATE event SET state = 'discarded', settled_at = {now} WHERE position = $1 AND state = 'dead'",
    )
    .bind(position)
    .run(db)
    .await?;
    Ok(Granted::Done)
}
