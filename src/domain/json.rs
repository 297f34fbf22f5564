//! The JSON of a source as a value in which every object is an object and numbers keep their digits.
//!
//! `serde_json`'s own reader takes an object whose first member is called `$serde_json::private::RawValue` for
//! a text that holds JSON, and reads that from its beginning, as deep as a whole document may be. A small
//! body can nest such texts until the stack ends, and with it the process.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};

/// The one member of the map as which `serde_json` hands over a number with all its digits.
const NUMBER: &str = "$serde_json::private::Number";

/// Reads a JSON text.
pub fn parse(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(text).map(|Plain(value)| value)
}

/// A member's name, borrowed from the text where it has no escapes.
pub(super) struct Name<'a>(pub(super) Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameVisitor;
        impl<'de> Visitor<'de> for NameVisitor {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Borrowed(name)))
            }

            fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Owned(name.to_owned())))
            }
        }
        deserializer.deserialize_str(NameVisitor)
    }
}

struct Plain(Value);

impl<'de> Deserialize<'de> for Plain {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PlainVisitor).map(Self)
    }
}

struct PlainVisitor;

impl<'de> Visitor<'de> for PlainVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Bool(flag))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::from(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(Plain(element)) = seq.next_element()? {
            elements.push(element);
        }
        Ok(Value::Array(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(Name(name)) = map.next_key()? {
            if name == NUMBER && members.is_empty() {
                let digits: String = map.next_value()?;
                return digits.parse::<Number>().map(Value::Number).map_err(A::Error::custom);
            }
            let Plain(member) = map.next_value()?;
            members.insert(name.into_owned(), member);
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_what_serde_json_reads() {
        for text in [
            "null",
            r#"[true,false,"a\u00e9\n",[],{}]"#,
            r#"{"a":{"b":[1,-0,1.10,1e400,9007199254740993,123456789012345678901234567890]},"a":2}"#,
            r#"{"\u0061":1,"a":2}"#,
        ] {
            let value = parse(text).unwrap();
            assert_eq!(value, serde_json::from_str::<Value>(text).unwrap(), "{text}");
            assert_eq!(value.to_string(), serde_json::from_str::<Value>(text).unwrap().to_string(), "{text}");
        }
        for text in
            ["", "{", "1 2", r#"{"a":1,}"#, &"[".repeat(200_000), r#"{"$serde_json::private::Number":"x"}"#]
        {
            assert!(parse(text).is_err());
        }
    }

    #[test]
    fn texts_of_json_within_json_stay_texts_and_cannot_end_the_stack() {
        let mut text = "1".to_owned();
        for _ in 0..40 {
            let inner = text.replace('\\', "\\u005c").replace('"', "\\u0022");
            let name = "$serde_json::private::RawValue";
            text = format!(r#"{}{{"{name}":"{inner}"}}{}"#, "[".repeat(120), "]".repeat(120));
        }
        assert!(text.len() < 100_000);
        let mut here = &parse(&text).unwrap();
        while let Value::Array(elements) = here {
            here = &elements[0];
        }
        assert!(here["$serde_json::private::RawValue"].is_string());
    }
}
