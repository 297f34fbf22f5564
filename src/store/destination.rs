//! The health of destinations. A row is locked only by who changes it: a delivery to a destination that is well
//! writes once a second.
//!
//! Order of locks: an outbox head, then its destination. A claim locks its heads first too, and waits for none.

use std::time::Duration;

use super::{
    DestinationView, Resumed, StoreError, account,
    dialect::{Dialect, sql, without_nul},
    news, rows,
};
use crate::domain::{
    health::{Condition, Health, LONGEST_HOLD, Said},
    instant::{Instant, micros_of},
};

/// What may be claimed of a destination.
pub(super) enum Admission {
    /// Nothing.
    None,
    /// So many messages that are due.
    Due(u32),
    /// One event, due or not, to see whether the destination is well again.
    Probe,
}

/// What may be claimed, of `limit`. A probe still has to be [taken](take_probe).
pub(super) async fn admit<DB: Dialect>(
    db: &mut DB::Connection,
    name: &str,
    limit: u32,
) -> Result<Admission, StoreError> {
    let Some((health, paused_at)) = find::<DB>(db, name).await? else { return Ok(Admission::Due(limit)) };
    let now = account::now::<DB>(db).await?;
    let health = health.read_at(now);
    if paused_at.is_some() || health.not_before > Some(now) {
        return Ok(Admission::None);
    }
    Ok(match health.condition {
        Condition::Well => Admission::Due(limit),
        Condition::Failing | Condition::Parked => Admission::Probe,
        Condition::Recovering => {
            // What was begun before it was opened may hang for long, and holds nothing up.
            let row = sql::<DB>(
                "SELECT count(DISTINCT message) AS count FROM outbox_head
                 WHERE destination = $1 AND leased AND due_at > {now} AND tried_at >= $2",
            )
            .text(name)
            .bind(health.since.micros())
            .one(db)
            .await?;
            let under_way = rows::number::<DB>(&row, "count")?;
            match health.room.saturating_sub(under_way).min(limit) {
                0 => Admission::None,
                room => Admission::Due(room),
            }
        }
    })
}

/// Takes the right to probe a destination for `ttl`; `false` where another has it, or where it was opened.
pub(super) async fn take_probe<DB: Dialect>(
    db: &mut DB::Connection,
    name: &str,
    ttl: Duration,
) -> Result<bool, StoreError> {
    let taken = sql::<DB>(
        "UPDATE destination SET not_before = {now} + $2
         WHERE name = $1 AND condition IN ('failing', 'parked') AND paused_at IS NULL
           AND (not_before IS NULL OR not_before <= {now} OR not_before > {now} + $3)",
    )
    .text(name)
    .bind(micros_of(ttl))
    .bind(micros_of(LONGEST_HOLD))
    .run(db)
    .await?;
    Ok(taken == 1)
}

/// What is known of a destination before and after an attempt, and when that was: moments of one destination are
/// told under its lock, so that they stand in the order of what was known.
pub(super) struct Heard {
    pub(super) before: Health,
    pub(super) after: Health,
    pub(super) at: Instant,
}

/// Takes in what an attempt says.
pub(super) async fn hear<DB: Dialect>(
    db: &mut DB::Connection,
    name: &str,
    said: &Said<'_>,
) -> Result<Heard, StoreError> {
    if let Some((health, _)) = find::<DB>(db, name).await? {
        let at = account::now::<DB>(db).await?;
        if health.knows(said.verdict, at) {
            return Ok(Heard { before: health.clone(), after: health, at });
        }
    }
    let before = lock::<DB>(db, name).await?;
    let at = account::now::<DB>(db).await?;
    let before = before.read_at(at);
    let after = before.after(said, at);
    write::<DB>(db, name, &after).await?;
    Ok(Heard { before, after, at })
}

/// Has a destination that is shut probed at once.
pub(super) async fn ask_now<DB: Dialect>(db: &mut DB::Connection, name: &str) -> Result<(), StoreError> {
    if find::<DB>(db, name).await?.is_none_or(|(health, _)| !health.condition.is_shut()) {
        return Ok(());
    }
    let mut health = lock::<DB>(db, name).await?;
    health.ask_now();
    write::<DB>(db, name, &health).await?;
    news::tell::<DB>(db, name).await
}

/// Pauses a destination, or lets it go on; `false` where it is so already.
pub(super) async fn pause<DB: Dialect>(
    db: &mut DB::Connection,
    name: &str,
    paused: bool,
) -> Result<bool, StoreError> {
    lock::<DB>(db, name).await?;
    let changed = sql::<DB>(
        "UPDATE destination SET paused_at = CASE WHEN $2 THEN {now} ELSE NULL END
         WHERE name = $1 AND (paused_at IS NOT NULL) <> $2",
    )
    .text(name)
    .bind(paused)
    .run(db)
    .await?;
    if changed == 1 && !paused {
        news::tell::<DB>(db, name).await?;
    }
    Ok(changed == 1)
}

/// Lets a destination go on, and has it asked at once, also where it wanted to be left alone: in one transaction, whose end is what the
/// person is told, whatever others do with it afterwards.
pub(super) async fn resume<DB: Dialect>(db: &mut DB::Connection, name: &str) -> Result<Resumed, StoreError> {
    let changed = pause::<DB>(db, name, false).await?;
    let mut health = lock::<DB>(db, name).await?;
    if health.not_before.is_some() {
        health.let_go();
        write::<DB>(db, name, &health).await?;
        news::tell::<DB>(db, name).await?;
    }
    let view = views::<DB>(db).await?.into_iter().find(|view| view.name == name);
    let view =
        view.unwrap_or_else(|| DestinationView { name: name.to_owned(), ..DestinationView::default() });
    Ok(Resumed { changed, view })
}

/// Has the events that wait for a destination due at once, but those that something counts against: they keep
/// their schedule, which would else be used up by a destination that opens and shuts. It locks many heads, and passes
/// over those that others hold: they are being sent, or just stored.
pub(super) async fn wake<DB: Dialect>(db: &mut DB::Connection, name: &str) -> Result<(), StoreError> {
    let waiting = sql::<DB>(
        "SELECT position FROM outbox_head WHERE destination = $1 AND NOT leased AND NOT held AND due_at > {now}
           AND (SELECT spent FROM event WHERE event.position = outbox_head.position) = 0
         ORDER BY position {skip_locked}",
    )
    .text(name)
    .all(db)
    .await?;
    let waiting =
        waiting.iter().map(|row| rows::get::<DB, i64>(row, "position")).collect::<Result<Vec<_>, _>>()?;
    if waiting.is_empty() {
        return Ok(());
    }
    sql::<DB>(
        "UPDATE outbox_head SET due_at = {now}
         WHERE position IN (SELECT CAST(waiting.value AS BIGINT) FROM {each_text}($1{json}) AS waiting)",
    )
    .bind(serde_json::to_string(&waiting)?)
    .run(db)
    .await?;
    Ok(())
}

/// What stands in the way of sending to a destination.
pub(super) enum Shut {
    /// A person.
    Paused,
    /// Only a probe may be sent, and that after so long.
    UntilProbed(Duration),
    /// Nothing, after so long.
    Until(Duration),
}

pub(super) async fn shut_for<DB: Dialect>(db: &mut DB::Connection, name: &str) -> Result<Shut, StoreError> {
    let Some((health, paused_at)) = find::<DB>(db, name).await? else {
        return Ok(Shut::Until(Duration::ZERO));
    };
    if paused_at.is_some() {
        return Ok(Shut::Paused);
    }
    let now = account::now::<DB>(db).await?;
    let health = health.read_at(now);
    let wait = health.not_before.map_or(Duration::ZERO, |not_before| not_before.since(now));
    Ok(if health.condition.is_shut() { Shut::UntilProbed(wait) } else { Shut::Until(wait) })
}

/// What a person sees of the destinations that are known: events wait for them, or they were sent something or paused.
pub(super) async fn views<DB: Dialect>(db: &mut DB::Connection) -> Result<Vec<DestinationView>, StoreError> {
    let rows = sql::<DB>(
        "SELECT known.name, condition, since, reason, failures, refusals, probes, room, not_before, delivered_at, paused_at,
                (SELECT count(*) FROM event WHERE event.destination = known.name AND event.state = 'pending') AS pending
         FROM (SELECT name FROM destination UNION SELECT destination FROM outbox_head) AS known
         LEFT JOIN destination ON destination.name = known.name ORDER BY known.name",
    )
    .all(db)
    .await?;
    rows.iter()
        .map(|row| {
            Ok(DestinationView {
                name: rows::get::<DB, _>(row, "name")?,
                health: match rows::get::<DB, Option<String>>(row, "condition")? {
                    Some(_) => health::<DB>(row)?,
                    None => Health::default(),
                },
                paused_at: rows::maybe_instant::<DB>(row, "paused_at")?,
                pending: rows::count::<DB>(row, "pending")?,
            })
        })
        .collect()
}

async fn find<DB: Dialect>(
    db: &mut DB::Connection,
    name: &str,
) -> Result<Option<(Health, Option<Instant>)>, StoreError> {
    let row = sql::<DB>(
        "SELECT condition, since, reason, failures, refusals, probes, room, not_before, delivered_at, paused_at
         FROM destination WHERE name = $1",
    )
    .text(name)
    .first(db)
    .await?;
    row.map(|row| Ok((health::<DB>(&row)?, rows::maybe_instant::<DB>(&row, "paused_at")?))).transpose()
}

/// Locks the destination's row, made where there is none.
async fn lock<DB: Dialect>(db: &mut DB::Connection, name: &str) -> Result<Health, StoreError> {
    sql::<DB>("INSERT INTO destination (name) VALUES ($1) ON CONFLICT (name) DO NOTHING")
        .text(name)
        .run(db)
        .await?;
    let row = sql::<DB>(
        "SELECT condition, since, reason, failures, refusals, probes, room, not_before, delivered_at
         FROM destination WHERE name = $1 {for_update}",
    )
    .text(name)
    .one(db)
    .await?;
    health::<DB>(&row)
}

async fn write<DB: Dialect>(db: &mut DB::Connection, name: &str, health: &Health) -> Result<(), StoreError> {
    sql::<DB>(
        "UPDATE destination SET condition = $2, since = $3, reason = $4, failures = $5, refusals = $6, probes = $7,
            room = $8, not_before = $9, delivered_at = $10
         WHERE name = $1",
    )
    .text(name)
    .text(health.condition.name())
    .bind(health.since.micros())
    .bind(health.reason.as_deref().map(without_nul))
    .bind(i64::from(health.failures))
    .bind(i64::from(health.refusals))
    .bind(i64::from(health.probes))
    .bind(i64::from(health.room))
    .bind(health.not_before.map(Instant::micros))
    .bind(health.delivered_at.map(Instant::micros))
    .run(db)
    .await?;
    Ok(())
}

fn health<DB: Dialect>(row: &DB::Row) -> Result<Health, StoreError> {
    let condition: String = rows::get::<DB, _>(row, "condition")?;
    Ok(Health {
        condition: Condition::from_name(&condition)
            .ok_or_else(|| rows::unreadable("condition", &condition))?,
        since: rows::instant::<DB>(row, "since")?,
        reason: rows::get::<DB, _>(row, "reason")?,
        failures: rows::number::<DB>(row, "failures")?,
        refusals: rows::number::<DB>(row, "refusals")?,
        probes: rows::number::<DB>(row, "probes")?,
        room: rows::number::<DB>(row, "room")?,
        not_before: rows::maybe_instant::<DB>(row, "not_before")?,
        delivered_at: rows::maybe_instant::<DB>(row, "delivered_at")?,
    })
}
