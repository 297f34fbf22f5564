//! Field case C40, edits of a job of which tasks are open: what they were asked for under holds no more.

use std::{sync::Arc, time::Duration};

use onlynew::{
    domain::{
        run::RunStatus,
        task::{Plan, TaskKind, TaskState},
    },
    store::{Opened, StoreError, TaskView},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::cases_edits::{story, verified};
use crate::{
    both,
    support::{
        database::Database,
        rig::{Job, Rig, page_of},
    },
};

both!(
    no_task_of_an_edited_job_is_worked_on,
    an_edit_that_is_accepted_ends_the_tasks_of_before,
    a_replay_of_a_job_that_never_ran_keeps_what_its_state_rests_on,
);

async fn open_task(rig: &Rig) -> TaskView {
    let app = rig.app().await;
    let row = app.store.find_job("rows").await.unwrap().unwrap();
    let Opened::New(id) = app.store.open_task(row.id, TaskKind::Replay, &Plan::default()).await.unwrap()
    else {
        panic!("no task is open");
    };
    app.store.task(id).await.unwrap().unwrap()
}

async fn no_task_of_an_edited_job_is_worked_on(database: Database) {
    let (rig, _, _) = story(database).await;
    let task = open_task(&rig).await;
    let asked = rig.source.asked().len();
    rig.rewrite("path: /rows", "path: /other");
    let app = rig.app().await;
    let job = Arc::clone(&app.config.jobs["rows"]);
    let report = app.engine.work(&job, &task, &CancellationToken::new()).await.unwrap().unwrap();
    assert_eq!((report.status, report.run), (RunStatus::Asks, None));
    assert_eq!(rig.source.asked().len(), asked);
    rig.rewrite("path: /other", "path: /rows");
    let job = Arc::clone(&rig.app().await.config.jobs["rows"]);
    let report = app.engine.work(&job, &task, &CancellationToken::new()).await.unwrap().unwrap();
    assert_eq!(report.status, RunStatus::Ok, "{:?}", report.reason);
}

async fn an_edit_that_is_accepted_ends_the_tasks_of_before(database: Database) {
    let (rig, _, _) = story(database).await;
    let task = open_task(&rig).await;
    let store = rig.database.open().await;
    let lease = store.lease_task(task.id, "worker", Duration::from_mins(10)).await.unwrap().unwrap();
    rig.rewrite("path: /rows", "path: /other");
    let (code, answer, _) = rig.command(&["accept", "rows", "baseline", "--json"]).await;
    assert_eq!((code, &answer["cancelled_tasks"]), (0, &json!(1)));
    assert_eq!(store.task(task.id).await.unwrap().unwrap().state, TaskState::Cancelled);
    let lost = store.open_progress(&lease, false).await;
    assert!(matches!(lost, Err(StoreError::LeaseLost)), "who works on it writes nothing more: {lost:?}");
    let app = rig.app().await;
    let job = Arc::clone(&app.config.jobs["rows"]);
    assert!(app.engine.work(&job, &task, &CancellationToken::new()).await.unwrap().is_none());
    verified(&rig).await;
}

async fn a_replay_of_a_job_that_never_ran_keeps_what_its_state_rests_on(database: Database) {
    let rig =
        Rig::new(database, Job::default(), |asked| page_of(&[(1, "2026-09-21T10:00:00Z")], asked, 2)).await;
    let (code, answer, errors) = rig.command(&["replay", "rows", "--json"]).await;
    assert_eq!((code, &answer["events"]), (0, &json!(1)), "{answer} {errors}");
    rig.rewrite("path: /rows", "path: /other");
    assert_eq!(rig.sync().await.report.status, RunStatus::Asks);
    rig.rewrite("path: /other", "path: /rows");
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.counts.events), (RunStatus::Ok, 0), "{:?}", report.reason);
    verified(&rig).await;
}
