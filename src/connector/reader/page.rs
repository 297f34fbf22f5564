//! What reading a page brings: its records and what the walk learnt from it, or why there is none.

use serde_json::Value;

use crate::{
    domain::{bookmark::PageMark, instant::Instant, page::SeenRecord, sync_token::PageTag, version::Version},
    store::QuarantinedRecord,
};

/// A page of records.
#[derive(Debug)]
pub struct Page {
    /// Its number in the run, from 1.
    pub number: u32,
    /// Its records that pass the filter, a key possibly more than once.
    pub records: Vec<SeenRecord>,
    /// Its records that could not be read.
    pub quarantined: Vec<QuarantinedRecord>,
    /// How many were left out for want of a version.
    pub skipped: u64,
    /// Its rows as they came, before the filter.
    pub rows: usize,
    /// The highest version among its rows.
    pub max_version: Option<Version>,
    /// When it was asked for, by our clock: the attempt that brought it.
    pub asked_at: Instant,
    /// When it had come, by our clock.
    pub answered_at: Instant,
    /// When it was asked for, by the source's clock.
    pub source_time: Instant,
    /// The source told its clock; else `source_time` is a guess.
    pub is_dated: bool,
    /// The source says that it is the page that was read before.
    pub is_unmodified: bool,
    /// The page behind it, where a later walk may go on there.
    pub next: Option<PageMark>,
    /// The version below which every row of the walk was read; `None` where that is not known.
    pub risen_to: Option<Version>,
    /// Whether the walk's rows are sorted by version, oldest first, up to here.
    pub is_sorted: bool,
    /// What the next run goes on from, where this page gives it: the last one does.
    pub sync_token: Option<Value>,
    /// The validator of the run's listing, where this page is all of it.
    pub tag: Option<PageTag>,
}

/// Why a page was not read. It is never the end of the data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The source wants to be left alone for longer than a run may wait.
    #[error("{reason}")]
    RateLimited {
        /// Who is to leave it alone: the account's bucket, or a stream's own.
        bucket: String,
        /// Until when, by our clock.
        until: Instant,
        /// What it said.
        reason: String,
    },
    /// The place of the page is not good any more: the walk has to begin anew.
    #[error("{reason}")]
    Restart {
        /// What the source said.
        reason: String,
    },
    /// The source does not know what it gave to go on from any more.
    #[error("{reason}")]
    Reset {
        /// What the source said.
        reason: String,
    },
    /// The source does not give so much at once.
    #[error("{reason}")]
    TooMuch {
        /// What the source said.
        reason: String,
    },
    /// The page cannot be read, or not now.
    #[error("{reason}")]
    Failed {
        /// Why, and what to look at.
        reason: String,
    },
}
