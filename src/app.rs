//! The application: a configuration, a store and the parts that work on them, put together once for every
//! command.

mod replay;

pub use replay::{By, Replayed, Told};

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use tokio::{
    sync::{broadcast, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    config::{Config, destination::Destination, job::Job},
    connector::{Http, HttpOptions, Tokens},
    domain::{clock::Clock, run::RunStatus},
    engine::{Engine, RunReport, Trigger},
    intake::{Writer, intake},
    limit::{Limits, SystemClock},
    outbox::Dispatcher,
    schedule::{Janitor, Planner},
    server::Server,
    store::{self, JobRow, JobView, News, Store, StoreError, SweepView},
};

/// How long a stopping process waits for what is under way, at least: a delivery gets its whole timeout.
const GRACE: Duration = Duration::from_secs(25);
/// How long it then waits for the store.
const CLOSE_WAIT: Duration = Duration::from_secs(5);

/// How many reports a slow listener may fall behind.
const REPORTS_KEPT: usize = 256;

/// Everything a command needs.
#[derive(Debug)]
pub struct App {
    /// What the person wrote.
    pub config: Config,
    /// Where everything is kept.
    pub store: Arc<dyn Store>,
    /// What runs jobs.
    pub engine: Arc<Engine>,
}

/// How a `sync` came out.
#[derive(Debug)]
pub struct Synced {
    /// The run.
    pub report: RunReport,
    /// Events of the job delivered by this sync.
    pub delivered: u64,
    /// Events of the job that still wait.
    pub pending: u64,
    /// Dead letters of the job.
    pub dead: u64,
    /// Dead letters that this sync made.
    pub newly_dead: u64,
    /// Why the last attempt that did not deliver failed.
    pub delivery_error: Option<String>,
    /// Why the store could not be asked any more once the run was over.
    pub store_error: Option<StoreError>,
}

/// How a `sweep` came out.
#[derive(Debug)]
pub struct Swept {
    /// Where the sweep stands.
    pub sweep: SweepView,
    /// The last run of it that this process did.
    pub report: Option<RunReport>,
    /// Another process works on it.
    pub is_elsewhere: bool,
    /// Events of the job delivered meanwhile.
    pub delivered: u64,
    /// Events of the job that still wait.
    pub pending: u64,
}

impl App {
    /// Opens the store of a configuration and puts the parts together. Jobs that were renamed take what is stored under
    /// their old names over when they are next worked on; a warning tells of it until then.
    pub async fn open(config: Config) -> Result<Self> {
        let store = store::open(&config.store).await?;
        let app = Self::new(config, store, Arc::new(SystemClock))?;
        for job in app.config.jobs.values() {
            if let Some(before) = app.engine.name_to_take_over(job).await? {
                let name = &job.name;
                tracing::warn!("what is kept of `{before}` is taken over by `{name}` when that is next run");
            }
        }
        Ok(app)
    }

    /// Puts the parts together over a store and a clock.
    pub fn new(config: Config, store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Result<Self> {
        let engine = Engine {
            store: Arc::clone(&store),
            http: Http::new(HttpOptions::default(), config.allow_private.clone())
                .context("cannot set up HTTP")?,
            limits: Arc::new(Limits::new(Arc::clone(&clock))),
            tokens: Arc::new(Tokens::kept_in(Arc::clone(&store))),
            clock,
            owner: format!("{}-{:08x}", std::process::id(), fastrand::u32(..)),
            fresh: watch::Sender::new(0),
            reports: broadcast::Sender::new(REPORTS_KEPT),
        };
        Ok(Self { config, store, engine: Arc::new(engine) })
    }

    /// The job's row, also where it has its old name still.
    pub async fn row_of(&self, job: &Job) -> Result<Option<JobRow>, StoreError> {
        let before = self.engine.name_to_take_over(job).await?;
        self.store.find_job(before.unwrap_or(&job.name)).await
    }

    /// What a person sees of a job, also where it has its old name still.
    pub async fn view_of(&self, job: &Job) -> Result<Option<JobView>, StoreError> {
        let before = self.engine.name_to_take_over(job).await?;
        self.store.job_view(before.unwrap_or(&job.name)).await
    }

    /// Turns events that wait for a destination which their job no longer names over to the one it does.
    async fn readdress(&self, job: &Job) -> Result<()> {
        let row = self.engine.register(job).await?;
        let moved = self.store.readdress(row.id, &job.destination.name).await?;
        if moved > 0 {
            tracing::info!(job = %job.name, events = moved, destination = %job.destination.name, "waiting events go to the job's new destination");
        }
        Ok(())
    }

    /// One run of a job now, and the delivery of what it stored and what was already due.
    pub async fn sync(&self, job: &Arc<Job>, stop: &CancellationToken) -> Result<Synced> {
        self.readdress(job).await?;
        let dispatcher = self.dispatcher(&job.destination)?;
        let before = self.store.job_view(&job.name).await?;
        let report = self.engine.run(job, Trigger::Manual, stop).await?;
        let mut synced = Synced {
            report: report.context("a run asked for by hand is never put off")?,
            delivered: 0,
            pending: 0,
            dead: 0,
            newly_dead: 0,
            delivery_error: None,
            store_error: None,
        };
        let deliver = async {
            // Whoever syncs by hand may just have mended what was wrong there.
            self.store.probe_destination(&job.destination.name).await?;
            let drained = dispatcher.drain(stop).await?;
            Ok((drained, self.store.job_view(&job.name).await?))
        };
        match deliver.await {
            Ok((drained, view)) => {
                let view = view.context("the job has no row in the store")?;
                let progress = view.progress.unwrap_or_default();
                synced.report = synced.report.with_watermark(job, progress.watermark);
                synced.delivered = drained.delivered.get(&view.row.id).copied().unwrap_or_default();
                synced.delivery_error = drained.last_error;
                (synced.pending, synced.dead) = (view.pending, view.dead);
                synced.newly_dead = view.dead.saturating_sub(before.map_or(0, |before| before.dead));
            }
            Err(error) => synced.store_error = Some(error),
        }
        Ok(synced)
    }

    /// A sweep of a job now, as far as it may go, and the delivery of what it stored. `None` where the job has not read
    /// yet what stood when it began.
    pub async fn sweep(&self, job: &Arc<Job>, stop: &CancellationToken) -> Result<Option<Swept>> {
        self.readdress(job).await?;
        let Some(task) = self.engine.ask_for_sweep(job).await? else { return Ok(None) };
        let mut last = None;
        let is_elsewhere = loop {
            let task = self.store.task(task).await?.context("the sweep has no task in the store")?;
            if task.worker.is_some() {
                break true;
            }
            match self.engine.work(job, &task, stop).await? {
                // What it has read may show at once what is gone.
                Some(report) if report.status == RunStatus::Ok => last = Some(report),
                Some(report) => {
                    last = Some(report);
                    break false;
                }
                None => break false,
            }
        };
        let drained = self.dispatcher(&job.destination)?.drain(stop).await?;
        let view = self.store.job_view(&job.name).await?.context("the job has no row in the store")?;
        let sweep = self.store.last_sweep(view.row.id).await?.context("the sweep is gone")?;
        let delivered = drained.delivered.get(&view.row.id).copied().unwrap_or_default();
        Ok(Some(Swept { sweep, report: last, is_elsewhere, delivered, pending: view.pending }))
    }

    /// Runs all jobs on their schedules and delivers their events until `stop`, then lets what is under way
    /// end.
    pub async fn run(&self, stop: CancellationToken) -> Result<()> {
        for job in self.config.jobs.values() {
            self.readdress(job).await?;
        }
        let mut tasks: JoinSet<Result<()>> = JoinSet::new();
        if let Some((server, writer)) = self.server().await? {
            let (stop, engine) = (stop.clone(), Arc::clone(&self.engine));
            tasks.spawn(async move { server.serve(stop).await.context("the server failed") });
            tasks.spawn(async move {
                writer.run(|| engine.fresh.send_modify(|count| *count += 1)).await;
                Ok(())
            });
        }
        let mut grace = GRACE;
        for destination in self.destinations() {
            grace = grace.max(destination.timeout + Duration::from_secs(5));
            let dispatcher = self.dispatcher(&destination)?;
            let (fresh, stop) = (self.engine.fresh.subscribe(), stop.clone());
            tasks.spawn(async move {
                dispatcher.run(fresh, stop).await;
                Ok(())
            });
        }
        if let Some(news) = self.store.news() {
            let (woken, stop) = (self.wake_on(news), stop.clone());
            tasks.spawn(async move {
                stop.run_until_cancelled(woken).await;
                Ok(())
            });
        }
        let (janitor, swept) = (self.janitor(), stop.clone());
        tasks.spawn(async move {
            janitor.run(swept).await;
            Ok(())
        });
        let planner = Planner::new(Arc::clone(&self.engine), self.config.jobs.values().cloned().collect());
        let planned = stop.clone();
        tasks.spawn(async move { planner.run(planned).await.context("the ticker failed") });

        let mut outcome = Ok(());
        let until_stopped = async {
            while let Some(ended) = tasks.join_next().await {
                outcome = std::mem::replace(&mut outcome, Ok(()))
                    .and(ended.context("a part ended unexpectedly").flatten());
                stop.cancel();
            }
        };
        let too_long = async {
            stop.cancelled().await;
            tokio::time::sleep(grace).await;
        };
        tokio::select! {
            () = until_stopped => {}
            () = too_long => tracing::warn!("what was under way did not end in time; its leases run out by themselves"),
        }
        if tokio::time::timeout(CLOSE_WAIT, self.store.close()).await.is_err() {
            tracing::warn!("the store did not close in time; what it was writing is whole or undone");
        }
        outcome
    }

    /// The server, listening, and what stores for its hooks; `None` where none is asked for.
    async fn server(&self) -> Result<Option<(Server, Writer)>> {
        let Some(settings) = &self.config.server else { return Ok(None) };
        let mut hooks = Vec::new();
        for hook in self.config.hooks.values() {
            let row = self.store.register_job(&hook.name, None).await?;
            let moved = self.store.readdress(row.id, &hook.destination.name).await?;
            if moved > 0 {
                tracing::info!(hook = %hook.name, events = moved, destination = %hook.destination.name, "waiting events go to the hook's new destination");
            }
            hooks.push((Arc::clone(hook), row));
        }
        let (intake, writer) = intake(Arc::clone(&self.store));
        let scopes = self.config.scopes.clone();
        let server = Server::bind(settings, Arc::clone(&self.store), scopes, hooks, intake).await;
        let server = server.with_context(|| format!("cannot listen on {}", settings.listen))?;
        tracing::info!(address = %server.address()?, "the server listens");
        Ok(Some((server, writer)))
    }

    /// What keeps the store as small as `retention` says.
    pub fn janitor(&self) -> Janitor {
        Janitor::new(Arc::clone(&self.store), &self.config)
    }

    /// Wakes the dispatchers, for ever, when events of one of their destinations are told of.
    fn wake_on(&self, mut news: Box<dyn News>) -> impl Future<Output = ()> + use<> {
        let engine = Arc::clone(&self.engine);
        let ours: BTreeSet<_> =
            self.destinations().iter().map(|destination| destination.name.clone()).collect();
        async move {
            loop {
                if news.next().await.is_none_or(|destination| ours.contains(&destination)) {
                    engine.fresh.send_modify(|count| *count += 1);
                }
            }
        }
    }

    /// All destinations of the jobs and the hooks, by name.
    fn destinations(&self) -> Vec<Arc<Destination>> {
        let by_name: BTreeMap<_, _> = self
            .config
            .jobs
            .values()
            .map(|job| &job.destination)
            .chain(self.config.hooks.values().map(|hook| &hook.destination))
            .map(|destination| (destination.name.clone(), Arc::clone(destination)))
            .collect();
        by_name.into_values().collect()
    }

    fn dispatcher(&self, destination: &Arc<Destination>) -> Result<Dispatcher> {
        Dispatcher::new(Arc::clone(&self.store), Arc::clone(&self.engine.clock), Arc::clone(destination))
            .with_context(|| format!("cannot set up deliveries to {}", destination.name))
    }
}
