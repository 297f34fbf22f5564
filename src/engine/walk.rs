//! The walk over one window, page by page. Each page is committed before the next is asked for, and the
//! watermark moves only after the last.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{report::RunReport, run::Engine};
use crate::{
    config::job::{FirstRun, Job},
    connector::{Page, PageReader, ReadError},
    domain::{
        event::EventSource,
        instant::Instant,
        page::{PageRules, Silence},
        run::{RunKind, RunStatus},
        units::format_duration,
        version::Version,
        watermark,
        window::{CLOCK_TOLERANCE, Length},
    },
    store::{JobLease, JobRow, NewRun, PageCommit, Progress, RunEnd, RunId, StoreError},
};

/// Whoever asks to be left alone for longer has its units wrong.
const LONGEST_HOLD: Duration = Duration::from_hours(24);

/// So many failures in a row are no accident.
const KEEPS_FAILING: u32 = 3;

/// How long a page that was asked for is still waited for once the process has to stop.
const LAST_PAGE_WAIT: Duration = Duration::from_secs(5);

/// One walk over a job's window.
pub(super) struct Walk<'a> {
    engine: &'a Engine,
    job: &'a Arc<Job>,
    row: &'a JobRow,
    lease: &'a JobLease,
    stop: &'a CancellationToken,
    lost: &'a CancellationToken,
}

/// Why a walk did not reach the end of its window.
enum Cut {
    /// The source failed, or answered what is not data.
    Source(String),
    /// The process has to stop.
    Stopped,
    /// The source asks the jobs of a bucket to leave it alone until then.
    RateLimited { bucket: String, until: Instant, reason: String },
    /// The store failed.
    Store(StoreError),
}

impl Cut {
    /// The same with advice where runs keep failing and less cannot be asked for.
    fn advised(self, job: &Job, failures: u32, length: Length) -> Self {
        match self {
            Self::Source(reason) if length.is_shortest && failures >= KEEPS_FAILING => {
                let why = if job.stream.bounded {
                    "the window cannot be made any shorter"
                } else {
                    "this source cannot be asked for a part of the window: its requests never use `window.end`"
                };
                Self::Source(format!("{reason}; {} runs have failed here in a row, and {why}", failures + 1))
            }
            cut => cut,
        }
    }
}

impl From<StoreError> for Cut {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<ReadError> for Cut {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::RateLimited { bucket, until, reason } => Self::RateLimited { bucket, until, reason },
            ReadError::Failed { reason } => Self::Source(reason),
        }
    }
}

/// How far a complete run has got.
struct Reached {
    watermark: Option<Version>,
    complete_through: Instant,
}

/// What the first answer of a run fixes for all its pages.
#[derive(Clone, Copy)]
struct Fixed {
    hi: Option<Version>,
    complete_through: Instant,
    silence: Silence,
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        engine: &'a Engine,
        job: &'a Arc<Job>,
        row: &'a JobRow,
        lease: &'a JobLease,
        stop: &'a CancellationToken,
        lost: &'a CancellationToken,
    ) -> Self {
        Self { engine, job, row, lease, stop, lost }
    }

    /// Walks the window and closes the run, however it ends.
    pub(super) async fn run(self) -> Result<RunReport, StoreError> {
        let store = &self.engine.store;
        let progress = store.open_progress(self.lease, self.job.first_run == FirstRun::Baseline).await?;
        let from = self.job.window.from(progress.watermark);
        let run = store.start_run(self.lease, &NewRun { kind: RunKind::Live, from }).await?;
        let mut report = RunReport {
            run: Some(run),
            reason: None,
            ..RunReport::not_begun(self.job, RunStatus::Ok, String::new())
        };
        let reached = self.window(run, progress, &mut report).await;
        self.close(run, progress, reached, &mut report).await;
        Ok(report)
    }

    /// Walks over the window, one step after another, oldest first; after each the watermark moves. Steps
    /// are laid by our own clock, since the source has not told its own yet: that decides how many there
    /// are, and nothing else.
    async fn window(&self, run: RunId, progress: Progress, report: &mut RunReport) -> Result<Reached, Cut> {
        let Engine { store, http, limits, tokens, clock, .. } = self.engine;
        let rule = &self.job.window;
        let mut reader =
            PageReader::new(Arc::clone(self.job), http.clone(), Arc::clone(limits), Arc::clone(clock))
                .with_tokens(Arc::clone(tokens));
        let mut from = rule.from(progress.watermark);
        let planned = rule.hi(clock.now().minus(CLOCK_TOLERANCE));
        let length = self.length(from, planned, progress.failures);
        let source = self.event_source();
        let mut fixed = None;
        let mut watermark = progress.watermark;
        loop {
            let step = rule.step(from, planned, length.of_step);
            reader.begin(rule.bounds(step));
            let walked = self.step(run, progress, &source, &mut reader, &mut fixed, report).await;
            let max_seen = walked.map_err(|cut| cut.advised(self.job, progress.failures, length))?;
            let Some(fixed) = fixed else {
                return Err(Cut::Source("the source answered no page at all".to_owned()));
            };
            watermark = watermark::advance(watermark, step, max_seen, fixed.hi);
            let Some(next) = step.to else {
                return Ok(Reached { watermark, complete_through: fixed.complete_through });
            };
            store.advance(self.lease, run, watermark).await?;
            from = Some(next);
        }
    }

    /// How much is asked for at once: less after failures, where the source can be asked for less.
    fn length(&self, from: Option<Version>, hi: Option<Version>, failures: u32) -> Length {
        let length = self.job.window.length(from, hi, failures);
        if self.job.stream.bounded { length } else { Length { of_step: None, is_shortest: failures > 0 } }
    }

    /// Reads and commits every page of a step; returns the highest version seen.
    async fn step(
        &self,
        run: RunId,
        progress: Progress,
        source: &EventSource,
        reader: &mut PageReader,
        fixed: &mut Option<Fixed>,
        report: &mut RunReport,
    ) -> Result<Option<Version>, Cut> {
        let mut max_seen = None;
        loop {
            let page = self.next_page(reader).await;
            report.requests = reader.requests();
            let Some(page) = page? else { return Ok(max_seen) };
            let now = match *fixed {
                Some(now) => now,
                None => *fixed.insert(self.fix(progress, &page).await?),
            };
            max_seen = max_seen.max(page.max_version);
            report.pages += 1;
            let commit = PageCommit {
                run,
                number: page.number,
                requests: reader.requests(),
                rules: self.rules(source, &page, now.silence),
                records: page.records.into(),
                quarantined: page.quarantined,
                skipped: page.skipped,
                destination: self.job.destination.name.clone(),
            };
            let outcome = self.engine.store.commit_page(self.lease, &commit).await?;
            report.counts += outcome.counts;
            report.conflict = report.conflict.take().or(outcome.conflict);
            if outcome.counts.events > 0 {
                self.engine.fresh.send_modify(|count| *count += 1);
            }
        }
    }

    /// Says where the source's clock is so far from ours that the lookback is half used up.
    fn warn_of_skew(&self, page: &Page) {
        let window = &self.job.window;
        let skew = window.skew(page.asked_at, page.source_time);
        let Some(skew) = skew.filter(|_| page.is_dated && self.has_time_versions()) else { return };
        tracing::warn!(
            job = %self.job.name,
            source = %page.source_time,
            ours = %page.asked_at,
            apart = format_duration(Duration::from_secs(skew.apart.as_secs())),
            lookback = format_duration(window.lookback),
            "the source's clock is {} ours by more than half the lookback: set this machine's clock right, or make \
             `window.lookback` more than twice as long as they are apart",
            if skew.source_is_ahead { "ahead of" } else { "behind" },
        );
    }

    /// The next page, unless the lease is lost or the process has to stop: a page already asked for is
    /// then waited for a little longer.
    async fn next_page(&self, reader: &mut PageReader) -> Result<Option<Page>, Cut> {
        if self.stop.is_cancelled() {
            return Err(Cut::Stopped);
        }
        let waited_long_enough = async {
            self.stop.cancelled().await;
            self.engine.clock.sleep(LAST_PAGE_WAIT).await;
        };
        tokio::select! {
            page = reader.next_page() => page.map_err(Cut::from),
            () = waited_long_enough => Err(Cut::Stopped),
            () = self.lost.cancelled() => Err(Cut::Store(StoreError::LeaseLost)),
        }
    }

    /// Fixes what counts as complete by the source's clock at the run's first request. The baseline instant
    /// is that of the first attempt, whatever attempt this is.
    async fn fix(&self, progress: Progress, page: &Page) -> Result<Fixed, StoreError> {
        self.warn_of_skew(page);
        let (window, source_time) = (&self.job.window, page.source_time);
        let complete_through = source_time.minus(window.settle);
        let silence = if progress.baseline_open {
            let at = self.engine.store.fix_baseline(self.lease, complete_through).await?;
            Silence::Baseline(self.has_time_versions().then(|| Version(at.micros())))
        } else {
            Silence::Never
        };
        let hi = if self.has_time_versions() { window.hi(source_time) } else { None };
        Ok(Fixed { hi, complete_through, silence })
    }

    fn has_time_versions(&self) -> bool {
        self.job.stream.incremental.is_some() && self.job.window.is_time
    }

    fn rules(&self, source: &EventSource, page: &Page, silence: Silence) -> PageRules {
        let window = &self.job.window;
        let by_time = self.has_time_versions();
        let settled_until = if by_time { window.settled_until(page.source_time) } else { None };
        PageRules {
            detect: self.job.detect,
            ignored: self.job.ignored.clone(),
            emit: self.job.emit.clone(),
            silence,
            settled_until,
            asked_at: page.asked_at,
            answered_at: page.answered_at,
            // Versions are the source's; where its clock is ahead of ours, so far ahead is no future.
            tolerance: by_time.then(|| {
                let ahead = page.source_time.since(page.asked_at);
                CLOCK_TOLERANCE + window.lookback + window.settle + ahead
            }),
            source: source.clone(),
        }
    }

    fn event_source(&self) -> EventSource {
        EventSource {
            job_uid: self.row.uid.clone(),
            job: self.job.name.clone(),
            connector: self.job.account.connector.clone(),
            stream: self.job.stream_name.clone(),
            format: self.job.version_format(),
            numbers: self.job.numbers,
        }
    }

    /// Closes the run in the store and fills in the report. A store that fails here leaves the run open;
    /// the next run closes it.
    async fn close(
        &self,
        run: RunId,
        progress: Progress,
        reached: Result<Reached, Cut>,
        report: &mut RunReport,
    ) {
        let store = &self.engine.store;
        let mut end = RunEnd {
            status: RunStatus::Ok,
            reason: None,
            at_source: false,
            requests: report.requests,
            watermark: None,
            complete_through: None,
        };
        match reached {
            Ok(Reached { watermark, complete_through }) => {
                end.watermark = watermark;
                end.complete_through = Some(complete_through);
            }
            Err(Cut::Source(reason)) => {
                (end.status, end.reason, end.at_source) = (RunStatus::Failed, Some(reason), true);
            }
            Err(Cut::Stopped) => {
                let reason = "the process was stopped; the next run reads the window again";
                (end.status, end.reason) = (RunStatus::Interrupted, Some(reason.to_owned()));
            }
            Err(Cut::Store(error)) => (end.status, end.reason) = (RunStatus::Failed, Some(error.to_string())),
            Err(Cut::RateLimited { bucket, until, reason }) => {
                let until = until.min(self.engine.clock.now().plus(LONGEST_HOLD));
                if let Err(error) = store.hold_account(&bucket, until, &reason).await {
                    tracing::warn!(job = %self.job.name, %error, "the account's wait could not be stored");
                }
                (end.status, end.reason) = (RunStatus::RateLimited, Some(reason));
            }
        }
        let told = [end.reason.take(), report.conflict_told()];
        end.reason = told.into_iter().flatten().reduce(|reason, conflict| format!("{reason}; {conflict}"));
        if let Err(error) = store.finish_run(self.lease, run, &end).await {
            end.watermark = None;
            if end.status == RunStatus::Ok {
                (end.status, end.reason) = (RunStatus::Failed, Some(error.to_string()));
            } else {
                tracing::warn!(job = %self.job.name, %error, "the end of the run could not be stored");
            }
        }
        report.status = end.status;
        report.reason = end.reason;
        let watermark = end.watermark.or(progress.watermark);
        report.watermark = watermark.map(|version| self.job.version_format().show(version));
    }
}
