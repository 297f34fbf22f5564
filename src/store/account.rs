//! Accounts that were asked to wait, and the database's time of day.

use super::{
    StoreError,
    dialect::{Dialect, sql},
    rows,
};
use crate::domain::instant::Instant;

pub(super) async fn now<DB: Dialect>(db: &mut DB::Connection) -> Result<Instant, StoreError> {
    rows::instant::<DB>(&sql::<DB>("SELECT {now} AS now").one(db).await?, "now")
}

pub(super) async fn hold<DB: Dialect>(
    db: &mut DB::Connection,
    account: &str,
    until: Instant,
    reason: &str,
) -> Result<(), StoreError> {
    sql::<DB>(
        "INSERT INTO account_hold (account, held_until, reason) VALUES ($1, $2, $3)
         ON CONFLICT (account) DO UPDATE SET held_until = excluded.held_until, reason = excluded.reason
         WHERE account_hold.held_until < excluded.held_until",
    )
    .text(account)
    .bind(until.micros())
    .text(reason)
    .run(db)
    .await?;
    Ok(())
}

pub(super) async fn held_until<DB: Dialect>(
    db: &mut DB::Connection,
    account: &str,
) -> Result<Option<Instant>, StoreError> {
    let row =
        sql::<DB>("SELECT held_until FROM account_hold WHERE account = $1").text(account).first(db).await?;
    row.map(|row| rows::instant::<DB>(&row, "held_until")).transpose()
}
