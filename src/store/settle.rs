//! Storing an answer: what becomes of a message's events, and what it says of their destination. It locks the heads of
//! the message in the order of their lanes, and after them the destination; the order of locks stands at the top of
//! `outbox.rs`.
//!
//! A split stores the two halves and lets them go: each is claimed as any message that is repeated, with fences of its
//! own. No order among them has to be kept, since a batch holds one event of a lane at most.

use std::time::Duration;

use serde::Serialize;

use super::{
    Attempt, ClaimedEvent, ClaimedMessage, Settled, StoreError,
    destination::{self, Heard},
    dialect::{Dialect, sql, without_nul},
    outbox, rows,
};
use crate::domain::{
    batch::batch_id,
    delivery::{self, Next, Verdict},
    health::Said,
    instant::{Instant, micros_of},
    lane::OnDead,
};

/// An event that the claim still holds. `claimed_at` is `None` where it was turned over meanwhile to another
/// destination, of which this attempt says nothing.
struct Held<'a> {
    event: &'a ClaimedEvent,
    claimed_at: Option<Instant>,
}

pub(super) async fn settle<DB: Dialect>(
    db: &mut DB::Connection,
    claim: &ClaimedMessage,
    attempt: &Attempt,
) -> Result<Option<Settled>, StoreError> {
    let held = hold::<DB>(db, claim).await?;
    if held.is_empty() {
        return Ok(None);
    }
    let said = Said {
        verdict: attempt.verdict,
        is_probe: claim.tried.is_probe,
        is_batch: claim.tried.is_batch,
        claimed_at: held.iter().filter_map(|held| held.claimed_at).max().unwrap_or_default(),
        why: attempt.error.as_deref(),
        delays: &attempt.delays,
        random: attempt.random,
    };
    let Heard { before, after, at } = destination::hear::<DB>(db, &claim.destination, &said).await?;
    let next = delivery::next(attempt.verdict, claim.tried, &before, &attempt.delays, attempt.random);
    let (ours, away): (Vec<_>, Vec<_>) =
        held.iter().partition(|held| held.claimed_at.is_some() || next == Next::Delivered);
    let [ours, away] = [ours, away].map(|held| held.iter().map(|held| held.event).collect::<Vec<_>>());
    if !ours.is_empty() {
        let ended = Ended::of(next, attempt);
        note::<DB>(db, claim, attempt, &ended, &ours).await?;
        write::<DB>(db, &ended, &ours).await?;
        carry_out::<DB>(db, claim, attempt, next, at, &ours).await?;
    }
    if !away.is_empty() {
        let ended = Ended::elsewhere(attempt);
        note::<DB>(db, claim, attempt, &ended, &away).await?;
        write::<DB>(db, &ended, &away).await?;
        set_free::<DB>(db, &away).await?;
    }
    let settled =
        Settled { next, events: held.len() as u64, before: before.condition, after: after.condition };
    if settled.has_opened() || settled.has_recovered() {
        destination::wake::<DB>(db, &claim.destination).await?;
    }
    Ok(Some(settled))
}

/// What becomes of the heads of these events.
async fn carry_out<DB: Dialect>(
    db: &mut DB::Connection,
    claim: &ClaimedMessage,
    attempt: &Attempt,
    next: Next,
    at: Instant,
    events: &[&ClaimedEvent],
) -> Result<(), StoreError> {
    match next {
        Next::Delivered => outbox::move_heads::<DB>(db, &positions_of(events)).await,
        Next::Dead if attempt.on_dead == OnDead::Skip => {
            outbox::move_heads::<DB>(db, &positions_of(events)).await
        }
        Next::Dead => hold_back::<DB>(db, events).await,
        Next::Again { after, ambiguous, .. } => {
            let message = (claim.is_repeat || ambiguous).then_some(claim.id.as_str());
            let_go::<DB>(db, events, message, after, at).await
        }
        Next::Split { .. } => {
            let (one, other) = events.split_at(events.len().div_ceil(2));
            for half in [one, other].into_iter().filter(|half| !half.is_empty()) {
                let message = batch_id(half.iter().map(|event| event.event_id.as_str()));
                let_go::<DB>(db, half, Some(&message), Duration::ZERO, at).await?;
                if half.len() == 1 {
                    forgive::<DB>(db, half).await?;
                }
            }
            Ok(())
        }
    }
}

/// Locks the heads that the claim still holds, and tells their events in the order of the message.
async fn hold<'a, DB: Dialect>(
    db: &mut DB::Connection,
    claim: &'a ClaimedMessage,
) -> Result<Vec<Held<'a>>, StoreError> {
    let events: Vec<_> = claim.events.iter().collect();
    let rows = sql::<DB>(
        "SELECT position, fence, tried_at FROM outbox_head
         WHERE position IN (SELECT CAST(claimed.value AS BIGINT) FROM {each_text}($1{json}) AS claimed) AND leased
         ORDER BY lane {for_update}",
    )
    .bind(positions_of(&events))
    .all(db)
    .await?;
    let mut held = Vec::new();
    for row in rows {
        let (position, fence) =
            (rows::get::<DB, i64>(&row, "position")?, rows::get::<DB, i64>(&row, "fence")?);
        let claimed_at = rows::maybe_instant::<DB>(&row, "tried_at")?;
        let event = claim.events.iter().find(|event| event.position == position && event.fence == fence);
        held.extend(event.map(|event| Held { event, claimed_at }));
    }
    held.sort_unstable_by_key(|held| held.event.position);
    Ok(held)
}

fn positions_of(events: &[&ClaimedEvent]) -> String {
    let positions: Vec<_> = events.iter().map(|event| event.position).collect();
    serde_json::Value::from(positions).to_string()
}

/// What a settlement writes of an event.
struct Ended {
    outcome: &'static str,
    state: &'static str,
    spent: bool,
    ambiguous: bool,
}

impl Ended {
    fn of(next: Next, attempt: &Attempt) -> Self {
        let ended = |outcome, state, spent, ambiguous| Self { outcome, state, spent, ambiguous };
        match next {
            Next::Delivered => ended("delivered", "delivered", false, false),
            Next::Dead if attempt.on_dead == OnDead::Hold => ended("dead", "pending", true, false),
            Next::Dead => ended("dead", "dead", true, false),
            Next::Split { ambiguous } => ended("split", "pending", false, ambiguous),
            Next::Again { spent, ambiguous, .. } => {
                let is_refused = matches!(attempt.verdict, Verdict::Refused | Verdict::TooLarge);
                ended(if is_refused { "refused" } else { "again" }, "pending", spent, ambiguous)
            }
        }
    }
}

impl Ended {
    /// The same of an event that was turned over to another destination, of which the answer says nothing.
    fn elsewhere(attempt: &Attempt) -> Self {
        let ambiguous = matches!(attempt.verdict, Verdict::Failed { ambiguous: true, .. });
        Self { outcome: "again", state: "pending", spent: false, ambiguous }
    }
}

/// Writes the attempt down for each event.
async fn note<DB: Dialect>(
    db: &mut DB::Connection,
    claim: &ClaimedMessage,
    attempt: &Attempt,
    ended: &Ended,
    events: &[&ClaimedEvent],
) -> Result<(), StoreError> {
    #[derive(Serialize)]
    struct Noted {
        position: i64,
        fence: i64,
    }
    let is_alone = events.first().is_some_and(|event| event.event_id == claim.id);
    let noted: Vec<_> =
        events.iter().map(|event| Noted { position: event.position, fence: event.fence }).collect();
    sql::<DB>(
        "INSERT INTO attempt (position, fence, batch, outcome, class, ambiguous, status, error, answer, sent_at, took)
         SELECT CAST(noted.value ->> 'position' AS BIGINT), CAST(noted.value ->> 'fence' AS BIGINT),
                $2, $3, $4, $5, $6, $7, $8, $9, $10
         FROM {each}($1{json}) AS noted",
    )
    .bind(serde_json::to_string(&noted)?)
    .bind((!is_alone).then(|| claim.id.clone()))
    .text(ended.outcome)
    .text(attempt.verdict.class())
    .bind(ended.ambiguous)
    .bind(attempt.status.map(i64::from))
    .bind(attempt.error.as_deref().map(without_nul))
    .text(&attempt.answer)
    .bind(attempt.sent_at.micros())
    .bind(micros_of(attempt.took))
    .run(db)
    .await?;
    Ok(())
}

/// Writes what became of the events. What counts against them counts for those that were tried before alone: of
/// another nothing could be known.
async fn write<DB: Dialect>(
    db: &mut DB::Connection,
    ended: &Ended,
    events: &[&ClaimedEvent],
) -> Result<(), StoreError> {
    let written = sql::<DB>(
        "UPDATE event SET state = $2, spent = spent + CASE WHEN tries > 0 THEN $3 ELSE 0 END, tries = tries + 1,
            ambiguous = ambiguous OR $4,
            settled_at = CASE WHEN $2 = 'pending' THEN NULL ELSE {now} END
         WHERE position IN (SELECT CAST(settled.value AS BIGINT) FROM {each_text}($1{json}) AS settled)
           AND state = 'pending'",
    )
    .bind(positions_of(events))
    .text(ended.state)
    .bind(i64::from(ended.spent))
    .bind(ended.ambiguous)
    .run(db)
    .await?;
    if written == events.len() as u64 {
        Ok(())
    } else {
        let positions = positions_of(events);
        Err(StoreError::Inconsistent(format!(
            "heads stand at events that are settled already, among {positions}"
        )))
    }
}

/// Gives heads back, to be tried again after a while as the message they were sent in, where there is one.
async fn let_go<DB: Dialect>(
    db: &mut DB::Connection,
    events: &[&ClaimedEvent],
    message: Option<&str>,
    after: Duration,
    at: Instant,
) -> Result<(), StoreError> {
    sql::<DB>(
        "UPDATE outbox_head SET leased = FALSE, message = $2, due_at = {now} + $3, tried_at = $4
         WHERE position IN (SELECT CAST(settled.value AS BIGINT) FROM {each_text}($1{json}) AS settled)",
    )
    .bind(positions_of(events))
    .bind(message.map(str::to_owned))
    .bind(micros_of(after))
    .bind(at.micros())
    .run(db)
    .await?;
    Ok(())
}

/// Forgets what counted against events: it may have been for what came with them.
async fn forgive<DB: Dialect>(db: &mut DB::Connection, events: &[&ClaimedEvent]) -> Result<(), StoreError> {
    sql::<DB>(
        "UPDATE event SET spent = 0
         WHERE position IN (SELECT CAST(settled.value AS BIGINT) FROM {each_text}($1{json}) AS settled)",
    )
    .bind(positions_of(events))
    .run(db)
    .await?;
    Ok(())
}

/// Gives heads back that another destination is to be sent, at once.
async fn set_free<DB: Dialect>(db: &mut DB::Connection, events: &[&ClaimedEvent]) -> Result<(), StoreError> {
    sql::<DB>(
        "UPDATE outbox_head SET leased = FALSE, held = FALSE, message = NULL, due_at = {now}, tried_at = NULL
         WHERE position IN (SELECT CAST(settled.value AS BIGINT) FROM {each_text}($1{json}) AS settled)",
    )
    .bind(positions_of(events))
    .run(db)
    .await?;
    Ok(())
}

/// Has the lanes of events that were refused for good wait for a person.
async fn hold_back<DB: Dialect>(db: &mut DB::Connection, events: &[&ClaimedEvent]) -> Result<(), StoreError> {
    sql::<DB>(
        "UPDATE outbox_head SET leased = FALSE, held = TRUE, message = NULL, due_at = $2
         WHERE position IN (SELECT CAST(settled.value AS BIGINT) FROM {each_text}($1{json}) AS settled)",
    )
    .bind(positions_of(events))
    .bind(outbox::NEVER)
    .run(db)
    .await?;
    Ok(())
}
