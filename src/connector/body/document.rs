//! A body's text as one JSON document, whatever format it came in, so that paths, rules and pagination read
//! all formats alike. A line that cannot be read stands in the document as its text and spoils only itself.

use std::collections::BTreeMap;

use serde_json::{Value, value::RawValue};

use super::{csv, ndjson, xml};
use crate::config::stream::RecordFormat;

/// The largest document that may be made of a body, in bytes. A header row is repeated in every record, so
/// that a small body can be a large document.
pub const LARGEST: usize = 256 << 20;

/// How many records of a body may be broken before it is not worth reading.
const MOST_BROKEN: usize = 100_000;

/// The rows of a list that cannot be read, by their position, with the reason.
#[derive(Debug, Default)]
pub struct Broken(BTreeMap<usize, String>);

impl Broken {
    /// Why the row at a position cannot be read.
    pub fn reason(&self, position: usize) -> Option<&str> {
        self.0.get(&position).map(String::as_str)
    }

    /// Marks a row.
    pub fn mark(&mut self, position: usize, reason: String) -> Result<(), DocumentError> {
        if self.0.len() >= MOST_BROKEN {
            return Err(DocumentError::TooBroken(reason));
        }
        self.0.insert(position, reason);
        Ok(())
    }

    /// How many rows are marked.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// A body, read.
#[derive(Debug)]
pub struct Document {
    /// The document. A broken row stands in it as a text.
    pub json: Box<RawValue>,
    /// The rows that cannot be read, where the format has rows.
    pub broken: Broken,
    /// The names of a table's columns, as the members of an object.
    pub columns: Option<Value>,
}

/// Why a body is no document.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// It has another format.
    #[error("it is not JSON ({0})")]
    Json(#[from] serde_json::Error),
    /// No line of it can be read.
    #[error("it is not NDJSON (no line of it is JSON)")]
    Ndjson,
    /// It is no table.
    #[error("it is not CSV ({0})")]
    Csv(String),
    /// It is no XML.
    #[error("it is not XML ({0})")]
    Xml(String),
    /// It says by itself that it is something else.
    #[error("it is JSON, where {0} should be")]
    Other(&'static str),
    /// Too much of it is broken.
    #[error("more than {MOST_BROKEN} of its records cannot be read ({0})")]
    TooBroken(String),
    /// It would need too much memory.
    #[error("its records would be larger than {LARGEST} bytes: ask for smaller pages")]
    TooLarge,
}

/// Reads a body's text.
pub fn read(text: String, format: RecordFormat) -> Result<Document, DocumentError> {
    match format {
        RecordFormat::Json => {
            Ok(Document { json: RawValue::from_string(text)?, broken: Broken::default(), columns: None })
        }
        RecordFormat::Ndjson => ndjson::read(&text),
        RecordFormat::Csv { delimiter } => csv::read(&text, delimiter),
        RecordFormat::Xml => xml::read(&text),
    }
}

/// A JSON list that grows row by row and knows when it is too large.
#[derive(Debug)]
pub struct ListText {
    text: String,
    rows: usize,
    broken: Broken,
}

impl ListText {
    /// A list without rows; `capacity` is how long it is expected to become, in bytes.
    pub fn new(capacity: usize) -> Self {
        let mut text = String::with_capacity(capacity.min(LARGEST));
        text.push('[');
        Self { text, rows: 0, broken: Broken::default() }
    }

    /// How many rows it has.
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// How many of them are broken.
    pub fn broken(&self) -> usize {
        self.broken.len()
    }

    /// Adds a row, which `write` writes at the end of the text. It must be JSON.
    pub fn row(&mut self, write: impl FnOnce(&mut String)) -> Result<(), DocumentError> {
        if self.rows > 0 {
            self.text.push(',');
        }
        write(&mut self.text);
        self.rows += 1;
        if self.text.len() > LARGEST { Err(DocumentError::TooLarge) } else { Ok(()) }
    }

    /// Adds a row that cannot be read, as its text.
    pub fn broken_row(&mut self, raw: &str, reason: String) -> Result<(), DocumentError> {
        self.broken.mark(self.rows, reason)?;
        self.row(|text| push_text(text, raw))
    }

    /// The whole list.
    pub fn finish(mut self) -> Result<Document, DocumentError> {
        self.text.push(']');
        Ok(Document { json: RawValue::from_string(self.text)?, broken: self.broken, columns: None })
    }
}

/// Writes a text as JSON.
pub fn push_text(json: &mut String, text: &str) {
    // A text always has a JSON form.
    json.push_str(&serde_json::to_string(text).unwrap_or_default());
}
