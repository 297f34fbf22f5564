//! What one sighting of a record means, against the latest state stored of it and nothing else.
//!
//! The table was found by trying every history of up to three states under every order of up to four
//! sightings; each row is there because leaving it out lost, repeated or reordered a change.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{content::Hash, instant::Instant, version::Version, window::CLOCK_TOLERANCE};

/// What counts as a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Detect {
    /// A newer version is a change; equal versions are not, whatever the content.
    Version,
    /// Other content is a change; a newer version alone is not.
    Content,
    /// A newer version is a change, and so is other content under an equal version.
    Either,
}

/// How a stored record came to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// The source said so in the record itself.
    Flagged,
    /// A full sweep no longer saw it.
    Reconciled,
}

/// The latest state stored of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The highest version seen, or none where none was ever seen.
    pub version: Option<Version>,
    /// The content hash of the state last recorded.
    pub hash: Hash,
    /// Whether, and how, the record is deleted.
    pub deleted: Option<Deletion>,
    /// The version was so young when seen that another change could still share it.
    pub provisional: bool,
    /// The state was last changed by a sighting without a version.
    pub versionless: bool,
    /// When the page that brought this state had been answered.
    pub answered_at: Instant,
}

/// One sighting of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The record's version, where it has one.
    pub version: Option<Version>,
    /// The record's content hash.
    pub hash: Hash,
    /// The source marks the record as deleted.
    pub flagged: bool,
    /// The version is old enough that no later change can share it.
    pub settled: bool,
    /// When the page was asked for.
    pub asked_at: Instant,
    /// When the page had been answered.
    pub answered_at: Instant,
    /// When it is decided, by the database's clock.
    pub decided_at: Instant,
    /// How far ahead of its reading a version may be before it is one from the future, which orders nothing;
    /// `None` where versions are no instants.
    pub tolerance: Option<Duration>,
}

/// What a sighting means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// A key not known before.
    Created,
    /// A key not known before, already deleted: recorded, no event.
    CreatedDeleted,
    /// A change of a known key.
    Updated,
    /// A known key became deleted.
    Deleted,
    /// A deleted key came back.
    Restored,
    /// Nothing new.
    Unchanged,
    /// An older version than the one stored.
    Stale,
    /// A change told by content alone, on a page asked for before the stored state was answered:
    /// nobody can say which of the two is newer.
    StaleRead,
}

impl Decision {
    /// Whether this decision is a change that an event tells of.
    pub const fn is_change(self) -> bool {
        matches!(self, Self::Created | Self::Updated | Self::Deleted | Self::Restored)
    }
}

/// Decides one sighting. The second part is the state to store, or none where nothing is to be written.
pub fn decide(stored: Option<&Stored>, seen: &Seen, detect: Detect) -> (Decision, Option<Stored>) {
    let Some(stored) = stored else {
        let deleted = seen.flagged.then_some(Deletion::Flagged);
        let decision = if seen.flagged { Decision::CreatedDeleted } else { Decision::Created };
        return (decision, Some(state(None, seen, deleted)));
    };
    let (decision, next) = compare(stored, seen, detect);
    let by_reading = match (stored.version, seen.version) {
        (Some(known), Some(version)) => {
            version <= known || is_future(seen.version, seen.asked_at, seen.tolerance)
        }
        _ => true,
    };
    // A stored moment that is still to come is the mark of a clock that was wrong.
    let is_older_reading =
        seen.asked_at <= stored.answered_at && stored.answered_at <= seen.decided_at.plus(CLOCK_TOLERANCE);
    if decision.is_change() && by_reading && is_older_reading {
        return (Decision::StaleRead, None);
    }
    (decision, next)
}

/// Whether a version is later than the moment it was read at can explain.
fn is_future(version: Option<Version>, read_at: Instant, tolerance: Option<Duration>) -> bool {
    let horizon = tolerance.map(|tolerance| Version(read_at.plus(tolerance).micros()));
    version.zip(horizon).is_some_and(|(version, horizon)| version > horizon)
}

fn compare(stored: &Stored, seen: &Seen, detect: Detect) -> (Decision, Option<Stored>) {
    let from_future = is_future(stored.version, stored.answered_at, seen.tolerance);
    let newer = match (stored.version, seen.version) {
        (Some(known), Some(version)) if version < known && !from_future => return (Decision::Stale, None),
        (Some(known), Some(version)) => version != known,
        (None, Some(_)) => true,
        (_, None) => false,
    };
    let differs = seen.hash != stored.hash;
    let alive = || Some(state(Some(stored), seen, None));

    if seen.flagged {
        return match stored.deleted {
            None => (Decision::Deleted, Some(state(Some(stored), seen, Some(Deletion::Flagged)))),
            Some(_) if newer => {
                (Decision::Unchanged, Some(Stored { version: seen.version, ..stored.clone() }))
            }
            Some(_) => (Decision::Unchanged, None),
        };
    }
    match stored.deleted {
        Some(Deletion::Reconciled) => return (Decision::Restored, alive()),
        Some(Deletion::Flagged) => {
            let back = newer
                || seen.version.is_none()
                || stored.versionless
                || stored.provisional
                || detect != Detect::Version;
            return if back { (Decision::Restored, alive()) } else { (Decision::Unchanged, None) };
        }
        None => {}
    }
    if seen.version.is_none() {
        return if differs { (Decision::Updated, alive()) } else { (Decision::Unchanged, None) };
    }
    if newer {
        return if differs || detect != Detect::Content {
            (Decision::Updated, alive())
        } else {
            (Decision::Unchanged, alive())
        };
    }
    if differs && (detect != Detect::Version || stored.versionless || stored.provisional) {
        return (Decision::Updated, alive());
    }
    let settles = stored.provisional && seen.settled;
    (Decision::Unchanged, settles.then(|| Stored { provisional: false, ..stored.clone() }))
}

/// The state after a sighting; a sighting without a version keeps the version that was known.
fn state(before: Option<&Stored>, seen: &Seen, deleted: Option<Deletion>) -> Stored {
    let known = before.and_then(|before| before.version);
    Stored {
        version: seen.version.or(known),
        hash: seen.hash,
        deleted,
        provisional: seen.version.is_some() && !seen.settled,
        versionless: seen.version.is_none() && known.is_some(),
        answered_at: seen.answered_at,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Decision::{Created, CreatedDeleted, Deleted, Restored, Stale, StaleRead, Unchanged, Updated},
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
        }
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
            for (detect, expected) in
                [Detect::Version, Detect::Content, Detect::Either].into_iter().zip(expected)
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
}
