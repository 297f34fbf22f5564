//! A lane: one store, one source and one receiver, on which histories are lived through one after another.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fastrand::Rng;
use futures::FutureExt;
use onlynew::{
    config::{self, job::Job},
    connector::{Http, HttpOptions, Tokens},
    domain::{allow_private::AllowPrivate, run::RunStatus},
    engine::{Engine, RunReport, Trigger},
    limit::Limits,
    outbox::Dispatcher,
    store::{Store, StoreError},
};
use tokio::sync::{Notify, broadcast, watch};
use tokio_util::sync::CancellationToken;

use super::{
    api,
    clock::ModelClock,
    log::Log,
    oracle,
    plan::{Plan, SECOND, chance},
    receiver,
    store::{Fault, WatchedStore},
    world::{Trip, World},
};
use crate::support::{
    database::{Database, unsound},
    server::Server,
    source::Source,
};

/// What the parts of a history share.
#[derive(Debug)]
pub struct Scene {
    world: Mutex<World>,
    log: Mutex<Log>,
    /// The call of the store at which something goes wrong, counted down, and what.
    fault: Mutex<Option<(u32, Fault)>>,
    /// A process has died, or stands still.
    pub died: Notify,
    /// The one that stands still may go on.
    pub thaw: Notify,
}

impl Scene {
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn fault(&self) -> MutexGuard<'_, Option<(u32, Fault)>> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Longer than any history takes, by far: nothing in it waits in real time.
const LONGEST: Duration = Duration::from_secs(20);

/// What came of a history.
#[derive(Debug, Default)]
pub struct Verdict {
    /// What is wrong, and all that is known of how it came to it; empty where all is well.
    pub wrong: String,
    pub runs: u64,
    pub resumed: u64,
    pub events: u64,
    pub deaths: u64,
}

type Run = Pin<Box<dyn Future<Output = Result<Option<RunReport>, StoreError>>>>;

/// How a run or a delivery ended.
enum End<T> {
    Done(T),
    Died,
}

/// Where histories are lived through.
pub struct Lane {
    scene: Arc<Scene>,
    source: Source,
    receiver: Server,
    database: Database,
    store: Arc<dyn Store>,
    http: Http,
    dispatcher: Option<Dispatcher>,
}

impl Lane {
    pub async fn new(database: Database) -> Self {
        let scene = Arc::new(Scene {
            world: Mutex::new(World::new(Plan::of(0))),
            log: Mutex::default(),
            fault: Mutex::default(),
            died: Notify::new(),
            thaw: Notify::new(),
        });
        let (asked, sent) = (Arc::clone(&scene), Arc::clone(&scene));
        let store = Arc::new(WatchedStore { inner: database.open().await, scene: Arc::clone(&scene) });
        Self {
            source: Source::start(move |request| api::answer(&asked, request)).await,
            receiver: Server::new(move |request| receiver::receive(&sent, request)).await,
            scene,
            database,
            store,
            http: Http::new(HttpOptions::default(), AllowPrivate::Auto).unwrap(),
            dispatcher: None,
        }
    }

    /// What does not hold in the store that must hold at every moment.
    pub async fn unsound(&self) -> Option<String> {
        unsound(&self.store).await
    }

    /// Lives through the history that this seed stands for.
    pub async fn live(&mut self, seed: u64) -> Verdict {
        let plan = Plan::of(seed);
        let job = self.begin(&plan);
        let runs = tokio::time::timeout(LONGEST, self.go_through(&plan, &job)).await;
        if runs.is_err() {
            self.scene.log().violations.push("it never came to its end".to_owned());
        }
        self.verdict(runs.unwrap_or_default())
    }

    async fn go_through(&self, plan: &Plan, job: &Arc<Job>) -> u64 {
        let seed = plan.seed;
        let mut rng = Rng::with_seed(seed.wrapping_add(1));
        let mut engine = self.engine();
        let mut frozen: Option<(Run, usize)> = None;
        let mut runs = 0;
        for _ in 0..plan.runs {
            self.idle(&mut rng);
            self.choose_fault(&mut rng, frozen.is_none());
            let run = self.run(&engine, job, self.next_trip()).await;
            runs += 1;
            if let Some(thawed) = frozen.take_if(|_| chance(&mut rng, 0.6)) {
                self.thaw(thawed).await;
            }
            if let Some(unfinished) = run {
                engine = self.engine();
                self.leases_run_out().await;
                frozen = unfinished.or(frozen);
            }
            if chance(&mut rng, 0.7) {
                self.choose_fault(&mut rng, false);
                if self.deliver().await {
                    engine = self.engine();
                    self.leases_run_out().await;
                }
            }
        }
        if let Some(frozen) = frozen {
            self.thaw(frozen).await;
        }
        runs + self.settle(&engine, job).await
    }

    fn begin(&mut self, plan: &Plan) -> Arc<Job> {
        let text = plan.jobs_file(&self.source.url(), &self.receiver.url);
        let config = match config::load_str("jobs.yaml", &text, std::path::Path::new("."), &|_| None) {
            Ok(config) => config,
            Err(errors) => panic!("seed {}: {errors}\n{text}", plan.seed),
        };
        let job = Arc::clone(config.jobs.values().next().unwrap());
        *self.scene.world() = World::new(plan.clone());
        *self.scene.log() = Log::default();
        if self.dispatcher.is_none() {
            let clock = Arc::new(ModelClock(Arc::clone(&self.scene)));
            let destination = Arc::clone(&job.destination);
            self.dispatcher = Some(Dispatcher::new(Arc::clone(&self.store), clock, destination).unwrap());
        }
        job
    }

    /// A process that has just been started.
    fn engine(&self) -> Arc<Engine> {
        let clock = Arc::new(ModelClock(Arc::clone(&self.scene)));
        Arc::new(Engine {
            store: Arc::clone(&self.store),
            http: self.http.clone(),
            limits: Arc::new(Limits::new(Arc::clone(&clock) as _).with_random(|| 0.5)),
            tokens: Arc::new(Tokens::kept_in(Arc::clone(&self.store))),
            clock,
            owner: format!("worker-{}", self.scene.log().era),
            fresh: watch::Sender::new(0),
            reports: broadcast::Sender::new(1),
        })
    }

    /// Time between two runs, sometimes a long one.
    fn idle(&self, rng: &mut Rng) {
        let mut world = self.scene.world();
        for _ in 0..rng.u32(1..=3) {
            world.pass(rng.i64(0..=15 * SECOND));
        }
        if chance(rng, 0.05) {
            world.pass(rng.i64(60 * SECOND..=300 * SECOND));
        }
    }

    /// Whether and where the next run or delivery is let down.
    fn choose_fault(&self, rng: &mut Rng, may_freeze: bool) {
        let crash = self.scene.world().plan.crash;
        self.scene.world().dies_at = None;
        *self.scene.fault() = None;
        if !chance(rng, crash) {
            return;
        }
        if chance(rng, 0.25) {
            self.scene.world().dies_at = Some(rng.u32(0..4));
            return;
        }
        let fault = match rng.u32(0..5) {
            0 => Fault::DiesBefore,
            1 => Fault::DiesAfter,
            2 => Fault::FailsBefore,
            3 => Fault::FailsAfter,
            _ if may_freeze => Fault::Freezes,
            _ => Fault::DiesAfter,
        };
        let most = if fault == Fault::Freezes { 6 } else { 12 };
        *self.scene.fault() = Some((rng.u32(0..most), fault));
    }

    fn next_trip(&self) -> usize {
        let mut world = self.scene.world();
        world.trips.push(Trip::default());
        world.current = world.trips.len() - 1;
        world.current
    }

    /// One run. `Some` where its process died or lost the store; with the run itself where it only stands
    /// still.
    async fn run(&self, engine: &Arc<Engine>, job: &Arc<Job>, trip: usize) -> Option<Option<(Run, usize)>> {
        let (engine, job) = (Arc::clone(engine), Arc::clone(job));
        let mut run: Run =
            Box::pin(async move { engine.run(&job, Trigger::Manual, &CancellationToken::new()).await });
        let freezes = matches!(*self.scene.fault(), Some((_, Fault::Freezes)));
        let faulty = self.scene.fault().is_some() || self.scene.world().dies_at.is_some();
        let ended = self.until_death(&mut run).await;
        let struck = faulty && self.scene.fault().is_none() && self.scene.world().dies_at.is_none();
        *self.scene.fault() = None;
        match ended {
            End::Done(report) => {
                self.ended(trip, report);
                struck.then(|| {
                    self.scene.log().era += 1;
                    None
                })
            }
            End::Died => {
                self.scene.log().era += 1;
                self.tell(format!("run {trip} {}", if freezes { "stands still" } else { "died" }));
                Some(freezes.then_some((run, trip)))
            }
        }
    }

    /// The run that stood still goes on, whatever became of its job meanwhile.
    async fn thaw(&self, (mut run, trip): (Run, usize)) {
        self.scene.world().current = trip;
        self.scene.thaw.notify_one();
        if let End::Done(report) = self.until_death(&mut run).await {
            self.tell(format!("run {trip} goes on"));
            self.ended(trip, report);
        }
    }

    fn ended(&self, trip: usize, report: Result<Option<RunReport>, StoreError>) {
        let (now, watermark) = (self.scene.world().now, self.scene.log().watermark);
        let report = match report {
            Ok(Some(report)) => report,
            other => return self.tell(format!("run {trip} did not begin: {other:?}")),
        };
        self.tell(format!(
            "run {trip} at {now}: {} {} pages {} events W {watermark:?} {}",
            report.status.name(),
            report.pages,
            report.counts.events,
            report.reason.unwrap_or_default(),
        ));
        if report.status == RunStatus::Ok {
            let world = self.scene.world();
            let mut log = self.scene.log();
            let wrong = oracle::complete(&world, &log, trip);
            log.violations.extend(wrong);
        }
    }

    async fn until_death<T>(&self, doing: &mut Pin<Box<dyn Future<Output = T> + '_>>) -> End<T> {
        // A death that nobody waited for is over.
        let _ = self.scene.died.notified().now_or_never();
        tokio::select! {
            biased;
            done = doing => End::Done(done),
            () = self.scene.died.notified() => End::Died,
        }
    }

    /// Delivers what is due; whether the process died of it or lost the store.
    async fn deliver(&self) -> bool {
        let stop = CancellationToken::new();
        let faulty = self.scene.fault().is_some();
        self.scene.world().dies_at = None;
        let ended = {
            let dispatcher = self.dispatcher.as_ref().unwrap();
            let mut drain: Pin<Box<dyn Future<Output = _> + '_>> = Box::pin(dispatcher.drain(&stop));
            self.until_death(&mut drain).await
        };
        let struck = faulty && self.scene.fault().is_none();
        *self.scene.fault() = None;
        if struck {
            self.scene.log().era += 1;
        }
        match ended {
            End::Done(drained) => self.tell(format!("delivery: {drained:?}")),
            End::Died => self.tell("delivery died".to_owned()),
        }
        struck
    }

    async fn leases_run_out(&self) {
        self.database.tamper("UPDATE job SET lease_until = 0 WHERE lease_owner IS NOT NULL").await;
        self.database.tamper("UPDATE outbox_head SET due_at = 0").await;
        self.database.tamper("UPDATE destination SET not_before = NULL").await;
    }

    /// The dust settles: everything becomes visible, nothing goes wrong any more, and two runs in a row
    /// are complete. Returns how many runs it took.
    async fn settle(&self, engine: &Arc<Engine>, job: &Arc<Job>) -> u64 {
        *self.scene.fault() = None;
        {
            let mut world = self.scene.world();
            world.is_calm = true;
            world.dies_at = None;
            world.now += world.plan.lookback + world.plan.settle + 20 * SECOND;
        }
        let mut runs = 0;
        let mut complete = 0;
        while complete < 2 && runs < 12 {
            let trip = self.next_trip();
            let before = self.scene.log().facts.len();
            self.run(engine, job, trip).await;
            runs += 1;
            let finished = self.scene.log().facts[before..]
                .iter()
                .any(|fact| matches!(fact, super::log::Fact::Finish { status } if *status == RunStatus::Ok));
            complete = if finished { complete + 1 } else { 0 };
            let mut world = self.scene.world();
            world.now += world.plan.settle + SECOND;
        }
        if complete < 2 {
            self.scene.log().violations.push("the runs never came to rest".to_owned());
        }
        for _ in 0..5 {
            let view = self.store.job_view(&job.name).await.unwrap().unwrap();
            if view.pending == 0 {
                break;
            }
            self.leases_run_out().await;
            self.deliver().await;
        }
        let view = self.store.job_view(&job.name).await.unwrap().unwrap();
        if (view.pending, view.dead) != (0, 0) {
            let stuck = format!("{} events still wait and {} are dead", view.pending, view.dead);
            self.scene.log().violations.push(stuck);
        }
        runs
    }

    fn tell(&self, what: String) {
        self.scene.log().story.push(what);
    }

    fn verdict(&self, runs: u64) -> Verdict {
        let world = self.scene.world();
        let log = self.scene.log();
        let wrong = oracle::judge(&world, &log);
        let mut text = String::new();
        if !wrong.is_empty() {
            text = format!("{:?}\n\n  wrong:\n", world.plan);
            for wrong in wrong.iter().take(8) {
                text += &format!("    {wrong}\n");
            }
            text += "  story:\n";
            for line in &log.story {
                text += &format!("    {line}\n");
            }
            text += "  rows:\n";
            // Only the rows that something is said of.
            let named = |key: &u32| {
                let (row, event) = (format!("row {key}:"), format!("row {key} "));
                wrong.iter().any(|wrong| wrong.contains(&row) || wrong.contains(&event))
            };
            for (key, states) in world.rows.iter().filter(|(key, _)| named(key)) {
                for state in states {
                    text += &format!("    {key}: {state:?}\n");
                }
            }
        }
        let events = u64::try_from(log.settled.len()).unwrap();
        Verdict { wrong: text, runs, resumed: log.resumed, events, deaths: log.era.into() }
    }
}
