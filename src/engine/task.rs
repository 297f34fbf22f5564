//! One run of a task: a walk like the live one, under the task's own lease and with its own progress, so that neither
//! ever waits for the other's source or moves the other's watermark.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{
    errand::Errand,
    report::RunReport,
    run::{Engine, LEASE},
};
use crate::{
    config::job::Job,
    domain::{run::RunStatus, task::TaskKind},
    store::{JobLease, JobRow, StoreError, TaskView},
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
        let report = match task.kind {
            TaskKind::Replay => self.read(job, task, &row, &lease, stop).await.map(Some),
            TaskKind::Reconcile => self.sweep(job, task, &row, &lease, stop).await,
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
        match self.held_until(job).await? {
            Some(reason) => {
                let report = RunReport::not_begun(job, RunStatus::RateLimited, reason);
                Ok(RunReport { kind: task.kind.into(), ..report })
            }
            None => self.walk(job, Errand::Task(task), row, lease, stop).await,
        }
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
            marked = self.reconcile(job, row, lease) => marked?,
            never = self.keep(job, lease, &lost) => match never {},
        }
        Ok(None)
    }
}
