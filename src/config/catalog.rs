//! The connectors there are: the ones built into the binary, and before them the user's own in the folder
//! `connectors` beside jobs.yaml.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use rust_embed::RustEmbed;
use serde::Serialize;

use super::{
    check::Checker,
    connector::Connector,
    connector_file::{ConnectorFile, InputType},
    de::{Entries, Spanned, from_node},
    error::{ConfigErrors, Problem, Problems},
    fill, schema, tree,
};

#[derive(RustEmbed)]
#[folder = "connectors/"]
struct BuiltIn;

/// A connector, for a person who looks for one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConnectorSummary {
    /// Its name.
    pub name: String,
    /// What the API is.
    pub description: String,
    /// The file it comes from; `None` for one that is built in.
    pub file: Option<PathBuf>,
    /// How its requests can be signed.
    pub auth: Vec<String>,
    /// What a job fills in by `with`.
    pub inputs: Vec<InputSummary>,
    /// The kinds of records.
    pub streams: Vec<StreamSummary>,
}

/// An input of a connector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InputSummary {
    /// Its name.
    pub name: String,
    /// What kind of value it takes.
    pub r#type: &'static str,
    /// Whether a job must give it.
    pub required: bool,
    /// What it is.
    pub description: String,
}

/// A stream of a connector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StreamSummary {
    /// Its name.
    pub name: String,
    /// What the records are.
    pub description: String,
    /// The parts of a record's key.
    pub primary_key: Vec<String>,
    /// Where the version stands in a record, if it has one.
    pub version_field: Option<String>,
}

/// All connectors that a jobs.yaml in `folder` can name, sorted by name. Fails with what is wrong in any.
pub fn connectors(folder: &Path) -> Result<Vec<ConnectorSummary>, ConfigErrors> {
    let catalog = Catalog::beside(folder);
    let problems = Problems::default();
    let mut summaries = Vec::new();
    for name in catalog.names() {
        let Some(file) = catalog.parse(&name, &problems) else { continue };
        summaries.push(summary(&name, catalog.own_file(&name), &file));
        Connector::from_file(&name, file, &problems);
    }
    problems.finish()?;
    Ok(summaries)
}

/// The text of a connector's file; `None` where there is no such connector or it cannot be read.
pub fn connector_text(folder: &Path, name: &str) -> Option<String> {
    Catalog::beside(folder).text(name)?.ok().map(|(_, text)| text)
}

fn summary(name: &str, file: Option<PathBuf>, connector: &ConnectorFile) -> ConnectorSummary {
    let inputs = connector.inputs.iter().flat_map(Entries::iter);
    let auth: BTreeSet<&str> =
        connector.auth.iter().flat_map(|auth| &auth.0).map(|auth| auth.r#type.value.name()).collect();
    ConnectorSummary {
        name: name.to_owned(),
        description: connector.description.clone().unwrap_or_default(),
        file,
        auth: if auth.is_empty() {
            vec!["none".to_owned()]
        } else {
            auth.into_iter().map(str::to_owned).collect()
        },
        inputs: inputs
            .map(|(name, input)| InputSummary {
                name: name.value.clone(),
                r#type: input.r#type.unwrap_or_default().name(),
                required: input.required.as_ref().is_some_and(|required| required.value),
                description: input.description.clone().unwrap_or_default(),
            })
            .collect(),
        streams: connector
            .streams
            .iter()
            .map(|(name, stream)| StreamSummary {
                name: name.value.clone(),
                description: stream.description.clone().unwrap_or_default(),
                primary_key: stream.primary_key.iter().map(|part| part.value.clone()).collect(),
                version_field: stream.versions().and_then(|version| Some(version.field.as_ref()?.text())),
            })
            .collect(),
    }
}

impl InputType {
    const fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Integer => "integer",
            Self::Boolean => "boolean",
            Self::List => "list",
            Self::Timezone => "timezone",
            Self::Url => "url",
        }
    }
}

/// Finds and reads connectors, each of them once.
#[derive(Debug)]
pub(super) struct Catalog {
    folder: PathBuf,
    read: HashMap<String, Option<Arc<Connector>>>,
}

/// What became of a connector that a job names.
#[derive(Debug)]
pub(super) enum Found {
    /// It was read, though it may hold errors.
    Connector(Arc<Connector>),
    /// It is there and cannot be used; `problems` says why.
    Broken,
    /// There is none of that name.
    Missing,
}

impl Catalog {
    /// The connectors for a jobs.yaml in `folder`.
    pub(super) fn beside(folder: &Path) -> Self {
        Self { folder: folder.join("connectors"), read: HashMap::new() }
    }

    /// The names of all connectors, sorted.
    pub(super) fn names(&self) -> BTreeSet<String> {
        let own = fs::read_dir(&self.folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let own = own.filter_map(|name| name.into_string().ok());
        let built_in = BuiltIn::iter().map(Cow::into_owned);
        own.chain(built_in)
            .filter_map(|file| file.strip_suffix(".yaml").map(str::to_owned))
            .filter(|name| is_name(name))
            .collect()
    }

    /// The connector of that name, read and checked.
    pub(super) fn find(&mut self, name: &str, problems: &Problems) -> Found {
        if !self.read.contains_key(name) {
            if !self.names().contains(name) {
                return Found::Missing;
            }
            let file = self.parse(name, problems);
            let connector = file.map(|file| Arc::new(Connector::from_file(name, file, problems)));
            self.read.insert(name.to_owned(), connector);
        }
        match self.read.get(name).and_then(Option::as_ref) {
            Some(connector) => Found::Connector(Arc::clone(connector)),
            None => Found::Broken,
        }
    }

    fn own_file(&self, name: &str) -> Option<PathBuf> {
        Some(self.folder.join(format!("{name}.yaml"))).filter(|path| path.is_file())
    }

    /// What errors call the file, and its text or the reason why it cannot be read.
    fn text(&self, name: &str) -> Option<Result<(String, String), (String, String)>> {
        if !is_name(name) {
            return None;
        }
        if let Some(path) = self.own_file(name) {
            let shown = path.display().to_string();
            return Some(match fill::read(&path, super::MAX_FILE) {
                Ok(text) => Ok((shown, text)),
                Err(reason) => Err((shown, reason)),
            });
        }
        let file = BuiltIn::get(&format!("{name}.yaml"))?;
        Some(Ok((
            format!("built-in connectors/{name}.yaml"),
            String::from_utf8_lossy(&file.data).into_owned(),
        )))
    }

    fn parse(&self, name: &str, problems: &Problems) -> Option<Spanned<ConnectorFile>> {
        let (shown, text) = match self.text(name)? {
            Ok(found) => found,
            Err((shown, reason)) => {
                let file = problems.open(&shown, "");
                let span = super::error::Span { file, start: 0, end: 0 };
                problems.add(Problem::new(span, format!("this file cannot be read: {reason}")));
                return None;
            }
        };
        let file = problems.open(&shown, &text);
        let mut tree = tree::parse(file, &text, problems)?;
        if !Checker::new(&schema::CONNECTOR, problems).document(&mut tree) {
            return None;
        }
        from_node(&tree).map_err(|error| problems.add(Problem::new(tree.span, error.to_string()))).ok()
    }
}

/// Names go into paths, so they hold nothing that a path gives a meaning to.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

/// All built-in connectors with their texts, for the tests that hold them to the schema.
pub fn built_in() -> BTreeMap<String, String> {
    BuiltIn::iter()
        .filter_map(|name| {
            let text = String::from_utf8(BuiltIn::get(&name)?.data.into_owned()).ok()?;
            Some((name.strip_suffix(".yaml")?.to_owned(), text))
        })
        .collect()
}
