//! The texts of the YAML that have a form of their own: what the schema says about them, and values that
//! keep their text until it is known what they are.

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};

use super::{
    de::{LITERAL, Spanned},
    error::Span,
};

/// A type that exists for the schema alone: `title` is what an error says was expected.
macro_rules! forms {
    ($($(#[$doc:meta])* $name:ident $schema:tt)*) => {$(
        $(#[$doc])*
        pub(super) struct $name;

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    )*};
}

forms! {
    /// `15m`, `1h30m`.
    DurationForm {
        "title": "a duration such as `15m`",
        "type": "string",
        "pattern": r"^\s*([0-9]+(ms|s|m|h|d|w)\s*)+$|\$\{",
        "examples": ["30s", "15m", "1h30m", "7d"],
    }
    /// `30d`, `never`.
    LifetimeForm {
        "title": "a duration such as `30d`, or `never`",
        "type": "string",
        "pattern": r"^\s*(([0-9]+(ms|s|m|h|d|w)\s*)+|never\s*)$|\$\{",
        "examples": ["30d", "52w", "never"],
    }
    /// `1MB`, `512kB`.
    SizeForm {
        "title": "a size such as `1MB`",
        "type": "string",
        "pattern": r"^\s*[0-9]+ *(B|kB|KB|MB|GB|KiB|MiB)\s*$|\$\{",
        "examples": ["512kB", "1MB", "16MB"],
    }
    /// An IANA time zone.
    ZoneForm { "title": "an IANA time zone such as `Europe/Zagreb`", "type": "string", "examples": ["UTC", "Europe/Zagreb"] }
    /// A singular JSON path.
    PathForm { "title": "a path to one place such as `$.data.items`", "type": "string" }
    /// A place in an answer.
    PlaceForm { "title": "a path such as `$.paging.next`, or `header:Name`", "type": "string" }
    /// A secret.
    SecretForm { "title": "a secret, best as `\"${NAME}\"` or `\"${file:/run/secrets/name}\"`", "type": "string" }
    /// One secret or several.
    SecretsForm {
        "anyOf": [
            { "title": "a secret, best as `\"${NAME}\"` or `\"${file:/run/secrets/name}\"`", "type": "string" },
            {
                "title": "a list of secrets, each of which signs",
                "type": "array",
                "items": { "title": "a secret, best as `\"${NAME}\"`", "type": "string" },
            },
        ],
    }
    /// What may be connected to.
    AllowPrivateForm {
        "anyOf": [
            { "title": "`auto`, `true` or `false`", "type": ["string", "boolean"] },
            {
                "title": "a list such as `[10.0.0.0/8, n8n.example.com]`",
                "type": "array",
                "items": { "title": "a network, an address or a host's name", "type": "string" },
            },
        ],
    }
    /// The value of a claim.
    ClaimForm {
        "title": "a text, a number, `true` or `false`, or a list of those",
        "type": ["string", "number", "boolean", "array"],
    }
    /// A scalar that may hold templates.
    TemplateForm { "title": "a text, a number, `true` or `false`", "type": ["string", "number", "boolean"] }
    /// The first version of interest.
    StartForm {
        "title": "a date such as `2026-01-01`, or a timestamp such as `2026-01-01T12:00:00Z`",
        "type": ["string", "integer"],
    }
    /// A share of a whole.
    ShareForm { "title": "a percentage such as `10%`, or a fraction such as `0.1`", "type": ["string", "number"], "examples": ["10%", 0.1] }
    /// How versions are spelled.
    VersionFormatForm {
        "title": "`auto`, `iso8601`, `date`, `rfc2822`, `epoch_s`, `epoch_ms`, `epoch_us`, `integer`, `decimal`, or a pattern such as `%d.%m.%Y %H:%M`",
        "type": "string",
        "examples": ["auto", "iso8601", "date", "rfc2822", "epoch_s", "epoch_ms", "epoch_us", "integer", "decimal", "%Y-%m-%d %H:%M:%S"],
    }
    /// One path or several.
    PathsForm {
        "anyOf": [
            { "title": "a path to one place such as `updated_at`", "type": "string" },
            {
                "title": "a list of paths, of which the first that holds something counts",
                "type": "array",
                "items": { "title": "a path to one place such as `updated_at`", "type": "string" },
            },
        ],
    }
    /// The value of an input.
    LiteralForm {
        "title": "a text, a number, `true` or `false`, or a list of texts",
        "type": ["string", "number", "boolean", "array", "null"],
        "items": { "title": "a text or a number", "type": ["string", "number"] },
    }
}

/// The value of an input as it was written: what it is depends on the input's type.
#[derive(Clone, Debug)]
pub(super) enum Literal {
    Null,
    Text(String),
    List(Vec<Spanned<String>>),
}

impl Literal {
    /// What was written, on one line.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Null => String::new(),
            Self::Text(text) => text.clone(),
            Self::List(texts) => texts.iter().map(|text| text.value.as_str()).collect::<Vec<_>>().join(", "),
        }
    }
}

impl<'de> Deserialize<'de> for Literal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LiteralVisitor;

        impl<'de> de::Visitor<'de> for LiteralVisitor {
            type Value = Literal;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a scalar or a list of scalars")
            }

            fn visit_unit<E>(self) -> Result<Literal, E> {
                Ok(Literal::Null)
            }

            fn visit_str<E>(self, text: &str) -> Result<Literal, E> {
                Ok(Literal::Text(text.to_owned()))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, seq: A) -> Result<Literal, A::Error> {
                Vec::deserialize(de::value::SeqAccessDeserializer::new(seq)).map(Literal::List)
            }
        }

        deserializer.deserialize_newtype_struct(LITERAL, LiteralVisitor)
    }
}

impl JsonSchema for Literal {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Literal".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        LiteralForm::json_schema(generator)
    }
}

/// One value or a list of them.
#[derive(Debug)]
pub(super) struct OneOrMany<T>(pub(super) Vec<T>);

/// A text, or the same thing written out as a mapping.
#[derive(Clone, Debug)]
pub(super) enum TextOr<T> {
    Text(String),
    Map(T),
}

macro_rules! by_shape {
    ($type:ident, $expecting:literal, $($method:item)*) => {
        impl<'de, T: Deserialize<'de>> Deserialize<'de> for $type<T> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct ShapeVisitor<T>(std::marker::PhantomData<T>);

                impl<'de, T: Deserialize<'de>> de::Visitor<'de> for ShapeVisitor<T> {
                    type Value = $type<T>;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }

                    $($method)*
                }

                deserializer.deserialize_any(ShapeVisitor(std::marker::PhantomData))
            }
        }
    };
}

by_shape! {
    OneOrMany, "a mapping or a list of mappings",
    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::deserialize(de::value::MapAccessDeserializer::new(map)).map(|one| OneOrMany(vec![one]))
    }
    fn visit_seq<A: de::SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
        Vec::deserialize(de::value::SeqAccessDeserializer::new(seq)).map(OneOrMany)
    }
}

by_shape! {
    TextOr, "a text or a mapping",
    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(TextOr::Text(text.to_owned()))
    }
    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(TextOr::Text(number.to_string()))
    }
    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        Ok(TextOr::Text(number.to_string()))
    }
    fn visit_bool<E>(self, flag: bool) -> Result<Self::Value, E> {
        Ok(TextOr::Text(flag.to_string()))
    }
    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::deserialize(de::value::MapAccessDeserializer::new(map)).map(TextOr::Map)
    }
}

impl<T: JsonSchema> JsonSchema for OneOrMany<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("OneOrMany{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [one, { "title": "a list of alternatives", "type": "array", "items": one }] })
    }
}

/// A text's value and place, whatever kind of value holds it.
pub(super) fn spanned(value: &str, span: Span, source: Option<String>) -> Spanned<String> {
    Spanned { value: value.to_owned(), span, whole: true, source }
}
