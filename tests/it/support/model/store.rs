//! A real store that writes down what it commits, and that at one chosen call lets its caller die, freeze,
//! or believe that it failed: before the work was done or after.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use onlynew::{
    domain::{
        content::Hash,
        coverage::Covered,
        delivery::Next,
        facts::{KeyFacts, RunFacts},
        identity::Identity,
        instant::Instant,
        key::RecordKey,
        lateness::Histogram,
        reconcile::{Phase, Standing},
        run::Counts,
        sync_token::SyncToken,
        task::{Plan, TaskId, TaskKind, TaskState},
        version::Version,
    },
    store::{
        Attempt, Begun, Checked, ClaimRules, ClaimedMessage, Coverage, DestinationView, EventFilter,
        EventStory, EventView, GoneBatch, Granted, JobId, JobLease, JobRow, JobView, Marked, NewRun,
        NewSweep, NewToken, News, Opened, PageCommit, PageOutcome, Progress, Purge, QuarantineView, Renamed,
        Resumed, RunEnd, RunId, RunView, Settled, Store, StoreError, StoredToken, SweepOpened, SweepView,
        Taken, TaskView, Touched, Wish,
    },
};

use super::{api::shown_of, lane::Scene, log::Fact, oracle};

/// What goes wrong at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process dies; nothing was done.
    DiesBefore,
    /// The process dies; the work was done and nobody was told.
    DiesAfter,
    /// The database is gone; nothing was done.
    FailsBefore,
    /// The database is gone; the work was done and nobody was told.
    FailsAfter,
    /// The process stands still here for as long as others take to replace it, and goes on.
    Freezes,
}

/// The store as the engine of a history meets it.
#[derive(Clone, Debug)]
pub struct WatchedStore {
    pub inner: Arc<dyn Store>,
    pub scene: Arc<Scene>,
}

impl WatchedStore {
    /// The fault of this call, where this is the call that was chosen.
    fn fault(&self, name: &str) -> Option<Fault> {
        let mut chosen = self.scene.fault();
        let (left, fault) = chosen.as_mut()?;
        // Before a run has its lease, one that stands still is like any other that begins later.
        if *fault == Fault::Freezes && !UNDER_LEASE.contains(&name) {
            return None;
        }
        if *left > 0 {
            *left -= 1;
            return None;
        }
        let fault = *fault;
        *chosen = None;
        drop(chosen);
        self.scene.log().story.push(format!("  {fault:?} at {name}"));
        Some(fault)
    }

    async fn before(&self, fault: Option<Fault>) -> Result<(), StoreError> {
        match fault {
            Some(Fault::DiesBefore) => self.die().await,
            Some(Fault::FailsBefore) => Err(gone()),
            Some(Fault::Freezes) => {
                self.scene.died.notify_one();
                self.scene.thaw.notified().await;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn after(&self, fault: Option<Fault>) -> Result<(), StoreError> {
        match fault {
            Some(Fault::DiesAfter) => self.die().await,
            Some(Fault::FailsAfter) => Err(gone()),
            _ => Ok(()),
        }
    }

    async fn die(&self) -> ! {
        self.scene.died.notify_one();
        std::future::pending().await
    }

    /// A write was committed under this lease.
    fn wrote(&self, lease: &JobLease, what: &str) {
        let mut log = self.scene.log();
        if lease.epoch != log.epoch {
            let latest = log.epoch;
            log.violations.push(format!("{what} was written under epoch {}, not {latest}", lease.epoch));
        }
    }

    fn watermark_moved(&self, watermark: Option<Version>) {
        let Some(watermark) = watermark else { return };
        let world = self.scene.world();
        let mut log = self.scene.log();
        let wrong = oracle::passed_over(&world, &log, watermark);
        log.violations.extend(wrong);
        log.watermark = log.watermark.max(Some(watermark));
    }
}

/// The calls of a run that has the job's lease.
const UNDER_LEASE: [&str; 6] =
    ["open_progress", "start_run", "fix_baseline", "commit_page", "advance", "finish_run"];

fn gone() -> StoreError {
    StoreError::Database(sqlx::Error::PoolClosed)
}

/// Each call passes on to the real store, through the chosen fault; what follows `=>` is done once it was
/// committed.
macro_rules! watched {
    ($(
        $name:ident($($argument:ident: $type:ty),*) -> $out:ty $(=> |$store:ident, $done:ident| $then:expr)?;
    )+) => {
        #[async_trait]
        impl Store for WatchedStore {
            $(
                async fn $name(&self, $($argument: $type),*) -> Result<$out, StoreError> {
                    let fault = self.fault(stringify!($name));
                    self.before(fault).await?;
                    let done = self.inner.$name($($argument),*).await?;
                    $({
                        let ($store, $done) = (self, &done);
                        $then
                    })?
                    self.after(fault).await?;
                    Ok(done)
                }
            )+

            fn news(&self) -> Option<Box<dyn News>> {
                self.inner.news()
            }

            async fn close(&self) {
                self.inner.close().await;
            }
        }
    };
}

watched! {
    now() -> Instant;
    register_job(name: &str, first_fire_after: Option<Instant>) -> JobRow;
    find_job(name: &str) -> Option<JobRow>;
    keep_identity(lease: &JobLease, identity: &Identity) -> ();
    begin_anew(lease: &JobLease, identity: &Identity, baseline: bool) -> Begun;
    rename_job(from: &str, to: &str, even_held: bool) -> Renamed;
    record_fire(lease: &JobLease, expected: Option<Instant>, fire: Instant) -> bool;
    lease_job(job: JobId, owner: &str, ttl: Duration) -> Option<JobLease> => |store, taken| {
        if let Some(lease) = taken {
            store.scene.log().epoch = lease.epoch;
        }
    };
    renew_job_lease(lease: &JobLease, ttl: Duration) -> bool;
    release_job_lease(lease: &JobLease) -> ();
    open_progress(lease: &JobLease, baseline: bool) -> Progress => |store, _progress| {
        store.wrote(lease, "the progress");
    };
    fix_baseline(lease: &JobLease, at: Instant) -> Instant => |store, fixed| {
        store.wrote(lease, "the baseline");
        let asked_at = store.scene.world().trip().first_at;
        store.scene.log().facts.push(Fact::Baseline { at: fixed.micros(), asked_at });
    };
    keep_sync_token(lease: &JobLease, token: &SyncToken) -> ();
    start_run(lease: &JobLease, run: &NewRun) -> RunId => |store, _id| {
        store.wrote(lease, "the beginning of a run");
        if run.resumed {
            let mut log = store.scene.log();
            log.resumed += 1;
            log.story.push("  it goes on".to_owned());
            let began_at = log.bookmarked_walk;
            drop(log);
            store.scene.world().trip().walk_began_at = began_at;
        }
    };
    commit_page(lease: &JobLease, page: &PageCommit) -> PageOutcome => |store, _outcome| {
        store.wrote(lease, "a page");
        let mut world = store.scene.world();
        // A commit takes its time: the next page is asked for later than this one was answered.
        world.now += 1_000;
        let versions = world.plan.versions;
        let shown = |record: &onlynew::domain::page::SeenRecord| {
            shown_of(versions, &serde_json::from_str(record.raw.get()).unwrap())
        };
        let (trip, at, run) = (world.current, world.now, page.run);
        let rows = page.records.iter().map(shown).collect();
        if page.bookmark.is_some() {
            store.scene.log().bookmarked_walk = world.first_at();
        }
        store.scene.log().facts.push(Fact::Page { trip, at, run, rows });
    };
    advance(lease: &JobLease, run: RunId, watermark: Option<Version>, covered: Option<Covered>) -> () => |store, _done| {
        store.wrote(lease, "the watermark");
        store.watermark_moved(watermark);
    };
    finish_run(lease: &JobLease, run: RunId, end: &RunEnd) -> () => |store, _done| {
        store.wrote(lease, "the end of a run");
        store.watermark_moved(end.watermark);
        store.scene.log().facts.push(Fact::Finish { status: end.status });
    };
    readdress(job: JobId, destination: &str) -> u64;
    claim_messages(destination: &str, rules: &ClaimRules) -> Vec<ClaimedMessage>;
    settle_message(claim: &ClaimedMessage, attempt: &Attempt) -> Option<Settled> => |store, settled| {
        if settled.is_some_and(|settled| settled.next == Next::Delivered) {
            store.scene.log().settled.push(claim.id.clone());
        }
    };
    key_facts(job: JobId, keys: &[RecordKey], limit: u32) -> KeyFacts;
    run_facts(job: JobId, run: RunId) -> Option<(RunView, RunFacts)>;
    coverage(job: JobId, range: (Version, Version), since: Option<Instant>) -> Coverage;
    verify() -> Vec<Checked>;
    events(filter: &EventFilter, limit: u32) -> Vec<EventView>;
    find_events(beginning: &str) -> Vec<EventView>;
    batch_events(beginning: &str) -> Vec<EventView>;
    event_story(event_id: &str) -> Option<EventStory>;
    grant(position: i64, wish: Wish) -> Granted;
    probe_destination(destination: &str) -> ();
    pause_destination(destination: &str, paused: bool) -> bool;
    resume_destination(destination: &str) -> Resumed;
    preview_page(job: &str, page: &PageCommit) -> PageOutcome;
    open_task(job: JobId, kind: TaskKind, plan: &Plan) -> Opened;
    lease_task(task: TaskId, owner: &str, ttl: Duration) -> Option<JobLease>;
    cancel_task(task: TaskId, reason: Option<&str>) -> bool;
    waiting_tasks() -> Vec<(TaskId, String)>;
    task(task: TaskId) -> Option<TaskView>;
    tasks(kind: Option<TaskKind>, only_open: bool, limit: u32) -> Vec<TaskView>;
    open_sweep(job: JobId, new: &NewSweep) -> SweepOpened;
    last_sweep(job: JobId) -> Option<SweepView>;
    first_complete_run(job: JobId) -> Option<Instant>;
    read_afresh(job: JobId) -> ();
    set_phase(lease: &JobLease, phase: Phase, gone: u64, of_keys: u64) -> ();
    end_sweep(lease: &JobLease, state: TaskState, reason: Option<&str>) -> ();
    accept_deletes(task: TaskId) -> bool;
    standing(job: JobId, from: Option<Version>, after: &str, limit: u32) -> Vec<Standing>;
    sighting_fence(lease: &JobLease) -> i64;
    touched(job: JobId, since: Instant, after: i64, fence: i64, limit: u32) -> Touched;
    mark_gone(lease: &JobLease, batch: &GoneBatch) -> Marked;
    lateness(job: JobId) -> Histogram;
    destinations() -> Vec<DestinationView>;
    next_due(destination: &str, linger: Duration) -> Option<Duration>;
    hold_account(account: &str, until: Instant, reason: &str) -> ();
    held_until(account: &str) -> Option<Instant>;
    quarantined(job: JobId) -> Vec<QuarantineView>;
    quarantined_text(job: JobId, id: Hash) -> Option<String>;
    accept_quarantined(lease: &JobLease, id: Hash, page: &PageCommit) -> Option<Counts>;
    skip_quarantined(job: JobId, id: Hash) -> bool;
    account_token(account: &str) -> Option<StoredToken>;
    claim_token(account: &str, number: i64, ttl: Duration) -> bool;
    store_token(account: &str, number: i64, token: &NewToken) -> bool;
    release_token(account: &str, number: i64) -> ();
    job_view(name: &str) -> Option<JobView>;
    job_views() -> Vec<JobView>;
    purge(purge: &Purge) -> Taken;
    purgeable(purge: &Purge) -> u64;
    tidy() -> bool;
}
