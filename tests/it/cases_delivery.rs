//! Field cases about delivering, told through the whole engine on both databases.

use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};

use onlynew::{
    config,
    domain::{
        clock::{Clock, Wait, machine_time},
        instant::Instant,
    },
    limit::SystemClock,
    outbox::Dispatcher,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    both,
    support::{
        database::Database,
        rig::{Job, Rig, page_of, page_of_values},
        server::{Asked, Reply, Server},
    },
};

/// What n8n and what stands before it answers, in order; anything further is a 200.
fn c35_answers() -> Vec<Reply> {
    let json = |code, text: &str| Reply::Status(code, Vec::new(), text.to_owned());
    vec![
        json(200, "n8n is starting up. Please wait"),
        json(404, "<!DOCTYPE html><html><body><pre>Cannot POST /webhook/rows</pre></body></html>"),
        json(404, r#"{"code":404,"message":"The requested webhook \"rows\" is not registered."}"#),
        json(404, r#"{"code":404,"message":"The requested webhook \"rows\" is not registered."}"#),
        json(404, r#"{"code":404,"message":"The requested webhook \"rows\" is not registered."}"#),
        json(500, r#"{"code":0,"message":"Workflow could not be started!"}"#),
        Reply::Hold,
        json(524, ""),
        Reply::Status(429, vec![("retry-after", "1".into())], String::new()),
        json(302, ""),
        json(400, "nonsense"),
    ]
}

async fn c35_only_a_2xx_is_a_delivery_and_every_attempt_is_the_same(database: Database) {
    let rig =
        Rig::new(database, Job::default(), |asked| page_of(&[(1, "2026-09-21T10:00:00Z")], asked, 10)).await;
    let answers = c35_answers();
    let refusals = answers.len();
    let next = AtomicUsize::new(0);
    rig.receiver.now_answers(move |_| {
        answers.get(next.fetch_add(1, Ordering::SeqCst)).cloned().unwrap_or(Reply::status(200))
    });
    let other = Server::new(|_| Reply::status(200)).await;
    let source = format!(
        r#"{{base_url: "{}", request: {{path: /rows}}, records: {{path: $.items}}, primary_key: [id],
            incremental: {{field: updated_at}}, pagination: {{type: none}}}}"#,
        rig.source.url,
    );
    rig.configure_with(format!(
        r#"
store: "{store}"
destinations:
  slow: {{url: "{receiver}/webhook/rows", timeout: 1s, retry: {{delays: [20ms, 20ms, 20ms, 20ms, 20ms, 20ms, 20ms, 20ms]}}}}
  other: {{url: "{other}/webhook/other", timeout: 1s}}
jobs:
  rows:
    source: {source}
    every: 1s
    first_run: emit
    destination: slow
  beside:
    source: {source}
    every: 1s
    first_run: emit
    destination: other
"#,
        store = rig.database.url(),
        receiver = rig.receiver.url,
        other = other.url,
    ));
    let app = Arc::new(rig.real_time_app().await);
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (app, stop) = (Arc::clone(&app), stop.clone());
        async move { app.run(stop).await }
    });
    other.wait_until(|asked| asked.len() == 1).await;
    assert!(rig.receiver.asked().len() < refusals, "another destination is not held up");
    rig.receiver.wait_until(|asked| asked.len() == refusals + 1).await;
    stop.cancel();
    running.await.unwrap().unwrap();

    assert_eq!(rig.database.number("(SELECT count(*) FROM event WHERE state = 'delivered')").await, 2);
    let asked = rig.receiver.asked();
    for again in &asked[1..] {
        assert_eq!(again.body, asked[0].body, "byte for byte");
        assert_eq!(again.header("idempotency-key"), asked[0].header("idempotency-key"));
        assert_eq!(again.header("webhook-id"), asked[0].header("webhook-id"));
    }
    assert_eq!(asked[0].json()["id"], asked[0].header("idempotency-key"));
    let attempts: Vec<_> = asked.iter().map(|asked| asked.header("x-onlynew-attempt").to_owned()).collect();
    assert_eq!(attempts, (1..=refusals + 1).map(|attempt| attempt.to_string()).collect::<Vec<_>>());
}

#[test]
fn c35_the_test_url_of_a_webhook_is_refused() {
    let jobs = "jobs: {a: {connector: stripe, auth: {token: x}, stream: events, every: 1m, \
                destination: \"http://127.0.0.1:5678/webhook-test/a\"}}";
    let errors = config::load_str("jobs.yaml", jobs, Path::new(""), &|_| None).unwrap_err();
    assert!(errors.to_string().contains("/webhook-test/"), "{errors}");
}

async fn a_record_whose_event_waits_holds_up_itself_alone(database: Database) {
    let rows = [(1, "2026-09-21T10:00:00Z"), (2, "2026-09-21T10:00:01Z")];
    let rig = Rig::new(database, Job::default(), move |asked| page_of(&rows, asked, 10)).await;
    rig.rewrite("delays: [50ms]", "delays: [50ms, 50ms, 50ms]");
    rig.receiver.now_answers(|asked| Reply::status(if asked.json()["key"] == "1" { 500 } else { 200 }));
    let synced = rig.sync().await;
    assert_eq!((synced.delivered, synced.pending), (1, 1));

    let changed = [(1, "2026-09-21T10:00:02Z"), (2, "2026-09-21T10:00:03Z")];
    rig.source.now_answers(move |asked| page_of(&changed, asked, 10));
    rig.receiver.now_answers(|asked| {
        let event = asked.json();
        Reply::status(if event["key"] == "1" && event["sequence"] == 1 { 500 } else { 200 })
    });
    let synced = rig.sync().await;
    assert_eq!(
        (synced.delivered, synced.pending),
        (1, 2),
        "the later event of key 1 waits behind the earlier"
    );

    rig.receiver.now_answers(|_| Reply::status(200));
    rig.leases_run_out().await;
    let synced = rig.sync().await;
    assert_eq!((synced.delivered, synced.pending), (2, 0));
    let of_one: Vec<_> =
        rig.receiver.asked().iter().map(Asked::json).filter(|event| event["key"] == "1").collect();
    let sequences: Vec<_> = of_one.iter().map(|event| event["sequence"].as_i64().unwrap()).collect();
    assert!(sequences.is_sorted(), "{sequences:?}");
}

async fn an_event_that_alone_is_refused_is_dead_and_lets_the_next_one_go(database: Database) {
    let rows = [(1, "2026-09-21T10:00:00Z"), (2, "2026-09-21T10:00:01Z")];
    let rig = Rig::new(database, Job::default(), move |asked| page_of(&rows, asked, 10)).await;
    rig.receiver.now_answers(|asked| Reply::status(if asked.json()["key"] == "1" { 422 } else { 200 }));
    rig.sync().await;
    // Where it was refused before the other one was taken, that is known the next time.
    rig.leases_run_out().await;
    let synced = rig.sync().await;
    assert_eq!((synced.pending, synced.dead), (0, 1));

    rig.receiver.now_answers(|_| Reply::status(200));
    rig.source.now_answers(|asked| page_of(&[(1, "2026-09-21T10:00:05Z")], asked, 10));
    let synced = rig.sync().await;
    assert_eq!((synced.delivered, synced.pending, synced.dead), (1, 0, 1));
}

async fn a_destination_that_refuses_everything_is_parked_and_nothing_is_lost(database: Database) {
    let rows: Vec<_> =
        (1..=8).map(|id| json!({"id": id, "updated_at": format!("2026-09-21T10:00:0{id}Z")})).collect();
    let rig = Rig::new(database, Job::default(), move |asked| page_of_values(&rows, asked, 10)).await;
    rig.receiver.now_answers(|_| Reply::status(422));
    let synced = rig.sync().await;
    assert_eq!((synced.delivered, synced.pending, synced.dead), (0, 8, 0));
    let known = "SELECT condition || ' ' || (SELECT count(*) FROM attempt) FROM destination";
    let before = rig.database.texts(known).await;
    assert!(before[0].starts_with("parked "), "{before:?}");
    rig.receiver.now_answers(|_| Reply::status(200));
    let synced = rig.sync().await;
    assert_eq!((synced.delivered, synced.pending, synced.dead), (8, 0, 0), "a sync by hand asks at once");
}

async fn a_workflow_that_is_not_active_yet_gets_everything_once_it_is(database: Database) {
    let rows = [(1, "2026-09-21T10:00:00Z"), (2, "2026-09-21T10:00:01Z"), (3, "2026-09-21T10:00:02Z")];
    let rig = Rig::new(database, Job::default(), move |asked| page_of(&rows, asked, 10)).await;
    let inactive = r#"{"code":404,"message":"The requested webhook \"rows\" is not registered."}"#;
    rig.receiver.now_answers(move |_| Reply::Status(404, Vec::new(), inactive.into()));
    let app = Arc::new(rig.real_time_app().await);
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (app, stop) = (Arc::clone(&app), stop.clone());
        async move { app.run(stop).await }
    });
    rig.receiver.wait_until(|asked| asked.len() >= 6).await;
    rig.receiver.now_answers(|_| Reply::status(200));
    let delivered =
        || async { rig.database.number("(SELECT count(*) FROM event WHERE state = 'delivered')").await == 3 };
    while !delivered().await {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    stop.cancel();
    running.await.unwrap().unwrap();
    assert_eq!(rig.database.number("(SELECT count(*) FROM event WHERE state = 'dead')").await, 0);
    let ids: std::collections::BTreeSet<_> =
        rig.receiver.asked().iter().map(|asked| asked.header("idempotency-key").to_owned()).collect();
    assert_eq!(ids.len(), 3, "whatever it takes, each is one event");
}

async fn a_gate_that_says_done_has_it_delivered(database: Database) {
    let rig =
        Rig::new(database, Job::default(), |asked| page_of(&[(1, "2026-09-21T10:00:00Z")], asked, 10)).await;
    rig.receiver.now_answers(|_| Reply::Status(409, Vec::new(), r#"{"state": "in_progress"}"#.into()));
    assert_eq!(rig.sync().await.pending, 1);
    rig.leases_run_out().await;
    rig.receiver.now_answers(|_| Reply::Status(409, Vec::new(), r#"{"state": "done", "fence": 3}"#.into()));
    assert_eq!(rig.sync().await.delivered, 1);
}

async fn integers_that_n8n_would_round_arrive_as_strings(database: Database) {
    let rig = Rig::new(database, Job::default(), |asked| {
        page_of_values(
            &[json!({"id": 9_007_199_254_740_993_u64, "updated_at": "2026-09-21T10:00:00Z"})],
            asked,
            10,
        )
    })
    .await;
    rig.sync().await;
    let event = rig.receiver.asked()[0].json();
    assert_eq!(
        (&event["key"], &event["data"]["id"]),
        (&json!("9007199254740993"), &json!("9007199254740993"))
    );
}

async fn a_baseline_is_silent_and_what_changes_after_it_is_sent(database: Database) {
    let rows = [(1, "2026-09-21T10:00:00Z"), (2, "2026-09-21T10:00:01Z")];
    let rig = Rig::new(database, Job::default(), move |asked| page_of(&rows, asked, 1)).await;
    rig.configure_baseline();
    let report = rig.sync().await.report;
    assert_eq!((report.counts.created, report.counts.events), (2, 0));
    let later = SystemClock.now().to_string();
    rig.source.now_answers(move |asked| page_of(&[(1, "2026-09-21T10:00:00Z"), (2, &later)], asked, 1));
    assert_eq!(rig.sync().await.report.counts.events, 1);
    assert_eq!(rig.sent(), [("2".to_owned(), "record.updated".to_owned())]);
}

/// The dispatcher of the rig's only destination, by this clock.
async fn dispatcher(rig: &Rig, clock: Arc<dyn Clock>) -> Dispatcher {
    let app = rig.real_time_app().await;
    let destination = Arc::clone(&app.config.jobs["rows"].destination);
    Dispatcher::new(Arc::clone(&app.store), clock, destination).unwrap()
}

/// The clock of a process that is stopped for so long after each look at it.
#[derive(Debug)]
struct Halting(Duration, AtomicU32);

impl Clock for Halting {
    fn now(&self) -> Instant {
        machine_time().plus(self.0 * self.1.fetch_add(1, Ordering::SeqCst))
    }

    fn sleep(&self, duration: Duration) -> Wait<'_> {
        SystemClock.sleep(duration)
    }
}

async fn an_event_is_not_sent_under_a_claim_that_is_about_to_run_out(database: Database) {
    let rig =
        Rig::new(database, Job::default(), |asked| page_of(&[(1, "2026-09-21T10:00:00Z")], asked, 10)).await;
    rig.receiver.now_answers(|_| Reply::status(500));
    rig.sync().await;
    for (halt, sent) in [(Duration::from_secs(7), 0), (Duration::from_secs(1), 1)] {
        rig.leases_run_out().await;
        let before = rig.receiver.asked().len();
        let clock = Arc::new(Halting(halt, AtomicU32::default()));
        let drained = dispatcher(&rig, clock).await.drain(&CancellationToken::new()).await.unwrap();
        assert_eq!((rig.receiver.asked().len() - before, drained.failed), (sent, 1), "{halt:?}");
    }
}

/// A clock that keeps the waits that were asked for.
#[derive(Debug, Default)]
struct Noting(Mutex<Vec<Duration>>);

impl Clock for Noting {
    fn now(&self) -> Instant {
        machine_time()
    }

    fn sleep(&self, duration: Duration) -> Wait<'_> {
        self.0.lock().unwrap().push(duration);
        SystemClock.sleep(duration)
    }
}

async fn what_is_held_back_by_a_delivery_under_way_is_not_asked_for_all_the_time(database: Database) {
    let rows = [(1, "2026-09-21T10:00:00Z"), (2, "2026-09-21T10:00:01Z")];
    let rig = Rig::new(database, Job::default(), move |asked| page_of(&rows, asked, 10)).await;
    rig.receiver.now_answers(|_| Reply::status(429));
    rig.sync().await;
    rig.leases_run_out().await;
    let before = rig.receiver.asked().len();
    rig.receiver.now_answers(|_| Reply::Hold);
    let clock = Arc::new(Noting::default());
    let dispatcher = dispatcher(&rig, Arc::clone(&clock) as Arc<dyn Clock>).await;
    let stop = CancellationToken::new();
    let (_fresh, stored) = tokio::sync::watch::channel(0);
    let watched = async {
        rig.receiver.wait_until(|asked| asked.len() > before).await;
        while clock.0.lock().unwrap().len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stop.cancel();
    };
    tokio::join!(dispatcher.run(stored, stop.clone()), watched);
    assert_eq!(*clock.0.lock().unwrap(), [Duration::from_millis(100), Duration::from_secs(1)]);
}

both!(
    an_event_is_not_sent_under_a_claim_that_is_about_to_run_out,
    what_is_held_back_by_a_delivery_under_way_is_not_asked_for_all_the_time,
    c35_only_a_2xx_is_a_delivery_and_every_attempt_is_the_same,
    a_record_whose_event_waits_holds_up_itself_alone,
    an_event_that_alone_is_refused_is_dead_and_lets_the_next_one_go,
    a_destination_that_refuses_everything_is_parked_and_nothing_is_lost,
    a_workflow_that_is_not_active_yet_gets_everything_once_it_is,
    a_gate_that_says_done_has_it_delivered,
    integers_that_n8n_would_round_arrive_as_strings,
    a_baseline_is_silent_and_what_changes_after_it_is_sent,
);
