//! The table of cases.

use super::{
    Decision::{Conflict, Created, CreatedDeleted, Deleted, Restored, Stale, StaleRead, Unchanged, Updated},
    *,
};

const STORED_AT: Instant = Instant::from_seconds(100);

fn stored(version: Option<i64>, content: &str) -> Stored {
    Stored {
        version: version.map(Version),
        hash: Hash::of(content.as_bytes()),
        deleted: None,
        provisional: false,
        versionless: false,
        answered_at: STORED_AT,
        hash_run: None,
    }
}

fn seen(version: Option<i64>, content: &str) -> Seen {
    Seen {
        version: version.map(Version),
        hash: Hash::of(content.as_bytes()),
        flagged: false,
        settled: true,
        asked_at: Instant::from_seconds(200),
        answered_at: Instant::from_seconds(201),
        decided_at: Instant::from_seconds(202),
        tolerance: Some(Duration::from_mins(1)),
        run: None,
    }
}

fn in_run(run: i64, version: Option<i64>, content: &str) -> Seen {
    Seen { run: Some(RunId(run)), ..seen(version, content) }
}

fn decided(stored: &Stored, seen: &Seen, detect: Detect) -> Decision {
    decide(Some(stored), seen, detect).0
}

#[test]
fn row_1_nothing_stored() {
    assert_eq!(decide(None, &seen(Some(1), "a"), Detect::Version).0, Created);
    let (decision, state) = decide(None, &Seen { flagged: true, ..seen(Some(1), "a") }, Detect::Version);
    assert_eq!((decision, state.unwrap().deleted), (CreatedDeleted, Some(Deletion::Flagged)));
}

#[test]
fn rows_2_6_7_8_by_mode() {
    // (stored version, content) (seen version, content) -> version, content, either
    let cases = [
        ((Some(2), "a"), (Some(1), "b"), [Stale, Stale, Stale]),
        ((Some(2), "a"), (None, "a"), [Unchanged, Unchanged, Unchanged]),
        ((Some(2), "a"), (None, "b"), [Updated, Updated, Updated]),
        ((None, "a"), (None, "a"), [Unchanged, Unchanged, Unchanged]),
        ((None, "a"), (None, "b"), [Updated, Updated, Updated]),
        ((None, "a"), (Some(1), "a"), [Updated, Unchanged, Updated]),
        ((None, "a"), (Some(1), "b"), [Updated, Updated, Updated]),
        ((Some(1), "a"), (Some(2), "a"), [Updated, Unchanged, Updated]),
        ((Some(1), "a"), (Some(2), "b"), [Updated, Updated, Updated]),
        ((Some(1), "a"), (Some(1), "a"), [Unchanged, Unchanged, Unchanged]),
        ((Some(1), "a"), (Some(1), "b"), [Unchanged, Updated, Updated]),
    ];
    for ((known, before), (version, after), expected) in cases {
        for (detect, expected) in [Detect::Version, Detect::Content, Detect::Either].into_iter().zip(expected)
        {
            let decision = decided(&stored(known, before), &seen(version, after), detect);
            assert_eq!(decision, expected, "{known:?} {before} -> {version:?} {after} by {detect:?}");
        }
    }
}

#[test]
fn rows_3_to_5_deleted_and_back() {
    let flagged = Stored { deleted: Some(Deletion::Flagged), ..stored(Some(2), "a") };
    let reconciled = Stored { deleted: Some(Deletion::Reconciled), ..stored(Some(2), "a") };
    let gone = |version| Seen { flagged: true, ..seen(version, "a") };
    assert_eq!(decided(&stored(Some(2), "a"), &gone(Some(3)), Detect::Version), Deleted);
    assert_eq!(decided(&stored(Some(2), "a"), &gone(Some(1)), Detect::Version), Stale);
    let (decision, state) = decide(Some(&flagged), &gone(Some(3)), Detect::Version);
    assert_eq!((decision, state.unwrap().version), (Unchanged, Some(Version(3))));
    assert_eq!(decided(&reconciled, &seen(Some(2), "a"), Detect::Version), Restored);
    assert_eq!(decided(&reconciled, &seen(Some(1), "a"), Detect::Version), Stale);
    assert_eq!(decided(&flagged, &seen(Some(3), "a"), Detect::Version), Restored);
    assert_eq!(decided(&flagged, &seen(Some(2), "b"), Detect::Version), Unchanged);
    assert_eq!(decided(&flagged, &seen(Some(2), "b"), Detect::Content), Restored);
    assert_eq!(decided(&flagged, &seen(None, "b"), Detect::Version), Restored);
    let young = Stored { provisional: true, ..flagged };
    assert_eq!(decided(&young, &seen(Some(2), "b"), Detect::Version), Restored);
}

#[test]
fn a_version_that_another_change_may_share_is_compared_by_content_until_it_has_settled() {
    let (_, state) = decide(None, &Seen { settled: false, ..seen(Some(1), "a") }, Detect::Version);
    let young = state.unwrap();
    assert!(young.provisional);
    assert_eq!(
        decided(
            &young,
            &Seen { asked_at: Instant::from_seconds(300), ..seen(Some(1), "b") },
            Detect::Version
        ),
        Updated
    );
    let later = Seen { asked_at: Instant::from_seconds(300), ..seen(Some(1), "a") };
    let (decision, state) = decide(Some(&young), &later, Detect::Version);
    assert_eq!(decision, Unchanged);
    assert_eq!(decided(&state.unwrap(), &seen(Some(1), "b"), Detect::Version), Unchanged);
}

#[test]
fn a_change_told_by_content_alone_needs_a_page_asked_for_after_the_stored_state() {
    let early = |version, content| Seen { asked_at: STORED_AT, ..seen(version, content) };
    assert_eq!(decided(&stored(Some(1), "b"), &early(Some(1), "a"), Detect::Content), StaleRead);
    assert_eq!(decided(&stored(None, "b"), &early(None, "a"), Detect::Content), StaleRead);
    assert_eq!(decided(&stored(Some(1), "b"), &early(None, "a"), Detect::Version), StaleRead);
    assert_eq!(decided(&stored(Some(1), "b"), &early(Some(2), "a"), Detect::Version), Updated);
    assert_eq!(decided(&stored(Some(1), "b"), &early(Some(1), "b"), Detect::Content), Unchanged);
}

#[test]
fn c21_a_version_from_the_future_does_not_order() {
    let at = |seconds: i64| Some(seconds * 1_000_000);
    let future = stored(at(9_999), "a");
    assert_eq!(decided(&future, &seen(at(150), "b"), Detect::Version), Updated);
    assert_eq!(decided(&future, &seen(at(9_999), "a"), Detect::Version), Unchanged);
    let (_, state) = decide(Some(&future), &seen(at(150), "b"), Detect::Version);
    assert_eq!(state.unwrap().version, at(150).map(Version));
    let early = Seen { asked_at: STORED_AT, ..seen(at(90), "b") };
    assert_eq!(decided(&future, &early, Detect::Version), StaleRead);
    let early = Seen { asked_at: STORED_AT, ..seen(at(9_999), "b") };
    assert_eq!(decided(&stored(at(90), "a"), &early, Detect::Version), StaleRead);
    assert_eq!(decided(&stored(at(161), "a"), &seen(at(150), "b"), Detect::Version), Updated);
    assert_eq!(decided(&stored(at(160), "a"), &seen(at(150), "b"), Detect::Version), Stale);
    let numbers = Seen { tolerance: None, ..seen(at(150), "b") };
    assert_eq!(decided(&future, &numbers, Detect::Version), Stale);
}

#[test]
fn a_stored_moment_that_is_still_to_come_freezes_nothing() {
    let wrong = Stored { answered_at: Instant::from_seconds(9_999), ..stored(None, "a") };
    assert_eq!(decided(&wrong, &seen(None, "b"), Detect::Content), Updated);
    let ahead = Stored { answered_at: Instant::from_seconds(230), ..stored(None, "a") };
    assert_eq!(decided(&ahead, &seen(None, "b"), Detect::Content), StaleRead);
}

#[test]
fn c25_a_second_change_by_content_alone_in_one_run_is_a_conflict() {
    let at = |seconds: i64| Some(seconds * 1_000_000);
    // (stored version) (seen version, content) by version, content, either -> in the run that last changed it so
    let cases = [
        (None, (None, "b"), [Conflict, Conflict, Conflict]),
        (None, (None, "a"), [Unchanged, Unchanged, Unchanged]),
        (None, (at(50), "b"), [Updated, Updated, Updated]),
        (at(50), (None, "b"), [Conflict, Conflict, Conflict]),
        (at(50), (at(50), "b"), [Unchanged, Conflict, Conflict]),
        (at(50), (at(50), "a"), [Unchanged, Unchanged, Unchanged]),
        (at(50), (at(60), "b"), [Updated, Updated, Updated]),
        (at(50), (at(40), "b"), [Stale, Stale, Stale]),
        (at(50), (at(9_999), "b"), [Conflict, Conflict, Conflict]),
        (at(9_999), (at(50), "b"), [Conflict, Conflict, Conflict]),
    ];
    for (known, (version, content), expected) in cases {
        for (detect, expected) in [Detect::Version, Detect::Content, Detect::Either].into_iter().zip(expected)
        {
            let stored = Stored { hash_run: Some(RunId(1)), ..stored(known, "a") };
            let told = format!("{known:?} a -> {version:?} {content} by {detect:?}");
            let (decision, state) = decide(Some(&stored), &in_run(1, version, content), detect);
            assert_eq!(decision, expected, "{told}");
            assert!(decision != Conflict || state.is_none(), "{told} writes nothing");
            let elsewhere = if expected == Conflict { Updated } else { expected };
            let next_run = decided(&stored, &in_run(2, version, content), detect);
            assert_eq!(next_run, elsewhere, "{told} in the next run");
            assert_eq!(decided(&stored, &seen(version, content), detect), elsewhere, "{told} in no run");
        }
    }
}

#[test]
fn only_a_change_by_content_alone_is_remembered_as_one() {
    let after =
        |stored: &Stored, seen: &Seen| decide(Some(stored), seen, Detect::Content).1.unwrap().hash_run;
    assert_eq!(decide(None, &in_run(1, Some(1), "a"), Detect::Content).1.unwrap().hash_run, None);
    assert_eq!(after(&stored(Some(1), "a"), &in_run(1, Some(2), "b")), None);
    assert_eq!(after(&stored(Some(1), "a"), &in_run(1, Some(1), "b")), Some(RunId(1)));
    assert_eq!(after(&stored(None, "a"), &in_run(1, None, "b")), Some(RunId(1)));
    let changed = Stored { hash_run: Some(RunId(1)), ..stored(Some(1), "a") };
    assert_eq!(after(&changed, &in_run(1, Some(2), "b")), Some(RunId(1)), "it stays");
    assert_eq!(after(&changed, &in_run(2, Some(1), "b")), Some(RunId(2)));
    let restored = Stored { deleted: Some(Deletion::Reconciled), ..stored(Some(1), "a") };
    assert_eq!(after(&restored, &in_run(1, Some(1), "b")), None);
}

#[test]
fn c26_a_value_that_goes_back_is_a_change_each_time() {
    let mut state = None;
    let mut changes = 0;
    for (version, content) in [(1, "up"), (2, "down"), (3, "up")] {
        let (decision, next) = decide(state.as_ref(), &seen(Some(version), content), Detect::Content);
        changes += usize::from(decision.is_change());
        state = next.map(|next| Stored { answered_at: Instant::from_seconds(0), ..next });
    }
    assert_eq!(changes, 3);
}

#[test]
fn a_version_is_kept_when_a_sighting_brings_none() {
    let (decision, state) = decide(Some(&stored(Some(5), "a")), &seen(None, "b"), Detect::Version);
    let state = state.unwrap();
    assert_eq!((decision, state.version, state.versionless), (Updated, Some(Version(5)), true));
    assert_eq!(
        decided(
            &state,
            &Seen { asked_at: Instant::from_seconds(300), ..seen(Some(5), "c") },
            Detect::Version
        ),
        Updated
    );
}

#[test]
fn a_sighting_of_a_forgotten_key_is_a_change_unless_it_was_and_is_deleted() {
    let (flagged, reconciled) = (Some(Deletion::Flagged), Some(Deletion::Reconciled));
    let cases = [
        (None, false, Updated),
        (None, true, Deleted),
        (flagged, false, Restored),
        (reconciled, false, Restored),
        (flagged, true, Unchanged),
        (reconciled, true, Unchanged),
    ];
    for (deleted, is_flagged, expected) in cases {
        let seen = Seen { flagged: is_flagged, ..seen(Some(7), "a") };
        let (decision, state) = decide_forgotten(deleted, &seen);
        assert_eq!(decision, expected, "{deleted:?} {is_flagged}");
        let (_, fresh) = decide(None, &seen, Detect::Version);
        assert_eq!(Some(state), fresh, "what is stored is what is stored of a new key");
    }
}
