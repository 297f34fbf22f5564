//! What a person sees of the outbox: its events, each with what became of it last, and the story of one.

use std::time::Duration;

use serde::Serialize;

use super::{
    StoreError,
    dialect::{Dialect, sql},
    rows,
};
use crate::domain::{event_state::EventState, instant::Instant};

/// Which events a person asks for. What is `None` lets all pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFilter {
    /// In one of these states.
    pub states: Vec<EventState>,
    /// Of the job of this name.
    pub job: Option<String>,
    /// For this destination.
    pub destination: Option<String>,
    /// Of this key.
    pub key: Option<String>,
    /// Whose last error holds this text, in whatever case.
    pub reason: Option<String>,
    /// Stored at this instant or later, by the database's clock.
    pub since: Option<Instant>,
}

/// What a person sees of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventView {
    /// Its place in the outbox.
    #[serde(skip)]
    pub position: i64,
    /// Its id.
    #[serde(rename = "event")]
    pub event_id: String,
    /// How often a person had it sent again; what follows is of the last time.
    pub redelivery: u32,
    /// The job it came from.
    pub job: String,
    /// Where it goes.
    pub destination: String,
    /// The record's key.
    pub key: String,
    /// The key's position.
    pub sequence: i64,
    /// The kind of change.
    #[serde(rename = "type")]
    pub kind: String,
    /// What became of it.
    pub state: EventState,
    /// The receiver may have acted on it although it is not known to be delivered.
    pub ambiguous: bool,
    /// It is being sent.
    pub leased: bool,
    /// It waits behind an earlier event of its key.
    pub blocked: bool,
    /// The batch that it is being sent in, or that may have been received and is repeated as it was.
    pub batch: Option<String>,
    /// How often it was tried.
    pub tries: u32,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
    /// When it was stored, by the database's clock.
    pub created_at: Instant,
    /// When it was delivered, given up or discarded.
    pub settled_at: Option<Instant>,
    /// When it is due, where it waits and is first of its key.
    pub next_attempt_at: Option<Instant>,
}

/// All that is known of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventStory {
    /// The request body.
    pub body: String,
    /// The attempts to deliver it, the oldest first.
    pub attempts: Vec<AttemptView>,
}

/// What a person sees of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptView {
    /// How often the event had been sent again by then.
    pub redelivery: u32,
    /// What it came to: `delivered`, `again`, `refused`, `split` or `dead`.
    pub outcome: String,
    /// What the answer meant: `delivered`, `failed`, `lost`, `unreached`, `misplaced`, `refused`, `too_large` or `busy`; `None` where
    /// an older release stored it.
    pub class: Option<String>,
    /// The batch that it went in; `None` where it went alone.
    pub batch: Option<String>,
    /// The receiver may have acted on it all the same.
    pub ambiguous: bool,
    /// The HTTP status, where there was an answer.
    pub status: Option<i64>,
    /// What went wrong.
    pub error: Option<String>,
    /// The beginning of the answer's body.
    pub answer: String,
    /// When it was sent, by the sender's clock.
    pub sent_at: Instant,
    /// How long it took.
    pub took: Duration,
}

/// The latest row of each event under a further condition.
macro_rules! latest {
    ($condition:literal) => {
        concat!(
            "SELECT event.position, event.event_id, event.redelivery, job.name AS job, event.destination, event.key,
                event.sequence, event.kind, event.ambiguous,
                CASE WHEN head.held THEN 'held' ELSE event.state END AS state, head.message, event.tries, event.created_at, event.settled_at,
                head.position AS head, head.due_at, head.leased AND head.due_at > {now} AS leased,
                (SELECT attempt.error FROM attempt WHERE attempt.position = event.position
                 ORDER BY attempt.id DESC LIMIT 1) AS last_error
             FROM event JOIN job ON job.id = event.job LEFT JOIN outbox_head AS head ON head.position = event.position
             WHERE NOT EXISTS (SELECT 1 FROM event AS later WHERE later.event_id = event.event_id
                               AND later.redelivery = event.redelivery + 1) AND ",
            $condition
        )
    };
}

pub(super) async fn list<DB: Dialect>(
    db: &mut DB::Connection,
    filter: &EventFilter,
    limit: u32,
) -> Result<Vec<EventView>, StoreError> {
    let rows = sql::<DB>(concat!(
        "SELECT * FROM (",
        latest!(
            "CASE WHEN head.held THEN 'held' ELSE event.state END
                 IN (SELECT wanted.value FROM {each_text}($1{json}) AS wanted)
             AND ($2 IS NULL OR job.name = $2) AND ($3 IS NULL OR event.destination = $3)
             AND ($4 IS NULL OR event.key = $4) AND ($5 IS NULL OR event.created_at >= $5)"
        ),
        ") AS listed WHERE $6 IS NULL OR {strpos}(lower(last_error), lower($6)) > 0
         ORDER BY position DESC LIMIT $7",
    ))
    .bind(serde_json::to_string(&filter.states)?)
    .bind(filter.job.clone())
    .bind(filter.destination.clone())
    .bind(filter.key.clone())
    .bind(filter.since.map(Instant::micros))
    .bind(filter.reason.clone())
    .bind(i64::from(limit))
    .all(db)
    .await?;
    rows.iter().rev().map(view::<DB>).collect()
}

pub(super) async fn find<DB: Dialect>(
    db: &mut DB::Connection,
    beginning: &str,
) -> Result<Vec<EventView>, StoreError> {
    let rows =
        sql::<DB>(latest!("event.event_id >= $1 AND event.event_id < $2 ORDER BY event.event_id LIMIT 2"))
            .text(beginning)
            // Behind all that ids are made of.
            .text(&format!("{beginning}~"))
            .all(db)
            .await?;
    rows.iter().map(view::<DB>).collect()
}

pub(super) async fn story<DB: Dialect>(
    db: &mut DB::Connection,
    event_id: &str,
) -> Result<Option<EventStory>, StoreError> {
    let event =
        sql::<DB>("SELECT body FROM event WHERE event_id = $1 AND redelivery = 0").text(event_id).first(db);
    let Some(event) = event.await? else { return Ok(None) };
    let attempts = sql::<DB>(
        "SELECT event.redelivery, attempt.outcome, attempt.class, attempt.batch, attempt.ambiguous, attempt.status, attempt.error, attempt.answer,
                attempt.sent_at, attempt.took
         FROM event JOIN attempt ON attempt.position = event.position WHERE event.event_id = $1 ORDER BY attempt.id",
    )
    .text(event_id)
    .all(db)
    .await?;
    Ok(Some(EventStory {
        body: rows::get::<DB, _>(&event, "body")?,
        attempts: attempts.iter().map(attempt::<DB>).collect::<Result<_, _>>()?,
    }))
}

fn view<DB: Dialect>(row: &DB::Row) -> Result<EventView, StoreError> {
    let state = state::<DB>(row)?;
    let is_head = rows::get::<DB, Option<i64>>(row, "head")?.is_some();
    let leased = rows::get::<DB, Option<bool>>(row, "leased")?.unwrap_or(false);
    let event_id: String = rows::get::<DB, _>(row, "event_id")?;
    Ok(EventView {
        position: rows::get::<DB, _>(row, "position")?,
        redelivery: rows::number::<DB>(row, "redelivery")?,
        job: rows::get::<DB, _>(row, "job")?,
        destination: rows::get::<DB, _>(row, "destination")?,
        key: rows::get::<DB, _>(row, "key")?,
        sequence: rows::get::<DB, _>(row, "sequence")?,
        kind: rows::get::<DB, _>(row, "kind")?,
        state,
        ambiguous: rows::get::<DB, _>(row, "ambiguous")?,
        leased,
        blocked: state == EventState::Pending && !is_head,
        batch: rows::get::<DB, Option<String>>(row, "message")?.filter(|message| *message != event_id),
        tries: rows::number::<DB>(row, "tries")?,
        last_error: rows::get::<DB, _>(row, "last_error")?,
        created_at: rows::instant::<DB>(row, "created_at")?,
        settled_at: rows::maybe_instant::<DB>(row, "settled_at")?,
        next_attempt_at: rows::maybe_instant::<DB>(row, "due_at")?
            .filter(|_| !leased && state == EventState::Pending),
        event_id,
    })
}

/// The column `state` of an event.
pub(super) fn state<DB: Dialect>(row: &DB::Row) -> Result<EventState, StoreError> {
    let name: String = rows::get::<DB, _>(row, "state")?;
    EventState::from_name(&name).ok_or_else(|| rows::unreadable("state", &name))
}

fn attempt<DB: Dialect>(row: &DB::Row) -> Result<AttemptView, StoreError> {
    Ok(AttemptView {
        redelivery: rows::number::<DB>(row, "redelivery")?,
        outcome: rows::get::<DB, _>(row, "outcome")?,
        class: rows::get::<DB, _>(row, "class")?,
        batch: rows::get::<DB, _>(row, "batch")?,
        ambiguous: rows::get::<DB, _>(row, "ambiguous")?,
        status: rows::get::<DB, _>(row, "status")?,
        error: rows::get::<DB, _>(row, "error")?,
        answer: rows::get::<DB, _>(row, "answer")?,
        sent_at: rows::instant::<DB>(row, "sent_at")?,
        took: Duration::from_micros(rows::count::<DB>(row, "took")?),
    })
}
