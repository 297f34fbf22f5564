//! What keeps running, told through the whole engine on both databases: jobs that were cut off, clocks that
//! were wrong, stores that fail for a while, and configurations that are edited meanwhile.

use std::{sync::Arc, time::Duration};

use onlynew::{
    app::App,
    domain::{clock::Clock, run::RunStatus},
};
use tokio_util::sync::CancellationToken;

use crate::{
    both,
    support::{
        database::Database,
        rig::{Job, Rig, SECRET, page_of},
        server::Reply,
    },
};

const ROWS: [(u32, &str); 2] = [(1, "2026-09-21T10:00:00Z"), (2, "2026-09-21T10:00:01Z")];

/// Runs the application until `done`, then stops it.
async fn run_until(rig: &Rig, done: impl Future<Output = ()>) {
    run_app_until(rig.real_time_app().await, done).await;
}

/// The same of an application that is there.
pub async fn run_app_until(app: App, done: impl Future<Output = ()>) {
    let app = Arc::new(app);
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (app, stop) = (Arc::clone(&app), stop.clone());
        async move { app.run(stop).await }
    });
    done.await;
    stop.cancel();
    running.await.unwrap().unwrap();
}

/// A job that is due once a day, and has just run.
pub async fn daily(database: Database) -> Rig {
    let rig = Rig::new(database, Job::default(), |asked| page_of(&ROWS, asked, 1)).await;
    rig.configure_every("1d");
    run_until(&rig, rig.receiver.wait_until(|asked| asked.len() == 2)).await;
    rig
}

async fn a_run_that_was_stopped_goes_on_at_the_next_start(database: Database) {
    let rig = daily(database).await;
    rig.database.tamper("UPDATE job SET last_fire = 0").await;
    rig.source.now_answers(|_| Reply::Hold);
    let before = rig.source.asked().len();
    run_until(&rig, rig.source.wait_until(move |asked| asked.len() > before)).await;
    assert_eq!(rig.database.texts("SELECT status FROM run ORDER BY id DESC").await[0], "interrupted");

    rig.source.now_answers(|asked| page_of(&[(3, "2026-09-21T10:00:02Z")], asked, 1));
    run_until(&rig, rig.receiver.wait_until(|asked| asked.len() == 3)).await;
    assert_eq!(rig.database.texts("SELECT status FROM run ORDER BY id DESC").await[0], "ok");
}

async fn a_run_that_a_kill_cut_off_goes_on_at_the_next_start(database: Database) {
    let rig = daily(database).await;
    rig.database.tamper("UPDATE job SET last_fire = 0").await;
    rig.source.now_answers(|_| Reply::Hold);
    let before = rig.source.asked().len();
    let mut killed = rig.spawn(&["run"]);
    rig.source.wait_until(move |asked| asked.len() > before).await;
    killed.kill().await.unwrap();
    rig.leases_run_out().await;

    rig.source.now_answers(|asked| page_of(&[(3, "2026-09-21T10:00:02Z")], asked, 1));
    run_until(&rig, rig.receiver.wait_until(|asked| asked.len() == 3)).await;
}

async fn a_last_fire_from_the_future_silences_nothing(database: Database) {
    let rig = daily(database).await;
    rig.database.tamper("UPDATE job SET last_fire = last_fire + 31536000000000").await;
    rig.source.now_answers(|asked| page_of(&[(3, "2026-09-21T10:00:02Z")], asked, 1));
    run_until(&rig, rig.receiver.wait_until(|asked| asked.len() == 3)).await;
    let ahead = onlynew::domain::clock::machine_time().plus(Duration::from_mins(1)).micros();
    assert!(rig.database.number("(SELECT last_fire FROM job)").await < ahead);
}

async fn a_job_that_could_not_begin_runs_by_itself_once_the_store_is_well(database: Database) {
    let rig = Rig::new(database, Job::default(), |asked| page_of(&ROWS, asked, 1)).await;
    drop(rig.database.open().await);
    rig.database.break_on("job", "UPDATE", "NEW.lease_epoch > OLD.lease_epoch").await;
    let mended = async {
        while rig.database.number("(SELECT count(*) FROM job)").await == 0 {
            tokio::task::yield_now().await;
        }
        assert!(rig.source.asked().is_empty());
        rig.database.mend("job").await;
        rig.receiver.wait_until(|asked| asked.len() == 2).await;
    };
    run_until(&rig, mended).await;
}

async fn an_answer_that_cannot_be_stored_at_once_is_stored_later(database: Database) {
    let rig = Rig::new(database, Job::default(), |asked| page_of(&ROWS[..1], asked, 1)).await;
    drop(rig.database.open().await);
    rig.database.break_on("attempt", "INSERT", "NEW.fence > 0").await;
    let mended = async {
        rig.receiver.wait_until(|asked| asked.len() == 1).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        rig.database.mend("attempt").await;
    };
    let app = rig.real_time_app().await;
    let job = Arc::clone(&app.config.jobs["rows"]);
    let stop = CancellationToken::new();
    let (synced, ()) = tokio::join!(app.sync(&job, &stop), mended);
    let synced = synced.unwrap();
    assert!(synced.store_error.is_none());
    assert_eq!((synced.delivered, synced.pending, rig.receiver.asked().len()), (1, 0, 1), "sent once");
}

async fn events_that_wait_go_where_their_job_sends_them_now(database: Database) {
    let rig = Rig::new(database, Job::default(), |asked| page_of(&ROWS, asked, 2)).await;
    rig.rewrite("delays: [50ms]", "delays: [1h]");
    rig.receiver.now_answers(|_| Reply::status(404));
    assert_eq!(rig.sync().await.pending, 2);
    rig.rename_destination("elsewhere");
    rig.receiver.now_answers(|_| Reply::status(200));
    let synced = rig.sync().await;
    assert_eq!((synced.delivered, synced.pending), (2, 0));
    let bodies = |of: std::ops::Range<usize>| {
        let mut bodies: Vec<_> = rig.receiver.asked()[of].iter().map(|asked| asked.body.clone()).collect();
        bodies.sort();
        bodies
    };
    assert_eq!(bodies(0..2), bodies(2..4));
}

async fn an_absurd_retry_after_holds_for_a_day_at_most(database: Database) {
    let rig = Rig::new(database, Job::default(), |_| {
        Reply::Status(429, vec![("retry-after", "1796079600".into())], String::new())
    })
    .await;
    assert_eq!(rig.sync().await.report.status, RunStatus::RateLimited);
    let held = rig.database.number("(SELECT held_until FROM account_hold)").await;
    assert!(held <= rig.clock.now().plus(Duration::from_hours(24)).micros());
}

async fn nothing_that_was_filled_in_from_the_environment_is_shown(database: Database) {
    let job = Job { query: r#"{apikey: "${SECRET}", cursor: "{{ page.token }}"}"#, ..Job::default() };
    let rig =
        Rig::new(database, job, |asked| Reply::Status(403, Vec::new(), asked.param("apikey").to_owned()))
            .await;
    let reason = rig.sync().await.report.reason.unwrap();
    assert_eq!(rig.source.asked()[0].param("apikey"), SECRET);
    assert!(reason.contains("403") && !reason.contains(SECRET), "{reason}");
    assert!(!rig.database.texts("SELECT reason FROM run").await[0].contains(SECRET));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn jobs_run_while_the_store_does_not_say_which_tasks_wait() {
    let Some(database) = Database::postgres().await else { return };
    let rig = Rig::new(database, Job::default(), |asked| page_of(&ROWS, asked, 2)).await;
    let held_up = async {
        rig.receiver.wait_until(|asked| asked.len() == 2).await;
        let mut beside = rig.database.connect().await;
        beside.tamper("BEGIN").await;
        beside.tamper("LOCK TABLE task IN ACCESS EXCLUSIVE MODE").await;
        let waiting = rig.database.until_one_waits().await;
        let before = rig.source.asked().len();
        rig.source.wait_until(move |asked| asked.len() > before + 2).await;
        assert_eq!(rig.database.until_one_waits().await, waiting, "it still waits");
        beside.tamper("ROLLBACK").await;
    };
    run_until(&rig, held_up).await;
}

both!(
    nothing_that_was_filled_in_from_the_environment_is_shown,
    a_run_that_was_stopped_goes_on_at_the_next_start,
    a_run_that_a_kill_cut_off_goes_on_at_the_next_start,
    a_last_fire_from_the_future_silences_nothing,
    a_job_that_could_not_begin_runs_by_itself_once_the_store_is_well,
    an_answer_that_cannot_be_stored_at_once_is_stored_later,
    events_that_wait_go_where_their_job_sends_them_now,
    an_absurd_retry_after_holds_for_a_day_at_most,
);
