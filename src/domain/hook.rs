//! What tells one webhook from another: a key of what it says, never one that is made up.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::{
    content::Hash,
    gate::{GateKey, NoKey},
    instant::micros_of,
    json_path::JsonPath,
    key::RecordKey,
    numbers,
    version::{Version, VersionFormat},
};

/// What becomes of a webhook without a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnMissingKey {
    /// It is kept for a person.
    #[default]
    Quarantine,
    /// It is refused, and its provider is told.
    Reject,
}

/// A part of a key that is hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyField {
    /// What stands there.
    Plain(JsonPath),
    /// The moment that stands there, rounded down.
    Time(JsonPath, Duration),
}

/// Why a webhook has no key, for a person.
pub type NoHookKey = String;

/// A key as an expression gave it.
pub fn key_of_value(value: &Value) -> Result<RecordKey, NoHookKey> {
    let text = scalar(value).ok_or_else(|| match value {
        Value::Null => "`key` gives nothing".to_owned(),
        _ => "`key` gives a list or an object".to_owned(),
    })?;
    checked(text)
}

/// A key of several texts: all of them have to be there.
fn checked(text: String) -> Result<RecordKey, NoHookKey> {
    match GateKey::parse(&text) {
        Ok(_) => Ok(RecordKey::from_stored(text)),
        Err(NoKey::Missing(_)) => Err(format!("`key` gives `{text}`, which stands for nothing")),
        Err(error) => Err(error.to_string()),
    }
}

/// A key hashed from parts of the body: `h_` and 32 hexadecimal digits.
pub fn key_of_fields(body: &Value, fields: &[KeyField]) -> Result<RecordKey, NoHookKey> {
    let mut text = String::new();
    for field in fields {
        let (path, part) = match field {
            KeyField::Plain(path) => (path, path.find_in(body).and_then(scalar)),
            KeyField::Time(path, round) => {
                (path, path.find_in(body).and_then(|value| rounded(value, *round)))
            }
        };
        let part = part.filter(|part| !part.trim().is_empty());
        let part = part
            .ok_or_else(|| format!("`key_fields`: there is nothing at `{path}` that a key can be made of"))?;
        text.push_str(&format!("{}:{part};", part.len()));
    }
    Ok(RecordKey::from_stored(format!("h_{}", Hash::of(text.as_bytes()).hex())))
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(number) => Some(numbers::canonical(&number.to_string())),
        Value::String(text) => Some(text.clone()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A moment in microseconds, rounded down.
fn rounded(value: &Value, round: Duration) -> Option<String> {
    let Version(micros) = VersionFormat::default().read(value, None).ok().flatten()?;
    let step = micros_of(round).max(1);
    Some(micros.div_euclid(step).saturating_mul(step).to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_key_is_a_scalar_that_stands_for_something() {
        let big: Value = serde_json::from_str("12345678901234567890123").unwrap();
        for (value, key) in [
            (json!("evt_1"), "evt_1"),
            (json!(17), "17"),
            (big, "12345678901234567890123"),
            (json!(true), "true"),
            (json!("17-paid"), "17-paid"),
        ] {
            assert_eq!(key_of_value(&value).unwrap().as_str(), key);
        }
        for value in [
            json!(null),
            json!(""),
            json!(" "),
            json!("undefined"),
            json!([1]),
            json!({"a": 1}),
            json!("a\nb"),
        ] {
            assert!(key_of_value(&value).is_err(), "{value}");
        }
    }

    #[test]
    fn a_hashed_key_is_of_all_its_parts() {
        let fields = [
            KeyField::Plain("type".parse().unwrap()),
            KeyField::Plain("object.id".parse().unwrap()),
            KeyField::Time("created".parse().unwrap(), Duration::from_secs(10)),
        ];
        let key = |kind: &str, id: Value, created: Value| {
            key_of_fields(&json!({"type": kind, "object": {"id": id}, "created": created}), &fields)
        };
        let one = key("paid", json!(7), json!("2026-11-30T10:00:03Z")).unwrap();
        assert!(one.as_str().starts_with("h_") && one.as_str().len() == 34, "{one:?}");
        assert_eq!(
            one,
            key("paid", json!("7"), json!("2026-11-30T10:00:09.9Z")).unwrap(),
            "one moment, rounded"
        );
        for other in [
            key("paid", json!(7), json!("2026-11-30T10:00:10Z")),
            key("paid", json!(8), json!("2026-11-30T10:00:03Z")),
            key("open", json!(7), json!("2026-11-30T10:00:03Z")),
        ] {
            assert_ne!(one, other.unwrap());
        }
        assert_ne!(key("a", json!("b;1:c"), json!(0)), key("a;1:b", json!("c"), json!(0)));
        let missing = key("paid", json!(null), json!("2026-11-30T10:00:03Z")).unwrap_err();
        assert!(missing.contains("object.id"), "{missing}");
        assert!(key("paid", json!(7), json!("soon")).is_err());
        assert!(key_of_fields(&json!([]), &fields).is_err());
    }
}
