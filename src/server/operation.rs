//! The operations of the API, each said once: the router and the OpenAPI document are made of the same table.

use std::{borrow::Cow, sync::Arc};

use axum::{
    Router,
    http::{Method, StatusCode},
    middleware,
    routing::MethodRouter,
};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::{Service, access, problem::ErrorBody};
use crate::config::server::May;

/// How a schema is made.
pub(super) type Form = fn(&mut SchemaGenerator) -> Schema;

/// How the schema of a type is made.
fn form<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// Something that can be asked for.
pub(super) struct Operation {
    pub(super) method: Method,
    /// With its parameters in braces, as axum and OpenAPI both have it.
    pub(super) path: Cow<'static, str>,
    /// Its name for programs.
    pub(super) id: Cow<'static, str>,
    /// What it does.
    pub(super) summary: &'static str,
    /// A token has to be good for one of these; everybody may where there are none.
    pub(super) may: &'static [May],
    pub(super) body: Option<Asked>,
    pub(super) answers: Vec<Answered>,
    pub(super) handler: MethodRouter<Arc<Service>>,
}

/// The body of an operation's requests.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) form: Form,
    /// There has to be one.
    pub(super) is_required: bool,
}

impl Asked {
    /// A body of this type that has to be there.
    pub(super) fn by<T: JsonSchema>() -> Self {
        Self { form: form::<T>, is_required: true }
    }

    /// A body of this type that may be left out.
    pub(super) fn perhaps<T: JsonSchema>() -> Self {
        Self { form: form::<T>, is_required: false }
    }
}

/// One of an operation's answers.
pub(super) struct Answered {
    pub(super) status: StatusCode,
    pub(super) means: &'static str,
    pub(super) body: Form,
}

impl Answered {
    /// An answer of this type.
    pub(super) fn with<T: JsonSchema>(status: StatusCode, means: &'static str) -> Self {
        Self { status, means, body: form::<T> }
    }

    /// A problem.
    pub(super) fn problem(status: StatusCode, means: &'static str) -> Self {
        Self::with::<ErrorBody>(status, means)
    }
}

/// The router of these operations.
pub(super) fn router(operations: Vec<Operation>, service: &Arc<Service>) -> Router<Arc<Service>> {
    operations.into_iter().fold(Router::new(), |router, operation| {
        let Operation { path, may, handler, .. } = operation;
        let handler = if may.is_empty() {
            handler
        } else {
            let state = (Arc::clone(service), may);
            handler.route_layer(middleware::from_fn_with_state(state, access::authorize))
        };
        router.route(&path, handler)
    })
}

/// What every request may be answered.
pub(super) fn wrong() -> impl Iterator<Item = Answered> {
    [
        (StatusCode::BAD_REQUEST, "The key is missing or is none, or the body cannot be read."),
        (StatusCode::UNAUTHORIZED, "The token is missing or not known."),
        (StatusCode::FORBIDDEN, "The token may not do that."),
        (StatusCode::REQUEST_TIMEOUT, "The body did not come in time."),
        (StatusCode::PAYLOAD_TOO_LARGE, "The body is too large."),
        (StatusCode::UNSUPPORTED_MEDIA_TYPE, "The body is no JSON."),
        (StatusCode::SERVICE_UNAVAILABLE, "The store failed, so nobody can tell: try again."),
    ]
    .into_iter()
    .map(|(status, means)| Answered::problem(status, means))
}
