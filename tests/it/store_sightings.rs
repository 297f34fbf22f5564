//! What pages found of their keys, and what runs covered, as it is kept.

use onlynew::{
    domain::{
        coverage::Covered,
        event::ChangeKind,
        instant::Instant,
        key::RecordKey,
        page::Silence,
        run::RunStatus,
        sighting::{Finding, KeyMark, Sighting, Silent, decode},
        version::Version,
    },
    store::{PageCommit, RunEnd},
};

use crate::{
    both,
    support::{
        database::Database,
        pages::{NEW_RUN, RunningJob, broken, record},
    },
};

both!(
    a_page_leaves_what_it_found_of_each_key_in_one_row,
    a_second_read_of_what_is_known_writes_one_sighting_and_nothing_else,
    a_page_without_records_leaves_no_sighting,
    a_page_that_is_committed_again_leaves_what_it_found_each_time,
    accepted_records_of_one_run_leave_a_sighting_each,
    a_step_is_kept_as_covered_with_the_watermark_that_it_moves,
    a_run_that_did_not_complete_covers_nothing,
);

/// What each page found, in order, as (page, finding, why silent, version) of `key`.
async fn found(database: &Database, key: &str) -> Vec<(i64, Finding, Option<Silent>, Option<i64>)> {
    let hex = if database.url().starts_with("sqlite") { "hex(keys)" } else { "encode(keys, 'hex')" };
    let rows = database
        .texts(&format!("SELECT CAST(page AS TEXT) || ' ' || lower({hex}) FROM sighting ORDER BY id"))
        .await;
    let mark = KeyMark::of(&RecordKey::from_stored(key.to_owned()));
    let mut found = Vec::new();
    for row in rows {
        let (page, hex) = row.split_once(' ').unwrap();
        let bytes: Vec<u8> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        for Sighting { finding, silent, version, .. } in
            decode(&bytes).unwrap().into_iter().filter(|sighting| sighting.key == mark)
        {
            found.push((page.parse().unwrap(), finding, silent, version.map(|version| version.0)));
        }
    }
    found
}

const SIGHTINGS: &str = "(SELECT count(*) FROM sighting)";

async fn a_page_leaves_what_it_found_of_each_key_in_one_row(database: Database) {
    let store = database.open().await;
    let job = RunningJob::start(&store, "issues").await;
    let mut baseline = job.page(1, vec![record("1", 1, "a"), record("2", 9, "a")]);
    baseline.rules.silence = Silence::Baseline(Some(Version(5)));
    job.commit_page(&baseline).await;
    job.commit(2, vec![record("1", 2, "b"), record("1", 1, "a"), record("2", 9, "a")]).await;
    job.commit(3, vec![record("1", 1, "a"), record("2", 9, "a")]).await;
    let mut deleted = record("2", 10, "a");
    deleted.flagged = true;
    let mut page = job.page(4, vec![deleted, record("1", 3, "c")]);
    page.rules.emit = vec![ChangeKind::Updated];
    job.commit_page(&page).await;

    let baseline = Some(Silent::Baseline);
    assert_eq!(
        found(&database, "1").await,
        [
            (1, Finding::Created, baseline, Some(1)),
            (2, Finding::Outdone, None, Some(1)),
            (2, Finding::UpdatedByVersion, None, Some(2)),
            (3, Finding::Stale, None, Some(1)),
            (4, Finding::UpdatedByVersion, None, Some(3)),
        ]
    );
    assert_eq!(
        found(&database, "2").await,
        [
            (1, Finding::Created, None, Some(9)),
            (2, Finding::Known, None, None),
            (3, Finding::Known, None, None),
            (4, Finding::Deleted, Some(Silent::NotSent), Some(10)),
        ]
    );
    assert_eq!(database.number(SIGHTINGS).await, 4);
}

async fn a_second_read_of_what_is_known_writes_one_sighting_and_nothing_else(database: Database) {
    const TABLES: [&str; 9] =
        ["job", "progress", "record", "event", "outbox_head", "attempt", "quarantine", "sighting", "covered"];
    let store = database.open().await;
    let job = RunningJob::start(&store, "issues").await;
    let page = vec![record("1", 1, "a"), record("2", 1, "b")];
    job.commit(1, page.clone()).await;
    let mut rows = Vec::new();
    for table in TABLES {
        rows.push(database.number(&format!("(SELECT count(*) FROM {table})")).await);
    }
    // The run itself is counted up, as with every page.
    for (number, operation) in [(2, "UPDATE"), (3, "DELETE")] {
        for table in TABLES {
            database.break_on(table, operation, "TRUE").await;
        }
        let counts = job.commit(number, page.clone()).await;
        assert_eq!((counts.records, counts.unchanged), (2, 2));
        for table in TABLES {
            database.mend(table).await;
        }
    }
    for (table, before) in TABLES.into_iter().zip(rows) {
        let added = if table == "sighting" { 2 } else { 0 };
        let now = database.number(&format!("(SELECT count(*) FROM {table})")).await;
        assert_eq!(now, before + added, "{table}");
    }
}

async fn a_page_without_records_leaves_no_sighting(database: Database) {
    let store = database.open().await;
    let job = RunningJob::start(&store, "issues").await;
    job.commit(1, Vec::new()).await;
    job.commit_page(&PageCommit { quarantined: vec![broken("<", "not JSON")], ..job.page(2, Vec::new()) })
        .await;
    assert_eq!(database.number(SIGHTINGS).await, 0);
}

async fn a_page_that_is_committed_again_leaves_what_it_found_each_time(database: Database) {
    let store = database.open().await;
    let job = RunningJob::start(&store, "issues").await;
    for _ in 0..2 {
        job.commit(1, vec![record("1", 1, "a")]).await;
    }
    assert_eq!(
        found(&database, "1").await,
        [(1, Finding::Created, None, Some(1)), (1, Finding::Known, None, None)]
    );
}

async fn accepted_records_of_one_run_leave_a_sighting_each(database: Database) {
    let store = database.open().await;
    let job = RunningJob::start(&store, "issues").await;
    let quarantined = vec![broken("<1", "not JSON"), broken("<2", "not JSON")];
    job.commit_page(&PageCommit { quarantined, ..job.page(1, Vec::new()) }).await;
    for (listed, key) in store.quarantined(job.row.id).await.unwrap().iter().zip(["1", "2"]) {
        let page = job.page(0, vec![record(key, 1, "a")]);
        store.accept_quarantined(&job.lease, listed.id, &page).await.unwrap().unwrap();
    }
    for key in ["1", "2"] {
        assert_eq!(found(&database, key).await, [(0, Finding::Created, None, Some(1))]);
    }
}

fn covered(from: Option<i64>, to: Option<i64>) -> Covered {
    Covered { from: from.map(Version), to: to.map(Version), read_at: Instant::from_seconds(7) }
}

async fn all_covered(database: &Database) -> Vec<String> {
    database
        .texts(
            "SELECT coalesce(CAST(from_version AS TEXT), '-') || ' ' || coalesce(CAST(to_version AS TEXT), '-')
                    || ' ' || CAST(read_at AS TEXT) FROM covered ORDER BY id",
        )
        .await
}

fn end(status: RunStatus, covered: Option<Covered>) -> RunEnd {
    RunEnd {
        status,
        reason: None,
        at_source: false,
        requests: 1,
        watermark: Some(Version(9)),
        complete_through: Some(Instant::from_seconds(9)),
        covered,
        sync_token: None,
        page_tag: None,
    }
}

async fn a_step_is_kept_as_covered_with_the_watermark_that_it_moves(database: Database) {
    let store = database.open().await;
    let job = RunningJob::start(&store, "issues").await;
    // Said again, as after an answer that was lost, it is the same step.
    for _ in 0..2 {
        store.advance(&job.lease, job.run, Some(Version(5)), Some(covered(None, Some(5)))).await.unwrap();
    }
    for _ in 0..2 {
        let end = end(RunStatus::Ok, Some(covered(Some(5), Some(9))));
        store.finish_run(&job.lease, job.run, &end).await.unwrap();
    }
    assert_eq!(all_covered(&database).await, ["- 5 7000000", "5 9 7000000"]);
    let run = store.start_run(&job.lease, &NEW_RUN).await.unwrap();
    store.finish_run(&job.lease, run, &end(RunStatus::Ok, Some(covered(None, None)))).await.unwrap();
    assert_eq!(all_covered(&database).await.len(), 3, "a run tells of its own reading");
    assert_eq!(all_covered(&database).await[2], "- - 7000000");
}

async fn a_run_that_did_not_complete_covers_nothing(database: Database) {
    let store = database.open().await;
    let job = RunningJob::start(&store, "issues").await;
    let end = end(RunStatus::Failed, Some(covered(Some(5), Some(9))));
    store.finish_run(&job.lease, job.run, &end).await.unwrap();
    assert!(all_covered(&database).await.is_empty());
    let closed = store.advance(&job.lease, job.run, Some(Version(9)), Some(covered(Some(5), Some(9)))).await;
    assert!(closed.is_err() && all_covered(&database).await.is_empty());
}
