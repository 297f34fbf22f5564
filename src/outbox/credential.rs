//! How one attempt shows who sends it, as n8n's Webhook trigger asks for it, and how what it showed is kept
//! out of what the receiver sends back.

use base64::{Engine, engine::general_purpose::STANDARD};
use reqwest::RequestBuilder;
use secrecy::{ExposeSecret, SecretString};

use crate::{config::destination::WebhookAuth, domain::instant::Instant};

/// What one attempt shows.
pub(super) enum Credential<'a> {
    None,
    Bearer(SecretString),
    Basic { username: &'a str, password: &'a SecretString },
    Header { name: &'a str, value: &'a SecretString },
}

impl<'a> Credential<'a> {
    /// The credential of an attempt at `now`: a token is made anew for each.
    pub(super) fn of(auth: &'a WebhookAuth, now: Instant) -> Self {
        match auth {
            WebhookAuth::None => Self::None,
            WebhookAuth::Bearer { token } => Self::Bearer(token.clone()),
            WebhookAuth::Basic { username, password } => Self::Basic { username, password },
            WebhookAuth::Header { name, value } => Self::Header { name, value },
            // Without a token the receiver refuses, and the event waits.
            WebhookAuth::Jwt { key, claims } => {
                key.mint(claims, now).map_or(Self::None, |token| Self::Bearer(SecretString::from(token)))
            }
        }
    }

    /// The request with it.
    pub(super) fn on(&self, request: RequestBuilder) -> RequestBuilder {
        match self {
            Self::None => request,
            Self::Bearer(token) => request.bearer_auth(token.expose_secret()),
            Self::Basic { username, password } => {
                request.basic_auth(username, Some(password.expose_secret()))
            }
            Self::Header { name, value } => request.header(*name, value.expose_secret()),
        }
    }

    /// A text of the receiver's without it.
    pub(super) fn hidden_in(&self, text: String) -> String {
        self.secrets().iter().fold(text, |text, secret| text.replace(secret.expose_secret(), "***"))
    }

    /// How many bytes of a text it may take up.
    pub(super) fn longest(&self) -> usize {
        self.secrets().iter().map(|secret| secret.expose_secret().len()).max().unwrap_or(0)
    }

    /// The texts that tell it, the longest first.
    fn secrets(&self) -> Vec<SecretString> {
        let mut secrets = match self {
            Self::None => Vec::new(),
            Self::Bearer(secret) => vec![secret.clone()],
            Self::Header { value, .. } => vec![(*value).clone()],
            Self::Basic { username, password } => {
                let pair = format!("{username}:{}", password.expose_secret());
                vec![SecretString::from(STANDARD.encode(pair)), (*password).clone()]
            }
        };
        secrets.retain(|secret| !secret.expose_secret().is_empty());
        secrets
    }
}
