//! The contract of jobs, leases, runs, progress and accounts, on both databases.

use std::time::Duration;

use onlynew::{
    domain::{
        instant::Instant,
        run::{RunKind, RunStatus},
        version::Version,
    },
    store::{Progress, RunEnd, StoreError},
};

use crate::{
    both,
    support::{
        database::Database,
        pages::{LONG, NEW_RUN, RunningJob, record},
    },
};

both!(
    a_job_is_registered_once_however_many_register_it_at_once,
    a_job_has_one_holder_at_a_time,
    c37_a_lease_that_ran_out_is_taken_over_and_the_old_one_is_void,
    a_renewed_lease_is_not_taken_over,
    a_scheduled_instant_is_recorded_once,
    the_baseline_is_fixed_once,
    a_complete_run_moves_the_watermark_and_closes_the_baseline,
    a_run_that_did_not_complete_moves_nothing,
    a_run_that_a_crash_left_open_is_closed_by_the_next,
    an_account_is_held_until_the_latest_instant,
    the_clock_is_the_database_s,
    jobs_are_shown_by_name_in_the_same_order_everywhere,
);

fn ok(watermark: Option<i64>, complete_through: i64) -> RunEnd {
    RunEnd {
        at_source: false,
        status: RunStatus::Ok,
        reason: None,
        requests: 3,
        watermark: watermark.map(Version),
        complete_through: Some(Instant::from_seconds(complete_through)),
        covered: None,
        sync_token: None,
        page_tag: None,
    }
}

async fn a_job_is_registered_once_however_many_register_it_at_once(database: Database) {
    let (one, other) = database.open_two().await;
    let first_fire = Some(Instant::from_seconds(7));
    let registered = (0..12).map(|index| {
        let store = if index % 2 == 0 { one.clone() } else { other.clone() };
        tokio::spawn(async move { store.register_job("issues", first_fire).await.unwrap() })
    });
    let mut rows = Vec::new();
    for row in registered.collect::<Vec<_>>() {
        rows.push(row.await.unwrap());
    }
    rows.dedup();
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!((row.last_fire, row.uid.len()), (first_fire, 32));
    assert_eq!(one.find_job("issues").await.unwrap().as_ref(), Some(row));
    assert_eq!(one.find_job("orders").await.unwrap(), None);
    assert_ne!(one.register_job("orders", None).await.unwrap().uid, row.uid);
}

async fn a_job_has_one_holder_at_a_time(database: Database) {
    let (one, other) = database.open_two().await;
    let job = one.register_job("issues", None).await.unwrap().id;
    let takers = (0..12).map(|index| {
        let store = if index % 2 == 0 { one.clone() } else { other.clone() };
        tokio::spawn(async move { store.lease_job(job, &format!("w{index}"), LONG).await.unwrap() })
    });
    let mut leases = Vec::new();
    for lease in takers.collect::<Vec<_>>() {
        leases.extend(lease.await.unwrap());
    }
    let [lease] = leases.as_slice() else { panic!("{leases:?}") };
    let (owner, until) = one.job_view("issues").await.unwrap().unwrap().lease.unwrap();
    assert_eq!(owner, lease.owner);
    assert!(until > one.now().await.unwrap().plus(LONG / 2));

    one.release_job_lease(lease).await.unwrap();
    assert_eq!(one.job_view("issues").await.unwrap().unwrap().lease, None);
    let next = other.lease_job(job, "next", LONG).await.unwrap().unwrap();
    assert!(next.epoch > lease.epoch);
}

async fn c37_a_lease_that_ran_out_is_taken_over_and_the_old_one_is_void(database: Database) {
    let (one, other) = database.open_two().await;
    let old = RunningJob::start_for(&one, "issues", Duration::from_millis(1)).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let new = RunningJob::start(&other, "issues").await;
    assert!(new.lease.epoch > old.lease.epoch);

    let lost =
        |result: Result<(), StoreError>| assert!(matches!(result, Err(StoreError::LeaseLost)), "{result:?}");
    lost(one.commit_page(&old.lease, &old.page(1, vec![record("1", 1, "a")])).await.map(drop));
    lost(one.finish_run(&old.lease, old.run, &ok(Some(1), 1)).await);
    lost(one.start_run(&old.lease, &NEW_RUN).await.map(drop));
    lost(one.open_progress(&old.lease, true).await.map(drop));
    lost(one.fix_baseline(&old.lease, Instant::from_seconds(1)).await.map(drop));
    lost(one.record_fire(&old.lease, None, Instant::from_seconds(1)).await.map(drop));
    assert!(!one.renew_job_lease(&old.lease, LONG).await.unwrap());
    one.release_job_lease(&old.lease).await.unwrap();

    let view = one.job_view("issues").await.unwrap().unwrap();
    assert_eq!((view.records, view.pending, view.row.last_fire), (0, 0, None));
    assert_eq!(view.progress, Some(Progress::default()));
    assert_eq!(view.last_run.unwrap().id, new.run);
    assert!(other.renew_job_lease(&new.lease, LONG).await.unwrap(), "the old holder released the new lease");
}

async fn a_renewed_lease_is_not_taken_over(database: Database) {
    let store = database.open().await;
    let job = store.register_job("issues", None).await.unwrap().id;
    let lease = store.lease_job(job, "one", Duration::from_millis(1)).await.unwrap().unwrap();
    assert!(store.renew_job_lease(&lease, LONG).await.unwrap());
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(store.lease_job(job, "two", LONG).await.unwrap(), None);
}

async fn a_scheduled_instant_is_recorded_once(database: Database) {
    let store = database.open().await;
    let job = RunningJob::start(&store, "issues").await;
    let at = Instant::from_seconds;
    assert!(store.record_fire(&job.lease, None, at(60)).await.unwrap());
    assert!(!store.record_fire(&job.lease, None, at(60)).await.unwrap());
    assert!(!store.record_fire(&job.lease, Some(at(59)), at(120)).await.unwrap());
    assert!(store.record_fire(&job.lease, Some(at(60)), at(120)).await.unwrap());
    assert_eq!(store.find_job("issues").await.unwrap().unwrap().last_fire, Some(at(120)));
}

async fn the_baseline_is_fixed_once(database: Database) {
    let store = database.open().await;
    let job = store.register_job("issues", None).await.unwrap().id;
    let lease = store.lease_job(job, "one", LONG).await.unwrap().unwrap();
    assert_eq!(store.job_view("issues").await.unwrap().unwrap().progress, None);
    let opened = store.open_progress(&lease, true).await.unwrap();
    assert_eq!(opened, Progress { baseline_open: true, ..Progress::default() });
    let at = Instant::from_seconds;
    assert_eq!(store.fix_baseline(&lease, at(5)).await.unwrap(), at(5));
    assert_eq!(store.fix_baseline(&lease, at(9)).await.unwrap(), at(5));
    let again = store.open_progress(&lease, false).await.unwrap();
    assert_eq!((again.baseline_at, again.baseline_open), (Some(at(5)), true));
}

async fn a_complete_run_moves_the_watermark_and_closes_the_baseline(database: Database) {
    let store = database.open().await;
    let row = store.register_job("issues", None).await.unwrap();
    let lease = store.lease_job(row.id, "one", LONG).await.unwrap().unwrap();
    store.open_progress(&lease, true).await.unwrap();
    let run = store.start_run(&lease, &NEW_RUN).await.unwrap();
    store.finish_run(&lease, run, &ok(Some(70), 80)).await.unwrap();
    store.finish_run(&lease, run, &ok(Some(70), 80)).await.unwrap();
    let moved = Progress {
        watermark: Some(Version(70)),
        complete_through: Some(Instant::from_seconds(80)),
        ..Progress::default()
    };
    assert_eq!(store.open_progress(&lease, true).await.unwrap(), moved);
    let view = store.job_view("issues").await.unwrap().unwrap().last_run.unwrap();
    assert_eq!((view.status, view.kind, view.requests), (RunStatus::Ok, RunKind::Live, 3));
    assert!(view.ended_at >= Some(view.started_at));

    for (watermark, complete_through) in [(None, 80), (Some(60), 70)] {
        let run = store.start_run(&lease, &NEW_RUN).await.unwrap();
        store.finish_run(&lease, run, &ok(watermark, complete_through)).await.unwrap();
        assert_eq!(store.open_progress(&lease, true).await.unwrap(), moved);
    }
}

async fn a_run_that_did_not_complete_moves_nothing(database: Database) {
    let store = database.open().await;
    let job = RunningJob::start(&store, "issues").await;
    let end = RunEnd { status: RunStatus::RateLimited, reason: Some("429\0".into()), ..ok(Some(70), 80) };
    store.finish_run(&job.lease, job.run, &end).await.unwrap();
    assert_eq!(store.open_progress(&job.lease, true).await.unwrap(), Progress::default());
    let view = store.job_view("issues").await.unwrap().unwrap().last_run.unwrap();
    assert_eq!((view.status, view.reason.as_deref()), (RunStatus::RateLimited, Some("429\u{2400}")));
    let closed = store.commit_page(&job.lease, &job.page(1, vec![record("1", 1, "a")])).await;
    assert!(matches!(closed, Err(StoreError::Inconsistent(_))), "{closed:?}");
    assert_eq!(store.job_view("issues").await.unwrap().unwrap().records, 0);
}

async fn a_run_that_a_crash_left_open_is_closed_by_the_next(database: Database) {
    let store = database.open().await;
    let crashed = RunningJob::start_for(&store, "issues", Duration::from_millis(1)).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let view_of = async || store.job_view("issues").await.unwrap().unwrap();
    assert_eq!(view_of().await.last_run.unwrap().status, RunStatus::Interrupted, "nobody holds its lease");
    assert!(view_of().await.row.is_cut_off);
    RunningJob::start(&store, "orders").await;
    let next = RunningJob::start(&store, "issues").await;
    let open = database.texts("SELECT reason FROM run WHERE status = 'failed'").await;
    assert_eq!(open, ["interrupted"]);
    assert_eq!(database.number("(SELECT count(*) FROM run WHERE ended_at IS NULL)").await, 2);
    assert!(next.run > crashed.run);
    let view = view_of().await;
    assert_eq!((view.last_run.unwrap().status, view.row.is_cut_off), (RunStatus::Running, true));
    store.finish_run(&next.lease, next.run, &ok(None, 1)).await.unwrap();
    assert!(!view_of().await.row.is_cut_off);
}

async fn an_account_is_held_until_the_latest_instant(database: Database) {
    let store = database.open().await;
    let at = Instant::from_seconds;
    assert_eq!(store.held_until("acme").await.unwrap(), None);
    store.hold_account("acme", at(50), "429").await.unwrap();
    store.hold_account("acme", at(40), "earlier").await.unwrap();
    store.hold_account("other", at(90), "429").await.unwrap();
    assert_eq!(store.held_until("acme").await.unwrap(), Some(at(50)));
    store.hold_account("acme", at(60), "later").await.unwrap();
    assert_eq!(store.held_until("acme").await.unwrap(), Some(at(60)));
    assert_eq!(database.texts("SELECT reason FROM account_hold WHERE account = 'acme'").await, ["later"]);
}

async fn the_clock_is_the_database_s(database: Database) {
    let store = database.open().await;
    let ours = onlynew::domain::clock::machine_time();
    let first = store.now().await.unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    let second = store.now().await.unwrap();
    assert!(first < second, "{first} {second}");
    assert!(ours.since(first).max(first.since(ours)) < Duration::from_secs(10), "{ours} {first}");
}

async fn jobs_are_shown_by_name_in_the_same_order_everywhere(database: Database) {
    let store = database.open().await;
    let mut names = ["b", "B", "_", "a-b", "ab", "č", "Č", "z", "\u{ffff}", "\u{1f600}"];
    for name in names {
        store.register_job(name, None).await.unwrap();
    }
    let shown: Vec<String> = store.job_views().await.unwrap().into_iter().map(|view| view.name).collect();
    names.sort_unstable();
    assert_eq!(shown, names);
}
