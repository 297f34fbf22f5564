//! Which job is due. One tick a second drives everything; what is due, in which zone, and what was missed
//! follows from the store and the schedule's own rule, never from the ticker.

mod janitor;
mod sweeps;
mod tasks;

use std::{collections::HashMap, sync::Arc, time::Duration};

pub use janitor::{Janitor, Swept};

use tokio::{sync::Notify, task::JoinSet};
use tokio_cron_scheduler::{Job as Tick, JobScheduler, JobSchedulerError};
use tokio_util::sync::CancellationToken;

use self::sweeps::Sweeps;
use self::tasks::Tasks;
use crate::{
    config::job::Job,
    domain::{instant::Instant, run::RunStatus},
    engine::{Engine, RunReport, Trigger},
    store::{JobRow, StoreError},
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

/// So many skipped instants are enough to tell of.
const MOST_SKIPPED: usize = 10_000;

/// How long a job is left alone whose run did not begin, at first and at most.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How often a job that asks says so in the log.
const TOLD_EVERY: Duration = Duration::from_hours(6);

/// What this process knows of a job.
#[derive(Debug, Default)]
struct Known {
    /// The job's row as last seen; none where the store has to be asked.
    row: Option<JobRow>,
    /// Its run is under way here.
    is_running: bool,
    /// It is not looked at before this instant.
    not_before: Option<Instant>,
    /// How long it was last left alone.
    pause: Duration,
    /// What it asked, and when that was last told.
    asked: Option<(String, Instant)>,
}

impl Planner {
    /// A planner for these jobs.
    pub fn new(engine: Arc<Engine>, jobs: Vec<Arc<Job>>) -> Self {
        Self { engine, jobs }
    }

    /// Runs jobs as they fall due and works on their tasks, until `stop`; then waits for the runs under way, which stop after their
    /// page. No job runs twice at once: in this process by `is_running`, over all processes by the lease.
    /// Runs are started on a tick alone, so that a job that cannot begin costs a look now and then.
    pub async fn run(&self, stop: CancellationToken) -> Result<(), JobSchedulerError> {
        let tick = Arc::new(Notify::new());
        let mut ticker = ticker(Arc::clone(&tick)).await?;
        let mut known: HashMap<String, Known> = HashMap::new();
        let mut tasks: HashMap<tokio::task::Id, String> = HashMap::new();
        let mut runs: JoinSet<Ran> = JoinSet::new();
        let mut beside = Tasks::default();
        let mut sweeps = Sweeps::default();
        while !stop.is_cancelled() {
            tokio::select! {
                () = tick.notified() => {}
                () = tokio::time::sleep(TICK_OVERDUE) => tracing::warn!("the ticker is late"),
                Some(ended) = runs.join_next_with_id() => {
                    let (id, ran) = match ended {
                        Ok((id, ran)) => (id, ran),
                        Err(error) => {
                            tracing::error!(%error, "a run ended unexpectedly; its lease runs out by itself");
                            (error.id(), Ran::default())
                        }
                    };
                    let job = tasks.remove(&id).unwrap_or_default();
                    self.tell_of_skipped(&job, &ran);
                    let known = known.entry(job.clone()).or_default();
                    if let Some(error) = ran.error.as_ref().filter(|_| known.pause.is_zero()) {
                        tracing::error!(%job, %error, "the store failed; the job is tried again");
                    }
                    if known.is_to_be_told(ran.asks.as_deref(), self.engine.clock.now()) {
                        tracing::warn!(%job, "{}", ran.asks.as_deref().unwrap_or_default());
                    }
                    self.ended(known, ran.row);
                    continue;
                }
                () = beside.go_on(&self.engine, &self.jobs, &stop) => continue,
                () = sweeps.ended(&self.engine) => continue,
                () = stop.cancelled() => break,
            }
            for job in &self.jobs {
                let known = known.entry(job.name.clone()).or_default();
                if !self.is_due(job, known) {
                    continue;
                }
                let task = runs.spawn(run_due(Arc::clone(&self.engine), Arc::clone(job), stop.clone()));
                known.is_running = true;
                tasks.insert(task.id(), job.name.clone());
            }
            beside.ask(&self.engine);
            sweeps.begin(&self.engine, &self.jobs, &stop);
        }
        let shut_down = ticker.shutdown().await;
        while runs.join_next().await.is_some() {}
        beside.drain().await;
        sweeps.drain().await;
        shut_down
    }

    /// Whether a job looks due by what this process last knew, or nothing is known of it; the run asks the store. It is
    /// never asked here: while it does not answer, all other jobs would wait.
    fn is_due(&self, job: &Job, known: &Known) -> bool {
        let now = self.engine.clock.now();
        if known.is_running || known.not_before.is_some_and(|not_before| now < not_before) {
            return false;
        }
        known.row.as_ref().is_none_or(|row| self.engine.is_due(job, row))
    }

    /// Says how often a job came due in vain because its own run was still under way.
    fn tell_of_skipped(&self, name: &str, ran: &Ran) {
        let job = self.jobs.iter().find(|job| job.name == name);
        let began = ran.row.as_ref().filter(|_| ran.has_run).and_then(|row| row.last_fire);
        let (Some(job), Some(began)) = (job, began) else { return };
        let skipped = job.schedule.skipped(began, self.engine.clock.now(), MOST_SKIPPED);
        if skipped > 0 {
            tracing::info!(
                job = name,
                skipped_overlap = skipped,
                "the run took longer than the job's interval"
            );
        }
    }

    /// Takes in how a run ended: the row as it then was. A job that is still due did not run, for whatever
    /// reason, and is left alone for a while that grows.
    fn ended(&self, known: &mut Known, row: Option<JobRow>) {
        known.is_running = false;
        let moved = match (&known.row, &row) {
            (Some(before), Some(after)) => before.last_fire != after.last_fire && !after.is_cut_off,
            (None, Some(_)) => true,
            (_, None) => false,
        };
        if moved {
            (known.not_before, known.pause) = (None, Duration::ZERO);
        } else {
            known.leave_alone(self.engine.clock.now());
        }
        known.row = row;
    }
}

impl Known {
    /// Whether what a job asks is to be told now: where it is new, and now and then after.
    fn is_to_be_told(&mut self, asks: Option<&str>, now: Instant) -> bool {
        let Some(asks) = asks else {
            self.asked = None;
            return false;
        };
        let is_told =
            self.asked.as_ref().is_some_and(|(asked, at)| asked == asks && now < at.plus(TOLD_EVERY));
        if !is_told {
            self.asked = Some((asks.to_owned(), now));
        }
        !is_told
    }

    fn leave_alone(&mut self, now: Instant) {
        self.pause = (self.pause * 2).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        self.not_before = Some(now.plus(self.pause));
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

/// What came of a job that looked due.
#[derive(Debug, Default)]
struct Ran {
    /// Its row as it is afterwards, where the store can tell.
    row: Option<JobRow>,
    /// It was run, and by this process.
    has_run: bool,
    /// What it asked instead, because it was edited.
    asks: Option<String>,
    /// How the store failed, so that it did not begin.
    error: Option<StoreError>,
}

/// Looks whether a job is due, and runs it.
async fn run_due(engine: Arc<Engine>, job: Arc<Job>, stop: CancellationToken) -> Ran {
    match run_known(&engine, &job, &stop).await {
        Ok(report) => Ran {
            row: engine.store.find_job(&job.name).await.ok().flatten(),
            has_run: report.as_ref().is_some_and(|report| report.run.is_some()),
            asks: report.filter(|report| report.status == RunStatus::Asks).and_then(|report| report.reason),
            error: None,
        },
        Err(error) => Ran { error: Some(error), ..Ran::default() },
    }
}

/// The run of a job, without a lease where it is not due: somebody else may want it meanwhile.
async fn run_known(
    engine: &Engine,
    job: &Arc<Job>,
    stop: &CancellationToken,
) -> Result<Option<RunReport>, StoreError> {
    let row = engine.register(job).await?;
    if engine.is_due(job, &row) { engine.run(job, Trigger::Due, stop).await } else { Ok(None) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_cannot_begin_is_left_alone_for_longer_and_longer() {
        let mut known = Known::default();
        let pauses = (0..8).map(|_| {
            known.leave_alone(Instant::from_seconds(0));
            known.not_before.unwrap().seconds()
        });
        assert_eq!(pauses.collect::<Vec<_>>(), [1, 2, 4, 8, 16, 30, 30, 30]);
    }

    #[test]
    fn what_a_job_asks_is_told_when_it_is_new_and_now_and_then_after() {
        let mut known = Known::default();
        // hour, asked, told
        let looks = [
            (0, None, false),
            (0, Some("a"), true),
            (1, Some("a"), false),
            (2, Some("b"), true),
            (7, Some("b"), false),
            (8, Some("b"), true),
            (9, None, false),
            (9, Some("b"), true),
        ];
        for (hour, asks, told) in looks {
            assert_eq!(
                known.is_to_be_told(asks, Instant::from_seconds(hour * 3600)),
                told,
                "{hour} {asks:?}"
            );
        }
    }
}
