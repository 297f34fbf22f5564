//! Field cases about limits and tokens, told through the whole engine on both databases, with the connector
//! files that come with it.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use onlynew::domain::{clock::Clock, run::RunStatus};
use serde_json::json;

use crate::{
    both,
    support::{
        database::Database,
        rig::{Job, Rig, page_of},
        server::{Asked, Reply, Server},
    },
};

both!(
    c12_a_wait_beyond_the_cap_is_stored_for_the_account_and_for_no_other,
    c14_a_primary_limit_waits_to_its_reset,
    c14_a_403_with_retry_after_waits_as_long,
    c14_a_secondary_limit_waits_a_minute_and_longer_each_time,
    c14_no_permission_fails_at_once,
    a_streams_own_limit_holds_that_stream_alone,
    c32_a_token_dies_in_a_back_off_of_a_configured_job,
    c32_a_second_refusal_fails_and_the_watermark_stays,
);

const ROWS: [(u32, &str); 4] = [
    (1, "2026-09-21T10:00:00Z"),
    (2, "2026-09-21T10:00:01Z"),
    (3, "2026-09-21T10:00:02Z"),
    (4, "2026-09-21T10:00:03Z"),
];

async fn watermark(rig: &Rig) -> Vec<String> {
    rig.database.texts("SELECT CAST(watermark AS TEXT) FROM progress WHERE watermark IS NOT NULL").await
}

/// The waits of a rig that are no pace and no back-off of the receiver's: five seconds and longer.
fn waits(rig: &Rig) -> Vec<u64> {
    rig.clock.waits.lock().unwrap().iter().map(Duration::as_secs).filter(|wait| *wait >= 5).collect()
}

/// Whether a wait is this long, or longer by its jitter.
fn is_about(wait: u64, seconds: u64) -> bool {
    (seconds..=seconds + seconds / 4 + 1).contains(&wait)
}

async fn c12_a_wait_beyond_the_cap_is_stored_for_the_account_and_for_no_other(database: Database) {
    let rig = Rig::new(database, Job::default(), |asked| page_of(&ROWS, asked, 2)).await;
    assert_eq!(rig.sync().await.report.status, RunStatus::Ok);
    let before = watermark(&rig).await;
    rig.source.now_answers(|asked| match asked.param("cursor") {
        "" => page_of(&ROWS, asked, 2),
        _ => Reply::Status(503, vec![("retry-after", "86400".into())], String::new()),
    });
    rig.configure(Job { rest: "window: {lookback: 1h}", ..Job::default() });
    let began = rig.clock.now();
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.pages), (RunStatus::RateLimited, 1), "{:?}", report.reason);
    assert_eq!((watermark(&rig).await, waits(&rig)), (before, vec![]), "nobody slept for a day");
    let held = rig.database.number("(SELECT max(held_until) FROM account_hold)").await;
    let day = i64::try_from(Duration::from_hours(24).as_micros()).unwrap();
    let after = held - began.micros() - day;
    assert!((-1_000_000..60_000_000).contains(&after), "now and a day: {after}");

    let asked = rig.source.asked().len();
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.run), (RunStatus::RateLimited, None), "it does not even begin");
    assert_eq!(rig.source.asked().len(), asked);
    // Another account is not held.
    rig.configure(Job { source: "incremental: {field: updated_at}\n      name: other", ..Job::default() });
    rig.source.now_answers(|asked| page_of(&ROWS, asked, 2));
    assert_eq!(rig.sync().await.report.status, RunStatus::Ok);
}

/// A rig whose job reads GitHub's issues from its source, with the connector that comes with onlynew.
async fn github(database: Database, answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Rig {
    let rig = Rig::new(database, Job::default(), answer).await;
    rig.configure_with(format!(
        r#"
store: "{store}"
jobs:
  rows:
    connector: github
    auth: {{token: "ghp_x"}}
    with: {{owner: acme, repo: shop, base_url: "{source}"}}
    stream: issues
    every: 1s
    first_run: emit
    destination: "{receiver}/webhook/rows"
"#,
        store = rig.database.url(),
        source = rig.source.url,
        receiver = rig.receiver.url,
    ));
    rig
}

/// Two pages of issues by the Link header; what `limit` gives for the second one, by the number of the try,
/// comes before it.
fn issues(
    limit: impl Fn(usize) -> Option<Reply> + Send + Sync + 'static,
) -> impl Fn(&Asked) -> Reply + Send + Sync {
    let tries = AtomicUsize::new(0);
    move |asked| {
        let issue = |id: usize| json!({"id": id, "updated_at": format!("2026-09-21T10:00:0{id}Z")});
        if asked.param("page") == "2" {
            let given = limit(tries.fetch_add(1, Ordering::SeqCst));
            return given.unwrap_or_else(|| Reply::Json(json!([issue(2)]).to_string()));
        }
        let next = "</repos/acme/shop/issues?page=2>; rel=\"next\"".to_owned();
        Reply::Status(200, vec![("link", next)], json!([issue(1)]).to_string())
    }
}

fn refused(headers: Vec<(&'static str, String)>, message: &str) -> Reply {
    Reply::Status(403, headers, json!({"message": message}).to_string())
}

async fn c14_read_after_waits(rig: &Rig, expected: &[u64]) {
    let synced = rig.sync().await;
    assert_eq!((synced.report.status, synced.report.pages), (RunStatus::Ok, 4), "{:?}", synced.report.reason);
    assert_eq!(rig.sent_keys(), ["1", "2"]);
    let waits = waits(rig);
    assert_eq!(waits.len(), expected.len(), "{waits:?}");
    for (wait, expected) in waits.iter().zip(expected) {
        assert!(is_about(*wait, *expected), "{waits:?} for {expected:?}");
    }
    let asked: Vec<String> = rig.source.asked().iter().map(|asked| asked.param("page").to_owned()).collect();
    // Two walks, since issues move between pages; nothing starts over within one.
    let expected: Vec<&str> =
        [""].into_iter().chain(vec!["2"; expected.len() + 1]).chain(["", "2"]).collect();
    assert_eq!(asked, expected);
}

async fn c14_a_primary_limit_waits_to_its_reset(database: Database) {
    let reset = onlynew::domain::clock::machine_time().plus(Duration::from_mins(5)).seconds();
    let limit = move |tries| {
        let headers =
            vec![("x-ratelimit-remaining", "0".to_owned()), ("x-ratelimit-reset", reset.to_string())];
        (tries == 0).then(|| refused(headers, "API rate limit exceeded"))
    };
    let rig = github(database, issues(limit)).await;
    let synced = rig.sync().await;
    assert_eq!(synced.report.status, RunStatus::Ok, "{:?}", synced.report.reason);
    let waits = waits(&rig);
    // Some seconds of the five minutes have passed before the source is asked.
    assert!(waits.len() == 1 && (270..=376).contains(&waits[0]), "{waits:?}");
    assert_eq!(rig.sent_keys(), ["1", "2"]);
}

async fn c14_a_403_with_retry_after_waits_as_long(database: Database) {
    let limit = |tries| {
        let headers = vec![("retry-after", "30".to_owned()), ("x-ratelimit-remaining", "4999".to_owned())];
        (tries < 2).then(|| refused(headers, "Resource not accessible, for now"))
    };
    c14_read_after_waits(&github(database, issues(limit)).await, &[30, 30]).await;
}

async fn c14_a_secondary_limit_waits_a_minute_and_longer_each_time(database: Database) {
    let limit = |tries| {
        (tries < 3).then(|| refused(Vec::new(), "You have exceeded a Secondary Rate Limit. Please wait."))
    };
    c14_read_after_waits(&github(database, issues(limit)).await, &[60, 120, 240]).await;
}

async fn c14_no_permission_fails_at_once(database: Database) {
    let rig = github(database, issues(|_| None)).await;
    assert_eq!(rig.sync().await.report.status, RunStatus::Ok);
    let (before, asked) = (watermark(&rig).await, rig.source.asked().len());
    assert_eq!(before.len(), 1);
    rig.source.now_answers(issues(|_| Some(refused(Vec::new(), "Resource not accessible by integration"))));
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.requests), (RunStatus::Failed, 2));
    assert!(report.reason.as_ref().unwrap().contains("Resource not accessible"), "{:?}", report.reason);
    assert_eq!((watermark(&rig).await, rig.source.asked().len()), (before, asked + 2));
    assert!(waits(&rig).is_empty());

    // A page that is no JSON is no limit either.
    rig.source.now_answers(|_| Reply::Status(403, Vec::new(), "<html>Forbidden</html>".into()));
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.requests), (RunStatus::Failed, 1), "{:?}", report.reason);
}

const CONNECTOR: &str = r#"
description: two streams, one with a limit of its own
base_url: "{{ inputs.root }}"
inputs: {root: {type: url, required: true, description: its root}}
rate_limit: {requests: 1000, per: 1s}
streams:
  slow:
    description: limited
    request: {path: /slow}
    records: {path: $.items}
    primary_key: [id]
    rate_limit: {requests: 60, per: 1m, remaining: header:X-Left, reset: {from: header:X-Reset}}
    defaults: {changes: {detect: content}}
  free:
    description: not limited
    request: {path: /free}
    records: {path: $.items}
    primary_key: [id]
"#;

async fn a_streams_own_limit_holds_that_stream_alone(database: Database) {
    let rig = Rig::new(database, Job::default(), |_| {
        let headers = vec![("x-left", "0".to_owned()), ("x-reset", "3600".to_owned())];
        Reply::Status(200, headers, r#"{"items":[{"id":1}]}"#.into())
    })
    .await;
    rig.add_file("connectors/two.yaml", CONNECTOR);
    let of = |stream: &str| {
        rig.configure_with(format!(
            r#"
store: "{store}"
accounts: {{acme: {{connector: two, with: {{root: "{root}"}}}}}}
jobs:
  rows: {{account: acme, stream: {stream}, every: 1s, first_run: emit, destination: "{receiver}/webhook/rows"}}
"#,
            store = rig.database.url(),
            root = rig.source.url,
            receiver = rig.receiver.url,
        ));
    };
    of("slow");
    // One application over both runs: the gate is in memory until a run is put off.
    let app = rig.app().await;
    let stop = tokio_util::sync::CancellationToken::new();
    let job = &app.config.jobs["rows"];
    assert_eq!(app.sync(job, &stop).await.unwrap().report.status, RunStatus::Ok);
    let report = app.sync(job, &stop).await.unwrap().report;
    assert_eq!((report.status, report.requests), (RunStatus::RateLimited, 0), "{:?}", report.reason);
    app.store.close().await;
    assert_eq!(rig.database.texts("SELECT account FROM account_hold").await, ["acme/slow"]);
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.run), (RunStatus::RateLimited, None), "also in another process");
    of("free");
    let report = rig.sync().await.report;
    assert_ne!(report.status, RunStatus::RateLimited, "{:?}", report.reason);
}

/// A provider that gives `t1`, `t2` and so on, each for a minute.
async fn provider() -> Server {
    let given = AtomicUsize::new(0);
    Server::new(move |_| {
        let number = given.fetch_add(1, Ordering::SeqCst) + 1;
        Reply::Json(json!({"access_token": format!("t{number}"), "expires_in": 60}).to_string())
    })
    .await
}

/// The job of a rig that logs in at a provider.
fn log_in_at(rig: &Rig, provider: &Server) {
    let source = format!(
        "incremental: {{field: updated_at}}\n      auth: {{type: oauth2_client_credentials, token_url: \"{}/token\"}}",
        provider.url
    );
    rig.configure(Job {
        source: &source,
        rest: "auth: {client_id: app, client_secret: hush}",
        ..Job::default()
    });
}

async fn c32_a_token_dies_in_a_back_off_of_a_configured_job(database: Database) {
    let provider = provider().await;
    let limited = AtomicUsize::new(0);
    let rig = Rig::new(database, Job::default(), move |asked| match asked.param("cursor") {
        "2" if limited.fetch_add(1, Ordering::SeqCst) == 0 => {
            Reply::Status(429, vec![("retry-after", "90".into())], String::new())
        }
        _ => page_of(&ROWS, asked, 1),
    })
    .await;
    log_in_at(&rig, &provider);
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.requests), (RunStatus::Ok, 5), "{:?}", report.reason);
    let tokens: Vec<String> =
        rig.source.asked().iter().map(|asked| asked.header("authorization").to_owned()).collect();
    assert_eq!(tokens, ["Bearer t1", "Bearer t1", "Bearer t1", "Bearer t2", "Bearer t2"]);
    assert_eq!(provider.asked().len(), 2);
    assert_eq!(rig.sent_keys(), ["1", "2", "3", "4"]);
}

async fn c32_a_second_refusal_fails_and_the_watermark_stays(database: Database) {
    let provider = provider().await;
    let rig = Rig::new(database, Job::default(), |asked| page_of(&ROWS[..2], asked, 1)).await;
    log_in_at(&rig, &provider);
    assert_eq!(rig.sync().await.report.status, RunStatus::Ok);
    let before = watermark(&rig).await;
    let (asked, given) = (rig.source.asked().len(), provider.asked().len());
    rig.source.now_answers(|_| Reply::status(401));
    let report = rig.sync().await.report;
    assert_eq!(report.status, RunStatus::Failed);
    assert!(
        report.reason.as_ref().unwrap().contains("a fresh access token is refused as well"),
        "{:?}",
        report.reason
    );
    assert_eq!((rig.source.asked().len(), provider.asked().len()), (asked + 2, given + 1));
    assert_eq!(watermark(&rig).await, before);
    assert_eq!(rig.database.number("(SELECT count(*) FROM account_token)").await, 1);
}
