//! Singular JSON paths (`$.data.items`, `object.id`, `$['a b'][0]`), read from raw JSON text.
//!
//! A path works on the text and not on a parsed tree, so that one record with a broken escape spoils
//! only itself, numbers keep their digits, and a page is not built in memory twice.

use std::{fmt, str::FromStr};

use serde::{
    Deserializer,
    de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Value, value::RawValue};

use super::json::Name;

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Member(String),
    Index(usize),
}

/// A path that names at most one place: members and indexes only, as RFC 9535 calls a singular query.
/// The leading `$` may be left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPath {
    steps: Vec<Step>,
    text: String,
}

/// Why a text is no singular path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a path to one place: {reason} (expected something like $.data.items)")]
pub struct JsonPathError {
    text: String,
    reason: &'static str,
}

impl JsonPath {
    /// Its steps as JSON: the same for every spelling of the path.
    pub fn steps(&self) -> Value {
        let steps = self.steps.iter().map(|step| match step {
            Step::Member(name) => Value::from(name.as_str()),
            Step::Index(index) => Value::from(*index),
        });
        steps.collect()
    }

    /// The place this path names in `json`, or `None` where a step of it is missing.
    /// Fails only where the text up to that place is not JSON.
    pub fn find<'a>(&self, json: &'a RawValue) -> Result<Option<&'a RawValue>, serde_json::Error> {
        let mut here = json;
        for step in &self.steps {
            let next = match (step, here.get().as_bytes().first()) {
                (Step::Member(name), Some(b'{')) => Member(name).pick(here)?,
                (Step::Index(index), Some(b'[')) => Element(*index).pick(here)?,
                _ => None,
            };
            match next {
                Some(value) => here = value,
                None => return Ok(None),
            }
        }
        Ok(Some(here))
    }

    /// The place around the one that this path names. `None` where it is missing, and where the path names
    /// the whole or a part of the whole: around that there is nothing to be missing.
    pub fn find_parent<'a>(&self, json: &'a RawValue) -> Result<Option<&'a RawValue>, serde_json::Error> {
        match self.steps.split_last() {
            Some((_, parent)) if !parent.is_empty() => {
                Self { steps: parent.to_vec(), text: self.text.clone() }.find(json)
            }
            _ => Ok(None),
        }
    }

    /// The place this path names in a parsed value.
    pub fn find_in<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        self.steps.iter().try_fold(value, |here, step| match step {
            Step::Member(name) => here.get(name),
            Step::Index(index) => here.get(index),
        })
    }

    /// Removes the place this path names from a parsed value, if it is there.
    pub fn remove_from(&self, value: &mut Value) {
        let Some((last, before)) = self.steps.split_last() else { return };
        let parent = before.iter().try_fold(value, |here, step| match step {
            Step::Member(name) => here.get_mut(name),
            Step::Index(index) => here.get_mut(index),
        });
        match (parent, last) {
            (Some(Value::Object(members)), Step::Member(name)) => drop(members.remove(name)),
            (Some(Value::Array(elements)), Step::Index(index)) if *index < elements.len() => {
                drop(elements.remove(*index));
            }
            _ => {}
        }
    }
}

impl fmt::Display for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for JsonPath {
    type Err = JsonPathError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = |reason| JsonPathError { text: text.to_owned(), reason };
        let mut steps = Vec::new();
        let trimmed = text.trim();
        let mut rest = match trimmed.strip_prefix('$') {
            Some(rest) => rest,
            None if trimmed.is_empty() => return Err(fail("it is empty")),
            None => {
                let (name, rest) = bare_name(trimmed);
                if name.is_empty() {
                    return Err(fail("it starts with neither `$` nor a name"));
                }
                steps.push(Step::Member(name.to_owned()));
                rest
            }
        };
        while !rest.is_empty() {
            rest = if let Some(tail) = rest.strip_prefix('.') {
                let (name, tail) = bare_name(tail);
                match name {
                    "" if tail.starts_with('.') => return Err(fail("`..` names many places")),
                    "" => return Err(fail("a name is missing after `.`")),
                    "*" => return Err(fail("`*` names many places")),
                    name => steps.push(Step::Member(name.to_owned())),
                }
                tail
            } else if let Some(tail) = rest.strip_prefix('[') {
                let (step, tail) = bracket(tail).ok_or_else(|| fail("expected ['name'] or [0]"))?;
                steps.push(step);
                tail
            } else {
                return Err(fail("expected `.name` or `[...]`"));
            };
        }
        Ok(Self { steps, text: trimmed.to_owned() })
    }
}

fn bare_name(text: &str) -> (&str, &str) {
    text.split_at(text.find(['.', '[', ']']).unwrap_or(text.len()))
}

fn bracket(text: &str) -> Option<(Step, &str)> {
    if let Some(quote) = text.chars().next().filter(|c| matches!(c, '\'' | '"')) {
        let (name, rest) = text.get(1..)?.split_once(quote)?;
        return Some((Step::Member(name.to_owned()), rest.strip_prefix(']')?));
    }
    let (digits, rest) = text.split_once(']')?;
    Some((Step::Index(digits.parse().ok()?), rest))
}

/// How many elements an array may have: rows of two bytes would need fifty times as much memory.
pub const MOST_ELEMENTS: usize = 1_000_000;

/// Splits a JSON array into the texts of its elements. `None` where the text is not an array.
pub fn elements(json: &RawValue) -> Result<Option<Vec<&RawValue>>, serde_json::Error> {
    match json.get().as_bytes().first() {
        Some(b'[') => serde_json::Deserializer::from_str(json.get()).deserialize_seq(Elements).map(Some),
        _ => Ok(None),
    }
}

struct Elements;

impl<'de> Visitor<'de> for Elements {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = seq.next_element()? {
            if elements.len() == MOST_ELEMENTS {
                return Err(too_many());
            }
            elements.push(element);
        }
        Ok(elements)
    }
}

/// What is said of a list with more than [`MOST_ELEMENTS`].
pub fn too_many<E: Error>() -> E {
    E::custom(format_args!("more than {MOST_ELEMENTS} records: ask for smaller pages"))
}

/// Picks one member of an object; the last one where a name is repeated, as JSON readers do.
struct Member<'p>(&'p str);

/// Picks one element of an array.
struct Element(usize);

trait Pick<'de>: Visitor<'de, Value = Option<&'de RawValue>> + Sized {
    fn pick(self, json: &'de RawValue) -> Result<Option<&'de RawValue>, serde_json::Error> {
        serde_json::Deserializer::from_str(json.get()).deserialize_any(self)
    }
}

impl Pick<'_> for Member<'_> {}
impl Pick<'_> for Element {}

impl<'de> Visitor<'de> for Member<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(Name(name)) = map.next_key()? {
            if name == self.0 {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

impl<'de> Visitor<'de> for Element {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        let mut index = 0;
        while let Some(element) = seq.next_element::<&RawValue>()? {
            if index == self.0 {
                found = Some(element);
            }
            index += 1;
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(path: &str, json: &str) -> Option<String> {
        let raw: &RawValue = serde_json::from_str(json).unwrap();
        let path: JsonPath = path.parse().unwrap();
        let found = path.find(raw).unwrap().map(|found| found.get().to_owned());
        let parsed: Value = serde_json::from_str(json).unwrap();
        assert_eq!(found.is_some(), path.find_in(&parsed).is_some(), "both readings agree");
        found
    }

    #[test]
    fn a_path_names_one_place_in_the_text() {
        let json = r#"{"data":{"items":[{"id":9007199254740993},{"id":1.10}],"a b":null,"a":1,"a":2}}"#;
        let cases = [
            ("$.data.items[0].id", Some("9007199254740993")),
            ("data.items[1].id", Some("1.10")),
            ("$['data'][\"a b\"]", Some("null")),
            ("$.data.a", Some("2")),
            ("$.data.items[2]", None),
            ("$.data.items.id", None),
            ("$.nothing", None),
            ("$.data.a.b", None),
        ];
        for (path, expected) in cases {
            assert_eq!(find(path, json).as_deref(), expected, "{path}");
        }
        assert_eq!(find("$", "[1]").as_deref(), Some("[1]"));
        assert_eq!(find("$[0]", "[1]").as_deref(), Some("1"));
    }

    #[test]
    fn a_path_knows_what_stands_around_its_place() {
        let raw: &RawValue = serde_json::from_str(r#"{"a":{"b":""},"c":null}"#).unwrap();
        let cases = [
            ("$.a.b.x", Some("\"\"")),
            ("$.a.x", Some(r#"{"b":""}"#)),
            ("$.x.y", None),
            ("$.a", None),
            ("$", None),
        ];
        for (path, expected) in cases {
            let found = path.parse::<JsonPath>().unwrap().find_parent(raw).unwrap();
            assert_eq!(found.map(RawValue::get), expected, "{path}");
        }
    }

    #[test]
    fn a_record_with_a_lone_surrogate_spoils_only_itself() {
        let raw: &RawValue = serde_json::from_str(r#"{"d":[{"id":"\ud800"},{"id":"b"}]}"#).unwrap();
        let list = "$.d".parse::<JsonPath>().unwrap().find(raw).unwrap().unwrap();
        let records = elements(list).unwrap().unwrap();
        assert_eq!(records.len(), 2);
        assert!(serde_json::from_str::<Value>(records[0].get()).is_err());
        assert!(serde_json::from_str::<Value>(records[1].get()).is_ok());
    }

    #[test]
    fn paths_to_many_places_are_refused() {
        for path in ["", "$..a", "$.*", "$[*]", "$.a[", "$.a[-1]", "$.a['b'", "$a", "$.", ".a", "$[?@.a]"] {
            assert!(path.parse::<JsonPath>().is_err(), "{path:?}");
        }
    }

    #[test]
    fn a_place_is_removed_from_a_value() {
        let mut value: Value = serde_json::from_str(r#"{"a":{"b":1,"c":[1,2]}}"#).unwrap();
        for path in ["a.b", "$.a.c[0]", "$.x.y", "$"] {
            path.parse::<JsonPath>().unwrap().remove_from(&mut value);
        }
        assert_eq!(value.to_string(), r#"{"a":{"c":[2]}}"#);
    }

    #[test]
    fn an_array_of_millions_of_tiny_elements_is_refused() {
        let list = |count: usize| RawValue::from_string(format!("[{}1]", "1,".repeat(count - 1))).unwrap();
        assert_eq!(elements(&list(MOST_ELEMENTS)).unwrap().unwrap().len(), MOST_ELEMENTS);
        assert!(elements(&list(MOST_ELEMENTS + 1)).unwrap_err().to_string().contains("smaller pages"));
    }
}
