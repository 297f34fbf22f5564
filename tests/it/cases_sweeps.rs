//! Deletes by reconcile: what a sweep calls gone, and each guard that keeps it from doing so.

use std::time::Duration;

use onlynew::domain::{
    reconcile::Phase,
    run::RunStatus,
    task::{TaskId, TaskState},
};

use crate::{
    both,
    support::{
        database::Database,
        rig::Job,
        shop::{LOOKBACK, SWEPT, Shop},
    },
};

both!(
    what_is_gone_is_told_of_after_a_sweep_and_a_live_run,
    a_live_run_that_began_too_early_proves_nothing,
    a_live_run_that_goes_on_or_was_told_nothing_proves_nothing,
    a_key_that_a_live_page_met_after_the_sweep_stays,
    a_key_that_was_met_shortly_before_the_sweep_stays,
    a_key_that_was_written_since_stays,
    a_sweep_that_was_cut_off_marks_nothing_until_it_has_read_everything,
    a_sweep_under_another_configuration_marks_nothing,
    more_than_the_allowed_share_waits_for_a_person,
    records_that_cannot_be_read_keep_all_keys_alive,
    keys_below_the_start_are_not_looked_for,
    a_stream_without_versions_is_swept_the_same_way,
    a_crash_between_two_batches_marks_each_key_once,
    deletes_that_are_not_sent_are_recorded,
    what_polling_missed_is_sent_and_counted,
    a_sweep_is_opened_when_it_is_due_and_not_before_the_first_run,
    a_job_that_begins_anew_is_not_swept_before_it_has_read_what_stands,
    a_job_that_is_swept_no_more_ends_its_sweep,
    a_person_sweeps_by_hand,
    marks_of_the_source_are_left_unread_where_the_job_says_so,
    a_running_process_sweeps_by_itself,
);

async fn what_is_gone_is_told_of_after_a_sweep_and_a_live_run(database: Database) {
    let shop = Shop::new(database, SWEPT, [1, 2, 3]).await;
    shop.poll_well().await;
    shop.pass(LOOKBACK * 2).await;
    shop.change(|shelf| shelf.take(2));
    let report = shop.sweep().await.unwrap();
    assert_eq!((report.status, report.counts.records, report.counts.events), (RunStatus::Ok, 2, 0));
    let sweep = shop.judge().await;
    assert_eq!((sweep.state, sweep.phase), (TaskState::Open, Phase::Waiting), "no live run has passed");

    let sweep = shop.confirm().await;
    assert_eq!(
        (sweep.state, sweep.gone, sweep.of_keys, sweep.deleted),
        (TaskState::Done, Some(1), Some(3), 1)
    );
    assert_eq!(shop.deleted().await, ["2"]);
    let body = shop.rig.database.texts("SELECT body FROM event WHERE kind = 'record.deleted'").await;
    let body: serde_json::Value = serde_json::from_str(&body[0]).unwrap();
    assert_eq!((&body["data"], &body["sequence"]), (&serde_json::Value::Null, &2.into()));
    assert_eq!(body["version"], body["previous_version"]);

    // Swept again, it is told of no second time; what comes back is restored by whoever meets it.
    shop.sweep().await.unwrap();
    let sweep = shop.confirm().await;
    assert_eq!((sweep.gone, sweep.deleted), (Some(0), 0));
    shop.change(|shelf| shelf.put(2));
    shop.poll_well().await;
    assert_eq!(shop.told().await.last().unwrap(), "2 record.restored");
}

async fn a_live_run_that_began_too_early_proves_nothing(database: Database) {
    let shop = swept_without(database, 2).await;
    shop.poll_well().await;
    shop.pass(Duration::from_secs(59)).await;
    shop.poll_well().await;
    shop.pass(LOOKBACK * 2).await;
    assert_eq!(shop.judge().await.phase, Phase::Waiting);
    shop.poll_well().await;
    shop.judge().await;
    assert_eq!(shop.deleted().await, ["2"]);
}

async fn a_live_run_that_goes_on_or_was_told_nothing_proves_nothing(database: Database) {
    let shop = swept_without(database, 2).await;
    shop.pass(LOOKBACK).await;
    for set in ["resumed = TRUE", "unmodified = TRUE", "quarantined = 1", "skipped = 1"] {
        shop.poll_well().await;
        let newest = "id = (SELECT max(id) FROM run)";
        shop.rig.database.tamper(&format!("UPDATE run SET {set} WHERE {newest}")).await;
        assert_eq!(shop.judge().await.phase, Phase::Waiting, "{set}");
    }
    shop.rig.database.tamper("UPDATE run SET status = 'failed' WHERE id = (SELECT max(id) FROM run)").await;
    shop.change(|shelf| shelf.fails_at = Some(0));
    shop.poll().await;
    assert_eq!(shop.judge().await.phase, Phase::Waiting, "one that failed");
    shop.change(|shelf| shelf.fails_at = None);
    shop.poll_well().await;
    assert_eq!(shop.judge().await.deleted, 1);
}

async fn a_key_that_a_live_page_met_after_the_sweep_stays(database: Database) {
    let shop = Shop::new(database, SWEPT, [1, 2, 3]).await;
    shop.poll_well().await;
    shop.pass(LOOKBACK * 2).await;
    shop.change(|shelf| shelf.hidden.extend([2]));
    shop.sweep().await.unwrap();
    shop.change(|shelf| shelf.hidden.clear());
    // Its bytes are known, so that nothing is written but what the page met.
    shop.poll_well().await;
    shop.change(|shelf| shelf.hidden.extend([2]));
    let sweep = shop.confirm().await;
    assert_eq!((sweep.state, sweep.gone), (TaskState::Done, Some(0)));
    assert_eq!(shop.deleted().await, Vec::<String>::new());

    shop.pass(LOOKBACK * 2).await;
    shop.sweep().await.unwrap();
    shop.confirm().await;
    assert_eq!(shop.deleted().await, ["2"], "the next sweep misses it, too");
}

async fn a_key_that_was_met_shortly_before_the_sweep_stays(database: Database) {
    let shop = Shop::new(database, SWEPT, [1, 2, 3]).await;
    shop.poll_well().await;
    shop.pass(LOOKBACK * 2).await;
    shop.poll_well().await;
    shop.pass(Duration::from_secs(55)).await;
    shop.change(|shelf| shelf.take(2));
    shop.sweep().await.unwrap();
    assert_eq!(
        shop.confirm().await.gone,
        Some(0),
        "a copy of the source that lags behind lists it again soon"
    );
    shop.sweep().await.unwrap();
    assert_eq!(shop.confirm().await.deleted, 1);
}

async fn a_key_that_was_written_since_stays(database: Database) {
    let shop = swept_without(database, 2).await;
    shop.change(|shelf| shelf.put(2));
    shop.poll_well().await;
    // The row alone says so.
    shop.rig.database.tamper("DELETE FROM sighting WHERE id = (SELECT max(id) FROM sighting)").await;
    shop.change(|shelf| shelf.take(2));
    let sweep = shop.confirm().await;
    assert_eq!((sweep.state, sweep.gone), (TaskState::Done, Some(0)));
    assert_eq!(shop.deleted().await, Vec::<String>::new());
}

async fn a_sweep_that_was_cut_off_marks_nothing_until_it_has_read_everything(database: Database) {
    let shop = Shop::new(database, SWEPT, 1..=6).await;
    shop.poll_well().await;
    shop.pass(LOOKBACK * 2).await;
    shop.change(|shelf| {
        shelf.rows.remove(&6);
        shelf.fails_at = Some(4);
    });
    assert_eq!(shop.sweep().await.unwrap().status, RunStatus::Failed);
    shop.change(|shelf| shelf.fails_at = None);
    let seen = "(SELECT count(*) FROM run WHERE kind = 'reconcile' AND pages > 0)";
    assert_eq!(shop.rig.database.number(seen).await, 1);
    shop.pass(LOOKBACK).await;
    shop.poll_well().await;
    assert_eq!(shop.newest().await.phase, Phase::Reading);
    assert_eq!(shop.deleted().await, Vec::<String>::new());

    // It goes on where it was cut off, and what its first run saw counts.
    let report = shop.judge().await;
    assert_eq!(report.phase, Phase::Waiting);
    assert_eq!(shop.confirm().await.state, TaskState::Done);
    assert_eq!(shop.deleted().await, ["6"]);
}

async fn a_sweep_under_another_configuration_marks_nothing(database: Database) {
    let mut shop = swept_without(database, 2).await;
    shop.rig.rewrite("lookback: 1m", "lookback: 59s");
    shop.restart().await;
    let sweep = shop.confirm().await;
    assert_eq!((sweep.state, sweep.deleted), (TaskState::Failed, 0));
    assert!(sweep.reason.unwrap().contains("the job's configuration was changed"));
    assert_eq!(shop.deleted().await, Vec::<String>::new());

    shop.sweep().await.unwrap();
    assert_eq!(shop.confirm().await.deleted, 1, "the next one begins anew");
}

async fn more_than_the_allowed_share_waits_for_a_person(database: Database) {
    let shop = Shop::new(database, &SWEPT.replace("100%", "0.2"), 1..=5).await;
    shop.poll_well().await;
    shop.pass(LOOKBACK * 2).await;
    shop.change(|shelf| shelf.rows.retain(|id, _| *id > 2));
    shop.sweep().await.unwrap();
    let sweep = shop.confirm().await;
    assert_eq!((sweep.state, sweep.phase), (TaskState::Open, Phase::Asking));
    assert_eq!((sweep.gone, sweep.of_keys), (Some(2), Some(5)));
    shop.judge().await;
    assert_eq!(shop.deleted().await, Vec::<String>::new());
    let (_, status, _) = shop.rig.command(&["status", "--json"]).await;
    assert_eq!(status["jobs"][0]["sweep"]["asks"], true, "{status}");

    // What comes back while it asks stays.
    shop.change(|shelf| shelf.put(1));
    shop.poll_well().await;
    let (code, swept, error) = shop.rig.command(&["sweep", "rows", "--accept-deletes", "--json"]).await;
    assert_eq!(code, 0, "{swept} {error}");
    assert_eq!(
        (&swept["deleted"], &swept["state"], &swept["asks"]),
        (&1.into(), &"done".into(), &false.into())
    );
    assert_eq!(shop.deleted().await, ["2"]);
    let (code, ..) = shop.rig.command(&["sweep", "rows", "--accept-deletes"]).await;
    assert_eq!(code, 2, "nothing asks any more");
}

async fn records_that_cannot_be_read_keep_all_keys_alive(database: Database) {
    let shop = Shop::new(database, SWEPT, 1..=200).await;
    shop.change(|shelf| shelf.page = 1_000);
    shop.poll_well().await;
    shop.pass(LOOKBACK * 2).await;
    shop.change(|shelf| {
        shelf.rows.remove(&3);
        shelf.garbled.insert(7);
    });
    shop.sweep().await.unwrap();
    let sweep = shop.confirm().await;
    assert_eq!((sweep.state, sweep.unread, sweep.deleted), (TaskState::Done, 1, 0));
    assert!(sweep.reason.unwrap().contains("nothing is called deleted"));
    assert_eq!(shop.deleted().await, Vec::<String>::new());
}

async fn keys_below_the_start_are_not_looked_for(database: Database) {
    let mut shop = Shop::new(database, SWEPT, [1, 2]).await;
    shop.poll_well().await;
    shop.pass(Duration::from_hours(1)).await;
    shop.change(|shelf| (3..=5).for_each(|id| shelf.put(id)));
    let start = shop.shelf.lock().unwrap().now;
    shop.poll_well().await;
    shop.rig.rewrite("lookback: 1m", &format!("lookback: 1m, start: \"{start}\""));
    shop.restart().await;
    shop.pass(LOOKBACK * 2).await;
    shop.change(|shelf| {
        shelf.rows.remove(&1);
        shelf.rows.remove(&4);
    });
    let report = shop.sweep().await.unwrap();
    assert_eq!(report.counts.records, 2, "the listing is read from the start");
    let sweep = shop.confirm().await;
    assert_eq!((sweep.gone, sweep.of_keys), (Some(1), Some(3)));
    assert_eq!(shop.deleted().await, ["4"]);
}

async fn a_stream_without_versions_is_swept_the_same_way(database: Database) {
    let job = Job {
        query: r#"{cursor: "{{ page.token }}"}"#,
        source: "",
        rest: "deletes: {mode: reconcile, max_ratio: 100%}",
        ..Job::default()
    };
    let shop = Shop::of(database, job, [1, 2, 3]).await;
    shop.poll_well().await;
    shop.pass(LOOKBACK * 10).await;
    shop.change(|shelf| shelf.take(2));
    shop.poll_well().await;
    assert_eq!(shop.deleted().await, Vec::<String>::new(), "a live run says nothing of it");
    // A change that only the sweep finds was missed, whatever the reason.
    shop.change(|shelf| shelf.put(9));
    shop.sweep().await.unwrap();
    shop.pass(LOOKBACK * 10).await;
    shop.poll_well().await;
    let sweep = shop.judge().await;
    assert_eq!((sweep.state, sweep.missed, sweep.deleted), (TaskState::Done, 1, 1));
    assert_eq!(shop.deleted().await, ["2"]);
}

async fn a_crash_between_two_batches_marks_each_key_once(database: Database) {
    let shop = Shop::new(database, SWEPT, 1..=700).await;
    shop.change(|shelf| shelf.page = 1_000);
    shop.poll_well().await;
    shop.pass(LOOKBACK * 2).await;
    shop.change(|shelf| shelf.rows.clear());
    shop.sweep().await.unwrap();
    shop.pass(LOOKBACK).await;
    shop.poll_well().await;
    shop.rig.database.break_on("event", "INSERT", "NEW.key = '99'").await;
    let sweep = shop.newest().await;
    let task = shop.app.store.task(sweep.task).await.unwrap().unwrap();
    let stop = tokio_util::sync::CancellationToken::new();
    shop.app.engine.work(shop.job(), &task, &stop).await.unwrap_err();
    assert_eq!(shop.deleted().await.len(), 500, "the first batch is whole, the second undone");
    assert_eq!((shop.newest().await.phase, shop.newest().await.deleted), (Phase::Marking, 500));
    shop.rig.database.mend("event").await;

    let sweep = shop.judge().await;
    assert_eq!((sweep.state, sweep.gone, sweep.deleted), (TaskState::Done, Some(700), 700));
    let mut deleted = shop.deleted().await;
    deleted.sort();
    deleted.dedup();
    assert_eq!(deleted.len(), 700);
    assert_eq!(shop.told().await.len(), 1_400, "each was told of once");
}

async fn deletes_that_are_not_sent_are_recorded(database: Database) {
    let rest = format!("{SWEPT}\n    changes: {{emit: [created, restored]}}");
    let shop = Shop::new(database, &rest, [1, 2, 3]).await;
    shop.poll_well().await;
    shop.pass(LOOKBACK * 2).await;
    shop.change(|shelf| shelf.take(2));
    shop.sweep().await.unwrap();
    assert_eq!(shop.confirm().await.deleted, 1);
    assert_eq!(shop.deleted().await, Vec::<String>::new());
    shop.change(|shelf| shelf.put(2));
    shop.poll_well().await;
    assert_eq!(shop.told().await.last().unwrap(), "2 record.restored");
}

async fn what_polling_missed_is_sent_and_counted(database: Database) {
    let shop = Shop::new(database, SWEPT, [1]).await;
    shop.poll_well().await;
    shop.pass(Duration::from_mins(30)).await;
    shop.change(|shelf| shelf.put(2));
    // Shown twenty minutes late, when polling has passed it.
    shop.change(|shelf| {
        let version = shelf.now.minus(Duration::from_mins(20));
        let late = crate::support::shop::Row { version, content: 0, shown_from: shelf.now.plus(LOOKBACK) };
        shelf.rows.insert(3, late);
    });
    shop.poll_well().await;
    shop.pass(LOOKBACK * 2).await;
    shop.poll_well().await;
    assert!(!shop.told().await.contains(&"3 record.created".to_owned()));
    shop.sweep().await.unwrap();
    assert_eq!(shop.told().await.last().unwrap(), "3 record.created");
    let sweep = shop.confirm().await;
    assert_eq!((sweep.missed, sweep.longest, sweep.gone), (1, Duration::from_mins(20), Some(0)));
}

async fn a_sweep_is_opened_when_it_is_due_and_not_before_the_first_run(database: Database) {
    let shop = Shop::new(database, &SWEPT.replace("365d", "1h"), [1]).await;
    let open = async || shop.app.engine.open_due_sweep(shop.job()).await.unwrap();
    assert_eq!(open().await, None, "the job has never run");
    assert_eq!(shop.app.engine.ask_for_sweep(shop.job()).await.unwrap(), None);
    shop.poll_well().await;
    // The planner's clock is ours; the shop's stands in the past.
    shop.rig.clock.stand_at(onlynew::domain::clock::machine_time());
    assert_eq!(open().await, None, "no hour has passed");
    shop.rig.database.tamper("UPDATE run SET ended_at = ended_at - 3600000000").await;
    let first = open().await.expect("it is due");
    assert_eq!(open().await, None, "never two at once");
    shop.work(first).await.unwrap();
    shop.rig.database.tamper("UPDATE task SET created_at = created_at - 3600000000").await;
    assert_eq!(open().await, None, "it still waits for a live run");
    shop.rig.database.tamper("UPDATE task SET state = 'done'").await;
    let second: TaskId = open().await.expect("it is due again");
    assert_ne!(first, second);
    let beside = shop.app.store.find_job("rows").await.unwrap().unwrap();
    let plan = onlynew::domain::task::Plan::default();
    let kind = onlynew::domain::task::TaskKind::Replay;
    let opened = shop.app.store.open_task(beside.id, kind, &plan).await.unwrap();
    assert!(matches!(opened, onlynew::store::Opened::New(_)), "a replay may be open beside it");
}

async fn a_job_that_begins_anew_is_not_swept_before_it_has_read_what_stands(database: Database) {
    let shop = Shop::new(database, &SWEPT.replace("365d", "1h"), [1, 2, 3]).await;
    shop.poll_well().await;
    let (code, _, error) = shop.rig.command(&["accept", "rows", "baseline", "--anyway"]).await;
    assert_eq!(code, 0, "{error}");
    shop.pass(LOOKBACK * 200).await;
    let engine = &shop.app.engine;
    assert_eq!(engine.open_due_sweep(shop.job()).await.unwrap(), None, "it would send all that stands");
    assert_eq!(engine.ask_for_sweep(shop.job()).await.unwrap(), None);
    let told = shop.told().await;
    shop.poll_well().await;
    assert_eq!(shop.told().await, told, "the baseline is silent");
    assert!(engine.ask_for_sweep(shop.job()).await.unwrap().is_some());
}

async fn a_job_that_is_swept_no_more_ends_its_sweep(database: Database) {
    let shop = swept_without(database, 2).await;
    let task = shop.newest().await.task;
    shop.app.engine.end_unwanted_sweep(shop.job()).await.unwrap();
    let ended = shop.newest().await;
    assert_eq!((ended.task, ended.state), (task, TaskState::Cancelled));
    assert!(ended.reason.unwrap().contains("swept no more"));
    let (code, _, error) = shop.rig.command(&["sweep", "rows", "--cancel"]).await;
    assert!(code == 2 && error.contains("no sweep of `rows` is open"), "{error}");
    shop.sweep().await.unwrap();
    let (code, answer, error) = shop.rig.command(&["sweep", "rows", "--cancel", "--json"]).await;
    assert_eq!((code, &answer["cancelled"]), (0, &true.into()), "{error}");
    assert_eq!(shop.newest().await.state, TaskState::Cancelled);
}

async fn a_person_sweeps_by_hand(database: Database) {
    let shop = Shop::new(database, SWEPT, [1, 2, 3]).await;
    let (code, _, error) = shop.rig.command(&["sweep", "rows"]).await;
    assert!(code == 2 && error.contains("onlynew sync rows"), "{error}");
    shop.poll_well().await;
    shop.pass(LOOKBACK * 2).await;
    shop.change(|shelf| shelf.take(2));
    let (code, swept, error) = shop.rig.command(&["sweep", "rows", "--json"]).await;
    assert_eq!(code, 3, "{swept} {error}");
    assert_eq!((&swept["phase"], &swept["seen"], &swept["gone"]), (&"waiting".into(), &2.into(), &().into()));
    shop.pass(LOOKBACK).await;
    shop.poll_well().await;
    let (code, swept, error) = shop.rig.command(&["sweep", "rows", "--json"]).await;
    assert_eq!(code, 0, "{swept} {error}");
    assert_eq!((&swept["deleted"], &swept["pending"], &swept["run"]), (&1.into(), &0.into(), &().into()));
    assert_eq!(shop.rig.sent().last().unwrap(), &("2".to_owned(), "record.deleted".to_owned()));
}

async fn marks_of_the_source_are_left_unread_where_the_job_says_so(database: Database) {
    let source = "incremental: {field: updated_at}\n      deleted_when: record.id == 2";
    for (rest, expected) in [("", 0), ("deletes: {mode: flag}", 0), ("deletes: {mode: none}", 1)] {
        let other = if database.url().starts_with("sqlite") {
            Database::sqlite()
        } else {
            Database::postgres().await.unwrap()
        };
        let shop = Shop::of(other, Job { source, rest, ..Job::default() }, [1, 2]).await;
        shop.poll_well().await;
        let told = shop.told().await;
        assert_eq!(told.iter().filter(|told| *told == "2 record.created").count(), expected, "{rest}");
    }
}

async fn a_running_process_sweeps_by_itself(database: Database) {
    let rest = "window: {lookback: 0s}\n    deletes: {mode: reconcile, every: 1s, max_ratio: 100%}";
    let shop = Shop::new(database, rest, [1, 2, 3]).await;
    let mut running = shop.rig.spawn(&["run"]);
    let sent = |wanted: &'static str| {
        move |asked: &[crate::support::server::Asked]| {
            asked.iter().any(|asked| asked.json()["type"] == wanted && asked.json()["key"] == "2")
        }
    };
    shop.rig.receiver.wait_until(sent("record.created")).await;
    shop.change(|shelf| shelf.take(2));
    shop.rig.receiver.wait_until(sent("record.deleted")).await;
    running.kill().await.unwrap();
    assert_eq!(shop.deleted().await, ["2"]);
}

/// A shop of three rows whose sweep has read everything, one row being gone by then.
async fn swept_without(database: Database, gone: u32) -> Shop {
    let shop = Shop::new(database, SWEPT, [1, 2, 3]).await;
    shop.poll_well().await;
    shop.pass(LOOKBACK * 2).await;
    shop.change(|shelf| shelf.take(gone));
    let report = shop.sweep().await.unwrap();
    assert_eq!(report.status, RunStatus::Ok, "{report:?}");
    shop
}
