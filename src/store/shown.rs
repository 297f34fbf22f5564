//! What a person sees of jobs, runs, tasks, destinations and records that are set aside.

use std::time::Duration;

use serde::Serialize;

use super::{JobRow, Progress, RunId};
use crate::domain::{
    content::Hash,
    coverage::Covered,
    delivery::Next,
    health::{Condition, Health},
    instant::Instant,
    reconcile::Phase,
    run::{Counts, RunKind, RunStatus},
    task::{Plan, TaskId, TaskKind, TaskState},
    version::Version,
};

/// What a person sees of a quarantined record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantineView {
    /// The hash of its text.
    pub id: Hash,
    /// Why it could not be read, the last time.
    pub reason: String,
    /// The last run that met it.
    pub run: RunId,
    /// When the last page that held it was asked for, by our clock.
    pub asked_at: Instant,
    /// When that page had been answered, by our clock.
    pub answered_at: Instant,
    /// It was first met before the baseline was complete.
    pub in_baseline: bool,
    /// When the first page that held it was asked for, by the source's clock.
    pub unread_since: Instant,
    /// How many pages held it.
    pub times: u64,
    /// When it was first met, by the database's clock.
    pub first_seen_at: Instant,
    /// When it was last met, by the database's clock.
    pub last_seen_at: Instant,
}

/// What storing an attempt did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// What becomes of the message.
    pub next: Next,
    /// How many of its events were still claimed by it.
    pub events: u64,
    /// The condition of its destination before.
    pub before: Condition,
    /// And after.
    pub after: Condition,
}

impl Settled {
    /// The destination takes events again.
    pub fn has_opened(self) -> bool {
        self.before.is_shut() && !self.after.is_shut()
    }

    /// The destination is well again: what was being looked at when it opened can be woken now.
    pub fn has_recovered(self) -> bool {
        self.before == Condition::Recovering && self.after == Condition::Well
    }

    /// The destination is sent nothing but probes from now on.
    pub fn has_shut(self) -> bool {
        !self.before.is_shut() && self.after.is_shut()
    }
}

/// What a person sees of a destination.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DestinationView {
    /// Its name.
    pub name: String,
    /// Whether it takes events.
    pub health: Health,
    /// When a person had it paused.
    pub paused_at: Option<Instant>,
    /// Events that wait for it.
    pub pending: u64,
}

/// A destination that a person let go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// It was paused before.
    pub changed: bool,
    /// As it then was.
    pub view: DestinationView,
}

/// What a person sees of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunView {
    /// Its number.
    pub id: RunId,
    /// Its kind.
    pub kind: RunKind,
    /// How it ended.
    pub status: RunStatus,
    /// Why, where it is not ok.
    pub reason: Option<String>,
    /// It went on where a run before it was cut off.
    pub resumed: bool,
    /// When it began.
    pub started_at: Instant,
    /// When it ended.
    pub ended_at: Option<Instant>,
    /// How many requests it sent.
    pub requests: u64,
    /// How many pages it committed.
    pub pages: u64,
    /// What it counted.
    pub counts: Counts,
}

/// What a person sees of a task. Its events are those of replays; a sweep's are told apart by nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskView {
    /// Its number.
    pub id: TaskId,
    /// What its events call it.
    pub uid: String,
    /// Its job's name.
    pub job: String,
    /// What it is for.
    pub kind: TaskKind,
    /// What it reads and sends.
    pub plan: Plan,
    /// Where it stands.
    pub state: TaskState,
    /// How its last run ended, where that was not well.
    pub reason: Option<String>,
    /// The version up to which its window is read.
    pub read_to: Option<Version>,
    /// The version that its walk has come to within the step under way, where that is known.
    pub reached: Option<Version>,
    /// How many of its runs failed there, one after another.
    pub failures: u32,
    /// When it was asked for.
    pub created_at: Instant,
    /// When it ended.
    pub ended_at: Option<Instant>,
    /// How long that took, or has taken by now.
    pub took: Duration,
    /// Who works on it.
    pub worker: Option<String>,
    /// Whoever worked on it was not heard of again.
    pub is_left: bool,
    /// How many runs it took.
    pub runs: u64,
    /// How many requests they sent.
    pub requests: u64,
    /// How many pages they committed.
    pub pages: u64,
    /// What they counted.
    pub counts: Counts,
    /// Events that they stored and that were delivered.
    pub delivered: u64,
    /// Such that wait.
    pub pending: u64,
    /// Such that are dead letters.
    pub dead: u64,
}

impl TaskView {
    /// A replay that is only tried out, and so stands in no store.
    pub fn of_no_store(job: &str, plan: &Plan) -> Self {
        Self {
            id: TaskId(0),
            uid: String::new(),
            job: job.to_owned(),
            kind: TaskKind::Replay,
            plan: plan.clone(),
            state: TaskState::Open,
            reason: None,
            read_to: None,
            reached: None,
            failures: 0,
            created_at: Instant::default(),
            ended_at: None,
            took: Duration::ZERO,
            worker: None,
            is_left: false,
            runs: 0,
            requests: 0,
            pages: 0,
            counts: Counts::default(),
            delivered: 0,
            pending: 0,
            dead: 0,
        }
    }
}

/// Who read versions to their end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Runs and what they covered.
    pub covered: Vec<(RunId, Covered)>,
    /// Runs that did not come to their end, the oldest first.
    pub cut_off: Vec<RunView>,
    /// How many older ones there are.
    pub more_cut_off: u64,
}

/// What is known of a sweep. Its instants are the database's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweepView {
    /// Its task.
    pub task: TaskId,
    /// The task's state: open until what is gone is marked.
    pub state: TaskState,
    /// Where it stands, or stood when it ended.
    pub phase: Phase,
    /// Why it ended as it did, or how its last run ended, where that was not well.
    pub reason: Option<String>,
    /// What it reads.
    pub plan: Plan,
    /// The configuration that it began under.
    pub fingerprint: String,
    /// How long the source may take to show a change.
    pub reach: Duration,
    /// When it was opened.
    pub created_at: Instant,
    /// When it had read everything.
    pub read_at: Option<Instant>,
    /// When it ended.
    pub ended_at: Option<Instant>,
    /// When this was looked at.
    pub now: Instant,
    /// A live run has passed since that began long enough after it.
    pub has_passed: bool,
    /// A person has let it go on.
    pub is_accepted: bool,
    /// Records that its source returned.
    pub records: u64,
    /// Those of them whose key is not known.
    pub unread: u64,
    /// Changes that polling had passed.
    pub missed: u64,
    /// How late the latest of them was, at most.
    pub longest: Duration,
    /// How many keys are gone, once they were counted.
    pub gone: Option<u64>,
    /// Of how many.
    pub of_keys: Option<u64>,
    /// How many were marked as deleted.
    pub deleted: u64,
}

impl TaskView {
    /// The bucket of its own rate.
    pub fn bucket(&self) -> String {
        format!("task {}", self.uid)
    }
}

impl SweepView {
    /// Whether it waits for a person's word.
    pub fn asks(&self) -> bool {
        self.state == TaskState::Open && self.phase == Phase::Asking && !self.is_accepted
    }
}

/// What a person sees of one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobView {
    /// Its name.
    pub name: String,
    /// Its row.
    pub row: JobRow,
    /// How far it has read; `None` before its first run.
    pub progress: Option<Progress>,
    /// How many keys are stored.
    pub records: u64,
    /// How many records are quarantined.
    pub quarantined: u64,
    /// Events waiting or being sent.
    pub pending: u64,
    /// Events delivered.
    pub delivered: u64,
    /// Dead letters that were neither sent again nor discarded, those that are held among them.
    pub dead: u64,
    /// Why the last attempt for an event that still waits failed.
    pub last_error: Option<String>,
    /// Who holds the lease, and until when, where it is held.
    pub lease: Option<(String, Instant)>,
    /// Its last run.
    pub last_run: Option<RunView>,
}
