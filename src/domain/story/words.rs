//! What happened, in the sentences that a person reads who has never seen the store.

use crate::domain::{
    event_state::EventState,
    facts::{AttemptFact, EventFact, Reading},
    run::RunKind,
    sighting::{Finding, Silent},
    story::Show,
    units::format_duration,
    version::Version,
};

/// How much of an event's id a sentence shows.
const SHORT: usize = 16;

/// The version that is stored behind a reading, as far as readings tell.
pub(super) fn version_after(reading: &Reading, before: Option<Version>) -> Option<Version> {
    match reading.finding {
        Finding::Known
        | Finding::Stale
        | Finding::StaleRead
        | Finding::Conflict
        | Finding::Outdone
        | Finding::BelowFloor => before,
        _ => reading.version.or(before),
    }
}

/// Whether an event follows from a reading.
pub(super) const fn makes_event(reading: &Reading) -> bool {
    use Finding::{Created, Deleted, ReSeen, Restored, UpdatedByContent, UpdatedByVersion};
    reading.silent.is_none()
        && matches!(
            reading.finding,
            Created | UpdatedByVersion | UpdatedByContent | Deleted | Restored | ReSeen
        )
}

/// A reading, against the version that was stored before it.
pub(super) fn reading(reading: &Reading, stored: Option<Version>, show: Show<'_>) -> String {
    let version = match (reading.finding, reading.version) {
        (Finding::Known, _) => stored,
        (_, version) => version,
    };
    let version = match version {
        Some(version) => format!(" with version {}", show(version)),
        None if reading.finding == Finding::Known => String::new(),
        None => " without a version".to_owned(),
    };
    let run = reading.run.0;
    let beside = match reading.kind {
        Some(RunKind::Replay) => " (a replay)",
        Some(RunKind::Reconcile) => " (a sweep)",
        Some(RunKind::Live) | None => "",
    };
    let who = match reading.page {
        0 => format!("a person accepted it as run {run} had read it,"),
        page => format!("run {run}{beside}, page {page} read it"),
    };
    format!("{who}{version}: {}", found(reading.finding, reading.silent, stored.map(show).as_deref()))
}

/// What was found, against the version that was stored before.
pub fn found(finding: Finding, silent: Option<Silent>, stored: Option<&str>) -> String {
    let than_stored = stored.map(|stored| format!(" ({stored})")).unwrap_or_default();
    let found = match finding {
        Finding::Known => "nothing new, the bytes are the same as before".to_owned(),
        Finding::Unchanged => {
            "nothing new, all that counts as a change is the same as before (`changes` of the job says what does)"
                .to_owned()
        }
        Finding::Created => "it is new".to_owned(),
        Finding::CreatedDeleted => {
            "it is new and deleted already, so it was recorded without an event".to_owned()
        }
        Finding::UpdatedByVersion => {
            format!("it changed, its version is newer than what was stored{than_stored}")
        }
        Finding::UpdatedByContent => "it changed, its content differs under no newer version".to_owned(),
        Finding::Deleted => "it was deleted, as the source says".to_owned(),
        Finding::Restored => "it is back, it was deleted before".to_owned(),
        Finding::Stale => format!("older than what is stored{than_stored}, so it was ignored"),
        Finding::StaleRead => {
            "its content differs, but the page was asked for before what is stored had been \
             answered, so it was ignored: nobody can say which of the two is newer"
                .to_owned()
        }
        Finding::Conflict => {
            "its content changed a second time in one run without a newer version, so it was left \
             undecided for the next run"
                .to_owned()
        }
        Finding::BelowFloor => {
            "older than what is kept of keys (`retention.keys`): nobody can tell whether it was sent before, so it was \
             passed over; a replay sends it, marked `re_seen`"
                .to_owned()
        }
        Finding::ReSeen => {
            "what it was is forgotten (`retention.keys`), so that nobody can tell whether this was sent before: it was sent, \
             marked `re_seen`, since a replay or a person asked for it"
                .to_owned()
        }
        Finding::Outdone => "the same page held this key once more, and the other one was taken".to_owned(),
    };
    let silence = match silent {
        None => "",
        Some(Silent::Baseline) => {
            "; recorded without an event, since it stood when the job took its baseline (`first_run`, or `accept … baseline`)"
        }
        Some(Silent::NotSent) => {
            "; recorded without an event, since the job does not send changes of this kind (`changes.emit`)"
        }
    };
    format!("{found}{silence}")
}

/// Readings that found the same once more.
pub(super) fn again(repeated: &[Reading], last: &Reading) -> String {
    let mut runs: Vec<_> = repeated.iter().map(|reading| reading.run).collect();
    runs.dedup();
    let found =
        if last.finding == Finding::Known { "saw the same bytes" } else { "found nothing new either" };
    let runs = match runs.len() {
        1 => "1 more run".to_owned(),
        count => format!("{count} more runs"),
    };
    format!("… and {runs} {found}, last in run {}", last.run.0)
}

/// An event that was stored, by a page or by a sweep.
pub(super) fn stored(event: &EventFact, by_sweep: bool) -> String {
    let EventFact { id, kind, sequence, destination, .. } = event;
    let replayed = if event.replayed { " by a replay" } else { "" };
    let gone = if by_sweep { "a sweep over everything no longer found it: " } else { "" };
    match event.redelivery {
        0 => {
            format!(
                "{gone}event {id} ({kind}, number {sequence} of this key) was stored{replayed} for {destination}"
            )
        }
        _ => format!("a person had event {} sent again to {destination}, under the same id", short(id)),
    }
}

/// An attempt to deliver an event; the last one says whether the event is held.
pub(super) fn attempt(event: &EventFact, attempt: &AttemptFact, is_last: bool) -> String {
    const LOST: &str = "the receiver may have acted on it; it is repeated with the same id";
    let took = format_duration(attempt.took.max(std::time::Duration::from_millis(1)));
    let what = match (&attempt.error, attempt.status) {
        (Some(error), _) => error.split_whitespace().collect::<Vec<_>>().join(" "),
        (None, Some(status)) => status.to_string(),
        (None, None) => "no answer".to_owned(),
    };
    let told = match (attempt.outcome.as_str(), attempt.class.as_deref()) {
        ("delivered", _) => {
            let status = attempt.status.map_or(String::new(), |status| format!("{status}, "));
            format!("sent: {status}delivered after {took}")
        }
        ("split", _) => format!("sent: {what}; the batch is divided, to find the event that it failed for"),
        ("dead", _) if !is_last || event.state == EventState::Held => {
            format!(
                "sent: {what}; given up, and later events of its lane wait for a person (`on_dead: hold`)"
            )
        }
        ("dead", _) => format!("sent: {what}; given up, it is a dead letter"),
        ("refused", _) => format!("sent: refused ({what}); it is tried again"),
        (_, Some("lost")) => format!("sent: the answer was lost after {took} ({what}): {LOST}"),
        (_, Some("unreached")) => format!("not sent: {what}; it is tried again"),
        (_, Some("misplaced")) => {
            format!("sent: {what}; that says nothing of the event but of its destination, so that it waits")
        }
        (_, Some("busy")) => format!("sent: {what}; the receiver wants to be left alone for a while"),
        _ if attempt.ambiguous => format!("sent: {what}; {LOST}"),
        _ => format!("sent: {what}; it is tried again"),
    };
    let batch =
        attempt.batch.as_deref().map(|batch| format!(" in batch {}", short(batch))).unwrap_or_default();
    format!("event {}{batch} {told}", short(&event.id))
}

/// Attempts that nobody knows the end of.
pub(super) fn lost(event: &EventFact) -> Option<String> {
    let lost = event.tries.saturating_sub(event.attempts.len() as u64);
    let times = match lost {
        0 => return None,
        1 => "once".to_owned(),
        lost => format!("{lost} times"),
    };
    let id = short(&event.id);
    Some(format!(
        "event {id} was begun to be sent {times} by a process that was not heard of again: the receiver may have it, and it is \
         repeated with the same id"
    ))
}

/// How an event was settled, where no attempt tells it.
pub(super) fn settled(event: &EventFact) -> Option<String> {
    let id = short(&event.id);
    match event.state {
        EventState::Superseded => {
            Some(format!("event {id} was not sent: a newer one of its key went in its place (`coalesce`)"))
        }
        EventState::Discarded => Some(format!("a person discarded event {id}: it is not sent")),
        EventState::Delivered if event.attempts.is_empty() => Some(format!("event {id} was delivered")),
        EventState::Dead if event.attempts.is_empty() => Some(format!("event {id} became a dead letter")),
        _ => None,
    }
}

/// The beginning of an id.
pub(super) fn short(id: &str) -> String {
    id.chars().take(SHORT).collect()
}
