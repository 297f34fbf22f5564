//! The record key: the primary key's parts as one canonical text, made from the JSON tokens themselves so
//! that ids beyond 2^53 stay apart (field case C23).

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::numbers;

/// The longest key, in bytes: what the indexes of both databases take with room to spare.
const MAX_BYTES: usize = 1_024;

/// Whether `123` and `"123"` are one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyType {
    /// The number 123 and the text "123" are the same key: APIs change their mind about it.
    #[default]
    Loose,
    /// They are two keys.
    Strict,
}

/// The canonical text of a record's primary key.
///
/// One part stands as it is (`17`); several parts stand as a JSON array of texts (`["7","en"]`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKey(String);

/// Why a record has no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// A part is absent, null or the empty text.
    #[error("the primary key's part `{0}` is missing, null or empty")]
    Missing(String),
    /// A part is a list or an object.
    #[error("the primary key's part `{0}` is not a text, number or boolean")]
    NotScalar(String),
    /// The whole key is longer than a database index takes.
    #[error("the primary key is longer than {MAX_BYTES} bytes")]
    TooLong,
    /// A part holds the character NUL, which no database keeps in a text.
    #[error("the primary key's part `{0}` holds a NUL character")]
    Nul(String),
}

impl RecordKey {
    /// Makes the key from its parts, each a name (for the error) and the value found under it.
    pub fn from_parts<'a>(
        parts: impl IntoIterator<Item = (&'a str, Option<&'a Value>)>,
        key_type: KeyType,
    ) -> Result<Self, KeyError> {
        let mut texts = parts
            .into_iter()
            .map(|(name, value)| part_text(name, value, key_type))
            .collect::<Result<Vec<_>, _>>()?;
        let key = match texts.len() {
            1 => texts.swap_remove(0),
            _ => Value::from(texts).to_string(),
        };
        if key.len() > MAX_BYTES {
            return Err(KeyError::TooLong);
        }
        Ok(Self(key))
    }

    /// A key as the store holds it.
    pub fn from_stored(text: String) -> Self {
        Self(text)
    }

    /// The keys of `parts` parts that a person may mean by `text`, the likeliest first: the key as it is shown, the
    /// list of its parts in JSON or with commas between them, and a single part in quotes or without.
    pub fn typed(text: &str, parts: usize) -> Vec<Self> {
        let text = text.trim();
        let mut meant = vec![text.to_owned()];
        let of_values = |values: &[Value], key_type| {
            Self::from_parts(values.iter().map(|value| ("", Some(value))), key_type).ok().map(|key| key.0)
        };
        match serde_json::from_str(text) {
            Ok(Value::Array(values)) => {
                meant.extend(of_values(&values, KeyType::Loose));
                meant.extend(of_values(&values, KeyType::Strict));
            }
            Ok(value) if parts == 1 => {
                meant.extend(of_values(&[value], KeyType::Loose));
            }
            _ => {}
        }
        if parts > 1 && text.split(',').count() == parts {
            let values: Vec<_> = text.split(',').map(|part| Value::from(part.trim())).collect();
            meant.extend(of_values(&values, KeyType::Loose));
        }
        if parts == 1 {
            meant.extend(of_values(&[Value::from(text)], KeyType::Strict));
        }
        let mut keys: Vec<Self> = Vec::new();
        for key in meant.into_iter().map(Self) {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }

    /// The canonical text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn part_text(name: &str, value: Option<&Value>, key_type: KeyType) -> Result<String, KeyError> {
    match value {
        None | Some(Value::Null) => Err(KeyError::Missing(name.to_owned())),
        Some(Value::String(text)) if text.is_empty() => Err(KeyError::Missing(name.to_owned())),
        Some(Value::String(text)) if text.contains('\0') => Err(KeyError::Nul(name.to_owned())),
        Some(Value::String(text)) => Ok(match key_type {
            KeyType::Loose => text.clone(),
            KeyType::Strict => Value::from(text.as_str()).to_string(),
        }),
        Some(Value::Number(number)) => Ok(numbers::canonical(&number.to_string())),
        Some(Value::Bool(flag)) => Ok(flag.to_string()),
        Some(Value::Array(_) | Value::Object(_)) => Err(KeyError::NotScalar(name.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(json: &str, parts: &[&str], key_type: KeyType) -> Result<String, KeyError> {
        let value: Value = serde_json::from_str(json).unwrap();
        RecordKey::from_parts(parts.iter().map(|part| (*part, value.get(part))), key_type).map(|key| key.0)
    }

    #[test]
    fn a_key_is_meant_by_what_a_person_types_for_it() {
        let cases = [
            ("17", 1, "17"),
            (" 17 ", 1, "17"),
            ("17.0", 1, "17"),
            ("abc", 1, "abc"),
            ("abc", 1, r#""abc""#),
            (r#""abc""#, 1, "abc"),
            (r#"["7","en"]"#, 2, r#"["7","en"]"#),
            (r#"[7, "en"]"#, 2, r#"["7","en"]"#),
            ("7,en", 2, r#"["7","en"]"#),
            ("7, en", 2, r#"["7","en"]"#),
            ("7,en", 1, "7,en"),
        ];
        for (text, parts, key) in cases {
            let meant = RecordKey::typed(text, parts);
            assert!(meant.iter().any(|meant| meant.as_str() == key), "{text}: {meant:?}");
        }
        assert_eq!(RecordKey::typed("7,en", 1)[0].as_str(), "7,en", "as it is shown comes first");
        assert_eq!(RecordKey::typed("17", 1).len(), 2, "as a number, and as a text of strict keys");
    }

    #[test]
    fn c23_keys_are_the_text_of_their_tokens() {
        let cases = [
            (r#"{"id":9007199254740992}"#, "9007199254740992"),
            (r#"{"id":9007199254740993}"#, "9007199254740993"),
            (r#"{"id":18446744073709551616}"#, "18446744073709551616"),
            (r#"{"id":123}"#, "123"),
            (r#"{"id":"123"}"#, "123"),
            (r#"{"id":"007"}"#, "007"),
            (r#"{"id":7.0}"#, "7"),
            (r#"{"id":"žaba"}"#, "žaba"),
            (r#"{"id":true}"#, "true"),
        ];
        for (json, expected) in cases {
            assert_eq!(key(json, &["id"], KeyType::Loose).as_deref(), Ok(expected), "{json}");
        }
    }

    #[test]
    fn strict_keys_tell_texts_from_numbers() {
        assert_eq!(key(r#"{"id":123}"#, &["id"], KeyType::Strict).as_deref(), Ok("123"));
        assert_eq!(key(r#"{"id":"123"}"#, &["id"], KeyType::Strict).as_deref(), Ok("\"123\""));
    }

    #[test]
    fn composite_keys_cannot_run_into_one_another() {
        let one = key(r#"{"a":"x\",\"y","b":"z"}"#, &["a", "b"], KeyType::Loose).unwrap();
        let other = key(r#"{"a":"x","b":"y\",\"z"}"#, &["a", "b"], KeyType::Loose).unwrap();
        assert_ne!(one, other);
        assert_eq!(key(r#"{"a":7,"b":"en"}"#, &["a", "b"], KeyType::Loose).as_deref(), Ok(r#"["7","en"]"#));
    }

    #[test]
    fn a_record_without_a_key_says_which_part_is_missing() {
        let missing = |part: &str| Err(KeyError::Missing(part.to_owned()));
        assert_eq!(key(r#"{"a":1}"#, &["a", "b"], KeyType::Loose), missing("b"));
        assert_eq!(key(r#"{"a":null}"#, &["a"], KeyType::Loose), missing("a"));
        assert_eq!(key(r#"{"a":""}"#, &["a"], KeyType::Loose), missing("a"));
        let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(MAX_BYTES + 1));
        assert_eq!(key(&long, &["a"], KeyType::Loose), Err(KeyError::TooLong));
        let nul = Err(KeyError::Nul("a".to_owned()));
        assert_eq!(key(r#"{"a":"x\u0000"}"#, &["a"], KeyType::Loose), nul);
        assert_eq!(key(r#"{"a":[1]}"#, &["a"], KeyType::Loose), Err(KeyError::NotScalar("a".to_owned())));
    }
}
