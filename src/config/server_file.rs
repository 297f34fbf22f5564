//! `server` and `gate` as they are written.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    de::{Entries, Spanned},
    server::May,
    text::{DurationForm, LifetimeForm, SecretForm, SizeForm},
};
use crate::domain::gate::{AfterDone, AfterFailure};

/// Where `onlynew run` listens, and who may ask for what.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ServerFile {
    /// The address and the port. Addresses that others reach need `tokens`.
    #[schemars(extend("default" = "127.0.0.1:8080"))]
    pub(super) listen: Option<Spanned<String>>,
    /// The bearer tokens that requests are let in by. Without any, all that reach the address may do everything.
    pub(super) tokens: Option<Spanned<Vec<Spanned<TokenFile>>>>,
    /// The addresses and networks of proxies whose `X-Forwarded-For` is believed: where a hook has `allow`, what comes
    /// through them is judged by it.
    pub(super) trusted_proxies: Option<Spanned<Vec<Spanned<String>>>>,
}

/// A bearer token: `Authorization: Bearer TOKEN`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TokenFile {
    /// The token, 16 characters at least.
    #[schemars(with = "SecretForm")]
    pub(super) token: Spanned<String>,
    /// What it is good for.
    pub(super) may: Spanned<Vec<Spanned<May>>>,
}

/// The gate: whether a side effect of a workflow may happen now.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GateFile {
    /// Scopes by name: one for each kind of side effect.
    pub(super) scopes: Spanned<Entries<Spanned<ScopeFile>>>,
}

/// What holds for the keys of one scope. Everything may be left out: `charge: {}`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ScopeFile {
    /// How long a key is its holder's, from `1s` to `7d`. Then another that asks takes it over.
    #[schemars(with = "Option<DurationForm>", extend("default" = "15m"))]
    pub(super) lease: Option<Spanned<String>>,
    /// How long a key is known after it last changed; not shorter than `lease`.
    #[schemars(with = "Option<LifetimeForm>", extend("default" = "90d"))]
    pub(super) retention: Option<Spanned<String>>,
    /// What a key answers that is done: its result (`replay`), that it must not be done again (`reject`), or that it may be
    /// (`rerun`).
    #[schemars(extend("default" = "replay"))]
    pub(super) after_done: Option<AfterDone>,
    /// What a key answers that failed: that it may be tried again (`retry`), or that it failed (`keep`).
    #[schemars(extend("default" = "retry"))]
    pub(super) after_failure: Option<AfterFailure>,
    /// The largest result that is kept, up to `1MB`; of a larger one only that there was one.
    #[schemars(with = "Option<SizeForm>", extend("default" = "64kB"))]
    pub(super) max_result: Option<Spanned<String>>,
}
