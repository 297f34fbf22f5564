//! Fills `${NAME}`, `${NAME:-default}` and `${file:/path}` in, inside scalars of the parsed tree and never
//! in the text: a value cannot change the structure of the file. `$${` stands for a plain `${`.

use std::{
    fs,
    io::{self, Read},
    path::Path,
};

use super::{
    error::{Problem, Problems, Span},
    tree::{Kind, Node, Value},
};

/// The largest file that `${file:…}` reads, in MiB.
const MAX_FILE: u64 = 1;

/// Where values come from.
#[derive(Clone, Copy)]
pub(super) struct Filler<'a> {
    pub(super) env: &'a dyn Fn(&str) -> Option<String>,
    /// Where relative paths start.
    pub(super) folder: &'a Path,
    pub(super) problems: &'a Problems,
}

impl Filler<'_> {
    /// Fills in all scalars below a node.
    pub(super) fn fill(self, node: &mut Node) {
        match &mut node.value {
            Value::List(elements) => elements.iter_mut().for_each(|element| self.fill(element)),
            Value::Map(members) => members.iter_mut().for_each(|(_, value)| self.fill(value)),
            Value::Scalar { text, kind } if text.contains("${") => match self.text(text, node.span) {
                Some((filled, false)) => *text = filled,
                Some((filled, true)) => {
                    // Typed again, quotes or not: inside `{ }` YAML asks for quotes around `${`. What is
                    // filled in is never null: the key is there, and so is its answer.
                    *kind = Some(Kind::of(&filled)).filter(|kind| *kind != Kind::Null).unwrap_or(Kind::Text);
                    node.source = Some(std::mem::replace(text, filled));
                }
                None => node.damaged = true,
            },
            Value::Scalar { .. } => {}
        }
    }

    /// The text filled in, and whether it named anything.
    fn text(self, text: &str, span: Span) -> Option<(String, bool)> {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        let mut whole = true;
        let mut named = false;
        while let Some(at) = rest.find("${") {
            let (before, tail) = rest.split_at(at);
            if let Some(before) = before.strip_suffix('$') {
                filled.push_str(before);
                filled.push_str("${");
                rest = tail.get(2..).unwrap_or_default();
                continue;
            }
            filled.push_str(before);
            let Some((name, tail)) = tail.get(2..).and_then(|tail| tail.split_once('}')) else {
                let problem = Problem::new(span, "`${` is opened and never closed")
                    .help("write `${NAME}`; for a plain `${` write `$${`");
                self.problems.add(problem);
                return None;
            };
            named = true;
            match self.value(name, span) {
                Some(value) => filled.push_str(&value),
                None => whole = false,
            }
            rest = tail;
        }
        filled.push_str(rest);
        whole.then_some((filled, named))
    }

    fn value(self, inner: &str, span: Span) -> Option<String> {
        if let Some(path) = inner.strip_prefix("file:") {
            return self.file(path, span);
        }
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        if name.is_empty()
            || name.starts_with(|c: char| c.is_ascii_digit())
            || name.contains(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        {
            let problem = Problem::new(span, format!("`${{{inner}}}` does not name a variable"))
                .expected("`${NAME}`, `${NAME:-default}` or `${file:/path}`")
                .help("for a plain `${` write `$${`");
            self.problems.add(problem);
            return None;
        }
        let value = (self.env)(name).filter(|value| default.is_none() || !value.is_empty());
        let value = value.or_else(|| default.map(str::to_owned));
        if value.is_none() {
            let problem = Problem::new(span, format!("the environment variable `{name}` is not set"))
                .help(format!("set it, or give it a default: `${{{name}:-default}}`"));
            self.problems.add(problem);
        }
        value
    }

    fn file(self, path: &str, span: Span) -> Option<String> {
        let full = self.folder.join(path);
        let reason = match read(&full, MAX_FILE) {
            Ok(text) => return Some(text.trim_end_matches(['\n', '\r']).to_owned()),
            Err(reason) => reason,
        };
        let mut problem = Problem::new(span, format!("the file `{path}` cannot be read: {reason}"));
        if !Path::new(path).is_absolute() {
            problem = problem.help("its path starts at the folder of this file");
        }
        self.problems.add(problem);
        None
    }
}

/// Reads a text file of at most `limit` MiB, whatever it says of its size; fails with the reason in words.
pub(super) fn read(path: &Path, limit: u64) -> Result<String, String> {
    let mut text = String::new();
    let mut file = fs::File::open(path).map_err(|error| reason(&error))?.take((limit << 20) + 1);
    file.read_to_string(&mut text).map_err(|error| reason(&error))?;
    if file.limit() == 0 { Err(format!("it is larger than {limit} MiB")) } else { Ok(text) }
}

/// Why a file cannot be read, in words that are the same everywhere.
pub(super) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "it does not exist".to_owned(),
        io::ErrorKind::PermissionDenied => "reading it is not allowed".to_owned(),
        io::ErrorKind::IsADirectory => "it is a folder".to_owned(),
        io::ErrorKind::InvalidData => "it is not a UTF-8 text".to_owned(),
        _ => error.to_string(),
    }
}
