//! The store: every fact that has to survive a crash, behind one object-safe trait, so that SQLite and
//! PostgreSQL tell the same story. All SQL of the project stands in this folder.
//!
//! A write that must be whole is one method. Leases and due times count on the database's clock alone.

mod account;
mod claim;
mod coalesce;
mod destination;
mod dialect;
mod event;
mod floor;
mod gate;
mod hook;
mod identity;
mod job;
mod lateness;
mod lock;
mod news;
mod open;
mod outbox;
mod page;
mod purge;
mod quarantine;
mod rows;
mod run;
mod settle;
mod shown;
mod sighting;
mod sql_gate;
mod sql_store;
mod sweep;
mod task;
mod tidy;
mod token;
mod types;
mod verify;
mod view;
mod why;
mod wish;

pub use event::{AttemptView, EventFilter, EventStory, EventView};
pub use gate::*;
pub use hook::*;
pub use lock::*;
pub use news::News;
pub use open::{open, shown_url};
pub use purge::{Purge, Taken};
pub use shown::*;
pub use types::*;
pub use verify::{Check, Checked};
pub use wish::{Granted, Wish};

use std::{fmt::Debug, sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::domain::{
    bookmark::Bookmark,
    content::Hash,
    coverage::Covered,
    facts::{KeyFacts, RunFacts},
    identity::Identity,
    instant::Instant,
    key::RecordKey,
    lane::Order,
    lateness::{Histogram, Measure},
    page::{PageRules, SeenRecord},
    reconcile::{Phase, Standing},
    run::{Counts, RunKind},
    sync_token::SyncToken,
    task::{Plan, TaskId, TaskKind, TaskState},
    version::Version,
};

/// What the engine, the outbox and the scheduler ask of a database.
#[async_trait]
pub trait Store: Gates + Locks + Hooks + Debug + Send + Sync {
    /// The database's time of day.
    async fn now(&self) -> Result<Instant, StoreError>;

    /// The row of the job called `name`, made with a new uid where there is none. A new row's `last_fire`
    /// is `first_fire_after`: `None` makes the job due at once.
    async fn register_job(&self, name: &str, first_fire_after: Option<Instant>)
    -> Result<JobRow, StoreError>;

    /// The row of a job that was registered before.
    async fn find_job(&self, name: &str) -> Result<Option<JobRow>, StoreError>;

    /// Stores what the job's state rests on from now on; what is stored stays.
    async fn keep_identity(&self, lease: &JobLease, identity: &Identity) -> Result<(), StoreError>;

    /// Forgets what is stored of the job, in one transaction: records, quarantine, progress and what was covered. The job
    /// gets this identity and a new uid, so that no event after is taken for one before, and its baseline is open where
    /// `baseline` says so. Its tasks are cancelled; whoever works on one can write nothing more. Events, runs and
    /// sightings stay.
    async fn begin_anew(
        &self,
        lease: &JobLease,
        identity: &Identity,
        baseline: bool,
    ) -> Result<Begun, StoreError>;

    /// Gives the job called `from` the name `to`, which no job may have; everything of it stays. Where `even_held` is not
    /// set, only while no run holds it: one that does goes on by the job's id, and its events have the old name.
    async fn rename_job(&self, from: &str, to: &str, even_held: bool) -> Result<Renamed, StoreError>;

    /// Moves the job's last fire from `expected` to `fire` under its lease; `false` where it has moved
    /// already, so that a scheduled instant runs at most once.
    async fn record_fire(
        &self,
        lease: &JobLease,
        expected: Option<Instant>,
        fire: Instant,
    ) -> Result<bool, StoreError>;

    /// Takes the job's lease for `ttl` where it is free or has run out, with the next epoch; `None` where
    /// another holder has it.
    async fn lease_job(&self, job: JobId, owner: &str, ttl: Duration)
    -> Result<Option<JobLease>, StoreError>;

    /// Prolongs a lease; `false` where it was lost.
    async fn renew_job_lease(&self, lease: &JobLease, ttl: Duration) -> Result<bool, StoreError>;

    /// Gives a lease back. Does nothing where it was lost.
    async fn release_job_lease(&self, lease: &JobLease) -> Result<(), StoreError>;

    /// How far the job has read. The row is made when first asked for, with the baseline open where
    /// `baseline` says so.
    async fn open_progress(&self, lease: &JobLease, baseline: bool) -> Result<Progress, StoreError>;

    /// Stores the baseline instant where none is stored yet and returns the one that holds.
    async fn fix_baseline(&self, lease: &JobLease, at: Instant) -> Result<Instant, StoreError>;

    /// Stores what the source gave to go on from, before the first page is asked for with it. A bookmark is void then.
    async fn keep_sync_token(&self, lease: &JobLease, token: &SyncToken) -> Result<(), StoreError>;

    /// Opens a run. Runs of the job, or of the task, that a crash left open are closed as failed, `interrupted`.
    async fn start_run(&self, lease: &JobLease, run: &NewRun) -> Result<RunId, StoreError>;

    /// Decides one page and stores what follows: rows, events, the run's counts and where the walk stands,
    /// in one transaction that holds the job's lease row. Fails with [`StoreError::LeaseLost`], and writes nothing, under
    /// another epoch.
    ///
    /// Unknown keys get a placeholder row first, then the rows that differ are locked in key order, and
    /// only then is the page decided; rows whose fingerprint is known are neither read nor written, unless
    /// they are deleted or provisional.
    ///
    /// `records` counts quarantined and skipped records too, and is the sum of the other counts less `events`. A page
    /// number that the run has counted before adds only what it changes this time.
    ///
    /// What was found of each key is kept in one row a page, nothing of an empty one. A page that is committed again
    /// has a row for each time, since each was a decision.
    async fn commit_page(&self, lease: &JobLease, page: &PageCommit) -> Result<PageOutcome, StoreError>;

    /// What [`Store::commit_page`] would answer for the job of this name, whether that is registered or not. Nothing is
    /// written, and no lease is needed.
    async fn preview_page(&self, job: &str, page: &PageCommit) -> Result<PageOutcome, StoreError>;

    /// Moves the watermark after a complete step of a run that goes on, and keeps what the step covered; the job's
    /// failures and bookmark are forgotten.
    async fn advance(
        &self,
        lease: &JobLease,
        run: RunId,
        watermark: Option<Version>,
        covered: Option<Covered>,
    ) -> Result<(), StoreError>;

    /// Closes a run and moves the watermark, in one transaction that holds the job's lease row. A failure
    /// at the source is counted; a complete run forgets those before it, and the bookmark. While a record of the job is
    /// quarantined, `complete_through` moves no further than to the moment its page was asked for.
    async fn finish_run(&self, lease: &JobLease, run: RunId, end: &RunEnd) -> Result<(), StoreError>;

    /// The open task of this plan, made where there is none that could go on. Of a kind a job has one at a time.
    async fn open_task(&self, job: JobId, kind: TaskKind, plan: &Plan) -> Result<Opened, StoreError>;

    /// Takes the right to work on an open task for `ttl`, as [`Store::lease_job`] does for a job; `None` where another
    /// has it or the task has ended.
    async fn lease_task(
        &self,
        task: TaskId,
        owner: &str,
        ttl: Duration,
    ) -> Result<Option<JobLease>, StoreError>;

    /// Ends a task, for a reason where no person asked for it; whoever works on it can write nothing more. `false` where
    /// it has ended already.
    async fn cancel_task(&self, task: TaskId, reason: Option<&str>) -> Result<bool, StoreError>;

    /// The open tasks that nobody works on, the oldest first, with their jobs' names.
    async fn waiting_tasks(&self) -> Result<Vec<(TaskId, String)>, StoreError>;

    /// What a person sees of a task.
    async fn task(&self, task: TaskId) -> Result<Option<TaskView>, StoreError>;

    /// What a person sees of the newest `limit` tasks of a kind, or of those that are open, newest last.
    async fn tasks(
        &self,
        kind: Option<TaskKind>,
        only_open: bool,
        limit: u32,
    ) -> Result<Vec<TaskView>, StoreError>;

    /// Opens a sweep of a job; the one before, where nobody has answered what it asks, is ended.
    async fn open_sweep(&self, job: JobId, new: &NewSweep) -> Result<SweepOpened, StoreError>;

    /// The newest sweep of a job.
    async fn last_sweep(&self, job: JobId) -> Result<Option<SweepView>, StoreError>;

    /// When the job's first live run was complete; `None` where none was.
    async fn first_complete_run(&self, job: JobId) -> Result<Option<Instant>, StoreError>;

    /// Has the next live run of a job read its listing also where that has not changed.
    async fn read_afresh(&self, job: JobId) -> Result<(), StoreError>;

    /// Moves a sweep on to a phase, with how many keys are gone of how many.
    async fn set_phase(
        &self,
        lease: &JobLease,
        phase: Phase,
        gone: u64,
        of_keys: u64,
    ) -> Result<(), StoreError>;

    /// Ends a sweep.
    async fn end_sweep(
        &self,
        lease: &JobLease,
        state: TaskState,
        reason: Option<&str>,
    ) -> Result<(), StoreError>;

    /// Lets a sweep go on that asks; `false` where it does not ask.
    async fn accept_deletes(&self, task: TaskId) -> Result<bool, StoreError>;

    /// At most `limit` keys of a job that are not deleted, behind `after` in key order; with `from` those alone whose version
    /// is not below it.
    async fn standing(
        &self,
        job: JobId,
        from: Option<Version>,
        after: &str,
        limit: u32,
    ) -> Result<Vec<Standing>, StoreError>;

    /// The number of the last sighting of a sweep's job, in a transaction that no page of the job is committed beside.
    async fn sighting_fence(&self, lease: &JobLease) -> Result<i64, StoreError>;

    /// What pages of a job met since an instant, in at most `limit` sightings behind `after`, up to `fence`.
    async fn touched(
        &self,
        job: JobId,
        since: Instant,
        after: i64,
        fence: i64,
        limit: u32,
    ) -> Result<Touched, StoreError>;

    /// Marks keys as deleted and stores their events, in one transaction that no page of the job is committed beside;
    /// those that a page has met behind the batch's fence, or that were written or deleted meanwhile, stay.
    async fn mark_gone(&self, lease: &JobLease, batch: &GoneBatch) -> Result<Marked, StoreError>;

    /// How late changes of a job were found.
    async fn lateness(&self, job: JobId) -> Result<Histogram, StoreError>;

    /// Turns the waiting events of a job over to the destination that it names now; returns how many were
    /// not there yet. What is being sent is settled where it is.
    async fn readdress(&self, job: JobId, destination: &str) -> Result<u64, StoreError>;

    /// Takes messages of a destination that are due, each of its events with the next fence; fewer, or one as a
    /// probe, or none where the destination is not well. Only the first unsettled event of a lane can be taken. What
    /// may have been received is taken as the message that it was. A claim whose time ran out counts as a try, and its
    /// events as ambiguous, once another takes them.
    async fn claim_messages(
        &self,
        destination: &str,
        rules: &ClaimRules,
    ) -> Result<Vec<ClaimedMessage>, StoreError>;

    /// Stores an attempt, what becomes of its message, and what that says of its destination; where that takes events
    /// again, those that wait for it are due unless something counts against them. Events whose fence was lost are left
    /// out; `None`, and nothing is written, where all are.
    async fn settle_message(
        &self,
        claim: &ClaimedMessage,
        attempt: &Attempt,
    ) -> Result<Option<Settled>, StoreError>;

    /// What a person sees of the newest `limit` events that pass the filter, newest last.
    async fn events(&self, filter: &EventFilter, limit: u32) -> Result<Vec<EventView>, StoreError>;

    /// The events whose ids begin so; no more than two, since only one is of use.
    async fn find_events(&self, beginning: &str) -> Result<Vec<EventView>, StoreError>;

    /// The events that went in the batch whose id begins so, or that are to be repeated in it.
    async fn batch_events(&self, beginning: &str) -> Result<Vec<EventView>, StoreError>;

    /// The body of an event and all attempts to deliver it; `None` where no event has this id.
    async fn event_story(&self, event_id: &str) -> Result<Option<EventStory>, StoreError>;

    /// Does to the event at `position` what a person asks for, if its state allows that. What is sent again is a
    /// new row of the same id, sequence and body, behind what waits of its key.
    async fn grant(&self, position: i64, wish: Wish) -> Result<Granted, StoreError>;

    /// Has a destination that is sent nothing but probes probed at once.
    async fn probe_destination(&self, destination: &str) -> Result<(), StoreError>;

    /// Sends a destination nothing any more, or lets it go on; `false` where it is so already.
    async fn pause_destination(&self, destination: &str, paused: bool) -> Result<bool, StoreError>;

    /// Lets a destination go on, and has it asked at once, also where it wanted to be left alone.
    async fn resume_destination(&self, destination: &str) -> Result<Resumed, StoreError>;

    /// What a person sees of the destinations that events wait for or that were ever sent something or paused, by name.
    async fn destinations(&self) -> Result<Vec<DestinationView>, StoreError>;

    /// How long it takes until the next event of a destination is due, has lingered for as long as one may, or a claim
    /// of one runs out, or the destination may be asked again; `None` where nothing waits, or a person has paused it.
    async fn next_due(&self, destination: &str, linger: Duration) -> Result<Option<Duration>, StoreError>;

    /// Keeps an account from asking until `until`; a later instant that is stored already stays.
    async fn hold_account(&self, account: &str, until: Instant, reason: &str) -> Result<(), StoreError>;

    /// The instant up to which an account may not ask.
    async fn held_until(&self, account: &str) -> Result<Option<Instant>, StoreError>;

    /// The job's records that could not be read and are not settled, oldest first.
    async fn quarantined(&self, job: JobId) -> Result<Vec<QuarantineView>, StoreError>;

    /// The text of such a record; `None` where it is not listed any more.
    async fn quarantined_text(&self, job: JobId, id: Hash) -> Result<Option<String>, StoreError>;

    /// Decides such a record, the only one of `page`, by the rules of [`Store::commit_page`], and takes it
    /// off the list, in one transaction that holds the job's lease row. `None`, and nothing is written, where
    /// it is not listed any more. No run counts it. A page without records only takes it off.
    async fn accept_quarantined(
        &self,
        lease: &JobLease,
        id: Hash,
        page: &PageCommit,
    ) -> Result<Option<Counts>, StoreError>;

    /// Takes such a record off the list for as long as its text stays the same; `false` where it is not
    /// listed.
    async fn skip_quarantined(&self, job: JobId, id: Hash) -> Result<bool, StoreError>;

    /// The account's access token, as it was stored last.
    async fn account_token(&self, account: &str) -> Result<Option<StoredToken>, StoreError>;

    /// Takes the right to ask the provider for the token after number `number` (0 where there is none
    /// yet) for `ttl`; `false` where another process has it, or has stored that token already.
    async fn claim_token(&self, account: &str, number: i64, ttl: Duration) -> Result<bool, StoreError>;

    /// Stores the token after number `number` and gives the right back; `false`, and nothing is written,
    /// where another process has stored that token already.
    async fn store_token(&self, account: &str, number: i64, token: &NewToken) -> Result<bool, StoreError>;

    /// Gives the right to ask for the token after number `number` back without a token.
    async fn release_token(&self, account: &str, number: i64) -> Result<(), StoreError>;

    /// What a person sees of one job.
    async fn job_view(&self, name: &str) -> Result<Option<JobView>, StoreError>;

    /// What a person sees of all jobs, by name.
    async fn job_views(&self) -> Result<Vec<JobView>, StoreError>;

    /// All that is stored of the first of `keys` that is known, else of the first: no more than the newest `limit`
    /// readings, those first that found something, and as many events.
    async fn key_facts(&self, job: JobId, keys: &[RecordKey], limit: u32) -> Result<KeyFacts, StoreError>;

    /// A run of a job and what it read; `None` where the job has no such run.
    async fn run_facts(&self, job: JobId, run: RunId) -> Result<Option<(RunView, RunFacts)>, StoreError>;

    /// Which runs read parts of `range`, the versions from the first up to the second, to their end, and which did not
    /// come to the end of theirs: of those the ones that began at `since` or later.
    async fn coverage(
        &self,
        job: JobId,
        range: (Version, Version),
        since: Option<Instant>,
    ) -> Result<Coverage, StoreError>;

    /// Whether everything holds that must hold at every moment, as of one of them. It only reads.
    async fn verify(&self) -> Result<Vec<Checked>, StoreError>;

    /// Takes one bite of what is kept no longer. Events that wait, are held or are dead stay, and so do runs under way
    /// and the last one of each kind of a job; an event that was sent again goes as a whole.
    async fn purge(&self, purge: &Purge) -> Result<Taken, StoreError>;

    /// How much all bites of a purge would take now.
    async fn purgeable(&self, purge: &Purge) -> Result<u64, StoreError>;

    /// Gives some room that nothing stands on back to the disk, where the database does not do so by itself; `true`
    /// where there is more.
    async fn tidy(&self) -> Result<bool, StoreError>;

    /// What is heard of events that any process stores in this database; `None` where it tells nothing, so that
    /// they are found by looking.
    fn news(&self) -> Option<Box<dyn News>>;

    /// Closes all connections but the one that listens, which goes with its [`News`].
    async fn close(&self);
}

/// A page to be decided and stored.
#[derive(Clone, Debug)]
pub struct PageCommit {
    /// The run that read it.
    pub run: RunId,
    /// Its number in the run, from 1.
    pub number: u32,
    /// How many requests the run has sent so far.
    pub requests: u64,
    /// Its records as they came, a key possibly more than once.
    pub records: Arc<[SeenRecord]>,
    /// Its records that could not be read.
    pub quarantined: Vec<QuarantinedRecord>,
    /// How many of its records were left out for want of a version.
    pub skipped: u64,
    /// How it is decided.
    pub rules: PageRules,
    /// The destination of its events.
    pub destination: String,
    /// What goes in order there.
    pub order: Order,
    /// Where the walk stands behind it.
    pub bookmark: Option<Bookmark>,
    /// How its late changes are told; `None` where they are not.
    pub measure: Option<Measure>,
    /// The source says that it is the page that was read before; any other makes the validator void.
    pub is_unmodified: bool,
}

/// A new run.
#[derive(Clone, Copy, Debug)]
pub struct NewRun {
    /// Its kind.
    pub kind: RunKind,
    /// The lowest version it asks for.
    pub from: Option<Version>,
    /// Where its window ends; none for one that reads all that there is.
    pub to: Option<Version>,
    /// It goes on where a run before it was cut off.
    pub resumed: bool,
}
