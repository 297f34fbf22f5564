//! One run of a task: a walk like the live one, under the task's own lease and with its own progress, so that neither
//! ever waits for the other's source or moves the other's watermark.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{
    errand::Errand,
    identity::asks,
    report::RunReport,
    run::{Engine, LEASE},
};
use crate::{
    config::job::Job,
    domain::run::RunStatus,
    store::{StoreError, TaskView},
};

impl Engine {
    /// Works on a task for one run. `None` where another process does, or it has ended.
    pub async fn work(
        &self,
        job: &Arc<Job>,
        task: &TaskView,
        stop: &CancellationToken,
    ) -> Result<Option<RunReport>, StoreError> {
        let row = self.register(job).await?;
        let Some(lease) = self.store.lease_task(task.id, &self.owner, LEASE).await? else { return Ok(None) };
        let held = self.held_until(job).await?;
        let held = held.map(|reason| RunReport::not_begun(job, RunStatus::RateLimited, reason));
        let report = match asks(job, &row).or(held) {
            Some(report) => Ok(RunReport { kind: task.kind.into(), ..report }),
            None => self.walk(job, Errand::Task(task), &row, &lease, stop).await,
        };
        self.give_back(job, &lease).await;
        report.inspect(|report| self.tell(report)).map(Some)
    }
}
