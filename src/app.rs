//! The application: a configuration, a store and the parts that work on them, put together once for every
//! command.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use tokio::{
    sync::{broadcast, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    config::{Config, destination::Destination, job::Job},
    connector::{Http, HttpOptions, Tokens},
    domain::clock::Clock,
    engine::{Engine, RunReport, Trigger},
    limit::{Limits, SystemClock},
    outbox::{Dispatcher, Drained},
    schedule::Planner,
    store::{self, Store},
};

/// How long a stopping process waits for what is under way.
const GRACE: Duration = Duration::from_secs(25);

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
    /// What was delivered after it.
    pub drained: Drained,
    /// Events of the job delivered by this sync.
    pub delivered: u64,
    /// Events of the job that still wait.
    pub pending: u64,
    /// Dead letters of the job.
    pub dead: u64,
}

impl App {
    /// Opens the store of a configuration and puts the parts together.
    pub async fn open(config: Config) -> Result<Self> {
        let store = store::open(&config.store).await?;
        Self::new(config, store, Arc::new(SystemClock))
    }

    /// Puts the parts together over a store and a clock.
    pub fn new(config: Config, store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Result<Self> {
        let engine = Engine {
            store: Arc::clone(&store),
            http: Http::new(HttpOptions::default()).context("cannot set up HTTP")?,
            limits: Arc::new(Limits::new(Arc::clone(&clock))),
            tokens: Arc::new(Tokens::kept_in(Arc::clone(&store))),
            clock,
            owner: format!("{}-{:08x}", std::process::id(), fastrand::u32(..)),
            fresh: watch::Sender::new(0),
            reports: broadcast::Sender::new(REPORTS_KEPT),
        };
        Ok(Self { config, store, engine: Arc::new(engine) })
    }

    /// One run of a job now, and the delivery of what it stored and what was already due.
    pub async fn sync(&self, job: &Arc<Job>, stop: &CancellationToken) -> Result<Synced> {
        let report = self
            .engine
            .run(job, Trigger::Manual, stop)
            .await?
            .context("a run asked for by hand is never put off")?;
        let drained = self.dispatcher(&job.destination)?.drain(stop).await?;
        let view = self.store.job_view(&job.name).await?.context("the job has no row in the store")?;
        let delivered = drained.delivered.get(&view.row.id).copied().unwrap_or_default();
        let watermark = view.progress.and_then(|progress| progress.watermark);
        let report = report.with_watermark(job, watermark);
        Ok(Synced { report, drained, delivered, pending: view.pending, dead: view.dead })
    }

    /// Runs all jobs on their schedules and delivers their events until `stop`, then lets what is under way
    /// end.
    pub async fn run(&self, stop: CancellationToken) -> Result<()> {
        let mut tasks: JoinSet<Result<()>> = JoinSet::new();
        for destination in self.destinations() {
            let dispatcher = self.dispatcher(&destination)?;
            let (fresh, stop) = (self.engine.fresh.subscribe(), stop.clone());
            tasks.spawn(async move {
                dispatcher.run(fresh, stop).await;
                Ok(())
            });
        }
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
        let grace = async {
            stop.cancelled().await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            () = until_stopped => {}
            () = grace => tracing::warn!("what was under way did not end in time; its leases run out by themselves"),
        }
        self.store.close().await;
        outcome
    }

    /// All destinations of the jobs, by name.
    fn destinations(&self) -> Vec<Arc<Destination>> {
        let by_name: BTreeMap<_, _> = self
            .config
            .jobs
            .values()
            .map(|job| (job.destination.name.clone(), Arc::clone(&job.destination)))
            .collect();
        by_name.into_values().collect()
    }

    fn dispatcher(&self, destination: &Arc<Destination>) -> Result<Dispatcher> {
        Dispatcher::new(Arc::clone(&self.store), Arc::clone(&self.engine.clock), Arc::clone(destination))
            .with_context(|| format!("cannot set up deliveries to {}", destination.name))
    }
}
