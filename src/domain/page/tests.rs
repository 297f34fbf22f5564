mod floor;

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
        floor: None,
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
    assert_eq!(texts(true), [("4", r#""last""#), ("5", r#""none""#)], "told last, and of no older version");
    let (_, outdone) = one_of_each_key(&page, false);
    let outdone: Vec<_> = outdone.into_iter().map(|record| record.raw.get()).collect();
    assert_eq!(outdone, [r#""first""#, r#""a""#, r#""none""#]);
}

#[test]
fn a_page_tells_what_it_decided_of_each_key_and_why_a_change_was_not_sent() {
    let known = |version: i64| StoredRecord {
        kept: Kept::State(
            decide(None, &Seen { version: Some(Version(version)), ..seen_of("") }, Detect::Version)
                .1
                .unwrap(),
        ),
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
    let page = decide_page(&records, &stored, &HashMap::new(), &rules, RUN, NOW).unwrap();
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
        kept: Kept::State(
            decide(None, &Seen { version: Some(Version(1)), ..seen_of("") }, Detect::Version).1.unwrap(),
        ),
        sequence: 7,
    };
    let stored = HashMap::from([(RecordKey::from_stored("1".into()), known)]);
    let records = [record("1", Some(2), "{}"), record("2", Some(1), "{}")];
    let page = decide_page(
        &records.iter().collect::<Vec<_>>(),
        &stored,
        &HashMap::new(),
        &rules(Silence::Never),
        RUN,
        NOW,
    )
    .unwrap();
    let sequences: Vec<_> = page.events.iter().map(|event| (event.key.as_str(), event.sequence)).collect();
    assert_eq!(sequences, [("1", 8), ("2", 1)]);
    assert_eq!((page.counts.created, page.counts.updated, page.counts.events), (1, 1, 2));
}

#[test]
fn a_baseline_is_silent_about_what_stood_and_sends_what_is_newer() {
    let records = [record("1", Some(5), "{}"), record("2", Some(6), "{}"), record("3", None, "{}")];
    let page = decide_page(
        &records.iter().collect::<Vec<_>>(),
        &HashMap::new(),
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
    let page =
        decide_page(&[&record("1", Some(1), "{}")], &HashMap::new(), &HashMap::new(), &rules, RUN, NOW)
            .unwrap();
    assert_eq!((page.writes.len(), page.events.len(), page.counts.created), (1, 0, 1));
}

#[test]
fn a_conflict_writes_nothing_and_sends_nothing() {
    let first = decide(None, &Seen { run: RUN, ..seen_of("a") }, Detect::Content).1.unwrap();
    let state = Stored { hash_run: RUN, ..first };
    let stored = ["1", "2"].map(|key| {
        (RecordKey::from_stored(key.into()), StoredRecord { kept: Kept::State(state.clone()), sequence: 1 })
    });
    let records = [record("1", None, "1"), record("2", None, "2")];
    let records: Vec<_> = records.iter().collect();
    let rules = rules(Silence::Never);
    let page = decide_page(&records, &stored.clone().into(), &HashMap::new(), &rules, RUN, NOW).unwrap();
    assert_eq!((page.counts.conflicts, page.writes.len(), page.events.len()), (2, 0, 0));
    assert_eq!(page.conflict.unwrap().as_str(), "1");
    let page = decide_page(&records, &stored.into(), &HashMap::new(), &rules, None, NOW).unwrap();
    assert_eq!((page.counts.updated, page.events.len(), page.conflict), (2, 2, None));
}

#[test]
fn c40_a_replay_that_sends_all_restates_what_is_no_change() {
    let replay = Replay { task: TaskId(1), uid: "r".into(), resends: true };
    let rules = PageRules { replay: Some(replay), ..rules(Silence::Never) };
    let known = |version, content: &str| {
        let seen = Seen { version: Some(Version(version)), ..seen_of(content) };
        StoredRecord { kept: Kept::State(decide(None, &seen, Detect::Version).1.unwrap()), sequence: 4 }
    };
    let stored: HashMap<_, _> = [("same", known(5, "a")), ("newer", known(9, "b"))]
        .map(|(key, known)| (RecordKey::from_stored(key.into()), known))
        .into();
    let flagged = |key, version| SeenRecord { flagged: true, ..record(key, version, "{}") };
    let page = |records: &[SeenRecord], sent: &HashMap<_, _>, rules: &PageRules| {
        let records: Vec<_> = records.iter().collect();
        let page = decide_page(&records, &stored, sent, rules, RUN, NOW).unwrap();
        let told = |event: &Event| (event.key.as_str().to_owned(), kind_of(event), event.sequence);
        (page.events.iter().map(told).collect::<Vec<_>>(), page)
    };
    let records =
        [record("newer", Some(5), "{}"), record("same", Some(5), "{}"), record("unknown", Some(5), "{}")];
    let (told, decided) = page(&records, &HashMap::new(), &rules);
    let expected = [
        ("newer".to_owned(), ChangeKind::Updated, 5),
        ("same".to_owned(), ChangeKind::Updated, 5),
        ("unknown".to_owned(), ChangeKind::Created, 1),
    ];
    assert_eq!(told, expected);
    assert_eq!((decided.counts.stale, decided.counts.unchanged, decided.counts.created), (1, 1, 1));
    let kept = decided.writes.iter().map(|write| (write.state.version, write.sequence, write.fingerprint));
    let fingerprint = Some(Hash::of(b"{}"));
    assert_eq!(
        kept.collect::<Vec<_>>(),
        [(Some(Version(9)), 5, None), (Some(Version(5)), 5, None), (Some(Version(5)), 1, fingerprint)],
        "the state stays as it was"
    );

    // Gone through again after a crash: what was sent is not sent again, whatever it was called then.
    let sent: HashMap<_, _> = decided
        .events
        .iter()
        .map(|event| {
            let sent = SentEvent { id: event.id.clone(), kind: kind_of(event), sequence: event.sequence };
            (event.key.clone(), vec![sent])
        })
        .collect();
    let (told, again) = page(&records[..2], &sent, &rules);
    assert!(told.is_empty() && again.writes.is_empty());
    let (told, _) = page(&[record("newer", Some(6), "{}")], &sent, &rules);
    assert_eq!(told.len(), 1, "another version is another matter");

    let gone = [flagged("newer", Some(5)), flagged("unknown", Some(5))];
    let (told, _) = page(&gone, &HashMap::new(), &rules);
    assert!(told.len() == 2 && told.iter().all(|(_, kind, _)| *kind == ChangeKind::Deleted), "{told:?}");
    let no_deletions = PageRules { emit: vec![ChangeKind::Created], ..rules.clone() };
    assert!(page(&gone, &HashMap::new(), &no_deletions).0.is_empty());
    assert_eq!(page(&records, &HashMap::new(), &no_deletions).0.len(), 3);

    // Content of which nobody knows whether it is the older one.
    let slow = PageRules { asked_at: Instant::from_seconds(-1), detect: Detect::Content, ..rules };
    let (told, decided) = page(&[record("same", Some(5), "[]")], &HashMap::new(), &slow);
    assert!(told.is_empty() && decided.stale_reads == 1);
}

fn kind_of(event: &Event) -> ChangeKind {
    ChangeKind::from_event_type(event.event_type).unwrap()
}
