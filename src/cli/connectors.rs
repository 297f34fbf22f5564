//! `onlynew connectors list|show`: the connectors that are built in or stand beside the jobs file.

use std::path::Path;

use clap::Subcommand;
use serde_json::json;

use super::{Exit, Session, bad_config, bad_input, table};
use crate::config::catalog::{self, ConnectorSummary};

/// Subcommands of `connectors`.
#[derive(Debug, Subcommand)]
pub(super) enum Connectors {
    /// Name all connectors and their streams.
    List,
    /// Print one connector's file.
    Show {
        /// The connector's name.
        name: String,
    },
}

impl Connectors {
    pub(super) fn run(&self, session: &Session) -> anyhow::Result<Exit> {
        let folder = session.path.parent().unwrap_or(Path::new(""));
        match self {
            Self::List => list(session, folder),
            Self::Show { name } => show(session, folder, name),
        }
    }
}

fn list(session: &Session, folder: &Path) -> anyhow::Result<Exit> {
    let connectors = catalog::connectors(folder).map_err(|errors| bad_config(&errors))?;
    session.answer(&json!({"connectors": connectors}), || {
        let streams = |connector: &ConnectorSummary| {
            let names: Vec<&str> = connector.streams.iter().map(|stream| stream.name.as_str()).collect();
            names.join(", ")
        };
        table::table(
            ["connector", "streams", "auth", "description"],
            connectors.iter().map(|connector| {
                [
                    connector.name.clone(),
                    streams(connector),
                    connector.auth.join(", "),
                    connector.description.clone(),
                ]
            }),
        )
    });
    Ok(Exit::Good)
}

fn show(session: &Session, folder: &Path, name: &str) -> anyhow::Result<Exit> {
    let Some(text) = catalog::connector_text(folder, name) else {
        let connectors = catalog::connectors(folder).map_err(|errors| bad_config(&errors))?;
        let names: Vec<String> = connectors.into_iter().map(|connector| connector.name).collect();
        return Err(bad_input(format!("there is no connector `{name}`; there are: {}", names.join(", "))));
    };
    session.answer(&json!({"connector": name, "file": text}), || text.trim_end().to_owned());
    Ok(Exit::Good)
}
