//! YAML text as a tree of nodes that know their place, so that every later check can point at the text.
//!
//! Scalars keep their text beside the type that YAML gives them: a token of digits stays the text it is.
//! Duplicate keys are refused; depth and size are bounded, aliases included.

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle};

use super::error::{Problem, Problems, Span};

/// The deepest nesting that is read.
const MAX_DEPTH: usize = 64;

/// The most nodes that are read, counting what aliases repeat.
const MAX_NODES: usize = 200_000;

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) span: Span,
    pub(super) value: Value,
    /// The text as the file has it, where variables were filled in: messages show this one.
    pub(super) source: Option<String>,
    /// Something below was wrong and has been left out, so what is missing is no news.
    pub(super) damaged: bool,
}

/// A value of YAML.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Scalar { text: String, kind: Kind },
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

/// A key of a mapping.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) span: Span,
    pub(super) text: String,
}

/// The type that YAML's core schema gives a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Null,
    Boolean,
    Integer,
    Float,
    Text,
}

impl Kind {
    /// The type of a plain scalar.
    pub(super) fn of(text: &str) -> Self {
        match text {
            "" | "~" | "null" | "Null" | "NULL" => return Self::Null,
            "true" | "True" | "TRUE" | "false" | "False" | "FALSE" => return Self::Boolean,
            _ => {}
        }
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if digits(unsigned) {
            return Self::Integer;
        }
        let (number, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        if digits(exponent) && digits(whole) && (fraction.is_empty() || digits(fraction)) {
            return Self::Float;
        }
        Self::Text
    }
}

impl Node {
    pub(super) fn is_null(&self) -> bool {
        matches!(self.value, Value::Scalar { kind: Kind::Null, .. })
    }

    /// What the value is, for a message; the text itself where it may be shown.
    pub(super) fn describe(&self, problems: &Problems) -> String {
        match &self.value {
            Value::Scalar { kind: Kind::Null, .. } => "nothing".to_owned(),
            Value::Scalar { .. } if problems.is_masked(self.span) => "this text".to_owned(),
            Value::Scalar { text, .. } => {
                let text = self.source.as_ref().unwrap_or(text);
                let shown: String = text.chars().take(60).collect();
                format!("`{}`", shown.trim_end().replace('\n', " "))
            }
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a mapping".to_owned(),
        }
    }
}

/// Reads the one document of `text`. `None` where that is not possible; `problems` says why.
pub(super) fn parse(file: u32, text: &str, problems: &Problems) -> Option<Node> {
    let mut builder = Builder { file, text, problems, anchors: Vec::new(), nodes: 0 };
    let mut events = Parser::new_from_str(text);
    let mut root = None;
    loop {
        match builder.next(&mut events)? {
            (Event::StreamEnd, _) => break,
            (Event::DocumentStart(..), span) if root.is_some() => {
                let problem = Problem::new(span, "a second YAML document starts here")
                    .help("keep everything in one document: remove the line `---`");
                problems.add(problem);
                return None;
            }
            (Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd, _) => {}
            (event, span) => root = Some(builder.node(event, span, &mut events, 0)?),
        }
    }
    if root.is_none() {
        let span = Span { file, start: 0, end: 0 };
        let problem = Problem::new(span, "the file is empty");
        problems.add(
            problem.expected("at least `jobs:` with one job; `onlynew init` writes a file to start from"),
        );
    }
    if let Some(root) = &root {
        mask(root, None, problems);
    }
    root
}

struct Builder<'a> {
    file: u32,
    text: &'a str,
    problems: &'a Problems,
    anchors: Vec<(usize, Node, usize)>,
    nodes: usize,
}

type Events<'a> = Parser<'a, granit_parser::StrInput<'a>>;

impl<'a> Builder<'a> {
    fn next(&self, events: &mut Events<'a>) -> Option<(Event<'a>, Span)> {
        match events.next()? {
            Ok((event, span)) => {
                let byte =
                    |marker: granit_parser::Marker| marker.byte_offset().and_then(|at| at.try_into().ok());
                let start = byte(span.start).unwrap_or(0);
                let end = byte(span.end).unwrap_or(start);
                Some((event, Span { file: self.file, start, end }))
            }
            Err(error) => {
                self.syntax(&error);
                None
            }
        }
    }

    fn node(&mut self, event: Event<'a>, span: Span, events: &mut Events<'a>, depth: usize) -> Option<Node> {
        if depth > MAX_DEPTH {
            self.problems.add(Problem::new(span, format!("the nesting is deeper than {MAX_DEPTH} levels")));
            return None;
        }
        self.count(1, span)?;
        let before = self.nodes;
        let (anchor, tag, mut span, value) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain;
                let text = if span.start == span.end && plain { String::new() } else { text.into_owned() };
                let is_text = tag.as_ref().is_some_and(|tag| tag.core_suffix() == Some("str"));
                let kind = if plain && !is_text { Kind::of(&text) } else { Kind::Text };
                (anchor, tag, span, Value::Scalar { text, kind })
            }
            Event::SequenceStart(_, anchor, tag) => {
                let mut elements = Vec::new();
                let end = loop {
                    match self.next(events)? {
                        (Event::SequenceEnd, end) => break end,
                        (event, span) => elements.push(self.node(event, span, events, depth + 1)?),
                    }
                };
                (anchor, tag, self.upto(span, end), Value::List(elements))
            }
            Event::MappingStart(_, anchor, tag) => {
                let mut members: Vec<(Key, Node)> = Vec::new();
                let mut known: HashMap<String, Span> = HashMap::new();
                let end = loop {
                    match self.next(events)? {
                        (Event::MappingEnd, end) => break end,
                        (event, span) => {
                            let key = self.key(event, span)?;
                            let (event, value_span) = self.next(events)?;
                            let value = self.node(event, value_span, events, depth + 1)?;
                            if let Some(first) = known.get(&key.text) {
                                self.repeated(&key, *first);
                            } else {
                                known.insert(key.text.clone(), key.span);
                                members.push((key, value));
                            }
                        }
                    }
                };
                (anchor, tag, self.upto(span, end), Value::Map(members))
            }
            Event::Alias(id) => {
                let (_, node, size) = self.anchors.iter().rev().find(|(anchor, ..)| *anchor == id)?;
                let (node, size) = (node.clone(), *size);
                self.count(size, span)?;
                return Some(node);
            }
            _ => return None,
        };
        if span.end < span.start {
            span.end = span.start;
        }
        if let Some(tag) = tag.filter(|tag| tag.core_suffix().is_none()) {
            let problem = Problem::new(span, format!("the YAML tag `{}` is not known", tag.original()));
            self.problems.add(problem.help("remove the tag"));
        }
        let node = Node { span, value, source: None, damaged: false };
        if anchor > 0 {
            self.anchors.push((anchor, node.clone(), self.nodes - before + 1));
        }
        Some(node)
    }

    fn key(&self, event: Event<'a>, span: Span) -> Option<Key> {
        if let Event::Scalar(text, ..) = event {
            return Some(Key { span, text: text.into_owned() });
        }
        let problem = Problem::new(span, "a key must be a plain text")
            .help("a value that starts with `{{` must stand in quotes: \"{{ inputs.name }}\"");
        self.problems.add(problem);
        None
    }

    fn repeated(&self, key: &Key, first: Span) {
        let problem = Problem::new(key.span, format!("the key `{}` is given twice", key.text));
        let line = self.problems.line(first);
        self.problems.add(problem.help(format!("it stands in line {line} already: keep one")));
    }

    fn count(&mut self, nodes: usize, span: Span) -> Option<()> {
        self.nodes += nodes;
        if self.nodes > MAX_NODES {
            let message =
                format!("the file holds more than {MAX_NODES} values, counting what aliases repeat");
            self.problems.add(Problem::new(span, message));
            return None;
        }
        Some(())
    }

    /// A collection's place: from its start to its end, less the white space behind it.
    fn upto(&self, start: Span, end: Span) -> Span {
        let text = self.text.get(start.range().start..end.range().end).unwrap_or_default();
        let end = start.range().start + text.trim_end().len();
        Span { end: end.try_into().unwrap_or(start.end), ..start }
    }

    fn syntax(&self, error: &granit_parser::ScanError) {
        use granit_parser::ErrorKind as E;
        let start = error.marker().byte_offset().unwrap_or(0);
        let length = self.text.get(start..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
        let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        let span = Span { file: self.file, start: place(start), end: place(start + length) };
        mask_line(self.text, span, self.problems);
        let (message, help) = match error.kind() {
            E::TabInBlockIndentation | E::TabInIndentation | E::TabNotAllowed => {
                ("a tab is used to indent".to_owned(), "YAML is indented with spaces: use two for each level")
            }
            E::UnclosedQuotedScalar => {
                ("a quote is opened and never closed".to_owned(), "close it where the text ends")
            }
            E::UnclosedFlowCollection { open } => {
                (format!("`{open}` is opened and never closed"), "close it where the list or mapping ends")
            }
            E::ExpectedFlowMappingSeparator | E::ExpectedFlowSequenceSeparator
                if self.text.get(..start).is_some_and(|before| before.ends_with('$')) =>
            {
                ("inside `{ }` and `[ ]` a `${NAME}` must stand in quotes".to_owned(), "write \"${NAME}\"")
            }
            E::UnknownAnchor => (
                "this alias names an anchor that does not exist".to_owned(),
                "write the anchor `&name` before its alias `*name`; a text that starts with `*` must stand in quotes",
            ),
            E::UnexpectedCharacter { character } => {
                (format!("a text cannot start with `{character}`"), "put the text in quotes")
            }
            E::MappingValueNotAllowed => (
                "a `:` makes a key of what stands before it, and no key can stand here".to_owned(),
                "a text that holds `: ` must stand in quotes; a key must be indented like its neighbours",
            ),
            E::ExpectedBlockMappingKey | E::InvalidIndentation => (
                "this line fits no level of indentation above it".to_owned(),
                "indent it exactly like the other keys of its block",
            ),
            E::ExpectedFlowMappingSeparator => (
                "a `,` or `}` is missing before this".to_owned(),
                "close the `{`; inside it, a text that holds `{`, `}`, `[`, `]` or `,` must stand in quotes",
            ),
            E::ExpectedFlowSequenceSeparator => (
                "a `,` or `]` is missing before this".to_owned(),
                "close the `[`; inside it, a text that holds `{`, `}`, `[`, `]` or `,` must stand in quotes",
            ),
            _ => (
                format!("this is not YAML: {}", error.info()),
                "look at this line and the one above it: indentation, quotes, a missing `:`",
            ),
        };
        self.problems.add(Problem::new(span, message).help(help));
    }
}

/// Masks what stands below `auth`, `signing_secret`, `tokens` and `secrets` and in the user part of a URL, unless it is a `${…}`.
fn mask(node: &Node, auth: Option<&str>, problems: &Problems) {
    match &node.value {
        Value::Map(members) => {
            for (key, value) in members {
                let begins = matches!(key.text.as_str(), "auth" | "signing_secret" | "tokens" | "secrets");
                let auth = (begins || auth.is_some()).then_some(key.text.as_str());
                mask(value, auth, problems);
            }
        }
        Value::List(elements) => elements.iter().for_each(|element| mask(element, auth, problems)),
        Value::Scalar { text, .. } => {
            let text = text.trim();
            let named = text.starts_with("${") && text.ends_with('}') && text.matches("${").count() == 1;
            if named {
                return;
            }
            if auth.is_some_and(|key| !matches!(key, "type" | "name" | "in" | "prefix" | "algorithm" | "may"))
            {
                problems.mask(node.span);
            } else if let Some((scheme, rest)) = text.split_once("://")
                && let Some((user, _)) = rest.split_once('@')
                && !user.contains(['/', ' '])
            {
                // The scalar's text and its source are the same where it is not quoted; one more character where it is.
                let start = node.span.start + u32::try_from(scheme.len() + 3).unwrap_or(0);
                let end = start + u32::try_from(user.len() + 1).unwrap_or(0);
                problems.mask(Span { start, end: end.min(node.span.end), ..node.span });
            }
        }
    }
}

/// Masks what looks like a credential in a line that is no YAML.
fn mask_line(text: &str, span: Span, problems: &Problems) {
    let at = span.range().start.min(text.len());
    let start = text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |newline| newline + 1);
    let line = text.get(start..).unwrap_or_default().lines().next().unwrap_or_default();
    for name in
        ["token", "password", "username", "key", "secret", "private_key", "signing_secret", "value", "auth"]
    {
        let mut from = 0;
        while let Some(found) = line.get(from..).and_then(|rest| rest.find(name)) {
            let before = line.get(..from + found).unwrap_or_default();
            from += found + name.len();
            if before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
                continue;
            }
            let rest = line.get(from..).unwrap_or_default();
            let value = rest.trim_start_matches(['"', '\'', ' ', '\t']);
            let Some(value) = value.strip_prefix(':') else { continue };
            let value = value.trim_start_matches(['"', '\'', ' ', '\t']);
            if value.starts_with("${") || value.starts_with(['{', '[']) {
                continue;
            }
            let begin = start + line.len() - value.len();
            let end = begin + value.find([',', '}', '"', '\'']).unwrap_or(value.len());
            let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
            problems.mask(Span { file: span.file, start: place(begin), end: place(end) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_have_the_types_of_the_core_schema() {
        let cases = [
            (Kind::Null, &["", "~", "null"][..]),
            (Kind::Boolean, &["true", "False"]),
            (Kind::Integer, &["0", "-7", "+7", "007", "99999999999999999999"]),
            (Kind::Float, &["1.5", "-1.", "1e3", "2.5E-7"]),
            (Kind::Text, &["yes", "no", "5m", "1.2.3", "2026-01-01", "-", ".", "e5", "0x1F", "1_000", "é"]),
        ];
        for (kind, texts) in cases {
            for text in texts {
                assert_eq!(Kind::of(text), kind, "{text:?}");
            }
        }
    }
}
