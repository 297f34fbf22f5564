//! One page decided as a whole: which rows are written and which events go out, against the stored state
//! of the keys that differ. The store calls this inside the transaction that holds those rows.

use std::{collections::HashMap, time::Duration};

use serde_json::value::RawValue;

use super::{
    content::{Hash, content_hash},
    decide::{Decision, Deletion, Detect, Seen, Stored, decide, decide_forgotten},
    event::{Change, ChangeKind, Event, EventSource, SentEvent},
    instant::Instant,
    json,
    json_path::JsonPath,
    key::RecordKey,
    retention::Floor,
    run::{Counts, RunId},
    sighting::{Finding, KeyMark, Sighting, Silent},
    task::TaskId,
    version::Version,
};

/// One record of a page.
#[derive(Clone, Debug)]
pub struct SeenRecord {
    /// Its key.
    pub key: RecordKey,
    /// Its version, where it has one.
    pub version: Option<Version>,
    /// The hash of its bytes.
    pub fingerprint: Hash,
    /// The source marks it as deleted.
    pub flagged: bool,
    /// Its JSON text, as it came.
    pub raw: Box<RawValue>,
}

/// What is kept of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The latest state.
    State(Stored),
    /// Its state was forgotten, but not whether it was deleted.
    Forgotten(Option<Deletion>),
}

/// The stored row of a key: what is kept of it and how many events it has had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    /// What is kept.
    pub kept: Kept,
    /// The sequence of the key's last event; 0 where it has had none.
    pub sequence: i64,
}

/// Which changes of a run are recorded without an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// None: every change is sent.
    Never,
    /// The baseline run: what stood at that instant is recorded silently, what is newer is sent. Records
    /// without a version are silent when first seen, and so are all where the versions are no instants.
    Baseline(Option<Version>),
}

/// A replay that a page is read for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// Its number.
    pub task: TaskId,
    /// What its events call it.
    pub uid: String,
    /// It sends what it reads whether that is new or not.
    pub resends: bool,
}

/// How a page is decided.
#[derive(Clone, Debug)]
pub struct PageRules {
    /// What counts as a change.
    pub detect: Detect,
    /// Places left out of the content hash: the version's fields, `ignore_fields` and the primary key.
    pub ignored: Vec<JsonPath>,
    /// The kinds of change that are sent.
    pub emit: Vec<ChangeKind>,
    /// Which changes are recorded without an event.
    pub silence: Silence,
    /// The replay that it is read for.
    pub replay: Option<Replay>,
    /// Versions above this one may still be shared by a later change.
    pub settled_until: Option<Version>,
    /// When the page was asked for.
    pub asked_at: Instant,
    /// When the page had been answered.
    pub answered_at: Instant,
    /// How far ahead of its reading a version may be; see [`Seen::tolerance`].
    pub tolerance: Option<Duration>,
    /// The source tells of changes and not of what stands: a key that comes twice has changed twice, and what is
    /// passed over is not met again.
    pub is_feed: bool,
    /// Below which version keys may have been forgotten; `None` where no key ever is, since versions are no instants
    /// or the source tells of changes alone.
    pub floor: Option<Floor>,
    /// Whose records they are.
    pub source: EventSource,
}

/// A row to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordWrite {
    /// Its key.
    pub key: RecordKey,
    /// The state to store.
    pub state: Stored,
    /// The hash of the bytes that brought it; `None` where it stays as it was stored.
    pub fingerprint: Option<Hash>,
    /// The sequence of its last event.
    pub sequence: i64,
}

/// What is to be written for a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageDecision {
    /// Rows to be written, in key order.
    pub writes: Vec<RecordWrite>,
    /// Events to be stored with them, in key order.
    pub events: Vec<Event>,
    /// What was counted, without `records` and `quarantined`.
    pub counts: Counts,
    /// The first key in conflict.
    pub conflict: Option<RecordKey>,
    /// How many records were passed over because their page is older than what is stored.
    pub stale_reads: u64,
    /// What was found of each key, in key order.
    pub sightings: Vec<Sighting>,
}

/// Of two sightings of one key on a page the highest version stays, and of equals the last one (field case
/// C25). A version beats none; in a feed, where one of the two has none, the last one stays. Returned in key order, and
/// beside them those that do not stay.
pub fn one_of_each_key(records: &[SeenRecord], is_feed: bool) -> (Vec<&SeenRecord>, Vec<&SeenRecord>) {
    let mut records: Vec<&SeenRecord> = records.iter().collect();
    records.sort_by(|a, b| a.key.cmp(&b.key));
    let mut kept: Vec<&SeenRecord> = Vec::with_capacity(records.len());
    let mut outdone = Vec::new();
    for record in records {
        match kept.last_mut() {
            Some(last) if last.key == record.key => {
                let is_comparable = last.version.is_some() && record.version.is_some();
                let is_taken = record.version >= last.version || (is_feed && !is_comparable);
                outdone.push(if is_taken { std::mem::replace(last, record) } else { record });
            }
            _ => kept.push(record),
        }
    }
    (kept, outdone)
}

/// Decides the records of a page of `run`, which must hold each key once and be in key order, against the stored
/// rows of those keys, at `decided_at` by the database's clock. A record whose text cannot be read is an error: the
/// reader quarantines such before. Without a run nothing is a conflict; see [`Seen::run`]. `sent` are the events that the
/// page's replay has sent of these keys before.
pub fn decide_page(
    records: &[&SeenRecord],
    stored: &HashMap<RecordKey, StoredRecord>,
    sent: &HashMap<RecordKey, Vec<SentEvent>>,
    rules: &PageRules,
    run: Option<RunId>,
    decided_at: Instant,
) -> Result<PageDecision, serde_json::Error> {
    let mut page = PageDecision::default();
    for record in records {
        let before = stored.get(&record.key);
        let known = match before.map(|before| &before.kept) {
            Some(Kept::State(state)) => Some(state),
            _ => None,
        };
        if known.is_none() && rules.floor.is_some_and(|floor| floor.bars(record.version)) {
            page.counts.count(Decision::BelowFloor);
            page.sightings.push(Sighting {
                key: KeyMark::of(&record.key),
                finding: Finding::BelowFloor,
                silent: None,
                version: record.version,
            });
            continue;
        }
        let seen = Seen {
            version: record.version,
            hash: content_hash(&json::parse(record.raw.get())?, &rules.ignored),
            flagged: record.flagged,
            settled: rules
                .settled_until
                .is_none_or(|until| record.version.is_none_or(|version| version <= until)),
            asked_at: rules.asked_at,
            answered_at: rules.answered_at,
            decided_at,
            tolerance: rules.tolerance,
            // A key that comes twice in a feed has changed twice.
            run: run.filter(|_| !rules.is_feed),
        };
        let (decision, state) = match before.map(|before| &before.kept) {
            Some(Kept::Forgotten(deleted)) => {
                let (decision, state) = decide_forgotten(*deleted, &seen);
                (decision, Some(state))
            }
            _ => decide(known, &seen, rules.detect),
        };
        page.counts.count(decision);
        page.stale_reads += u64::from(decision == Decision::StaleRead);
        if decision == Decision::Conflict {
            page.conflict.get_or_insert_with(|| record.key.clone());
        }
        let kind = ChangeKind::of(decision);
        let silent = kind.and_then(|kind| silence(kind, record, rules));
        let re_seen = before.is_some()
            && known.is_none()
            && rules.floor.is_some_and(|floor| floor.is_above(record.version));
        page.sightings.push(Sighting {
            key: KeyMark::of(&record.key),
            finding: match Finding::of(decision, known, record.version) {
                Finding::UpdatedByVersion | Finding::UpdatedByContent if re_seen => Finding::ReSeen,
                finding => finding,
            },
            silent,
            version: record.version,
        });
        let known_version = known.and_then(|known| known.version);
        let mut sequence = before.map_or(0, |before| before.sequence);
        let changed = kind.filter(|_| silent.is_none());
        if let Some(kind) = changed.or_else(|| restated_kind(decision, record, rules)) {
            let change = Change {
                kind,
                key: &record.key,
                version: state.as_ref().map_or(record.version.or(known_version), |state| state.version),
                previous_version: known_version,
                sequence: sequence + 1,
                hash: seen.hash,
                re_seen,
                observed_at: rules.answered_at,
                replay: rules.replay.as_ref(),
                data: &record.raw,
            };
            let told = |event: &SentEvent| event.told(&rules.source, &change);
            if changed.is_some() || !sent.get(&record.key).is_some_and(|sent| sent.iter().any(told)) {
                page.events.push(Event::new(&rules.source, &change)?);
                page.counts.events += 1;
                sequence += 1;
            }
        }
        let fingerprint = state.is_some().then_some(record.fingerprint);
        let is_counted = before.is_some_and(|before| before.sequence < sequence);
        let unchanged = || known.filter(|_| is_counted).cloned();
        let Some(state) = state.or_else(unchanged) else { continue };
        page.writes.push(RecordWrite { key: record.key.clone(), state, fingerprint, sequence });
    }
    Ok(page)
}

/// Why a change is recorded without an event, if it is.
fn silence(kind: ChangeKind, record: &SeenRecord, rules: &PageRules) -> Option<Silent> {
    if !rules.emit.contains(&kind) {
        return Some(Silent::NotSent);
    }
    let is_baseline = match (rules.silence, record.version) {
        (Silence::Never, _) => false,
        (Silence::Baseline(Some(instant)), Some(version)) => version <= instant,
        (Silence::Baseline(_), _) => kind == ChangeKind::Created,
    };
    is_baseline.then_some(Silent::Baseline)
}

/// The kind of event that a replay which sends all makes of a record that is no change. What was passed over for an
/// unknown order is not sent: what is stored of it was sent later than its page was asked for. Deletions are sent as
/// the job sends them.
fn restated_kind(decision: Decision, record: &SeenRecord, rules: &PageRules) -> Option<ChangeKind> {
    let resends = rules.replay.as_ref().is_some_and(|replay| replay.resends);
    if !resends || matches!(decision, Decision::StaleRead | Decision::Conflict) {
        return None;
    }
    let kind = match ChangeKind::of(decision) {
        _ if record.flagged => ChangeKind::Deleted,
        changed => changed.unwrap_or(ChangeKind::Updated),
    };
    (kind != ChangeKind::Deleted || rules.emit.contains(&kind)).then_some(kind)
}

#[cfg(test)]
mod tests;
