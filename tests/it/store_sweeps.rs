//! Marking what is gone beside pages that are committed at the same moment.

use std::{sync::Arc, time::Duration};

use onlynew::{
    domain::{
        event::{ChangeKind, EventSource},
        instant::Instant,
        key::RecordKey,
        lane::Order,
        numbers::Numbers,
        reconcile::Phase,
        run::RunKind,
        task::{Plan, TaskKind, TaskState},
        version::VersionFormat,
    },
    store::{GoneBatch, JobLease, NewRun, NewSweep, Opened, Store, StoreError, SweepOpened},
};

use crate::{
    both,
    support::{
        database::Database,
        pages::{DESTINATION, LONG, NEW_RUN, RunningJob, record},
    },
};

both!(
    a_page_that_was_committed_behind_the_fence_keeps_its_keys,
    a_batch_that_is_marked_again_marks_nothing,
    whoever_lost_the_sweep_marks_nothing,
    a_sweep_is_opened_once,
    a_sweep_that_asks_in_vain_makes_way_for_the_next,
    a_sweep_that_ends_leaves_no_run_under_way,
    a_run_that_was_told_that_nothing_has_changed_names_no_keys,
);

/// A job that knows the keys 1 and 2, with a sweep.
async fn swept(database: &Database) -> (RunningJob, JobLease) {
    let store = database.open().await;
    let job = RunningJob::start(&store, "issues").await;
    job.commit(1, vec![record("1", 1, "a"), record("2", 1, "a")]).await;
    let new =
        NewSweep { plan: Plan::default(), fingerprint: String::new(), reach: Duration::ZERO, after: None };
    assert_eq!(store.open_sweep(job.row.id, &new).await.unwrap(), SweepOpened::TooEarly);
    database.tamper("UPDATE progress SET complete_through = 1, baseline_open = TRUE").await;
    assert_eq!(store.open_sweep(job.row.id, &new).await.unwrap(), SweepOpened::TooEarly);
    database.tamper("UPDATE progress SET baseline_open = FALSE").await;
    let opened = store.open_sweep(job.row.id, &new).await.unwrap();
    let SweepOpened::Begun(task) = opened else { panic!("{opened:?}") };
    let lease = store.lease_task(task, "worker", LONG).await.unwrap().unwrap();
    (job, lease)
}

/// All keys, held against the sightings up to the fence.
async fn batch(job: &RunningJob, lease: &JobLease) -> GoneBatch {
    GoneBatch {
        keys: ["1", "2"].map(|key| RecordKey::from_stored(key.into())).into(),
        fence: job.store.sighting_fence(lease).await.unwrap(),
        // What counts is what pages meet: no row has been written since.
        since: job.store.now().await.unwrap().plus(LONG),
        observed_at: Instant::from_seconds(1),
        emit: ChangeKind::ALL.to_vec(),
        source: EventSource {
            job_uid: job.row.uid.clone(),
            job: "issues".into(),
            connector: "github".into(),
            stream: "issues".into(),
            format: VersionFormat::Integer,
            numbers: Numbers::Safe,
        },
        destination: DESTINATION.into(),
        order: Order::Key,
    }
}

async fn a_page_that_was_committed_behind_the_fence_keeps_its_keys(database: Database) {
    let (job, lease) = swept(&database).await;
    let batch = batch(&job, &lease).await;
    job.commit(2, vec![record("2", 1, "a")]).await;
    let marked = job.store.mark_gone(&lease, &batch).await.unwrap();
    assert_eq!((marked.deleted, marked.met.marks.len()), (1, 1));
    let deleted = database.texts("SELECT key FROM record WHERE deleted = 'reconciled'").await;
    assert_eq!(deleted, ["1"]);
    let next = GoneBatch { fence: marked.met.up_to, ..batch };
    assert!(job.store.mark_gone(&lease, &next).await.unwrap().met.marks.is_empty(), "the fence has moved on");
}

async fn a_batch_that_is_marked_again_marks_nothing(database: Database) {
    let (job, lease) = swept(&database).await;
    let batch = batch(&job, &lease).await;
    assert_eq!(job.store.mark_gone(&lease, &batch).await.unwrap().deleted, 2);
    assert_eq!(job.store.mark_gone(&lease, &batch).await.unwrap().deleted, 0);
    assert_eq!(database.number("(SELECT count(*) FROM event WHERE kind = 'record.deleted')").await, 2);
    assert_eq!(database.number("(SELECT deleted FROM sweep)").await, 2);
    // Slow pages that hold them still bring them back.
    assert_eq!(job.commit(3, vec![record("2", 1, "a")]).await.restored, 1);
}

async fn whoever_lost_the_sweep_marks_nothing(database: Database) {
    let (job, lease) = swept(&database).await;
    let batch = batch(&job, &lease).await;
    database.tamper("UPDATE task SET lease_until = 0").await;
    job.store.lease_task(lease.task.unwrap(), "another", LONG).await.unwrap().unwrap();
    let lost = job.store.mark_gone(&lease, &batch).await;
    assert!(matches!(lost, Err(StoreError::LeaseLost)), "{lost:?}");
    assert_eq!(database.number("(SELECT count(*) FROM record WHERE deleted IS NOT NULL)").await, 0);
}

async fn a_sweep_is_opened_once(database: Database) {
    let (job, lease) = swept(&database).await;
    let new =
        |after| NewSweep { plan: Plan::default(), fingerprint: String::new(), reach: Duration::ZERO, after };
    let open = async |after| job.store.open_sweep(job.row.id, &new(after)).await.unwrap();
    assert_eq!(open(lease.task).await, SweepOpened::Overtaken, "one is open");
    assert!(job.store.cancel_task(lease.task.unwrap(), None).await.unwrap());
    assert_eq!(open(None).await, SweepOpened::Overtaken, "it is not the first");
    assert!(matches!(open(lease.task).await, SweepOpened::Begun(_)));
}

async fn a_sweep_that_asks_in_vain_makes_way_for_the_next(database: Database) {
    let (job, lease) = swept(&database).await;
    let first = lease.task.unwrap();
    job.store.set_phase(&lease, Phase::Asking, 2, 2).await.unwrap();
    let new = NewSweep {
        plan: Plan::default(),
        fingerprint: String::new(),
        reach: Duration::ZERO,
        after: Some(first),
    };
    let opened = job.store.open_sweep(job.row.id, &new).await.unwrap();
    let SweepOpened::Begun(second) = opened else { panic!("{opened:?}") };
    let ended = job.store.task(first).await.unwrap().unwrap();
    assert_eq!(ended.state, TaskState::Cancelled);
    assert!(ended.reason.unwrap().contains("nobody said"), "it says why");
    assert!(!job.store.accept_deletes(first).await.unwrap(), "an answer comes too late");

    // One that was answered goes on.
    let lease = job.store.lease_task(second, "worker", LONG).await.unwrap().unwrap();
    job.store.set_phase(&lease, Phase::Asking, 2, 2).await.unwrap();
    assert!(job.store.accept_deletes(second).await.unwrap());
    let third = NewSweep { after: Some(second), ..new };
    assert_eq!(job.store.open_sweep(job.row.id, &third).await.unwrap(), SweepOpened::Overtaken);
}

async fn a_sweep_that_ends_leaves_no_run_under_way(database: Database) {
    let (job, lease) = swept(&database).await;
    job.store.start_run(&lease, &NewRun { kind: RunKind::Reconcile, ..NEW_RUN }).await.unwrap();
    job.store.end_sweep(&lease, TaskState::Failed, Some("the job was edited")).await.unwrap();
    let of_task = "SELECT status || ': ' || reason FROM run WHERE task IS NOT NULL";
    assert_eq!(database.texts(of_task).await, ["interrupted: the job was edited"]);
}

async fn a_run_that_was_told_that_nothing_has_changed_names_no_keys(database: Database) {
    let (job, _) = swept(&database).await;
    let unmodified = "(SELECT count(*) FROM run WHERE unmodified)";
    assert_eq!(database.number(unmodified).await, 0);
    let page = job.page(2, Vec::new());
    job.commit_page(&onlynew::store::PageCommit { is_unmodified: true, ..page }).await;
    assert_eq!(database.number(unmodified).await, 1);
    // What the next run would be told that of is forgotten.
    database.tamper("UPDATE progress SET page_tag = '{}'").await;
    job.store.read_afresh(job.row.id).await.unwrap();
    assert_eq!(database.number("(SELECT count(*) FROM progress WHERE page_tag IS NOT NULL)").await, 0);
}

/// Marks both keys while a page that holds 2 alone is being committed under `lease_of`.
async fn marked_beside_a_page(database: &Database, is_replay: bool) {
    let (job, lease) = swept(database).await;
    let page_lease = if is_replay {
        let opened = job.store.open_task(job.row.id, TaskKind::Replay, &Plan::default()).await.unwrap();
        let Opened::New(task) = opened else { panic!("{opened:?}") };
        job.store.lease_task(task, "worker", LONG).await.unwrap().unwrap()
    } else {
        job.lease.clone()
    };
    let kind = if is_replay { RunKind::Replay } else { RunKind::Live };
    let run = job.store.start_run(&page_lease, &NewRun { kind, ..NEW_RUN }).await.unwrap();
    let batch = batch(&job, &lease).await;
    let mut page = job.page(2, vec![record("2", 1, "a")]);
    page.run = run;

    database.stall_on("sighting", "INSERT", "TRUE").await;
    let store: Arc<dyn Store> = database.open().await;
    let committing = tokio::spawn(async move { store.commit_page(&page_lease, &page).await });
    let stalled = "(SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND state = 'active' AND query LIKE 'INSERT INTO sighting%')";
    while database.number(stalled).await == 0 {
        tokio::task::yield_now().await;
    }
    let marked = job.store.mark_gone(&lease, &batch).await.unwrap();
    committing.await.unwrap().unwrap();
    assert_eq!(marked.deleted, 1, "the page was committed first, and what it met counts");
    let deleted = database.texts("SELECT key FROM record WHERE deleted = 'reconciled'").await;
    assert_eq!(deleted, ["1"]);
}

// On SQLite every writing transaction is alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn postgres_a_live_page_that_is_being_committed_keeps_its_keys() {
    if let Some(database) = Database::postgres().await {
        marked_beside_a_page(&database, false).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn postgres_a_page_of_a_replay_that_is_being_committed_keeps_its_keys() {
    if let Some(database) = Database::postgres().await {
        marked_beside_a_page(&database, true).await;
    }
}
