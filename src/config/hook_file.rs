//! `hooks` as they are written.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use super::{
    de::Spanned,
    destination_file::{DestinationFile, RateFile},
    text::{DurationForm, LifetimeForm, Literal, PathForm, SecretsForm, SizeForm, TextOr},
};
use crate::domain::{
    hook::OnMissingKey,
    webhook::{Algorithm, Encoding},
};

/// Webhooks that come in: each is checked, stored, answered, and goes on once, however often it comes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HookFile {
    /// Where it is posted to, such as `/in/orders`.
    pub(super) path: Spanned<String>,
    /// How the provider signs.
    pub(super) verify: Spanned<VerifyFile>,
    /// What tells one from another, as a template over `body` and `headers`: `"{{ body.id }}"`. What it is made of has to be
    /// there. Where one thing is told of several times, its state belongs in here, too: `"{{ body.id }}-{{ body.status }}"`.
    pub(super) key: Option<Spanned<String>>,
    /// In place of `key`: places in the body that are hashed.
    pub(super) key_fields: Option<Spanned<Vec<Spanned<TextOr<TimeFieldFile>>>>>,
    /// What becomes of one without a key: it is kept for a person and answered 202 (`quarantine`), or refused with 422
    /// (`reject`).
    #[schemars(extend("default" = "quarantine"))]
    pub(super) on_missing_key: Option<OnMissingKey>,
    /// Where it goes: a destination's name, or an n8n webhook's URL.
    pub(super) destination: Spanned<TextOr<DestinationFile>>,
    /// The status that one is answered with which came before.
    #[schemars(with = "Option<u16>", range(min = 200, max = 202), extend("default" = 200))]
    pub(super) duplicate_status: Option<Spanned<u16>>,
    /// The largest body, up to `16MB`.
    #[schemars(with = "Option<SizeForm>", extend("default" = "1MB"))]
    pub(super) max_body: Option<Spanned<String>>,
    /// The types of bodies that are taken. Others than JSON go on as a text.
    #[schemars(extend("default" = ["application/json"]))]
    pub(super) content_types: Option<Spanned<Vec<Spanned<String>>>>,
    /// The addresses and networks that it may come from. Default: all.
    pub(super) allow: Option<Spanned<Vec<Spanned<String>>>>,
    /// How many are taken. Default: as many as come.
    pub(super) rate_limit: Option<RateFile>,
    /// The headers that go along, under `headers` of the event.
    pub(super) headers: Option<Spanned<Vec<Spanned<String>>>>,
    /// How long a key is known after it last came.
    #[schemars(with = "Option<LifetimeForm>", extend("default" = "never"))]
    pub(super) retention: Option<Spanned<String>>,
}

/// A moment in the body.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TimeFieldFile {
    /// Where it stands.
    #[schemars(with = "PathForm")]
    pub(super) time: Spanned<String>,
    /// What it is rounded down to: providers that send twice may tell of two moments.
    #[schemars(with = "Option<DurationForm>", extend("default" = "1s"))]
    pub(super) round: Option<Spanned<String>>,
}

impl JsonSchema for TextOr<TimeFieldFile> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "KeyField".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (plain, time) = (PathForm::json_schema(generator), generator.subschema_for::<TimeFieldFile>());
        json_schema!({ "anyOf": [plain, time] })
    }
}

/// How a provider signs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct VerifyFile {
    /// The scheme.
    pub(super) scheme: Spanned<SchemeName>,
    /// The secret, or several while the provider changes from one to the next: one of them has to fit.
    #[schemars(with = "Option<SecretsForm>")]
    pub(super) secrets: Option<Spanned<Literal>>,
    /// How far the moment that is signed may be from now.
    #[schemars(with = "Option<DurationForm>", extend("default" = "5m"))]
    pub(super) tolerance: Option<Spanned<String>>,
    /// `hmac`: the header of the signature.
    pub(super) header: Option<Spanned<String>>,
    /// `hmac`: what stands before the signature in its header, such as `sha256=`.
    pub(super) prefix: Option<Spanned<String>>,
    /// `hmac`: how the signature is written.
    #[schemars(with = "Option<Encoding>", extend("default" = "hex"))]
    pub(super) encoding: Option<Spanned<Encoding>>,
    /// `hmac`: what the signature is made by.
    #[schemars(with = "Option<Algorithm>", extend("default" = "sha256"))]
    pub(super) algorithm: Option<Spanned<Algorithm>>,
    /// `hmac`: the header of the moment that is signed, in seconds since 1970.
    pub(super) timestamp: Option<Spanned<String>>,
    /// `hmac`: what is signed. Default: `{body}`, or `{timestamp}.{body}` where there is a `timestamp`.
    pub(super) message: Option<Spanned<String>>,
}

/// The ways of signing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum SchemeName {
    /// Whoever reaches the hook is believed.
    None,
    /// `Stripe-Signature`.
    Stripe,
    /// `X-Hub-Signature-256`.
    Github,
    /// `X-Shopify-Hmac-Sha256`.
    Shopify,
    /// `webhook-signature`, by Standard Webhooks.
    StandardWebhooks,
    /// A header of any name.
    Hmac,
}
