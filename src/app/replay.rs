//! A replay as a command has it: it is asked for in the store, where a running worker takes it up, and is read by the
//! command itself where none does.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use tokio_util::sync::CancellationToken;

use super::App;
use crate::{
    config::job::Job,
    domain::task::{Plan, TaskId, TaskKind, TaskState},
    engine::RunReport,
    store::{Opened, StoreError, TaskView},
};

/// How long a running worker has to take a replay up: it looks once a second.
const PICK_UP: Duration = Duration::from_secs(3);
/// How often the store is asked how far it has come.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// So many looks at a replay that nobody works on, and nobody has worked on any more: longer than any pause between two of its
/// runs.
const MOST_IDLE_LOOKS: u32 = 750;
/// So many looks at a replay whose worker is gone: a running worker would have taken it up by then.
const MOST_LOOKS_AT_LEFT: u32 = 3;
/// So many looks at the events of a replay that has ended, while its worker delivers them.
const MOST_LAST_LOOKS: u32 = 10;

/// Is told how far a replay has come.
pub type Told<'a> = &'a (dyn Fn(&TaskView) + Send + Sync);

/// How a replay stands when its command ends.
#[derive(Debug)]
pub struct Replayed {
    /// The replay.
    pub task: TaskView,
    /// Who worked on it.
    pub by: By,
    /// Why the last attempt of this command that did not deliver failed.
    pub delivery_error: Option<String>,
    /// Why the store could not be asked any more once the run was over.
    pub store_error: Option<StoreError>,
}

/// Who worked on a replay.
#[derive(Debug)]
pub enum By {
    /// This command, for one run.
    Command(Box<RunReport>),
    /// A running worker, whose work the command has watched to its end.
    Worker,
    /// A running worker, whose work goes on.
    WorkerStill,
    /// Nobody, or workers that are there no more.
    Nobody,
}

impl App {
    /// Asks for a replay, or for one that was begun before to go on.
    pub async fn ask_for_replay(&self, job: &Arc<Job>, plan: &Plan) -> Result<Opened> {
        self.readdress(job).await?;
        let row = self.engine.register(job).await?;
        Ok(self.store.open_task(row.id, TaskKind::Replay, plan).await?)
    }

    /// Sees an open replay through: watches the worker that takes it up, or works on it for one run where none does, or
    /// where the one that did is gone.
    pub async fn see_through(
        &self,
        job: &Arc<Job>,
        id: TaskId,
        told: Told<'_>,
        stop: &CancellationToken,
    ) -> Result<Replayed> {
        let is_taken = stop.run_until_cancelled(tokio::time::timeout(PICK_UP, self.is_taken_up(id))).await;
        let mut is_alone = matches!(is_taken, Some(Err(_)));
        loop {
            if is_alone && let Some(replayed) = self.work_on(job, id, told, stop).await? {
                return Ok(replayed);
            }
            match self.watch(id, told, stop).await? {
                Some(replayed) => return Ok(replayed),
                None => is_alone = true,
            }
        }
    }

    /// Works on a replay for one run, and delivers its events and those that are due. `None` where another process
    /// has it.
    pub async fn work_on(
        &self,
        job: &Arc<Job>,
        id: TaskId,
        told: Told<'_>,
        stop: &CancellationToken,
    ) -> Result<Option<Replayed>> {
        let dispatcher = self.dispatcher(&job.destination)?;
        let task = self.task(id).await?;
        let run = tokio::select! {
            run = self.engine.work(job, &task, stop) => run?,
            never = self.tell_for_ever(id, told) => match never {},
        };
        let Some(report) = run else { return Ok(None) };
        let deliver = async {
            self.store.probe_destination(&job.destination.name).await?;
            dispatcher.drain(stop).await
        };
        let (delivery_error, store_error) = match deliver.await {
            Ok(drained) => (drained.last_error, None),
            Err(error) => (None, Some(error)),
        };
        let task = self.task(id).await?;
        told(&task);
        Ok(Some(Replayed { task, by: By::Command(Box::new(report)), delivery_error, store_error }))
    }

    /// Waits until somebody works on a replay or it has ended.
    async fn is_taken_up(&self, id: TaskId) -> Result<()> {
        loop {
            let task = self.task(id).await?;
            if task.worker.is_some() || task.state != TaskState::Open {
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY / 10).await;
        }
    }

    /// Watches a replay to its end, for as long as somebody works on it; `None` where whoever did was not heard of again, and
    /// nobody has taken it up for a while.
    async fn watch(&self, id: TaskId, told: Told<'_>, stop: &CancellationToken) -> Result<Option<Replayed>> {
        let replayed = |task, by| Some(Replayed { task, by, delivery_error: None, store_error: None });
        let (mut idle, mut left, mut last, mut had_worker) = (0, 0, 0, false);
        loop {
            let task = self.task(id).await?;
            told(&task);
            idle = if task.worker.is_some() { 0 } else { idle + 1 };
            left = if task.is_left { left + 1 } else { 0 };
            had_worker |= task.worker.is_some();
            let has_ended = task.state != TaskState::Open;
            last += u32::from(has_ended);
            if has_ended && (task.pending == 0 || last > MOST_LAST_LOOKS) {
                return Ok(replayed(task, By::Worker));
            } else if stop.is_cancelled() {
                let by = match (has_ended, had_worker) {
                    (true, _) => By::Worker,
                    (false, true) => By::WorkerStill,
                    (false, false) => By::Nobody,
                };
                return Ok(replayed(task, by));
            } else if !has_ended && left > MOST_LOOKS_AT_LEFT {
                return Ok(None);
            } else if !has_ended && idle > MOST_IDLE_LOOKS {
                return Ok(replayed(task, By::Nobody));
            }
            stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await;
        }
    }

    async fn tell_for_ever(&self, id: TaskId, told: Told<'_>) -> std::convert::Infallible {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            // The run itself tells of a store that fails.
            if let Ok(task) = self.task(id).await {
                told(&task);
            }
        }
    }

    async fn task(&self, id: TaskId) -> Result<TaskView> {
        self.store.task(id).await?.with_context(|| format!("the replay {} is gone from the store", id.0))
    }
}
