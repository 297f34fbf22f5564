//! `onlynew demo`: a source with every bad habit, a receiver and the real engine in one process, on an
//! embedded SQLite file in a temporary folder, talking over real sockets.
//!
//! It ends by itself with a check that each change arrived once and in order.

mod receiver;
mod screen;
mod source;
mod verdict;
mod world;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};
use axum::Router;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{app::App, config, domain::clock::Clock, limit::SystemClock};

pub use verdict::Verdict;

/// How long after the last change everything must have arrived.
const SETTLES_WITHIN: Duration = Duration::from_secs(30);
const A_CHANGE_EVERY: Duration = Duration::from_millis(300);

/// Runs the demo, with changes for so long, or until `stop`, and returns what its check found.
pub async fn run(changes_for: Option<Duration>, stop: CancellationToken) -> Result<Verdict> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let world = Arc::new(Mutex::new(world::World::new(clock.now())));
    let received = Arc::new(Mutex::new(receiver::Received::default()));
    let habits = Arc::new(source::Habits::default());
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let source = serve(source::routes(Arc::clone(&world), Arc::clone(&habits), Arc::clone(&clock))).await?;
    let receiver = serve(receiver::routes(Arc::clone(&received))).await?;

    let store = folder.path().join("demo.db");
    let config = config::load_str(
        "demo.yaml",
        &jobs_file(&store.display().to_string(), source, receiver),
        folder.path(),
        &|_| None,
    )
    .map_err(|errors| anyhow::anyhow!("the demo's own jobs file is wrong:\n{errors}"))?;
    let app = App::open(config).await?;
    let screen =
        screen::Screen::new(app.engine.reports.subscribe(), Arc::clone(&habits), Arc::clone(&received));

    let engine_stop = CancellationToken::new();
    let story = async {
        let until = changes_for.map(|length| clock.now().plus(length));
        while !stop.is_cancelled() && until.is_none_or(|until| clock.now() < until) {
            tokio::select! {
                () = clock.sleep(A_CHANGE_EVERY) => {}
                () = stop.cancelled() => {}
            }
            lock(&world).change(clock.now());
            screen.draw();
        }
        lock(&world).rest();
        let deadline = clock.now().plus(SETTLES_WITHIN);
        while clock.now() < deadline && !Verdict::of(&lock(&world), &lock(&received)).is_good() {
            clock.sleep(A_CHANGE_EVERY).await;
            screen.draw();
        }
        // One more poll, so that a repeat would still be seen.
        clock.sleep(Duration::from_secs(2)).await;
        engine_stop.cancel();
    };
    let (ran, ()) = tokio::join!(app.run(engine_stop.clone()), story);
    screen.close();
    ran?;
    let verdict = Verdict::of(&lock(&world), &lock(&received));
    Ok(verdict)
}

/// The jobs file of the demo: what a person would write for such a source.
fn jobs_file(store: &str, source: SocketAddr, receiver: SocketAddr) -> String {
    format!(
        r#"
store: "sqlite://{store}"
destinations:
  receiver:
    url: http://{receiver}/webhook/orders
    concurrency: 4
    timeout: 5s
    retry: {{delays: [500ms, 1s, 1s]}}
jobs:
  orders:
    source:
      base_url: http://{source}
      request:
        path: /orders
        query: {{since: "{{{{ window.start }}}}", page: "{{{{ page.number }}}}"}}
      records: {{path: $.orders}}
      primary_key: [id]
      incremental: {{field: updated_at, format: iso8601, granularity: 1ms}}
      # Rows do move between these pages, faster than two walks could agree; one that slips through is met
      # by a later poll, within the lookback, which is longer than a few polls of so moody a source can take.
      pagination: {{type: page_number, base_page: 1, has_more_path: $.has_more, shifts: false}}
    rate_limit: {{requests: 20, per: 1s}}
    every: 1s
    window: {{lookback: 30s}}
    first_run: emit
    destination: receiver
"#
    )
}

async fn serve(routes: Router) -> Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("cannot listen on 127.0.0.1")?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, routes).await });
    Ok(address)
}

/// The guarded value; a panic of another holder does not spoil plain data.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
