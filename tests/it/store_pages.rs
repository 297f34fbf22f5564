//! The contract of a page: decided against what is stored, and written with its events or not at all.

use std::time::Duration;

use onlynew::{
    domain::{instant::Instant, key::RecordKey, page::SeenRecord, run::Counts, version::Version},
    store::PageCommit,
};

use crate::{
    both,
    support::{
        database::Database,
        pages::{DESTINATION, LONG, RunningJob, broken, record},
    },
};

both!(
    c02_records_and_their_events_are_stored_together_or_not_at_all,
    c02_a_fault_anywhere_in_a_page_leaves_nothing_of_it,
    c04_what_did_not_change_is_not_written,
    c26_a_value_that_comes_back_is_a_change_of_its_own,
    a_provisional_record_is_decided_again_although_its_bytes_are_the_same,
    a_deleted_record_is_decided_again_although_its_bytes_are_the_same,
    the_counts_of_a_page_add_up_and_are_the_run_s,
    a_page_that_is_committed_again_changes_and_counts_nothing,
    two_processes_that_commit_one_new_key_at_once_make_one_event,
    pages_of_many_jobs_at_once_do_not_stand_in_each_other_s_way,
    a_commit_whose_caller_goes_away_is_whole_and_leaves_the_store_usable,
    a_record_that_cannot_be_read_is_kept_once_with_every_byte,
    keys_are_kept_apart_and_ordered_by_their_bytes,
    a_large_page_is_stored_whole,
);

const RECORDS: &str = "(SELECT count(*) FROM record)";
const EVENTS: &str = "(SELECT count(*) FROM event)";

fn changes(counts: Counts) -> [u64; 4] {
    [counts.created, counts.updated, counts.unchanged, counts.events]
}

async fn c02_records_and_their_events_are_stored_together_or_not_at_all(database: Database) {
    let store = database.open().await;
    let job = RunningJob::start(&store, "issues").await;
    job.commit(1, vec![record("1", 1, "a")]).await;
    let before = store.job_view("issues").await.unwrap();

    // The state of key 1 is lost, its event is not: seen again, it would make the same event once more.
    database.tamper("DELETE FROM record").await;
    let mut page = job.page(2, vec![record("0", 1, "new"), record("1", 1, "a"), record("2", 1, "new")]);
    page.quarantined = vec![broken("<", "not JSON")];
    let refused = store.commit_page(&job.lease, &page).await;
    assert!(refused.is_err(), "an event was dropped silently: {refused:?}");

    assert_eq!(database.number(RECORDS).await, 0);
    assert_eq!(database.number(EVENTS).await, 1);
    assert_eq!(database.number("(SELECT count(*) FROM outbox_head)").await, 1);
    let after = store.job_view("issues").await.unwrap().unwrap();
    assert_eq!(after.last_run, before.unwrap().last_run);
    assert_eq!(after.quarantined, 0);
    assert_eq!(changes(job.commit(2, vec![record("3", 1, "new")]).await), [1, 0, 0, 1]);
}

async fn c02_a_fault_anywhere_in_a_page_leaves_nothing_of_it(database: Database) {
    let store = database.open().await;
    let job = RunningJob::start(&store, "issues").await;
    job.commit(1, vec![record("1", 1, "a")]).await;
    let before = store.job_view("issues").await.unwrap();
    let page = PageCommit {
        quarantined: vec![broken("<", "not JSON")],
        ..job.page(2, vec![record("1", 2, "b"), record("2", 1, "a")])
    };
    for (table, operation, condition) in [
        ("record", "INSERT", "NEW.key = '2'"),
        ("record", "UPDATE", "NEW.key = '2'"),
        ("event", "INSERT", "NEW.key = '2'"),
        ("outbox_head", "INSERT", "NEW.lane = '2'"),
        ("quarantine", "INSERT", "NEW.times = 1"),
        ("run", "UPDATE", "NEW.pages = 2"),
    ] {
        database.break_on(table, operation, condition).await;
        let failed = store.commit_page(&job.lease, &page).await.unwrap_err();
        assert!(failed.to_string().contains("broken by the test"), "{failed}");
        database.mend(table).await;
        assert_eq!(store.job_view("issues").await.unwrap(), before, "{table}");
        assert_eq!(database.number("(SELECT count(*) FROM outbox_head)").await, 1, "{table}");
    }
    assert_eq!(changes(job.commit_page(&page).await), [1, 1, 0, 2]);
}

async fn c04_what_did_not_change_is_not_written(database: Database) {
    let store = database.open().await;
    let job = RunningJob::start(&store, "issues").await;
    let page = vec![record("1", 1, "a"), record("2", 1, "b")];
    assert_eq!(changes(job.commit(1, page.clone()).await), [2, 0, 0, 2]);
    database.tamper("UPDATE record SET changed_at = 0, first_seen_at = 0").await;

    let mut respelled = record("2", 1, "b");
    respelled.fingerprint = record("2", 1, "other bytes").fingerprint;
    assert_eq!(changes(job.commit(2, page).await), [0, 0, 2, 0]);
    assert_eq!(changes(job.commit(3, vec![respelled]).await), [0, 0, 1, 0]);
    assert_eq!(database.number("(SELECT max(changed_at) FROM record)").await, 0);

    assert_eq!(changes(job.commit(4, vec![record("2", 2, "c")]).await), [0, 1, 0, 1]);
    let written = database.texts("SELECT key FROM record WHERE changed_at > 0 AND first_seen_at = 0").await;
    assert_eq!(written, ["2"]);
}

async fn c26_a_value_that_comes_back_is_a_change_of_its_own(database: Database) {
    let store = database.open().await;
    let job = RunningJob::start(&store, "issues").await;
    for (number, content) in [(1, "a"), (2, "b"), (3, "a")] {
        job.commit(number, vec![record("1", i64::from(number), content)]).await;
    }
    let mut seen = Vec::new();
    for _ in 0..3 {
        let claims =
            store.claim_messages(DESTINATION, &crate::support::messages::alone(10, LONG)).await.unwrap();
        let [claim] = claims.as_slice() else { panic!("{claims:?}") };
        let body: serde_json::Value = serde_json::from_str(&claim.body().unwrap()).unwrap();
        assert_eq!(body["id"], claim.id.as_str());
        seen.push((body["sequence"].to_string(), body["data"]["content"].to_string()));
        assert!(store.settle_message(claim, &crate::support::messages::delivered()).await.unwrap().is_some());
    }
    let expected = [("1", "\"a\""), ("2", "\"b\""), ("3", "\"a\"")];
    assert_eq!(seen, expected.map(|(sequence, content)| (sequence.to_owned(), content.to_owned())));
    assert_eq!(database.number("(SELECT count(DISTINCT event_id) FROM event)").await, 3);
}

async fn a_provisional_record_is_decided_again_although_its_bytes_are_the_same(database: Database) {
    let store = database.open().await;
    let job = RunningJob::start(&store, "issues").await;
    let settled_until = |number, until| {
        let mut page = job.page(number, vec![record("1", 5, "a")]);
        page.rules.settled_until = Some(Version(until));
        page
    };
    let provisional = "(SELECT count(*) FROM record WHERE provisional)";
    assert_eq!(changes(job.commit_page(&settled_until(1, 4)).await), [1, 0, 0, 1]);
    assert_eq!(database.number(provisional).await, 1);
    assert_eq!(changes(job.commit_page(&settled_until(2, 5)).await), [0, 0, 1, 0]);
    assert_eq!(database.number(provisional).await, 0);
}

async fn a_deleted_record_is_decided_again_although_its_bytes_are_the_same(database: Database) {
    let store = database.open().await;
    let job = RunningJob::start(&store, "issues").await;
    let deleted = SeenRecord { flagged: true, ..record("1", 2, "gone") };
    job.commit(1, vec![record("1", 1, "a")]).await;
    assert_eq!(job.commit(2, vec![deleted.clone()]).await.deleted, 1);
    assert_eq!(job.commit(3, vec![deleted]).await.unchanged, 1);
    database.tamper("UPDATE record SET deleted = 'reconciled'").await;
    assert_eq!(job.commit(4, vec![record("1", 2, "gone")]).await.restored, 1);
    database.tamper("UPDATE record SET deleted = 'sideways'").await;
    let unknown = store.commit_page(&job.lease, &job.page(5, vec![record("1", 3, "b")])).await.unwrap_err();
    assert!(unknown.to_string().contains("sideways"), "{unknown}");
}

async fn the_counts_of_a_page_add_up_and_are_the_run_s(database: Database) {
    let store = database.open().await;
    let job = RunningJob::start(&store, "issues").await;
    let first = job.commit(1, vec![record("1", 5, "a"), record("2", 5, "b")]).await;
    let mut page = job.page(
        2,
        vec![
            record("1", 5, "a"),
            record("2", 6, "c"),
            record("2", 4, "older"),
            record("3", 1, "d"),
            record("1", 5, "a"),
        ],
    );
    page.quarantined = vec![broken("<", "not JSON"), broken("<", "not JSON")];
    let second = job.commit_page(&page).await;
    let stale = job.commit(3, vec![record("2", 5, "b")]).await;
    let expected = Counts {
        records: 7,
        created: 1,
        updated: 1,
        unchanged: 3,
        quarantined: 2,
        events: 2,
        ..Counts::default()
    };
    assert_eq!(second, expected);
    assert_eq!(stale, Counts { records: 1, stale: 1, ..Counts::default() });
    let mut sum = first;
    sum += second;
    sum += stale;
    let run = store.job_view("issues").await.unwrap().unwrap().last_run.unwrap();
    assert_eq!((run.counts, run.pages, run.requests), (sum, 3, 3));
}

async fn a_page_that_is_committed_again_changes_and_counts_nothing(database: Database) {
    let store = database.open().await;
    let job = RunningJob::start(&store, "issues").await;
    let mut page = job.page(1, vec![record("1", 1, "a"), record("2", 1, "b")]);
    page.quarantined = vec![broken("<", "not JSON")];
    job.commit_page(&page).await;
    let before = store.job_view("issues").await.unwrap();
    assert_eq!(changes(job.commit_page(&page).await), [0, 0, 2, 0]);
    assert_eq!(store.job_view("issues").await.unwrap(), before);
}

async fn two_processes_that_commit_one_new_key_at_once_make_one_event(database: Database) {
    let (one, other) = database.open_two().await;
    let job = RunningJob::start(&one, "issues").await;
    for round in 0..10 {
        let commits = (0..6).map(|index| {
            let keys = if index % 2 == 0 { ["a", "b", "c"] } else { ["c", "b", "a"] };
            let page = keys.map(|key| record(&format!("{round}{key}"), 1, "new")).to_vec();
            let job = RunningJob { store: [&one, &other][index % 2].clone(), ..job.clone() };
            tokio::spawn(async move { job.commit(1, page).await })
        });
        let mut created = 0;
        for commit in commits.collect::<Vec<_>>() {
            created += commit.await.unwrap().created;
        }
        assert_eq!(created, 3);
    }
    assert_eq!((database.number(RECORDS).await, database.number(EVENTS).await), (30, 30));
    assert_eq!(database.number("(SELECT count(*) FROM record WHERE hash IS NULL)").await, 0);
}

async fn pages_of_many_jobs_at_once_do_not_stand_in_each_other_s_way(database: Database) {
    let (one, other) = database.open_two().await;
    let mut running = Vec::new();
    for index in 0..6 {
        let job = RunningJob::start([&one, &other][index % 2], &format!("job{index}")).await;
        running.push(tokio::spawn(async move {
            for number in 1..=8 {
                let keys = ["c", "a", "b"].map(|key| record(key, i64::from(number), "x"));
                assert_eq!(job.commit(number, keys.to_vec()).await.events, 3);
            }
        }));
    }
    for job in running {
        job.await.unwrap();
    }
    assert_eq!((database.number(RECORDS).await, database.number(EVENTS).await), (18, 144));
    assert_eq!(database.number("(SELECT count(*) FROM outbox_head)").await, 18);
}

async fn a_commit_whose_caller_goes_away_is_whole_and_leaves_the_store_usable(database: Database) {
    let store = database.open().await;
    let job = RunningJob::start(&store, "issues").await;
    for number in 1..=40 {
        let page = job.page(number, vec![record(&number.to_string(), 1, "a")]);
        let wait = Duration::from_micros(fastrand::u64(0..4_000));
        // Dropped wherever it stands when the time is up.
        let _ = tokio::time::timeout(wait, store.commit_page(&job.lease, &page)).await;
    }
    assert_eq!(job.commit(41, vec![record("last", 1, "a")]).await.created, 1);
    // Waits for the commits whose callers have gone.
    store.close().await;
    let heads = database.number("(SELECT count(*) FROM outbox_head)").await;
    assert_eq!(database.number(RECORDS).await, heads);
    assert_eq!(database.number(EVENTS).await, heads);
}

async fn a_record_that_cannot_be_read_is_kept_once_with_every_byte(database: Database) {
    let store = database.open().await;
    let job = RunningJob::start(&store, "issues").await;
    let raw = "{\"id\": \0, \"name\": \"ž\"";
    let page = |number| PageCommit {
        quarantined: vec![broken(raw, "a NUL \0 in it"), broken("other", "why"), broken("other", "why")],
        ..job.page(number, vec![record("1", 1, "a")])
    };
    for number in 1..=3 {
        assert_eq!(job.commit_page(&page(number)).await.quarantined, 3);
    }
    let view = store.job_view("issues").await.unwrap().unwrap();
    assert_eq!((view.quarantined, view.records), (2, 1));
    let hex = raw.bytes().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    let sqlite = database.url().starts_with("sqlite");
    let shown = if sqlite { "lower(hex(raw))" } else { "encode(raw, 'hex')" };
    let kept = format!("SELECT {shown} FROM quarantine");
    assert!(database.texts(&kept).await.contains(&hex));
    assert_eq!(database.number("(SELECT min(times) FROM quarantine)").await, 3);
    let asked = database.number("(SELECT min(asked_at) FROM quarantine)").await;
    assert_eq!(Instant::from_micros(asked), Instant::from_seconds(30));
    assert!(
        database.texts("SELECT reason FROM quarantine").await.contains(&"a NUL \u{2400} in it".to_owned())
    );
}

async fn keys_are_kept_apart_and_ordered_by_their_bytes(database: Database) {
    let store = database.open().await;
    let job = RunningJob::start(&store, "issues").await;
    let mut keys = [
        "10",
        "9",
        "07",
        "7",
        "a",
        "A",
        "ä",
        "a\u{308}",
        "z",
        "Z",
        "-",
        "_",
        " a",
        "a ",
        "\u{ffff}",
        "\u{1f600}",
        "9007199254740993",
        "9007199254740992",
        "1e3",
        "1000",
        "\"",
        "\\",
        "\\u0041",
        "[",
    ];
    let page: Vec<_> = keys.iter().map(|key| record(key, 1, "a")).collect();
    assert_eq!(job.commit(1, page.clone()).await.created, keys.len() as u64);
    assert_eq!(job.commit(2, page).await.unchanged, keys.len() as u64);
    keys.sort_by_key(|key| RecordKey::from_stored((*key).to_owned()));
    assert_eq!(database.texts("SELECT key FROM record ORDER BY key").await, keys);
    assert_eq!(database.texts("SELECT key FROM event ORDER BY position").await, keys);
}

async fn a_large_page_is_stored_whole(database: Database) {
    let store = database.open().await;
    let job = RunningJob::start(&store, "issues").await;
    let content = "x".repeat(2_000);
    let page = |version| (0..2_000).map(|key| record(&key.to_string(), version, &content)).collect();
    assert_eq!(changes(job.commit(1, page(1)).await), [2_000, 0, 0, 2_000]);
    assert_eq!(changes(job.commit(2, page(2)).await), [0, 2_000, 0, 2_000]);
    assert_eq!(
        store.claim_messages(DESTINATION, &crate::support::messages::alone(5_000, LONG)).await.unwrap().len(),
        2_000
    );
}
