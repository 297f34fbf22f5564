//! What the store was really told, in order, and what n8n was really sent: the facts that the oracle judges.

use onlynew::domain::{
    run::{RunId, RunStatus},
    version::Version,
};

use super::{receiver::Attempt, world::Shown};

/// One write that was committed.
#[derive(Clone, Debug)]
pub enum Fact {
    /// A page of this run, on this trip, committed at this time.
    Page { trip: usize, at: i64, run: RunId, rows: Vec<Shown> },
    /// The baseline instant that holds, and when the run that asked for it had asked for its first page.
    Baseline { at: i64, asked_at: Option<i64> },
    /// The end of a run.
    Finish { status: RunStatus },
}

/// Everything that happened.
#[derive(Debug, Default)]
pub struct Log {
    pub facts: Vec<Fact>,
    pub attempts: Vec<Attempt>,
    /// Events whose delivery is stored.
    pub settled: Vec<String>,
    /// How often a process has died or lost the store.
    pub era: u32,
    /// The epoch of the latest lease.
    pub epoch: i64,
    /// Where the watermark stands.
    pub watermark: Option<Version>,
    /// When the walk that is bookmarked had asked for its first page.
    pub bookmarked_walk: Option<i64>,
    /// How many runs went on where one before them was cut off.
    pub resumed: u64,
    /// What was found wrong at the moment it happened.
    pub violations: Vec<String>,
    /// What was done, for a person.
    pub story: Vec<String>,
}
