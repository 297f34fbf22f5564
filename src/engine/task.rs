//! One run of a task: a walk like the live one, under the task's own lease and with its own progress, so that neither
//! ever waits for the other's source or moves the other's watermark. And the same without a task, to see what it would do.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{
    books::{Books, Trial},
    errand::Errand,
    identity::asks,
    report::RunReport,
    run::{Engine, LEASE},
    walk::Walk,
};
use crate::{
    config::job::Job,
    domain::{run::RunStatus, steps::Steps, task::Plan, task::TaskKind, window::CLOCK_TOLERANCE},
    store::{JobId, JobLease, JobRow, StoreError, TaskView},
};

impl Engine {
    /// Works on a task for one run. `None` where another process does, or it has ended, or it is a sweep that has read
    /// everything: that is brought as far as it may go.
    pub async fn work(
        &self,
        job: &Arc<Job>,
        task: &TaskView,
        stop: &CancellationToken,
    ) -> Result<Option<RunReport>, StoreError> {
        let row = self.register(job).await?;
        let Some(lease) = self.store.lease_task(task.id, &self.owner, LEASE).await? else { return Ok(None) };
        let report = match (asks(job, &row), task.kind) {
            (Some(report), _) => Ok(Some(RunReport { kind: task.kind.into(), ..report })),
            (None, TaskKind::Replay) => self.read(job, task, &row, &lease, stop).await.map(Some),
            (None, TaskKind::Reconcile) => self.sweep(job, task, &row, &lease, stop).await,
        };
        self.give_back(job, &lease).await;
        if let Ok(Some(report)) = &report {
            self.tell(report);
        }
        report
    }

    /// One run over the task's window.
    async fn read(
        &self,
        job: &Arc<Job>,
        task: &TaskView,
        row: &JobRow,
        lease: &JobLease,
        stop: &CancellationToken,
    ) -> Result<RunReport, StoreError> {
        if let Some(reason) = self.held_until(job).await? {
            return Ok(put_off(job, task, reason));
        }
        self.keep_identity(job, row, lease).await?;
        let report = self.walk(job, Errand::Task(task), row, lease, stop).await?;
        if report.status == RunStatus::Ok {
            self.limits.forget(&task.bucket());
        }
        Ok(report)
    }

    /// A run of a sweep, or what comes after its last one.
    async fn sweep(
        &self,
        job: &Arc<Job>,
        task: &TaskView,
        row: &JobRow,
        lease: &JobLease,
        stop: &CancellationToken,
    ) -> Result<Option<RunReport>, StoreError> {
        if self.may_read(job, row, lease).await? {
            return self.read(job, task, row, lease, stop).await.map(Some);
        }
        let lost = CancellationToken::new();
        tokio::select! {
            marked = self.reconcile(job, row, lease, stop) => match marked {
                Err(StoreError::Ended | StoreError::LeaseLost) => {
                    tracing::info!(job = %job.name, "the sweep was ended, or another process has it");
                    Ok(None)
                }
                marked => marked.map(|()| None),
            },
            never = self.keep(job, lease, &lost) => match never {},
        }
    }

    /// Reads what a replay would read and decides it as that would, but writes and sends nothing, and needs no lease. Only an
    /// account's new access token is stored, since it may exist nowhere else.
    pub async fn try_out(
        &self,
        job: &Arc<Job>,
        plan: &Plan,
        told: &(dyn Fn(&RunReport) + Send + Sync),
        stop: &CancellationToken,
    ) -> Result<RunReport, StoreError> {
        let task = TaskView::of_no_store(&job.name, plan);
        if let Some(reason) = self.held_until(job).await? {
            return Ok(put_off(job, &task, reason));
        }
        let row = self.store.find_job(&job.name).await?;
        let row = row.unwrap_or_else(|| JobRow {
            id: JobId(0),
            uid: String::new(),
            last_fire: None,
            is_cut_off: false,
            identity: None,
            is_blank: true,
        });
        if let Some(report) = asks(job, &row) {
            return Ok(RunReport { kind: task.kind.into(), ..report });
        }
        let (trial, lost) = (Trial::of(&job.name, told), CancellationToken::new());
        Walk::new(self, job, Errand::Task(&task), &row, Books::Tried(&trial), stop, &lost).run().await
    }

    /// How many steps a replay takes, as far as that is known beforehand: so many requests at least.
    pub fn steps_of(&self, job: &Job, plan: &Plan) -> u64 {
        let task = TaskView::of_no_store(&job.name, plan);
        let rule = Errand::Task(&task).window(job);
        let until = plan.to.or_else(|| rule.hi(self.clock.now().minus(CLOCK_TOLERANCE)));
        Steps::count(rule, plan.from, until, rule.step.filter(|_| job.stream.bounded))
    }
}

/// A run of a task that did not begin, since the source wants to be left alone.
fn put_off(job: &Job, task: &TaskView, reason: String) -> RunReport {
    RunReport { kind: task.kind.into(), ..RunReport::not_begun(job, RunStatus::RateLimited, reason) }
}
