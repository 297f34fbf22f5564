//! Opens a store by its URL: connections with the right settings, and the schema brought up to date.
//! Migrations go forward only; two processes that open one database at once take turns.

use std::{borrow::Cow, path::Path, str::FromStr, sync::Arc, time::Duration};

use sqlx::{
    ConnectOptions, Connection, PgConnection, Pool, SqlSafeStr, Sqlite,
    error::DatabaseError,
    migrate::{Migrate, MigrateError, Migration, MigrationType, Migrator},
    postgres::{PgConnectOptions, PgPoolOptions},
    sqlite::{
        SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous,
    },
};

use super::{Store, StoreError, dialect::Dialect, sql_store::SqlStore};

/// How long a writer waits for another process that writes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// How long anything waits for a free connection. Longer than the busy timeout, since the writers of one
/// process wait for one another here.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(30);

/// How many connections read a SQLite file beside the one that writes.
const READERS: u32 = 4;

/// How many connections a process holds to PostgreSQL.
const POSTGRES_CONNECTIONS: u32 = 10;

/// How long PostgreSQL may take over a statement, and over a lock that another session holds: whoever waits
/// longer waits for something that will not come by itself.
const PATIENCE: [(&str, &str); 2] = [("statement_timeout", "60s"), ("lock_timeout", "15s")];

/// What the write-ahead log is cut back to after a checkpoint, in bytes (field case S8).
const JOURNAL_LIMIT: &str = "67108864";

/// Opens `sqlite://PATH` (made where it is missing; relative paths start at the working directory) or
/// `postgres://…`, and brings its schema up to date. A SQLite file is made readable by its owner alone.
pub async fn open(url: &str) -> Result<Arc<dyn Store>, StoreError> {
    match url.split_once("://") {
        Some(("sqlite", path)) if !path.is_empty() && path != ":memory:" => open_sqlite(url, path).await,
        Some(("postgres" | "postgresql", _)) => open_postgres(url).await,
        _ => Err(StoreError::Url(shown_url(url))),
    }
}

async fn open_sqlite(url: &str, path: &str) -> Result<Arc<dyn Store>, StoreError> {
    let failed = |source| StoreError::Open { url: url.to_owned(), source };
    let is_new = make_private_file(Path::new(path)).map_err(|error| failed(sqlx::Error::Io(error)))?;
    let options = SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(BUSY_TIMEOUT)
        .foreign_keys(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .pragma("journal_size_limit", JOURNAL_LIMIT);
    let pool =
        || SqlitePoolOptions::new().acquire_timeout(ACQUIRE_TIMEOUT).idle_timeout(None).max_lifetime(None);
    // A file that is not new keeps what it was made with, and to ask a connection for it is to write.
    let vacuum = if is_new { Some(SqliteAutoVacuum::Incremental) } else { None };
    let made = vacuum.map_or(options.clone(), |vacuum| options.clone().auto_vacuum(vacuum));
    // The change to WAL cannot wait for another process that is just making it, so it is asked for again.
    let mut tries = 0;
    let first = loop {
        match made.connect().await {
            Err(error) if tries < 20 && is_retried::<Sqlite>(&error) => {
                tries += 1;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            opened => break opened.map_err(failed)?,
        }
    };
    let writer = pool().max_connections(1).connect_with(options.clone()).await.map_err(failed)?;
    first.close().await.map_err(failed)?;
    migrate_sqlite(&writer, &sqlite_migrations()).await?;
    let readers = pool()
        .max_connections(READERS)
        .connect_with(options.pragma("query_only", "ON"))
        .await
        .map_err(failed)?;
    Ok(Arc::new(SqlStore::new(writer, readers)))
}

async fn open_postgres(url: &str) -> Result<Arc<dyn Store>, StoreError> {
    let failed = |source| StoreError::Open { url: shown_url(url), source };
    let options =
        PgConnectOptions::from_str(url).map_err(failed)?.application_name("onlynew").options(PATIENCE);
    // A connection of its own first: a pool would go on knocking at a server that is not there. A migration takes as
    // long as it takes: one that is cut off would be begun again at every start.
    let unhurried = options.clone().options([("statement_timeout", "0")]);
    let mut connection = PgConnection::connect_with(&unhurried).await.map_err(failed)?;
    // sqlx locks for the whole session, which therefore ends here, whether it migrated or failed.
    let migrated = run(&postgres_migrations(), &mut connection).await;
    let closed = connection.close().await;
    migrated?;
    closed?;
    let pool = PgPoolOptions::new()
        .max_connections(POSTGRES_CONNECTIONS)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .connect_lazy_with(options);
    Ok(Arc::new(SqlStore::new(pool.clone(), pool)))
}

/// Whether the file is new. SQLite's log and index files take over its mode.
fn make_private_file(path: &Path) -> std::io::Result<bool> {
    let mut options = std::fs::OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    Ok(options.open(path)?.metadata()?.len() == 0)
}

/// All migrations inside one writing transaction: sqlx does not lock a SQLite file while it migrates.
async fn migrate_sqlite(pool: &Pool<Sqlite>, migrations: &Migrator) -> Result<(), StoreError> {
    let mut transaction = pool.begin_with(Sqlite::BEGIN).await?;
    run(migrations, &mut *transaction).await?;
    transaction.commit().await?;
    Ok(())
}

/// sqlx's own way round a future that the compiler cannot tell to be `Send`; `Migrator::run` is this.
async fn run<C: Migrate>(migrations: &Migrator, connection: &mut C) -> Result<(), StoreError> {
    let known = migrations.iter().map(|migration| migration.version).max().unwrap_or(0);
    migrations.run_direct(None, connection, false).await.map_err(|error| match error {
        MigrateError::VersionMissing(found) if found > known => StoreError::Newer { found, known },
        error => StoreError::Migrate(error),
    })
}

pub(super) fn is_retried<DB: Dialect>(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(DatabaseError::code);
    code.is_some_and(|code| DB::RETRIED.contains(&code.as_ref()))
}

/// The migrations of a database, from the files of its folder.
macro_rules! migrations {
    ($folder:literal) => {
        migrations!($folder,
            1 "0001_start", 2 "0002_failures", 3 "0003_token", 4 "0004_quarantine", 5 "0005_conflict",
            6 "0006_reading", 7 "0007_destination", 8 "0008_redelivery", 9 "0009_message", 10 "0010_sighting",
            11 "0011_identity", 12 "0012_retention", 13 "0013_task", 14 "0014_replay_events", 15 "0015_sweep",
            16 "0016_run_of_kind", 17 "0017_gate", 18 "0018_lock", 19 "0019_hook")
    };
    ($folder:literal, $($version:literal $name:literal),+) => {
        Migrator::with_migrations(vec![
            $(migration($version, $name, include_str!(concat!("../../migrations/", $folder, "/", $name, ".sql")))),+
        ])
    };
}

fn sqlite_migrations() -> Migrator {
    migrations!("sqlite")
}

fn postgres_migrations() -> Migrator {
    migrations!("postgres")
}

/// Named as its file is, less the number.
fn migration(version: i64, file: &'static str, sql: &'static str) -> Migration {
    let name = file.split_once('_').map_or(file, |(_, name)| name);
    Migration::new(version, Cow::Borrowed(name), MigrationType::Simple, sql.into_sql_str(), false)
}

/// A store's URL as it may be shown: without a password and without the query, which may hold one.
pub fn shown_url(url: &str) -> String {
    match url::Url::parse(url) {
        Ok(mut parsed) => {
            parsed.set_query(None);
            // Fails only for URLs that cannot have a password.
            let _ = parsed.password().is_some().then(|| parsed.set_password(Some("***")));
            parsed.into()
        }
        Err(_) => "(unreadable)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_migrations_is_run_in_its_turn() {
        for (folder, migrator) in [("sqlite", sqlite_migrations()), ("postgres", postgres_migrations())] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(folder);
            let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name());
            let mut files: Vec<_> = files.map(|name| name.into_string().unwrap()).collect();
            files.sort();
            let run = migrator
                .iter()
                .map(|migration| format!("{:04}_{}.sql", migration.version, migration.description))
                .collect::<Vec<_>>();
            assert_eq!(run, files);
        }
    }
}
