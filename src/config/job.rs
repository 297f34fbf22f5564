//! A job: a stream of an account, on a schedule, towards a destination, with everything it needs resolved.

use std::{collections::BTreeSet, sync::Arc};

use secrecy::SecretString;

use super::{account::Account, destination::Destination, stream::Stream};
use crate::domain::{
    content::Hash, decide::Detect, event::ChangeKind, fires::Schedule, json_path::JsonPath, numbers::Numbers,
    reconcile::Share, version::VersionFormat, version_field::OnMissingVersion, window::WindowRule,
};

/// A job, ready to run.
#[derive(Debug)]
pub struct Job {
    /// Its name.
    pub name: String,
    /// The name that it had before.
    pub renamed_from: Option<String>,
    /// Who asks.
    pub account: Arc<Account>,
    /// The stream's name.
    pub stream_name: String,
    /// What is read.
    pub stream: Arc<Stream>,
    /// The values of the connector's inputs, defaults filled in.
    pub inputs: serde_json::Map<String, serde_json::Value>,
    /// The names of those that a person gave.
    pub given: BTreeSet<String>,
    /// When it runs.
    pub schedule: Schedule,
    /// Which versions it asks for.
    pub window: WindowRule,
    /// What the first run sends.
    pub first_run: FirstRun,
    /// What counts as a change.
    pub detect: Detect,
    /// Places left out of the content hash: the version's fields, `ignore_fields` and the primary key.
    pub ignored: Vec<JsonPath>,
    /// What a record without a version is.
    pub on_missing_version: OnMissingVersion,
    /// How large integers go out.
    pub numbers: Numbers,
    /// The kinds of change that are sent.
    pub emit: Vec<ChangeKind>,
    /// When and how it is swept; `None` where what is gone is not looked for.
    pub sweep: Option<SweepRule>,
    /// Where events go.
    pub destination: Arc<Destination>,
    /// What was filled in from outside the file: nothing that is shown may hold it.
    pub hidden: Arc<[SecretString]>,
}

impl Job {
    /// The name of the bucket that the jobs on this stream of the account share; `None` where the vendor
    /// limits the account alone.
    pub fn stream_bucket(&self) -> Option<String> {
        self.stream.rate_limit.as_ref().map(|_| format!("{}/{}", self.account.bucket, self.stream_name))
    }

    /// The hash of everything that shapes requests, keys and versions. It holds for one release: what it
    /// guards is dropped under another one.
    pub fn fingerprint(&self) -> String {
        let shape = format!(
            "{} {} {:?} {:?} {:?} {:?}",
            env!("CARGO_PKG_VERSION"),
            self.account.bucket,
            self.stream,
            self.inputs,
            self.window,
            self.on_missing_version,
        );
        Hash::of(shape.as_bytes()).hex()
    }

    /// Whether its versions are points in time.
    pub fn has_time_versions(&self) -> bool {
        self.stream.incremental.is_some() && self.window.is_time
    }

    /// Whether what records were can be forgotten by the age of their versions: these are instants, and what is asked for
    /// goes by them. A source that tells of changes alone tells each of them once, however old its version is.
    pub fn forgets_keys(&self) -> bool {
        self.has_time_versions() && self.stream.sync.is_none()
    }

    /// How the job's versions are shown; a stream without versions shows none.
    pub fn version_format(&self) -> VersionFormat {
        self.stream.incremental.as_ref().map_or(VersionFormat::Auto, |incremental| incremental.format.clone())
    }
}

/// When and how a job is swept.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepRule {
    /// When everything is read.
    pub schedule: Schedule,
    /// How much of the known keys it may call gone without a person's word.
    pub max_ratio: Share,
}

/// What the first run sends.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum FirstRun {
    /// Nothing that stood when it began: that is recorded, and only what changes afterwards is sent.
    #[default]
    Baseline,
    /// Everything.
    Emit,
}
