//! Checks the shape of a tree against the JSON Schema of the types it is about to become, so that all
//! errors of shape are found at once and name what the schema's descriptions name.
//!
//! What is wrong is left out of the tree and its surroundings marked as damaged: the checks that follow
//! see the rest of the file, and do not complain about what is missing there.

use std::fmt;

use serde_json::{Map, Value as Json};

use super::{
    error::{Problem, Problems, Span, listed, nearest},
    tree::{Kind, Node, Value},
};

/// Checks trees against one schema.
#[derive(Clone, Copy)]
pub(super) struct Checker<'a> {
    root: &'a Json,
    problems: &'a Problems,
}

/// What a value is called and where a message about it points when it has no place of its own.
#[derive(Clone, Copy)]
struct Named<'a> {
    /// The key that it stands under; none for the whole file.
    key: Option<&'a str>,
    /// Its position in a list, from 1.
    index: Option<usize>,
    span: Span,
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.key, self.index) {
            (Some(key), None) => write!(f, "`{key}`"),
            (Some(key), Some(index)) => write!(f, "element {index} of `{key}`"),
            (None, _) => f.write_str("the file"),
        }
    }
}

impl<'a> Checker<'a> {
    pub(super) fn new(root: &'a Json, problems: &'a Problems) -> Self {
        Self { root, problems }
    }

    /// Checks a whole document; false where nothing of it can be used.
    pub(super) fn document(self, node: &mut Node) -> bool {
        let span = Span { end: node.span.start, ..node.span };
        self.check(self.root, node, Named { key: None, index: None, span })
    }

    fn check(self, schema: &'a Json, node: &mut Node, named: Named<'_>) -> bool {
        let schema = self.branch(schema, node);
        // Variables that could not be filled in were told of already.
        if node.damaged && matches!(node.value, Value::Scalar { .. }) {
            return false;
        }
        if !allows(schema, node) {
            self.wrong_type(schema, node, named);
            return false;
        }
        match &mut node.value {
            Value::Map(_) => self.map(schema, node, named),
            Value::List(elements) => {
                let Some(items) = schema.get("items") else { return true };
                let before = elements.len();
                let mut index = 0;
                elements.retain_mut(|element| {
                    index += 1;
                    let named = Named { index: Some(index), span: element.span, ..named };
                    self.check(items, element, named)
                });
                node.damaged |= elements.len() < before;
                true
            }
            Value::Scalar { .. } => self.scalar(schema, node, named),
        }
    }

    /// The schema that counts for a node: references followed, and of several alternatives the one of the
    /// node's shape.
    fn branch(self, schema: &'a Json, node: &Node) -> &'a Json {
        let mut schema = schema;
        for _ in 0..16 {
            if let Some(name) = schema.get("$ref").and_then(Json::as_str) {
                let name = name.trim_start_matches("#/$defs/");
                match self.root.get("$defs").and_then(|defs| defs.get(name)) {
                    Some(found) => schema = found,
                    None => return schema,
                }
            } else if let Some(branches) = schema.get("anyOf").and_then(Json::as_array) {
                let told: Vec<_> = branches.iter().filter(|branch| !is_null_schema(branch)).collect();
                let one = match told.as_slice() {
                    [only] => Some(*only),
                    several => several.iter().copied().find(|branch| allows(self.branch(branch, node), node)),
                };
                match one {
                    Some(found) => schema = found,
                    None => return schema,
                }
            } else {
                return schema;
            }
        }
        schema
    }

    fn map(self, schema: &'a Json, node: &mut Node, named: Named<'_>) -> bool {
        let Value::Map(members) = &mut node.value else { return true };
        let empty = Map::new();
        let properties = schema.get("properties").and_then(Json::as_object).unwrap_or(&empty);
        let others = schema.get("additionalProperties").filter(|others| others.is_object());
        let required: Vec<&str> = schema
            .get("required")
            .and_then(Json::as_array)
            .map(|names| names.iter().filter_map(Json::as_str).collect())
            .unwrap_or_default();
        let mut damaged = false;
        let present: Vec<String> = members.iter().map(|(key, _)| key.text.clone()).collect();
        members.retain_mut(|(key, value)| {
            let is_required = required.contains(&key.text.as_str());
            let Some(property) = properties.get(&key.text).or(others) else {
                self.unknown_key(properties, &key.text, key.span, named);
                damaged = true;
                return false;
            };
            let named = Named { key: Some(&key.text), index: None, span: key.span };
            if value.is_null() && !value.damaged {
                if is_required || !is_nullable(property) {
                    let mut problem = Problem::new(key.span, format!("`{}` is empty", key.text));
                    if let Some(expected) = self.expected(property) {
                        problem = problem.expected(expected);
                    }
                    self.problems.add(problem);
                }
                return others.is_some() && is_nullable(property);
            }
            let usable = self.check(property, value, named);
            if !matches!(value.value, Value::Scalar { .. }) {
                // A whole block is too much to mark: its key says as much.
                value.span = key.span;
            }
            damaged |= !usable;
            usable
        });
        let missing: Vec<&str> =
            required.into_iter().filter(|name| !members.iter().any(|(key, _)| key.text == *name)).collect();
        let misspelt = |name: &str| {
            present
                .iter()
                .any(|key| key == "<<" || !properties.contains_key(key) && nearest(key, [name]).is_some())
        };
        for name in &missing {
            if !present.iter().any(|key| key == name) && !misspelt(name) {
                let mut problem = Problem::new(named.span, format!("{named} lacks the key `{name}`"));
                if let Some(told) = properties.get(*name).and_then(description) {
                    problem = problem.help(format!("`{name}`: {told}"));
                }
                self.problems.add(problem);
            }
        }
        node.damaged |= damaged || !missing.is_empty();
        missing.is_empty()
    }

    fn unknown_key(self, properties: &'a Map<String, Json>, key: &str, span: Span, named: Named<'_>) {
        let place = match named.key {
            None => "at the top level".to_owned(),
            Some(_) => format!("under {named}"),
        };
        let mut problem = Problem::new(span, format!("`{key}` is not a key that can stand {place}"))
            .expected(format!("one of {}", listed(properties.keys().map(String::as_str))));
        // The schema of this very file knows the key one level down, or knows one of nearly the same name.
        let below = properties.iter().find(|(_, property)| self.has_property(property, key));
        problem = match below {
            _ if key == "<<" => problem
                .help("merge keys are not read: what jobs share goes into `accounts` and `destinations`"),
            Some((parent, _)) => problem.help(format!("`{key}` belongs under `{parent}`")),
            None => problem.meant(key, properties.keys().map(String::as_str)),
        };
        self.problems.add(problem);
    }

    fn has_property(self, schema: &'a Json, name: &str) -> bool {
        let shape =
            Node { span: Span::default(), value: Value::Map(Vec::new()), source: None, damaged: false };
        self.branch(schema, &shape).get("properties").is_some_and(|properties| properties.get(name).is_some())
    }

    fn wrong_type(self, schema: &'a Json, node: &Node, named: Named<'_>) {
        let is = node.describe(self.problems);
        let span = match node.value {
            // A whole block is too much to mark: its key says as much.
            Value::Map(_) | Value::List(_) if named.key.is_some() => named.span,
            _ => node.span,
        };
        let mut problem = Problem::new(span, format!("{named} cannot be {is}"));
        if let Some(expected) = self.expected(schema) {
            problem = problem.expected(expected);
        }
        self.problems.add(problem);
    }

    fn scalar(self, schema: &'a Json, node: &Node, named: Named<'_>) -> bool {
        let Value::Scalar { text, .. } = &node.value else { return true };
        let names = choices(schema);
        if !names.is_empty() && !names.contains(&text.as_str()) {
            let is = node.describe(self.problems);
            let mut problem = Problem::new(node.span, format!("{named} cannot be {is}"))
                .expected(format!("one of {}", listed(names.iter().copied())));
            if node.source.is_none() {
                problem = problem.meant(text, names);
            }
            self.problems.add(problem);
            return false;
        }
        let limit = |name: &str| schema.get(name).and_then(|limit| limit.to_string().parse::<i128>().ok());
        let (lowest, highest) = (limit("minimum"), limit("maximum"));
        let Ok(number) = text.parse::<i128>() else { return true };
        let most = highest.or(format_limit(schema));
        if lowest.is_none_or(|lowest| lowest <= number) && most.is_none_or(|most| number <= most) {
            return true;
        }
        let is = node.describe(self.problems);
        let expected = match (lowest, highest) {
            (Some(lowest), Some(highest)) => format!("a whole number from {lowest} to {highest}"),
            (Some(lowest), None) => format!("a whole number from {lowest} on"),
            (None, _) => "a smaller whole number".to_owned(),
        };
        self.problems.add(Problem::new(node.span, format!("{named} cannot be {is}")).expected(expected));
        false
    }

    /// What a schema asks for, in words.
    fn expected(self, schema: &'a Json) -> Option<String> {
        let title = schema.get("title").and_then(Json::as_str);
        if let Some(title) = title.filter(|_| !std::ptr::eq(schema, self.root)) {
            return Some(title.to_owned());
        }
        if let Some(branches) = schema.get("anyOf").and_then(Json::as_array) {
            let told: Vec<String> = branches
                .iter()
                .filter(|branch| !is_null_schema(branch))
                .filter_map(|branch| self.expected(branch))
                .collect();
            return (!told.is_empty()).then(|| told.join(", or "));
        }
        if schema.get("$ref").is_some() {
            let shape =
                Node { span: Span::default(), value: Value::Map(Vec::new()), source: None, damaged: false };
            return self.expected(self.branch(schema, &shape));
        }
        let names = choices(schema);
        if !names.is_empty() {
            return Some(format!("one of {}", listed(names)));
        }
        let properties = schema.get("properties").and_then(Json::as_object);
        if let Some(properties) = properties {
            return Some(format!("a mapping with keys of {}", listed(properties.keys().map(String::as_str))));
        }
        let types = types(schema);
        types.iter().find_map(|name| match *name {
            "string" => Some("a text".to_owned()),
            "integer" => Some("a whole number".to_owned()),
            "number" => Some("a number".to_owned()),
            "boolean" => Some("`true` or `false`".to_owned()),
            "array" => Some(match schema.get("items").and_then(|items| self.expected(items)) {
                Some(items) => format!("a list, each element {items}"),
                None => "a list".to_owned(),
            }),
            "object" => Some("a mapping from names to values".to_owned()),
            _ => None,
        })
    }
}

/// The description of a key, its first paragraph on one line.
fn description(schema: &Json) -> Option<String> {
    let text = schema.get("description").and_then(Json::as_str)?;
    Some(text.split("\n\n").next()?.replace('\n', " "))
}

fn types(schema: &Json) -> Vec<&str> {
    match schema.get("type") {
        Some(Json::String(name)) => vec![name],
        Some(Json::Array(names)) => names.iter().filter_map(Json::as_str).collect(),
        _ => Vec::new(),
    }
}

fn is_null_schema(schema: &Json) -> bool {
    schema.get("type").and_then(Json::as_str) == Some("null")
}

fn is_nullable(schema: &Json) -> bool {
    types(schema).contains(&"null")
        || schema
            .get("anyOf")
            .and_then(Json::as_array)
            .is_some_and(|branches| branches.iter().any(is_null_schema))
}

/// The texts that an enumeration allows.
fn choices(schema: &Json) -> Vec<&str> {
    let mut names = Vec::new();
    let parts = schema.get("oneOf").and_then(Json::as_array);
    for part in parts.map_or(std::slice::from_ref(schema), Vec::as_slice) {
        names.extend(part.get("const").and_then(Json::as_str));
        if let Some(listed) = part.get("enum").and_then(Json::as_array) {
            names.extend(listed.iter().filter_map(Json::as_str));
        }
    }
    names
}

/// Whether a node has a shape that a schema allows. A scalar of any type may stand where a text is asked
/// for: it keeps its text.
fn allows(schema: &Json, node: &Node) -> bool {
    let types = types(schema);
    if types.is_empty() {
        if !choices(schema).is_empty() {
            return matches!(&node.value, Value::Scalar { kind, .. } if *kind != Kind::Null);
        }
        return schema.get("anyOf").is_none();
    }
    types.iter().any(|name| match &node.value {
        Value::Map(_) => *name == "object",
        Value::List(_) => *name == "array",
        Value::Scalar { kind, .. } => match *name {
            "null" => *kind == Kind::Null,
            "string" => *kind != Kind::Null,
            "integer" => *kind == Kind::Integer,
            "number" => matches!(kind, Kind::Integer | Kind::Float),
            "boolean" => *kind == Kind::Boolean,
            _ => false,
        },
    })
}

/// The largest number that a schema's integer type holds.
fn format_limit(schema: &Json) -> Option<i128> {
    match schema.get("format").and_then(Json::as_str)? {
        "uint16" => Some(u16::MAX.into()),
        "uint32" => Some(u32::MAX.into()),
        "uint64" => Some(u64::MAX.into()),
        _ => None,
    }
}
