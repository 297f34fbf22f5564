//! The records of a page: found by path in the raw text, so that numbers keep their digits and a record
//! that cannot be read spoils only itself. A missing list is an error, never an empty page (field case C11).

use minijinja::Value as Slot;
use serde_json::{Value, value::RawValue};

use crate::{
    config::{
        stream::{Missing, Stream},
        template::template_value,
    },
    domain::{
        content::Hash,
        json_path::elements,
        key::{KeyError, RecordKey},
        page::SeenRecord,
        version::{Version, VersionError},
    },
    store::QuarantinedRecord,
};

/// So many records of a page may be bad before their share counts.
const TOLERATED: usize = 10;

/// Why a page has no records to go on with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordsError {
    /// The list is not there.
    #[error("`{path}` is missing or null in the answer, where a list of records should be")]
    Missing {
        /// The path of the list.
        path: String,
    },
    /// Something else is there.
    #[error("`{path}` is {found} in the answer, where a list of records should be")]
    NotRecords {
        /// The path of the list.
        path: String,
        /// What is there.
        found: &'static str,
    },
    /// The text cannot be walked.
    #[error("the answer cannot be read: {0}")]
    Unreadable(String),
    /// A version without a zone: every record would be off by hours.
    #[error("a record's version {0}")]
    Version(VersionError),
    /// It is a list of something else.
    #[error("nothing at `{path}` in the answer is a record: {reason}")]
    NoKeys {
        /// The path of the list.
        path: String,
        /// What the first one lacks.
        reason: String,
    },
    /// Too much of it is bad.
    #[error("{bad} of {rows} records cannot be read, which is too many to set aside; the first: {reason}")]
    TooManyBad {
        /// How many.
        bad: usize,
        /// Of how many.
        rows: usize,
        /// What is wrong with the first one.
        reason: String,
    },
}

/// What a page holds.
#[derive(Debug, Default)]
pub struct Extracted {
    /// The records that pass the filter.
    pub records: Vec<SeenRecord>,
    /// The ones that could not be read.
    pub quarantined: Vec<QuarantinedRecord>,
    /// The highest version seen, filtered records included.
    pub max_version: Option<Version>,
}

/// The raw rows of a page.
#[derive(Debug)]
pub struct Rows<'a> {
    /// The rows.
    pub rows: Vec<&'a RawValue>,
    /// Whether they stand in a list; a lone object is one row.
    pub is_list: bool,
}

/// Finds the raw rows of a page.
pub fn rows<'a>(body: &'a RawValue, stream: &Stream) -> Result<Rows<'a>, RecordsError> {
    let unreadable = |error: serde_json::Error| RecordsError::Unreadable(error.to_string());
    let path = &stream.records.path;
    let found = path.find(body).map_err(unreadable)?.filter(|found| found.get() != "null");
    let Some(found) = found else {
        return match stream.records.missing {
            Missing::Empty => Ok(Rows { rows: Vec::new(), is_list: true }),
            Missing::Fail => Err(RecordsError::Missing { path: path.to_string() }),
        };
    };
    if let Some(rows) = elements(found).map_err(unreadable)? {
        return Ok(Rows { rows, is_list: true });
    }
    let other = match found.get().as_bytes().first() {
        Some(b'{') => return Ok(Rows { rows: vec![found], is_list: false }),
        Some(b'"') => "a text",
        Some(b't' | b'f') => "a boolean",
        _ => "a number",
    };
    Err(RecordsError::NotRecords { path: path.to_string(), found: other })
}

/// Whether so many bad records of so many fail a run: more than ten, and more than one in a hundred.
pub fn too_many_bad(bad: usize, rows: usize) -> bool {
    bad > TOLERATED && bad.saturating_mul(100) > rows
}

/// Reads the rows of a page. `damaged` names the encoding where some bytes of the page did not fit it.
pub fn read(
    Rows { rows, is_list }: &Rows<'_>,
    stream: &Stream,
    inputs: &Slot,
    damaged: Option<&str>,
) -> Result<Extracted, RecordsError> {
    let mut page = Extracted::default();
    let mut keyless = 0;
    for row in rows {
        match read_row(row, stream, inputs, damaged, &mut page.max_version) {
            Ok(record) => page.records.extend(record),
            Err(Bad::Run(error)) => return Err(RecordsError::Version(error)),
            Err(Bad::Record { reason, is_keyless }) => {
                keyless += usize::from(is_keyless);
                page.quarantined.push(QuarantinedRecord { raw: row.get().to_owned(), reason });
            }
        }
    }
    // One broken record in a list is set aside; a list of records without the key, or one object without it
    // where a list was expected, is something else than records.
    if keyless == rows.len() && (keyless > 1 || (keyless == 1 && !*is_list)) {
        let reason = page.quarantined.first().map(|first| first.reason.clone()).unwrap_or_default();
        return Err(RecordsError::NoKeys { path: stream.records.path.to_string(), reason });
    }
    let bad = page.quarantined.len();
    match page.quarantined.first() {
        Some(first) if too_many_bad(bad, rows.len()) => {
            Err(RecordsError::TooManyBad { bad, rows: rows.len(), reason: first.reason.clone() })
        }
        _ => Ok(page),
    }
}

enum Bad {
    Record { reason: String, is_keyless: bool },
    Run(VersionError),
}

impl Bad {
    fn record(reason: &dyn std::fmt::Display) -> Self {
        Self::Record { reason: reason.to_string(), is_keyless: false }
    }
}

/// Reads one row; `None` where the filter leaves it out.
fn read_row(
    row: &RawValue,
    stream: &Stream,
    inputs: &Slot,
    damaged: Option<&str>,
    max_version: &mut Option<Version>,
) -> Result<Option<SeenRecord>, Bad> {
    if let Some(encoding) = damaged
        && row.get().contains('\u{fffd}')
    {
        return Err(Bad::record(&format!(
            "it holds bytes that are not {encoding}: the source should declare its charset"
        )));
    }
    let record: Value = serde_json::from_str(row.get())
        .map_err(|error| Bad::record(&format!("it is not JSON that can be read: {error}")))?;
    let version = match &stream.incremental {
        Some(incremental) => incremental
            .format
            .read(incremental.field.find_in(&record).unwrap_or(&Value::Null), incremental.timezone.as_ref()),
        None => Ok(None),
    };
    let holds = |rule: &Option<crate::config::template::Expression>| match rule {
        Some(rule) => {
            let names = Slot::from_pairs([("inputs", inputs.clone()), ("record", template_value(&record))]);
            rule.holds(&names).map(Some).map_err(|error| Bad::record(&error))
        }
        None => Ok(None),
    };
    let kept = holds(&stream.records.filter)?.unwrap_or(true);
    if let Ok(version) = version {
        *max_version = version.max(*max_version);
    }
    if !kept {
        return Ok(None);
    }
    let version = version.map_err(|error| match error {
        VersionError::NoZone(_) => Bad::Run(error),
        VersionError::Unreadable { .. } => Bad::record(&error),
    })?;
    let names: Vec<String> = stream.primary_key.iter().map(ToString::to_string).collect();
    let parts = stream.primary_key.iter().zip(&names);
    let parts = parts.map(|(path, name)| (name.as_str(), path.find_in(&record)));
    let key = RecordKey::from_parts(parts, stream.key_type).map_err(|error| Bad::Record {
        is_keyless: matches!(error, KeyError::Missing(_)),
        reason: error.to_string(),
    })?;
    let flagged = holds(&stream.deleted_when)?.unwrap_or(false);
    let fingerprint = Hash::of(row.get().as_bytes());
    Ok(Some(SeenRecord { key, version, fingerprint, flagged, raw: row.to_owned() }))
}
