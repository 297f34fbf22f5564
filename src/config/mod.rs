//! The configuration: jobs.yaml and connector files, turned into checked types. Everything that can be
//! known to be wrong before a run starts is found here, all of it at once.

pub mod account;
pub mod destination;
pub mod job;
pub mod stream;
pub mod template;

use std::{collections::BTreeMap, sync::Arc};

/// A jobs.yaml, checked whole.
#[derive(Debug)]
pub struct Config {
    /// Where the store is, `sqlite://PATH` or `postgres://…`.
    pub store: String,
    /// The jobs by name.
    pub jobs: BTreeMap<String, Arc<job::Job>>,
    /// What is allowed but probably not meant, for a person.
    pub warnings: Vec<String>,
}
