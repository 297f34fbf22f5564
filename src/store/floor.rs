//! The floor as a page meets it. It stands in the job's progress and moves under the locks of the job's row and of its
//! open tasks, one of which a page holds: the run may have begun when it stood lower.

use std::collections::HashSet;

use super::{
    JobLease, StoreError,
    dialect::{Dialect, sql},
    rows,
    run::WHOLE,
};
use crate::domain::{
    key::RecordKey,
    page::{PageRules, SeenRecord},
    version::Version,
};

/// The rules of a page with the floor where it stands now. The job's row must be held.
pub(super) async fn under<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    rules: &PageRules,
) -> Result<PageRules, StoreError> {
    let mut rules = rules.clone();
    if let Some(floor) = rules.floor {
        let row = sql::<DB>("SELECT floor FROM progress WHERE job = $1 AND partition = $2");
        let row = row.bind(lease.job.0).text(WHOLE).first(db).await?;
        let at = row.map(|row| rows::get::<DB, Option<i64>>(&row, "floor")).transpose()?.flatten();
        rules.floor = Some(floor.raised_to(at.map(Version)));
    }
    Ok(rules)
}

/// The keys of the records that the floor bars, since nothing is known of them: these need no row.
pub(super) async fn barred<DB: Dialect>(
    db: &mut DB::Connection,
    lease: &JobLease,
    rules: &PageRules,
    records: &[&SeenRecord],
) -> Result<HashSet<RecordKey>, StoreError> {
    let is_below = |record: &&&SeenRecord| rules.floor.is_some_and(|floor| floor.bars(record.version));
    let mut barred: HashSet<RecordKey> =
        records.iter().filter(is_below).map(|record| record.key.clone()).collect();
    if barred.is_empty() {
        return Ok(barred);
    }
    let keys: Vec<_> = barred.iter().map(RecordKey::as_str).collect();
    // CROSS JOIN: SQLite reads the page first and looks each of its keys up.
    let known = sql::<DB>(
        "SELECT record.key FROM {each_text}($3{json}) AS seen CROSS JOIN record
         WHERE record.job = $1 AND record.partition = $2 AND record.key = seen.value AND record.hash IS NOT NULL",
    )
    .bind(lease.job.0)
    .text(WHOLE)
    .bind(serde_json::to_string(&keys)?)
    .all(db)
    .await?;
    for row in &known {
        barred.remove(&RecordKey::from_stored(rows::get::<DB, _>(row, "key")?));
    }
    Ok(barred)
}
