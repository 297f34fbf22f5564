//! Where SQLite and PostgreSQL differ, and nothing else: how a writing transaction begins, a few words of
//! SQL, which errors are worth a second try, and whether one process can tell another.
//!
//! Statements are written once, in the SQL that both databases share; the words in braces that stand in
//! [`Dialect::WORDS`] are the exceptions. A page's rows travel as one JSON text that the database expands.

use futures::future::BoxFuture;
use sqlx::{
    Arguments, AssertSqlSafe, ColumnIndex, Database, Decode, Encode, Executor, IntoArguments, Pool, Postgres,
    Row, Sqlite, Type, error::BoxDynError, postgres::PgConnectOptions,
};

use super::{
    news::{Listener, News},
    tidy,
};

/// A database that the store can stand on.
pub trait Dialect:
    Runs
    + Binds<i64>
    + Binds<bool>
    + Binds<String>
    + Binds<Option<i64>>
    + Binds<Option<String>>
    + Binds<Vec<u8>>
    + Reads<i64>
    + Reads<bool>
    + Reads<String>
    + Reads<Option<i64>>
    + Reads<Option<bool>>
    + Reads<Option<String>>
    + Reads<Option<Vec<u8>>>
{
    /// How a transaction begins that is going to write.
    const BEGIN: &'static str;

    /// How a transaction begins that sees one moment of the database, and only reads.
    const SNAPSHOT: &'static str;

    /// What the words in braces are here.
    const WORDS: &'static [(&'static str, &'static str)];

    /// Codes of errors after which the database has undone the whole transaction, or never began it, for
    /// the sake of another one: the same work may simply be done again.
    const RETRIED: &'static [&'static str];

    /// How other processes are told of events of the destination `$1`; `None` where that is not possible.
    const TELL: Option<&'static str>;

    /// Draws `$1` fences: rows of the `first` of some and their `count`.
    const FENCES: &'static str;

    /// Takes the limits off the time that the statements of this transaction may take; `None` where there are none.
    const UNHURRIED: Option<&'static str>;

    /// How many rows a statement wrote.
    fn written(result: &Self::QueryResult) -> u64;

    /// What a store over `pool` hears from other processes; `None` where nothing is told.
    fn news(pool: &Pool<Self>) -> Option<Box<dyn News>>;

    /// Gives some room that nothing stands on back to the disk; `true` where there is more.
    fn tidy(pool: &Pool<Self>) -> BoxFuture<'_, Result<bool, sqlx::Error>>;
}

impl Dialect for Sqlite {
    // A transaction that reads first and writes later fails at once where another has written between the
    // two, without waiting (field case S1). This one waits for its turn before it reads.
    const BEGIN: &'static str = "BEGIN IMMEDIATE";

    const SNAPSHOT: &'static str = "BEGIN";

    const WORDS: &'static [(&'static str, &'static str)] = &[
        // The clock tells milliseconds as a float: rounded there, where it is exact, and widened after.
        ("{now}", "(CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000)"),
        ("{uid}", "lower(hex(randomblob(16)))"),
        // A writing transaction is alone here, so that there is nothing to lock.
        ("{for_update}", ""),
        ("{skip_locked}", ""),
        ("{each}", "json_each"),
        ("{each_text}", "json_each"),
        ("{bytewise}", "BINARY"),
        ("{json}", ""),
        ("{unhex}", "unhex"),
        ("{hex}", ""),
        ("{strpos}", "instr"),
        ("{instr}", "instr"),
    ];

    const RETRIED: &'static [&'static str] = &["5", "261", "517"];

    const FENCES: &'static str =
        "UPDATE fence SET last = last + $1 RETURNING last - $1 + 1 AS first, $1 AS count";

    const TELL: Option<&'static str> = None;
    const UNHURRIED: Option<&'static str> = None;

    fn written(result: &Self::QueryResult) -> u64 {
        result.rows_affected()
    }

    fn news(_pool: &Pool<Self>) -> Option<Box<dyn News>> {
        None
    }

    fn tidy(pool: &Pool<Self>) -> BoxFuture<'_, Result<bool, sqlx::Error>> {
        Box::pin(tidy::tidy(pool))
    }
}

impl Dialect for Postgres {
    // Named, so that a server with another default changes nothing: each statement sees what was committed
    // before it began, which the outbox relies on.
    const BEGIN: &'static str = "BEGIN ISOLATION LEVEL READ COMMITTED";

    const SNAPSHOT: &'static str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

    const WORDS: &'static [(&'static str, &'static str)] = &[
        ("{now}", "CAST(floor(extract(epoch FROM statement_timestamp()) * 1000000) AS BIGINT)"),
        ("{uid}", "replace(CAST(gen_random_uuid() AS TEXT), '-', '')"),
        // No lock here is for a row's key, and the full one would keep others from storing rows that refer to it: a page
        // of a task from storing records of its job, whose row a live page holds while it waits for one of these records.
        ("{for_update}", "FOR NO KEY UPDATE"),
        ("{skip_locked}", "FOR UPDATE SKIP LOCKED"),
        ("{each}", "json_array_elements"),
        ("{each_text}", "json_array_elements_text"),
        ("{bytewise}", "\"C\""),
        ("{json}", "::json"),
        ("{unhex}", "decode"),
        ("{hex}", ", 'hex'"),
        ("{strpos}", "strpos"),
        ("{instr}", "pg_catalog.\"position\""),
    ];

    const RETRIED: &'static [&'static str] = &["40001", "40P01"];

    // A number that is drawn is gone, also where the transaction is undone.
    const FENCES: &'static str = "SELECT nextval('fence') AS first, CAST(1 AS BIGINT) AS count
         FROM generate_series(CAST(1 AS BIGINT), $1)";

    // The database tells nobody before the transaction has committed, and the same once however often it is said.
    const TELL: Option<&'static str> = Some("SELECT pg_notify('onlynew_events', $1)");
    const UNHURRIED: Option<&'static str> = Some("SET LOCAL statement_timeout = 0");

    fn written(result: &Self::QueryResult) -> u64 {
        result.rows_affected()
    }

    fn news(pool: &Pool<Self>) -> Option<Box<dyn News>> {
        Some(Box::new(Listener::new(PgConnectOptions::clone(&pool.connect_options()))))
    }

    fn tidy(_pool: &Pool<Self>) -> BoxFuture<'_, Result<bool, sqlx::Error>> {
        // Its own autovacuum does.
        Box::pin(std::future::ready(Ok(false)))
    }
}

/// A database that runs statements: the bounds that sqlx needs for it, said once.
pub trait Runs: Database {
    /// Runs a statement for its rows.
    fn all(
        connection: &mut Self::Connection,
        sql: String,
        arguments: Self::Arguments,
    ) -> BoxFuture<'_, Result<Vec<Self::Row>, sqlx::Error>>;

    /// Runs a statement for what it writes.
    fn run(
        connection: &mut Self::Connection,
        sql: String,
        arguments: Self::Arguments,
    ) -> BoxFuture<'_, Result<Self::QueryResult, sqlx::Error>>;
}

impl<DB: Database> Runs for DB
where
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
    DB::Arguments: IntoArguments<DB> + 'static,
{
    fn all(
        connection: &mut DB::Connection,
        sql: String,
        arguments: DB::Arguments,
    ) -> BoxFuture<'_, Result<Vec<DB::Row>, sqlx::Error>> {
        connection.fetch_all(sqlx::query_with(AssertSqlSafe(sql), arguments))
    }

    fn run(
        connection: &mut DB::Connection,
        sql: String,
        arguments: DB::Arguments,
    ) -> BoxFuture<'_, Result<DB::QueryResult, sqlx::Error>> {
        connection.execute(sqlx::query_with(AssertSqlSafe(sql), arguments))
    }
}

/// A database that takes a `T` as a parameter.
pub trait Binds<T>: Database {
    /// Adds a parameter.
    fn bind(arguments: &mut Self::Arguments, value: T) -> Result<(), BoxDynError>;
}

impl<DB: Database, T> Binds<T> for DB
where
    T: for<'q> Encode<'q, DB> + Type<DB>,
{
    fn bind(arguments: &mut DB::Arguments, value: T) -> Result<(), BoxDynError> {
        arguments.add(value)
    }
}

/// A database that has columns of `T`.
pub trait Reads<T>: Database {
    /// The value of a column.
    fn read(row: &Self::Row, column: &str) -> Result<T, sqlx::Error>;
}

impl<DB: Database, T> Reads<T> for DB
where
    T: for<'r> Decode<'r, DB> + Type<DB>,
    for<'i> &'i str: ColumnIndex<DB::Row>,
{
    fn read(row: &DB::Row, column: &str) -> Result<T, sqlx::Error> {
        row.try_get(column)
    }
}

/// A statement with its parameters, `$1` and on, in order.
pub struct Statement<DB: Dialect> {
    sql: &'static str,
    arguments: Result<DB::Arguments, BoxDynError>,
}

/// Starts a statement in the shared SQL.
pub fn sql<DB: Dialect>(sql: &'static str) -> Statement<DB> {
    Statement { sql, arguments: Ok(DB::Arguments::default()) }
}

impl<DB: Dialect> Statement<DB> {
    /// Adds the next parameter.
    pub fn bind<T>(mut self, value: T) -> Self
    where
        DB: Binds<T>,
    {
        self.arguments = self.arguments.and_then(|mut arguments| {
            <DB as Binds<T>>::bind(&mut arguments, value)?;
            Ok(arguments)
        });
        self
    }

    /// Adds a text. NUL, which PostgreSQL cannot keep in a text, becomes the sign for it.
    pub fn text(self, value: &str) -> Self {
        self.bind(without_nul(value))
    }

    /// The rows it returns.
    pub async fn all(self, connection: &mut DB::Connection) -> Result<Vec<DB::Row>, sqlx::Error> {
        let arguments = self.arguments.map_err(sqlx::Error::Encode)?;
        DB::all(connection, spelled::<DB>(self.sql), arguments).await
    }

    /// The first row it returns.
    pub async fn first(self, connection: &mut DB::Connection) -> Result<Option<DB::Row>, sqlx::Error> {
        Ok(self.all(connection).await?.into_iter().next())
    }

    /// The one row it always returns.
    pub async fn one(self, connection: &mut DB::Connection) -> Result<DB::Row, sqlx::Error> {
        self.first(connection).await?.ok_or(sqlx::Error::RowNotFound)
    }

    /// How many rows it wrote.
    pub async fn run(self, connection: &mut DB::Connection) -> Result<u64, sqlx::Error> {
        let arguments = self.arguments.map_err(sqlx::Error::Encode)?;
        Ok(DB::written(&DB::run(connection, spelled::<DB>(self.sql), arguments).await?))
    }
}

/// Lets the statements of this transaction take as long as they need: what they read grows with the store.
pub async fn unhurried<DB: Dialect>(db: &mut DB::Connection) -> Result<(), sqlx::Error> {
    match DB::UNHURRIED {
        Some(statement) => sql::<DB>(statement).run(db).await.map(drop),
        None => Ok(()),
    }
}

/// A text as both databases can keep it.
pub fn without_nul(text: &str) -> String {
    text.replace('\0', "\u{2400}")
}

/// The statement in the database's own words. It is made of literals of this crate alone.
fn spelled<DB: Dialect>(sql: &'static str) -> String {
    DB::WORDS.iter().fold(sql.to_owned(), |sql, (word, meaning)| sql.replace(word, meaning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_databases_know_the_same_words() {
        let words =
            |list: &[(&'static str, &'static str)]| list.iter().map(|(word, _)| *word).collect::<Vec<_>>();
        assert_eq!(words(Sqlite::WORDS), words(Postgres::WORDS));
    }

    #[test]
    fn a_statement_is_spelled_in_the_words_of_its_database() {
        let statement = "SELECT {unhex}(value ->> 'h'{hex}) FROM {each}($1{json}) {for_update}";
        assert_eq!(
            spelled::<Postgres>(statement),
            "SELECT decode(value ->> 'h', 'hex') FROM json_array_elements($1::json) FOR NO KEY UPDATE"
        );
        assert_eq!(spelled::<Sqlite>(statement), "SELECT unhex(value ->> 'h') FROM json_each($1) ");
    }
}
