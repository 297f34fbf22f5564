//! Tasks in the store: one of a kind at a time, under a lease of their own, beside the live run of their job.

use std::{collections::HashMap, sync::Arc, time::Duration};

use onlynew::{
    domain::{
        event::ChangeKind,
        page::Replay,
        run::{RunKind, RunStatus},
        task::{Plan, Resend, TaskId, TaskKind, TaskState},
        version::Version,
    },
    store::{NewRun, Opened, Purge, RunEnd, Store, StoreError},
};

use crate::{
    both,
    support::{
        database::Database,
        pages::{LONG, NEW_RUN, RunningJob, record},
        purges::{deliver, take_all},
    },
};

fn from(version: i64) -> Plan {
    Plan { from: Some(Version(version)), ..Plan::default() }
}

fn ended(status: RunStatus) -> RunEnd {
    RunEnd {
        covered: None,
        status,
        reason: (status != RunStatus::Ok).then(|| "the source is away".to_owned()),
        at_source: status == RunStatus::Failed,
        requests: 1,
        watermark: Some(Version(7)),
        complete_through: None,
        sync_token: None,
        page_tag: None,
    }
}

const REPLAY_RUN: NewRun = NewRun { kind: RunKind::Replay, ..NEW_RUN };

/// A task with its lease and a run of it.
async fn begun(
    store: &Arc<dyn Store>,
    job: &RunningJob,
    kind: TaskKind,
    plan: &Plan,
) -> (TaskId, RunningJob) {
    let (Opened::New(id) | Opened::GoesOn(id)) = store.open_task(job.row.id, kind, plan).await.unwrap()
    else {
        panic!("another one is open")
    };
    let lease = store.lease_task(id, "worker", LONG).await.unwrap().unwrap();
    let run = store.start_run(&lease, &NewRun { kind: kind.into(), ..NEW_RUN }).await.unwrap();
    (id, RunningJob { store: Arc::clone(store), row: job.row.clone(), lease, run })
}

async fn of_a_kind_one_is_open_at_a_time(database: Database) {
    let store = database.open().await;
    let job = store.register_job("issues", None).await.unwrap().id;
    let other = store.register_job("orders", None).await.unwrap().id;
    let open = async |job, kind, plan| store.open_task(job, kind, &plan).await.unwrap();
    let Opened::New(first) = open(job, TaskKind::Replay, from(1)).await else { panic!() };
    assert_eq!(open(job, TaskKind::Replay, from(1)).await, Opened::GoesOn(first));
    assert_eq!(open(job, TaskKind::Replay, from(2)).await, Opened::Another(first));
    assert!(matches!(open(job, TaskKind::Reconcile, Plan::default()).await, Opened::New(_)));
    assert!(matches!(open(other, TaskKind::Replay, from(1)).await, Opened::New(_)));

    assert!(store.cancel_task(first, None).await.unwrap() && !store.cancel_task(first, None).await.unwrap());
    assert!(store.lease_task(first, "worker", LONG).await.unwrap().is_none());
    let Opened::New(second) = open(job, TaskKind::Replay, from(1)).await else { panic!() };
    let listed = store.tasks(Some(TaskKind::Replay), false, 10).await.unwrap();
    let states: Vec<_> = listed.iter().map(|task| (task.job.as_str(), task.state)).collect();
    assert_eq!(
        states,
        [("issues", TaskState::Cancelled), ("orders", TaskState::Open), ("issues", TaskState::Open)]
    );
    assert_eq!(store.tasks(None, true, 10).await.unwrap().len(), 3);
    assert_eq!(listed.last().unwrap().id, second);
    assert_eq!(listed.last().unwrap().plan, from(1));
}

async fn those_that_ask_at_once_get_one_task(database: Database) {
    let (one, two) = database.open_two().await;
    let job = one.register_job("issues", None).await.unwrap().id;
    let ask = |store: &Arc<dyn Store>| {
        let store = Arc::clone(store);
        tokio::spawn(async move { store.open_task(job, TaskKind::Replay, &Plan::default()).await.unwrap() })
    };
    let asked: Vec<_> = (0..8).map(|number| ask(if number % 2 == 0 { &one } else { &two })).collect();
    let mut new = 0;
    for opened in asked {
        new += u32::from(matches!(opened.await.unwrap(), Opened::New(_)));
    }
    assert_eq!((new, one.tasks(None, false, 10).await.unwrap().len()), (1, 1));
}

async fn a_task_has_a_lease_and_a_progress_of_its_own(database: Database) {
    let store = database.open().await;
    let live = RunningJob::start(&store, "issues").await;
    assert_eq!(store.waiting_tasks().await.unwrap(), []);
    let (id, task) = begun(&store, &live, TaskKind::Replay, &from(1)).await;
    assert!(store.lease_task(id, "another", LONG).await.unwrap().is_none());
    assert_eq!(store.waiting_tasks().await.unwrap(), [], "somebody works on it");
    // Both write at their pleasure.
    assert_eq!(live.commit(1, vec![record("1", 1, "a")]).await.created, 1);
    assert_eq!(task.commit(1, vec![record("1", 1, "a"), record("2", 2, "b")]).await.created, 1);

    let view = store.task(id).await.unwrap().unwrap();
    assert_eq!((view.worker.as_deref(), view.runs, view.pages), (Some("worker"), 1, 1));
    store.advance(&task.lease, task.run, Some(Version(5)), None).await.unwrap();
    store.advance(&task.lease, task.run, Some(Version(4)), None).await.unwrap();
    assert_eq!(store.task(id).await.unwrap().unwrap().read_to, Some(Version(5)), "it never goes back");
    store.finish_run(&task.lease, task.run, &ended(RunStatus::Interrupted)).await.unwrap();
    store.release_job_lease(&task.lease).await.unwrap();
    assert_eq!(store.waiting_tasks().await.unwrap(), [(id, "issues".to_owned())]);

    let (_, task) = begun(&store, &live, TaskKind::Replay, &from(1)).await;
    store.finish_run(&task.lease, task.run, &ended(RunStatus::Ok)).await.unwrap();
    let view = store.task(id).await.unwrap().unwrap();
    assert_eq!((view.state, view.read_to, view.reason.is_some()), (TaskState::Done, Some(Version(7)), false));
    let job = store.job_view("issues").await.unwrap().unwrap();
    assert_eq!(job.progress.unwrap().watermark, None);
    assert!(job.lease.is_some() && job.last_run.is_some_and(|run| run.kind == RunKind::Live));
}

async fn whoever_lost_a_task_can_write_nothing(database: Database) {
    let store = database.open().await;
    let live = RunningJob::start(&store, "issues").await;
    let (id, lost) = begun(&store, &live, TaskKind::Replay, &Plan::default()).await;
    database.tamper("UPDATE task SET lease_until = 0").await;
    let lease = store.lease_task(id, "another", LONG).await.unwrap().unwrap();
    assert!(lease.epoch > lost.lease.epoch);
    assert!(!store.renew_job_lease(&lost.lease, LONG).await.unwrap());
    assert!(matches!(lost_commit(&lost).await, StoreError::LeaseLost));
    let finished = store.finish_run(&lost.lease, lost.run, &ended(RunStatus::Ok)).await;
    assert!(matches!(finished, Err(StoreError::LeaseLost)));
    store.release_job_lease(&lost.lease).await.unwrap();
    assert!(store.task(id).await.unwrap().unwrap().worker.is_some(), "the other's lease stays");
    assert_eq!(database.number("(SELECT count(*) FROM record)").await, 0);
}

async fn lost_commit(job: &RunningJob) -> StoreError {
    let page = job.page(1, vec![record("1", 1, "a")]);
    job.store.commit_page(&job.lease, &page).await.unwrap_err()
}

async fn a_task_that_is_cancelled_writes_nothing_more(database: Database) {
    let store = database.open().await;
    let live = RunningJob::start(&store, "issues").await;
    let (id, task) = begun(&store, &live, TaskKind::Replay, &Plan::default()).await;
    assert!(store.cancel_task(id, None).await.unwrap());
    assert!(matches!(lost_commit(&task).await, StoreError::Ended));
    assert!(!store.renew_job_lease(&task.lease, LONG).await.unwrap());
    let view = store.task(id).await.unwrap().unwrap();
    assert!(view.state == TaskState::Cancelled && view.ended_at.is_some());
    assert_eq!(live.commit(1, vec![record("1", 1, "a")]).await.created, 1);
}

async fn so_many_failures_end_a_task_until_it_is_asked_for_again(database: Database) {
    let store = database.open().await;
    let live = RunningJob::start(&store, "issues").await;
    let plan = from(3);
    for failures in 1..=6 {
        let (id, task) = begun(&store, &live, TaskKind::Replay, &plan).await;
        // What is not the source's fault does not count.
        store.finish_run(&task.lease, task.run, &ended(RunStatus::RateLimited)).await.unwrap();
        let run = store.start_run(&task.lease, &REPLAY_RUN).await.unwrap();
        store.finish_run(&task.lease, run, &ended(RunStatus::Failed)).await.unwrap();
        store.release_job_lease(&task.lease).await.unwrap();
        let view = store.task(id).await.unwrap().unwrap();
        let expected = if failures < 6 { TaskState::Open } else { TaskState::Failed };
        assert_eq!((view.failures, view.state), (failures, expected));
    }
    assert_eq!(store.waiting_tasks().await.unwrap(), []);
    let Opened::GoesOn(id) = store.open_task(live.row.id, TaskKind::Replay, &plan).await.unwrap() else {
        panic!()
    };
    let view = store.task(id).await.unwrap().unwrap();
    assert_eq!((view.state, view.failures, view.ended_at), (TaskState::Open, 0, None));
    assert!(matches!(store.open_task(live.row.id, TaskKind::Replay, &from(9)).await, Ok(Opened::Another(_))));
}

async fn a_preview_answers_as_a_commit_would_and_leaves_nothing(database: Database) {
    let store = database.open().await;
    let live = RunningJob::start(&store, "issues").await;
    live.commit(1, vec![record("1", 1, "a")]).await;
    let page = live.page(2, vec![record("1", 2, "b"), record("2", 1, "a")]);
    let previewed = store.preview_page("issues", &page).await.unwrap();
    assert_eq!(store.preview_page("issues", &page).await.unwrap(), previewed, "whoever holds the job");
    assert_eq!(database.number("(SELECT count(*) FROM record)").await, 1);
    assert_eq!(store.commit_page(&live.lease, &page).await.unwrap(), previewed);

    let mut page = page;
    page.rules.source.job_uid = "another".into();
    let unknown = store.preview_page("never ran", &page).await.unwrap();
    assert_eq!((unknown.counts.created, unknown.counts.events), (2, 2));
    assert!(store.find_job("never ran").await.unwrap().is_none());
}

/// A worker that commits page after page of the same keys, each time in another order and with other versions.
async fn decides(job: RunningJob, rounds: u32, step: i64, replay: Option<Replay>) {
    for round in 1..=rounds {
        let version = i64::from(round) * step;
        let mut records: Vec<_> =
            (0..20).map(|key| record(&key.to_string(), version + key % 3, &format!("{version}"))).collect();
        if round % 2 == 0 {
            records.reverse();
        }
        let mut page = job.page(round, records);
        page.rules.replay.clone_from(&replay);
        job.commit_page(&page).await;
    }
}

async fn a_replay_a_sweep_and_the_live_run_decide_the_same_keys_at_once(database: Database) {
    let store = database.open().await;
    let live = RunningJob::start(&store, "issues").await;
    let plan = Plan { resend: Resend::All, ..Plan::default() };
    let (id, replay) = begun(&store, &live, TaskKind::Replay, &plan).await;
    let (_, sweep) = begun(&store, &live, TaskKind::Reconcile, &Plan::default()).await;
    let resends = Replay { task: id, uid: "r".into(), resends: true };
    let all = async {
        tokio::join!(
            tokio::spawn(decides(live.clone(), 30, 2, None)),
            tokio::spawn(decides(replay, 30, 3, Some(resends))),
            tokio::spawn(decides(sweep, 30, 1, None)),
        )
    };
    let ended = tokio::time::timeout(Duration::from_mins(2), all).await.unwrap();
    ended.0.and(ended.1).and(ended.2).unwrap();

    let bodies = database.texts("SELECT body FROM event ORDER BY position").await;
    let mut last: HashMap<String, (i64, i64)> = HashMap::new();
    for body in bodies {
        let event: serde_json::Value = serde_json::from_str(&body).unwrap();
        let key = event["key"].as_str().unwrap().to_owned();
        let (sequence, version) = (event["sequence"].as_i64().unwrap(), event["version"].as_i64().unwrap());
        let before = last.entry(key).or_insert((0, 0));
        assert_eq!(sequence, before.0 + 1, "the events of a key are numbered as they are stored");
        if event["replay"].is_null() {
            assert!(version > before.1, "never an older version after a newer one: {event} {before:?}");
        }
        *before = (sequence, version.max(before.1));
    }
    assert_eq!(last.len(), 20);
    let deepest = database.number("(SELECT count(*) FROM record WHERE fingerprint IS NULL)").await;
    assert_eq!(deepest, 0, "no placeholder stays");
}

async fn a_replay_of_all_finds_by_its_events_what_it_has_sent(database: Database) {
    let store = database.open().await;
    let live = RunningJob::start(&store, "issues").await;
    live.commit(1, vec![record("1", 5, "new"), record("2", 1, "a")]).await;
    let plan = Plan { resend: Resend::All, ..Plan::default() };
    let (id, task) = begun(&store, &live, TaskKind::Replay, &plan).await;
    let commit = async |number, records, resends: &Replay| {
        let mut page = task.page(number, records);
        page.rules.replay = Some(resends.clone());
        page.rules.emit = ChangeKind::ALL.to_vec();
        task.commit_page(&page).await.events
    };
    let resends = Replay { task: id, uid: "r".into(), resends: true };
    let records = || vec![record("1", 4, "old"), record("2", 1, "a"), record("3", 1, "a")];
    assert_eq!(commit(2, records(), &resends).await, 3);
    assert_eq!(commit(3, records(), &resends).await, 0, "gone through again");
    assert_eq!(
        commit(4, vec![record("2", 2, "a"), record("1", 5, "new")], &resends).await,
        2,
        "other versions"
    );
    let other = Replay { task: TaskId(id.0 + 1), uid: "s".into(), resends: true };
    assert_eq!(commit(5, records(), &other).await, 3, "another replay sends them as well");
    let view = store.task(id).await.unwrap().unwrap();
    assert_eq!((view.pending, view.delivered, view.dead), (5, 0, 0));
}

async fn what_a_replay_has_sent_is_kept_while_it_may_go_on(database: Database) {
    let store = database.open().await;
    let live = RunningJob::start(&store, "issues").await;
    let plan = Plan { resend: Resend::All, ..Plan::default() };
    let (id, task) = begun(&store, &live, TaskKind::Replay, &plan).await;
    let mut page = task.page(1, vec![record("1", 1, "a")]);
    page.rules.replay = Some(Replay { task: id, uid: "r".into(), resends: true });
    assert_eq!(task.commit_page(&page).await.events, 1);
    deliver(&store).await;
    let later = store.now().await.unwrap().plus(Duration::from_hours(1));
    assert_eq!(take_all(&store, Purge::Payloads(later)).await, 1);
    for state in ["open", "failed"] {
        database.tamper(&format!("UPDATE task SET state = '{state}'")).await;
        assert_eq!(take_all(&store, Purge::Attempts(later)).await, 0, "{state}");
    }
    page.number = 2;
    database.tamper("UPDATE task SET state = 'open'").await;
    assert_eq!(task.commit_page(&page).await.events, 0, "it knows what it has sent");
    assert!(store.cancel_task(id, None).await.unwrap());
    assert_eq!(take_all(&store, Purge::Attempts(later)).await, 2);
}

both!(
    what_a_replay_has_sent_is_kept_while_it_may_go_on,
    of_a_kind_one_is_open_at_a_time,
    those_that_ask_at_once_get_one_task,
    a_task_has_a_lease_and_a_progress_of_its_own,
    whoever_lost_a_task_can_write_nothing,
    a_task_that_is_cancelled_writes_nothing_more,
    so_many_failures_end_a_task_until_it_is_asked_for_again,
    a_preview_answers_as_a_commit_would_and_leaves_nothing,
    a_replay_a_sweep_and_the_live_run_decide_the_same_keys_at_once,
    a_replay_of_all_finds_by_its_events_what_it_has_sent,
);
