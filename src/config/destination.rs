//! A destination: an n8n webhook with its credentials and limits.

use std::time::Duration;

use url::Url;

use super::account::Auth;
use crate::domain::signature::SigningKey;

/// Where events go.
#[derive(Debug)]
pub struct Destination {
    /// Its name; the URL where it was written inline.
    pub name: String,
    /// The production URL of an n8n Webhook trigger.
    pub url: Url,
    /// How deliveries show who sends them.
    pub auth: Auth,
    /// What they are signed with; several while receivers change from one secret to the next.
    pub signing_keys: Vec<SigningKey>,
    /// How many deliveries may be under way at once.
    pub concurrency: u32,
    /// How long an answer may take.
    pub timeout: Duration,
    /// The waits between attempts.
    pub delays: Vec<Duration>,
}
