//! A run from the lease to the report.
//!
//! Why a job never runs twice at once: a run holds the job's lease, every write names the lease's epoch
//! and is refused under another one, and the lease is renewed for as long as the run lasts.

use std::{sync::Arc, time::Duration};

use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

use super::{errand::Errand, identity::asks, report::RunReport, walk::Walk};
use crate::{
    config::job::Job,
    connector::{Http, Tokens},
    domain::{clock::Clock, run::RunStatus, window::CLOCK_TOLERANCE},
    limit::Limits,
    store::{JobLease, JobRow, Store, StoreError},
};

/// How long a lease lasts without renewal: what a job waits after its worker was killed.
pub(super) const LEASE: Duration = Duration::from_secs(30);
const RENEW_EVERY: Duration = Duration::from_secs(10);

/// Runs jobs.
#[derive(Clone, Debug)]
pub struct Engine {
    /// Where everything is kept.
    pub store: Arc<dyn Store>,
    /// How sources are asked.
    pub http: Http,
    /// How often they may be asked.
    pub limits: Arc<Limits>,
    /// What they are asked with, where accounts sign by tokens that run out.
    pub tokens: Arc<Tokens>,
    /// Whose time counts.
    pub clock: Arc<dyn Clock>,
    /// Who holds leases: one name a process.
    pub owner: String,
    /// Grows whenever events were stored.
    pub fresh: watch::Sender<u64>,
    /// Tells of every run that ended.
    pub reports: broadcast::Sender<RunReport>,
}

/// Why a run is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// A person wants it now.
    Manual,
    /// Its scheduled instant has come.
    Due,
}

impl Engine {
    /// The job's row, made where there is none: neither under its name nor under the one it had before.
    pub async fn register(&self, job: &Job) -> Result<JobRow, StoreError> {
        self.take_name_over(job).await?;
        let first = (!job.schedule.starts_at_once()).then(|| self.clock.now());
        self.store.register_job(&job.name, first).await
    }

    /// Whether a job is due: its next instant has come, or its last run was cut off and has to go on. A last
    /// fire from the future is the mark of a clock that was wrong, and counts for nothing.
    pub fn is_due(&self, job: &Job, row: &JobRow) -> bool {
        let now = self.clock.now();
        match row.last_fire {
            _ if row.is_cut_off => true,
            Some(last) if last > now.plus(CLOCK_TOLERANCE) => true,
            Some(last) => job.schedule.next(last).is_some_and(|next| next <= now),
            None => job.schedule.starts_at_once(),
        }
    }

    /// Runs a job once. `None` where it was not due after all: another process was quicker.
    /// A run that fails is a report; only a store that fails before the run begins is an error.
    pub async fn run(
        &self,
        job: &Arc<Job>,
        trigger: Trigger,
        stop: &CancellationToken,
    ) -> Result<Option<RunReport>, StoreError> {
        let row = self.register(job).await?;
        let Some(lease) = self.store.lease_job(row.id, &self.owner, LEASE).await? else {
            let reason = "another run of this job is under way, or was killed less than 30 s ago".to_owned();
            return Ok(Some(RunReport::not_begun(job, RunStatus::Skipped, reason)));
        };
        let report = self.run_leased(job, trigger, &lease, stop).await;
        self.give_back(job, &lease).await;
        if let Ok(Some(report)) = &report {
            self.tell(report);
        }
        report
    }

    /// Gives a lease back.
    pub(super) async fn give_back(&self, job: &Job, lease: &JobLease) {
        if let Err(error) = self.store.release_job_lease(lease).await {
            tracing::warn!(job = %job.name, %error, "the job's lease could not be given back; it runs out by itself");
        }
    }

    /// Tells the log and whoever listens how a run ended.
    pub(super) fn tell(&self, report: &RunReport) {
        report.log();
        // Nobody listening is no error.
        let _ = self.reports.send(report.clone());
    }

    /// Why the source may not be asked yet, where it wants to be left alone.
    pub(super) async fn held_until(&self, job: &Job) -> Result<Option<String>, StoreError> {
        for bucket in job.stream_bucket().into_iter().chain([job.account.bucket.clone()]) {
            if let Some(until) = self.store.held_until(&bucket).await?
                && until > self.clock.now()
            {
                return Ok(Some(format!("the source asked to be left alone until {until}")));
            }
        }
        Ok(None)
    }

    /// Walks over the errand's window under its lease, which is renewed meanwhile.
    pub(super) async fn walk(
        &self,
        job: &Arc<Job>,
        errand: Errand<'_>,
        row: &JobRow,
        lease: &JobLease,
        stop: &CancellationToken,
    ) -> Result<RunReport, StoreError> {
        let lost = CancellationToken::new();
        tokio::select! {
            report = Walk::new(self, job, errand, row, lease, stop, &lost).run() => report,
            never = self.keep(job, lease, &lost) => match never {},
        }
    }

    async fn run_leased(
        &self,
        job: &Arc<Job>,
        trigger: Trigger,
        lease: &JobLease,
        stop: &CancellationToken,
    ) -> Result<Option<RunReport>, StoreError> {
        let Some(row) = self.store.find_job(&job.name).await? else { return Ok(None) };
        if let Some(asks) = asks(job, &row) {
            return Ok(Some(asks));
        }
        if let Some(reason) = self.held_until(job).await? {
            return Ok(Some(RunReport::not_begun(job, RunStatus::RateLimited, reason)));
        }
        if trigger == Trigger::Due
            && !(self.is_due(job, &row)
                && self.store.record_fire(lease, row.last_fire, self.clock.now()).await?)
        {
            return Ok(None);
        }
        self.keep_identity(job, &row, lease).await?;
        self.walk(job, Errand::Live, &row, lease, stop).await.map(Some)
    }

    /// Renews the lease for as long as it is polled; cancels `lost` where another process took it over.
    async fn keep(&self, job: &Job, lease: &JobLease, lost: &CancellationToken) -> std::convert::Infallible {
        loop {
            tokio::time::sleep(RENEW_EVERY).await;
            match self.store.renew_job_lease(lease, LEASE).await {
                Ok(true) => {}
                Ok(false) => lost.cancel(),
                Err(error) => tracing::warn!(job = %job.name, %error, "the job's lease could not be renewed"),
            }
        }
    }
}
