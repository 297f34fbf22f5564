//! One page decided as a whole: which rows are written and which events go out, against the stored state
//! of the keys that differ. The store calls this inside the transaction that holds those rows.

use std::{collections::HashMap, time::Duration};

use serde_json::value::RawValue;

use super::{
    content::{Hash, content_hash},
    decide::{Decision, Detect, Seen, Stored, decide},
    event::{Change, ChangeKind, Event, EventSource},
    instant::Instant,
    json,
    json_path::JsonPath,
    key::RecordKey,
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

/// The stored row of a key: its state and how many events it has had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    /// The latest state.
    pub state: Stored,
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
    /// The hash of the bytes that brought it.
    pub fingerprint: Hash,
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
/// reader quarantines such before. Without a run nothing is a conflict; see [`Seen::run`].
pub fn decide_page(
    records: &[&SeenRecord],
    stored: &HashMap<RecordKey, StoredRecord>,
    rules: &PageRules,
    run: Option<RunId>,
    decided_at: Instant,
) -> Result<PageDecision, serde_json::Error> {
    let mut page = PageDecision::default();
    for record in records {
        let before = stored.get(&record.key);
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
        let (decision, state) = decide(before.map(|before| &before.state), &seen, rules.detect);
        page.counts.count(decision);
        page.stale_reads += u64::from(decision == Decision::StaleRead);
        if decision == Decision::Conflict {
            page.conflict.get_or_insert_with(|| record.key.clone());
        }
        let kind = ChangeKind::of(decision);
        let silent = kind.and_then(|kind| silence(kind, record, rules));
        page.sightings.push(Sighting {
            key: KeyMark::of(&record.key),
            finding: Finding::of(decision, before.map(|before| &before.state), record.version),
            silent,
            version: record.version,
        });
        let Some(state) = state else { continue };
        let mut sequence = before.map_or(0, |before| before.sequence);
        if let Some(kind) = kind.filter(|_| silent.is_none()) {
            sequence += 1;
            page.events.push(Event::new(
                &rules.source,
                &Change {
                    kind,
                    key: &record.key,
                    version: state.version,
                    previous_version: before.and_then(|before| before.state.version),
                    sequence,
                    hash: seen.hash,
                    observed_at: rules.answered_at,
                    replay: rules.replay.as_ref(),
                    data: &record.raw,
                },
            )?);
            page.counts.events += 1;
        }
        page.writes.push(RecordWrite {
            key: record.key.clone(),
            state,
            fingerprint: record.fingerprint,
            sequence,
        });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{numbers::Numbers, version::VersionFormat};

    const RUN: Option<RunId> = Some(RunId(1));
    const NOW: Instant = Instant::from_seconds(12);

    fn record(key: &str, version: Option<i64>, json: &str) -> SeenRecord {
        SeenRecord {
            key: RecordKey::from_stored(key.into()),
            version: version.map(Version),
            fingerprint: Hash::of(json.as_bytes()),
            flagged: false,
            raw: RawValue::from_string(json.into()).unwrap(),
        }
    }

    fn rules(silence: Silence) -> PageRules {
        PageRules {
            detect: Detect::Version,
            ignored: Vec::new(),
            emit: ChangeKind::ALL.to_vec(),
            silence,
            replay: None,
            settled_until: None,
            asked_at: Instant::from_seconds(10),
            answered_at: Instant::from_seconds(11),
            tolerance: None,
            is_feed: false,
            source: EventSource {
                job_uid: "u".into(),
                job: "j".into(),
                connector: "c".into(),
                stream: "s".into(),
                format: VersionFormat::Integer,
                numbers: Numbers::Safe,
            },
        }
    }

    fn seen_of(content: &str) -> Seen {
        Seen {
            version: None,
            hash: Hash::of(content.as_bytes()),
            flagged: false,
            settled: true,
            asked_at: Instant::from_seconds(0),
            answered_at: Instant::from_seconds(0),
            decided_at: Instant::from_seconds(0),
            tolerance: None,
            run: None,
        }
    }

    #[test]
    fn c25_of_two_sightings_on_a_page_the_highest_version_stays() {
        let page = vec![
            record("5", Some(2), r#""b""#),
            record("5", Some(1), r#""a""#),
            record("5", None, r#""none""#),
            record("4", Some(1), r#""first""#),
            record("4", Some(1), r#""last""#),
        ];
        let texts = |is_feed| -> Vec<_> {
            let (kept, _) = one_of_each_key(&page, is_feed);
            kept.into_iter().map(|record| (record.key.as_str(), record.raw.get())).collect()
        };
        assert_eq!(texts(false), [("4", r#""last""#), ("5", r#""b""#)]);
        assert_eq!(
            texts(true),
            [("4", r#""last""#), ("5", r#""none""#)],
            "told last, and of no older version"
        );
        let (_, outdone) = one_of_each_key(&page, false);
        let outdone: Vec<_> = outdone.into_iter().map(|record| record.raw.get()).collect();
        assert_eq!(outdone, [r#""first""#, r#""a""#, r#""none""#]);
    }

    #[test]
    fn a_page_tells_what_it_decided_of_each_key_and_why_a_change_was_not_sent() {
        let known = |version: i64| StoredRecord {
            state: decide(None, &Seen { version: Some(Version(version)), ..seen_of("") }, Detect::Version)
                .1
                .unwrap(),
            sequence: 1,
        };
        let stored: HashMap<_, _> =
            ["1", "2", "3"].map(|key| (RecordKey::from_stored(key.into()), known(5))).into();
        let records = [
            record("1", Some(4), "{}"),
            record("2", Some(5), "{}"),
            record("3", Some(9), "{}"),
            record("4", Some(9), "{}"),
            record("5", Some(3), "{}"),
        ];
        let records: Vec<_> = records.iter().collect();
        let silence = Silence::Baseline(Some(Version(8)));
        let rules = PageRules { emit: vec![ChangeKind::Created], ..rules(silence) };
        let page = decide_page(&records, &stored, &rules, RUN, NOW).unwrap();
        let found: Vec<_> =
            page.sightings.iter().map(|seen| (seen.finding, seen.silent, seen.version.unwrap().0)).collect();
        let expected = [
            (Finding::Stale, None, 4),
            (Finding::Unchanged, None, 5),
            (Finding::UpdatedByVersion, Some(Silent::NotSent), 9),
            (Finding::Created, None, 9),
            (Finding::Created, Some(Silent::Baseline), 3),
        ];
        assert_eq!(found, expected);
        assert_eq!(page.events.iter().map(|event| event.key.as_str()).collect::<Vec<_>>(), ["4"]);
    }

    #[test]
    fn the_sequence_counts_the_events_of_a_key() {
        let known = StoredRecord {
            state: decide(None, &Seen { version: Some(Version(1)), ..seen_of("") }, Detect::Version)
                .1
                .unwrap(),
            sequence: 7,
        };
        let stored = HashMap::from([(RecordKey::from_stored("1".into()), known)]);
        let records = [record("1", Some(2), "{}"), record("2", Some(1), "{}")];
        let page =
            decide_page(&records.iter().collect::<Vec<_>>(), &stored, &rules(Silence::Never), RUN, NOW)
                .unwrap();
        let sequences: Vec<_> =
            page.events.iter().map(|event| (event.key.as_str(), event.sequence)).collect();
        assert_eq!(sequences, [("1", 8), ("2", 1)]);
        assert_eq!((page.counts.created, page.counts.updated, page.counts.events), (1, 1, 2));
    }

    #[test]
    fn a_baseline_is_silent_about_what_stood_and_sends_what_is_newer() {
        let records = [record("1", Some(5), "{}"), record("2", Some(6), "{}"), record("3", None, "{}")];
        let page = decide_page(
            &records.iter().collect::<Vec<_>>(),
            &HashMap::new(),
            &rules(Silence::Baseline(Some(Version(5)))),
            RUN,
            NOW,
        )
        .unwrap();
        assert_eq!(page.writes.len(), 3);
        assert_eq!(page.events.iter().map(|event| event.key.as_str()).collect::<Vec<_>>(), ["2"]);
        let page = decide_page(
            &records.iter().collect::<Vec<_>>(),
            &HashMap::new(),
            &rules(Silence::Baseline(None)),
            RUN,
            NOW,
        )
        .unwrap();
        assert!(page.events.is_empty());
    }

    #[test]
    fn kinds_that_are_not_asked_for_are_recorded_only() {
        let rules = PageRules { emit: vec![ChangeKind::Updated], ..rules(Silence::Never) };
        let page = decide_page(&[&record("1", Some(1), "{}")], &HashMap::new(), &rules, RUN, NOW).unwrap();
        assert_eq!((page.writes.len(), page.events.len(), page.counts.created), (1, 0, 1));
    }

    #[test]
    fn a_conflict_writes_nothing_and_sends_nothing() {
        let first = decide(None, &Seen { run: RUN, ..seen_of("a") }, Detect::Content).1.unwrap();
        let state = Stored { hash_run: RUN, ..first };
        let stored = ["1", "2"].map(|key| {
            (RecordKey::from_stored(key.into()), StoredRecord { state: state.clone(), sequence: 1 })
        });
        let records = [record("1", None, "1"), record("2", None, "2")];
        let records: Vec<_> = records.iter().collect();
        let rules = rules(Silence::Never);
        let page = decide_page(&records, &stored.clone().into(), &rules, RUN, NOW).unwrap();
        assert_eq!((page.counts.conflicts, page.writes.len(), page.events.len()), (2, 0, 0));
        assert_eq!(page.conflict.unwrap().as_str(), "1");
        let page = decide_page(&records, &stored.into(), &rules, None, NOW).unwrap();
        assert_eq!((page.counts.updated, page.events.len(), page.conflict), (2, 2, None));
    }
}
