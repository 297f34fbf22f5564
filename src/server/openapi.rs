//! The OpenAPI document: what the table of operations says, for programs.

use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::operation::{Answered, Operation};
use crate::domain::gate::LONGEST_KEY;

/// The OpenAPI 3.1 document of these operations.
pub(super) fn document(operations: &[Operation], scopes: &[&str], needs_token: bool) -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    let mut generator = settings.into_generator();
    let mut paths: Map<String, Value> = Map::new();
    for operation in operations {
        let described = described(operation, scopes, needs_token, &mut generator);
        let path = paths.entry(operation.path.as_ref()).or_insert_with(|| json!({}));
        if let Some(path) = path.as_object_mut() {
            path.insert(operation.method.as_str().to_lowercase(), described);
        }
    }
    let mut components = Map::from_iter([("schemas".to_owned(), generator.take_definitions(true).into())]);
    if needs_token {
        let scheme = json!({"token": {"type": "http", "scheme": "bearer"}});
        components.insert("securitySchemes".to_owned(), scheme);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "onlynew",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The gate: whether a side effect of a workflow may happen now. Locks: one holder at a time. \
                            Hooks: webhooks that come in, each once.",
        },
        "paths": paths,
        "components": components,
    })
}

fn described(
    operation: &Operation,
    scopes: &[&str],
    needs_token: bool,
    generator: &mut SchemaGenerator,
) -> Value {
    let mut described = Map::new();
    let mut tell = |name: &str, value: Value| described.insert(name.to_owned(), value);
    tell("operationId", operation.id.as_ref().into());
    tell("summary", operation.summary.into());
    tell("parameters", parameters(&operation.path, scopes).into());
    if let Some(body) = operation.body {
        let content = json!({"application/json": {"schema": (body.form)(generator)}});
        tell("requestBody", json!({"required": body.is_required, "content": content}));
    }
    let mut responses: Map<String, Value> = Map::new();
    for answered in &operation.answers {
        let Answered { status, means, body } = answered;
        let content = json!({"application/json": {"schema": body(generator)}});
        responses.insert(status.as_str().to_owned(), json!({"description": means, "content": content}));
    }
    tell("responses", responses.into());
    if needs_token && !operation.may.is_empty() {
        tell("security", json!([{"token": []}]));
    }
    described.into()
}

/// The parameters that stand in a path.
fn parameters(path: &str, scopes: &[&str]) -> Vec<Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    names
        .map(|name| {
            let schema = match name {
                "key" | "name" => json!({
                    "type": "string", "minLength": 1, "maxLength": LONGEST_KEY,
                    "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]+$",
                }),
                _ if scopes.is_empty() => json!({"type": "string", "minLength": 1}),
                _ => json!({"type": "string", "enum": scopes}),
            };
            json!({"name": name, "in": "path", "required": true, "schema": schema})
        })
        .collect()
}
