//! What of a job its stored state rests on. What is not named here can be edited at any time: the schedule, the
//! window, the destination, credentials, limits, headers and query, and which changes count and are sent.

use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::{
    job::Job,
    stream::{Incremental, RecordFormat, Records, Shape},
    template::Expression,
};
use crate::domain::{identity::Identity, json_path::JsonPath};

impl Job {
    /// The identity of its state. It is made of texts as they were written, and not of how this release holds them.
    pub fn identity(&self) -> Identity {
        let stream = &self.stream;
        let inputs = self.inputs.iter().map(|(name, value)| (format!("with.{name}"), value.clone()));
        let own = [
            ("request.base_url", stream.base_url.text().into()),
            ("request.path", stream.path.text().into()),
            ("primary_key", paths(&stream.primary_key)),
            ("key_type", json!(stream.key_type)),
            ("changes.ignore_fields", self.ignored_fields()),
        ];
        let parts = own.into_iter().chain(of_records(&stream.records));
        let parts = parts.chain(stream.incremental.iter().flat_map(of_versions));
        Identity::of(parts.map(|(name, value)| (name.to_owned(), value)).chain(inputs))
    }

    /// What the content hash leaves out beside the key and the version, in no order.
    fn ignored_fields(&self) -> Value {
        let versions = self.stream.incremental.iter().flat_map(|incremental| incremental.field.paths());
        let left_out: Vec<Value> =
            self.stream.primary_key.iter().chain(versions).map(JsonPath::steps).collect();
        let mut ignored: Vec<String> = self
            .ignored
            .iter()
            .map(JsonPath::steps)
            .filter(|path| !left_out.contains(path))
            .map(|path| path.to_string())
            .collect();
        ignored.sort_unstable();
        ignored.dedup();
        ignored.into()
    }
}

fn of_records(records: &Records) -> [(&'static str, Value); 5] {
    let format = match records.format {
        RecordFormat::Csv { delimiter } => json!(["CSV", delimiter]),
        other => json!(other.name()),
    };
    let (entries, columns) = match &records.shape {
        Shape::List => (Value::Null, Value::Null),
        Shape::Entries { key_as } => (json!(key_as), Value::Null),
        Shape::Columns(names) => (Value::Null, names.steps()),
    };
    [
        ("records.path", records.path.steps()),
        ("records.format", format),
        ("records.entries", entries),
        ("records.columns", columns),
        ("records.filter", records.filter.as_ref().map(Expression::text).into()),
    ]
}

fn of_versions(incremental: &Incremental) -> [(&'static str, Value); 3] {
    [
        ("incremental.field", paths(incremental.field.paths())),
        ("incremental.format", incremental.format.name().into()),
        ("incremental.timezone", incremental.timezone.as_ref().map(zone_name).into()),
    ]
}

fn paths(paths: &[JsonPath]) -> Value {
    paths.iter().map(JsonPath::steps).collect()
}

/// The name of a zone; one that is no more than an offset is told by that.
fn zone_name(zone: &TimeZone) -> String {
    let offset = || zone.to_fixed_offset().map(|offset| offset.to_string()).unwrap_or_default();
    zone.iana_name().map_or_else(offset, str::to_owned)
}
