//! A destination: an n8n webhook with its credentials and limits.

use std::{fmt, time::Duration};

use secrecy::SecretString;
use serde_json::{Map, Value};
use url::Url;

use crate::domain::{
    allow_private::AllowPrivate, batch::BatchRules, jwt::Key, lane::Lanes, rate::Rate, signature::SigningKey,
};

/// Where events go.
#[derive(Debug)]
pub struct Destination {
    /// Its name; the URL where it was written inline.
    pub name: String,
    /// The production URL of an n8n Webhook trigger.
    pub url: Url,
    /// How deliveries show who sends them.
    pub auth: WebhookAuth,
    /// What they are signed with; several while receivers change from one secret to the next.
    pub signing_keys: Vec<SigningKey>,
    /// What it may be reached at beside public addresses.
    pub allow_private: AllowPrivate,
    /// How many deliveries may be under way at once.
    pub concurrency: u32,
    /// How long an answer may take.
    pub timeout: Duration,
    /// The waits between attempts.
    pub delays: Vec<Duration>,
    /// How many events go in one request; `None` sends each alone, in a form of its own.
    pub batch: Option<BatchRules>,
    /// Which events wait for one another.
    pub lanes: Lanes,
    /// How many requests it may be sent; `None` is no limit.
    pub rate_limit: Option<Rate>,
}

/// How a delivery shows who sends it: what n8n's Webhook trigger calls `Authentication`.
pub enum WebhookAuth {
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
        /// The password.
        password: SecretString,
    },
    /// A header of one's own.
    Header {
        /// Its name.
        name: String,
        /// Its value.
        value: SecretString,
    },
    /// `Authorization: Bearer …` with a token that is made for each attempt.
    Jwt {
        /// What it is signed with.
        key: Key,
        /// What it says beside `iat` and `exp`.
        claims: Map<String, Value>,
    },
}

impl fmt::Debug for WebhookAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Bearer { .. } => "Bearer",
            Self::Basic { .. } => "Basic",
            Self::Header { .. } => "Header",
            Self::Jwt { .. } => "Jwt",
        })
    }
}
