//! The demo's receiver: stands where an n8n Webhook trigger would, and is not always in the mood.

use std::sync::{Arc, Mutex};

use axum::{
    Json, Router,
    extract::State as Shared,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use serde::Deserialize;

use super::lock;
use crate::domain::instant::Instant;

/// One event that was answered with 200.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Arrived {
    pub(super) id: String,
    pub(super) key: String,
    pub(super) version: Instant,
    pub(super) sequence: u64,
}

/// What has arrived, in order.
#[derive(Debug, Default)]
pub(super) struct Received {
    pub(super) arrived: Vec<Arrived>,
    pub(super) requests: u64,
    pub(super) refused: u64,
}

pub(super) fn routes(received: Arc<Mutex<Received>>) -> Router {
    Router::new().route("/webhook/orders", post(accept)).with_state(received)
}

async fn accept(Shared(received): Shared<Arc<Mutex<Received>>>, Json(event): Json<Arrived>) -> Response {
    let mut received = lock(&received);
    received.requests += 1;
    if received.requests.is_multiple_of(6) {
        received.refused += 1;
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    if received.requests.is_multiple_of(19) {
        received.refused += 1;
        return (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, "1")]).into_response();
    }
    received.arrived.push(event);
    StatusCode::OK.into_response()
}
