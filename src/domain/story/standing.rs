//! Where a record stands now, in a few sentences: what is stored of it, what became of its last event, and what
//! happens next.

use super::{Show, words};
use crate::domain::{
    decide::Deletion,
    event_state::EventState,
    facts::{EventFact, KeyFacts, Reading},
    instant::Instant,
    sighting::Finding,
};

/// What is known of what comes next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// When the job runs next.
    pub next_run: Option<Instant>,
    /// What keeps the destination from taking events, where something does.
    pub trouble: Option<String>,
    /// What the job, or its sweep, waits for a person to answer.
    pub questions: Vec<String>,
}

/// Where the record of a job stands, one sentence each.
pub fn standing(facts: &KeyFacts, job: &str, outlook: &Outlook, show: Show<'_>) -> Vec<String> {
    let key = facts.key.as_str();
    let mut told = Vec::new();
    if !facts.is_known() {
        told.push(format!("the key {key} was never seen by {job}"));
        if !facts.near.is_empty() {
            told.push(format!("keys beside it: {}", facts.near.join(", ")));
        }
        told.push(format!(
            "`onlynew why {job} --gap FROM TO` tells whether the time of its last change was ever read"
        ));
        told.extend(unread(facts, job));
        told.extend(next_run(job, outlook));
        return told;
    }
    told.push(match facts.record {
        None => format!(
            "the key {key} of {job} is not stored any more: the job began anew since (`onlynew accept`)"
        ),
        Some(record) => {
            let version = match record.version {
                _ if record.is_forgotten => ", and what it was is forgotten (`retention.keys`)".to_owned(),
                Some(version) => format!(" with version {}", show(version)),
                None => " without a version".to_owned(),
            };
            let deleted = match record.deleted {
                None => "",
                Some(Deletion::Flagged) => ", deleted by the word of the source",
                Some(Deletion::Reconciled) => ", deleted: the source lists it no more",
            };
            let (first, last) = (second(record.first_seen_at), second(record.changed_at));
            format!(
                "the key {key} of {job} is stored{version}{deleted}; first seen {first}, last changed {last}"
            )
        }
    });
    if let Some(last) = facts.readings.last() {
        let found = words::found(last.finding, last.silent, None);
        told.push(format!("last read {} by run {}: {found}", second(last.decided_at), last.run.0));
    }
    told.push(match facts.events.last() {
        Some(event) => event_now(event),
        None => format!("it has had no event{}", why_none(&facts.readings)),
    });
    let waits =
        facts.events.iter().any(|event| matches!(event.state, EventState::Pending | EventState::Held));
    told.extend(outlook.trouble.clone().filter(|_| waits));
    told.extend(outlook.questions.iter().cloned());
    told.extend(next_run(job, outlook));
    told.extend(unread(facts, job));
    told
}

fn event_now(event: &EventFact) -> String {
    let id = words::short(&event.id);
    let when = event.settled_at.map(second).unwrap_or_default();
    let error = event.attempts.last().and_then(|attempt| attempt.error.as_deref());
    let error = error.map(|error| format!(" ({error})")).unwrap_or_default();
    let state = match event.state {
        EventState::Delivered => format!("was delivered {when}"),
        EventState::Dead => {
            format!("is a dead letter since {when}{error}: `onlynew outbox retry {id}` sends it again")
        }
        EventState::Held => format!(
            "was refused for good{error}, and later events of its key wait: `onlynew outbox retry {id}` or `discard {id}`"
        ),
        EventState::Discarded => format!("was discarded by a person {when}"),
        EventState::Superseded => format!("was passed over {when}, for a newer one"),
        EventState::Pending if event.leased => "is being sent".to_owned(),
        EventState::Pending if event.blocked => "waits behind an earlier one of its key".to_owned(),
        EventState::Pending => match event.next_attempt_at {
            Some(due) => format!("waits{error} and is due {}", second(due)),
            None => format!("waits{error}"),
        },
    };
    let EventFact { kind, sequence, .. } = event;
    let again = if event.redelivery > 0 { ", sent again by a person," } else { "" };
    format!("its last event {id} ({kind}, number {sequence}){again} {state}")
}

/// Why a known key has no event, as far as its readings tell.
fn why_none(readings: &[Reading]) -> String {
    let silent = |reading: &&Reading| reading.silent.is_some() || reading.finding == Finding::CreatedDeleted;
    match readings.iter().rev().find(silent) {
        Some(reading) => format!(": {}", words::found(reading.finding, reading.silent, None)),
        None => String::new(),
    }
}

fn next_run(job: &str, outlook: &Outlook) -> Option<String> {
    outlook.next_run.map(|next| format!("{job} reads again {}", second(next)))
}

fn unread(facts: &KeyFacts, job: &str) -> Option<String> {
    let told = match facts.quarantined {
        0 => return None,
        1 => "1 record of the job".to_owned(),
        count => format!("{count} records of the job"),
    };
    Some(format!("{told} could not be read, and this key may be among them: `onlynew quarantine list {job}`"))
}

/// A moment without its fractions.
fn second(at: Instant) -> String {
    Instant::from_seconds(at.seconds()).to_string()
}
