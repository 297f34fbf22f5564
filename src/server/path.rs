//! The parts of paths: scopes that are declared, and keys that are there.

use std::sync::Arc;

use axum::{
    extract::{FromRequestParts, Path},
    http::request::Parts,
};

use super::{Service, problem::Problem};
use crate::{
    config::nearest,
    domain::gate::{GateKey, NoKey, ScopeRules},
};

/// A scope that is declared.
pub(super) struct Scope {
    pub(super) name: String,
    pub(super) rules: ScopeRules,
}

impl FromRequestParts<Arc<Service>> for Scope {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Arc<Service>) -> Result<Self, Problem> {
        scope(service, part(parts, service, "scope").await?)
    }
}

/// A key of a scope that is declared.
pub(super) struct KeyOf {
    pub(super) scope: Scope,
    pub(super) key: GateKey,
}

impl FromRequestParts<Arc<Service>> for KeyOf {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Arc<Service>) -> Result<Self, Problem> {
        let scope = Scope::from_request_parts(parts, service).await?;
        Ok(Self { scope, key: key(&part(parts, service, "key").await?)? })
    }
}

/// The name of a lock: a key by the same rules.
pub(super) struct Named(pub(super) GateKey);

impl FromRequestParts<Arc<Service>> for Named {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Arc<Service>) -> Result<Self, Problem> {
        key(&part(parts, service, "name").await?).map(Self)
    }
}

/// The part of the path that stands where `name` does.
async fn part(parts: &mut Parts, service: &Arc<Service>, name: &str) -> Result<String, Problem> {
    let Path(named) = Path::<Vec<(String, String)>>::from_request_parts(parts, service)
        .await
        .map_err(|error| Problem::bad_request("bad_path", format!("the path cannot be read: {error}")))?;
    Ok(named.into_iter().find_map(|(known, text)| (known == name).then_some(text)).unwrap_or_default())
}

/// Reads a key.
pub(super) fn key(text: &str) -> Result<GateKey, Problem> {
    GateKey::parse(text).map_err(|error| {
        let code = if matches!(error, NoKey::Missing(_)) { "missing_key" } else { "bad_key" };
        Problem::bad_request(code, error.to_string())
    })
}

fn scope(service: &Service, name: String) -> Result<Scope, Problem> {
    if let Some(rules) = service.scopes.get(&name) {
        return Ok(Scope { name, rules: *rules });
    }
    let names = || service.scopes.keys().map(String::as_str);
    let hint = match nearest(&name, names()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if service.scopes.is_empty() => "`gate.scopes` in the jobs file declares them".to_owned(),
        None => format!("there are: {}", names().collect::<Vec<_>>().join(", ")),
    };
    Err(Problem::not_found("unknown_scope", format!("there is no scope `{name}`: {hint}")))
}
