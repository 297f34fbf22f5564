//! `onlynew connectors list|show`: the connectors that are built in or stand beside the jobs file.

use clap::Subcommand;

use super::{BadInput, Exit, Session, table};
use crate::config;

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
