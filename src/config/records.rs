//! Where and how records stand in a body: the keys of `records`, checked against one another.

use super::{
    connector_file::{FormatName, RecordsFile},
    de::Spanned,
    error::{Problem, Problems, Span},
    stream::{Missing, RecordFormat, Records, Shape},
    template::Scope,
    values::{expression, path},
};

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
