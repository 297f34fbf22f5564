//! The list of a document: the rows that the stream's path names, each as the JSON text of one record. A
//! missing list is an error, never an empty one (field case C11).

use std::{borrow::Cow, fmt::Display, ptr};

use serde::{
    Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{
    document::{Broken, Document, ListText, push_text},
    records::RecordsError,
};
use crate::{
    config::stream::{Missing, RecordFormat, Shape, Stream},
    domain::json_path::{JsonPath, MOST_ELEMENTS, elements, too_many},
};

/// The rows of a page.
#[derive(Debug)]
pub struct List<'a> {
    json: Option<Cow<'a, RawValue>>,
    made: Broken,
    document: Option<&'a Broken>,
    /// One object where a list could be.
    lone: bool,
}

impl List<'_> {
    /// Without rows.
    pub fn empty() -> Self {
        Self { json: None, made: Broken::default(), document: None, lone: false }
    }

    /// The texts of the rows.
    pub fn rows(&self) -> Result<Vec<&RawValue>, RecordsError> {
        let Some(json) = self.json.as_deref() else { return Ok(Vec::new()) };
        Ok(elements(json).map_err(unreadable)?.unwrap_or_else(|| vec![json]))
    }

    /// Whether its rows stand in a list; a lone object is one row.
    pub const fn is_list(&self) -> bool {
        !self.lone
    }

    /// Why the row at a position cannot be read, where that is known already.
    pub fn broken(&self, position: usize) -> Option<&str> {
        self.made.reason(position).or_else(|| self.document?.reason(position))
    }
}

fn unreadable(error: impl Display) -> RecordsError {
    RecordsError::Unreadable(error.to_string())
}

/// Finds the list of a document.
pub fn list<'a>(document: &'a Document, stream: &Stream) -> Result<List<'a>, RecordsError> {
    let records = &stream.records;
    let path = &records.path;
    // Any line of text could be the header row of an empty table: this one must at least name the key.
    if let Some(columns) = &document.columns
        && let Some(key) = stream.primary_key.iter().find(|key| key.find_in(columns).is_none())
    {
        return Err(RecordsError::NoKeyColumn { key: key.to_string() });
    }
    let found = path.find(&document.json).map_err(unreadable)?.filter(|found| found.get() != "null");
    let Some(found) = found else {
        // XML spells an empty list by leaving its elements out: the one around them must be there.
        let is_empty_xml = records.format == RecordFormat::Xml
            && path.find_parent(&document.json).map_err(unreadable)?.is_some();
        return match records.missing {
            _ if is_empty_xml => Ok(List::empty()),
            Missing::Empty => Ok(List::empty()),
            Missing::Fail => Err(RecordsError::Missing { path: path.to_string() }),
        };
    };
    let kind = found.get().as_bytes().first();
    let is_good = match (&records.shape, kind) {
        (Shape::Entries { .. } | Shape::List, Some(b'{')) | (Shape::List | Shape::Columns(_), Some(b'[')) => {
            true
        }
        (Shape::List, Some(b'"')) => records.format == RecordFormat::Xml,
        _ => false,
    };
    if !is_good {
        let found = match kind {
            Some(b'[') => "a list",
            Some(b'{') => "an object",
            Some(b'"') => "a text",
            Some(b't' | b'f') => "a boolean",
            _ => "a number",
        };
        let expected = match records.shape {
            Shape::List => "a list of records",
            Shape::Entries { .. } => "a map of ids to records",
            Shape::Columns(_) => "a list of rows",
        };
        return Err(RecordsError::NotRecords { path: path.to_string(), found, expected });
    }
    let made = match &records.shape {
        Shape::List => {
            let lone = match records.format {
                RecordFormat::Json => kind != Some(&b'['),
                // A single line is as likely to be an error.
                RecordFormat::Ndjson => true,
                RecordFormat::Csv { .. } | RecordFormat::Xml => false,
            };
            let json = Some(Cow::Borrowed(found));
            return Ok(List { json, made: Broken::default(), document: Some(&document.broken), lone });
        }
        Shape::Entries { key_as } => entries(found, key_as)?,
        Shape::Columns(names) => columns(document, found, names)?,
    };
    let made = made.finish().map_err(unreadable)?;
    Ok(List { json: Some(Cow::Owned(made.json)), made: made.broken, document: None, lone: false })
}

/// The members of an object, each a record that carries its name as `key_as`. What is no object is a record
/// of that and its `value`.
fn entries(map: &RawValue, key_as: &str) -> Result<ListText, RecordsError> {
    let mut list = ListText::new(map.get().len());
    for (key, value) in members(map)? {
        let value = value.get().trim();
        let inner = value.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        let added = list.row(|text| {
            text.push('{');
            match inner.map(str::trim_ascii) {
                Some("") => {}
                Some(inner) => {
                    text.push_str(inner);
                    text.push(',');
                }
                None => {
                    text.push_str("\"value\":");
                    text.push_str(value);
                    text.push(',');
                }
            }
            // Last, so that it counts also where the record has a member of this name.
            push_text(text, key_as);
            text.push(':');
            push_text(text, &key);
            text.push('}');
        });
        added.map_err(unreadable)?;
    }
    Ok(list)
}

/// Rows of values with the names of their columns elsewhere; that may be the first of the rows.
fn columns(document: &Document, rows: &RawValue, path: &JsonPath) -> Result<ListText, RecordsError> {
    let missing = || RecordsError::NoColumns { path: path.to_string() };
    let header = path.find(&document.json).map_err(unreadable)?.ok_or_else(missing)?;
    let mut names = Vec::new();
    for name in elements(header).map_err(unreadable)?.ok_or_else(missing)? {
        // Some sources say more of a column than its name.
        let name = match name.get().as_bytes().first() {
            Some(b'{') => member(name, "name")?.ok_or_else(missing)?,
            _ => name,
        };
        let text: String = serde_json::from_str(name.get()).map_err(|_| missing())?;
        let mut json = String::new();
        push_text(&mut json, &text);
        names.push(json);
    }
    let mut list = ListText::new(rows.get().len());
    for row in elements(rows).map_err(unreadable)?.unwrap_or_default() {
        if ptr::eq(row, header) {
            continue;
        }
        let added = match elements(row).map_err(unreadable)? {
            Some(values) if values.len() <= names.len() => list.row(|text| {
                text.push('{');
                // Sources leave out empty cells at the end of a row.
                let values = values.iter().map(|value| value.get()).chain(std::iter::repeat("null"));
                for (position, (name, value)) in names.iter().zip(values).enumerate() {
                    if position > 0 {
                        text.push(',');
                    }
                    text.push_str(name);
                    text.push(':');
                    text.push_str(value);
                }
                text.push('}');
            }),
            Some(values) => {
                let reason = format!("it has {} values, and there are {} columns", values.len(), names.len());
                list.broken_row(row.get(), reason)
            }
            None => list.broken_row(row.get(), "it is no list of values".to_owned()),
        };
        added.map_err(unreadable)?;
    }
    Ok(list)
}

fn member<'a>(map: &'a RawValue, wanted: &str) -> Result<Option<&'a RawValue>, RecordsError> {
    Ok(members(map)?.into_iter().rfind(|(name, _)| name == wanted).map(|(_, value)| value))
}

fn members(map: &RawValue) -> Result<Vec<(String, &RawValue)>, RecordsError> {
    struct Members;

    impl<'de> Visitor<'de> for Members {
        type Value = Vec<(String, &'de RawValue)>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some(member) = map.next_entry()? {
                if members.len() == MOST_ELEMENTS {
                    return Err(too_many());
                }
                members.push(member);
            }
            Ok(members)
        }
    }

    serde_json::Deserializer::from_str(map.get()).deserialize_map(Members).map_err(unreadable)
}
