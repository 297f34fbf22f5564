//! What a person reads, case by case.

use std::time::Duration;

use super::*;
use crate::domain::{
    decide::Deletion,
    event_state::EventState,
    facts::{AttemptFact, RecordFact},
    key::RecordKey,
    run::{RunId, RunKind},
    sighting::{Finding, Silent},
};

const ID: &str = "evt_0123456789abcdef0123456789abcdef";

fn show(version: Version) -> String {
    format!("v{}", version.0)
}

/// A reading by run `run`, which is also the second that it was decided at.
fn reading(run: i64, finding: Finding, version: Option<i64>) -> Reading {
    let at = Instant::from_seconds(run);
    Reading {
        kind: None,
        run: RunId(run),
        page: 1,
        asked_at: at,
        decided_at: at,
        finding,
        silent: None,
        version: version.map(Version),
    }
}

fn event(state: EventState) -> EventFact {
    EventFact {
        replayed: false,
        id: ID.to_owned(),
        redelivery: 0,
        sequence: 3,
        kind: "record.updated".to_owned(),
        destination: "n8n".to_owned(),
        tries: 0,
        state,
        ambiguous: false,
        leased: false,
        blocked: false,
        created_at: Instant::from_seconds(2),
        settled_at: Some(Instant::from_seconds(9)).filter(|_| state != EventState::Pending),
        next_attempt_at: None,
        attempts: Vec::new(),
    }
}

fn attempt(outcome: &str, class: &str, status: Option<i64>, error: Option<&str>) -> AttemptFact {
    AttemptFact {
        outcome: outcome.to_owned(),
        class: Some(class.to_owned()),
        batch: None,
        ambiguous: class == "lost",
        status,
        error: error.map(str::to_owned),
        sent_at: Instant::from_seconds(3),
        took: Duration::from_millis(21),
    }
}

fn facts(readings: Vec<Reading>, events: Vec<EventFact>) -> KeyFacts {
    KeyFacts {
        key: RecordKey::from_stored("17".to_owned()),
        record: Some(RecordFact {
            version: Some(Version(2)),
            is_forgotten: false,
            deleted: None,
            first_seen_at: Instant::from_seconds(1),
            changed_at: Instant::from_seconds(2),
        }),
        readings,
        more_readings: 0,
        events,
        more_events: 0,
        quarantined: 0,
        near: Vec::new(),
    }
}

fn texts(lines: &[Line]) -> Vec<&str> {
    lines.iter().map(|line| line.text.as_str()).collect()
}

#[test]
fn a_reading_says_what_was_found_and_why() {
    let silent = |silent, reading| Reading { silent: Some(silent), ..reading };
    let cases = [
        (
            reading(2, Finding::Known, None),
            "run 2, page 1 read it with version v1: nothing new, the bytes are the same as before",
        ),
        (
            reading(2, Finding::Unchanged, Some(1)),
            "run 2, page 1 read it with version v1: nothing new, all that counts as a change is the same as before",
        ),
        (
            reading(2, Finding::UpdatedByVersion, Some(2)),
            "read it with version v2: it changed, its version is newer than what was stored (v1)",
        ),
        (
            reading(2, Finding::UpdatedByContent, None),
            "read it without a version: it changed, its content differs under no newer version",
        ),
        (reading(2, Finding::Deleted, Some(2)), "it was deleted, as the source says"),
        (reading(2, Finding::Restored, Some(2)), "it is back"),
        (
            reading(2, Finding::Stale, Some(0)),
            "read it with version v0: older than what is stored (v1), so it was ignored",
        ),
        (reading(2, Finding::StaleRead, Some(1)), "nobody can say which of the two is newer"),
        (reading(2, Finding::Conflict, Some(1)), "left undecided for the next run"),
        (reading(2, Finding::Outdone, Some(1)), "the other one was taken"),
        (reading(2, Finding::CreatedDeleted, Some(1)), "recorded without an event"),
        (
            silent(Silent::Baseline, reading(2, Finding::Created, Some(1))),
            "since it stood when the job took its baseline",
        ),
        (
            silent(Silent::NotSent, reading(2, Finding::UpdatedByVersion, Some(2))),
            "does not send changes of this kind",
        ),
        (
            Reading { page: 0, ..reading(2, Finding::Created, Some(1)) },
            "a person accepted it as run 2 had read it, with version v1: it is new",
        ),
    ];
    for (second, expected) in cases {
        let finding = second.finding;
        let lines =
            story(&facts(vec![reading(1, Finding::Created, Some(1)), second], Vec::new()), &show, true);
        assert_eq!(lines[0].text, "run 1, page 1 read it with version v1: it is new");
        assert!(lines[1].text.contains(expected), "{finding:?}: {}", lines[1].text);
    }
}

#[test]
fn what_was_ignored_changes_nothing_of_what_is_known() {
    let readings = vec![
        reading(1, Finding::Created, Some(5)),
        reading(2, Finding::Stale, Some(4)),
        reading(3, Finding::Known, None),
    ];
    assert!(story(&facts(readings, Vec::new()), &show, true)[2].text.contains("with version v5"));
}

#[test]
fn runs_that_found_the_same_are_folded_for_people_alone() {
    let known = |run| reading(run, Finding::Known, None);
    let mut readings = vec![reading(1, Finding::Created, Some(1))];
    readings.extend((2..=100).map(known));
    readings.push(reading(101, Finding::UpdatedByVersion, Some(2)));
    readings.extend([known(102), known(103)]);
    let facts = facts(readings, Vec::new());
    let folded = story(&facts, &show, true);
    assert_eq!(folded.len(), 6, "{folded:?}");
    assert_eq!(folded[2].text, "… and 98 more runs saw the same bytes, last in run 100");
    assert_eq!(folded[2].at, Instant::from_seconds(100));
    assert!(folded[5].text.starts_with("run 103, page 1"), "a single one is told");
    assert_eq!(story(&facts, &show, false).len(), 103);
}

#[test]
fn an_attempt_says_what_the_answer_meant_and_what_follows() {
    let cases = [
        ("delivered", "delivered", Some(200), None, "sent: 200, delivered after 21ms"),
        (
            "again",
            "lost",
            None,
            Some("timed out"),
            "the answer was lost after 21ms (timed out): the receiver may have acted on it; it is repeated with the same id",
        ),
        ("again", "unreached", None, Some("refused"), "not sent: refused; it is tried again"),
        ("again", "failed", Some(500), Some("answered\n500"), "sent: answered 500; it is tried again"),
        ("again", "misplaced", Some(404), None, "sent: 404; that says nothing of the event"),
        ("again", "busy", Some(429), None, "wants to be left alone"),
        ("refused", "refused", Some(422), None, "sent: refused (422); it is tried again"),
        ("split", "too_large", Some(413), None, "the batch is divided"),
        ("dead", "refused", Some(422), None, "sent: 422; given up, it is a dead letter"),
    ];
    for (outcome, class, status, error, expected) in cases {
        let mut event = event(EventState::Dead);
        event.attempts.push(attempt(outcome, class, status, error));
        let lines = story(&facts(Vec::new(), vec![event]), &show, true);
        assert_eq!(
            lines[0].text,
            format!("event {ID} (record.updated, number 3 of this key) was stored for n8n")
        );
        assert!(lines[1].text.starts_with("event evt_0123456789ab"), "{}", lines[1].text);
        assert!(lines[1].text.contains(expected), "{outcome} {class}: {}", lines[1].text);
        assert_eq!(lines.len(), 2, "an attempt tells the end");
    }
    let mut held = event(EventState::Held);
    held.attempts
        .push(AttemptFact { batch: Some("bat_1".to_owned()), ..attempt("dead", "refused", Some(422), None) });
    let lines = story(&facts(Vec::new(), vec![held]), &show, true);
    assert!(lines[1].text.contains("in batch bat_1 sent: 422; given up, and later events of its lane wait"));
}

#[test]
fn what_no_attempt_tells_is_told_by_itself() {
    for (state, expected) in [
        (EventState::Superseded, "a newer one of its key went in its place"),
        (EventState::Discarded, "a person discarded event evt_0123456789ab"),
    ] {
        let lines = story(&facts(Vec::new(), vec![event(state)]), &show, true);
        assert!(lines[1].text.contains(expected), "{lines:?}");
        assert_eq!(lines[1].at, Instant::from_seconds(9));
    }
    let again = EventFact { redelivery: 1, ..event(EventState::Pending) };
    let lines = story(&facts(Vec::new(), vec![again]), &show, true);
    assert_eq!(texts(&lines), ["a person had event evt_0123456789ab sent again to n8n, under the same id"]);
}

#[test]
fn what_a_replay_read_and_what_a_sweep_missed_is_told_so() {
    let told = |reading, event| -> Vec<String> {
        let lines = story(&facts(vec![reading], vec![event]), &show, true);
        lines.into_iter().map(|line| line.text).collect()
    };
    let gone = EventFact { kind: "record.deleted".to_owned(), ..event(EventState::Pending) };
    let by_page = format!("event {ID} (record.deleted, number 3 of this key) was stored for n8n");
    assert_eq!(told(reading(2, Finding::Deleted, Some(1)), gone.clone())[1], by_page);
    let by_sweep = format!("a sweep over everything no longer found it: {by_page}");
    assert_eq!(told(reading(2, Finding::Known, None), gone)[1], by_sweep);

    let replayed = EventFact { replayed: true, ..event(EventState::Pending) };
    let kinds = [(RunKind::Live, ""), (RunKind::Replay, " (a replay)"), (RunKind::Reconcile, " (a sweep)")];
    for (kind, who) in kinds {
        let read = Reading { kind: Some(kind), ..reading(2, Finding::Created, None) };
        let lines = told(read, replayed.clone());
        assert!(lines[0].starts_with(&format!("run 2{who}, page 1 read it")), "{lines:?}");
        assert!(lines[1].ends_with("was stored by a replay for n8n"), "{lines:?}");
    }
}

#[test]
fn a_story_is_in_order_of_time_and_of_what_followed_from_what() {
    let mut sent = event(EventState::Delivered);
    // A sender whose clock is behind the database's.
    sent.attempts.push(AttemptFact {
        sent_at: Instant::from_seconds(1),
        ..attempt("delivered", "delivered", Some(200), None)
    });
    let readings = vec![
        reading(1, Finding::Created, Some(1)),
        reading(2, Finding::UpdatedByVersion, Some(2)),
        reading(3, Finding::Known, None),
    ];
    let facts = facts(readings, vec![sent]);
    let lines = story(&facts, &show, true);
    let beginnings: Vec<_> = lines.iter().map(|line| line.text.get(..15).unwrap()).collect();
    assert_eq!(
        beginnings,
        ["run 1, page 1 r", "run 2, page 1 r", "event evt_01234", "event evt_01234", "run 3, page 1 r"]
    );
    assert_eq!(lines.iter().filter(|line| line.event.as_deref() == Some(ID)).count(), 2);
    let alone = story_of_event(&facts, ID, &show);
    assert_eq!(alone.len(), 3, "{alone:?}");
    assert!(alone[0].text.starts_with("run 2, page 1 read it with version v2"));
    assert!(story_of_event(&facts, "evt_other", &show).is_empty());
}

#[test]
fn what_was_forgotten_and_what_was_lost_is_said() {
    let mut sent = event(EventState::Delivered);
    sent.attempts = vec![attempt("delivered", "delivered", Some(200), None)];
    sent.tries = 3;
    let mut facts = facts(vec![reading(2, Finding::ReSeen, Some(1))], vec![sent]);
    if let Some(record) = &mut facts.record {
        (record.version, record.is_forgotten) = (None, true);
    }
    let lines: Vec<_> = story(&facts, &show, true).into_iter().map(|line| line.text).collect();
    assert!(lines[0].contains("what it was is forgotten (`retention.keys`)"), "{lines:?}");
    assert!(
        lines[2].starts_with("event evt_0123456789ab was begun to be sent 2 times by a process"),
        "{lines:?}"
    );
    let verdict = standing(&facts, "issues", &Outlook::default(), &show).join("\n");
    assert!(verdict.contains("is stored, and what it was is forgotten"), "{verdict}");
    facts.record = None;
    let verdict = standing(&facts, "issues", &Outlook::default(), &show).join("\n");
    assert!(verdict.contains("is not stored any more: the job began anew since"), "{verdict}");
}

#[test]
fn the_verdict_says_where_the_record_stands_and_what_comes_next() {
    let outlook = Outlook {
        next_run: Some(Instant::from_seconds(60)),
        trouble: Some("n8n is parked".to_owned()),
        questions: vec!["a sweep waits for a word".to_owned()],
    };
    let told = |facts: &KeyFacts| standing(facts, "issues", &outlook, &show).join("\n");
    let pending = |change: &dyn Fn(&mut EventFact)| {
        let mut event = event(EventState::Pending);
        change(&mut event);
        facts(Vec::new(), vec![event])
    };
    let silent = Reading { silent: Some(Silent::Baseline), ..reading(1, Finding::Created, Some(2)) };
    let cases: Vec<(KeyFacts, &[&str])> = vec![
        (
            facts(vec![reading(1, Finding::Created, Some(2))], vec![event(EventState::Delivered)]),
            &[
                "the key 17 of issues is stored with version v2; first seen",
                "last read 1970-01-01T00:00:01Z by run 1: it is new",
                "number 3) was delivered 1970",
                "a sweep waits for a word",
                "issues reads again 1970-01-01T00:01:00Z",
            ],
        ),
        (
            facts(vec![silent, reading(2, Finding::Known, None)], Vec::new()),
            &["it has had no event: it is new; recorded without an event, since it stood"],
        ),
        (
            facts(Vec::new(), vec![event(EventState::Dead)]),
            &["is a dead letter since", "`onlynew outbox retry evt_0123456789ab`"],
        ),
        (
            facts(Vec::new(), vec![event(EventState::Held)]),
            &["later events of its key wait", "n8n is parked"],
        ),
        (facts(Vec::new(), vec![event(EventState::Superseded)]), &["was passed over"]),
        (facts(Vec::new(), vec![event(EventState::Discarded)]), &["was discarded by a person"]),
        (pending(&|event| event.leased = true), &["is being sent", "n8n is parked"]),
        (pending(&|event| event.blocked = true), &["waits behind an earlier one"]),
        (
            pending(&|event| event.next_attempt_at = Some(Instant::from_seconds(5))),
            &["is due 1970-01-01T00:00:05Z"],
        ),
    ];
    for (facts, expected) in cases {
        let told = told(&facts);
        for expected in expected {
            assert!(told.contains(expected), "{expected}\n{told}");
        }
    }
    let deleted = |deletion| {
        let mut facts = facts(Vec::new(), Vec::new());
        facts.record.as_mut().unwrap().deleted = Some(deletion);
        told(&facts)
    };
    assert!(deleted(Deletion::Flagged).contains("deleted by the word of the source"));
    assert!(deleted(Deletion::Reconciled).contains("lists it no more"));
    assert!(
        !told(&facts(Vec::new(), vec![event(EventState::Delivered)])).contains("parked"),
        "nothing waits"
    );
}

#[test]
fn a_key_that_was_never_seen_is_told_with_what_to_look_at() {
    let unknown = KeyFacts {
        record: None,
        quarantined: 2,
        near: vec!["16".to_owned(), "18".to_owned()],
        ..facts(Vec::new(), Vec::new())
    };
    assert!(!unknown.is_known());
    let told = standing(&unknown, "issues", &Outlook::default(), &show).join("\n");
    for expected in [
        "the key 17 was never seen by issues",
        "keys beside it: 16, 18",
        "`onlynew why issues --gap FROM TO`",
        "2 records of the job could not be read, and this key may be among them: `onlynew quarantine list issues`",
    ] {
        assert!(told.contains(expected), "{expected}\n{told}");
    }
}
