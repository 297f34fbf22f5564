//! A source whose rows come, change, go and hide, in a time of its own that the database follows.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use onlynew::{
    app::App,
    config::job::Job as ConfiguredJob,
    domain::{clock::machine_time, instant::Instant, run::RunStatus, task::TaskId},
    engine::{RunReport, Trigger},
    store::SweepView,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    database::Database,
    rig::{Job, Rig},
    server::{Asked, Reply},
};

/// A row of the source.
#[derive(Clone, Debug)]
pub struct Row {
    pub version: Instant,
    pub content: u32,
    /// The source does not list it before.
    pub shown_from: Instant,
}

/// What the source holds.
#[derive(Debug)]
pub struct Shelf {
    pub now: Instant,
    pub rows: BTreeMap<u32, Row>,
    /// Rows that it holds and does not list.
    pub hidden: BTreeSet<u32>,
    /// Answers with an error from this row of a listing on.
    pub fails_at: Option<usize>,
    /// Rows of which it lists nothing but nonsense.
    pub garbled: BTreeSet<u32>,
    /// Rows that change between two pages, the last one first.
    pub restless: Vec<u32>,
    /// How many rows a page has.
    pub page: usize,
}

impl Shelf {
    /// Puts a row there, or changes it, at this moment.
    pub fn put(&mut self, id: u32) {
        let (version, shown_from) = (self.now, self.now);
        let content = self.rows.get(&id).map_or(0, |row| row.content + 1);
        self.rows.insert(id, Row { version, content, shown_from });
    }

    /// Takes a row away.
    pub fn take(&mut self, id: u32) {
        self.rows.remove(&id);
    }

    fn list(&mut self, asked: &Asked) -> Reply {
        let since: Option<Instant> = asked.query.get("since").map(|since| since.parse().unwrap());
        let mut rows: Vec<_> = self
            .rows
            .iter()
            .filter(|(id, row)| row.shown_from <= self.now && !self.hidden.contains(id))
            .filter(|(_, row)| since.is_none_or(|since| row.version >= since))
            .collect();
        rows.sort_by_key(|(id, row)| (row.version, **id));
        // The next page begins behind the last row, wherever that stands by then.
        let behind = asked
            .param("cursor")
            .split_once(' ')
            .map(|(version, id)| (version.parse::<Instant>().unwrap(), id.parse::<u32>().unwrap()));
        let place = |id: u32, row: &Row| (row.version, id);
        let start =
            rows.iter().filter(|(id, row)| behind.is_some_and(|behind| place(**id, row) <= behind)).count();
        if self.fails_at.is_some_and(|at| start >= at) {
            return Reply::status(400);
        }
        let page: Vec<_> = rows.iter().skip(start).take(self.page).collect();
        let next = page.last().filter(|_| start + self.page < rows.len());
        let next = next.map(|(id, row)| format!("{} {id}", row.version));
        let items: Vec<Value> = page
            .iter()
            .map(|(id, row)| {
                let at = if self.garbled.contains(*id) { json!("soon") } else { json!(row.version) };
                json!({"id": id, "updated_at": at, "content": row.content})
            })
            .collect();
        let date = self.now.timestamp().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        if let Some(id) = self.restless.pop().filter(|id| self.rows.contains_key(id)) {
            self.put(id);
        }
        Reply::Status(
            200,
            vec![("date", date), ("content-type", "application/json".to_owned())],
            json!({"items": items, "next": next}).to_string(),
        )
    }
}

/// The source with a job on it.
pub struct Shop {
    pub rig: Rig,
    pub shelf: Arc<Mutex<Shelf>>,
    pub app: App,
}

/// How far a live run looks back, and so D.
pub const LOOKBACK: Duration = Duration::from_mins(1);

/// The job's lines: swept on a person's word alone, as it were.
pub const SWEPT: &str =
    "window: {lookback: 1m}\n    deletes: {mode: reconcile, every: 365d, max_ratio: 100%}";

impl Shop {
    /// A shop with these rows, put there a while ago.
    pub async fn new(database: Database, rest: &str, ids: impl IntoIterator<Item = u32>) -> Self {
        Self::of(database, Job { rest, ..Job::default() }, ids).await
    }

    /// The same with a job of another form.
    pub async fn of(database: Database, job: Job<'_>, ids: impl IntoIterator<Item = u32>) -> Self {
        // To the second, as the header tells it, and in the past, as the database's clock has it.
        let now = Instant::from_seconds(machine_time().seconds()).minus(Duration::from_hours(24 * 60));
        let mut shelf = Shelf {
            now,
            rows: BTreeMap::new(),
            hidden: BTreeSet::new(),
            fails_at: None,
            garbled: BTreeSet::new(),
            restless: Vec::new(),
            page: 2,
        };
        ids.into_iter().for_each(|id| shelf.put(id));
        let shelf = Arc::new(Mutex::new(shelf));
        let listed = Arc::clone(&shelf);
        let rig = Rig::new(database, job, move |asked| listed.lock().unwrap().list(asked)).await;
        rig.clock.stand_at(now);
        let app = rig.app().await;
        let shop = Self { rig, shelf, app };
        shop.pass(LOOKBACK * 5).await;
        shop
    }

    /// Takes the jobs file in anew.
    pub async fn restart(&mut self) {
        self.app.store.close().await;
        self.app = self.rig.app().await;
    }

    /// Changes the source.
    pub fn change(&self, change: impl FnOnce(&mut Shelf)) {
        change(&mut self.shelf.lock().unwrap());
    }

    /// Lets time pass, for the source, for us and for the database, which finds all that it knows older by so much.
    pub async fn pass(&self, by: Duration) {
        let now = {
            let mut shelf = self.shelf.lock().unwrap();
            shelf.now = shelf.now.plus(by);
            shelf.now
        };
        self.rig.clock.stand_at(now);
        let by = by.as_micros();
        let mut beside = self.rig.database.connect().await;
        for aged in [
            "sighting SET decided_at = decided_at",
            "record SET changed_at = changed_at",
            "run SET ended_at = ended_at",
            "run SET started_at = started_at",
            "task SET created_at = created_at",
            "sweep SET read_at = read_at",
        ] {
            beside.tamper(&format!("UPDATE {aged} - {by}")).await;
        }
    }

    pub fn job(&self) -> &Arc<ConfiguredJob> {
        &self.app.config.jobs["rows"]
    }

    /// A live run.
    pub async fn poll(&self) -> RunReport {
        let report = self.app.engine.run(self.job(), Trigger::Manual, &CancellationToken::new()).await;
        report.unwrap().unwrap()
    }

    /// A live run that has to be good.
    pub async fn poll_well(&self) {
        let report = self.poll().await;
        assert_eq!(report.status, RunStatus::Ok, "{report:?}");
    }

    /// Opens a sweep, or goes on with the one that is open: one run of it, or what comes after its last one.
    pub async fn sweep(&self) -> Option<RunReport> {
        let task = self.app.engine.ask_for_sweep(self.job()).await.unwrap().unwrap();
        self.work(task).await
    }

    pub async fn work(&self, task: TaskId) -> Option<RunReport> {
        let task = self.app.store.task(task).await.unwrap().unwrap();
        self.app.engine.work(self.job(), &task, &CancellationToken::new()).await.unwrap()
    }

    /// Has the open sweep marked, if it may be: after a live run that began D later.
    pub async fn confirm(&self) -> SweepView {
        self.pass(LOOKBACK).await;
        self.poll_well().await;
        self.judge().await
    }

    /// Brings the newest sweep as far as it may go.
    pub async fn judge(&self) -> SweepView {
        let sweep = self.newest().await;
        self.work(sweep.task).await;
        self.newest().await
    }

    /// The newest sweep.
    pub async fn newest(&self) -> SweepView {
        let row = self.app.store.find_job("rows").await.unwrap().unwrap();
        self.app.store.last_sweep(row.id).await.unwrap().unwrap()
    }

    /// The events so far, as `key type`, in order.
    pub async fn told(&self) -> Vec<String> {
        self.rig.database.texts("SELECT key || ' ' || kind FROM event ORDER BY position").await
    }

    /// The keys whose deletion was told of, in order.
    pub async fn deleted(&self) -> Vec<String> {
        let told = self.told().await;
        told.iter().filter_map(|told| told.strip_suffix(" record.deleted").map(str::to_owned)).collect()
    }
}
