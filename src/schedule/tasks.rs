//! The replays of this process's jobs that wait for somebody to work on them: one at a time a job, over as many runs as
//! it takes, with pauses that grow while it comes no further. Sweeps have rules of their own ([`sweeps`](super::sweeps)).

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    config::job::Job,
    domain::{instant::Instant, run::RunStatus, task::TaskId},
    engine::{Engine, RunReport},
    store::StoreError,
};

/// How long a task is left alone whose run did not end it, at first and at most. Six failures at one place, which are
/// all that a task may have, take a quarter of an hour: as long as a source may well be away.
const SHORTEST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_mins(10);
const GROWTH: u32 = 4;

/// The tasks that this process works on, and those that it leaves alone for now.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    /// The one question to the store which tasks wait, while it is under way: a store that does not answer holds nobody up.
    question: JoinSet<Waiting>,
    runs: JoinSet<Result<Option<RunReport>, StoreError>>,
    working: HashMap<Id, (TaskId, String)>,
    pauses: HashMap<TaskId, Pause>,
    has_failed: bool,
}

/// Tasks that nobody works on, with their jobs' names.
type Waiting = Result<Vec<(TaskId, String)>, StoreError>;

/// How long a task is left alone.
#[derive(Clone, Copy, Debug)]
struct Pause {
    length: Duration,
    until: Instant,
}

impl Tasks {
    /// Asks which tasks nobody works on.
    pub(super) fn ask(&mut self, engine: &Arc<Engine>) {
        if self.question.is_empty() {
            let store = Arc::clone(&engine.store);
            self.question.spawn(async move { store.waiting_tasks().await });
        }
    }

    /// Waits until something comes of what is under way, and takes it in; for ever where nothing is.
    pub(super) async fn go_on(&mut self, engine: &Arc<Engine>, jobs: &[Arc<Job>], stop: &CancellationToken) {
        tokio::select! {
            Some(waiting) = self.question.join_next() => match waiting {
                Ok(waiting) => self.begin(waiting, engine, jobs, stop),
                Err(error) => tracing::error!(%error, "the look for tasks ended unexpectedly; it is repeated"),
            },
            Some(ended) = self.runs.join_next_with_id() => self.take_in(ended, engine.clock.now()),
            else => std::future::pending().await,
        }
    }

    /// Begins to work on tasks of these jobs that nobody works on.
    fn begin(&mut self, waiting: Waiting, engine: &Arc<Engine>, jobs: &[Arc<Job>], stop: &CancellationToken) {
        let waiting = match waiting {
            Ok(waiting) => waiting,
            Err(error) => {
                if !self.has_failed {
                    tracing::error!(%error, "the store failed; its tasks are looked for again");
                }
                self.has_failed = true;
                return;
            }
        };
        self.has_failed = false;
        let now = engine.clock.now();
        let mut busy: HashSet<String> = self.working.values().map(|(_, job)| job.clone()).collect();
        for (task, name) in waiting {
            let Some(job) = jobs.iter().find(|job| job.name == name) else { continue };
            if self.pauses.get(&task).is_some_and(|pause| now < pause.until) || !busy.insert(name.clone()) {
                continue;
            }
            let run = work(Arc::clone(engine), Arc::clone(job), task, stop.clone());
            self.working.insert(self.runs.spawn(run).id(), (task, name));
        }
    }

    /// Waits for the runs under way.
    pub(super) async fn drain(&mut self) {
        while self.runs.join_next().await.is_some() {}
    }

    fn take_in(
        &mut self,
        ended: Result<(Id, Result<Option<RunReport>, StoreError>), JoinError>,
        now: Instant,
    ) {
        let (id, came_further) = match ended {
            // Pages that a failed run has read are read again.
            Ok((id, Ok(report))) => (id, report.is_some_and(|report| report.status == RunStatus::Ok)),
            Ok((id, Err(error))) => {
                tracing::error!(%error, "the store failed; the run of a task did not begin");
                (id, false)
            }
            Err(error) => {
                tracing::error!(%error, "a run of a task ended unexpectedly; its lease runs out by itself");
                (error.id(), false)
            }
        };
        let Some((task, _)) = self.working.remove(&id) else { return };
        let before = self.pauses.get(&task).filter(|_| !came_further).map(|pause| pause.length);
        // What is over long ago is not come back to.
        self.pauses.retain(|_, pause| now < pause.until.plus(LONGEST_PAUSE));
        self.pauses.insert(task, Pause::after(before, now));
    }
}

impl Pause {
    fn after(before: Option<Duration>, now: Instant) -> Self {
        let length = before.map_or(SHORTEST_PAUSE, |before| (before * GROWTH).min(LONGEST_PAUSE));
        Self { length, until: now.plus(length) }
    }
}

/// One run of a task.
async fn work(
    engine: Arc<Engine>,
    job: Arc<Job>,
    task: TaskId,
    stop: CancellationToken,
) -> Result<Option<RunReport>, StoreError> {
    match engine.store.task(task).await? {
        Some(task) => engine.work(&job, &task, &stop).await,
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_comes_no_further_is_left_alone_for_longer_and_longer() {
        let now = Instant::from_seconds(0);
        let pauses = std::iter::successors(Some(Pause::after(None, now)), |pause| {
            Some(Pause::after(Some(pause.length), now))
        });
        let seconds: Vec<_> = pauses.take(6).map(|pause| pause.until.seconds()).collect();
        assert_eq!(seconds, [2, 8, 32, 128, 512, 600]);
    }
}
