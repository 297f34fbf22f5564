//! How one process tells the others that there is something to deliver.
//!
//! On PostgreSQL the transaction that makes events due also sends a notification, which goes out if it commits and then
//! alone. SQLite has nothing of the kind. What is told is a hint and nothing rests on it: dispatchers look by
//! themselves every second, so that a notification that is lost costs no more than that second.

use std::{fmt::Debug, time::Duration};

use async_trait::async_trait;
use sqlx::{
    Executor,
    postgres::{PgConnectOptions, PgListener, PgPoolOptions},
};
use tokio::time::{sleep, timeout};

use super::{
    StoreError,
    dialect::{Dialect, sql, without_nul},
    rows,
};

/// The channel. It belongs to one database.
pub(super) const CHANNEL: &str = "onlynew_events";

/// PostgreSQL takes less than 8000 bytes with a notification.
const LONGEST_NAME: usize = 7999;

/// How long a connection is waited for.
const CONNECT_WAIT: Duration = Duration::from_secs(10);

/// How long nothing is heard before the listener asks whether its connection still stands: one that a router has
/// forgotten is silent for ever.
const SILENCE: Duration = Duration::from_mins(1);

/// How long it waits before it connects again, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// What a store hears of what other processes, and its own, stored in its database.
#[async_trait]
pub trait News: Debug + Send {
    /// Waits until there may be events to deliver, and returns the name of their destination; `None` where that is not
    /// known: it is one whose name is too long to be told, or any, since something may have been missed.
    ///
    /// It comes back once at the start and after each interruption. It never fails: it goes on trying.
    async fn next(&mut self) -> Option<String>;
}

/// Tells that events of a destination are due, once this transaction has committed.
pub(super) async fn tell<DB: Dialect>(db: &mut DB::Connection, destination: &str) -> Result<(), StoreError> {
    if let Some(statement) = DB::TELL {
        let mut name = without_nul(destination);
        if name.len() > LONGEST_NAME {
            name.clear();
        }
        sql::<DB>(statement).bind(name).run(db).await?;
    }
    Ok(())
}

/// The same of the destination of the event at `position`.
pub(super) async fn tell_of<DB: Dialect>(db: &mut DB::Connection, position: i64) -> Result<(), StoreError> {
    if DB::TELL.is_none() {
        return Ok(());
    }
    let event = sql::<DB>("SELECT destination FROM event WHERE position = $1");
    match event.bind(position).first(db).await? {
        Some(row) => tell::<DB>(db, &rows::get::<DB, String>(&row, "destination")?).await,
        None => Ok(()),
    }
}

/// One connection that listens, made anew whenever it is lost.
#[derive(Debug)]
pub(super) struct Listener {
    options: PgConnectOptions,
    /// `None` before the first connection, and where it was lost.
    connection: Option<PgListener>,
    /// How long to wait before the next connection is made.
    pause: Duration,
}

impl Listener {
    pub(super) const fn new(options: PgConnectOptions) -> Self {
        Self { options, connection: None, pause: Duration::ZERO }
    }

    /// Connects, however long that takes, and ever more slowly for as long as nothing is heard.
    async fn connect(&mut self) -> PgListener {
        loop {
            // Up to half as long again, since a server that comes back is awaited by many.
            sleep(self.pause.mul_f64(1.0 + fastrand::f64() / 2.0)).await;
            self.pause = (self.pause * 2).clamp(PAUSES.0, PAUSES.1);
            match listen(&self.options).await {
                Ok(connection) => return connection,
                Err(error) => tracing::warn!(
                    %error,
                    "cannot listen for what other processes store; it is looked for every second"
                ),
            }
        }
    }
}

#[async_trait]
impl News for Listener {
    async fn next(&mut self) -> Option<String> {
        loop {
            let Some(connection) = &mut self.connection else {
                self.connection = Some(self.connect().await);
                // What was told until now was told to nobody here.
                return None;
            };
            match hear(connection).await {
                Ok(heard) => {
                    self.pause = Duration::ZERO;
                    if let Some(name) = heard {
                        return (!name.is_empty()).then_some(name);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the connection that listens for what other processes store was lost");
                    self.connection = None;
                }
            }
        }
    }
}

/// Listens over a connection of its own: the store's are for its work, and this one is never given back.
async fn listen(options: &PgConnectOptions) -> Result<PgListener, sqlx::Error> {
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .max_lifetime(None)
        .idle_timeout(None)
        .acquire_timeout(CONNECT_WAIT)
        .connect_lazy_with(options.clone());
    let mut listener = PgListener::connect_with(&pool).await?;
    // A new connection is made here, and not in the middle of a wait: what it missed has to be looked for.
    listener.eager_reconnect(false);
    answered(listener.listen(CHANNEL)).await?;
    Ok(listener)
}

/// The next notification; `None` where there was none for long and the connection stands.
async fn hear(listener: &mut PgListener) -> Result<Option<String>, sqlx::Error> {
    match timeout(SILENCE, listener.try_recv()).await {
        Ok(heard) => match heard? {
            Some(notification) => Ok(Some(notification.payload().to_owned())),
            None => Err(std::io::Error::from(std::io::ErrorKind::ConnectionAborted).into()),
        },
        Err(_) => answered(listener.execute("SELECT 1")).await.map(|_| None),
    }
}

/// What the server answers, if it does so in time.
async fn answered<T>(asked: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
    timeout(CONNECT_WAIT, asked)
        .await
        .unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()))
}

#[cfg(test)]
mod tests {
    use sqlx::Postgres;

    use super::*;

    #[test]
    fn events_are_told_on_the_channel_that_is_listened_to() {
        assert_eq!(Postgres::TELL, Some(format!("SELECT pg_notify('{CHANNEL}', $1)").as_str()));
    }
}
