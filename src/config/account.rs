//! An account: a connector with credentials and one rate-limit bucket that all its jobs share.

use std::{fmt, num::NonZeroU32, time::Duration};

use secrecy::SecretString;

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
}

impl fmt::Debug for Auth {
    /// Names the way of signing alone: some vendors take a secret key as the user's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Bearer { .. } => "Bearer",
            Self::Basic { .. } => "Basic",
            Self::ApiKey { .. } => "ApiKey",
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

/// A quota: never more than `requests` in any period of `per`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// How many.
    pub requests: NonZeroU32,
    /// In how long.
    pub per: Duration,
}
