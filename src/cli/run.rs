//! `onlynew run`: all jobs on their schedules, until a signal.

use tokio_util::sync::CancellationToken;

use super::{Exit, Session};
use crate::store::shown_url;

pub(super) async fn run(session: &Session) -> anyhow::Result<Exit> {
    let app = session.open("info").await?;
    let stop = stop_on_signal()?;
    let jobs: Vec<&str> = app.config.jobs.keys().map(String::as_str).collect();
    tracing::info!(jobs = jobs.join(", "), store = shown_url(&app.config.store), "onlynew runs");
    app.run(stop).await?;
    tracing::info!("onlynew has stopped");
    Ok(Exit::Good)
}

/// A token that the first SIGTERM or Ctrl-C cancels. The second one ends the process at once.
pub(super) fn stop_on_signal() -> std::io::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let mut terminate = Signals::new()?;
    tokio::spawn(async move {
        terminate.next().await;
        tracing::info!("stopping: what is under way is brought to its end; a second signal stops at once");
        stopped.cancel();
        terminate.next().await;
        std::process::exit(1);
    });
    Ok(stop)
}

#[cfg(unix)]
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
