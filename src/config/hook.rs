//! A hook: webhooks that come in, with everything that is needed to check them, to tell them apart and to send them on.

use std::{sync::Arc, time::Duration};

use ipnet::IpNet;

use super::{destination::Destination, template::Whole};
use crate::domain::{
    hook::{KeyField, OnMissingKey},
    rate::Rate,
    webhook::Scheme,
};

/// A hook.
#[derive(Debug)]
pub struct Hook {
    /// Its name.
    pub name: String,
    /// Where it is posted to.
    pub path: String,
    /// How its provider signs.
    pub scheme: Scheme,
    /// How far the moment that is signed may be from now.
    pub tolerance: Duration,
    /// What tells one from another.
    pub key: KeyRule,
    /// What becomes of one without a key.
    pub on_missing_key: OnMissingKey,
    /// Where it goes.
    pub destination: Arc<Destination>,
    /// The status that one is answered with which came before.
    pub duplicate_status: u16,
    /// The largest body, in bytes.
    pub max_body: usize,
    /// The types of bodies that are taken, in lower case.
    pub content_types: Vec<String>,
    /// The networks that it may come from; all where there are none.
    pub allow: Vec<IpNet>,
    /// How many are taken; as many as come where that is not said.
    pub rate_limit: Option<Rate>,
    /// The headers that go along, in lower case.
    pub headers: Vec<String>,
    /// How long a key is known after it last came; `None` is for ever.
    pub retention: Option<Duration>,
}

/// What tells one webhook from another.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyRule {
    /// A text made of what it says.
    Template(Whole),
    /// A hash of what it says.
    Fields(Vec<KeyField>),
}
