//! How the rows of a page are told apart while its listing is walked: read from the raw text, before any
//! filter, whether or not a record can be made of them.

use serde_json::{Value, value::RawValue};

use crate::{
    config::stream::Stream,
    domain::{
        content::{Hash, content_hash},
        json,
        json_path::JsonPath,
        key::RecordKey,
        version_field::VersionField,
        walk::Mark,
    },
};

/// The marks of a page's rows. `ignored` is left out of the content of rows without a version.
pub fn of(rows: &[&RawValue], stream: &Stream, ignored: &[JsonPath]) -> Vec<Mark> {
    rows.iter().map(|row| mark(row, stream, ignored)).collect()
}

fn mark(row: &RawValue, stream: &Stream, ignored: &[JsonPath]) -> Mark {
    let text = Hash::of(row.get().as_bytes());
    let Some(key) = key(row, stream) else { return Mark::of_text(text) };
    let version = stream.incremental.as_ref().and_then(|incremental| {
        let mut values = incremental.field.paths().iter().filter_map(|path| at(path, row));
        let value = values.find(VersionField::holds)?;
        incremental.format.read(&value, incremental.timezone.as_ref()).ok().flatten()
    });
    let content = || json::parse(row.get()).map_or(text, |record| content_hash(&record, ignored));
    Mark::new(key.as_str(), version, content, text)
}

fn key(row: &RawValue, stream: &Stream) -> Option<RecordKey> {
    let parts: Vec<Value> =
        stream.primary_key.iter().map(|path| at(path, row)).collect::<Option<Vec<Value>>>()?;
    RecordKey::from_parts(parts.iter().map(|part| ("", Some(part))), stream.key_type).ok()
}

fn at(path: &JsonPath, row: &RawValue) -> Option<Value> {
    json::parse(path.find(row).ok()??.get()).ok()
}
