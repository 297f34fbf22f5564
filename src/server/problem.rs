//! What a request is told that cannot be served, always in one form:
//! `{"error": {"code": "unknown_scope", "message": "there is no scope …"}}`.

use axum::{
    Json,
    http::{StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::store::StoreError;

/// How many seconds a client should wait for a store that fails.
const STORE_WAIT: u64 = 1;

/// Why a request is not served.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    body: ErrorBody,
    retry_after: Option<u64>,
}

/// A request that was not served.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ErrorBody {
    /// Why.
    pub(super) error: ErrorDetail,
}

/// Why something was not done.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct ErrorDetail {
    /// A word for programs.
    pub(super) code: &'static str,
    /// A sentence for people.
    pub(super) message: String,
}

impl Problem {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        let error = ErrorDetail { code, message: message.into() };
        Self { status, body: ErrorBody { error }, retry_after: None }
    }

    /// The request itself is wrong.
    pub(super) fn bad_request(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    /// What is asked for is not there.
    pub(super) fn not_found(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, message)
    }

    /// The same, to be tried again after so many seconds.
    pub(super) const fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }
}

impl From<StoreError> for Problem {
    /// Nobody may take it for an answer: whoever asked has to ask again.
    fn from(error: StoreError) -> Self {
        tracing::error!(%error, "the store failed; the request was not served");
        let message = "the store failed, so nobody can tell: try again";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", message).retry_after(STORE_WAIT)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body)).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}
