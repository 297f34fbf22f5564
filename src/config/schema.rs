//! The JSON Schemas of jobs.yaml and of connector files, derived from the types that read them. Editors
//! complete and check by them, and so does `check`.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::{connector_file::ConnectorFile, file::JobsFile};

/// The schema of jobs.yaml.
pub(super) static JOBS: LazyLock<Value> = LazyLock::new(|| schema::<JobsFile>("onlynew jobs.yaml"));

/// The schema of connectors/NAME.yaml.
pub(super) static CONNECTOR: LazyLock<Value> = LazyLock::new(|| schema::<ConnectorFile>("onlynew connector"));

/// The JSON Schema of jobs.yaml, as the file `jobs.schema.json` holds it.
pub fn json_schema() -> String {
    pretty(&JOBS)
}

/// The JSON Schema of connectors/NAME.yaml, as the file `connector.schema.json` holds it.
pub fn connector_json_schema() -> String {
    pretty(&CONNECTOR)
}

fn schema<T: schemars::JsonSchema>(title: &str) -> Value {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>();
    schema.insert("title".to_owned(), Value::from(title));
    schema.to_value()
}

fn pretty(schema: &Value) -> String {
    format!("{schema:#}\n")
}
