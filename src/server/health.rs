//! Whether the process lives, and whether it can do its work.

use std::{borrow::Cow, sync::Arc};

use axum::{
    Json,
    extract::State,
    http::{Method, StatusCode},
    routing::get,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    Service,
    operation::{Answered, Operation},
    problem::Problem,
};

/// All is well.
#[derive(Debug, Serialize, JsonSchema)]
struct Well {
    /// `ok`.
    status: &'static str,
}

const WELL: Json<Well> = Json(Well { status: "ok" });

pub(super) fn operations() -> Vec<Operation> {
    let well = || Answered::with::<Well>(StatusCode::OK, "It is well.");
    let operation = |path, id, summary, answers, handler| Operation {
        method: Method::GET,
        path: Cow::Borrowed(path),
        id: Cow::Borrowed(id),
        summary,
        may: &[],
        body: None,
        answers,
        handler,
    };
    vec![
        operation("/healthz", "healthz", "Whether the process lives.", vec![well()], get(async || WELL)),
        operation(
            "/readyz",
            "readyz",
            "Whether the store answers.",
            vec![well(), Answered::problem(StatusCode::SERVICE_UNAVAILABLE, "The store does not answer.")],
            get(ready),
        ),
    ]
}

async fn ready(State(service): State<Arc<Service>>) -> Result<Json<Well>, Problem> {
    service.store.now().await?;
    Ok(WELL)
}
