//! A fresh database for each test, of both kinds. PostgreSQL databases are made on the cluster that
//! `ONLYNEW_TEST_POSTGRES` names, a URL of a superuser; without it that half of the suite is passed over,
//! unless `ONLYNEW_REQUIRE_POSTGRES=1` says that it must run.

use std::sync::Arc;

use onlynew::store::{Store, open};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row, SqliteConnection, sqlite::SqliteConnectOptions};
use tempfile::TempDir;

/// A database of its own, which goes away with this value.
pub struct Database {
    url: String,
    place: Place,
}

enum Place {
    Sqlite {
        /// Removed with its files when it is dropped.
        _folder: TempDir,
    },
    Postgres {
        admin: String,
        name: String,
    },
}

/// Makes two tests of each function over a [`Database`]: `sqlite::NAME` and `postgres::NAME`.
#[macro_export]
macro_rules! both {
    ($($name:ident),+ $(,)?) => {
        mod sqlite {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
                async fn $name() {
                    super::$name($crate::support::database::Database::sqlite()).await;
                }
            )+
        }
        mod postgres {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
                async fn $name() {
                    if let Some(database) = $crate::support::database::Database::postgres().await {
                        super::$name(database).await;
                    }
                }
            )+
        }
    };
}

impl Database {
    /// A SQLite file in a folder of its own.
    pub fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("onlynew.db").display());
        Self { url, place: Place::Sqlite { _folder: folder } }
    }

    /// A SQLite file that costs no disk where the machine has a folder in memory: for tests by the thousand.
    pub fn sqlite_in_memory() -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let url = format!("sqlite://{}", folder.path().join("onlynew.db").display());
        Self { url, place: Place::Sqlite { _folder: folder } }
    }

    /// A PostgreSQL database; `None` where there is no cluster to make it on.
    pub async fn postgres() -> Option<Self> {
        let Ok(admin) = std::env::var("ONLYNEW_TEST_POSTGRES") else {
            let required = std::env::var("ONLYNEW_REQUIRE_POSTGRES").is_ok_and(|value| value == "1");
            assert!(!required, "ONLYNEW_REQUIRE_POSTGRES is set, but ONLYNEW_TEST_POSTGRES names no cluster");
            eprintln!("SKIPPED the PostgreSQL half: ONLYNEW_TEST_POSTGRES names no cluster");
            return None;
        };
        // Two processes that start in the same moment draw the same numbers.
        let name = format!("onlynew_{}_{:016x}", std::process::id(), fastrand::u64(..));
        let mut connection = PgConnection::connect(&admin).await.unwrap();
        sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut connection).await.unwrap();
        let mut url = url::Url::parse(&admin).unwrap();
        url.set_path(&name);
        Some(Self { url: url.into(), place: Place::Postgres { admin, name } })
    }

    /// The database as `store:` names it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Opens it, as one process does.
    pub async fn open(&self) -> Arc<dyn Store> {
        open(&self.url).await.unwrap()
    }

    /// Opens it twice, as two processes do.
    pub async fn open_two(&self) -> (Arc<dyn Store>, Arc<dyn Store>) {
        (self.open().await, self.open().await)
    }

    /// A connection of its own, behind the store's back.
    pub async fn connect(&self) -> Beside {
        match self.place {
            Place::Sqlite { .. } => {
                let made = self.url.parse::<SqliteConnectOptions>().unwrap().create_if_missing(true);
                Beside::Sqlite(SqliteConnection::connect_with(&made).await.unwrap())
            }
            Place::Postgres { .. } => Beside::Postgres(PgConnection::connect(&self.url).await.unwrap()),
        }
    }

    /// Runs a statement behind the store's back.
    pub async fn tamper(&self, sql: &str) {
        self.connect().await.tamper(sql).await;
    }

    /// Makes every `operation` (`INSERT`, `UPDATE` or `DELETE`) on `table` fail whose row meets `condition`,
    /// which names it `NEW` or `OLD`.
    pub async fn break_on(&self, table: &str, operation: &str, condition: &str) {
        match self.place {
            Place::Sqlite { .. } => {
                self.tamper(&format!(
                    "CREATE TRIGGER broken_{table} BEFORE {operation} ON {table} WHEN {condition}
                     BEGIN SELECT RAISE(ABORT, 'broken by the test'); END"
                ))
                .await;
            }
            Place::Postgres { .. } => {
                self.tamper(
                    "CREATE OR REPLACE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql
                     AS 'BEGIN RAISE EXCEPTION ''broken by the test''; END'",
                )
                .await;
                self.tamper(&format!(
                    "CREATE TRIGGER broken_{table} BEFORE {operation} ON {table} FOR EACH ROW
                     WHEN ({condition}) EXECUTE FUNCTION broken()"
                ))
                .await;
            }
        }
    }

    /// Makes every `operation` on `table` whose row meets `condition` take longer than any test, or on PostgreSQL, where
    /// nobody stops it once its process is gone, a few seconds.
    pub async fn stall_on(&self, table: &str, operation: &str, condition: &str) {
        match self.place {
            Place::Sqlite { .. } => {
                let endless = ["job"; 40].iter().enumerate().map(|(at, table)| format!("{table} AS t{at}"));
                let endless = endless.collect::<Vec<_>>().join(", ");
                self.tamper("INSERT INTO job (name, uid) VALUES ('beside', 'beside')").await;
                self.tamper(&format!(
                    "CREATE TRIGGER broken_{table} BEFORE {operation} ON {table} WHEN {condition}
                     BEGIN SELECT count(*) FROM {endless} WHERE t0.id + t39.id < 0; END"
                ))
                .await;
            }
            Place::Postgres { .. } => {
                self.tamper(
                    "CREATE OR REPLACE FUNCTION stalled() RETURNS trigger LANGUAGE plpgsql
                     AS 'BEGIN PERFORM pg_sleep(3); RETURN NEW; END'",
                )
                .await;
                self.tamper(&format!(
                    "CREATE TRIGGER broken_{table} BEFORE {operation} ON {table} FOR EACH ROW
                     WHEN ({condition}) EXECUTE FUNCTION stalled()"
                ))
                .await;
            }
        }
    }

    /// Takes back what [`Self::break_on`] or [`Self::stall_on`] did to `table`.
    pub async fn mend(&self, table: &str) {
        match self.place {
            Place::Sqlite { .. } => self.tamper(&format!("DROP TRIGGER broken_{table}")).await,
            Place::Postgres { .. } => self.tamper(&format!("DROP TRIGGER broken_{table} ON {table}")).await,
        }
    }

    /// Waits until a session of this PostgreSQL database waits for a lock, and says since when and for which statement.
    pub async fn until_one_waits(&self) -> String {
        let mut beside = self.connect().await;
        let deadline = std::time::Instant::now() + std::time::Duration::from_mins(1);
        loop {
            assert!(std::time::Instant::now() < deadline, "nobody waits for a lock");
            let waiting = beside.texts(
                "SELECT CAST(query_start AS TEXT) || ' ' || query FROM pg_stat_activity
                 WHERE datname = current_database() AND wait_event_type = 'Lock' ORDER BY query_start",
            );
            if let Some(first) = waiting.await.into_iter().next() {
                return first;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    /// The texts of a query's only column, which must be a text.
    pub async fn texts(&self, sql: &str) -> Vec<String> {
        self.connect().await.texts(sql).await
    }

    /// The number that `SELECT {expression}` finds.
    pub async fn number(&self, expression: &str) -> i64 {
        let found = self.texts(&format!("SELECT CAST({expression} AS TEXT)")).await;
        found.first().unwrap().parse().unwrap()
    }
}

/// What does not hold in a store that must hold at every moment.
pub async fn unsound(store: &Arc<dyn Store>) -> Option<String> {
    let checked = store.verify().await.unwrap();
    let broken = checked.iter().filter(|checked| !checked.found.is_empty());
    let told: Vec<_> = broken.map(|checked| format!("{}: {:?}", checked.check.name, checked.found)).collect();
    (!told.is_empty()).then(|| told.join("; "))
}

/// A connection behind the store's back.
pub enum Beside {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

impl Beside {
    /// Runs a statement.
    pub async fn tamper(&mut self, sql: &str) {
        let sql = AssertSqlSafe(sql.to_owned());
        match self {
            Self::Sqlite(connection) => drop(sqlx::query(sql).execute(connection).await.unwrap()),
            Self::Postgres(connection) => drop(sqlx::query(sql).execute(connection).await.unwrap()),
        }
    }

    /// Runs many statements.
    pub async fn script(&mut self, sql: &str) {
        let sql = AssertSqlSafe(sql.to_owned());
        match self {
            Self::Sqlite(connection) => drop(sqlx::raw_sql(sql).execute(connection).await.unwrap()),
            Self::Postgres(connection) => drop(sqlx::raw_sql(sql).execute(connection).await.unwrap()),
        }
    }

    /// The texts of a query's only column, which must be a text.
    pub async fn texts(&mut self, sql: &str) -> Vec<String> {
        let sql = AssertSqlSafe(sql.to_owned());
        match self {
            Self::Sqlite(connection) => {
                let rows = sqlx::query(sql).fetch_all(connection).await.unwrap();
                rows.iter().map(|row| row.get(0)).collect()
            }
            Self::Postgres(connection) => {
                let rows = sqlx::query(sql).fetch_all(connection).await.unwrap();
                rows.iter().map(|row| row.get(0)).collect()
            }
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let Place::Postgres { admin, name } = &self.place else { return };
        let (admin, statement) = (admin.clone(), format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"));
        // A runtime of its own: the test's cannot be waited for in here.
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                if let Ok(mut connection) = PgConnection::connect(&admin).await {
                    let _ = sqlx::query(AssertSqlSafe(statement)).execute(&mut connection).await;
                }
            });
        });
        let _ = dropped.join();
    }
}
