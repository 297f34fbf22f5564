//! The one implementation of [`Store`], for both databases. It decides which connections a call uses and
//! how a transaction ends; what a call does stands in the file of its noun.

use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use sqlx::{Connection, Pool, Transaction};

use super::{
    Attempt, Begun, Checked, ClaimRules, ClaimedMessage, Coverage, DestinationView, EventFilter, EventStory,
    EventView, GoneBatch, Granted, JobId, JobLease, JobRow, JobView, Marked, NewRun, NewSweep, NewToken,
    News, Opened, PageCommit, PageOutcome, Progress, Purge, QuarantineView, Renamed, Resumed, RunEnd, RunId,
    RunView, Settled, Store, StoreError, StoredToken, SweepOpened, SweepView, Taken, TaskView, Touched, Wish,
    account, claim, destination, dialect::Dialect, event, identity, job, lateness, open::is_retried, outbox,
    page, purge, quarantine, run, settle, sweep, task, token, verify, view, why, wish,
};
use crate::domain::{
    content::Hash,
    coverage::Covered,
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
};

/// How often a transaction is done in all where the database undoes it for another one's sake.
const TRIES: u32 = 5;

/// A store on one database. On SQLite one connection writes and a few read; on PostgreSQL both are the
/// same pool.
#[derive(Debug)]
pub struct SqlStore<DB: Dialect> {
    writer: Pool<DB>,
    readers: Pool<DB>,
}

/// What a writing call does inside its transaction.
type Work<DB, I, T> =
    for<'t> fn(&'t mut <DB as sqlx::Database>::Connection, &'t I) -> BoxFuture<'t, Result<T, StoreError>>;

impl<DB: Dialect> SqlStore<DB> {
    pub(super) const fn new(writer: Pool<DB>, readers: Pool<DB>) -> Self {
        Self { writer, readers }
    }

    /// Does `work` in one transaction: all of it, or nothing.
    ///
    /// The transaction runs in a task of its own, which nobody aborts: a caller that is cancelled in the
    /// middle leaves a transaction that comes to its end and a connection that is clean (field case S4).
    /// Only work of which nothing was committed is done again; a commit whose outcome is unknown is an
    /// error, and the caller decides anew.
    pub(super) async fn write<I, T>(&self, input: I, work: Work<DB, I, T>) -> Result<T, StoreError>
    where
        I: Send + Sync + 'static,
        T: Send + 'static,
    {
        self.transact(input, Outcome::Kept, work).await
    }

    /// The same, where what was done may also be undone again once it is known.
    async fn transact<I, T>(&self, input: I, outcome: Outcome, work: Work<DB, I, T>) -> Result<T, StoreError>
    where
        I: Send + Sync + 'static,
        T: Send + 'static,
    {
        let pool = self.writer.clone();
        let task = tokio::spawn(async move {
            let mut tries = 1;
            loop {
                match attempt(&pool, &input, outcome, work).await {
                    Err(Undone::ForAnother(_)) if tries < TRIES => {
                        tokio::time::sleep(Duration::from_millis(fastrand::u64(5..50) * u64::from(tries)))
                            .await;
                        tries += 1;
                    }
                    Err(Undone::ForAnother(error) | Undone::Failed(error)) => return Err(error),
                    Ok(done) => return Ok(done),
                }
            }
        });
        match task.await {
            Ok(done) => done,
            Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
            // The runtime is being shut down.
            Err(_) => Err(sqlx::Error::WorkerCrashed.into()),
        }
    }

    pub(super) async fn reader(&self) -> Result<sqlx::pool::PoolConnection<DB>, StoreError> {
        Ok(self.readers.acquire().await?)
    }

    /// For what has to be read as of one moment.
    async fn snapshot(&self) -> Result<Transaction<'static, DB>, StoreError> {
        Ok(self.readers.begin_with(DB::SNAPSHOT).await?)
    }
}

/// What becomes of work that went well.
#[derive(Clone, Copy)]
enum Outcome {
    Kept,
    Undone,
}

enum Undone {
    ForAnother(StoreError),
    Failed(StoreError),
}

impl Undone {
    fn of<DB: Dialect>(error: StoreError) -> Self {
        match &error {
            StoreError::Database(cause) if is_retried::<DB>(cause) => Self::ForAnother(error),
            _ => Self::Failed(error),
        }
    }
}

async fn attempt<DB: Dialect, I, T>(
    pool: &Pool<DB>,
    input: &I,
    outcome: Outcome,
    work: Work<DB, I, T>,
) -> Result<T, Undone> {
    let mut connection = pool.acquire().await.map_err(|error| Undone::Failed(error.into()))?;
    let mut transaction =
        connection.begin_with(DB::BEGIN).await.map_err(|error| Undone::of::<DB>(error.into()))?;
    let (ended, result) = match work(&mut transaction, input).await {
        Ok(done) => {
            let ended = match outcome {
                Outcome::Kept => transaction.commit().await,
                Outcome::Undone => transaction.rollback().await,
            };
            (ended.is_ok(), ended.map(|()| done).map_err(|error| Undone::Failed(error.into())))
        }
        Err(error) => (transaction.rollback().await.is_ok(), Err(Undone::of::<DB>(error))),
    };
    if !ended {
        // sqlx goes on counting this transaction as open (on a full disk SQLite has ended it by itself, and
        // the rollback finds none), so that the connection could never begin another.
        connection.close_on_drop();
    }
    result
}

#[async_trait]
impl<DB: Dialect> Store for SqlStore<DB> {
    async fn now(&self) -> Result<Instant, StoreError> {
        account::now::<DB>(&mut *self.reader().await?).await
    }

    async fn register_job(
        &self,
        name: &str,
        first_fire_after: Option<Instant>,
    ) -> Result<JobRow, StoreError> {
        let input = (name.to_owned(), first_fire_after);
        self.write(input, |db, (name, after)| Box::pin(job::register::<DB>(db, name, *after))).await
    }

    async fn find_job(&self, name: &str) -> Result<Option<JobRow>, StoreError> {
        job::find::<DB>(&mut *self.reader().await?, name).await
    }

    async fn keep_identity(&self, lease: &JobLease, identity: &Identity) -> Result<(), StoreError> {
        self.write((lease.clone(), identity.clone()), |db, (lease, identity)| {
            Box::pin(identity::keep::<DB>(db, lease, identity))
        })
        .await
    }

    async fn begin_anew(
        &self,
        lease: &JobLease,
        identity: &Identity,
        baseline: bool,
    ) -> Result<Begun, StoreError> {
        self.write((lease.clone(), identity.clone(), baseline), |db, (lease, identity, baseline)| {
            Box::pin(identity::begin_anew::<DB>(db, lease, identity, *baseline))
        })
        .await
    }

    async fn rename_job(&self, from: &str, to: &str, even_held: bool) -> Result<Renamed, StoreError> {
        self.write((from.to_owned(), to.to_owned(), even_held), |db, (from, to, even_held)| {
            Box::pin(identity::rename::<DB>(db, from, to, *even_held))
        })
        .await
    }

    async fn record_fire(
        &self,
        lease: &JobLease,
        expected: Option<Instant>,
        fire: Instant,
    ) -> Result<bool, StoreError> {
        let input = (lease.clone(), expected, fire);
        self.write(input, |db, (lease, expected, fire)| {
            Box::pin(job::record_fire::<DB>(db, lease, *expected, *fire))
        })
        .await
    }

    async fn lease_job(
        &self,
        job: JobId,
        owner: &str,
        ttl: Duration,
    ) -> Result<Option<JobLease>, StoreError> {
        let input = (job, owner.to_owned(), ttl);
        self.write(input, |db, (job, owner, ttl)| Box::pin(job::lease::<DB>(db, *job, owner, *ttl))).await
    }

    async fn renew_job_lease(&self, lease: &JobLease, ttl: Duration) -> Result<bool, StoreError> {
        self.write((lease.clone(), ttl), |db, (lease, ttl)| Box::pin(job::renew::<DB>(db, lease, *ttl))).await
    }

    async fn release_job_lease(&self, lease: &JobLease) -> Result<(), StoreError> {
        self.write(lease.clone(), |db, lease| Box::pin(job::release::<DB>(db, lease))).await
    }

    async fn open_progress(&self, lease: &JobLease, baseline: bool) -> Result<Progress, StoreError> {
        let input = (lease.clone(), baseline);
        self.write(input, |db, (lease, baseline)| Box::pin(run::open_progress::<DB>(db, lease, *baseline)))
            .await
    }

    async fn fix_baseline(&self, lease: &JobLease, at: Instant) -> Result<Instant, StoreError> {
        self.write((lease.clone(), at), |db, (lease, at)| Box::pin(run::fix_baseline::<DB>(db, lease, *at)))
            .await
    }

    async fn keep_sync_token(&self, lease: &JobLease, token: &SyncToken) -> Result<(), StoreError> {
        let input = (lease.clone(), token.clone());
        self.write(input, |db, (lease, token)| Box::pin(run::keep_sync_token::<DB>(db, lease, token))).await
    }

    async fn start_run(&self, lease: &JobLease, run: &NewRun) -> Result<RunId, StoreError> {
        self.write((lease.clone(), *run), |db, (lease, run)| Box::pin(run::start::<DB>(db, lease, *run)))
            .await
    }

    async fn commit_page(&self, lease: &JobLease, page: &PageCommit) -> Result<PageOutcome, StoreError> {
        let input = (lease.clone(), page.clone());
        self.write(input, |db, (lease, page)| Box::pin(page::commit::<DB>(db, lease, page))).await
    }

    async fn preview_page(&self, job: &str, page: &PageCommit) -> Result<PageOutcome, StoreError> {
        let input = (job.to_owned(), page.clone());
        self.transact(input, Outcome::Undone, |db, (job, page)| Box::pin(page::preview::<DB>(db, job, page)))
            .await
    }

    async fn advance(
        &self,
        lease: &JobLease,
        run: RunId,
        watermark: Option<Version>,
        covered: Option<Covered>,
    ) -> Result<(), StoreError> {
        let input = (lease.clone(), run, watermark, covered);
        self.write(input, |db, (lease, run, watermark, covered)| {
            Box::pin(run::advance::<DB>(db, lease, *run, *watermark, *covered))
        })
        .await
    }

    async fn finish_run(&self, lease: &JobLease, run: RunId, end: &RunEnd) -> Result<(), StoreError> {
        let input = (lease.clone(), run, end.clone());
        self.write(input, |db, (lease, run, end)| Box::pin(run::finish::<DB>(db, lease, *run, end))).await
    }

    async fn open_task(&self, job: JobId, kind: TaskKind, plan: &Plan) -> Result<Opened, StoreError> {
        self.write((job, kind, plan.clone()), |db, (job, kind, plan)| {
            Box::pin(task::open::<DB>(db, *job, *kind, plan))
        })
        .await
    }

    async fn lease_task(
        &self,
        task: TaskId,
        owner: &str,
        ttl: Duration,
    ) -> Result<Option<JobLease>, StoreError> {
        let input = (task, owner.to_owned(), ttl);
        self.write(input, |db, (task, owner, ttl)| Box::pin(task::lease::<DB>(db, *task, owner, *ttl))).await
    }

    async fn cancel_task(&self, task: TaskId, reason: Option<&str>) -> Result<bool, StoreError> {
        let input = (task, reason.map(str::to_owned));
        self.write(input, |db, (task, reason)| Box::pin(task::cancel::<DB>(db, *task, reason.as_deref())))
            .await
    }

    async fn waiting_tasks(&self) -> Result<Vec<(TaskId, String)>, StoreError> {
        task::waiting::<DB>(&mut *self.reader().await?).await
    }

    async fn task(&self, task: TaskId) -> Result<Option<TaskView>, StoreError> {
        let mut views = task::views::<DB>(&mut *self.reader().await?, Some(task), None, false, 1).await?;
        Ok(views.pop())
    }

    async fn tasks(
        &self,
        kind: Option<TaskKind>,
        only_open: bool,
        limit: u32,
    ) -> Result<Vec<TaskView>, StoreError> {
        task::views::<DB>(&mut *self.reader().await?, None, kind, only_open, limit).await
    }

    async fn open_sweep(&self, job: JobId, new: &NewSweep) -> Result<SweepOpened, StoreError> {
        self.write((job, new.clone()), |db, (job, new)| Box::pin(sweep::open::<DB>(db, *job, new))).await
    }

    async fn last_sweep(&self, job: JobId) -> Result<Option<SweepView>, StoreError> {
        sweep::last::<DB>(&mut *self.reader().await?, job).await
    }

    async fn first_complete_run(&self, job: JobId) -> Result<Option<Instant>, StoreError> {
        sweep::first_complete::<DB>(&mut *self.reader().await?, job).await
    }

    async fn read_afresh(&self, job: JobId) -> Result<(), StoreError> {
        self.write(job, |db, job| Box::pin(sweep::read_afresh::<DB>(db, *job))).await
    }

    async fn set_phase(
        &self,
        lease: &JobLease,
        phase: Phase,
        gone: u64,
        of_keys: u64,
    ) -> Result<(), StoreError> {
        let input = (lease.clone(), phase, gone, of_keys);
        self.write(input, |db, (lease, phase, gone, of_keys)| {
            Box::pin(sweep::set_phase::<DB>(db, lease, *phase, *gone, *of_keys))
        })
        .await
    }

    async fn end_sweep(
        &self,
        lease: &JobLease,
        state: TaskState,
        reason: Option<&str>,
    ) -> Result<(), StoreError> {
        let input = (lease.clone(), state, reason.map(str::to_owned));
        self.write(input, |db, (lease, state, reason)| {
            Box::pin(sweep::end::<DB>(db, lease, *state, reason.as_deref()))
        })
        .await
    }

    async fn accept_deletes(&self, task: TaskId) -> Result<bool, StoreError> {
        self.write(task, |db, task| Box::pin(sweep::accept::<DB>(db, *task))).await
    }

    async fn standing(
        &self,
        job: JobId,
        from: Option<Version>,
        after: &str,
        limit: u32,
    ) -> Result<Vec<Standing>, StoreError> {
        sweep::standing::<DB>(&mut *self.reader().await?, job, from, after, limit).await
    }

    async fn sighting_fence(&self, lease: &JobLease) -> Result<i64, StoreError> {
        self.write(lease.clone(), |db, lease| Box::pin(sweep::fence::<DB>(db, lease))).await
    }

    async fn touched(
        &self,
        job: JobId,
        since: Instant,
        after: i64,
        fence: i64,
        limit: u32,
    ) -> Result<Touched, StoreError> {
        sweep::touched::<DB>(&mut *self.reader().await?, job, since, after, fence, limit).await
    }

    async fn mark_gone(&self, lease: &JobLease, batch: &GoneBatch) -> Result<Marked, StoreError> {
        let input = (lease.clone(), batch.clone());
        self.write(input, |db, (lease, batch)| Box::pin(sweep::mark::<DB>(db, lease, batch))).await
    }

    async fn lateness(&self, job: JobId) -> Result<Histogram, StoreError> {
        lateness::histogram::<DB>(&mut *self.reader().await?, job).await
    }

    async fn readdress(&self, job: JobId, destination: &str) -> Result<u64, StoreError> {
        self.write((job, destination.to_owned()), |db, (job, destination)| {
            Box::pin(outbox::readdress::<DB>(db, *job, destination))
        })
        .await
    }

    async fn claim_messages(
        &self,
        destination: &str,
        rules: &ClaimRules,
    ) -> Result<Vec<ClaimedMessage>, StoreError> {
        self.write((destination.to_owned(), *rules), |db, (destination, rules)| {
            Box::pin(claim::claim::<DB>(db, destination, rules))
        })
        .await
    }

    async fn settle_message(
        &self,
        claim: &ClaimedMessage,
        attempt: &Attempt,
    ) -> Result<Option<Settled>, StoreError> {
        self.write((claim.clone(), attempt.clone()), |db, (claim, attempt)| {
            Box::pin(settle::settle::<DB>(db, claim, attempt))
        })
        .await
    }

    async fn events(&self, filter: &EventFilter, limit: u32) -> Result<Vec<EventView>, StoreError> {
        event::list::<DB>(&mut *self.reader().await?, filter, limit).await
    }

    async fn find_events(&self, beginning: &str) -> Result<Vec<EventView>, StoreError> {
        event::find::<DB>(&mut *self.reader().await?, beginning).await
    }

    async fn batch_events(&self, beginning: &str) -> Result<Vec<EventView>, StoreError> {
        event::of_batch::<DB>(&mut *self.reader().await?, beginning).await
    }

    async fn event_story(&self, event_id: &str) -> Result<Option<EventStory>, StoreError> {
        event::story::<DB>(&mut *self.reader().await?, event_id).await
    }

    async fn grant(&self, position: i64, wish: Wish) -> Result<Granted, StoreError> {
        self.write((position, wish), |db, (position, wish)| Box::pin(wish::grant::<DB>(db, *position, *wish)))
            .await
    }

    async fn probe_destination(&self, destination: &str) -> Result<(), StoreError> {
        self.write(destination.to_owned(), |db, name| Box::pin(destination::ask_now::<DB>(db, name))).await
    }

    async fn pause_destination(&self, destination: &str, paused: bool) -> Result<bool, StoreError> {
        self.write((destination.to_owned(), paused), |db, (name, paused)| {
            Box::pin(destination::pause::<DB>(db, name, *paused))
        })
        .await
    }

    async fn resume_destination(&self, destination: &str) -> Result<Resumed, StoreError> {
        self.write(destination.to_owned(), |db, name| Box::pin(destination::resume::<DB>(db, name))).await
    }

    async fn destinations(&self) -> Result<Vec<DestinationView>, StoreError> {
        destination::views::<DB>(&mut *self.reader().await?).await
    }

    async fn next_due(&self, destination: &str, linger: Duration) -> Result<Option<Duration>, StoreError> {
        outbox::next_due::<DB>(&mut *self.reader().await?, destination, linger).await
    }

    async fn hold_account(&self, account: &str, until: Instant, reason: &str) -> Result<(), StoreError> {
        let input = (account.to_owned(), until, reason.to_owned());
        self.write(input, |db, (account, until, reason)| {
            Box::pin(account::hold::<DB>(db, account, *until, reason))
        })
        .await
    }

    async fn held_until(&self, account: &str) -> Result<Option<Instant>, StoreError> {
        account::held_until::<DB>(&mut *self.reader().await?, account).await
    }

    async fn quarantined(&self, job: JobId) -> Result<Vec<QuarantineView>, StoreError> {
        quarantine::list::<DB>(&mut *self.reader().await?, job).await
    }

    async fn quarantined_text(&self, job: JobId, id: Hash) -> Result<Option<String>, StoreError> {
        quarantine::text::<DB>(&mut *self.reader().await?, job, id).await
    }

    async fn accept_quarantined(
        &self,
        lease: &JobLease,
        id: Hash,
        page: &PageCommit,
    ) -> Result<Option<Counts>, StoreError> {
        let input = (lease.clone(), id, page.clone());
        self.write(input, |db, (lease, id, page)| Box::pin(quarantine::accept::<DB>(db, lease, *id, page)))
            .await
    }

    async fn skip_quarantined(&self, job: JobId, id: Hash) -> Result<bool, StoreError> {
        self.write((job, id), |db, (job, id)| Box::pin(quarantine::skip::<DB>(db, *job, *id))).await
    }

    async fn account_token(&self, account: &str) -> Result<Option<StoredToken>, StoreError> {
        token::find::<DB>(&mut *self.reader().await?, account).await
    }

    async fn claim_token(&self, account: &str, number: i64, ttl: Duration) -> Result<bool, StoreError> {
        let input = (account.to_owned(), number, ttl);
        self.write(input, |db, (account, number, ttl)| {
            Box::pin(token::claim::<DB>(db, account, *number, *ttl))
        })
        .await
    }

    async fn store_token(&self, account: &str, number: i64, token: &NewToken) -> Result<bool, StoreError> {
        let input = (account.to_owned(), number, token.clone());
        self.write(input, |db, (account, number, token)| {
            Box::pin(token::store::<DB>(db, account, *number, token))
        })
        .await
    }

    async fn release_token(&self, account: &str, number: i64) -> Result<(), StoreError> {
        let input = (account.to_owned(), number);
        self.write(input, |db, (account, number)| Box::pin(token::release::<DB>(db, account, *number))).await
    }

    async fn job_view(&self, name: &str) -> Result<Option<JobView>, StoreError> {
        let mut views = view::jobs::<DB>(&mut *self.reader().await?, Some(name)).await?;
        Ok(views.pop())
    }

    async fn job_views(&self) -> Result<Vec<JobView>, StoreError> {
        view::jobs::<DB>(&mut *self.reader().await?, None).await
    }

    async fn key_facts(&self, job: JobId, keys: &[RecordKey], limit: u32) -> Result<KeyFacts, StoreError> {
        why::key::<DB>(&mut *self.snapshot().await?, job, keys, limit).await
    }

    async fn run_facts(&self, job: JobId, run: RunId) -> Result<Option<(RunView, RunFacts)>, StoreError> {
        why::run::<DB>(&mut *self.snapshot().await?, job, run).await
    }

    async fn coverage(
        &self,
        job: JobId,
        range: (Version, Version),
        since: Option<Instant>,
    ) -> Result<Coverage, StoreError> {
        why::coverage::<DB>(&mut *self.snapshot().await?, job, range, since).await
    }

    async fn verify(&self) -> Result<Vec<Checked>, StoreError> {
        verify::all::<DB>(&mut *self.snapshot().await?).await
    }

    async fn purge(&self, purge: &Purge) -> Result<Taken, StoreError> {
        self.write(purge.clone(), |db, purge| Box::pin(purge::purge::<DB>(db, purge))).await
    }

    async fn purgeable(&self, purge: &Purge) -> Result<u64, StoreError> {
        purge::purgeable::<DB>(&mut *self.reader().await?, purge).await
    }

    async fn tidy(&self) -> Result<bool, StoreError> {
        Ok(DB::tidy(&self.writer).await?)
    }

    fn news(&self) -> Option<Box<dyn News>> {
        DB::news(&self.writer)
    }

    async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }
}
