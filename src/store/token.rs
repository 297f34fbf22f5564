//! Access tokens of accounts. They stand here in the clear, since they have to be sent; a token that was
//! rotated exists nowhere else. The right to ask for the next one is a lease on the database's clock, and
//! storing it a compare-and-set on the number of the one before, so that processes agree on one.

use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};

use super::{
    NewToken, StoreError, StoredToken,
    dialect::{Dialect, sql},
};
use crate::domain::instant::{Instant, micros_of};

pub(super) async fn find<DB: Dialect>(
    db: &mut DB::Connection,
    account: &str,
) -> Result<Option<StoredToken>, StoreError> {
    let found = sql::<DB>(
        "SELECT number, login, access_token, refresh_token, obtained_at, expires_at
         FROM account_token WHERE account = $1",
    )
    .text(account)
    .first(db)
    .await?;
    let Some(row) = found else { return Ok(None) };
    let text = |column| DB::read(&row, column).map(|text: Option<String>| text.map(SecretString::from));
    let instant = |column| DB::read(&row, column).map(|at: Option<i64>| at.map(Instant::from_micros));
    let token = match (text("access_token")?, instant("obtained_at")?) {
        (Some(access_token), Some(obtained_at)) => Some(NewToken {
            login: DB::read(&row, "login")?,
            access_token,
            refresh_token: text("refresh_token")?,
            obtained_at,
            expires_at: instant("expires_at")?,
        }),
        _ => None,
    };
    Ok(Some(StoredToken { number: DB::read(&row, "number")?, token }))
}

pub(super) async fn claim<DB: Dialect>(
    db: &mut DB::Connection,
    account: &str,
    number: i64,
    ttl: Duration,
) -> Result<bool, StoreError> {
    let claimed = sql::<DB>(
        "INSERT INTO account_token (account, number, login, claimed_until) VALUES ($1, $2, '', {now} + $3)
         ON CONFLICT (account) DO UPDATE SET claimed_until = excluded.claimed_until
         WHERE account_token.number = excluded.number
           AND (account_token.claimed_until IS NULL OR account_token.claimed_until <= {now})",
    )
    .text(account)
    .bind(number)
    .bind(micros_of(ttl))
    .run(db)
    .await?;
    Ok(claimed > 0)
}

pub(super) async fn store<DB: Dialect>(
    db: &mut DB::Connection,
    account: &str,
    number: i64,
    token: &NewToken,
) -> Result<bool, StoreError> {
    let refresh_token = token.refresh_token.as_ref().map(|token| token.expose_secret().to_owned());
    let stored = sql::<DB>(
        "UPDATE account_token SET number = number + 1, login = $3, access_token = $4, refresh_token = $5,
             obtained_at = $6, expires_at = $7, claimed_until = NULL
         WHERE account = $1 AND number = $2",
    )
    .text(account)
    .bind(number)
    .text(&token.login)
    .bind(token.access_token.expose_secret().to_owned())
    .bind(refresh_token)
    .bind(token.obtained_at.micros())
    .bind(token.expires_at.map(Instant::micros))
    .run(db)
    .await?;
    Ok(stored > 0)
}

pub(super) async fn release<DB: Dialect>(
    db: &mut DB::Connection,
    account: &str,
    number: i64,
) -> Result<(), StoreError> {
    sql::<DB>("UPDATE account_token SET claimed_until = NULL WHERE account = $1 AND number = $2")
        .text(account)
        .bind(number)
        .run(db)
        .await?;
    Ok(())
}
