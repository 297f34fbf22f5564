//! The records of a page, read from the texts of its rows: a row that cannot be read is set aside and spoils
//! only itself. Numbers keep their digits, since each record keeps its text.

use minijinja::Value as Slot;
use serde_json::{Value, value::RawValue};

use super::list::List;
use crate::{
    config::{
        job::Job,
        template::{Expression, template_value},
    },
    domain::{
        content::Hash,
        instant::Instant,
        json,
        key::{KeyError, RecordKey},
        page::SeenRecord,
        version::{Version, VersionError},
        version_field::OnMissingVersion,
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
    #[error("`{path}` is {found} in the answer, where {expected} should be")]
    NotRecords {
        /// The path of the list.
        path: String,
        /// What is there.
        found: &'static str,
        /// What should be.
        expected: &'static str,
    },
    /// A table without the column of the key.
    #[error("the header row of the answer names no `{key}`, which the primary key is made of")]
    NoKeyColumn {
        /// The part of the key.
        key: String,
    },
    /// The names of the columns are not there.
    #[error("`{path}` is not a list of texts in the answer, where the names of the columns should be")]
    NoColumns {
        /// Their path.
        path: String,
    },
    /// The text cannot be walked.
    #[error("the answer cannot be read: {0}")]
    Unreadable(String),
    /// A version without a zone: every record would be off by hours.
    #[error("a record's version {0}")]
    Version(VersionError),
    /// A record without a version, where the job says that there is none.
    #[error("the record `{key}` has no version at `{field}`, and `on_missing_version` is `fail`")]
    NoVersion {
        /// Its key.
        key: RecordKey,
        /// Where the version should be.
        field: String,
    },
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
    /// How many were left out for want of a version.
    pub skipped: u64,
    /// The highest version seen, filtered records included.
    pub max_version: Option<Version>,
}

/// Whether so many bad records of so many fail a run: more than ten, and more than one in a hundred.
pub fn too_many_bad(bad: usize, rows: usize) -> bool {
    bad > TOLERATED && bad.saturating_mul(100) > rows
}

/// How rows are read.
#[derive(Debug)]
pub struct Reading<'a> {
    /// Whose rows they are.
    pub job: &'a Job,
    /// The job's inputs, for templates.
    pub inputs: &'a Slot,
    /// The encoding where some bytes of the page did not fit it.
    pub damaged: Option<&'a str>,
    /// When the page was asked for, by the source's clock.
    pub unread_since: Instant,
}

enum Bad {
    Record(String),
    /// It has no key.
    Keyless(String),
    Run(RecordsError),
}

/// What a row is.
enum Row {
    Record(SeenRecord),
    /// The filter leaves it out.
    Filtered,
    /// It has no version, and the job does without such.
    Skipped,
}

impl Reading<'_> {
    /// Reads rows of a page, each with its position in `list`.
    pub fn page(&self, rows: &[(usize, &RawValue)], list: &List<'_>) -> Result<Extracted, RecordsError> {
        let mut page = Extracted::default();
        let mut keyless = 0;
        for &(position, row) in rows {
            let known = list.broken(position).map(|reason| Bad::Record(reason.to_owned()));
            let reason = match known.map_or_else(|| self.row(row, &mut page.max_version), Err) {
                Ok(Row::Record(record)) => {
                    page.records.push(record);
                    continue;
                }
                Ok(Row::Filtered) => continue,
                Ok(Row::Skipped) => {
                    page.skipped = page.skipped.saturating_add(1);
                    continue;
                }
                Err(Bad::Run(error)) => return Err(error),
                Err(Bad::Record(reason)) => reason,
                Err(Bad::Keyless(reason)) => {
                    keyless += 1;
                    reason
                }
            };
            let raw = match list.broken(position) {
                // It stands in the list as a text.
                Some(_) => serde_json::from_str(row.get()).unwrap_or_else(|_| row.get().to_owned()),
                None => row.get().to_owned(),
            };
            page.quarantined.push(QuarantinedRecord { raw, reason, unread_since: self.unread_since });
        }
        // One broken record in a list is set aside; a list of records without the key, or one object without
        // it where a list was expected, is something else than records.
        if keyless == rows.len() && (keyless > 1 || (keyless == 1 && !list.is_list())) {
            let reason = page.quarantined.first().map(|first| first.reason.clone()).unwrap_or_default();
            return Err(RecordsError::NoKeys { path: self.job.stream.records.path.to_string(), reason });
        }
        let bad = page.quarantined.len();
        match page.quarantined.first() {
            Some(first) if too_many_bad(bad, rows.len()) => {
                Err(RecordsError::TooManyBad { bad, rows: rows.len(), reason: first.reason.clone() })
            }
            _ => Ok(page),
        }
    }

    fn row(&self, row: &RawValue, max_version: &mut Option<Version>) -> Result<Row, Bad> {
        if let Some(encoding) = self.damaged
            && row.get().contains('\u{fffd}')
        {
            return Err(Bad::Record(format!(
                "it holds bytes that are not {encoding}: the source should declare its charset"
            )));
        }
        let stream = &self.job.stream;
        let record = json::parse(row.get())
            .map_err(|error| Bad::Record(format!("it is not JSON that can be read: {error}")))?;
        let version = match &stream.incremental {
            Some(incremental) => {
                let value = incremental.field.find_in(&record).unwrap_or(&Value::Null);
                incremental.format.read(value, incremental.timezone.as_ref())
            }
            None => Ok(None),
        };
        let kept = self.holds(stream.records.filter.as_ref(), &record)?.unwrap_or(true);
        if let Ok(version) = version {
            *max_version = version.max(*max_version);
        }
        if !kept {
            return Ok(Row::Filtered);
        }
        let version = version.map_err(|error| match error {
            VersionError::NoZone(_) => Bad::Run(RecordsError::Version(error)),
            VersionError::Unreadable { .. } => Bad::Record(error.to_string()),
        })?;
        let names: Vec<String> = stream.primary_key.iter().map(ToString::to_string).collect();
        let parts = stream.primary_key.iter().zip(&names);
        let parts = parts.map(|(path, name)| (name.as_str(), path.find_in(&record)));
        let key = RecordKey::from_parts(parts, stream.key_type).map_err(|error| match error {
            KeyError::Missing(_) => Bad::Keyless(error.to_string()),
            _ => Bad::Record(error.to_string()),
        })?;
        if let (Some(incremental), None) = (&stream.incremental, version) {
            match self.job.on_missing_version {
                OnMissingVersion::Include => {}
                OnMissingVersion::Skip => return Ok(Row::Skipped),
                OnMissingVersion::Fail => {
                    let field = incremental.field.to_string();
                    return Err(Bad::Run(RecordsError::NoVersion { key, field }));
                }
            }
        }
        let flagged = self.holds(stream.deleted_when.as_ref(), &record)?.unwrap_or(false);
        let fingerprint = Hash::of(row.get().as_bytes());
        Ok(Row::Record(SeenRecord { key, version, fingerprint, flagged, raw: row.to_owned() }))
    }

    /// Whether a rule about a record holds; `None` where there is no rule.
    fn holds(&self, rule: Option<&Expression>, record: &Value) -> Result<Option<bool>, Bad> {
        let Some(rule) = rule else { return Ok(None) };
        let names = Slot::from_pairs([("inputs", self.inputs.clone()), ("record", template_value(record))]);
        rule.holds(&names).map(Some).map_err(|error| Bad::Record(error.to_string()))
    }
}

/// Reads one record by itself, as the job would read it today. `None` where the job would leave it out.
pub fn read_one(job: &Job, raw: &str) -> Result<Option<SeenRecord>, String> {
    let row = RawValue::from_string(raw.to_owned())
        .map_err(|error| format!("it is not JSON that can be read: {error}"))?;
    let inputs = template_value(&Value::Object(job.inputs.clone()));
    let reading = Reading { job, inputs: &inputs, damaged: None, unread_since: Instant::default() };
    match reading.row(&row, &mut None) {
        Ok(Row::Record(record)) => Ok(Some(record)),
        Ok(Row::Filtered | Row::Skipped) => Ok(None),
        Err(Bad::Record(reason) | Bad::Keyless(reason)) => Err(reason),
        Err(Bad::Run(error)) => Err(error.to_string()),
    }
}
