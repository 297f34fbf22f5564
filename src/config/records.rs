//! Where and how records stand in a body: the keys of `records`, checked against one another.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    de::Spanned,
    error::{Problem, Problems, Span},
    stream::{Missing, RecordFormat, Records, Shape},
    template::Scope,
    text::PathForm,
    values::{expression, path},
};

/// Where the records stand in a page.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RecordsFile {
    /// The path of the list, in `json` and `xml`.
    #[schemars(with = "Option<PathForm>", extend("default" = "$"))]
    pub(super) path: Option<Spanned<String>>,
    /// How the answer is written.
    #[schemars(extend("default" = "json"))]
    pub(super) format: Option<FormatName>,
    /// What separates the values of `csv`, one character.
    #[schemars(extend("default" = ","))]
    pub(super) delimiter: Option<Spanned<String>>,
    /// The list is a map of ids to records.
    pub(super) entries: Option<Spanned<EntriesFile>>,
    /// The list holds rows of values; the path of the list that names their columns.
    #[schemars(with = "Option<PathForm>")]
    pub(super) columns: Option<Spanned<String>>,
    /// Keeps the records for which it holds; an expression over `record`.
    pub(super) filter: Option<Spanned<String>>,
    /// What a missing or null list means.
    #[schemars(extend("default" = "fail"))]
    pub(super) missing: Option<Missing>,
}

/// How an answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum FormatName {
    /// One JSON document.
    #[default]
    Json,
    /// One JSON value a line.
    Ndjson,
    /// A table whose first row names the columns; all values are texts.
    Csv,
    /// One XML document: attributes are `@name`, text beside them is `#text`, repeated elements are a list.
    Xml,
}

/// A map of ids to records.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EntriesFile {
    /// The member of the record that its id becomes.
    pub(super) key_as: Spanned<String>,
}

/// Builds the rules about records; `inputs` are the names that the filter may use.
pub(super) fn records(
    file: Option<&Spanned<RecordsFile>>,
    inputs: &[String],
    problems: &Problems,
) -> Option<Records> {
    let whole = || "$".parse().ok();
    let Some(file) = file else {
        return Some(Records {
            path: whole()?,
            filter: None,
            missing: Missing::default(),
            format: RecordFormat::Json,
            shape: Shape::List,
        });
    };
    let name = file.format.unwrap_or_default();
    // A format that is misspelt is told of already, and nothing is known of it.
    if file.whole || file.format.is_some() {
        useless_keys(file, name, problems);
    }
    let list = match &file.path {
        Some(text) => path(text, problems),
        None => whole(),
    };
    let scope = Scope::Record { inputs };
    let filter = file.filter.as_ref().and_then(|text| expression(text, scope, problems));
    let delimiter = file.delimiter.as_ref().map_or(Some(b','), |text| delimiter(text, problems));
    let shape = match (&file.entries, &file.columns) {
        (Some(entries), None) => {
            if entries.key_as.is_empty() {
                problems.add(Problem::new(entries.key_as.span, "`key_as` is empty"));
            }
            Some(Shape::Entries { key_as: entries.key_as.value.clone() })
        }
        (None, Some(columns)) => path(columns, problems).map(Shape::Columns),
        (None, None) => Some(Shape::List),
        (Some(_), Some(columns)) => {
            let problem = Problem::new(columns.span, "`records` has both `entries` and `columns`");
            problems.add(problem.help("keep one of the two: a list is a map of records or rows of values"));
            None
        }
    };
    let format = match name {
        FormatName::Json => RecordFormat::Json,
        FormatName::Ndjson => RecordFormat::Ndjson,
        FormatName::Csv => RecordFormat::Csv { delimiter: delimiter? },
        FormatName::Xml => RecordFormat::Xml,
    };
    Some(Records { path: list?, filter, missing: file.missing.unwrap_or_default(), format, shape: shape? })
}

/// Tells of keys that mean nothing in a format.
fn useless_keys(file: &RecordsFile, format: FormatName, problems: &Problems) {
    let has_path = matches!(format, FormatName::Json | FormatName::Xml);
    let is_json = format == FormatName::Json;
    let keys: [(bool, &str, Option<Span>); 4] = [
        (has_path, "path", file.path.as_ref().map(|key| key.span)),
        (is_json, "entries", file.entries.as_ref().map(|key| key.span)),
        (is_json, "columns", file.columns.as_ref().map(|key| key.span)),
        (format == FormatName::Csv, "delimiter", file.delimiter.as_ref().map(|key| key.span)),
    ];
    for (_, key, span) in keys.into_iter().filter(|(useful, ..)| !useful) {
        let Some(span) = span else { continue };
        let message = format!("`{key}` does nothing with records of the format `{}`", format.name());
        problems.add(Problem::new(span, message));
    }
}

/// The character between the values of a table.
fn delimiter(text: &Spanned<String>, problems: &Problems) -> Option<u8> {
    match text.as_bytes() {
        [byte] if byte.is_ascii() && !matches!(byte, b'"' | b'\r' | b'\n') => Some(*byte),
        _ => {
            let problem = Problem::new(text.span, format!("{} cannot separate values", text.quoted()));
            problems.add(problem.expected("one ASCII character, such as `;`, `|` or `\"\\t\"`"));
            None
        }
    }
}

impl FormatName {
    const fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Ndjson => "ndjson",
            Self::Csv => "csv",
            Self::Xml => "xml",
        }
    }
}
