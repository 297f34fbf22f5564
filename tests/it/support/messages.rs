//! Messages to claim, and attempts that came to something.

use std::{sync::Arc, time::Duration};

use onlynew::{
    domain::{delivery::Verdict, instant::Instant, lane::OnDead},
    store::{Attempt, ClaimRules, ClaimedMessage, Store},
};

use super::pages::{DESTINATION, LONG, RunningJob, record};

/// An attempt that came to `verdict`, at a destination that waits for nothing.
pub fn attempt(verdict: Verdict) -> Attempt {
    Attempt {
        status: Some(200),
        error: Some("why".into()),
        answer: "ok\0".into(),
        sent_at: Instant::from_seconds(1),
        took: Duration::from_millis(3),
        verdict,
        delays: Arc::new([Duration::ZERO; 2]),
        on_dead: OnDead::Skip,
        random: 0.5,
    }
}

/// Takes so many events for so long, each alone.
pub fn alone(messages: u32, ttl: Duration) -> ClaimRules {
    ClaimRules { messages, ttl, batch: None, coalesces: false }
}

/// An attempt that delivered.
pub fn delivered() -> Attempt {
    attempt(Verdict::Delivered)
}

/// An attempt that came to `verdict`, at a destination that waits for hours.
pub fn slow(verdict: Verdict) -> Attempt {
    Attempt { delays: Arc::new([Duration::from_hours(1); 2]), ..attempt(verdict) }
}

/// A failure like any other.
pub const FAILED: Verdict = Verdict::Failed { ambiguous: false, at_least: None };

/// The key and the sequence of a claimed event.
pub fn place(claim: &ClaimedMessage) -> (String, i64) {
    let body: serde_json::Value = serde_json::from_str(&claim.events[0].body).unwrap();
    (body["key"].as_str().unwrap().to_owned(), body["sequence"].as_i64().unwrap())
}

/// Claims what there is.
pub async fn claim(store: &Arc<dyn Store>) -> Vec<ClaimedMessage> {
    store.claim_messages(DESTINATION, &alone(10, LONG)).await.unwrap()
}

/// Claims the one event that there is.
pub async fn claim_one(store: &Arc<dyn Store>) -> ClaimedMessage {
    let mut claims = claim(store).await;
    assert_eq!(claims.len(), 1, "{claims:?}");
    claims.remove(0)
}

/// A job with `count` events of key 1 waiting.
pub async fn job_with_events(store: &Arc<dyn Store>, count: u32) -> RunningJob {
    let job = RunningJob::start(store, "issues").await;
    for number in 1..=count {
        job.commit(number, vec![record("1", i64::from(number), "x")]).await;
    }
    job
}

/// Two keys with one event each, both claimed.
pub async fn two_claims(store: &Arc<dyn Store>) -> (ClaimedMessage, ClaimedMessage) {
    let job = job_with_events(store, 1).await;
    job.commit(2, vec![record("2", 1, "x")]).await;
    let mut claims = claim(store).await.into_iter();
    (claims.next().unwrap(), claims.next().unwrap())
}
