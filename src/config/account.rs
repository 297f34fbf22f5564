//! An account: a connector with credentials and one rate-limit bucket that all its jobs share.

use std::{fmt, num::NonZeroU32, sync::Arc, time::Duration};

use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::{
    stream::{Place, WaitRule},
    template::Expression,
};
use crate::domain::content::Hash;

/// A connector with credentials.
#[derive(Debug)]
pub struct Account {
    /// The name of its bucket in memory and in the store: the account's name, or connector and a hash of
    /// the credential where it was written inline.
    pub bucket: String,
    /// The connector's name.
    pub connector: String,
    /// How requests are signed.
    pub auth: Auth,
    /// How often it may ask.
    pub rate_limit: Option<RateLimit>,
}

/// How a request shows who sends it.
pub enum Auth {
    /// It does not.
    None,
    /// `Authorization: Bearer TOKEN`.
    Bearer {
        /// The token.
        token: SecretString,
    },
    /// `Authorization: Basic …`.
    Basic {
        /// The user's name.
        username: String,
        /// The password, which may be empty.
        password: SecretString,
    },
    /// A key under a name of the vendor's choice.
    ApiKey {
        /// Where it goes.
        place: KeyPlace,
        /// The header's, parameter's or cookie's name.
        name: String,
        /// A text put in front of the key.
        prefix: String,
        /// The key.
        key: SecretString,
    },
    /// `Authorization: Bearer …` with a token that a provider gives for a while (RFC 6749).
    OAuth2(Box<OAuth2>),
}

/// How access tokens are asked for (RFC 6749, sections 4.4 and 6).
pub struct OAuth2 {
    /// What is traded in for a token.
    pub grant: Grant,
    /// Who gives it: `https`, or `http` on this machine.
    pub token_url: Url,
    /// Who asks.
    pub client_id: String,
    /// Their secret; empty for a public client.
    pub client_secret: SecretString,
    /// Where the two go.
    pub client_auth: ClientAuth,
    /// What the token may be used for, as the provider spells it.
    pub scope: Option<String>,
    /// Further parameters of the request, such as `audience`.
    pub extra: Vec<(String, String)>,
}

/// What is traded in for an access token.
pub enum Grant {
    /// The client's own id and secret.
    ClientCredentials,
    /// What a person allowed once. Providers that rotate it give a new one with each access token.
    RefreshToken {
        /// The first one, as the configuration has it.
        refresh_token: SecretString,
    },
}

impl OAuth2 {
    /// What tells this login from every other one, as a hash: a stored token of another login is not used.
    /// A client's new secret or scope leaves a login what it is, since the refresh token stays good.
    pub fn login(&self) -> String {
        let mut parts = vec![self.token_url.as_str(), &self.client_id];
        match &self.grant {
            Grant::ClientCredentials => parts.extend([
                "client_credentials",
                self.client_secret.expose_secret(),
                self.scope.as_deref().unwrap_or_default(),
            ]),
            Grant::RefreshToken { refresh_token } => {
                parts.extend(["refresh_token", refresh_token.expose_secret()]);
            }
        }
        // No part can hold the separator: URLs do not, and credentials with control characters are refused.
        Hash::of(parts.join("\n").as_bytes()).hex()
    }
}

/// Where a client's id and secret go in a request for a token.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ClientAuth {
    /// Into its form, as `client_id` and `client_secret`.
    #[default]
    Body,
    /// Into `Authorization: Basic …`.
    Basic,
}

impl fmt::Debug for Auth {
    /// Names the way of signing alone: some vendors take a secret key as the user's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Bearer { .. } => "Bearer",
            Self::Basic { .. } => "Basic",
            Self::ApiKey { .. } => "ApiKey",
            Self::OAuth2(_) => "OAuth2",
        })
    }
}

/// Where an API key goes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each is named as the place it is")]
pub enum KeyPlace {
    #[default]
    Header,
    Query,
    Cookie,
}

/// A quota: never more than `requests` in any period of `per`; and what the source's answers say about it.
#[derive(Clone, Debug, PartialEq)]
pub struct RateLimit {
    /// How many.
    pub requests: NonZeroU32,
    /// In how long.
    pub per: Duration,
    /// Where an answer says how many are left.
    pub remaining: Option<Place>,
    /// Where it says when there are more; without it, a period from now.
    pub reset: Option<Arc<WaitRule>>,
    /// How many seconds to pause after an answer, for limits that count points or costs.
    pub pause: Option<Arc<Expression>>,
}

impl RateLimit {
    /// A quota of which answers say nothing.
    pub const fn quota(requests: NonZeroU32, per: Duration) -> Self {
        Self { requests, per, remaining: None, reset: None, pause: None }
    }
}
