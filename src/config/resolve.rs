//! Makes the configuration that the engine uses out of the files' words: names found, defaults filled in,
//! accounts and destinations shared.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    sync::Arc,
};

use serde_json::{Map, Value as Json};

use super::{
    account::{Account, Auth, RateLimit},
    catalog::{Catalog, Found},
    connector::{Connector, rate_limit},
    connector_file::StreamFile,
    credentials::source_auth,
    de::Spanned,
    destinations::{Destinations, identity},
    error::{Problem, Problems, Span, listed},
    file::{AccountFile, JobFile, JobsFile, ScheduleFile},
    inputs::{self, With},
    job::Job,
    rules, streams,
    template::{Template, template_value},
    values::{check_name, duration, unusable, zone},
};
use crate::domain::{
    content::Hash,
    fires::{CronError, Schedule},
};

/// The store where none is named.
const DEFAULT_STORE: &str = "sqlite://onlynew.db";

/// Resolves one configuration.
#[derive(Debug)]
pub(super) struct Resolver<'a> {
    catalog: Catalog,
    folder: &'a Path,
    problems: &'a Problems,
    accounts: HashMap<String, NamedAccount>,
    /// Inline accounts by bucket.
    inline: HashMap<String, Arc<Account>>,
    destinations: Destinations,
}

/// An account that jobs name; its parts are missing where they are wrong.
#[derive(Debug, Default)]
struct NamedAccount {
    connector: Option<Arc<Connector>>,
    account: Option<Arc<Account>>,
    with: With,
    /// Nothing of its inputs was left out as wrong.
    complete: bool,
}

/// Who asks, for one job.
struct Asker {
    connector: Arc<Connector>,
    /// The named account; none where the job carries its own credentials.
    account: Option<Option<Arc<Account>>>,
    with: With,
    complete: bool,
}

impl<'a> Resolver<'a> {
    pub(super) fn new(catalog: Catalog, folder: &'a Path, problems: &'a Problems) -> Self {
        Self {
            catalog,
            folder,
            problems,
            accounts: HashMap::new(),
            inline: HashMap::new(),
            destinations: Destinations::default(),
        }
    }

    /// The store and the jobs; `None` where anything is wrong.
    pub(super) fn config(mut self, file: JobsFile) -> Option<(String, BTreeMap<String, Arc<Job>>)> {
        if let Some(version) = file.version.as_ref().filter(|version| version.value != 1) {
            let message = format!("the format's version {} is not known", version.value);
            self.problems.add(Problem::new(version.span, message).expected("`1`"));
        }
        let store = self.store(file.store.as_ref());
        for (name, account) in file.accounts.iter().flat_map(|accounts| accounts.iter()) {
            check_name(name, self.problems);
            let named = self.named_account(name, account);
            self.accounts.insert(name.value.clone(), named);
        }
        self.destinations = Destinations::new(file.destinations.as_ref(), self.problems);
        let mut jobs = BTreeMap::new();
        if file.jobs.0.is_empty() && file.jobs.whole {
            let problem = Problem::new(file.jobs.span, "there are no jobs, so there is nothing to do");
            self.problems
                .add(problem.expected("at least one job; `onlynew init` writes a file to start from"));
        }
        for (name, job) in file.jobs.value.0 {
            check_name(&name, self.problems);
            if let Some(job) = self.job(&name, job) {
                jobs.insert(job.name.clone(), Arc::new(job));
            }
        }
        (self.problems.count() == 0).then_some((store?, jobs))
    }

    fn store(&self, given: Option<&Spanned<String>>) -> Option<String> {
        let text = given.map_or(DEFAULT_STORE, |text| text.as_str());
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Some(text.to_owned());
        }
        match (text.strip_prefix("sqlite://"), given) {
            (Some(path), _) if !path.is_empty() => {
                let full = self.folder.join(path);
                Some(match full.to_str() {
                    Some(full) if !path.starts_with(':') => format!("sqlite://{full}"),
                    _ => text.to_owned(),
                })
            }
            (_, Some(given)) => {
                let problem = Problem::new(given.span, format!("{} is not a store", given.quoted()));
                self.problems
                    .add(problem.expected("`sqlite://PATH` or `postgres://USER:PASSWORD@HOST/DATABASE`"));
                None
            }
            (_, None) => None,
        }
    }

    fn connector(&mut self, name: &Spanned<String>) -> Option<Arc<Connector>> {
        match self.catalog.find(name, self.problems) {
            Found::Connector(connector) => Some(connector),
            Found::Broken => None,
            Found::Missing => {
                let known = self.catalog.names();
                let problem = Problem::new(name.span, format!("there is no connector `{}`", name.shown()))
                    .expected(format!("one of {}", listed(known.iter().map(String::as_str))))
                    .help("a connector of your own goes into the folder `connectors` beside this file");
                self.problems.add(problem.meant(name, known.iter().map(String::as_str)));
                None
            }
        }
    }

    fn named_account(&mut self, name: &Spanned<String>, file: &Spanned<AccountFile>) -> NamedAccount {
        let complete = file.whole && file.with.as_ref().is_none_or(|with| with.whole);
        let with = file.with.as_ref().map(|with| with.value.clone()).unwrap_or_default();
        let Some(connector) = self.connector(&file.connector) else { return NamedAccount::default() };
        let auth = if file.whole || file.auth.is_some() {
            let title = connector.title();
            source_auth(&title, connector.auth.as_deref(), file.auth.as_ref(), name.span, self.problems)
        } else {
            None
        };
        inputs::check_given(&connector, &with, self.problems);
        let rate_limit = self.rate_limit(file.rate_limit.as_ref(), &connector);
        let account = auth.zip(rate_limit).map(|(auth, rate_limit)| {
            Arc::new(Account {
                bucket: name.value.clone(),
                connector: connector.name.clone(),
                auth,
                rate_limit,
            })
        });
        NamedAccount { connector: Some(connector), account, with, complete }
    }

    /// The quota given, else the connector's; `None` where it is wrong.
    fn rate_limit(
        &self,
        given: Option<&super::connector_file::RateLimitFile>,
        connector: &Connector,
    ) -> Option<Option<RateLimit>> {
        match given.or(connector.rate_limit.as_ref()) {
            Some(limit) => rate_limit(limit, self.problems).map(Some),
            None => Some(None),
        }
    }

    fn job(&mut self, name: &Spanned<String>, mut file: Spanned<JobFile>) -> Option<Job> {
        let before = self.problems.count();
        let whole = file.whole;
        let schedule = self.schedule(name.span, &file);
        let destination = self.destinations.find(&file.destination, false, self.problems);
        let asker = self.asker(name, &mut file)?;
        let connector = &asker.connector;
        let stream_file = self.stream(name.span, &file, connector);
        let no_values = With::default();
        let own = file.with.as_ref().map_or(&no_values, |with| &with.value);
        let owner = file.with.as_ref().map_or(name.span, |with| with.span);
        let given = [own, &asker.with];
        let complete = whole && asker.complete && file.with.as_ref().is_none_or(|with| with.whole);
        let values = inputs::values(connector, &given, complete, owner, self.problems);
        let account = match &asker.account {
            Some(named) => named.clone(),
            None => self.inline_account(name.span, &file, connector, values.as_ref()),
        };
        let Some((stream_name, stream_file)) = stream_file else {
            // Without the stream only the form can be checked.
            file.window.iter().for_each(|window| rules::check_form(window, self.problems));
            return None;
        };
        let incremental = stream_file.incremental.as_ref();
        let defaults = stream_file.defaults.as_ref();
        let window = rules::window(file.window.as_ref(), defaults, incremental, self.problems);
        let changes = rules::changes(file.changes.as_ref(), defaults, incremental, self.problems);
        if !connector.usable || self.problems.count() > before {
            return None;
        }
        let (values, changes) = (values?, changes?);
        let stream = streams::build(connector, stream_file, Some(&values), self.problems)?;
        Some(Job {
            name: name.value.clone(),
            account: account?,
            stream_name,
            stream: Arc::new(stream),
            inputs: values,
            schedule: schedule?,
            window: window?,
            first_run: file.first_run.unwrap_or_default(),
            detect: changes.detect,
            ignored: changes.ignored,
            emit: changes.emit,
            destination: destination?,
        })
    }

    fn schedule(&self, owner: Span, file: &Spanned<JobFile>) -> Option<Schedule> {
        match (&file.every, &file.schedule) {
            (Some(every), None) => {
                let period = duration(every, self.problems)?;
                if period.as_secs() < 1 {
                    let problem =
                        Problem::new(every.span, format!("{} is too short a period", every.quoted()));
                    self.problems.add(problem.expected("`1s` or longer"));
                    return None;
                }
                Some(Schedule::Every(period))
            }
            (None, Some(schedule)) => self.cron(schedule),
            (Some(_), Some(schedule)) => {
                let problem = Problem::new(schedule.span, "the job has both `every` and `schedule`");
                self.problems.add(problem.help("keep one of the two"));
                None
            }
            (None, None) => {
                if file.whole {
                    let problem = Problem::new(owner, "nothing says when this job runs");
                    self.problems
                        .add(problem.expected("`every: 5m`, or `schedule: {cron: \"*/5 * * * *\"}`"));
                }
                None
            }
        }
    }

    fn cron(&self, file: &ScheduleFile) -> Option<Schedule> {
        let pattern = file.cron.parse().map_err(|error: CronError| {
            let problem = unusable(&file.cron, &error);
            self.problems.add(match error {
                CronError::BothDays(_) => problem,
                _ => problem.expected(
                    "something like `*/5 * * * *` (every 5 minutes) or `0 6 * * MON-FRI` (weekdays at 6:00)",
                ),
            });
        });
        let zone = match &file.timezone {
            Some(text) => zone(text, self.problems),
            None => Some(jiff::tz::TimeZone::UTC),
        };
        Some(Schedule::Cron { pattern: pattern.ok()?, zone: zone? })
    }

    /// Who asks: the account that the job names, the connector it names, or the source it describes.
    fn asker(&mut self, name: &Spanned<String>, file: &mut Spanned<JobFile>) -> Option<Asker> {
        let source = file.value.source.take();
        let given = [
            ("account", file.account.as_ref().map(|account| account.span)),
            ("connector", file.connector.as_ref().map(|connector| connector.span)),
            ("source", source.as_ref().map(|source| source.span)),
        ];
        let given: Vec<_> = given.into_iter().filter_map(|(key, span)| Some((key, span?))).collect();
        match given.as_slice() {
            [_] => {}
            [] => {
                if file.whole {
                    let problem = Problem::new(name.span, "nothing says what this job reads");
                    self.problems.add(problem.expected(
                        "`connector: NAME` and `stream: NAME`, or `account: NAME` and `stream: NAME`, or `source: {…}`",
                    ));
                }
                return None;
            }
            [(first, _), .., (second, span)] => {
                let problem = Problem::new(*span, format!("the job has both `{first}` and `{second}`"));
                self.problems.add(problem.help("keep one of the two: each of them says what the job reads"));
                return None;
            }
        }
        if let Some(source) = source {
            let connector = Arc::new(Connector::from_source(name, source, self.problems));
            return Some(Asker { connector, account: None, with: With::default(), complete: true });
        }
        if let Some(connector) = &file.connector {
            let connector = self.connector(connector)?;
            return Some(Asker { connector, account: None, with: With::default(), complete: true });
        }
        let account = file.account.as_ref()?;
        let Some(named) = self.accounts.get(account.as_str()) else {
            let known: Vec<&str> = self.accounts.keys().map(String::as_str).collect();
            let problem = Problem::new(account.span, format!("there is no account `{}`", account.shown()));
            self.problems.add(match known.as_slice() {
                [] => problem
                    .help("name it under `accounts`, or write `connector` and `auth` in the job itself"),
                known => {
                    let mut sorted = known.to_vec();
                    sorted.sort_unstable();
                    problem
                        .expected(format!("one of {}", listed(sorted.iter().copied())))
                        .meant(account, sorted)
                }
            });
            return None;
        };
        let useless = [
            ("auth", file.auth.as_ref().map(|auth| auth.span)),
            ("rate_limit", file.rate_limit.as_ref().map(|limit| limit.span)),
        ];
        for (key, span) in useless.into_iter().filter_map(|(key, span)| Some((key, span?))) {
            let problem =
                Problem::new(span, format!("`{key}` does nothing here: the job's account has its own"));
            self.problems.add(problem.help(format!("move `{key}` to the account `{}`", account.shown())));
        }
        let connector = named.connector.clone()?;
        Some(Asker {
            connector,
            account: Some(named.account.clone()),
            with: named.with.clone(),
            complete: named.complete,
        })
    }

    /// The account of a job that carries its own credentials.
    fn inline_account(
        &mut self,
        owner: Span,
        file: &Spanned<JobFile>,
        connector: &Connector,
        values: Option<&Map<String, Json>>,
    ) -> Option<Arc<Account>> {
        if file.auth.is_none() && !file.whole {
            return None;
        }
        let title = connector.title();
        let auth = source_auth(&title, connector.auth.as_deref(), file.auth.as_ref(), owner, self.problems);
        let rate_limit = self.rate_limit(file.rate_limit.as_ref().map(|limit| &limit.value), connector);
        let (auth, rate_limit) = (auth?, rate_limit?);
        let bucket = bucket(connector, &auth, values?);
        let account = Account { bucket, connector: connector.name.clone(), auth, rate_limit };
        if let Some(known) = self.inline.get(&account.bucket) {
            if known.rate_limit != account.rate_limit {
                let span = file.rate_limit.as_ref().map_or(owner, |limit| limit.span);
                let problem = Problem::new(
                    span,
                    "another job asks the same source with the same credentials under another rate limit",
                );
                self.problems.add(
                    problem.help("describe the account once under `accounts`, and name it in both jobs"),
                );
            }
            return Some(Arc::clone(known));
        }
        let account = Arc::new(account);
        self.inline.insert(account.bucket.clone(), Arc::clone(&account));
        Some(account)
    }

    fn stream<'c>(
        &self,
        owner: Span,
        file: &Spanned<JobFile>,
        connector: &'c Connector,
    ) -> Option<(String, &'c Spanned<StreamFile>)> {
        if connector.inline {
            if let Some(stream) = &file.stream {
                let problem =
                    Problem::new(stream.span, "`stream` does nothing here: `source` describes one stream");
                self.problems.add(problem.help("to name the stream, write `name` under `source`"));
            }
            return connector.streams.iter().next().map(|(name, stream)| (name.value.clone(), stream));
        }
        let known: Vec<&str> = connector.streams.names().collect();
        let Some(stream) = &file.stream else {
            if file.whole {
                let problem = Problem::new(owner, "nothing says which stream this job reads");
                let example = known.first().copied().unwrap_or("NAME");
                self.problems.add(problem.expected(format!("`stream: {example}`")).help(format!(
                    "{} has {}",
                    connector.title(),
                    listed(known.iter().copied())
                )));
            }
            return None;
        };
        let found = connector.streams.get(stream);
        if found.is_none() && connector.usable {
            let message = format!("{} has no stream `{}`", connector.title(), stream.shown());
            let problem =
                unusable(stream, message).expected(format!("one of {}", listed(known.iter().copied())));
            self.problems.add(problem.meant(stream, known.iter().copied()));
        }
        found.map(|found| (stream.value.clone(), found))
    }
}

/// The name of the bucket that inline accounts share where connector, root URL and credential are equal.
fn bucket(connector: &Connector, auth: &Auth, values: &Map<String, Json>) -> String {
    let context = Json::Object(Map::from_iter([("inputs".to_owned(), Json::Object(values.clone()))]));
    let inputs: Vec<String> = connector.inputs.names().map(str::to_owned).collect();
    let scope = super::template::Scope::Request { inputs: &inputs };
    let root = Template::parse(&connector.base_url, scope);
    let root = root.and_then(|root| root.render(&template_value(&context))).unwrap_or_default();
    let mut parts = vec![connector.name.clone(), root.to_string()];
    parts.extend(identity(auth));
    let mut text = String::new();
    for part in &parts {
        text.push_str(&format!("{}:{part};", part.len()));
    }
    let hash = Hash::of(text.as_bytes()).hex();
    format!("{}:{}", connector.name, hash.get(..12).unwrap_or(&hash))
}
