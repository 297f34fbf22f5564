//! What a run is called, how it ends and what it counts.

use serde::Serialize;

use super::{decide::Decision, task::TaskKind};

/// A run's number in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct RunId(pub i64);

/// Why a window is walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    /// The scheduled walk over the window at the watermark.
    Live,
    /// A walk over a window that a person asked for.
    Replay,
    /// A sweep over everything, which shows what is gone.
    Reconcile,
}

impl From<TaskKind> for RunKind {
    fn from(kind: TaskKind) -> Self {
        match kind {
            TaskKind::Replay => Self::Replay,
            TaskKind::Reconcile => Self::Reconcile,
        }
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Still under way, or cut off by a crash.
    Running,
    /// Every page was read and committed.
    Ok,
    /// It stopped early; what it had committed stays, the watermark stays where it was.
    Failed,
    /// The process was stopped while it was under way.
    Interrupted,
    /// The source asks to be left alone for longer than a run may wait.
    RateLimited,
    /// Another run of the job was under way.
    Skipped,
    /// It did not begin: the job was edited, and a person has to say what becomes of what is stored of it.
    Asks,
}

macro_rules! stored_names {
    ($type:ty { $($variant:path => $name:literal),+ $(,)? }) => {
        impl $type {
            /// The name in the store, in JSON and in logs.
            pub const fn name(self) -> &'static str {
                match self { $($variant => $name),+ }
            }

            /// The value of a stored name; `None` for a name of another release.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some($variant),)+ _ => None }
            }
        }
    };
}

pub(super) use stored_names;

stored_names!(RunKind { Self::Live => "live", Self::Replay => "replay", Self::Reconcile => "reconcile" });
stored_names!(RunStatus {
    Self::Running => "running",
    Self::Ok => "ok",
    Self::Failed => "failed",
    Self::Interrupted => "interrupted",
    Self::RateLimited => "rate_limited",
    Self::Skipped => "skipped",
    Self::Asks => "asks",
});

/// What a page or a run counted. `records` is what the source returned, before two sightings of one key
/// on one page became one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "each is named as the decision it counts")]
pub struct Counts {
    pub records: u64,
    pub created: u64,
    pub updated: u64,
    pub deleted: u64,
    pub restored: u64,
    pub unchanged: u64,
    pub stale: u64,
    /// Further changes by the content alone of keys that one had already changed in the same run; JSON names it
    /// only where there are any.
    #[serde(skip_serializing_if = "is_zero")]
    pub conflicts: u64,
    pub quarantined: u64,
    /// Records without a version, left out because the job says so; JSON names it only where there are any.
    #[serde(skip_serializing_if = "is_zero")]
    pub skipped: u64,
    /// Records below the floor that nothing is known of, or not any more; JSON names it only where there are any.
    #[serde(skip_serializing_if = "is_zero")]
    pub below_floor: u64,
    pub events: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde calls")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Counts {
    /// Whether anything changed.
    pub const fn has_changes(&self) -> bool {
        self.created + self.updated + self.deleted + self.restored > 0
    }

    /// Counts one decision.
    pub fn count(&mut self, decision: Decision) {
        match decision {
            Decision::Created | Decision::CreatedDeleted => self.created += 1,
            Decision::Updated => self.updated += 1,
            Decision::Deleted => self.deleted += 1,
            Decision::Restored => self.restored += 1,
            Decision::Unchanged => self.unchanged += 1,
            Decision::Stale | Decision::StaleRead => self.stale += 1,
            Decision::Conflict => self.conflicts += 1,
            Decision::BelowFloor => self.below_floor += 1,
        }
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.records += other.records;
        self.created += other.created;
        self.updated += other.updated;
        self.deleted += other.deleted;
        self.restored += other.restored;
        self.unchanged += other.unchanged;
        self.stale += other.stale;
        self.conflicts += other.conflicts;
        self.quarantined += other.quarantined;
        self.skipped += other.skipped;
        self.below_floor += other.below_floor;
        self.events += other.events;
    }
}
