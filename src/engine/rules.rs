//! How the pages of a run are decided: what its first answer fixes, what a baseline is silent about, and whose records
//! they are.

use std::time::Duration;

use super::{errand::Errand, walk::Walk};
use crate::{
    config::job::Job,
    connector::Page,
    domain::{
        event::EventSource,
        instant::{Instant, micros_of},
        lateness::{Measure, Passed},
        page::{PageRules, Silence},
        retention::Floor,
        version::Version,
        window::CLOCK_TOLERANCE,
    },
    store::{JobRow, Progress, StoreError},
};

/// What the first answer of a walk fixes for all its pages.
#[derive(Clone, Copy)]
pub(super) struct Fixed {
    pub(super) hi: Option<Version>,
    pub(super) complete_through: Instant,
}

impl Walk<'_> {
    /// What counts as complete by the source's clock at the run's first request.
    pub(super) fn fixed(&self, source_time: Instant) -> Fixed {
        let window = &self.job.window;
        let hi = if self.job.has_time_versions() { window.hi(source_time) } else { None };
        Fixed { hi, complete_through: source_time.minus(window.settle) }
    }

    /// Which changes are recorded only. The baseline instant is that of the first attempt, whatever attempt
    /// this is.
    pub(super) async fn silence(&self, progress: &Progress, fixed: Fixed) -> Result<Silence, StoreError> {
        // Where a source tells of changes alone, its first token is the baseline.
        let begins_with_token = self.job.stream.sync.as_ref().is_some_and(|sync| sync.start.is_some());
        let lease = self.books.lease().filter(|_| progress.baseline_open && !begins_with_token);
        let Some(lease) = lease else { return Ok(Silence::Never) };
        let at = self.engine.store.fix_baseline(lease, fixed.complete_through).await?;
        Ok(Silence::Baseline(self.job.has_time_versions().then(|| Version(at.micros()))))
    }

    /// How late changes are told: by the watermark that held when a live run began, and not while there is none that
    /// polling has gone by.
    pub(super) fn measure(&self, progress: &Progress) -> Option<Measure> {
        let job = self.job;
        let is_polled = job.stream.sync.is_none();
        if let Errand::Live = self.errand {
            let watermark = progress.watermark.filter(|_| job.has_time_versions() && !progress.baseline_open);
            return watermark.filter(|_| is_polled).map(Measure::Live);
        }
        let window = &job.window;
        let lookback = if window.is_time { window.lookback + window.granularity } else { Duration::ZERO };
        is_polled.then(|| {
            Measure::Beside(Passed {
                lookback: job.stream.incremental.is_some().then(|| micros_of(lookback)),
                start: window.start,
                is_time: window.is_time,
            })
        })
    }

    pub(super) fn rules(&self, source: &EventSource, page: &Page, silence: Silence) -> PageRules {
        let window = &self.job.window;
        let by_time = self.job.has_time_versions();
        let settled_until = if by_time { window.settled_until(page.source_time) } else { None };
        PageRules {
            detect: self.job.detect,
            ignored: self.job.ignored.clone(),
            emit: self.errand.emit(self.job),
            silence,
            replay: self.errand.replay(),
            settled_until,
            asked_at: page.asked_at,
            answered_at: page.answered_at,
            // Versions are the source's; where its clock is ahead of ours, so far ahead is no future.
            is_feed: self.job.stream.sync.is_some(),
            tolerance: by_time.then(|| {
                let ahead = page.source_time.since(page.asked_at);
                CLOCK_TOLERANCE + window.lookback + window.settle + ahead
            }),
            floor: self.job.forgets_keys().then(|| Floor::known(None, self.errand.replay().is_some())),
            source: source.clone(),
        }
    }
}

/// Whose records they are.
pub(super) fn event_source(job: &Job, row: &JobRow) -> EventSource {
    EventSource {
        job_uid: row.uid.clone(),
        job: job.name.clone(),
        connector: job.account.connector.clone(),
        stream: job.stream_name.clone(),
        format: job.version_format(),
        numbers: job.numbers,
    }
}
