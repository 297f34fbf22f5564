//! How a run came out, for logs, people and programs.

use serde_json::Value;

use crate::{
    config::job::Job,
    domain::{
        key::RecordKey,
        run::{Counts, RunKind, RunStatus},
        version::Version,
    },
    store::RunId,
};

/// How a run came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunReport {
    /// The job's name.
    pub job: String,
    /// The run's number; `None` where it did not begin.
    pub run: Option<RunId>,
    /// How it ended.
    pub status: RunStatus,
    /// Its kind.
    pub kind: RunKind,
    /// How many requests it sent.
    pub requests: u64,
    /// How many pages it committed.
    pub pages: u64,
    /// What it counted.
    pub counts: Counts,
    /// A key of which further contents were left undecided.
    pub conflict: Option<RecordKey>,
    /// The watermark after it, as people see versions.
    pub watermark: Option<Value>,
    /// Why, where it is not ok, and what a person should look at.
    pub reason: Option<String>,
}

impl RunReport {
    /// A run that did not begin.
    pub fn not_begun(job: &Job, status: RunStatus, reason: String) -> Self {
        Self {
            job: job.name.clone(),
            run: None,
            status,
            kind: RunKind::Live,
            requests: 0,
            pages: 0,
            counts: Counts::default(),
            conflict: None,
            watermark: None,
            reason: Some(reason),
        }
    }

    /// The same report with the watermark that the store holds.
    #[must_use]
    pub fn with_watermark(self, job: &Job, watermark: Option<Version>) -> Self {
        let watermark = watermark.map(|version| job.version_format().show(version));
        Self { watermark, ..self }
    }

    /// What a person should know of the records that were left undecided.
    pub(super) fn conflict_told(&self) -> Option<String> {
        let (key, count) = (self.conflict.as_ref()?.as_str(), self.counts.conflicts);
        Some(format!(
            "records left undecided: {count}; in this one run the key `{key}` changed its content more than once without \
             a newer version, so that `primary_key` is not unique, it seems: add the field that tells such records apart"
        ))
    }

    /// Writes the report to the log: quietly where nothing was new, loudly where it failed.
    pub fn log(&self) {
        let Counts {
            records,
            created,
            updated,
            deleted,
            restored,
            unchanged,
            stale,
            conflicts,
            quarantined,
            skipped,
            below_floor,
            events,
        } = self.counts;
        let reason = self.reason.as_deref().unwrap_or_default();
        macro_rules! at {
            ($level:ident, $message:literal) => {
                tracing::$level!(
                    job = %self.job, status = self.status.name(), requests = self.requests, pages = self.pages,
                    records, created, updated, deleted, restored, unchanged, stale, conflicts, quarantined,
                    skipped, below_floor, events, reason, $message
                )
            };
        }
        match self.status {
            RunStatus::Ok if self.reason.is_some() => at!(warn, "run complete, with a warning"),
            RunStatus::Ok => at!(info, "run complete"),
            RunStatus::Failed => at!(error, "run failed; the watermark stays"),
            RunStatus::Interrupted => at!(warn, "run interrupted"),
            RunStatus::RateLimited => at!(warn, "run put off by the source"),
            // Whoever asked for the run tells of it: the planner comes back to it again and again.
            RunStatus::Asks | RunStatus::Skipped | RunStatus::Running => at!(debug, "run skipped"),
        }
    }
}
