//! Jobs under way and pages for them.

use std::{sync::Arc, time::Duration};

use onlynew::{
    domain::{
        content::Hash,
        decide::Detect,
        event::{ChangeKind, EventSource},
        instant::Instant,
        json_path::JsonPath,
        key::RecordKey,
        lane::Order,
        numbers::Numbers,
        page::{PageRules, SeenRecord, Silence},
        run::{Counts, RunKind},
        version::{Version, VersionFormat},
    },
    store::{JobLease, JobRow, NewRun, PageCommit, QuarantinedRecord, RunId, Store},
};
use serde_json::value::RawValue;

/// The destination of all events here.
pub const DESTINATION: &str = "n8n";

/// A lease longer than any test.
pub const LONG: Duration = Duration::from_mins(10);

/// A job that is being run.
#[derive(Clone)]
pub struct RunningJob {
    pub store: Arc<dyn Store>,
    pub row: JobRow,
    pub lease: JobLease,
    pub run: RunId,
}

impl RunningJob {
    /// Registers, leases and starts the job called `name`.
    pub async fn start(store: &Arc<dyn Store>, name: &str) -> Self {
        Self::start_for(store, name, LONG).await
    }

    /// The same with a lease of `ttl`.
    pub async fn start_for(store: &Arc<dyn Store>, name: &str, ttl: Duration) -> Self {
        let row = store.register_job(name, None).await.unwrap();
        let lease = store.lease_job(row.id, "worker", ttl).await.unwrap().unwrap();
        store.open_progress(&lease, false).await.unwrap();
        let run = store.start_run(&lease, &NEW_RUN).await.unwrap();
        Self { store: store.clone(), row, lease, run }
    }

    /// Page `number` of the run. Each page is asked for after the page before was answered.
    pub fn page(&self, number: u32, records: Vec<SeenRecord>) -> PageCommit {
        let asked_at = Instant::from_seconds(i64::from(number) * 10);
        PageCommit {
            run: self.run,
            number,
            requests: u64::from(number),
            records: records.into(),
            quarantined: Vec::new(),
            skipped: 0,
            rules: PageRules {
                replay: None,
                detect: Detect::Version,
                ignored: vec!["v".parse::<JsonPath>().unwrap()],
                emit: ChangeKind::ALL.to_vec(),
                silence: Silence::Never,
                settled_until: None,
                asked_at,
                answered_at: asked_at.plus(Duration::from_secs(1)),
                tolerance: None,
                is_feed: false,
                floor: None,
                source: EventSource {
                    job_uid: self.row.uid.clone(),
                    job: "issues".into(),
                    connector: "github".into(),
                    stream: "issues".into(),
                    format: VersionFormat::Integer,
                    numbers: Numbers::Safe,
                },
            },
            destination: DESTINATION.into(),
            order: Order::Key,
            bookmark: None,
            measure: None,
            is_unmodified: false,
        }
    }

    /// Commits page `number` and says what it counted.
    pub async fn commit(&self, number: u32, records: Vec<SeenRecord>) -> Counts {
        self.commit_page(&self.page(number, records)).await
    }

    /// Commits a page and says what it counted.
    pub async fn commit_page(&self, page: &PageCommit) -> Counts {
        self.store.commit_page(&self.lease, page).await.unwrap().counts
    }
}

/// A live run without a lower bound.
pub const NEW_RUN: NewRun = NewRun { kind: RunKind::Live, from: None, to: None, resumed: false };

/// A record with a key, a version and a content.
pub fn record(key: &str, version: i64, content: &str) -> SeenRecord {
    let json = serde_json::json!({"id": key, "v": version, "content": content}).to_string();
    SeenRecord {
        key: RecordKey::from_stored(key.to_owned()),
        version: Some(Version(version)),
        fingerprint: Hash::of(json.as_bytes()),
        flagged: false,
        raw: RawValue::from_string(json).unwrap(),
    }
}

/// A record that could not be read.
pub fn broken(raw: &str, reason: &str) -> QuarantinedRecord {
    QuarantinedRecord {
        raw: raw.to_owned(),
        reason: reason.to_owned(),
        unread_since: Instant::from_seconds(5),
    }
}
