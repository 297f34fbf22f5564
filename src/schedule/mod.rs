//! Which job is due. One tick a second drives everything; what is due, in which zone, and what was missed
//! follows from the store and the schedule's own rule, never from the ticker.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::{sync::Notify, task::JoinSet};
use tokio_cron_scheduler::{Job as Tick, JobScheduler, JobSchedulerError};
use tokio_util::sync::CancellationToken;

use crate::{
    config::job::Job,
    domain::instant::Instant,
    engine::{Engine, Trigger},
};

/// Every second, in UTC.
const EVERY_SECOND: &str = "* * * * * *";
/// After so long without a tick the planner looks by itself, so that a dead ticker stops nothing.
const TICK_OVERDUE: Duration = Duration::from_secs(3);

/// Starts the runs of jobs when they are due.
#[derive(Debug)]
pub struct Planner {
    engine: Arc<Engine>,
    jobs: Vec<Arc<Job>>,
}

/// What ends a run's task: which job it was, and the last fire that the store then held, where it could
/// tell.
type Ended = (String, Option<Option<Instant>>);

impl Planner {
    /// A planner for these jobs.
    pub fn new(engine: Arc<Engine>, jobs: Vec<Arc<Job>>) -> Self {
        Self { engine, jobs }
    }

    /// Runs jobs as they fall due, until `stop`; then waits for the runs under way, which stop after their
    /// page. No job runs twice at once: in this process by `busy`, over all processes by the lease.
    pub async fn run(&self, stop: CancellationToken) -> Result<(), JobSchedulerError> {
        let tick = Arc::new(Notify::new());
        let mut ticker = ticker(Arc::clone(&tick)).await?;
        let mut last_fires: HashMap<String, Option<Instant>> = HashMap::new();
        let mut busy: HashMap<tokio::task::Id, String> = HashMap::new();
        let mut runs: JoinSet<Ended> = JoinSet::new();
        while !stop.is_cancelled() {
            for job in &self.jobs {
                if busy.values().any(|name| *name == job.name) || !self.may_be_due(job, &mut last_fires).await
                {
                    continue;
                }
                let task = runs.spawn(run_due(Arc::clone(&self.engine), Arc::clone(job), stop.clone()));
                busy.insert(task.id(), job.name.clone());
            }
            tokio::select! {
                () = tick.notified() => {}
                () = tokio::time::sleep(TICK_OVERDUE) => tracing::warn!("the ticker is late"),
                Some(ended) = runs.join_next_with_id() => match ended {
                    Ok((id, (name, last))) => {
                        busy.remove(&id);
                        match last {
                            Some(last) => last_fires.insert(name, last),
                            None => last_fires.remove(&name),
                        };
                    }
                    Err(error) => {
                        let job = busy.remove(&error.id()).unwrap_or_default();
                        tracing::error!(%job, %error, "a run ended unexpectedly; its lease runs out by itself");
                    }
                },
                () = stop.cancelled() => {}
            }
        }
        let shut_down = ticker.shutdown().await;
        while runs.join_next().await.is_some() {}
        shut_down
    }

    /// Whether a job looks due by what this process last knew; the run asks the store again.
    async fn may_be_due(&self, job: &Job, last_fires: &mut HashMap<String, Option<Instant>>) -> bool {
        if let Some(last) = last_fires.get(&job.name) {
            return self.engine.is_due(job, *last);
        }
        match self.engine.register(job).await {
            Ok(row) => {
                last_fires.insert(job.name.clone(), row.last_fire);
                self.engine.is_due(job, row.last_fire)
            }
            Err(error) => {
                tracing::error!(job = %job.name, %error, "the store failed; the job is looked at again");
                false
            }
        }
    }
}

/// The one ticker: its job does nothing but wake the planner.
async fn ticker(tick: Arc<Notify>) -> Result<JobScheduler, JobSchedulerError> {
    let scheduler = JobScheduler::new().await?;
    let every_second = Tick::new_async(EVERY_SECOND, move |_, _| {
        let tick = Arc::clone(&tick);
        Box::pin(async move { tick.notify_one() })
    })?;
    scheduler.add(every_second).await?;
    scheduler.start().await?;
    Ok(scheduler)
}

async fn run_due(engine: Arc<Engine>, job: Arc<Job>, stop: CancellationToken) -> Ended {
    if let Err(error) = engine.run(&job, Trigger::Due, &stop).await {
        tracing::error!(job = %job.name, %error, "the store failed; the run did not begin");
    }
    (job.name.clone(), last_fire(&engine, &job).await)
}

async fn last_fire(engine: &Engine, job: &Job) -> Option<Option<Instant>> {
    let row = engine.store.find_job(&job.name).await.ok()?;
    row.map(|row| row.last_fire)
}
