//! Makes the configuration that the engine uses out of the files' words: names found, defaults filled in,
//! accounts and destinations shared.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use secrecy::SecretString;

use super::{
    account::Account,
    accounts::Accounts,
    allow_private::allow_private,
    catalog::{Catalog, Found},
    connector::Connector,
    connector_file::StreamFile,
    de::{Entries, Spanned},
    deletes::{Told, deletes},
    destinations::Destinations,
    error::{Problem, Problems, Span, listed},
    file::{JobFile, JobsFile, ScheduleFile},
    gate,
    hook::Hook,
    hooks,
    inputs::{self, With},
    job::Job,
    retention, rules,
    server::{self, Server},
    streams,
    values::{check_name, duration, unusable, zone},
};
use crate::domain::{
    allow_private::AllowPrivate,
    fires::{CronError, Schedule},
    gate::ScopeRules,
    retention::Retention,
    version_field::OnMissingVersion,
};

/// The store where none is named.
const DEFAULT_STORE: &str = "sqlite://onlynew.db";

/// Resolves one configuration.
#[derive(Debug)]
pub(super) struct Resolver<'a> {
    catalog: Catalog,
    folder: &'a Path,
    hidden: Arc<[SecretString]>,
    problems: &'a Problems,
    accounts: Accounts,
    destinations: Destinations,
}

/// The parts of a configuration.
#[derive(Debug)]
pub(super) struct Resolved {
    pub(super) store: String,
    pub(super) allow_private: AllowPrivate,
    pub(super) retention: Retention,
    pub(super) server: Option<Server>,
    pub(super) scopes: BTreeMap<String, ScopeRules>,
    pub(super) hooks: BTreeMap<String, Arc<Hook>>,
    pub(super) jobs: BTreeMap<String, Arc<Job>>,
}

/// Who asks, for one job.
struct Asker {
    connector: Arc<Connector>,
    /// Whether the job names an account; else it carries its own credentials.
    named: bool,
    /// The named account, if nothing in it is wrong.
    account: Option<Arc<Account>>,
    with: With,
    /// Nothing of the account's inputs was left out as wrong.
    complete: bool,
}

impl Asker {
    /// The job itself, with its own credentials.
    fn job(connector: Arc<Connector>) -> Self {
        Self { connector, named: false, account: None, with: With::default(), complete: true }
    }
}

impl<'a> Resolver<'a> {
    pub(super) fn new(
        catalog: Catalog,
        folder: &'a Path,
        hidden: Arc<[SecretString]>,
        problems: &'a Problems,
    ) -> Self {
        Self {
            catalog,
            folder,
            hidden,
            problems,
            accounts: Accounts::default(),
            destinations: Destinations::default(),
        }
    }

    /// The parts of a configuration; `None` where anything is wrong.
    pub(super) fn config(mut self, file: JobsFile) -> Option<Resolved> {
        if let Some(version) = file.version.as_ref().filter(|version| version.value != 1) {
            let message = format!("the format's version {} is not known", version.value);
            self.problems.add(Problem::new(version.span, message).expected("`1`"));
        }
        let store = self.store(file.store.as_ref());
        for (name, account) in file.accounts.iter().flat_map(|accounts| &accounts.0) {
            check_name(name, self.problems);
            let connector = find_connector(&mut self.catalog, &account.connector, self.problems);
            self.accounts.add(name, account, connector, self.problems);
        }
        let allow_private = allow_private(file.allow_private.as_ref(), &AllowPrivate::Auto, self.problems);
        self.destinations =
            Destinations::new(file.destinations.as_ref(), allow_private.clone(), self.problems);
        let scopes = file.gate.as_ref().map(|gate| gate::scopes(gate, self.problems));
        let hooks =
            file.hooks.as_ref().map(|hooks| hooks::hooks(hooks, &mut self.destinations, self.problems));
        check_hook_names(&file, self.problems);
        let given = file.server.as_ref().map(|server| server::server(server, self.problems));
        let server = given.or_else(|| (scopes.is_some() || hooks.is_some()).then(|| Some(Server::default())));
        let jobs = self.jobs(file.jobs, server.is_some());
        let retention = retention::retention(file.retention.as_ref(), &jobs, self.problems);
        let (store, retention) = (store?, retention?);
        let (server, scopes) = (server.flatten(), scopes.flatten().unwrap_or_default());
        let hooks = hooks.flatten().unwrap_or_default();
        (self.problems.count() == 0).then_some(Resolved {
            store,
            allow_private,
            retention,
            server,
            scopes,
            hooks,
            jobs,
        })
    }

    /// The jobs by name. There may be none where `others` ask.
    fn jobs(
        &mut self,
        file: Option<Spanned<Entries<Spanned<JobFile>>>>,
        others: bool,
    ) -> BTreeMap<String, Arc<Job>> {
        let mut jobs = BTreeMap::new();
        let Some(file) = file else {
            if !others && self.problems.count() == 0 {
                let problem = Problem::new(Span::default(), "there are no jobs, so there is nothing to do");
                self.problems.add(problem.expected("`jobs`; `onlynew init` writes a file to start from"));
            }
            return jobs;
        };
        if file.0.is_empty() && file.whole && !others {
            let problem = Problem::new(file.span, "there are no jobs, so there is nothing to do");
            self.problems
                .add(problem.expected("at least one job; `onlynew init` writes a file to start from"));
        }
        check_renames(&file.value, self.problems);
        for (name, job) in file.value.0 {
            check_name(&name, self.problems);
            if let Some(job) = self.job(&name, job) {
                jobs.insert(job.name.clone(), Arc::new(job));
            }
        }
        jobs
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
        let account = if asker.named {
            asker.account.clone()
        } else {
            self.accounts.inline(name.span, &file, connector, values.as_ref(), self.problems)
        };
        let Some((stream_name, stream_file)) = stream_file else {
            // Without the stream only the form can be checked.
            file.window.iter().for_each(|window| rules::check_form(window, self.problems));
            return None;
        };
        let incremental = stream_file.incremental.as_ref();
        let defaults = stream_file.defaults.as_ref();
        let window = rules::window(file.window.as_ref(), defaults, incremental, self.problems);
        let changes = rules::changes(file.changes.as_ref(), defaults, stream_file.versions(), self.problems);
        let told = Told {
            has_flags: stream_file.deleted_when.is_some(),
            goes_by_token: incremental.is_some_and(|incremental| incremental.goes_by_token()),
            on_missing_version: changes
                .as_ref()
                .map_or_else(OnMissingVersion::default, |changes| changes.on_missing_version),
        };
        let deletes = deletes(file.deletes.as_ref(), told, |schedule| self.cron(schedule), self.problems);
        if !connector.usable || self.problems.count() > before {
            return None;
        }
        let (values, changes, deletes) = (values?, changes?, deletes?);
        let mut stream = streams::build(connector, stream_file, Some(&values), self.problems)?;
        stream.deleted_when = stream.deleted_when.filter(|_| deletes.by_flag);
        // A record's key is the same by definition, however it is spelled: it is no content (field case C23).
        let ignored = [changes.ignored, stream.primary_key.clone()].concat();
        rules::check_steps(file.window.as_ref(), defaults, stream.bounded, self.problems);
        Some(Job {
            name: name.value.clone(),
            renamed_from: file.renamed_from.as_ref().map(|before| before.value.clone()),
            account: account?,
            stream_name,
            stream: Arc::new(stream),
            inputs: values,
            given: given.iter().flat_map(|with| with.names()).map(str::to_owned).collect(),
            schedule: schedule?,
            window: window?,
            first_run: file.first_run.unwrap_or_default(),
            detect: changes.detect,
            ignored,
            on_missing_version: changes.on_missing_version,
            numbers: changes.numbers,
            emit: changes.emit,
            sweep: deletes.sweep,
            destination: destination?,
            hidden: Arc::clone(&self.hidden),
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
            return Some(Asker::job(Arc::new(Connector::from_source(name, source, self.problems))));
        }
        if let Some(connector) = &file.connector {
            return find_connector(&mut self.catalog, connector, self.problems).map(Asker::job);
        }
        let name = file.account.as_ref()?;
        let named = self.accounts.find(name, self.problems)?;
        let useless = [
            ("auth", file.auth.as_ref().map(|auth| auth.span)),
            ("rate_limit", file.rate_limit.as_ref().map(|limit| limit.span)),
        ];
        for (key, span) in useless.into_iter().filter_map(|(key, span)| Some((key, span?))) {
            let problem =
                Problem::new(span, format!("`{key}` does nothing here: the job's account has its own"));
            self.problems.add(problem.help(format!("move `{key}` to the account `{}`", name.shown())));
        }
        Some(Asker {
            connector: named.connector.clone()?,
            named: true,
            account: named.account.clone(),
            with: named.with.clone(),
            complete: named.complete,
        })
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

/// A hook and a job of one name would share what is kept of them.
fn check_hook_names(file: &JobsFile, problems: &Problems) {
    let (Some(hooks), Some(jobs)) = (&file.hooks, &file.jobs) else { return };
    for (name, _) in &hooks.0 {
        if jobs.0.iter().any(|(job, _)| job.value == name.value) {
            let problem = Problem::new(name.span, format!("there is a job `{}`, too", name.value));
            problems.add(
                problem.help(
                    "what is kept of a hook and of a job is found by its name: give them different ones",
                ),
            );
        }
    }
}

/// A name that a job had before is one that no job has, and of one job alone.
fn check_renames(jobs: &Entries<Spanned<JobFile>>, problems: &Problems) {
    let mut taken: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, job) in jobs.iter() {
        let Some(before) = &job.renamed_from else { continue };
        if !check_name(before, problems) {
            continue;
        }
        let problem = |message: String| Problem::new(before.span, message);
        if before.value == name.value {
            let problem = problem("this is the name that the job has".to_owned());
            problems.add(problem.expected("the name that it had before"));
        } else if jobs.get(before).is_some() {
            let problem = problem(format!("the job {} is still in this file", before.quoted()));
            problems.add(problem.help(
                "a job that was renamed goes on with what is stored under its old name, which is that job's own: take \
                 one of the two away",
            ));
        } else if let Some(other) = taken.insert(before.as_str(), name.as_str()) {
            let problem = problem(format!("the job `{other}` was renamed from {} as well", before.quoted()));
            problems.add(problem.help("only one of them can go on with what is stored under that name"));
        }
    }
}

fn find_connector(
    catalog: &mut Catalog,
    name: &Spanned<String>,
    problems: &Problems,
) -> Option<Arc<Connector>> {
    match catalog.find(name, problems) {
        Found::Connector(connector) => Some(connector),
        Found::Broken => None,
        Found::Missing => {
            let known = catalog.names();
            let problem = Problem::new(name.span, format!("there is no connector `{}`", name.shown()))
                .expected(format!("one of {}", listed(known.iter().map(String::as_str))))
                .help("a connector of your own goes into the folder `connectors` beside this file");
            problems.add(problem.meant(name, known.iter().map(String::as_str)));
            None
        }
    }
}
