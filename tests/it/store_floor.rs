//! The contract of the floor: keys whose versions are below are forgotten, and are no news where they come again.

use std::{sync::Arc, time::Duration};

use onlynew::{
    domain::{
        content::Hash,
        page::SeenRecord,
        retention::Floor,
        run::Counts,
        task::{Plan, TaskKind},
        version::Version,
        window::WindowRule,
    },
    store::{JobId, Opened, PageCommit, Purge, Store, Taken},
};

use crate::{
    both,
    support::{
        database::Database,
        pages::{NEW_RUN, RunningJob, record},
        purges::{deliver, ended, take, take_all},
    },
};

both!(
    keys_below_the_floor_are_forgotten_in_slices_and_the_floor_moves_up_first,
    a_run_that_began_before_the_floor_moved_meets_it,
    c27_a_replay_below_the_floor_marks_what_was_known_once,
    keys_that_may_still_change_under_their_versions_are_not_forgotten,
    a_key_is_either_told_of_or_passed_over_while_keys_are_forgotten,
);

const WINDOW: WindowRule = WindowRule {
    start: None,
    lookback: Duration::ZERO,
    settle: Duration::ZERO,
    step: None,
    granularity: Duration::ZERO,
    precision: 1,
    open_start: false,
    open_end: false,
    is_time: true,
};

fn keys(job: JobId, before: i64) -> Purge {
    Purge::Keys { job, window: WINDOW, before: Version(before), from: String::new() }
}

/// A page of a job whose keys are forgotten.
fn page(job: &RunningJob, number: u32, is_replay: bool, records: Vec<SeenRecord>) -> PageCommit {
    let mut page = job.page(number, records);
    page.rules.floor = Some(Floor::known(None, is_replay));
    page
}

async fn commit(job: &RunningJob, number: u32, records: Vec<SeenRecord>) -> Counts {
    job.commit_page(&page(job, number, false, records)).await
}

/// A job with a watermark and, again, under way.
async fn complete_to(store: &Arc<dyn Store>, watermark: i64, records: Vec<SeenRecord>) -> RunningJob {
    let mut job = RunningJob::start(store, "issues").await;
    commit(&job, 1, records).await;
    store.finish_run(&job.lease, job.run, &ended(Some(watermark))).await.unwrap();
    job.run = store.start_run(&job.lease, &NEW_RUN).await.unwrap();
    job
}

async fn keys_below_the_floor_are_forgotten_in_slices_and_the_floor_moves_up_first(database: Database) {
    let store = database.open().await;
    let records = (0..1_200).map(|key| record(&format!("{key:04}"), key % 2 * 90 + 5, "a")).collect();
    let job = complete_to(&store, 80, records).await;
    let floor = "(SELECT floor FROM progress)";
    assert_eq!(store.purgeable(&keys(job.row.id, 50)).await.unwrap(), 600);
    let first = take(&store, &keys(job.row.id, 50)).await;
    assert_eq!((first.rows, database.number(floor).await), (250, 50));
    let next = first.next.unwrap();
    assert!(matches!(&next, Purge::Keys { from, .. } if from == "0500"), "{next:?}");
    assert_eq!(take_all(&store, next).await, 350);
    assert_eq!(take_all(&store, keys(job.row.id, 40)).await, 0);
    assert_eq!(database.number(floor).await, 50, "it never moves down");
    assert_eq!(take_all(&store, keys(job.row.id, 99)).await, 0);
    assert_eq!(database.number(floor).await, 80, "nor above what the next window reaches down to");
    assert_eq!(database.number("(SELECT count(*) FROM record WHERE hash IS NOT NULL)").await, 600);
    assert_eq!(database.number("(SELECT count(*) FROM record WHERE sequence = 1)").await, 1_200);
    let never_read = store.register_job("never read", None).await.unwrap();
    assert_eq!(take(&store, &keys(never_read.id, 50)).await, Taken::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn keys_are_not_forgotten_while_a_page_of_a_replay_is_being_committed() {
    let Some(database) = Database::postgres().await else { return };
    let store = database.open().await;
    let job = complete_to(&store, 80, vec![record("1", 5, "a"), record("2", 70, "a")]).await;
    let plan = Plan::default();
    assert!(matches!(store.open_task(job.row.id, TaskKind::Replay, &plan).await, Ok(Opened::New(_))));
    let mut page = database.connect().await;
    page.tamper("BEGIN").await;
    page.tamper("SELECT id FROM task FOR UPDATE").await;
    let forgetting = tokio::spawn({
        let (store, id) = (Arc::clone(&store), job.row.id);
        async move { take_all(&store, keys(id, 50)).await }
    });
    database.until_one_waits().await;
    assert_eq!(database.number("(SELECT count(*) FROM record WHERE hash IS NULL)").await, 0);
    page.tamper("COMMIT").await;
    assert_eq!(forgetting.await.unwrap(), 1);
}

async fn a_run_that_began_before_the_floor_moved_meets_it(database: Database) {
    let store = database.open().await;
    let job =
        complete_to(&store, 80, vec![record("1", 5, "a"), record("2", 6, "a"), record("3", 70, "a")]).await;
    let again = vec![record("1", 5, "a"), record("2", 7, "b"), record("3", 70, "a"), record("4", 8, "a")];
    let begun = page(&job, 1, false, again);
    assert_eq!(take_all(&store, keys(job.row.id, 50)).await, 2);
    let counts = job.commit_page(&begun).await;
    assert_eq!((counts.below_floor, counts.unchanged, counts.events, counts.records), (3, 1, 0, 4));
    assert_eq!(database.number("(SELECT count(*) FROM record)").await, 3, "no placeholder stays");
    let view = store.job_view("issues").await.unwrap().unwrap();
    assert_eq!(view.last_run.unwrap().counts, counts);
    assert_eq!(view.progress.unwrap().floor, Some(Version(50)));
    let counts = commit(&job, 2, vec![record("1", 60, "b"), record("4", 60, "a")]).await;
    assert_eq!((counts.updated, counts.created, counts.events), (1, 1, 2));
    let counts = commit(&job, 3, vec![record("1", 5, "a"), record("3", 9, "old")]).await;
    assert_eq!((counts.stale, counts.below_floor), (2, 0), "what is known is decided as ever");
}

async fn c27_a_replay_below_the_floor_marks_what_was_known_once(database: Database) {
    let store = database.open().await;
    let mut gone = record("gone", 5, "a");
    gone.flagged = true;
    let job = complete_to(&store, 80, vec![record("known", 60, "a"), record("once", 5, "a"), gone]).await;
    assert_eq!(take_all(&store, keys(job.row.id, 50)).await, 2);
    deliver(&store).await;
    let seen = || {
        ["gone", "known", "never", "once"].map(|key| record(key, if key == "known" { 60 } else { 5 }, "a"))
    };
    let counts = job.commit_page(&page(&job, 1, true, seen().to_vec())).await;
    assert_eq!((counts.restored, counts.created, counts.updated, counts.unchanged), (1, 1, 1, 1));
    let bodies = database.texts("SELECT body FROM event WHERE state = 'pending' ORDER BY key").await;
    let told = bodies.iter().map(|body| {
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        let text = |name: &str| body[name].as_str().unwrap().to_owned();
        (text("key"), text("type"), body.get("re_seen") == Some(&true.into()), body["sequence"].as_i64())
    });
    let expected = [
        ("gone", "record.restored", true, Some(1)),
        ("never", "record.created", false, Some(1)),
        ("once", "record.updated", true, Some(2)),
    ];
    let expected =
        expected.map(|(key, kind, re_seen, sequence)| (key.to_owned(), kind.to_owned(), re_seen, sequence));
    assert_eq!(told.collect::<Vec<_>>(), expected);
    let counts = job.commit_page(&page(&job, 2, true, seen().to_vec())).await;
    assert_eq!((counts.unchanged, counts.events), (4, 0), "it is known again");
}

async fn keys_that_may_still_change_under_their_versions_are_not_forgotten(database: Database) {
    let store = database.open().await;
    let mut job = RunningJob::start(&store, "issues").await;
    let mut first = page(&job, 1, false, vec![record("old", 5, "a"), record("young", 6, "a")]);
    first.rules.settled_until = Some(Version(5));
    job.commit_page(&first).await;
    let mut plain = record("plain", 5, "b");
    commit(&job, 2, vec![record("plain", 5, "a")]).await;
    plain.version = None;
    plain.fingerprint = Hash::of(b"plain");
    assert_eq!(commit(&job, 3, vec![plain]).await.updated, 1);
    store.finish_run(&job.lease, job.run, &ended(Some(80))).await.unwrap();
    job.run = store.start_run(&job.lease, &NEW_RUN).await.unwrap();
    assert_eq!(store.purgeable(&keys(job.row.id, 50)).await.unwrap(), 1);
    assert_eq!(take_all(&store, keys(job.row.id, 50)).await, 1);
    assert_eq!(database.texts("SELECT key FROM record WHERE hash IS NULL").await, ["old"]);
}

async fn a_key_is_either_told_of_or_passed_over_while_keys_are_forgotten(database: Database) {
    let (one, other) = database.open_two().await;
    let records: Vec<_> = (0..1_500).map(|key| record(&format!("{key:04}"), key % 50, "a")).collect();
    let job = complete_to(&one, 80, records.clone()).await;
    let id = job.row.id;
    let forgetting = tokio::spawn(async move {
        let mut rows = 0;
        for before in [10, 20, 30, 40, 50] {
            rows += take_all(&other, keys(id, before)).await;
        }
        rows
    });
    let mut number = 1;
    while number < 4 || !forgetting.is_finished() {
        number += 1;
        let counts = commit(&job, number, records.clone()).await;
        assert_eq!((counts.events, counts.unchanged + counts.below_floor), (0, 1_500), "{counts:?}");
    }
    assert_eq!(forgetting.await.unwrap(), 1_500);
    assert_eq!(commit(&job, number + 1, records).await.below_floor, 1_500);
}
