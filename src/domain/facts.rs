//! What is stored of one key, of one run and of a range of versions: the facts that the answer to "why" is made of.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;

use super::{
    coverage::Covered,
    decide::Deletion,
    event_state::EventState,
    instant::Instant,
    key::RecordKey,
    run::{RunId, RunKind},
    sighting::{Finding, Silent},
    version::Version,
};

/// All that is stored of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFacts {
    /// The key.
    pub key: RecordKey,
    /// Its latest state.
    pub record: Option<RecordFact>,
    /// Every time that it was read, the oldest first. Where they are too many, the oldest of those are left out that
    /// found nothing new.
    pub readings: Vec<Reading>,
    /// How many were left out.
    pub more_readings: u64,
    /// Its events in the order of the outbox, redeliveries among them.
    pub events: Vec<EventFact>,
    /// How many older ones were left out.
    pub more_events: u64,
    /// How many records of the job could not be read and are not settled.
    pub quarantined: u64,
    /// Keys beside it in the order of keys, where nothing is known of it.
    pub near: Vec<String>,
}

impl KeyFacts {
    /// Whether the job ever met the key.
    pub const fn is_known(&self) -> bool {
        self.record.is_some() || !self.readings.is_empty() || !self.events.is_empty()
    }
}

/// The latest state of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordFact {
    /// Its version, where one was ever seen.
    pub version: Option<Version>,
    /// What it was is forgotten for its age.
    pub is_forgotten: bool,
    /// Whether it is deleted, and how that was told.
    pub deleted: Option<Deletion>,
    /// When it was first read.
    pub first_seen_at: Instant,
    /// When its state was last written.
    pub changed_at: Instant,
}

/// One time that a key was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The run.
    pub run: RunId,
    /// Its kind; none where the run is kept no longer.
    pub kind: Option<RunKind>,
    /// The page of the run; 0 where a person accepted the record.
    pub page: u32,
    /// When the page was asked for, by our clock.
    pub asked_at: Instant,
    /// When it was decided, by the database's clock.
    pub decided_at: Instant,
    /// What was found.
    pub finding: Finding,
    /// Why a change was recorded without an event, where it was.
    pub silent: Option<Silent>,
    /// The version read, where it is not the one that was known.
    pub version: Option<Version>,
}

/// An event of a key, or one of its redeliveries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct EventFact {
    /// Its id.
    #[serde(rename = "event")]
    pub id: String,
    /// How often it had been sent again on a person's word.
    pub redelivery: u32,
    /// The key's position.
    pub sequence: i64,
    /// The kind of change, as the event tells it.
    #[serde(rename = "type")]
    pub kind: String,
    /// It was sent by a replay.
    pub replayed: bool,
    /// Where it goes.
    pub destination: String,
    /// How often it was begun to be sent.
    pub tries: u64,
    /// What became of it.
    pub state: EventState,
    /// The receiver may have acted on it although it is not known to be delivered.
    pub ambiguous: bool,
    /// It is being sent.
    pub leased: bool,
    /// It waits behind another of its lane.
    pub blocked: bool,
    /// When it was stored.
    pub created_at: Instant,
    /// When it was delivered, given up, discarded or passed over.
    pub settled_at: Option<Instant>,
    /// When it is due, where it waits and is first of its lane.
    pub next_attempt_at: Option<Instant>,
    /// The attempts to deliver it, the oldest first.
    pub attempts: Vec<AttemptFact>,
}

/// One attempt to deliver an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AttemptFact {
    /// What it came to: `delivered`, `again`, `refused`, `split` or `dead`.
    pub outcome: String,
    /// What the answer meant.
    pub class: Option<String>,
    /// The batch that it went in.
    pub batch: Option<String>,
    /// The receiver may have acted on it all the same.
    pub ambiguous: bool,
    /// The HTTP status, where there was an answer.
    pub status: Option<i64>,
    /// What went wrong.
    pub error: Option<String>,
    /// When it was sent, by the sender's clock.
    pub sent_at: Instant,
    /// How long it took.
    #[serde(rename = "took_seconds", serialize_with = "seconds")]
    pub took: Duration,
}

fn seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

/// What a run read: its pages and the steps that it came to the end of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFacts {
    /// The lowest version that it asked for.
    pub from: Option<Version>,
    /// Its pages that held records.
    pub pages: Vec<PageFact>,
    /// What it covered.
    pub covered: Vec<Covered>,
}

/// What a page decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageFact {
    /// Its number; 0 where a person accepted a record.
    pub page: u32,
    /// When it was asked for, by our clock.
    pub asked_at: Instant,
    /// When it had been answered, by our clock.
    pub answered_at: Instant,
    /// How many records were found to be what, and how many changes of them were not sent.
    pub found: BTreeMap<(Finding, Option<Silent>), u64>,
}
