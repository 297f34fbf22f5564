//! Destinations: the named ones, and the ones that jobs write inline, which share one destination where
//! they mean the same URL.

use std::{collections::HashMap, sync::Arc, time::Duration};

use secrecy::ExposeSecret;
use url::Url;

use super::{
    allow_private::allow_private,
    batch::batch_rules,
    de::{Entries, Spanned},
    destination::{Destination, WebhookAuth},
    destination_file::DestinationFile,
    error::{Problem, Problems, Span, listed},
    lanes::lanes,
    rate_limit::rate,
    signing::signing_keys,
    text::{TextOr, spanned},
    values::{check_name, duration, duration_up_to, positive_duration, web_url},
    webhook_auth::webhook_auth,
};
use crate::domain::{allow_private::AllowPrivate, delivery::DEFAULT_DELAYS};

const CONCURRENCY: u32 = 4;
const TIMEOUT: Duration = Duration::from_secs(30);

/// A claim lasts four times as long, and so long waits what a process left behind that died.
const LONGEST_TIMEOUT: Duration = Duration::from_hours(1);

/// The destinations of a configuration.
#[derive(Debug, Default)]
pub(super) struct Destinations {
    /// Where a destination says nothing of its own.
    allow_private: AllowPrivate,
    /// By name; `None` where something in it is wrong.
    named: HashMap<String, Option<Arc<Destination>>>,
    names: Vec<String>,
    /// By URL without its query and user.
    inline: HashMap<String, Arc<Destination>>,
}

impl Destinations {
    pub(super) fn new(
        files: Option<&Entries<Spanned<DestinationFile>>>,
        allow_private: AllowPrivate,
        problems: &Problems,
    ) -> Self {
        let mut destinations = Self { allow_private, ..Self::default() };
        for (name, file) in files.iter().flat_map(|files| &files.0) {
            check_name(name, problems);
            let built = build(Some(name), file, &destinations.allow_private, problems);
            let built = built.filter(|_| file.whole).map(Arc::new);
            destinations.named.insert(name.value.clone(), built);
            destinations.names.push(name.value.clone());
        }
        destinations
    }

    /// The destination that a job names or describes. `damaged` says that names may be missing.
    pub(super) fn find(
        &mut self,
        given: &Spanned<TextOr<DestinationFile>>,
        damaged: bool,
        problems: &Problems,
    ) -> Option<Arc<Destination>> {
        match &given.value {
            TextOr::Text(text) if text.contains("://") => {
                let url = spanned(text, given.span, given.source.clone());
                let file = DestinationFile::plain(url);
                self.share(build(None, &file, &self.allow_private, problems)?, given.span, problems)
            }
            TextOr::Text(text) => {
                let name = spanned(text, given.span, given.source.clone());
                self.by_name(&name, damaged, problems)
            }
            TextOr::Map(file) => {
                let built = build(None, file, &self.allow_private, problems).filter(|_| given.whole)?;
                self.share(built, given.span, problems)
            }
        }
    }

    fn by_name(
        &self,
        name: &Spanned<String>,
        damaged: bool,
        problems: &Problems,
    ) -> Option<Arc<Destination>> {
        if let Some(found) = self.named.get(name.as_str()) {
            return found.clone();
        }
        if damaged {
            return None;
        }
        let problem = Problem::new(name.span, format!("there is no destination `{}`", name.shown()));
        problems.add(match self.names.as_slice() {
            [] => problem.expected("a webhook's URL such as `https://n8n.example.com/webhook/orders`, or a name under `destinations`"),
            names => problem
                .expected(format!("a webhook's URL, or one of {}", listed(names.iter().map(String::as_str))))
                .meant(name, names.iter().map(String::as_str)),
        });
        None
    }

    /// One destination for all jobs that write the same one.
    fn share(&mut self, built: Destination, span: Span, problems: &Problems) -> Option<Arc<Destination>> {
        match self.inline.get(&built.name) {
            Some(known) if same(known, &built) => Some(Arc::clone(known)),
            Some(_) => {
                let message = format!("another job sends to `{}` with other settings", built.name);
                problems.add(Problem::new(span, message).help(
                    "describe it once under `destinations`, give it a name, and let both jobs use that name",
                ));
                None
            }
            None => {
                let built = Arc::new(built);
                self.inline.insert(built.name.clone(), Arc::clone(&built));
                Some(built)
            }
        }
    }
}

fn build(
    name: Option<&Spanned<String>>,
    file: &DestinationFile,
    otherwise: &AllowPrivate,
    problems: &Problems,
) -> Option<Destination> {
    let before = problems.count();
    let url = webhook_url(&file.url, problems);
    let auth = webhook_auth(file.auth.as_ref(), problems);
    let allow_private = allow_private(file.allow_private.as_ref(), otherwise, problems);
    let signing_keys = signing_keys(file.signing_secret.as_ref(), "signing_secret", problems);
    let concurrency = file.concurrency.as_ref().map_or(CONCURRENCY, |given| given.value.get());
    let timeout = match &file.timeout {
        Some(text) => positive_duration(text, "timeout", problems)
            .and_then(|_| duration_up_to(text, "timeout", LONGEST_TIMEOUT, problems)),
        None => Some(TIMEOUT),
    };
    let delays = match file.retry.as_ref().and_then(|retry| retry.delays.as_ref()) {
        Some(delays) => {
            if delays.is_empty() && delays.whole {
                let problem = Problem::new(delays.span, "`delays` is empty, so nothing would be tried again");
                problems.add(problem.expected("a list of durations, such as `[5s, 30s, 2m]`"));
            }
            delays.iter().filter_map(|text| duration(text, problems)).collect()
        }
        None => DEFAULT_DELAYS.to_vec(),
    };
    let batch = file.batch.as_ref().and_then(|batch| batch_rules(batch, problems));
    let lanes = lanes(file, problems);
    let rate_limit = file.rate_limit.as_ref().and_then(|limit| rate(limit, problems));
    if problems.count() > before {
        return None;
    }
    let url = url?;
    let name = name.map_or_else(|| bare(&url), |name| name.value.clone());
    Some(Destination {
        name,
        url,
        auth: auth?,
        signing_keys: signing_keys?,
        allow_private,
        concurrency,
        timeout: timeout?,
        delays,
        batch,
        lanes: lanes?,
        rate_limit,
    })
}

/// The URL without what may be secret: user, query and fragment.
fn bare(url: &Url) -> String {
    let mut bare = url.clone();
    bare.set_query(None);
    bare.set_fragment(None);
    // Both fail only for URLs that have no host, which http does not allow.
    let _ = bare.set_username("");
    let _ = bare.set_password(None);
    bare.to_string()
}

fn webhook_url(text: &Spanned<String>, problems: &Problems) -> Option<Url> {
    let url = web_url(text, problems)?;
    if url.path().contains("/webhook-test/") {
        let production = text.shown().replacen("/webhook-test/", "/webhook/", 1);
        let problem = Problem::new(
            text.span,
            "this is n8n's test URL, which takes one call after a click on `Listen for test event`",
        );
        problems.add(problem.help(format!("activate the workflow and use its production URL: {production}")));
        return None;
    }
    Some(url)
}

fn same(one: &Destination, other: &Destination) -> bool {
    one.url == other.url
        && one.concurrency == other.concurrency
        && one.timeout == other.timeout
        && one.delays == other.delays
        && one.batch == other.batch
        && one.lanes == other.lanes
        && one.rate_limit == other.rate_limit
        && one.signing_keys == other.signing_keys
        && one.allow_private == other.allow_private
        && identity(&one.auth) == identity(&other.auth)
}

/// A credential as texts that tell it from every other one.
fn identity(auth: &WebhookAuth) -> Vec<String> {
    let parts = match auth {
        WebhookAuth::None => vec!["none"],
        WebhookAuth::Bearer { token } => vec!["bearer", token.expose_secret()],
        WebhookAuth::Basic { username, password } => vec!["basic", username, password.expose_secret()],
        WebhookAuth::Header { name, value } => vec!["header", name, value.expose_secret()],
        WebhookAuth::Jwt { key, claims } => {
            let claims = serde_json::to_string(claims).unwrap_or_default();
            return vec!["jwt".to_owned(), key.identity(), claims];
        }
    };
    parts.into_iter().map(str::to_owned).collect()
}
