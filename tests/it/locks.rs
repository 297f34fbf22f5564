//! Locks in the store and over HTTP.

use std::{collections::HashSet, sync::Arc};

use onlynew::{
    domain::{
        instant::Instant,
        lock::{Act, Allowed},
    },
    store::{Purge, Released, Store},
};
use serde_json::json;

use crate::{
    both,
    support::{
        database::Database,
        gate::{GateServer, acquire as acquire_key, ask, key, said, started},
        pages::LONG,
        purges::take_all,
    },
};

both!(
    one_at_a_time_has_a_lock_and_each_has_a_higher_fence,
    of_all_who_ask_for_a_lock_at_once_one_has_it,
    a_lock_that_was_never_let_go_is_taken_over,
    locks_and_keys_share_one_row_of_fences,
    a_lock_that_nobody_has_is_forgotten_and_its_fence_is_not_given_again,
    a_lock_is_acquired_renewed_and_released_over_http,
    who_waits_for_a_lock_has_it_once_it_is_let_go,
    who_waits_for_a_lock_has_it_once_its_lease_is_over,
);

async fn take(store: &Arc<dyn Store>, name: &str) -> Option<i64> {
    let taken = store.acquire_lock(&key(name), Some("me"), LONG).await.unwrap();
    taken.is_taken.then_some(taken.view.fence)
}

async fn act(store: &Arc<dyn Store>, fence: i64, act: Act) -> Option<Allowed> {
    store.act_on_lock(&key("stock"), fence, act).await.unwrap().map(|(allowed, _)| allowed)
}

async fn one_at_a_time_has_a_lock_and_each_has_a_higher_fence(database: Database) {
    let (one, other) = database.open_two().await;
    assert_eq!(act(&one, 1, Act::Release).await, None);
    let mut before = 0;
    for _ in 0..3 {
        let fence = take(&one, "stock").await.unwrap();
        assert!(fence > before);
        assert_eq!((take(&other, "stock").await, take(&one, "stock").await), (None, None));
        assert!(take(&other, &format!("other {fence}")).await.is_some(), "another lock is another matter");
        assert_eq!(act(&other, before, Act::Release).await, Some(Allowed::Lost));
        assert_eq!(act(&one, fence, Act::Renew(LONG)).await, Some(Allowed::Yes));
        assert_eq!(act(&one, fence, Act::Release).await, Some(Allowed::Yes));
        assert_eq!(act(&one, fence, Act::Release).await, Some(Allowed::Repeated));
        assert_eq!(act(&one, fence, Act::Renew(LONG)).await, Some(Allowed::Lost));
        before = fence;
    }
}

async fn of_all_who_ask_for_a_lock_at_once_one_has_it(database: Database) {
    let (one, other) = database.open_two().await;
    let mut fences = HashSet::new();
    for _ in 0..10 {
        let asked: Vec<_> = (0..16)
            .map(|number| {
                let store = Arc::clone(if number % 2 == 0 { &one } else { &other });
                tokio::spawn(async move { take(&store, "stock").await })
            })
            .collect();
        let mut had = Vec::new();
        for asked in asked {
            had.extend(asked.await.unwrap());
        }
        assert!(had.len() == 1 && fences.insert(had[0]), "{had:?}");
        assert_eq!(act(&one, had[0], Act::Release).await, Some(Allowed::Yes));
    }
}

async fn a_lock_that_was_never_let_go_is_taken_over(database: Database) {
    let store = database.open().await;
    let first = take(&store, "stock").await.unwrap();
    database.tamper("UPDATE lock SET lease_until = 5").await;
    assert_eq!(act(&store, first, Act::Renew(LONG)).await, Some(Allowed::Yes), "nobody has taken it over");
    assert_eq!(take(&store, "stock").await, None);
    assert_eq!(store.expire_lock(&key("stock")).await.unwrap(), Some(true));
    assert_eq!(store.expire_lock(&key("stock")).await.unwrap(), Some(false));
    assert_eq!(store.expire_lock(&key("other")).await.unwrap(), None);
    let second = store.acquire_lock(&key("stock"), None, LONG).await.unwrap();
    assert!(second.is_taken && second.view.takeover && second.view.fence > first);
    assert_eq!(second.view.owner, None);
    assert_eq!(act(&store, first, Act::Release).await, Some(Allowed::Lost));
    assert_eq!(store.lock(&key("stock")).await.unwrap().unwrap(), second.view);
}

async fn locks_and_keys_share_one_row_of_fences(database: Database) {
    let store = database.open().await;
    let mut fences = vec![take(&store, "a").await.unwrap()];
    let got = acquire_key(&store, &onlynew::domain::gate::ScopeRules::default(), &ask("a")).await;
    assert!(started(&got));
    fences.extend([got.view.fence, take(&store, "b").await.unwrap()]);
    assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
    assert_eq!(store.release_key("charge", &key("a"), true).await.unwrap(), Released::Done);
}

async fn a_lock_that_nobody_has_is_forgotten_and_its_fence_is_not_given_again(database: Database) {
    let store = database.open().await;
    let first = take(&store, "stock").await.unwrap();
    take(&store, "kept").await.unwrap();
    database.tamper("UPDATE lock SET lease_until = 5 WHERE name = 'stock'").await;
    let purge = Purge::Locks(Instant::from_seconds(1));
    assert_eq!(store.purgeable(&purge).await.unwrap(), 1);
    assert_eq!(take_all(&store, purge).await, 1);
    assert_eq!(act(&store, first, Act::Release).await, None);
    assert!(take(&store, "stock").await.unwrap() > first);
    assert_eq!(take(&store, "kept").await, None);
}

async fn server(database: Database) -> GateServer {
    GateServer::start(database, "", "{scopes: {charge: {}}}").await
}

async fn a_lock_is_acquired_renewed_and_released_over_http(database: Database) {
    let server = server(database).await;
    let ask = async |what: &str, body| server.post(&format!("/v1/locks/stock%2F7/{what}"), body).await;
    let first = ask("acquire", json!({"lease": "5m", "owner": "wf 7"})).await;
    assert_eq!((first.short(), &first.body["name"]), ((200, "acquired"), &json!("stock/7")));
    assert_eq!(first.headers["x-fence"], first.fence().to_string());
    let held = ask("acquire", json!({})).await;
    assert_eq!((held.short(), &held.body["error"]["code"]), ((409, "held"), &json!("held")));
    let seconds: u64 = held.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=300).contains(&seconds) && held.body["owner"] == "wf 7", "{held:?}");
    assert_eq!(
        ask("renew", json!({"fence": first.fence(), "lease": "10m"})).await.short(),
        (200, "acquired")
    );
    assert_eq!(said(server.request("GET", "/v1/locks/stock%2F7")).await.short(), (200, "held"));
    assert_eq!(ask("expire", json!({})).await.short(), (200, "expired"));
    let second = ask("acquire", json!({})).await;
    assert_eq!((second.short(), &second.body["takeover"]), ((200, "acquired"), &json!(true)));
    for what in ["renew", "release"] {
        let lost = ask(what, json!({"fence": first.fence()})).await;
        assert_eq!((lost.short(), &lost.body["error"]["code"]), ((409, "held"), &json!("lost")));
    }
    for _ in 0..2 {
        assert_eq!(ask("release", json!({"fence": second.fence()})).await.short(), (200, "free"));
    }
    let lost = ask("renew", json!({"fence": second.fence()})).await;
    assert_eq!(
        (lost.short(), &lost.body["error"]["message"]),
        ((409, "free"), &json!("it was let go before"))
    );

    assert_eq!(
        server.post("/v1/locks/other/release", json!({"fence": 1})).await.short(),
        (404, "unknown_lock")
    );
    assert_eq!(server.post("/v1/locks//acquire", json!({})).await.short(), (400, "missing_key"));
    for (member, text) in
        [("lease", "0s"), ("lease", "25h"), ("lease", "long"), ("wait", "2m"), ("wait", "-1s")]
    {
        let wrong = ask("acquire", json!({member: text})).await;
        assert_eq!(wrong.short(), (400, "bad_duration"), "{member} {text}");
        assert!(wrong.body["error"]["message"].as_str().unwrap().contains(text));
    }
}

async fn who_waits_for_a_lock_has_it_once_it_is_let_go(database: Database) {
    let server = Arc::new(server(database).await);
    let first = server.post("/v1/locks/stock/acquire", json!({"lease": "1h"})).await;
    let waiting: Vec<_> = (0..3)
        .map(|number| {
            let server = Arc::clone(&server);
            tokio::spawn(async move {
                let ask = json!({"wait": "1m", "owner": number.to_string()});
                let had = server.post("/v1/locks/stock/acquire", ask).await;
                assert_eq!(had.short(), (200, "acquired"));
                assert_eq!(
                    server.post("/v1/locks/stock/release", json!({"fence": had.fence()})).await.status,
                    200
                );
                had.fence()
            })
        })
        .collect();
    let short = server.post("/v1/locks/stock/acquire", json!({"wait": "50ms"})).await;
    assert_eq!(short.short(), (409, "held"), "that was not long enough");
    server.post("/v1/locks/stock/release", json!({"fence": first.fence()})).await;
    let mut fences = HashSet::from([first.fence()]);
    for waited in waiting {
        assert!(fences.insert(waited.await.unwrap()));
    }
}

async fn who_waits_for_a_lock_has_it_once_its_lease_is_over(database: Database) {
    let server = server(database).await;
    server.post("/v1/locks/stock/acquire", json!({"lease": "1s"})).await;
    let had = server.post("/v1/locks/stock/acquire", json!({"wait": "1m"})).await;
    assert_eq!((had.short(), &had.body["takeover"]), ((200, "acquired"), &json!(true)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_more_wait_for_locks_than_can_be_kept() {
    let server = Arc::new(server(Database::sqlite()).await);
    server.post("/v1/locks/stock/acquire", json!({"lease": "1h"})).await;
    let waiting: Vec<_> = (0..300)
        .map(|_| {
            let server = Arc::clone(&server);
            tokio::spawn(async move { server.post("/v1/locks/stock/acquire", json!({"wait": "10s"})).await })
        })
        .collect();
    let mut refused = 0;
    for waited in waiting {
        let waited = waited.await.unwrap();
        match waited.short() {
            (503, "too_many_waiters") => refused += 1,
            short => assert_eq!(short, (409, "held")),
        }
    }
    assert!(refused >= 44, "{refused}");
}
