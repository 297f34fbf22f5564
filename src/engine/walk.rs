//! The walk over one window, page by page. Each page is committed before the next is asked for, and the
//! watermark moves only after the last.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{
    books::Books,
    cut::{Cut, MOST_RESTARTS},
    end::Reached,
    errand::Errand,
    report::RunReport,
    rules::{Fixed, event_source},
    run::Engine,
    sync::SyncWalk,
};
use crate::{
    config::job::{FirstRun, Job},
    connector::{Page, PageReader, ReadError},
    domain::{
        bookmark::{Bookmark, PageMark, Place},
        coverage::{Covered, Reach},
        event::EventSource,
        instant::Instant,
        page::Silence,
        run::RunStatus,
        steps::Steps,
        sync_token::{PageTag, SyncToken},
        units::format_duration,
        version::Version,
        watermark::{self, Seen},
        window::{CLOCK_TOLERANCE, Length, Step, WindowRule},
    },
    store::{JobRow, NewRun, PageCommit, Progress, RunId, StoreError},
};

/// How long a page that was asked for is still waited for once the process has to stop.
const LAST_PAGE_WAIT: Duration = Duration::from_secs(5);

/// One walk over a job's window.
pub(super) struct Walk<'a> {
    pub(super) engine: &'a Engine,
    pub(super) job: &'a Arc<Job>,
    pub(super) errand: Errand<'a>,
    /// The window rule of the errand.
    window: WindowRule,
    row: &'a JobRow,
    pub(super) books: Books<'a>,
    stop: &'a CancellationToken,
    lost: &'a CancellationToken,
    fingerprint: String,
}

/// Where a run begins.
struct Outset {
    steps: Steps,
    length: Length,
    fixed: Option<Fixed>,
    seen: Seen,
    page: Option<PageMark>,
    /// Where the first step began, the part of it included that a run before this one read.
    began: Option<Version>,
}

impl Outset {
    /// Whether the run goes on where one before it was cut off.
    const fn is_resumed(&self) -> bool {
        self.fixed.is_some()
    }
}

/// What all pages of a run have in common.
struct Course {
    run: RunId,
    steps: Steps,
    fixed: Option<Fixed>,
    silence: Option<Silence>,
    source: EventSource,
    /// What the next run goes on from, once the last page has told it.
    sync_token: Option<SyncToken>,
    /// The validator of the listing, where one page was all of it.
    tag: Option<PageTag>,
    /// Records that were passed over because their page is older than what is stored.
    stale_reads: u64,
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        engine: &'a Engine,
        job: &'a Arc<Job>,
        errand: Errand<'a>,
        row: &'a JobRow,
        books: Books<'a>,
        stop: &'a CancellationToken,
        lost: &'a CancellationToken,
    ) -> Self {
        let (window, fingerprint) = (errand.window(job), job.fingerprint());
        Self { engine, job, errand, window, row, books, stop, lost, fingerprint }
    }

    /// Walks the window and closes the run, however it ends.
    pub(super) async fn run(self) -> Result<RunReport, StoreError> {
        let store = &*self.engine.store;
        let progress = self.books.open(store, self.job.first_run == FirstRun::Baseline).await?;
        let outset = self.outset(&progress);
        let from = outset.steps.current().from;
        let new =
            NewRun { kind: self.errand.kind(), from, to: self.errand.end(), resumed: outset.is_resumed() };
        let begun = self.books.start(store, &new).await?;
        let run = begun.unwrap_or(RunId(0));
        let mut report = RunReport {
            run: begun,
            kind: self.errand.kind(),
            reason: None,
            ..RunReport::not_begun(self.job, RunStatus::Ok, String::new())
        };
        let reached = self.window(run, &progress, outset, &mut report).await;
        self.close(run, progress.watermark, reached, &mut report).await;
        Ok(report)
    }

    /// Where the run begins: where a walk before it stopped, or at the lower end of its window. Steps are
    /// laid by our own clock, since the source has not told its own yet: that decides how many there are,
    /// and nothing else.
    fn outset(&self, progress: &Progress) -> Outset {
        let (rule, end) = (self.window, self.errand.end());
        let now = self.engine.clock.now();
        let ttl = self.job.stream.pagination.token_ttl;
        // The source's clock may be ahead of ours.
        let horizon = rule.is_time.then(|| Version(now.plus(CLOCK_TOLERANCE).micros()));
        let marked = progress
            .bookmark
            .as_ref()
            .and_then(|mark| Some((mark, mark.place(&self.fingerprint, progress.failures, ttl, now)?)));
        let Some((mark, place)) = marked else {
            let from =
                rule.from_floor(progress.watermark, progress.floor.filter(|_| self.job.forgets_keys()));
            let planned = end.or_else(|| rule.hi(now.minus(CLOCK_TOLERANCE)));
            let length = self.length(from, planned, progress.failures);
            let steps = Steps::new(rule, from, planned, length.of_step).up_to(horizon).ending_at(end);
            return Outset { steps, length, fixed: None, seen: Seen::default(), page: None, began: from };
        };
        let from = match &place {
            Place::Page(_) => mark.step.from,
            Place::From(version) => Some(*version),
        };
        let length = self.length(from, mark.planned, progress.failures);
        let (steps, page) = match place {
            Place::Page(page) => {
                (Steps::beginning_with(rule, mark.step, mark.planned, length.of_step), Some(page))
            }
            Place::From(_) => (Steps::new(rule, from, mark.planned, length.of_step), None),
        };
        tracing::info!(job = %self.job.name, at_page = page.is_some(), "the run goes on where the one before it stopped");
        let fixed = Some(Fixed { hi: mark.hi, complete_through: mark.complete_through });
        let steps = steps.up_to(horizon).ending_at(end);
        Outset { steps, length, fixed, seen: mark.seen, page, began: mark.step.from }
    }

    /// Walks over the window, one step after another, oldest first; after each the watermark moves.
    async fn window(
        &self,
        run: RunId,
        progress: &Progress,
        outset: Outset,
        report: &mut RunReport,
    ) -> Result<Reached, Cut> {
        let Engine { store, http, limits, tokens, clock, .. } = self.engine;
        let rule = &self.window;
        let mut reader =
            PageReader::new(Arc::clone(self.job), http.clone(), Arc::clone(limits), Arc::clone(clock))
                .with_tokens(Arc::clone(tokens))
                .with_tag(progress.page_tag.clone());
        if let Errand::Task(task) = self.errand {
            reader = reader.giving_way(&task.bucket(), task.plan.rate);
        }
        let mut sync = SyncWalk::begin(self, progress, &mut reader).await?;
        let Outset { steps, length, fixed, mut seen, mut page, mut began } = outset;
        let source = event_source(self.job, self.row);
        let mut course =
            Course { run, steps, fixed, silence: None, source, sync_token: None, tag: None, stale_reads: 0 };
        let mut watermark = progress.watermark;
        let mut restarts = 0;
        loop {
            let step = course.steps.current();
            reader.begin(rule.bounds(step), page.take().as_ref())?;
            match self.step(progress, &mut course, &mut seen, &sync, &mut reader, report).await {
                Ok(()) => {}
                Err(Cut::TooMuch(reason)) if self.job.stream.bounded && course.steps.split() => {
                    tracing::info!(job = %self.job.name, reason, "the window is asked for in halves");
                    seen = Seen::default();
                    continue;
                }
                Err(Cut::Restart(reason)) if restarts < MOST_RESTARTS => {
                    tracing::warn!(job = %self.job.name, reason, "the walk begins anew");
                    (seen, restarts) = (Seen::default(), restarts + 1);
                    continue;
                }
                Err(Cut::Reset(reason)) if sync.may_begin_anew() => {
                    sync.begin_anew(self, &mut reader, reason).await?;
                    seen = Seen::default();
                    continue;
                }
                Err(cut) => return Err(cut.advised(self.job, progress.failures, length, step)),
            }
            let Some(Fixed { hi, complete_through }) = course.fixed else {
                return Err(Cut::Source("the source answered no page at all".to_owned()));
            };
            if self.job.stream.sync.is_none() {
                watermark = watermark::advance(watermark, step, seen.complete_to(rule.is_time), hi);
            }
            let covered = self.covered(began, step, hi, seen, complete_through);
            if !course.steps.advance() {
                let is_all = report.pages == 1 && report.counts.stale == 0;
                return Ok(Reached {
                    watermark,
                    complete_through,
                    covered,
                    // What was passed over as an old page would not be told of again.
                    sync_token: course.sync_token.filter(|_| course.stale_reads == 0),
                    page_tag: course.tag.filter(|_| is_all),
                    told: sync.told,
                });
            }
            self.books.advance(&**store, run, watermark, covered).await?;
            (seen, restarts, began) = (Seen::default(), 0, course.steps.current().from);
        }
    }

    /// What a step covers that was read to its end.
    fn covered(
        &self,
        began: Option<Version>,
        step: Step,
        hi: Option<Version>,
        seen: Seen,
        complete_through: Instant,
    ) -> Option<Covered> {
        if !self.errand.takes_all() {
            return None;
        }
        let reach = match hi {
            _ if self.job.stream.incremental.is_none() || self.job.stream.sync.is_some() => Reach::Everything,
            Some(hi) => Reach::Before(hi),
            None => Reach::UpTo(seen.complete_to(false)),
        };
        Covered::of(began, step, reach, complete_through.plus(self.job.window.settle))
    }

    /// How much is asked for at once: less after failures, where the source can be asked for less.
    fn length(&self, from: Option<Version>, hi: Option<Version>, failures: u32) -> Length {
        let length = self.window.length(from, hi, failures);
        if self.job.stream.bounded { length } else { Length { of_step: None, is_shortest: failures > 0 } }
    }

    /// Reads and commits every page of a step that is not committed yet.
    async fn step(
        &self,
        progress: &Progress,
        course: &mut Course,
        seen: &mut Seen,
        sync: &SyncWalk,
        reader: &mut PageReader,
        report: &mut RunReport,
    ) -> Result<(), Cut> {
        loop {
            let page = self.next_page(reader).await;
            report.requests = reader.requests();
            let Some(page) = page? else { return Ok(()) };
            if report.pages == 0 {
                self.warn_of_skew(&page);
            }
            let fixed = *course.fixed.get_or_insert_with(|| self.fixed(page.source_time));
            let silence = match course.silence {
                Some(silence) => silence,
                None => *course.silence.insert(self.silence(progress, fixed).await?),
            };
            seen.page(page.max_version, page.is_sorted);
            report.pages += 1;
            course.tag.clone_from(&page.tag);
            course.sync_token = page.sync_token.clone().map(|value| sync.token(value, page.answered_at));
            let commit = PageCommit {
                run: course.run,
                number: page.number,
                requests: reader.requests(),
                rules: self.rules(&course.source, &page, silence),
                bookmark: self.bookmark(progress, course, fixed, *seen, &page),
                measure: self.measure(progress),
                is_unmodified: page.is_unmodified,
                records: page.records.into_iter().filter(|record| self.errand.wants(record)).collect(),
                quarantined: page.quarantined,
                skipped: page.skipped,
                destination: self.job.destination.name.clone(),
                order: self.job.destination.lanes.order,
            };
            let outcome = self.books.commit(&*self.engine.store, &commit).await?;
            course.stale_reads += outcome.stale_reads;
            report.counts += outcome.counts;
            report.conflict = report.conflict.take().or(outcome.conflict);
            self.books.tell(report);
            if outcome.counts.events > 0 && self.books.lease().is_some() {
                self.engine.fresh.send_modify(|count| *count += 1);
            }
            if self.has_passed_the_end(page.risen_to, *seen) {
                return Ok(());
            }
        }
    }

    /// Whether the listing, which is sorted oldest first, has risen to where the window ends: a source that cannot be
    /// asked for an end goes on with what nobody asked for.
    fn has_passed_the_end(&self, risen_to: Option<Version>, seen: Seen) -> bool {
        let risen_to = risen_to.filter(|_| !seen.is_unsorted());
        risen_to.zip(self.errand.end()).is_some_and(|(risen_to, end)| risen_to >= end)
    }

    /// Where the walk stands behind a page.
    fn bookmark(
        &self,
        progress: &Progress,
        course: &Course,
        fixed: Fixed,
        seen: Seen,
        page: &Page,
    ) -> Option<Bookmark> {
        let risen_to = page.risen_to.filter(|_| !seen.is_unsorted());
        (page.next.is_some() || risen_to.is_some()).then(|| Bookmark {
            fingerprint: self.fingerprint.clone(),
            failures: progress.failures,
            hi: fixed.hi,
            complete_through: fixed.complete_through,
            planned: course.steps.hi(),
            step: course.steps.current(),
            seen,
            page: page.next.clone(),
            risen_to,
        })
    }

    /// Says where the source's clock is so far from ours that the lookback is half used up.
    fn warn_of_skew(&self, page: &Page) {
        let window = &self.job.window;
        let skew = window.skew(page.asked_at, page.source_time);
        let Some(skew) = skew.filter(|_| page.is_dated && self.job.has_time_versions()) else { return };
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

    /// The next page; a walk that has come to its end is over also for a process that has to stop.
    async fn next_page(&self, reader: &mut PageReader) -> Result<Option<Page>, Cut> {
        if reader.is_over() { Ok(None) } else { self.unless_stopped(reader.next_page()).await }
    }

    /// What the source answers, unless the lease is lost or the process has to stop: what was asked for
    /// already is then waited for a little longer.
    pub(super) async fn unless_stopped<T>(
        &self,
        asking: impl Future<Output = Result<T, ReadError>>,
    ) -> Result<T, Cut> {
        if self.stop.is_cancelled() {
            return Err(Cut::Stopped);
        }
        let waited_long_enough = async {
            self.stop.cancelled().await;
            self.engine.clock.sleep(LAST_PAGE_WAIT).await;
        };
        tokio::select! {
            answered = asking => answered.map_err(Cut::from),
            () = waited_long_enough => Err(Cut::Stopped),
            () = self.lost.cancelled() => Err(Cut::Store(StoreError::LeaseLost)),
        }
    }
}
