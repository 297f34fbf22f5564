//! What must hold in the store at every moment, each as one statement that finds what does not. It only reads.

mod checks;

use super::{
    StoreError,
    dialect::{Dialect, sql, unhurried},
    rows,
};

use checks::CHECKS;

/// How many violations of a check are looked for.
const MOST: u32 = 1_000;

/// One thing that must hold.
#[derive(Debug, PartialEq, Eq)]
pub struct Check {
    /// Its name.
    pub name: &'static str,
    /// What must hold.
    pub holds: &'static str,
    /// What a person can do where it does not.
    pub advice: &'static str,
    /// Finds violations, each told in the text `found`, no more than `$1`.
    sql: &'static str,
}

/// A check and the violations that were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The check.
    pub check: &'static Check,
    /// What violates it, in words.
    pub found: Vec<String>,
    /// There are more.
    pub is_capped: bool,
}

/// Does every check.
pub(super) async fn all<DB: Dialect>(db: &mut DB::Connection) -> Result<Vec<Checked>, StoreError> {
    unhurried::<DB>(db).await?;
    let mut checked = Vec::with_capacity(CHECKS.len());
    for check in CHECKS {
        let rows = sql::<DB>(check.sql).bind(i64::from(MOST) + 1).all(db).await?;
        let most = usize::try_from(MOST).unwrap_or(usize::MAX);
        let found = rows.iter().take(most).map(|row| rows::get::<DB, String>(row, "found"));
        let found = found.collect::<Result<_, _>>()?;
        checked.push(Checked { check, found, is_capped: rows.len() > most });
    }
    Ok(checked)
}
