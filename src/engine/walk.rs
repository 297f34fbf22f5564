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
        version::Version,
        watermark,
    },
    store::{JobLease, NewRun, PageCommit, Progress, RunEnd, RunId, StoreError},
};

/// How long a page that was asked for is still waited for once the process has to stop.
const LAST_PAGE_WAIT: Duration = Duration::from_secs(5);

/// One walk over a job's window.
pub(super) struct Walk<'a> {
    engine: &'a Engine,
    job: &'a Arc<Job>,
    lease: &'a JobLease,
    stop: &'a CancellationToken,
    lost: &'a CancellationToken,
}

/// Why a walk did not reach the end of its window.
enum Cut {
    /// The source failed, was not data, or the process has to stop.
    Failed(String),
    /// The source asks to be left alone until then.
    RateLimited(Instant, String),
    /// The store failed.
    Store(StoreError),
}

impl From<StoreError> for Cut {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<ReadError> for Cut {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::RateLimited { until, reason } => Self::RateLimited(until, reason),
            ReadError::Failed { reason } => Self::Failed(reason),
        }
    }
}

/// What the first answer of a walk fixes for all its pages.
#[derive(Clone, Copy)]
struct Bounds {
    hi: Option<Version>,
    complete_through: Instant,
    silence: Silence,
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        engine: &'a Engine,
        job: &'a Arc<Job>,
        lease: &'a JobLease,
        stop: &'a CancellationToken,
        lost: &'a CancellationToken,
    ) -> Self {
        Self { engine, job, lease, stop, lost }
    }

    /// Walks the window and closes the run, however it ends.
    pub(super) async fn run(self) -> Result<RunReport, StoreError> {
        let store = &self.engine.store;
        let progress = store.open_progress(self.lease, self.job.first_run == FirstRun::Baseline).await?;
        let from = self.job.window.from(progress.watermark);
        let run = store.start_run(self.lease, &NewRun { kind: RunKind::Live, from }).await?;
        let reader = PageReader::new(
            Arc::clone(self.job),
            from,
            self.engine.http.clone(),
            Arc::clone(&self.engine.limits),
            Arc::clone(&self.engine.clock),
        );
        let mut report = RunReport {
            run: Some(run),
            reason: None,
            ..RunReport::not_begun(self.job, RunStatus::Ok, String::new())
        };
        let reached = self.pages(run, progress, reader, &mut report).await;
        self.close(run, progress, reached, &mut report).await;
        Ok(report)
    }

    /// Reads and commits every page; returns where the watermark may move and how far the stream is
    /// complete.
    async fn pages(
        &self,
        run: RunId,
        progress: Progress,
        mut reader: PageReader,
        report: &mut RunReport,
    ) -> Result<(Option<Version>, Instant), Cut> {
        let store = &self.engine.store;
        let source = self.event_source().await?;
        let mut bounds: Option<Bounds> = None;
        let mut max_seen = None;
        loop {
            let page = self.next_page(&mut reader).await;
            report.requests = reader.requests();
            let Some(page) = page? else { break };
            let fixed = match bounds {
                Some(fixed) => fixed,
                None => *bounds.insert(self.bounds(progress, page.source_time).await?),
            };
            max_seen = max_seen.max(page.max_version);
            report.pages += 1;
            let commit = PageCommit {
                run,
                number: page.number,
                requests: reader.requests(),
                rules: self.rules(&source, &page, fixed.silence),
                records: page.records,
                quarantined: page.quarantined,
                skipped: page.skipped,
                destination: self.job.destination.name.clone(),
            };
            let outcome = store.commit_page(self.lease, &commit).await?;
            report.counts += outcome.counts;
            if outcome.counts.events > 0 {
                self.engine.fresh.send_modify(|count| *count += 1);
            }
        }
        let Some(bounds) = bounds else {
            return Err(Cut::Failed("the source answered no page at all".to_owned()));
        };
        Ok((watermark::advance(progress.watermark, max_seen, bounds.hi), bounds.complete_through))
    }

    /// The next page, unless the lease is lost or the process has to stop: a page already asked for is
    /// then waited for a little longer.
    async fn next_page(&self, reader: &mut PageReader) -> Result<Option<Page>, Cut> {
        let stopped =
            || Cut::Failed("the process was stopped; the next run reads the window again".to_owned());
        if self.stop.is_cancelled() {
            return Err(stopped());
        }
        let waited_long_enough = async {
            self.stop.cancelled().await;
            self.engine.clock.sleep(LAST_PAGE_WAIT).await;
        };
        tokio::select! {
            page = reader.next_page() => page.map_err(Cut::from),
            () = waited_long_enough => Err(stopped()),
            () = self.lost.cancelled() => Err(Cut::Store(StoreError::LeaseLost)),
        }
    }

    /// Fixes the bounds of the walk by the source's clock at its first request. The baseline instant is
    /// that of the first attempt, whatever attempt this is.
    async fn bounds(&self, progress: Progress, source_time: Instant) -> Result<Bounds, StoreError> {
        let window = &self.job.window;
        let complete_through = source_time.minus(window.settle);
        let silence = if progress.baseline_open {
            let at = self.engine.store.fix_baseline(self.lease, complete_through).await?;
            Silence::Baseline(self.has_time_versions().then(|| Version(at.micros())))
        } else {
            Silence::Never
        };
        let hi = if self.has_time_versions() { window.hi(source_time) } else { None };
        Ok(Bounds { hi, complete_through, silence })
    }

    fn has_time_versions(&self) -> bool {
        self.job.stream.incremental.is_some() && self.job.window.is_time
    }

    fn rules(&self, source: &EventSource, page: &Page, silence: Silence) -> PageRules {
        let settled_until =
            if self.has_time_versions() { self.job.window.settled_until(page.source_time) } else { None };
        PageRules {
            detect: self.job.detect,
            ignored: self.job.ignored.clone(),
            emit: self.job.emit.clone(),
            silence,
            settled_until,
            asked_at: page.asked_at,
            answered_at: page.answered_at,
            source: source.clone(),
        }
    }

    async fn event_source(&self) -> Result<EventSource, StoreError> {
        let row = self.engine.register(self.job).await?;
        Ok(EventSource {
            job_uid: row.uid,
            job: self.job.name.clone(),
            connector: self.job.account.connector.clone(),
            stream: self.job.stream_name.clone(),
            format: self.job.version_format(),
            numbers: self.job.numbers,
        })
    }

    /// Closes the run in the store and fills in the report. A store that fails here leaves the run open;
    /// the next run closes it.
    async fn close(
        &self,
        run: RunId,
        progress: Progress,
        reached: Result<(Option<Version>, Instant), Cut>,
        report: &mut RunReport,
    ) {
        let store = &self.engine.store;
        let mut end = RunEnd {
            status: RunStatus::Ok,
            reason: None,
            requests: report.requests,
            watermark: None,
            complete_through: None,
        };
        match reached {
            Ok((watermark, complete_through)) => {
                end.watermark = watermark;
                end.complete_through = Some(complete_through);
            }
            Err(Cut::Failed(reason)) => (end.status, end.reason) = (RunStatus::Failed, Some(reason)),
            Err(Cut::Store(error)) => (end.status, end.reason) = (RunStatus::Failed, Some(error.to_string())),
            Err(Cut::RateLimited(until, reason)) => {
                if let Err(error) = store.hold_account(&self.job.account.bucket, until, &reason).await {
                    tracing::warn!(job = %self.job.name, %error, "the account's wait could not be stored");
                }
                (end.status, end.reason) = (RunStatus::RateLimited, Some(reason));
            }
        }
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
