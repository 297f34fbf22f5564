//! Bites of a purge, and what there is to purge.

use std::sync::Arc;

use onlynew::{
    domain::{instant::Instant, run::RunStatus, version::Version},
    store::{Purge, RunEnd, Store, Taken},
};

use super::{
    messages::{alone, delivered},
    pages::{DESTINATION, LONG},
};

/// Takes one bite.
pub async fn take(store: &Arc<dyn Store>, purge: &Purge) -> Taken {
    store.purge(purge).await.unwrap()
}

/// Takes all bites and says how many rows they took.
pub async fn take_all(store: &Arc<dyn Store>, purge: Purge) -> u64 {
    let (mut rows, mut next) = (0, Some(purge));
    while let Some(purge) = next {
        let taken = take(store, &purge).await;
        rows += taken.rows;
        next = taken.next;
    }
    rows
}

/// Delivers all that waits.
pub async fn deliver(store: &Arc<dyn Store>) {
    loop {
        let claims = store.claim_messages(DESTINATION, &alone(100, LONG)).await.unwrap();
        if claims.is_empty() {
            return;
        }
        for claim in &claims {
            store.settle_message(claim, &delivered()).await.unwrap().unwrap();
        }
    }
}

/// The end of a run that is complete, with this watermark.
pub fn ended(watermark: Option<i64>) -> RunEnd {
    RunEnd {
        covered: None,
        status: RunStatus::Ok,
        reason: None,
        at_source: false,
        requests: 1,
        watermark: watermark.map(Version),
        complete_through: watermark.map(Instant::from_micros),
        sync_token: None,
        page_tag: None,
    }
}
