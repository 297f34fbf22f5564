//! Configurations as people write them: good ones resolve to what they say, wrong ones are told of whole.

mod deletes;
mod fixtures;
mod gate;
mod good;
mod schema;
mod wrong;

use std::path::Path;

use onlynew::config::{Config, ConfigErrors, load_str};

/// The variables that test configurations name. Their values must never be seen in an error.
pub(crate) fn env(name: &str) -> Option<String> {
    let value = match name {
        "GITHUB_TOKEN" => "ghp_do-not-show-me",
        "STRIPE_KEY" => "sk_test_do-not-show-me",
        "N8N_TOKEN" => "n8n-do-not-show-me",
        "N8N_URL" => "https://n8n.example.com",
        "PERIOD" => "5m",
        "NUMBER" => "12345",
        "GARBAGE" => "garbage-do-not-show-me",
        "EMPTY" => "",
        _ => return None,
    };
    Some(value.to_owned())
}

pub(crate) fn read(yaml: &str) -> Result<Config, ConfigErrors> {
    load_str("jobs.yaml", yaml, Path::new(""), &env)
}

/// A configuration that must be good.
pub(crate) fn config(yaml: &str) -> Config {
    read(yaml).unwrap_or_else(|errors| panic!("{errors}"))
}
