//! Webhooks that come in: whether the provider that knows the secret has sent them, and not long ago.
//!
//! The schemes are those of the providers' own documents: Stripe (`Stripe-Signature`), GitHub (`X-Hub-Signature-256`),
//! Shopify (`X-Shopify-Hmac-Sha256`), Standard Webhooks 1.0, and HMAC in general, which describes most others.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use secrecy::{ExposeSecret, SecretString};

use super::{
    instant::Instant,
    mac::{is_hmac_sha256, is_hmac_sha512},
    signature::SigningKey,
};

/// How a provider signs.
#[derive(Clone, Debug)]
pub enum Scheme {
    /// Not at all: whoever reaches the hook is believed.
    None,
    /// `Stripe-Signature: t=…,v1=…`.
    Stripe(Vec<SecretString>),
    /// `X-Hub-Signature-256: sha256=…`.
    Github(Vec<SecretString>),
    /// `X-Shopify-Hmac-Sha256: …`.
    Shopify(Vec<SecretString>),
    /// `webhook-id`, `webhook-timestamp`, `webhook-signature`.
    StandardWebhooks(Vec<SigningKey>),
    /// A header of any name.
    Hmac(HmacScheme),
}

/// HMAC in general.
#[derive(Clone, Debug)]
pub struct HmacScheme {
    /// The header of the signature.
    pub header: String,
    /// What stands before it in the header.
    pub prefix: String,
    /// How it is written.
    pub encoding: Encoding,
    /// What it is made by.
    pub algorithm: Algorithm,
    /// The header of the moment that is signed, in seconds since 1970.
    pub timestamp: Option<String>,
    /// What is signed, with `{timestamp}` and `{body}` in it.
    pub message: String,
    /// The secrets, one of which has to fit.
    pub secrets: Vec<SecretString>,
}

/// How a signature is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// In hexadecimal.
    Hex,
    /// In base64.
    Base64,
}

/// What a signature is made by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// HMAC-SHA256.
    Sha256,
    /// HMAC-SHA512.
    Sha512,
}

impl Algorithm {
    fn fits(self, key: &[u8], parts: &[&[u8]], tag: &[u8]) -> bool {
        match self {
            Self::Sha256 => is_hmac_sha256(key, parts, tag),
            Self::Sha512 => is_hmac_sha512(key, parts, tag),
        }
    }
}

/// Why a webhook is not believed. None of them says what would have been right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A header is missing.
    #[error("the header `{0}` is missing")]
    Missing(String),
    /// A header cannot be read.
    #[error("the header `{0}` cannot be read")]
    Unreadable(String),
    /// It was signed too long ago, or by a clock that is ahead.
    #[error(
        "it was signed {0} s ago, which is more than `tolerance` allows: it may be a copy of an old one, or a clock is wrong"
    )]
    Old(i64),
    /// No secret fits.
    #[error("the signature fits none of the secrets")]
    Wrong,
}

/// The headers of a request, by names in lower case.
pub type Headers<'a> = &'a dyn Fn(&str) -> Option<&'a str>;

impl Scheme {
    /// Whether a request is what its provider sent, at most `tolerance` before `now` or after it.
    pub fn verify(
        &self,
        headers: Headers<'_>,
        body: &[u8],
        now: Instant,
        tolerance: Duration,
    ) -> Result<(), Refusal> {
        match self {
            Self::None => Ok(()),
            Self::Stripe(secrets) => {
                const NAME: &str = "stripe-signature";
                let given = header(headers, NAME)?;
                let parts = || given.split(',').filter_map(|part| part.trim().split_once('='));
                let timestamp = parts().find_map(|(name, value)| (name == "t").then_some(value));
                let timestamp = timestamp.ok_or_else(|| Refusal::Unreadable(NAME.to_owned()))?;
                is_recent(timestamp, NAME, now, tolerance)?;
                let tags: Vec<_> =
                    parts().filter(|(name, _)| *name == "v1").filter_map(|(_, tag)| unhex(tag)).collect();
                any(secrets, Algorithm::Sha256, &[timestamp.as_bytes(), b".", body], &tags)
            }
            Self::Github(secrets) => {
                const NAME: &str = "x-hub-signature-256";
                let tag = header(headers, NAME)?.strip_prefix("sha256=").and_then(unhex);
                let tag = tag.ok_or_else(|| Refusal::Unreadable(NAME.to_owned()))?;
                any(secrets, Algorithm::Sha256, &[body], &[tag])
            }
            Self::Shopify(secrets) => {
                const NAME: &str = "x-shopify-hmac-sha256";
                let tag = STANDARD.decode(header(headers, NAME)?);
                let tag = tag.map_err(|_| Refusal::Unreadable(NAME.to_owned()))?;
                any(secrets, Algorithm::Sha256, &[body], &[tag])
            }
            Self::StandardWebhooks(keys) => {
                const MOMENT: &str = "webhook-timestamp";
                let (id, timestamp) = (header(headers, "webhook-id")?, header(headers, MOMENT)?);
                let signatures = header(headers, "webhook-signature")?;
                is_recent(timestamp, MOMENT, now, tolerance)?;
                let fits = |key: &SigningKey| key.has_signed(signatures, id, timestamp, body);
                if keys.iter().any(fits) { Ok(()) } else { Err(Refusal::Wrong) }
            }
            Self::Hmac(scheme) => scheme.verify(headers, body, now, tolerance),
        }
    }
}

impl HmacScheme {
    fn verify(
        &self,
        headers: Headers<'_>,
        body: &[u8],
        now: Instant,
        tolerance: Duration,
    ) -> Result<(), Refusal> {
        let unreadable = || Refusal::Unreadable(self.header.clone());
        let given =
            header(headers, &self.header)?.strip_prefix(self.prefix.as_str()).ok_or_else(unreadable)?;
        let tag = match self.encoding {
            Encoding::Hex => unhex(given),
            Encoding::Base64 => STANDARD.decode(given).ok(),
        };
        let tag = tag.ok_or_else(unreadable)?;
        let timestamp = match &self.timestamp {
            Some(name) => {
                let timestamp = header(headers, name)?;
                is_recent(timestamp, name, now, tolerance)?;
                timestamp
            }
            None => "",
        };
        let filled = self.message.replace("{timestamp}", timestamp);
        let (front, back) = filled.split_once("{body}").unwrap_or((&filled, ""));
        any(&self.secrets, self.algorithm, &[front.as_bytes(), body, back.as_bytes()], &[tag])
    }
}

fn header<'a>(headers: Headers<'a>, name: &str) -> Result<&'a str, Refusal> {
    headers(name).ok_or_else(|| Refusal::Missing(name.to_owned()))
}

fn is_recent(timestamp: &str, name: &str, now: Instant, tolerance: Duration) -> Result<(), Refusal> {
    let seconds: i64 = timestamp.parse().map_err(|_| Refusal::Unreadable(name.to_owned()))?;
    let age = now.seconds().saturating_sub(seconds);
    if age.unsigned_abs() > tolerance.as_secs() { Err(Refusal::Old(age)) } else { Ok(()) }
}

fn any(secrets: &[SecretString], by: Algorithm, parts: &[&[u8]], tags: &[Vec<u8>]) -> Result<(), Refusal> {
    let fits = |secret: &SecretString| {
        let key = secret.expose_secret().as_bytes();
        tags.iter().any(|tag| by.fits(key, parts, tag))
    };
    if secrets.iter().any(fits) { Ok(()) } else { Err(Refusal::Wrong) }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let bytes = text.as_bytes();
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    bytes.chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests;
