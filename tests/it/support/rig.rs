//! A source, a database and an n8n stand-in, and the engine between them: in this process with a clock
//! that does not wait, or as the real binary, which can be killed.

use std::{
    path::PathBuf,
    process::Stdio,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use onlynew::{
    app::{App, Synced},
    config,
    domain::{
        clock::{Clock, Wait, machine_time},
        identity::Answer,
        instant::Instant,
    },
    engine::Answered,
    limit::SystemClock,
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use super::{
    database::Database,
    server::{Asked, Reply, Server},
};

/// A clock that is right but for the waits it has passed over.
#[derive(Debug, Default)]
pub struct HastyClock {
    skipped: AtomicU64,
    stands_at: Mutex<Option<Instant>>,
    /// The waits that were asked for.
    pub waits: Mutex<Vec<Duration>>,
}

impl HastyClock {
    /// From now on the time is this, plus the waits passed over.
    pub fn stand_at(&self, at: Instant) {
        *self.stands_at.lock().unwrap() = Some(at);
    }
}

impl Clock for HastyClock {
    fn now(&self) -> Instant {
        let now = self.stands_at.lock().unwrap().unwrap_or_else(machine_time);
        now.plus(Duration::from_micros(self.skipped.load(Ordering::SeqCst)))
    }

    fn sleep(&self, duration: Duration) -> Wait<'_> {
        self.skipped.fetch_add(u64::try_from(duration.as_micros()).unwrap(), Ordering::SeqCst);
        self.waits.lock().unwrap().push(duration);
        Box::pin(tokio::task::yield_now())
    }
}

/// The one variable that a story's jobs file may name.
pub const SECRET: &str = "s3cr3t-of-the-environment";

fn variable(name: &str) -> Option<String> {
    (name == "SECRET").then(|| SECRET.to_owned())
}

/// Everything a story needs.
pub struct Rig {
    pub database: Database,
    pub source: Server,
    pub receiver: Server,
    pub clock: Arc<HastyClock>,
    folder: TempDir,
    jobs: Mutex<String>,
}

/// The parts of a jobs file that a story may set. The rest is a source of `$.items` with `id` and
/// `updated_at`.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    pub query: &'a str,
    pub pagination: &'a str,
    /// Further lines of the source, indented by six.
    pub source: &'a str,
    /// Further lines of the job, indented by four.
    pub rest: &'a str,
}

impl Default for Job<'_> {
    fn default() -> Self {
        Self {
            query: r#"{since: "{{ window.start }}", cursor: "{{ page.token }}"}"#,
            pagination: "{type: cursor, token_path: $.next}",
            source: "incremental: {field: updated_at}",
            rest: "",
        }
    }
}

impl Rig {
    /// A rig over an n8n that accepts everything.
    pub async fn new(
        database: Database,
        job: Job<'_>,
        source: impl Fn(&Asked) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let rig = Self {
            database,
            source: Server::new(source).await,
            receiver: Server::new(|_| Reply::status(200)).await,
            clock: Arc::default(),
            folder: tempfile::tempdir().unwrap(),
            jobs: Mutex::default(),
        };
        rig.configure(job);
        rig
    }

    /// Sets the jobs file: one job, `rows`.
    pub fn configure(&self, job: Job<'_>) {
        let Job { query, pagination, source, rest } = job;
        let text = format!(
            r#"
store: "{store}"
destinations:
  n8n: {{url: "{receiver}/webhook/rows", concurrency: 8, timeout: 2s, retry: {{delays: [50ms]}}}}
jobs:
  rows:
    source:
      base_url: "{origin}"
      request: {{path: /rows, query: {query}}}
      records: {{path: $.items}}
      primary_key: [id]
      pagination: {pagination}
      {source}
    every: 1s
    first_run: emit
    destination: n8n
    {rest}
"#,
            store = self.database.url(),
            receiver = self.receiver.url,
            origin = self.source.url,
        );
        self.configure_with(text);
    }

    /// Sets the jobs file to one whose first run is a baseline.
    pub fn configure_baseline(&self) {
        self.rewrite("first_run: emit", "first_run: baseline");
    }

    /// Sets how often the job is due.
    pub fn configure_every(&self, period: &str) {
        self.rewrite("every: 1s", &format!("every: {period}"));
    }

    /// Reads from another source than the rig's own, until it is configured anew.
    pub fn read_from(&self, url: &str) {
        let text = self.jobs.lock().unwrap().replace(&self.source.url, url);
        self.configure_with(text);
    }

    /// Calls the destination something else.
    pub fn rename_destination(&self, name: &str) {
        self.rewrite("  n8n:", &format!("  {name}:"));
        self.rewrite("destination: n8n", &format!("destination: {name}"));
    }

    /// Puts a text in the place of another one in the jobs file.
    pub fn rewrite(&self, from: &str, to: &str) {
        let jobs = self.jobs.lock().unwrap().clone();
        assert!(jobs.contains(from), "{jobs}");
        self.configure_with(jobs.replace(from, to));
    }

    /// Sets the jobs file as a whole.
    pub fn configure_with(&self, text: String) {
        std::fs::write(self.jobs_file(), &text).unwrap();
        *self.jobs.lock().unwrap() = text;
    }

    /// Puts a file beside the jobs file.
    pub fn add_file(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Where such a file stands.
    pub fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn jobs_file(&self) -> PathBuf {
        self.folder.path().join("jobs.yaml")
    }

    /// The application over this rig's jobs file, database and clock.
    pub async fn app(&self) -> App {
        self.app_by(Arc::clone(&self.clock) as Arc<dyn Clock>).await
    }

    /// The same with a clock that waits.
    pub async fn real_time_app(&self) -> App {
        self.app_by(Arc::new(SystemClock)).await
    }

    /// The same with this clock.
    pub async fn app_by(&self, clock: Arc<dyn Clock>) -> App {
        let config =
            match config::load_str("jobs.yaml", &self.jobs.lock().unwrap(), self.folder.path(), &variable) {
                Ok(config) => config,
                Err(errors) => panic!("{errors}"),
            };
        App::new(config, self.database.open().await, clock).unwrap()
    }

    /// One `sync` in this process.
    pub async fn sync(&self) -> Synced {
        let app = self.app().await;
        let job = Arc::clone(&app.config.jobs["rows"]);
        let synced = app.sync(&job, &CancellationToken::new()).await.unwrap();
        app.store.close().await;
        synced
    }

    /// A person says that the job goes on with what is stored, however it was edited.
    pub async fn keep(&self) {
        let app = self.app().await;
        let job = Arc::clone(&app.config.jobs["rows"]);
        let row = app.engine.register(&job).await.unwrap();
        let answered = app.engine.answer(&job, &row, Answer::Keep, false).await.unwrap();
        assert!(matches!(answered, Answered::Kept(_) | Answered::Unedited), "{answered:?}");
        app.store.close().await;
    }

    /// The real binary with these arguments, under way.
    pub fn spawn(&self, arguments: &[&str]) -> Child {
        self.spawn_with(arguments, &[])
    }

    /// The same with these variables.
    fn spawn_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Child {
        Command::new(env!("CARGO_BIN_EXE_onlynew"))
            .arg("--config")
            .arg(self.jobs_file())
            .args(arguments)
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    /// The real binary with these arguments, to its end: exit code, last line as JSON, standard error.
    pub async fn command(&self, arguments: &[&str]) -> (i32, Value, String) {
        self.command_with(arguments, &[]).await
    }

    /// The same with these variables.
    pub async fn command_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> (i32, Value, String) {
        let output = self.spawn_with(arguments, variables).wait_with_output().await.unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        let last = stdout.lines().last().unwrap_or_default();
        let json = serde_json::from_str(last).unwrap_or(Value::Null);
        (output.status.code().unwrap_or(-1), json, String::from_utf8(output.stderr).unwrap())
    }

    /// What a crash leaves behind runs out: leases of jobs and of events.
    pub async fn leases_run_out(&self) {
        for leased in ["job", "task"] {
            let run_out = format!("UPDATE {leased} SET lease_until = 0 WHERE lease_owner IS NOT NULL");
            self.database.tamper(&run_out).await;
        }
        self.database.tamper("UPDATE outbox_head SET due_at = 0").await;
        self.database.tamper("UPDATE destination SET not_before = NULL").await;
    }

    /// The events that n8n has been sent, as (key, type), in order.
    pub fn sent(&self) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        self.receiver
            .asked()
            .iter()
            .map(Asked::json)
            .map(|event| (text(&event["key"]), text(&event["type"])))
            .collect()
    }

    /// The keys of the events that n8n has been sent, sorted.
    pub fn sent_keys(&self) -> Vec<String> {
        let mut keys: Vec<_> = self.sent().into_iter().map(|(key, _)| key).collect();
        keys.sort();
        keys
    }

    /// Whether the job has a watermark.
    pub async fn has_watermark(&self) -> bool {
        self.database.number("(SELECT count(*) FROM progress WHERE watermark IS NOT NULL)").await > 0
    }
}

/// Rows of `{id, updated_at}` as a page of `$.items`, filtered by `since`, oldest first, `size` a page, the
/// next page's token being the number of rows read.
pub fn page_of(rows: &[(u32, &str)], asked: &Asked, size: usize) -> Reply {
    let rows: Vec<_> = rows.iter().map(|(id, at)| serde_json::json!({"id": id, "updated_at": at})).collect();
    page_of_values(&rows, asked, size)
}

/// The same of whole records.
pub fn page_of_values(rows: &[Value], asked: &Asked, size: usize) -> Reply {
    let since: Option<Instant> = asked.query.get("since").map(|since| since.parse().unwrap());
    let at = |row: &Value| row["updated_at"].as_str().and_then(|at| at.parse::<Instant>().ok());
    let mut rows: Vec<&Value> =
        rows.iter().filter(|row| since.is_none_or(|since| at(row).is_none_or(|at| at >= since))).collect();
    rows.sort_by_key(|row| at(row));
    let start: usize = asked.param("cursor").parse().unwrap_or(0);
    let items: Vec<_> = rows.iter().skip(start).take(size).collect();
    let next = (start + size < rows.len()).then(|| (start + size).to_string());
    Reply::Json(serde_json::json!({"items": items, "next": next}).to_string())
}
