//! What one process stores wakes the dispatchers of another, on PostgreSQL: what is told, to whom, and what becomes
//! of a listener whose connection is lost. On SQLite nothing is told.

use std::{sync::Arc, time::Duration};

use onlynew::{
    domain::{
        clock::{Clock, Wait, machine_time},
        delivery::Verdict,
        instant::Instant,
    },
    engine::Trigger,
    store::{Granted, News, Store, Wish},
};
use tokio::{sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    cases_running::{daily, run_app_until},
    support::{
        database::Database,
        messages::{FAILED, attempt, claim_one, delivered, slow},
        pages::{DESTINATION, RunningJob, broken, record},
        rig::page_of,
    },
};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_mins(1);

/// Connections that listen.
const LISTENING: &str =
    "FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%' AND state = 'idle'";

/// A listener that has begun.
async fn listener(store: &Arc<dyn Store>) -> Box<dyn News> {
    let mut news = store.news().unwrap();
    assert_eq!(heard(&mut news).await, None);
    news
}

async fn heard(news: &mut Box<dyn News>) -> Option<String> {
    timeout(PATIENCE, news.next()).await.expect("nothing was told")
}

/// That events of the usual destination are told of, and nothing else before `mark`.
async fn hears_of_events(news: &mut Box<dyn News>, database: &Database, mark: &str) {
    assert_eq!(heard(news).await.as_deref(), Some(DESTINATION), "{mark}");
    hears_of_nothing(news, database, mark).await;
}

async fn hears_of_nothing(news: &mut Box<dyn News>, database: &Database, mark: &str) {
    database.tamper(&format!("SELECT pg_notify('onlynew_events', '{mark}')")).await;
    assert_eq!(heard(news).await.as_deref(), Some(mark));
}

#[tokio::test]
async fn on_sqlite_nothing_is_told() {
    assert!(Database::sqlite().open().await.news().is_none());
}

#[tokio::test]
async fn what_one_store_commits_is_told_to_the_listener_of_another() {
    let Some(database) = Database::postgres().await else { return };
    let (one, other) = database.open_two().await;
    let mut news = listener(&other).await;
    let job = RunningJob::start(&one, "issues").await;
    job.commit(1, vec![record("1", 1, "x"), record("2", 1, "x")]).await;
    hears_of_events(&mut news, &database, "a page").await;
    job.commit(2, vec![record("1", 1, "x")]).await;
    hears_of_nothing(&mut news, &database, "a page without events").await;

    let mut undone = job.page(3, vec![record("3", 1, "x")]);
    undone.run.0 += 1;
    assert!(one.commit_page(&job.lease, &undone).await.is_err());
    hears_of_nothing(&mut news, &database, "a page that was undone").await;

    let mut unread = job.page(4, Vec::new());
    unread.quarantined = vec![broken("x", "no key")];
    job.commit_page(&unread).await;
    hears_of_nothing(&mut news, &database, "a page of which nothing could be read").await;
    let id = one.quarantined(job.row.id).await.unwrap()[0].id;
    one.accept_quarantined(&job.lease, id, &job.page(5, vec![record("4", 1, "x")])).await.unwrap();
    hears_of_events(&mut news, &database, "an accepted record").await;

    let mut long = job.page(6, vec![record("5", 1, "x")]);
    long.destination = "d".repeat(8000);
    job.commit_page(&long).await;
    assert_eq!(heard(&mut news).await, None);
    one.readdress(job.row.id, DESTINATION).await.unwrap();
    hears_of_events(&mut news, &database, "events of another destination").await;
    one.readdress(job.row.id, DESTINATION).await.unwrap();
    hears_of_nothing(&mut news, &database, "no events of another destination").await;
}

#[tokio::test]
async fn what_a_person_makes_due_is_told() {
    let Some(database) = Database::postgres().await else { return };
    let store = database.open().await;
    let job = RunningJob::start(&store, "issues").await;
    job.commit(1, vec![record("1", 1, "x")]).await;
    let mut news = listener(&store).await;

    let first = claim_one(&store).await;
    let position = first.events[0].position;
    store.settle_message(&first, &slow(FAILED)).await.unwrap();
    hears_of_nothing(&mut news, &database, "a settlement").await;
    assert_eq!(store.grant(position, Wish::Retry).await.unwrap(), Granted::Done);
    hears_of_events(&mut news, &database, "a retry").await;
    assert_eq!(store.grant(position, Wish::Retry).await.unwrap(), Granted::Done);
    hears_of_nothing(&mut news, &database, "a retry of what is due").await;

    store.settle_message(&claim_one(&store).await, &delivered()).await.unwrap();
    assert_eq!(store.grant(position, Wish::Redeliver).await.unwrap(), Granted::Done);
    hears_of_events(&mut news, &database, "a redelivery").await;
    job.commit(2, vec![record("1", 2, "x")]).await;
    hears_of_events(&mut news, &database, "a page").await;
    let head = database.number("(SELECT max(position) FROM outbox_head)").await;
    let blocked = database.number("(SELECT max(position) FROM event)").await;
    job.commit(3, vec![record("1", 3, "x")]).await;
    hears_of_events(&mut news, &database, "another page").await;
    assert_eq!(store.grant(blocked, Wish::Discard).await.unwrap(), Granted::Done);
    hears_of_nothing(&mut news, &database, "a discarded event behind another").await;
    assert_eq!(store.grant(head, Wish::Discard).await.unwrap(), Granted::Done);
    hears_of_events(&mut news, &database, "a discarded event before another").await;

    assert!(store.pause_destination(DESTINATION, true).await.unwrap());
    hears_of_nothing(&mut news, &database, "a pause").await;
    assert!(store.pause_destination(DESTINATION, false).await.unwrap());
    hears_of_events(&mut news, &database, "the end of a pause").await;
    assert!(!store.pause_destination(DESTINATION, false).await.unwrap());
    store.probe_destination(DESTINATION).await.unwrap();
    hears_of_nothing(&mut news, &database, "a probe of what is well").await;
    let parked = attempt(Verdict::Misplaced);
    store.settle_message(&claim_one(&store).await, &parked).await.unwrap();
    store.probe_destination(DESTINATION).await.unwrap();
    hears_of_events(&mut news, &database, "a probe").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_listener_that_lost_its_connection_hears_of_what_comes_after() {
    let Some(database) = Database::postgres().await else { return };
    let (one, other) = database.open_two().await;
    let mut news = listener(&other).await;
    let job = RunningJob::start(&one, "issues").await;
    for number in 1..=3 {
        let ended = format!("(SELECT count(*) FROM (SELECT pg_terminate_backend(pid) {LISTENING}) AS ended)");
        assert_eq!(database.number(&ended).await, 1);
        assert_eq!(heard(&mut news).await, None, "what was missed is looked for");
        job.commit(number, vec![record("1", i64::from(number), "x")]).await;
        hears_of_events(&mut news, &database, "a page").await;
    }
}

/// A clock whose waits do not end.
#[derive(Debug, Default)]
struct StillClock {
    waits: watch::Sender<u64>,
}

impl Clock for StillClock {
    fn now(&self) -> Instant {
        machine_time()
    }

    fn sleep(&self, _duration: Duration) -> Wait<'_> {
        self.waits.send_modify(|count| *count += 1);
        Box::pin(std::future::pending())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_dispatcher_that_never_looks_by_itself_delivers_what_another_process_stored() {
    let Some(database) = Database::postgres().await else { return };
    let rig = daily(database).await;
    let clock = Arc::new(StillClock::default());
    let mut waits = clock.waits.subscribe();
    let app = rig.app_by(clock).await;
    let delivered = async {
        waits.wait_for(|count| *count > 0).await.unwrap();
        while rig.database.number(&format!("(SELECT count(*) {LISTENING})")).await == 0 {
            tokio::task::yield_now().await;
        }
        let other = rig.real_time_app().await;
        for id in 3..6 {
            rig.source.now_answers(move |asked| page_of(&[(id, "2026-09-21T10:00:02Z")], asked, 1));
            let job = Arc::clone(&other.config.jobs["rows"]);
            other.engine.run(&job, Trigger::Manual, &CancellationToken::new()).await.unwrap();
            let sent = rig.receiver.wait_until(move |asked| asked.len() == id as usize);
            timeout(PATIENCE, sent).await.expect("nobody was woken");
            while rig.database.number("(SELECT count(*) FROM outbox_head)").await > 0 {
                tokio::task::yield_now().await;
            }
        }
    };
    Box::pin(run_app_until(app, delivered)).await;
}
