//! Accounts: the named ones, and the ones that jobs write inline, which share an account where connector,
//! root URL and credential are equal.

use std::{collections::HashMap, fmt::Write, sync::Arc};

use secrecy::ExposeSecret;
use serde_json::{Map, Value as Json};

use super::{
    account::{Account, Auth, RateLimit},
    connector::Connector,
    connector_file::RateLimitFile,
    credentials::source_auth,
    de::Spanned,
    error::{Problem, Problems, Span, listed},
    file::{AccountFile, JobFile},
    inputs::{self, With},
    rate_limit,
    template::{Scope, Template, template_value},
};
use crate::domain::content::Hash;

/// The accounts of a configuration.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    named: HashMap<String, NamedAccount>,
    /// By bucket.
    inline: HashMap<String, Arc<Account>>,
}

/// An account that jobs name; its parts are missing where they are wrong.
#[derive(Debug)]
pub(super) struct NamedAccount {
    pub(super) connector: Option<Arc<Connector>>,
    pub(super) account: Option<Arc<Account>>,
    pub(super) with: With,
    /// Nothing of its inputs was left out as wrong.
    pub(super) complete: bool,
}

impl Accounts {
    /// Takes in a named account. Without a connector it is kept so that its name is known.
    pub(super) fn add(
        &mut self,
        name: &Spanned<String>,
        file: &Spanned<AccountFile>,
        connector: Option<Arc<Connector>>,
        problems: &Problems,
    ) {
        let complete = file.whole && file.with.as_ref().is_none_or(|with| with.whole);
        let with = file.with.as_ref().map(|with| with.value.clone()).unwrap_or_default();
        let mut account = None;
        if let Some(connector) = &connector {
            inputs::check_given(connector, &with, problems);
            let auth = (file.whole || file.auth.is_some()).then(|| {
                let title = connector.title();
                source_auth(&title, connector.auth.as_deref(), file.auth.as_ref(), name.span, problems)
            });
            account = auth.flatten().map(|auth| {
                Arc::new(Account {
                    bucket: name.value.clone(),
                    connector: connector.name.clone(),
                    auth,
                    rate_limit: quota(file.rate_limit.as_ref(), connector, problems),
                })
            });
        }
        self.named.insert(name.value.clone(), NamedAccount { connector, account, with, complete });
    }

    /// The account that a job names.
    pub(super) fn find(&self, name: &Spanned<String>, problems: &Problems) -> Option<&NamedAccount> {
        let found = self.named.get(name.as_str());
        if found.is_none() {
            let mut known: Vec<&str> = self.named.keys().map(String::as_str).collect();
            known.sort_unstable();
            let problem = Problem::new(name.span, format!("there is no account `{}`", name.shown()));
            problems.add(match known.as_slice() {
                [] => problem
                    .help("name it under `accounts`, or write `connector` and `auth` in the job itself"),
                known => problem
                    .expected(format!("one of {}", listed(known.iter().copied())))
                    .meant(name, known.iter().copied()),
            });
        }
        found
    }

    /// The account of a job that carries its own credentials. `owner` is where a message about missing
    /// ones points.
    pub(super) fn inline(
        &mut self,
        owner: Span,
        job: &Spanned<JobFile>,
        connector: &Connector,
        values: Option<&Map<String, Json>>,
        problems: &Problems,
    ) -> Option<Arc<Account>> {
        if job.auth.is_none() && !job.whole {
            return None;
        }
        let title = connector.title();
        let auth = source_auth(&title, connector.auth.as_deref(), job.auth.as_ref(), owner, problems);
        let rate_limit = quota(job.rate_limit.as_ref().map(|limit| &limit.value), connector, problems);
        let auth = auth?;
        let bucket = bucket(connector, &auth, values?);
        if let Some(known) = self.inline.get(&bucket) {
            if known.rate_limit != rate_limit {
                let span = job.rate_limit.as_ref().map_or(owner, |limit| limit.span);
                let message =
                    "another job asks the same source with the same credentials under another rate limit";
                let help = "describe the account once under `accounts`, and name it in both jobs";
                problems.add(Problem::new(span, message).help(help));
            }
            return Some(Arc::clone(known));
        }
        let connector = connector.name.clone();
        let account = Arc::new(Account { bucket: bucket.clone(), connector, auth, rate_limit });
        self.inline.insert(bucket, Arc::clone(&account));
        Some(account)
    }
}

/// The quota given, else the connector's. What answers say about it stays the connector's to know.
fn quota(given: Option<&RateLimitFile>, connector: &Connector, problems: &Problems) -> Option<RateLimit> {
    let known = connector.rate_limit.as_ref();
    match given {
        Some(limit) => rate_limit::build(limit, known, &connector.inputs, problems),
        None => known.cloned(),
    }
}

/// The name of an inline account's bucket.
fn bucket(connector: &Connector, auth: &Auth, values: &Map<String, Json>) -> String {
    let context = Json::Object(Map::from_iter([("inputs".to_owned(), Json::Object(values.clone()))]));
    let inputs: Vec<String> = connector.inputs.names().map(str::to_owned).collect();
    let root = Template::parse(&connector.base_url, Scope::Request { inputs: &inputs })
        .and_then(|root| root.render(&template_value(&context)))
        .unwrap_or_default();
    let mut parts = vec![connector.name.clone(), root.to_string()];
    parts.extend(identity(auth));
    let mut text = String::new();
    for part in &parts {
        // The length in front keeps two lists of parts from running into one text.
        let _ = write!(text, "{}:{part};", part.len());
    }
    let hash = Hash::of(text.as_bytes()).hex();
    format!("{}:{}", connector.name, hash.get(..12).unwrap_or(&hash))
}

/// A credential as texts that tell it from every other one.
fn identity(auth: &Auth) -> Vec<String> {
    match auth {
        Auth::None => vec!["none".to_owned()],
        Auth::Bearer { token } => vec!["bearer".to_owned(), token.expose_secret().to_owned()],
        Auth::Basic { username, password } => {
            vec!["basic".to_owned(), username.clone(), password.expose_secret().to_owned()]
        }
        Auth::ApiKey { place, name, prefix, key } => vec![
            "api_key".to_owned(),
            format!("{place:?}"),
            name.clone(),
            prefix.clone(),
            key.expose_secret().to_owned(),
        ],
        Auth::OAuth2(oauth2) => {
            vec!["oauth2".to_owned(), oauth2.login(), oauth2.scope.clone().unwrap_or_default()]
        }
    }
}
