//! Records that could not be read: what they hold back, and how a person settles them.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};

use onlynew::{
    domain::{instant::Instant, page::SeenRecord, run::RunStatus},
    store::PageCommit,
};
use serde_json::{Value, json};

use crate::{
    both,
    support::{
        database::Database,
        pages::{RunningJob, broken, record},
        rig::{Job, Rig},
        server::Reply,
    },
};

const ISO: Job<'_> = Job {
    query: "{}",
    pagination: "{type: none}",
    source: "incremental: {field: updated_at, format: iso8601}",
    rest: "",
};

/// The same source, its versions read as they are meant.
const PUT_RIGHT: Job<'_> = Job { source: "incremental: {field: updated_at, format: auto}", ..ISO };

const BROKEN: &str = r#"{"id":2,"updated_at":1789984800}"#;

/// A source of one good row and one whose version is no ISO 8601, and the minutes that its clock is past
/// 14:00.
struct Story {
    rig: Rig,
    second: Arc<Mutex<String>>,
    minutes: Arc<AtomicU64>,
}

impl Story {
    async fn new(database: Database) -> Self {
        let second = Arc::new(Mutex::new(BROKEN.to_owned()));
        let minutes = Arc::new(AtomicU64::new(0));
        let (row, clock) = (Arc::clone(&second), Arc::clone(&minutes));
        let rig = Rig::new(database, ISO, move |_| {
            let date = format!("Mon, 21 Sep 2026 14:{:02}:00 GMT", clock.load(Ordering::SeqCst));
            let good = r#"{"id":1,"updated_at":"2026-09-21T10:00:00Z"}"#;
            let body = format!(r#"{{"items":[{good},{}]}}"#, row.lock().unwrap());
            Reply::Status(200, vec![("content-type", "application/json".into()), ("date", date)], body)
        })
        .await;
        Self { rig, second, minutes }
    }

    /// One run when the source's clock says so many minutes past 14:00.
    async fn sync_at(&self, minutes: u64) {
        self.minutes.store(minutes, Ordering::SeqCst);
        let report = self.rig.sync().await.report;
        assert_eq!(report.status, RunStatus::Ok, "{:?}", report.reason);
    }

    /// How many minutes past 14:00 everything is known to be complete, rounded up.
    async fn complete_through(&self) -> i64 {
        let micros = self.rig.database.number("(SELECT complete_through FROM progress)").await;
        let from: Instant = "2026-09-21T14:00:00Z".parse().unwrap();
        (micros - from.micros() + 59_999_999).div_euclid(60_000_000)
    }

    async fn command(&self, arguments: &[&str]) -> (i32, Value) {
        let (code, answer, _) = self.rig.command(&[&["quarantine"], arguments, &["--json"]].concat()).await;
        (code, answer)
    }

    async fn listed(&self) -> Vec<Value> {
        let (code, answer) = self.command(&["list", "rows"]).await;
        assert_eq!((code, &answer["job"]), (0, &json!("rows")));
        answer["records"].as_array().unwrap().clone()
    }

    async fn id(&self) -> String {
        self.listed().await[0]["id"].as_str().unwrap().to_owned()
    }
}

async fn a_record_that_cannot_be_read_holds_back_completeness_and_not_the_watermark(database: Database) {
    let story = Story::new(database).await;
    story.sync_at(0).await;
    assert!(story.rig.has_watermark().await);
    assert_eq!(story.complete_through().await, 0);
    story.sync_at(10).await;
    story.sync_at(20).await;
    assert_eq!(story.complete_through().await, 0, "not beyond the moment its page was asked for");
    assert_eq!(story.listed().await.len(), 1);
    assert_eq!(story.command(&["skip", "rows", &story.id().await]).await.0, 0);
    story.sync_at(30).await;
    assert_eq!(story.complete_through().await, 30, "settled, it holds nothing back");
}

async fn the_list_tells_what_came_why_and_how_often(database: Database) {
    let story = Story::new(database).await;
    story.sync_at(0).await;
    story.sync_at(1).await;
    let listed = story.listed().await;
    assert_eq!((listed.len(), &listed[0]["times"]), (1, &json!(2)));
    let reason = listed[0]["reason"].as_str().unwrap();
    assert!(reason.contains("1789984800") && reason.contains("iso8601"), "{reason}");
    assert!(listed[0]["first_seen_at"].as_str() < listed[0]["last_seen_at"].as_str());
    let id = story.id().await;
    let (code, shown) = story.command(&["show", "rows", &id[..6]]).await;
    assert_eq!((code, &shown["raw"], &shown["id"]), (0, &json!(BROKEN), &json!(id)));
    for wrong in [&["show", "rows", "ffffffffffff"][..], &["show", "rows", ""], &["list", "row"]] {
        assert_eq!(story.command(wrong).await.0, 2, "{wrong:?}");
    }
    let (_, state, _) = story.rig.command(&["state", "show", "rows", "--json"]).await;
    assert_eq!(state["quarantined"], json!(1));
}

async fn what_was_skipped_is_listed_again_only_when_its_text_changes(database: Database) {
    let story = Story::new(database).await;
    story.sync_at(0).await;
    let id = story.id().await;
    assert_eq!(story.command(&["skip", "rows", &id]).await.0, 0);
    assert_eq!(story.command(&["skip", "rows", &id]).await.0, 2, "it is not on the list");
    story.sync_at(1).await;
    assert!(story.listed().await.is_empty());
    let (_, state, _) = story.rig.command(&["state", "show", "rows", "--json"]).await;
    assert_eq!(state["quarantined"], json!(0));
    *story.second.lock().unwrap() = BROKEN.replace("1789984800", "1789984801");
    story.sync_at(2).await;
    let listed = story.listed().await;
    assert_eq!(listed.len(), 1);
    assert_ne!(listed[0]["id"], json!(id));
}

async fn c19_an_accepted_record_is_decided_once_it_can_be_read(database: Database) {
    let story = Story::new(database).await;
    story.sync_at(0).await;
    let id = story.id().await;
    let (code, answer) = story.command(&["accept", "rows", &id]).await;
    assert_eq!((code, &answer["outcome"]), (1, &json!("unreadable")));
    assert!(answer["message"].as_str().unwrap().contains("1789984800"), "{answer}");
    assert_eq!(story.listed().await.len(), 1);

    story.rig.configure(PUT_RIGHT);
    story.rig.keep().await;
    story.rig.database.tamper("UPDATE job SET lease_owner = 'another', lease_until = 9000000000000000").await;
    let (code, answer) = story.command(&["accept", "rows", &id]).await;
    assert_eq!((code, &answer["outcome"]), (1, &json!("busy")));
    story.rig.database.tamper("UPDATE job SET lease_owner = NULL").await;

    let (code, answer) = story.command(&["accept", "rows", &id]).await;
    assert_eq!((code, &answer["outcome"], &answer["counts"]["created"]), (0, &json!("decided"), &json!(1)));
    assert!(story.listed().await.is_empty());
    story.sync_at(5).await;
    assert_eq!(story.rig.sent_keys(), ["1", "2"]);
    assert_eq!(story.complete_through().await, 5);
    assert_eq!(story.command(&["accept", "rows", &id]).await.0, 2);
}

async fn an_accepted_record_does_not_bring_back_what_was_overtaken(database: Database) {
    let story = Story::new(database).await;
    story.sync_at(0).await;
    let id = story.id().await;
    r#"{"id":2,"updated_at":"2026-09-21T13:00:00Z"}"#.clone_into(&mut story.second.lock().unwrap());
    story.sync_at(1).await;
    story.rig.configure(PUT_RIGHT);
    story.rig.keep().await;
    let (code, answer) = story.command(&["accept", "rows", &id]).await;
    assert_eq!((code, &answer["counts"]["stale"], &answer["counts"]["events"]), (0, &json!(1), &json!(0)));
    story.sync_at(2).await;
    assert_eq!(story.rig.sent_keys(), ["1", "2"]);
}

fn versionless(content: &str) -> SeenRecord {
    SeenRecord { version: None, ..record("1", 1, content) }
}

async fn accepting_is_a_change_of_its_own_beside_the_one_of_its_run(database: Database) {
    let store = database.open().await;
    let job = RunningJob::start(&store, "issues").await;
    job.commit(1, vec![versionless("a")]).await;
    assert_eq!(job.commit(2, vec![versionless("b")]).await.updated, 1);
    job.commit_page(&PageCommit { quarantined: vec![broken("{", "no JSON")], ..job.page(3, Vec::new()) })
        .await;
    let listed = store.quarantined(job.row.id).await.unwrap();
    let accepted = job.page(3, vec![versionless("c")]);
    let counts = store.accept_quarantined(&job.lease, listed[0].id, &accepted).await.unwrap().unwrap();
    assert_eq!((counts.updated, counts.conflicts, counts.events), (1, 0, 1));
    assert_eq!(job.commit(4, vec![versionless("d")]).await.updated, 1);
    assert_eq!(job.commit(5, vec![versionless("e")]).await.conflicts, 1);
}

async fn content_alone_is_decided_as_of_the_moment_its_page_was_asked_for(database: Database) {
    let store = database.open().await;
    let job = RunningJob::start(&store, "issues").await;
    let page = PageCommit { quarantined: vec![broken("{", "no JSON")], ..job.page(1, Vec::new()) };
    job.commit_page(&page).await;
    job.commit(2, vec![versionless("new")]).await;
    let listed = store.quarantined(job.row.id).await.unwrap();
    let mut accepted = job.page(1, vec![versionless("old")]);
    accepted.rules.asked_at = listed[0].asked_at;
    accepted.rules.answered_at = listed[0].answered_at;
    let counts = store.accept_quarantined(&job.lease, listed[0].id, &accepted).await.unwrap().unwrap();
    assert_eq!((counts.stale, counts.events), (1, 0));
    assert!(store.accept_quarantined(&job.lease, listed[0].id, &accepted).await.unwrap().is_none());
    let lost = onlynew::store::JobLease { epoch: job.lease.epoch - 1, ..job.lease.clone() };
    assert!(store.accept_quarantined(&lost, listed[0].id, &accepted).await.is_err());
}

async fn a_text_that_is_read_after_all_leaves_the_list_by_itself(database: Database) {
    let story = Story::new(database).await;
    story.sync_at(0).await;
    story.rig.configure(PUT_RIGHT);
    story.rig.keep().await;
    story.sync_at(1).await;
    assert!(story.listed().await.is_empty());
    assert_eq!(story.rig.sent_keys(), ["1", "2"]);
    assert_eq!(story.complete_through().await, 1);
}

async fn a_record_of_the_baseline_is_accepted_in_silence(database: Database) {
    let story = Story::new(database).await;
    story.rig.configure_baseline();
    story.sync_at(0).await;
    let id = story.id().await;
    story.rig.configure(PUT_RIGHT);
    story.rig.keep().await;
    let (code, answer) = story.command(&["accept", "rows", &id]).await;
    assert_eq!((code, &answer["counts"]["created"], &answer["counts"]["events"]), (0, &json!(1), &json!(0)));
    story.sync_at(1).await;
    assert!(story.rig.sent().is_empty());
}

async fn a_record_that_the_job_leaves_out_is_settled_by_accepting_it(database: Database) {
    let story = Story::new(database).await;
    story.sync_at(0).await;
    let id = story.id().await;
    let source = "incremental: {field: changed_at}";
    story.rig.configure(Job { source, rest: "changes: {on_missing_version: skip}", ..ISO });
    story.rig.keep().await;
    let (code, answer) = story.command(&["accept", "rows", &id]).await;
    assert_eq!((code, &answer["outcome"]), (0, &json!("left_out")));
    assert!(story.listed().await.is_empty());
}

both!(
    a_record_that_cannot_be_read_holds_back_completeness_and_not_the_watermark,
    the_list_tells_what_came_why_and_how_often,
    what_was_skipped_is_listed_again_only_when_its_text_changes,
    c19_an_accepted_record_is_decided_once_it_can_be_read,
    an_accepted_record_does_not_bring_back_what_was_overtaken,
    accepting_is_a_change_of_its_own_beside_the_one_of_its_run,
    content_alone_is_decided_as_of_the_moment_its_page_was_asked_for,
    a_text_that_is_read_after_all_leaves_the_list_by_itself,
    a_record_of_the_baseline_is_accepted_in_silence,
    a_record_that_the_job_leaves_out_is_settled_by_accepting_it,
);
