//! `onlynew check` and `onlynew schema`: the jobs file, and what may stand in it.

use clap::{Args, ValueEnum};
use serde_json::json;

use super::{Exit, Session, print_line};
use crate::config::schema;

pub(super) fn run(session: &Session) -> anyhow::Result<Exit> {
    let config = session.load()?;
    let names: Vec<&str> = config.jobs.keys().map(String::as_str).collect();
    let scopes: Vec<&str> = config.scopes.keys().map(String::as_str).collect();
    let hooks: Vec<&str> = config.hooks.keys().map(String::as_str).collect();
    let answer =
        json!({"ok": true, "jobs": names, "hooks": hooks, "scopes": scopes, "warnings": config.warnings});
    session.answer(&answer, || {
        let parts = [("jobs", &names), ("hooks", &hooks), ("scopes of the gate", &scopes)];
        let parts = parts.iter().filter(|(_, names)| !names.is_empty());
        let parts: Vec<String> = parts.map(|(what, names)| format!("{what} {}", names.join(", "))).collect();
        let parts = if parts.is_empty() { "the server".to_owned() } else { parts.join("; ") };
        let mut lines = vec![format!("{} is good: {parts}", session.path.display())];
        lines.extend(config.warnings.iter().map(|warning| format!("warning: {warning}")));
        lines.join("\n")
    });
    Ok(Exit::Good)
}

/// Arguments of `schema`.
#[derive(Debug, Args)]
pub(super) struct Schema {
    /// Which file the schema is of.
    #[arg(value_enum, default_value_t)]
    of: SchemaOf,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum SchemaOf {
    /// The jobs file.
    #[default]
    Jobs,
    /// A connector file.
    Connector,
}

impl Schema {
    #[expect(clippy::unnecessary_wraps, reason = "the same shape as every other command")]
    pub(super) fn run(&self) -> anyhow::Result<Exit> {
        print_line(&match self.of {
            SchemaOf::Jobs => schema::json_schema(),
            SchemaOf::Connector => schema::connector_json_schema(),
        });
        Ok(Exit::Good)
    }
}
