//! The configuration: jobs.yaml and connector files, turned into checked types. Everything that can be
//! known to be wrong before a run starts is found here, all of it at once.
//!
//! The way of a file: `tree` reads the YAML, `fill` puts the variables in, `check` holds it against the
//! schema, `de` makes the types of `file` and `connector_file` of it, `resolve` makes a [`Config`] of those.

pub mod account;
mod accounts;
mod allow_private;
mod batch;
pub mod catalog;
mod check;
mod connector;
mod connector_file;
mod credentials;
mod de;
mod deletes;
pub mod destination;
mod destination_file;
mod destinations;
mod error;
mod file;
mod fill;
mod gate;
pub mod hook;
mod hook_file;
mod hooks;
mod identity;
mod incremental_file;
mod inputs;
pub mod job;
mod lanes;
mod pagination;
mod rate_limit;
mod records;
mod resolve;
mod retention;
mod rules;
pub mod schema;
pub mod server;
mod server_file;
mod signing;
pub mod stream;
mod streams;
mod sync;
pub mod template;
mod text;
mod tree;
mod values;
mod webhook_auth;
mod webhook_jwt;

use std::{cell::RefCell, collections::BTreeMap, path::Path, sync::Arc};

use secrecy::SecretString;

pub use error::{ConfigError, ConfigErrors, nearest};

use crate::domain::{allow_private::AllowPrivate, gate::ScopeRules, retention::Retention};
use catalog::Catalog;
use check::Checker;
use error::{Problem, Problems};
use fill::Filler;
use resolve::{Resolved, Resolver};

/// The largest jobs.yaml or connector file that is read, in MiB.
const MAX_FILE: u64 = 4;

/// Where a `${NAME}` gets its value.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A jobs.yaml, checked whole.
#[derive(Debug)]
pub struct Config {
    /// Where the store is, `sqlite://PATH` or `postgres://…`.
    pub store: String,
    /// What sources may be reached at beside public addresses.
    pub allow_private: AllowPrivate,
    /// How long what is stored is kept.
    pub retention: Retention,
    /// Where `run` listens; `None` where it need not.
    pub server: Option<server::Server>,
    /// The scopes of the gate by name.
    pub scopes: BTreeMap<String, ScopeRules>,
    /// The hooks by name.
    pub hooks: BTreeMap<String, Arc<hook::Hook>>,
    /// The jobs by name.
    pub jobs: BTreeMap<String, Arc<job::Job>>,
    /// What is allowed but probably not meant, for a person.
    pub warnings: Vec<String>,
}

/// Reads a jobs.yaml and the connectors it names; connectors in the folder `connectors` beside it come
/// before the ones that are built in. Fails with everything that is wrong.
pub fn load(path: &Path, env: Env<'_>) -> Result<Config, ConfigErrors> {
    let text = fill::read(path, MAX_FILE).map_err(|reason| {
        let help = "`onlynew init` writes a jobs.yaml to start from; `--config PATH` names another one";
        ConfigErrors::unreadable(path, format!("this file cannot be read: {reason}"), Some(help.to_owned()))
    })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    load_str(&path.display().to_string(), &text, folder, env)
}

/// Reads a configuration from a text. `name` is what errors call it, `folder` where relative paths and the
/// folder `connectors` are looked for.
pub fn load_str(name: &str, text: &str, folder: &Path, env: Env<'_>) -> Result<Config, ConfigErrors> {
    let problems = Problems::default();
    let resolved = resolve_text(name, text, folder, env, &problems);
    let warnings = problems.finish()?;
    match resolved {
        Some(Resolved { store, allow_private, retention, server, scopes, hooks, jobs }) => {
            Ok(Config { store, allow_private, retention, server, scopes, hooks, jobs, warnings })
        }
        None => Err(ConfigErrors::unreadable(Path::new(name), "it cannot be used".to_owned(), None)),
    }
}

fn resolve_text(
    name: &str,
    text: &str,
    folder: &Path,
    env: Env<'_>,
    problems: &Problems,
) -> Option<Resolved> {
    let file = problems.open(name, text);
    let mut tree = tree::parse(file, text, problems)?;
    let filled = RefCell::default();
    Filler { env, folder, problems, filled: &filled }.fill(&mut tree);
    let hidden: Arc<[SecretString]> = filled.into_inner().into_iter().map(SecretString::from).collect();
    if !Checker::new(&schema::JOBS, problems).document(&mut tree) {
        return None;
    }
    match de::from_node::<file::JobsFile>(&tree) {
        Ok(jobs) => Resolver::new(Catalog::beside(folder), folder, hidden, problems).config(jobs),
        Err(error) => {
            problems.add(Problem::new(tree.span, error.to_string()));
            None
        }
    }
}
