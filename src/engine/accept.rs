//! A quarantined record that can be read by now, decided as of the moment its page was asked for: what was
//! stored of its key since then counts as newer.

use std::sync::Arc;

use super::{
    identity::edited,
    rules::event_source,
    run::{Engine, LEASE},
};
use crate::{
    config::job::Job,
    connector::read_one,
    domain::{
        page::{PageRules, Silence},
        retention::Floor,
        run::Counts,
        version::Version,
        window::CLOCK_TOLERANCE,
    },
    store::{JobLease, JobRow, PageCommit, QuarantineView, StoreError},
};

/// What became of a record that a person accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// It was decided.
    Decided(Counts),
    /// It can be read, and the job leaves it out; it is off the list.
    LeftOut,
    /// It still cannot be read.
    Unreadable(String),
    /// It is not listed any more.
    Gone,
    /// A run of the job is under way.
    Busy,
    /// The job was edited, and nothing is decided until a person has said what that means.
    Asks(String),
}

impl Engine {
    /// Accepts a listed record of a job.
    pub async fn accept(
        &self,
        job: &Arc<Job>,
        row: &JobRow,
        record: &QuarantineView,
    ) -> Result<Accepted, StoreError> {
        let Some(lease) = self.store.lease_job(row.id, &self.owner, LEASE).await? else {
            return Ok(Accepted::Busy);
        };
        let accepted = self.accept_leased(job, &lease, record).await;
        self.give_back(job, &lease).await;
        accepted
    }

    async fn accept_leased(
        &self,
        job: &Arc<Job>,
        lease: &JobLease,
        record: &QuarantineView,
    ) -> Result<Accepted, StoreError> {
        // As it is under the lease: it may have begun anew.
        let Some(row) = self.store.find_job(&job.name).await? else { return Ok(Accepted::Gone) };
        let row = &row;
        if let Some(question) = edited(job, row) {
            return Ok(Accepted::Asks(question.to_string()));
        }
        let Some(raw) = self.store.quarantined_text(row.id, record.id).await? else {
            return Ok(Accepted::Gone);
        };
        let read = match read_one(job, &raw) {
            Ok(read) => read,
            Err(reason) => return Ok(Accepted::Unreadable(reason)),
        };
        let is_left_out = read.is_none();
        let page = PageCommit {
            run: record.run,
            number: 0,
            requests: 0,
            records: read.into_iter().collect(),
            quarantined: Vec::new(),
            skipped: 0,
            rules: self.accept_rules(job, row, lease, record).await?,
            destination: job.destination.name.clone(),
            order: job.destination.lanes.order,
            bookmark: None,
            measure: None,
            is_unmodified: false,
        };
        Ok(match self.store.accept_quarantined(lease, record.id, &page).await? {
            None => Accepted::Gone,
            Some(_) if is_left_out => Accepted::LeftOut,
            Some(counts) => Accepted::Decided(counts),
        })
    }

    async fn accept_rules(
        &self,
        job: &Job,
        row: &JobRow,
        lease: &JobLease,
        record: &QuarantineView,
    ) -> Result<PageRules, StoreError> {
        let has_times = job.has_time_versions();
        let baseline = self.store.open_progress(lease, false).await?.baseline_at.filter(|_| has_times);
        Ok(PageRules {
            detect: job.detect,
            ignored: job.ignored.clone(),
            emit: job.emit.clone(),
            silence: if record.in_baseline {
                Silence::Baseline(baseline.map(|at| Version(at.micros())))
            } else {
                Silence::Never
            },
            // The earlier of the two moments: a version is rather called young once too often.
            replay: None,
            settled_until: if has_times { job.window.settled_until(record.unread_since) } else { None },
            asked_at: record.asked_at,
            answered_at: record.answered_at,
            tolerance: has_times.then(|| CLOCK_TOLERANCE + job.window.lookback + job.window.settle),
            is_feed: job.stream.sync.is_some(),
            source: event_source(job, row),
            // A person wants it, however old it is.
            floor: job.forgets_keys().then(|| Floor::known(None, true)),
        })
    }
}
