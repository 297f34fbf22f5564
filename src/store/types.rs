//! What goes into the store and what comes out of it, in domain types.

use std::{borrow::Cow, collections::HashSet, sync::Arc, time::Duration};

use secrecy::SecretString;

use crate::domain::{
    batch::{BatchRules, batch_body},
    bookmark::Bookmark,
    coverage::Covered,
    delivery::{Tried, Verdict},
    event::{ChangeKind, EventSource},
    identity::Identity,
    instant::Instant,
    key::RecordKey,
    lane::{OnDead, Order},
    run::{Counts, RunStatus},
    sighting::KeyMark,
    sync_token::{PageTag, SyncToken},
    task::{Plan, TaskId},
    version::Version,
};
pub use crate::domain::{event_state::EventState, run::RunId};

/// A job's number in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub i64);

/// A registered job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRow {
    /// Its number.
    pub id: JobId,
    /// Its internal id, which event ids are made from.
    pub uid: String,
    /// The last scheduled instant that was run.
    pub last_fire: Option<Instant>,
    /// Its last run has no end: it is under way, or was cut off by a crash, a stop, or a source that wanted to
    /// be left alone.
    pub is_cut_off: bool,
    /// What its stored state rests on; none until a run has begun.
    pub identity: Option<Identity>,
    /// Nothing is stored that an edit could give another meaning.
    pub is_blank: bool,
}

/// What a new beginning of a job forgot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// How many keys.
    pub records: u64,
    /// How many records that could not be read.
    pub quarantined: u64,
    /// How many tasks were cancelled.
    pub tasks: u64,
}

/// What came of renaming a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renamed {
    /// It has the new name.
    Done,
    /// No job has the old name.
    Unknown,
    /// A job has the new name already.
    Taken,
    /// A run holds it.
    Held,
}

/// The right to run a job, or to work on one of its tasks, until it runs out. Under a later epoch it is void.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobLease {
    /// The job.
    pub job: JobId,
    /// The task that it is the right to work on; none where it is the job's own.
    pub task: Option<TaskId>,
    /// Who holds it.
    pub owner: String,
    /// Grows with every holder.
    pub epoch: i64,
}

/// How far a job has read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The version up to which the stream is known complete.
    pub watermark: Option<Version>,
    /// The `hi` of the last complete run.
    pub complete_through: Option<Instant>,
    /// The instant at or below which the baseline run is silent.
    pub baseline_at: Option<Instant>,
    /// The baseline run has not completed yet.
    pub baseline_open: bool,
    /// How many runs failed at this watermark, one after another.
    pub failures: u32,
    /// The walk that has not reached its end.
    pub bookmark: Option<Bookmark>,
    /// What the source gave to go on from.
    pub sync_token: Option<SyncToken>,
    /// The validator of the last complete listing.
    pub page_tag: Option<PageTag>,
    /// The version below which keys have been forgotten.
    pub floor: Option<Version>,
}

/// An account's access token.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// The login it was made for, as a hash.
    pub login: String,
    /// What signs requests.
    pub access_token: SecretString,
    /// What the next one is traded in for, where the provider rotates it.
    pub refresh_token: Option<SecretString>,
    /// When it was asked for, by our clock.
    pub obtained_at: Instant,
    /// When it runs out, by our clock; `None` where the provider does not say.
    pub expires_at: Option<Instant>,
}

/// An access token in the store.
#[derive(Clone, Debug)]
pub struct StoredToken {
    /// Its number: grows by one with each token of the account.
    pub number: i64,
    /// The token; `None` where the first one is being asked for.
    pub token: Option<NewToken>,
}

/// A record that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantinedRecord {
    /// Its text, as it came.
    pub raw: String,
    /// Why.
    pub reason: String,
    /// When its page was asked for, by the source's clock.
    pub unread_since: Instant,
}

/// What committing a page did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageOutcome {
    /// What the page counted.
    pub counts: Counts,
    /// The first key in conflict.
    pub conflict: Option<RecordKey>,
    /// How many records were passed over because their page is older than what is stored.
    pub stale_reads: u64,
}

/// How a run ends.
#[derive(Clone, Debug)]
pub struct RunEnd {
    /// How.
    pub status: RunStatus,
    /// Why, where it is not ok.
    pub reason: Option<String>,
    /// Whether it failed for what the source answered, so that a shorter window may help.
    pub at_source: bool,
    /// How many requests it sent.
    pub requests: u64,
    /// Where the watermark moves; `None` leaves it.
    pub watermark: Option<Version>,
    /// The `hi` of a complete run; with it the baseline is closed.
    pub complete_through: Option<Instant>,
    /// What the last step of a complete run covered.
    pub covered: Option<Covered>,
    /// What the next run goes on from, however this one ended; `None` leaves what is stored.
    pub sync_token: Option<SyncToken>,
    /// The validator of a complete run's listing; `None` takes the one before away.
    pub page_tag: Option<PageTag>,
}

/// What a claim may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimRules {
    /// How many messages.
    pub messages: u32,
    /// For how long.
    pub ttl: Duration,
    /// How events go together; `None` takes each alone.
    pub batch: Option<BatchRules>,
    /// Whether an event that newer ones of its lane wait behind is left out.
    pub coalesces: bool,
}

/// A message taken for sending: one event, or a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedMessage {
    /// Its id: that of the event that goes alone, or of the batch.
    pub id: String,
    /// Where it goes.
    pub destination: String,
    /// The job that its events came from.
    pub job: JobId,
    /// Its events, in order.
    pub events: Vec<ClaimedEvent>,
    /// What became of it before.
    pub tried: Tried,
    /// It was sent before, may have been received, and is repeated as it was.
    pub is_repeat: bool,
}

impl ClaimedMessage {
    /// The request body. Fails only where an event of a batch is not JSON.
    pub fn body(&self) -> Result<Cow<'_, str>, serde_json::Error> {
        match &*self.events {
            [event] if event.event_id == self.id => Ok(Cow::Borrowed(&event.body)),
            events => {
                let bodies: Vec<_> = events.iter().map(|event| &*event.body).collect();
                batch_body(&self.id, &bodies).map(Cow::Owned)
            }
        }
    }
}

/// An event taken for sending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedEvent {
    /// Its place in the outbox.
    pub position: i64,
    /// Its id.
    pub event_id: String,
    /// Its body.
    pub body: Arc<str>,
    /// Void once another claim has a later one.
    pub fence: i64,
}

/// One attempt to deliver a message.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// The HTTP status, where there was an answer.
    pub status: Option<u16>,
    /// What went wrong, for a person.
    pub error: Option<String>,
    /// The beginning of the answer's body.
    pub answer: String,
    /// When it was sent, by our clock.
    pub sent_at: Instant,
    /// How long it took.
    pub took: Duration,
    /// What its answer means.
    pub verdict: Verdict,
    /// The destination's waits between attempts.
    pub delays: Arc<[Duration]>,
    /// What becomes of the lane of an event that is refused for good.
    pub on_dead: OnDead,
    /// In [0, 1): spreads the next wait.
    pub random: f64,
}

/// What came of asking for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// It is new.
    New(TaskId),
    /// It was begun before and goes on.
    GoesOn(TaskId),
    /// Another one of its kind is open.
    Another(TaskId),
}

/// A sweep to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSweep {
    /// What it reads.
    pub plan: Plan,
    /// The configuration that it begins under.
    pub fingerprint: String,
    /// How long the source may take to show a change.
    pub reach: Duration,
    /// The newest sweep of the job so far.
    pub after: Option<TaskId>,
}

/// What came of opening a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepOpened {
    /// It is open.
    Begun(TaskId),
    /// Another process was quicker, or one is open.
    Overtaken,
    /// The job has not recorded all that stood when it began: a sweep would send it.
    TooEarly,
}

/// Keys that pages met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touched {
    /// Their marks.
    pub marks: HashSet<KeyMark>,
    /// The last sighting that was looked at.
    pub up_to: i64,
    /// There was none any more.
    pub is_all: bool,
}

/// Keys to be marked as deleted.
#[derive(Clone, Debug)]
pub struct GoneBatch {
    /// The keys.
    pub keys: Vec<RecordKey>,
    /// The last sighting that they were held against.
    pub fence: i64,
    /// Since when they must not have been written.
    pub since: Instant,
    /// When this was found, by our clock.
    pub observed_at: Instant,
    /// The kinds of change that are sent.
    pub emit: Vec<ChangeKind>,
    /// Whose records they are.
    pub source: EventSource,
    /// The destination of their events.
    pub destination: String,
    /// What goes in order there.
    pub order: Order,
}

/// What marking a batch did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked {
    /// How many keys were marked.
    pub deleted: u64,
    /// Events were stored of them.
    pub has_events: bool,
    /// What pages met meanwhile.
    pub met: Touched,
}

/// Why the store could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The `store:` setting names no database we know.
    #[error("the store `{0}` is neither sqlite://PATH nor postgres://…")]
    Url(String),
    /// The database cannot be opened.
    #[error("cannot open the store {url}; `store:` in the jobs file says where it is")]
    Open {
        /// Where, without a password.
        url: String,
        /// Why.
        source: sqlx::Error,
    },
    /// The database was made by a later release.
    #[error(
        "the store was written by a later release of onlynew (schema {found}, this one knows {known}): upgrade onlynew"
    )]
    Newer {
        /// The database's schema.
        found: i64,
        /// The last schema this binary knows.
        known: i64,
    },
    /// Another holder took the job over.
    #[error("the job's lease was lost to another process; what was committed before stays")]
    LeaseLost,
    /// A row holds what no release writes.
    #[error("the store holds a value that this release cannot read: {0}")]
    Inconsistent(String),
    /// A record's text cannot be read.
    #[error("a record's text is not JSON: {0}")]
    Record(#[from] serde_json::Error),
    /// The migrations failed.
    #[error("cannot bring the store up to date: {0}")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    /// A person has ended the task.
    #[error("it was cancelled")]
    Ended,
    /// The database failed.
    #[error("the store failed: {0}")]
    Database(#[from] sqlx::Error),
}
