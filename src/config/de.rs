//! Typed values out of the tree: a serde deserializer over nodes, and the wrappers that keep places.
//!
//! The tree was checked against the schema of the same types before, so nothing fails here that a person
//! has not been told already.

use std::{borrow::Cow, fmt, marker::PhantomData, ops::Deref};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{
    Deserialize, Deserializer,
    de::{self, IntoDeserializer, value::StrDeserializer},
    forward_to_deserialize_any,
};

use super::{
    error::Span,
    tree::{Key, Kind, Node, Value},
};

/// The name by which [`Spanned`] asks the deserializer for the place.
const SPANNED: &str = "$onlynew::Spanned";

/// The name by which a value asks for its text, whatever type YAML gives it.
pub(super) const LITERAL: &str = "$onlynew::Literal";

/// Reads a checked node.
pub(super) fn from_node<T: for<'de> Deserialize<'de>>(node: &Node) -> Result<T, Error> {
    T::deserialize(node)
}

/// A value that knows where it stands.
#[derive(Clone, Debug)]
pub(super) struct Spanned<T> {
    pub(super) value: T,
    pub(super) span: Span,
    /// Nothing below was left out as wrong, so what is missing is truly missing.
    pub(super) whole: bool,
    /// The text as the file has it, where variables were filled in.
    pub(super) source: Option<String>,
}

impl<T> Deref for Spanned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl Spanned<String> {
    /// The text for a message: the file's own where variables were filled in.
    pub(super) fn shown(&self) -> &str {
        self.source.as_deref().unwrap_or(&self.value)
    }

    /// The text as the subject of a sentence.
    pub(super) fn quoted(&self) -> String {
        match &self.source {
            Some(source) => format!("what `{source}` stands for"),
            None => format!("`{}`", self.value),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Spanned<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PartsVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> de::Visitor<'de> for PartsVisitor<T> {
            type Value = Spanned<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value with its place")
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
                let missing = || de::Error::custom("a place has five parts");
                let (file, start, end) = parts.next_element()?.ok_or_else(missing)?;
                let whole = parts.next_element()?.ok_or_else(missing)?;
                let source = parts.next_element()?.ok_or_else(missing)?;
                let value = parts.next_element()?.ok_or_else(missing)?;
                Ok(Spanned { value, span: Span { file, start, end }, whole, source })
            }
        }

        deserializer.deserialize_newtype_struct(SPANNED, PartsVisitor(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for Spanned<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// A mapping from names of the user's choice, in the order of the file.
#[derive(Clone, Debug)]
pub(super) struct Entries<T>(pub(super) Vec<(Spanned<String>, T)>);

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Entries<T> {
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Spanned<String>, &T)> {
        self.0.iter().map(|(name, value)| (name, value))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    pub(super) fn get(&self, name: &str) -> Option<&T> {
        self.0.iter().find(|(known, _)| known.as_str() == name).map(|(_, value)| value)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> de::Visitor<'de> for EntriesVisitor<T> {
            type Value = Entries<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(EntriesVisitor(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for Entries<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("MapOf{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        std::collections::BTreeMap::<String, T>::json_schema(generator)
    }
}

/// Why a node is not what a type asks for.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Error(String);

impl de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

/// Reads a scalar's text as a number.
macro_rules! numbers {
    ($($method:ident $visit:ident)*) => {$(
        fn $method<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            visitor.$visit(self.text()?.parse().map_err(de::Error::custom)?)
        }
    )*};
}

impl Node {
    fn text(&self) -> Result<&str, Error> {
        match &self.value {
            Value::Scalar { text, .. } => Ok(text),
            _ => Err(de::Error::custom("expected a scalar")),
        }
    }
}

impl<'de> Deserializer<'de> for &'de Node {
    type Error = Error;

    numbers! {
        deserialize_u8 visit_u8
        deserialize_u16 visit_u16
        deserialize_u32 visit_u32
        deserialize_u64 visit_u64
        deserialize_i64 visit_i64
        deserialize_f64 visit_f64
    }

    fn deserialize_any<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.value {
            Value::List(_) => self.deserialize_seq(visitor),
            Value::Map(_) => self.deserialize_map(visitor),
            Value::Scalar { text, kind, .. } => match kind {
                Kind::Null => visitor.visit_unit(),
                Kind::Boolean => self.deserialize_bool(visitor),
                Kind::Integer if text.parse::<i64>().is_ok() => self.deserialize_i64(visitor),
                Kind::Float if text.parse::<f64>().is_ok() => self.deserialize_f64(visitor),
                Kind::Integer | Kind::Float | Kind::Text => visitor.visit_borrowed_str(text),
            },
        }
    }

    fn deserialize_bool<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(self.text()?.eq_ignore_ascii_case("true"))
    }

    fn deserialize_str<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_borrowed_str(self.text()?)
    }

    fn deserialize_string<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: de::Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        match (name, &self.value) {
            (SPANNED, _) => visitor.visit_seq(Place { at: Spot::Node(self), part: 0 }),
            (LITERAL, Value::Scalar { text, kind, .. }) if *kind != Kind::Null => {
                visitor.visit_borrowed_str(text)
            }
            (LITERAL, _) => self.deserialize_any(visitor),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_enum<V: de::Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let text: StrDeserializer<'_, Error> = self.text()?.into_deserializer();
        visitor.visit_enum(text)
    }

    fn deserialize_seq<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.value {
            Value::List(elements) => visitor.visit_seq(de::value::SeqDeserializer::new(elements.iter())),
            _ => Err(de::Error::custom("expected a list")),
        }
    }

    fn deserialize_map<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.value {
            Value::Map(members) => {
                let members = members.iter().map(|(key, value)| (KeyText(key), value));
                visitor.visit_map(de::value::MapDeserializer::new(members))
            }
            _ => Err(de::Error::custom("expected a mapping")),
        }
    }

    fn deserialize_struct<V: de::Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_map(visitor)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i128 u128 f32 char bytes byte_buf unit unit_struct tuple tuple_struct ignored_any
    }
}

impl<'de> IntoDeserializer<'de, Error> for &'de Node {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// A mapping's key as a value.
#[derive(Clone, Copy)]
struct KeyText<'a>(&'a Key);

impl<'de> Deserializer<'de> for KeyText<'de> {
    type Error = Error;

    fn deserialize_any<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_borrowed_str(&self.0.text)
    }

    fn deserialize_newtype_struct<V: de::Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        if name == SPANNED {
            visitor.visit_seq(Place { at: Spot::Key(self.0), part: 0 })
        } else {
            visitor.visit_newtype_struct(self)
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, Error> for KeyText<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

#[derive(Clone, Copy)]
enum Spot<'a> {
    Node(&'a Node),
    Key(&'a Key),
}

/// The parts of a [`Spanned`], one after the other.
struct Place<'a> {
    at: Spot<'a>,
    part: u8,
}

impl<'de> de::SeqAccess<'de> for Place<'de> {
    type Error = Error;

    fn next_element_seed<T: de::DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        self.part += 1;
        let (span, whole, source) = match self.at {
            Spot::Node(node) => (node.span, !node.damaged, node.source.as_deref()),
            Spot::Key(key) => (key.span, true, None),
        };
        match (self.part, self.at) {
            (1, _) => {
                let numbers = [span.file, span.start, span.end];
                seed.deserialize(de::value::SeqDeserializer::new(numbers.into_iter()))
            }
            (2, _) => seed.deserialize(whole.into_deserializer()),
            (3, _) => match source {
                Some(source) => seed.deserialize(Present(source)),
                None => seed.deserialize(().into_deserializer()),
            },
            (4, Spot::Node(node)) => seed.deserialize(node),
            (4, Spot::Key(key)) => seed.deserialize(KeyText(key)),
            _ => return Ok(None),
        }
        .map(Some)
    }
}

/// A text that is there, for an option.
struct Present<'a>(&'a str);

impl<'de> Deserializer<'de> for Present<'de> {
    type Error = Error;

    fn deserialize_any<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(de::value::BorrowedStrDeserializer::new(self.0))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}
