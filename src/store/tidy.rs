//! What SQLite leaves lying about: pages of the file that nothing stands on any more, and the write-ahead log.

use std::time::Duration;

use sqlx::{ConnectOptions, Connection, Executor, Pool, Row, Sqlite};

/// How many pages go back to the disk at once.
const PAGES: u32 = 256;

/// The part of a file that may stand empty, since what is stored next stands there: one in ten.
const SLACK: i64 = 10;

/// How long the end of a checkpoint waits for readers; whoever writes waits meanwhile.
const READERS_WAIT: Duration = Duration::from_millis(100);

/// Gives some of a file's empty pages back; once there are few, writes the log back into the file and cuts it off
/// (field case S8). Returns whether there is more to give back. A file that was not made for it keeps its pages.
pub(super) async fn tidy(writer: &Pool<Sqlite>) -> Result<bool, sqlx::Error> {
    let row = sqlx::query(
        "SELECT freelist_count AS free, page_count AS pages, auto_vacuum AS mode
         FROM pragma_freelist_count(), pragma_page_count(), pragma_auto_vacuum()",
    )
    .fetch_one(writer)
    .await?;
    let [free, pages, mode]: [i64; 3] = [row.try_get("free")?, row.try_get("pages")?, row.try_get("mode")?];
    let is_incremental = mode == 2;
    if is_incremental && free > pages / SLACK {
        // A constant of this module.
        let statement = sqlx::AssertSqlSafe(format!("PRAGMA incremental_vacuum({PAGES})"));
        writer.execute(statement).await?;
        return Ok(true);
    }
    // A connection of its own, which gives up where the writer's would wait. Most is done before, beside all others.
    let options = writer.connect_options().as_ref().clone().busy_timeout(READERS_WAIT);
    let mut connection = options.connect().await?;
    let written = async {
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").await?;
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").await
    };
    let written = written.await;
    connection.close().await?;
    written.map(|_| false)
}
