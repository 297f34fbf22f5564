//! A destination as it is written, under `destinations` or in a job.

use std::{borrow::Cow, collections::BTreeMap, num::NonZeroU32};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::Value as Json;

use super::{
    de::{Entries, Spanned},
    text::{AllowPrivateForm, ClaimForm, DurationForm, Literal, SecretForm, SecretsForm, SizeForm, TextOr},
};
use crate::domain::{
    jwt::Algorithm,
    lane::{OnDead, Order},
};

/// An n8n webhook.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DestinationFile {
    /// The production URL of an n8n Webhook trigger: `https://HOST/webhook/PATH`.
    pub(super) url: Spanned<String>,
    /// The credentials that the Webhook trigger asks for.
    pub(super) auth: Option<Spanned<WebhookAuthFile>>,
    /// Signs deliveries by Standard Webhooks: 24 to 64 bytes in base64, with or without `whsec_` in front; or a
    /// list of secrets while receivers change from one to the next, each of which signs. Default: no signature.
    #[schemars(with = "Option<SecretsForm>")]
    pub(super) signing_secret: Option<Spanned<Literal>>,
    /// Which addresses that are not public it may be reached at, in place of the file's `allow_private`.
    #[schemars(with = "Option<AllowPrivateForm>")]
    pub(super) allow_private: Option<Spanned<Literal>>,
    /// How many deliveries may be under way at once.
    #[schemars(with = "Option<NonZeroU32>", range(min = 1, max = 256), extend("default" = 4))]
    pub(super) concurrency: Option<Spanned<NonZeroU32>>,
    /// How long an answer may take before the attempt counts as failed, up to `1h`.
    #[schemars(with = "Option<DurationForm>", extend("default" = "30s"))]
    pub(super) timeout: Option<Spanned<String>>,
    /// How failed deliveries are tried again.
    pub(super) retry: Option<RetryFile>,
    /// Sends several events in one request, as `{"batch_id", "job", "events": […]}`, at most one of each key.
    /// Default: each event is a request of its own, whose body is the event.
    #[serde(default)]
    #[schemars(with = "BatchFile")]
    pub(super) batch: Option<Spanned<BatchFile>>,
    /// Which events wait for one another.
    #[schemars(with = "Option<Order>", extend("default" = "key"))]
    pub(super) order: Option<Spanned<Order>>,
    /// What becomes of the later events of a key when one of them is refused for good.
    #[schemars(with = "Option<OnDead>", extend("default" = "skip"))]
    pub(super) on_dead: Option<Spanned<OnDead>>,
    /// Whether only the newest is sent of several events of a key that wait.
    #[schemars(with = "Option<Coalesce>", extend("default" = "none"))]
    pub(super) coalesce: Option<Spanned<Coalesce>>,
    /// How many requests may be sent, whether they hold one event or a batch. Default: as many as are due.
    pub(super) rate_limit: Option<RateFile>,
}

/// How many events go in one request.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BatchFile {
    /// The most events of a request.
    #[schemars(with = "Option<NonZeroU32>", range(min = 1, max = 1000), extend("default" = 100))]
    pub(super) max_events: Option<NonZeroU32>,
    /// The largest body, from `1kB` to `16MB`, more than which n8n refuses by default. A larger event goes alone.
    #[schemars(with = "Option<SizeForm>", extend("default" = "1MB"))]
    pub(super) max_bytes: Option<Spanned<String>>,
    /// How long an event waits for others, up to `5m`.
    #[schemars(with = "Option<DurationForm>", extend("default" = "1s"))]
    pub(super) linger: Option<Spanned<String>>,
}

/// How many of the events that wait for one another are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Coalesce {
    /// Each of them.
    #[default]
    None,
    /// The newest alone.
    Latest,
}

/// A limit: never more than `requests` in any period of `per`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RateFile {
    /// How many requests.
    pub(super) requests: NonZeroU32,
    /// In how long.
    #[schemars(with = "DurationForm")]
    pub(super) per: Spanned<String>,
}

/// Credentials as n8n's Webhook trigger knows them.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WebhookAuthFile {
    /// The trigger's `Authentication`. Default: the one that the other keys fit.
    pub(super) r#type: Option<Spanned<WebhookAuthType>>,
    /// The header's name of `header`.
    pub(super) name: Option<Spanned<String>>,
    /// The header's value of `header`.
    #[schemars(with = "Option<SecretForm>")]
    pub(super) value: Option<Spanned<String>>,
    /// The token of `bearer`.
    #[schemars(with = "Option<SecretForm>")]
    pub(super) token: Option<Spanned<String>>,
    /// The user's name of `basic`.
    #[schemars(with = "Option<SecretForm>")]
    pub(super) username: Option<Spanned<String>>,
    /// The password of `basic`.
    #[schemars(with = "Option<SecretForm>")]
    pub(super) password: Option<Spanned<String>>,
    /// The passphrase of `jwt`, n8n's `Secret`, for the algorithms `HS…`.
    #[schemars(with = "Option<SecretForm>")]
    pub(super) secret: Option<Spanned<String>>,
    /// The private key of `jwt` in PEM, for the other algorithms. n8n gets the public key that belongs to it.
    #[schemars(with = "Option<SecretForm>")]
    pub(super) private_key: Option<Spanned<String>>,
    /// How the tokens of `jwt` are signed.
    #[schemars(with = "Option<Algorithm>", extend("default" = "HS256"))]
    pub(super) algorithm: Option<Spanned<Algorithm>>,
    /// What the tokens of `jwt` say beside `iat` and `exp`, such as `iss`.
    #[schemars(with = "Option<BTreeMap<String, ClaimForm>>")]
    pub(super) claims: Option<Spanned<Entries<Spanned<Json>>>>,
}

/// How deliveries show who sends them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum WebhookAuthType {
    /// Not at all.
    None,
    /// n8n's `Basic Auth`.
    Basic,
    /// n8n's `Header Auth`.
    Header,
    /// n8n's `JWT Auth`: each attempt shows a new token, good for 5 minutes.
    Jwt,
    /// `Authorization: Bearer TOKEN`.
    Bearer,
}

/// How failed deliveries are tried again.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RetryFile {
    /// The waits between the attempts, in order; after the last one the event is dead.
    #[schemars(with = "Option<Vec<DurationForm>>")]
    pub(super) delays: Option<Spanned<Vec<Spanned<String>>>>,
}

impl DestinationFile {
    /// A destination of which only the URL is given.
    pub(super) fn plain(url: Spanned<String>) -> Self {
        Self {
            url,
            auth: None,
            signing_secret: None,
            allow_private: None,
            concurrency: None,
            timeout: None,
            retry: None,
            batch: None,
            order: None,
            on_dead: None,
            coalesce: None,
            rate_limit: None,
        }
    }
}

impl JsonSchema for TextOr<DestinationFile> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "DestinationReference".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let inline = generator.subschema_for::<DestinationFile>();
        json_schema!({
            "anyOf": [{ "title": "a destination's name or a webhook's URL", "type": "string" }, inline]
        })
    }
}
