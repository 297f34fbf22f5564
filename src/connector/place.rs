//! A place in an answer, read: a member of the body or a header.

use reqwest::header::HeaderMap;
use serde_json::{Value, value::RawValue};

use crate::{config::stream::Place, domain::json};

/// Why a place cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{path}` cannot be read: {reason}")]
pub struct PlaceError {
    path: String,
    reason: String,
}

/// What stands at a place; a header's value is a text. Null and missing are `None`.
pub fn find(place: &Place, body: &RawValue, headers: &HeaderMap) -> Result<Option<Value>, PlaceError> {
    match place {
        Place::Header(name) => Ok(header(headers, name).map(Value::from)),
        Place::Body(path) => {
            let unreadable =
                |error: serde_json::Error| PlaceError { path: path.to_string(), reason: error.to_string() };
            let Some(raw) = path.find(body).map_err(unreadable)? else { return Ok(None) };
            let value = json::parse(raw.get()).map_err(unreadable)?;
            Ok((!value.is_null()).then_some(value))
        }
    }
}

/// A header's value as text; several are joined as HTTP joins them.
pub fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    let values: Vec<_> =
        headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
    (!values.is_empty()).then(|| values.join(", "))
}

/// Truth as APIs spell it.
pub fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !matches!(text.trim().to_ascii_lowercase().as_str(), "" | "false" | "0"),
        Value::Array(elements) => !elements.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}

/// A number of rows or pages, also one that is written as a text.
pub fn whole_number(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}
