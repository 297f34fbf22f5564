//! The sweeps of this process's jobs: each is opened when it is due, and worked on until what is gone is marked.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    config::job::Job,
    domain::{instant::Instant, run::RunStatus, task::TaskState},
    engine::Engine,
    store::StoreError,
};

/// How long a job's sweep is left alone between two looks, and at most where it comes no further. Six failures at one
/// place, which are all that it may have, take longer than a source is usually away.
const PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_mins(10);
const GROWTH: u32 = 4;

/// What this process does for sweeps.
#[derive(Debug, Default)]
pub(super) struct Sweeps {
    looks: JoinSet<Result<bool, StoreError>>,
    busy: HashMap<Id, Arc<Job>>,
    rests: HashMap<String, Rest>,
    /// Jobs that are not swept, of which no sweep is open any more.
    done: HashSet<String>,
}

/// How long a job is left alone.
#[derive(Clone, Copy, Debug)]
struct Rest {
    length: Duration,
    until: Instant,
}

impl Sweeps {
    /// Looks after the sweeps of jobs that are not left alone.
    pub(super) fn begin(&mut self, engine: &Arc<Engine>, jobs: &[Arc<Job>], stop: &CancellationToken) {
        let now = engine.clock.now();
        for job in jobs.iter().filter(|job| !self.done.contains(&job.name)) {
            let is_resting = self.rests.get(&job.name).is_some_and(|rest| now < rest.until);
            if is_resting || self.busy.values().any(|busy| busy.name == job.name) {
                continue;
            }
            let look = look(Arc::clone(engine), Arc::clone(job), stop.clone());
            self.busy.insert(self.looks.spawn(look).id(), Arc::clone(job));
        }
    }

    /// Waits until a look has ended; for ever where none is under way.
    pub(super) async fn ended(&mut self, engine: &Engine) {
        match self.looks.join_next_with_id().await {
            Some(ended) => self.take_in(ended, engine.clock.now()),
            None => std::future::pending().await,
        }
    }

    /// Waits for what is under way.
    pub(super) async fn drain(&mut self) {
        while self.looks.join_next().await.is_some() {}
    }

    fn take_in(&mut self, ended: Result<(Id, Result<bool, StoreError>), JoinError>, now: Instant) {
        let (id, went_well) = match ended {
            Ok((id, Ok(went_well))) => (id, went_well),
            Ok((id, Err(error))) => {
                tracing::error!(%error, "the store failed; the sweep is looked after again");
                (id, false)
            }
            Err(error) => {
                tracing::error!(%error, "a sweep ended unexpectedly; its lease runs out by itself");
                (error.id(), false)
            }
        };
        let Some(job) = self.busy.remove(&id) else { return };
        if went_well && job.sweep.is_none() {
            self.done.insert(job.name.clone());
            return;
        }
        let before = self.rests.get(&job.name).filter(|_| !went_well).map(|rest| rest.length);
        self.rests.insert(job.name.clone(), Rest::after(before, now));
    }
}

impl Rest {
    fn after(before: Option<Duration>, now: Instant) -> Self {
        let length = before.map_or(PAUSE, |before| (before * GROWTH).min(LONGEST_PAUSE));
        Self { length, until: now.plus(length) }
    }
}

/// Opens the job's sweep where it is due, and works on the one that is open; `false` where its run failed. Of a job that
/// is not swept it ends the one that is left.
async fn look(engine: Arc<Engine>, job: Arc<Job>, stop: CancellationToken) -> Result<bool, StoreError> {
    if job.sweep.is_none() {
        return engine.end_unwanted_sweep(&job).await.map(|()| true);
    }
    engine.open_due_sweep(&job).await?;
    let Some(row) = engine.store.find_job(&job.name).await? else { return Ok(true) };
    let last = engine.store.last_sweep(row.id).await?;
    let open = last.filter(|last| last.state == TaskState::Open).map(|last| last.task);
    let Some(task) = open else { return Ok(true) };
    let Some(task) = engine.store.task(task).await? else { return Ok(true) };
    let report = engine.work(&job, &task, &stop).await?;
    Ok(report.is_none_or(|report| report.status == RunStatus::Ok))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_that_comes_no_further_is_left_alone_for_longer_and_longer() {
        let now = Instant::from_seconds(0);
        let rests = std::iter::successors(Some(Rest::after(None, now)), |rest| {
            Some(Rest::after(Some(rest.length), now))
        });
        let seconds: Vec<_> = rests.take(6).map(|rest| rest.until.seconds()).collect();
        assert_eq!(seconds, [5, 20, 80, 320, 600, 600]);
    }
}
