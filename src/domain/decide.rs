//! What one sighting of a record means, against the latest state stored of it and nothing else.
//!
//! The table was found by trying every history of up to three states under every order of up to four
//! sightings; each row is there because leaving it out lost, repeated or reordered a change.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{content::Hash, instant::Instant, run::RunId, version::Version, window::CLOCK_TOLERANCE};

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
    /// The run that last changed it by its content alone.
    pub hash_run: Option<RunId>,
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
    /// The run that read it; `None` where a person accepts what a run had set aside.
    pub run: Option<RunId>,
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
    /// A change told by content alone of a key that one has already changed in this run. Either two records
    /// share the key, or one changed twice while it was read; then the next run decides.
    Conflict,
    /// A version below the floor of a key that nothing is known of, or not any more: it may have been told of
    /// long ago.
    BelowFloor,
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
    let gains_version = stored.version.is_none() && seen.version.is_some();
    if decision != Decision::Updated || !by_reading || gains_version {
        return (decision, next);
    }
    if seen.run.is_some() && seen.run == stored.hash_run {
        return (Decision::Conflict, None);
    }
    (decision, next.map(|next| Stored { hash_run: seen.run, ..next }))
}

/// Decides a sighting of a key whose state was forgotten; that it was deleted, and how, is still known. It is a change,
/// since nobody can tell that it is none, unless a record that was deleted is deleted still.
pub fn decide_forgotten(deleted: Option<Deletion>, seen: &Seen) -> (Decision, Stored) {
    let decision = match (deleted, seen.flagged) {
        (None, false) => Decision::Updated,
        (None, true) => Decision::Deleted,
        (Some(_), false) => Decision::Restored,
        (Some(_), true) => Decision::Unchanged,
    };
    (decision, state(None, seen, seen.flagged.then_some(Deletion::Flagged)))
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
        hash_run: before.and_then(|before| before.hash_run),
    }
}

#[cfg(test)]
mod tests;
