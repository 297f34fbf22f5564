//! Templates and expressions of the connector vocabulary (minijinja), compiled and their names checked
//! when the file is loaded, so that a misspelt name never waits for its first request.
//!
//! A scalar that is exactly one `{{ }}` keeps its type: a list stays a list and a null leaves its
//! parameter out. Members that a template asks for and the data lacks are null.

use std::{fmt, sync::LazyLock};

use minijinja::{Environment, Expression as Compiled, UndefinedBehavior, Value};
use serde_json::Value as Json;

/// How many steps filling in one template may take; one step pays for 64 bytes, too. A value of a source that
/// becomes the argument of a filter could ask for any number of them.
const FUEL: u64 = 1_000_000;

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Chainable);
    environment.set_fuel(Some(FUEL));
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment
});

/// Where a template stands, which fixes the names it may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// A part of a request: `inputs`, `window` and `page`.
    Request {
        /// The declared inputs.
        inputs: &'a [String],
    },
    /// A rule about a record: `inputs` and `record`.
    Record {
        /// The declared inputs.
        inputs: &'a [String],
    },
    /// What tells one webhook from another: `body` and `headers` (names in lower case).
    Hook,
    /// A rule about an answer: `inputs`, `status`, `response` and `headers` (names in lower case).
    Answer {
        /// The declared inputs.
        inputs: &'a [String],
    },
}

/// Why a template cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// It is not a template.
    #[error("`{source_text}` cannot be read: {reason}")]
    Syntax {
        /// The text.
        source_text: String,
        /// Why.
        reason: String,
    },
    /// It uses a name that does not exist where it stands.
    #[error("`{name}` is not a name that can be used here")]
    UnknownName {
        /// The name.
        name: String,
        /// All names that exist there.
        known: Vec<String>,
    },
    /// It failed when it was filled in.
    #[error("`{source_text}` cannot be filled in: {reason}")]
    Render {
        /// The text.
        source_text: String,
        /// Why.
        reason: String,
    },
}

/// A scalar that may hold `{{ }}`.
#[derive(Debug)]
pub enum Template {
    /// A text without `{{ }}`.
    Literal(String),
    /// Exactly one `{{ }}`, which keeps its type.
    Whole(Expression),
    /// Text with `{{ }}` in it.
    Mixed(String),
}

impl Template {
    /// Reads a template and checks its names.
    pub fn parse(source: &str, scope: Scope<'_>) -> Result<Self, TemplateError> {
        if !source.contains("{{") && !source.contains("{%") {
            return Ok(Self::Literal(source.to_owned()));
        }
        let trimmed = source.trim();
        if let Some(inner) = trimmed.strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"))
            && !inner.contains("{{")
            && !inner.contains("}}")
        {
            return Expression::parse(inner.trim(), scope).map(Self::Whole);
        }
        let template = ENVIRONMENT.template_from_str(source).map_err(|error| syntax(source, &error))?;
        scope.check(template.undeclared_variables(true))?;
        Ok(Self::Mixed(source.to_owned()))
    }

    /// The template as it was written.
    pub fn text(&self) -> String {
        match self {
            Self::Literal(text) | Self::Mixed(text) => text.clone(),
            Self::Whole(expression) => format!("{{{{ {} }}}}", expression.text()),
        }
    }

    /// Fills the template in. Null means that the parameter is left out.
    pub fn render(&self, context: &Value) -> Result<Json, TemplateError> {
        match self {
            Self::Literal(text) => Ok(Json::from(text.as_str())),
            Self::Whole(expression) => expression.value(context),
            Self::Mixed(source) => ENVIRONMENT
                .render_str(source, context)
                .map(Json::from)
                .map_err(|error| render(source, &error)),
        }
    }
}

/// A text of which every `{{ }}` has to be there: what is missing or null is an error, never an empty text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole(String);

static WHOLE: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_formatter(|out, state, value| {
        if value.is_undefined() || value.is_none() {
            let message = "something that it is made of is missing or null";
            return Err(minijinja::Error::new(minijinja::ErrorKind::UndefinedError, message));
        }
        minijinja::escape_formatter(out, state, value)
    });
    environment
});

impl Whole {
    /// Reads a template and checks its names.
    pub fn parse(source: &str, scope: Scope<'_>) -> Result<Self, TemplateError> {
        let template = WHOLE.template_from_str(source).map_err(|error| syntax(source, &error))?;
        scope.check(template.undeclared_variables(true))?;
        Ok(Self(source.to_owned()))
    }

    /// Fills it in.
    pub fn render(&self, context: &Value) -> Result<String, TemplateError> {
        WHOLE.render_str(&self.0, context).map_err(|error| render(&self.0, &error))
    }
}

/// An expression over the names of its scope.
pub struct Expression {
    source: String,
    compiled: Compiled<'static, 'static>,
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expression").field(&self.source).finish()
    }
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Expression {
    /// Reads an expression and checks its names.
    pub fn parse(source: &str, scope: Scope<'_>) -> Result<Self, TemplateError> {
        let compiled = ENVIRONMENT
            .compile_expression_owned(source.to_owned())
            .map_err(|error| syntax(source, &error))?;
        scope.check(compiled.undeclared_variables(true))?;
        Ok(Self { source: source.to_owned(), compiled })
    }

    /// The expression as it was written.
    pub fn text(&self) -> &str {
        self.source.trim()
    }

    /// The expression's value as JSON.
    pub fn value(&self, context: &Value) -> Result<Json, TemplateError> {
        let value = self.compiled.eval(context).map_err(|error| render(&self.source, &error))?;
        if value.is_undefined() {
            return Ok(Json::Null);
        }
        serde_json::to_value(&value).map_err(|error| TemplateError::Render {
            source_text: self.source.clone(),
            reason: error.to_string(),
        })
    }

    /// Whether the expression holds, as the template language reads truth.
    pub fn holds(&self, context: &Value) -> Result<bool, TemplateError> {
        let value = self.compiled.eval(context).map_err(|error| render(&self.source, &error))?;
        Ok(value.is_true())
    }
}

impl Scope<'_> {
    /// All names of the scope; one that ends in `.*` has members of any name.
    fn names(self) -> Vec<String> {
        let (inputs, others): (&[String], &[&str]) = match self {
            Self::Request { inputs } => (
                inputs,
                &[
                    "window.start",
                    "window.end",
                    "window.token",
                    "page.token",
                    "page.offset",
                    "page.number",
                    "page.first",
                ],
            ),
            Self::Hook => (&[], &["body.*", "headers.*"]),
            Self::Record { inputs } => (inputs, &["record.*"]),
            Self::Answer { inputs } => (inputs, &["status", "response.*", "headers.*"]),
        };
        let inputs = inputs.iter().map(|input| format!("inputs.{input}"));
        inputs.chain(others.iter().map(|name| (*name).to_owned())).collect()
    }

    fn check(self, used: impl IntoIterator<Item = String>) -> Result<(), TemplateError> {
        let known = self.names();
        let is_known = |name: &String| {
            known.iter().any(|known| match known.strip_suffix(".*") {
                Some(root) => {
                    name == root || name.strip_prefix(root).is_some_and(|rest| rest.starts_with(['.', '[']))
                }
                None => name == known || name.strip_prefix(known).is_some_and(|rest| rest.starts_with('.')),
            })
        };
        match used.into_iter().filter(|name| !is_known(name)).min() {
            Some(name) => Err(TemplateError::UnknownName { name, known }),
            None => Ok(()),
        }
    }
}

/// A JSON value as templates see it, integers exact.
pub fn template_value(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(flag) => Value::from(*flag),
        Json::Number(number) => {
            let text = number.to_string();
            match (text.parse::<i128>(), text.parse::<f64>()) {
                (Ok(integer), _) => Value::from(integer),
                (_, Ok(float)) if float.is_finite() => Value::from(float),
                _ => Value::from(text),
            }
        }
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(elements) => elements.iter().map(template_value).collect(),
        Json::Object(members) => {
            Value::from_pairs(members.iter().map(|(name, member)| (name.as_str(), template_value(member))))
        }
    }
}

fn syntax(source: &str, error: &minijinja::Error) -> TemplateError {
    TemplateError::Syntax { source_text: source.to_owned(), reason: reason(error) }
}

fn render(source: &str, error: &minijinja::Error) -> TemplateError {
    TemplateError::Render { source_text: source.to_owned(), reason: reason(error) }
}

fn reason(error: &minijinja::Error) -> String {
    error.detail().map_or_else(|| error.kind().to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(json: &str) -> Value {
        template_value(&serde_json::from_str(json).unwrap())
    }

    fn rendered(source: &str) -> Json {
        let inputs = ["repo".to_owned(), "types".to_owned()];
        let context = context(
            r#"{"inputs":{"repo":"shop","types":["a","b"]},"window":{"start":"2026-01-01","end":null},
                "page":{"token":null,"offset":9007199254740993,"number":1.5,"first":true}}"#,
        );
        Template::parse(source, Scope::Request { inputs: &inputs }).unwrap().render(&context).unwrap()
    }

    #[test]
    fn a_scalar_that_is_one_expression_keeps_its_type() {
        let cases = [
            ("plain", r#""plain""#),
            ("{{ inputs.types }}", r#"["a","b"]"#),
            ("{{ page.token }}", "null"),
            ("{{ page.offset }}", "9007199254740993"),
            ("{{ page.number }}", "1.5"),
            ("{{ page.first }}", "true"),
            ("/repos/{{ inputs.repo }}/issues", r#""/repos/shop/issues""#),
            ("{{ inputs.repo }}-{{ page.offset }}", r#""shop-9007199254740993""#),
            ("{{ 'x' if page.first else page.token }}", r#""x""#),
            ("<{{ inputs.repo }}>", r#""<shop>""#),
        ];
        for (source, expected) in cases {
            assert_eq!(rendered(source), serde_json::from_str::<Json>(expected).unwrap(), "{source}");
        }
    }

    #[test]
    fn a_whole_text_is_never_made_of_what_is_missing() {
        let context =
            context(r#"{"body":{"id":7,"state":"paid","none":null,"list":[]},"headers":{"x-id":"a"}}"#);
        let rendered = |source: &str| Whole::parse(source, Scope::Hook).unwrap().render(&context).ok();
        for (source, expected) in [
            ("{{ body.id }}", Some("7")),
            ("{{ body.id }}-{{ body.state }}", Some("7-paid")),
            ("{{ headers['x-id'] }}", Some("a")),
            ("{{ body.id ~ '-' ~ body.state }}", Some("7-paid")),
            ("{{ body.nothing }}", None),
            ("{{ body.none }}", None),
            ("{{ body.id }}-{{ body.none }}", None),
            ("{{ body.id }}-{{ body.nothing }}", None),
            ("{{ body.nothing.deeper }}", None),
            ("{{ headers['x-other'] }}", None),
            ("{{ body.id ~ '-' ~ body.nothing }}", None),
            ("{{ body.none or body.id }}", Some("7")),
            ("{{ body.nothing | default(body.id) }}", Some("7")),
            ("plain", Some("plain")),
        ] {
            assert_eq!(rendered(source).as_deref(), expected, "{source}");
        }
        assert!(Whole::parse("{{ bdy.id }}", Scope::Hook).is_err());
    }

    #[test]
    fn names_are_checked_when_a_template_is_read() {
        let inputs = ["repo".to_owned()];
        let request = Scope::Request { inputs: &inputs };
        let unknown = |source: &str, scope| match Template::parse(source, scope) {
            Err(TemplateError::UnknownName { name, .. }) => name,
            other => panic!("{source}: {other:?}"),
        };
        assert_eq!(unknown("{{ input.repo }}", request), "input.repo");
        assert_eq!(unknown("{{ inputs.repos }}", request), "inputs.repos");
        assert_eq!(unknown("{{ window.begin }}/x", request), "window.begin");
        assert_eq!(unknown("{{ record.id }}", request), "record.id");
        assert!(Expression::parse("not record.pull.request", Scope::Record { inputs: &[] }).is_ok());
        assert!(Expression::parse("headers['x-a'] == '0'", Scope::Answer { inputs: &[] }).is_ok());
        assert!(matches!(Template::parse("{{ page. }}", request), Err(TemplateError::Syntax { .. })));
    }

    #[test]
    fn a_number_of_the_source_cannot_make_an_expression_endless_or_huge() {
        let context = context(r#"{"record":{"a":"x","b":1000000000000000,"c":[1]}}"#);
        for source in [
            "record.c | slice(record.b)",
            "record.c | batch(record.b, 0)",
            "record.a | indent(record.b, true)",
        ] {
            let rule = Expression::parse(source, Scope::Record { inputs: &[] }).unwrap();
            assert!(matches!(rule.value(&context), Err(TemplateError::Render { .. })), "{source}");
        }
    }

    #[test]
    fn members_that_the_data_lacks_are_null() {
        let holds = |source: &str, json: &str| {
            Expression::parse(source, Scope::Record { inputs: &[] }).unwrap().holds(&context(json)).unwrap()
        };
        assert!(holds("not record.pull_request", r#"{"record":{"id":1}}"#));
        assert!(!holds("record.a.b.c", r#"{"record":{"id":1}}"#));
        assert!(holds("record.state == 'closed'", r#"{"record":{"state":"closed"}}"#));
    }
}
