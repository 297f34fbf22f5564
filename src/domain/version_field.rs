//! Where a record's version stands: one place, or several of which the first that holds something wins
//! (`[updated_at, created_at]`).

use std::{fmt, str::FromStr};

use serde_json::Value;

use super::json_path::{JsonPath, JsonPathError};

/// What a record without a version is, in a stream whose records should have one.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum OnMissingVersion {
    /// A record like any other, whose changes are told by content.
    #[default]
    Include,
    /// A reason to fail the run.
    Fail,
    /// Nothing: it is counted and left out.
    Skip,
}

/// The places of a version, in the order in which they are asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionField(Vec<JsonPath>);

impl VersionField {
    /// The places in their order.
    pub const fn new(paths: Vec<JsonPath>) -> Self {
        Self(paths)
    }

    /// The places in their order.
    pub fn paths(&self) -> &[JsonPath] {
        &self.0
    }

    /// The first value that holds something. Null, the empty text and dates of zeros hold nothing, as
    /// [`super::version::VersionFormat::read`] reads them.
    pub fn find_in<'a>(&self, record: &'a Value) -> Option<&'a Value> {
        self.0.iter().filter_map(|path| path.find_in(record)).find(|value| Self::holds(value))
    }

    /// Whether a value holds something.
    pub fn holds(value: &Value) -> bool {
        match value {
            Value::Null => false,
            Value::String(text) => {
                let text = text.trim();
                !text.is_empty() && !text.starts_with("0000-00-00")
            }
            _ => true,
        }
    }
}

impl FromStr for VersionField {
    type Err = JsonPathError;

    /// Reads one place.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(vec![text.parse()?]))
    }
}

impl fmt::Display for VersionField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&paths.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_place_that_holds_something_wins() {
        let paths = ["updated_at", "$.meta.created"].map(|path| path.parse().unwrap());
        let field = VersionField::new(paths.to_vec());
        let cases = [
            (json!({"updated_at": "b", "meta": {"created": "a"}}), Some(json!("b"))),
            (json!({"updated_at": null, "meta": {"created": "a"}}), Some(json!("a"))),
            (json!({"updated_at": " ", "meta": {"created": 0}}), Some(json!(0))),
            (json!({"updated_at": "0000-00-00 00:00:00", "meta": {"created": "a"}}), Some(json!("a"))),
            (json!({"meta": {"created": "a"}}), Some(json!("a"))),
            (json!({"meta": {}}), None),
        ];
        for (record, expected) in cases {
            assert_eq!(field.find_in(&record), expected.as_ref(), "{record}");
        }
        assert_eq!(field.to_string(), "updated_at, $.meta.created");
    }
}
