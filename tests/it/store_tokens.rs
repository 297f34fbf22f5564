//! Access tokens in the store: one process asks, the number of the token before decides, nothing is lost.

use std::time::Duration;

use onlynew::{domain::instant::Instant, store::NewToken};
use secrecy::ExposeSecret;

use crate::{both, support::database::Database};

both!(
    one_process_alone_may_ask_for_the_next_token,
    a_token_is_stored_once_for_each_number,
    the_right_to_ask_runs_out_by_the_clock_of_the_database,
);

const LONG: Duration = Duration::from_mins(10);

fn token(access: &str, refresh: Option<&str>) -> NewToken {
    NewToken {
        login: "login".into(),
        access_token: access.into(),
        refresh_token: refresh.map(Into::into),
        obtained_at: Instant::from_seconds(1_000),
        expires_at: refresh.map(|_| Instant::from_seconds(1_060)),
    }
}

async fn one_process_alone_may_ask_for_the_next_token(database: Database) {
    let (one, other) = database.open_two().await;
    assert!(one.account_token("acme").await.unwrap().is_none());
    assert!(one.claim_token("acme", 0, LONG).await.unwrap());
    assert!(!other.claim_token("acme", 0, LONG).await.unwrap());
    assert!(!one.claim_token("acme", 0, LONG).await.unwrap(), "a right is not given twice");
    assert!(other.claim_token("shop", 0, LONG).await.unwrap(), "another account is another matter");
    let first = other.account_token("acme").await.unwrap().unwrap();
    assert!(first.number == 0 && first.token.is_none());

    one.release_token("acme", 0).await.unwrap();
    assert!(other.claim_token("acme", 0, LONG).await.unwrap());
    assert!(other.store_token("acme", 0, &token("a1", Some("r1"))).await.unwrap());
    assert!(!one.claim_token("acme", 0, LONG).await.unwrap(), "that token is there already");
    assert!(one.claim_token("acme", 1, LONG).await.unwrap(), "storing gives the right back");
}

async fn a_token_is_stored_once_for_each_number(database: Database) {
    let (one, other) = database.open_two().await;
    assert!(one.claim_token("acme", 0, LONG).await.unwrap());
    assert!(one.store_token("acme", 0, &token("a1", Some("r1"))).await.unwrap());
    assert!(!other.store_token("acme", 0, &token("b1", Some("s1"))).await.unwrap());
    let stored = other.account_token("acme").await.unwrap().unwrap();
    assert_eq!(stored.number, 1);
    let found = stored.token.unwrap();
    assert_eq!(found.access_token.expose_secret(), "a1");
    assert_eq!(found.refresh_token.unwrap().expose_secret(), "r1");
    assert_eq!((found.login.as_str(), found.obtained_at), ("login", Instant::from_seconds(1_000)));
    assert_eq!(found.expires_at, Some(Instant::from_seconds(1_060)));

    assert!(one.store_token("acme", 1, &token("a2", None)).await.unwrap());
    let stored = other.account_token("acme").await.unwrap().unwrap();
    let found = stored.token.unwrap();
    assert!(stored.number == 2 && found.refresh_token.is_none() && found.expires_at.is_none());
    assert!(!format!("{found:?}").contains("a2"), "a token cannot be printed");
}

async fn the_right_to_ask_runs_out_by_the_clock_of_the_database(database: Database) {
    let (one, other) = database.open_two().await;
    assert!(one.claim_token("acme", 0, Duration::from_millis(1)).await.unwrap());
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(other.claim_token("acme", 0, LONG).await.unwrap(), "its holder died");
    // The holder was only slow: what it got is stored all the same, since nobody else has stored yet.
    assert!(one.store_token("acme", 0, &token("a1", None)).await.unwrap());
    assert!(!other.store_token("acme", 0, &token("b1", None)).await.unwrap());
}
