//! What is wrong with a configuration, and where: places in files, problems collected as they are met, and
//! the errors that a person or a program gets to see, all of them at once and sorted by place.
//!
//! Snippets show the file's own text, so a `${NAME}` stays a name; credentials written out are masked.

use std::{cell::RefCell, collections::HashSet, fmt, ops::Range, path::Path};

use serde::Serialize;

/// The longest part of a source line that a snippet shows, in characters.
const SNIPPET_WIDTH: usize = 120;

/// The most errors that are told at once: nobody reads more, and a hostile file could hold a million.
const MAX_TOLD: usize = 200;

/// A place in one of the files that were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Span {
    pub(super) file: u32,
    pub(super) start: u32,
    pub(super) end: u32,
}

impl Span {
    /// The bytes of the place in its file.
    pub(super) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// One thing that is wrong.
#[derive(Debug)]
pub(super) struct Problem {
    span: Span,
    message: String,
    expected: Option<String>,
    help: Option<String>,
}

impl Problem {
    pub(super) fn new(span: Span, message: impl Into<String>) -> Self {
        Self { span, message: message.into(), expected: None, help: None }
    }

    /// What should stand there.
    pub(super) fn expected(mut self, expected: impl Into<String>) -> Self {
        self.expected = Some(expected.into());
        self
    }

    /// What to do about it.
    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Names the candidate that was probably meant, if one is near.
    pub(super) fn meant<'a>(self, wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Self {
        match nearest(wrong, candidates) {
            Some(near) => self.help(format!("did you mean `{near}`?")),
            None => self,
        }
    }
}

/// The candidate that is near enough to be a misspelling of each other.
pub fn nearest<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace(['-', ' '], "_");
    let wrong = plain(wrong);
    let limit = (wrong.chars().count() / 3).clamp(1, 4);
    let distance = |candidate: &str| {
        let candidate = plain(candidate);
        // `Zagreb` means `Europe/Zagreb`.
        let candidate = match candidate.rsplit_once('/') {
            Some((_, last)) if !wrong.contains('/') => last.to_owned(),
            _ => candidate,
        };
        let begins = candidate.starts_with(&wrong) || wrong.starts_with(&candidate);
        if begins && wrong.len().min(candidate.len()) > 2 {
            1
        } else {
            strsim::damerau_levenshtein(&wrong, &candidate)
        }
    };
    candidates
        .into_iter()
        .map(|candidate| (distance(candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Names as a sentence lists them, each in backquotes.
pub(super) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

/// A file that was read.
#[derive(Debug)]
struct Source {
    name: String,
    text: String,
    masked: Vec<Range<usize>>,
}

/// The files that were read and what is wrong with them.
#[derive(Debug, Default)]
pub(super) struct Problems {
    sources: RefCell<Vec<Source>>,
    found: RefCell<Vec<Problem>>,
    warnings: RefCell<Vec<Problem>>,
}

impl Problems {
    /// Takes a file in; its number is what spans carry.
    pub(super) fn open(&self, name: &str, text: &str) -> u32 {
        let mut sources = self.sources.borrow_mut();
        sources.push(Source { name: name.to_owned(), text: text.to_owned(), masked: Vec::new() });
        u32::try_from(sources.len() - 1).unwrap_or(u32::MAX)
    }

    /// Keeps a place out of every snippet and message.
    pub(super) fn mask(&self, span: Span) {
        if let Some(source) = self.sources.borrow_mut().get_mut(span.file as usize) {
            source.masked.push(span.range());
        }
    }

    /// Whether any part of a place is masked.
    pub(super) fn is_masked(&self, span: Span) -> bool {
        let sources = self.sources.borrow();
        let masked = sources.get(span.file as usize).map_or(&[][..], |source| &source.masked);
        masked.iter().any(|range| range.start < span.range().end && span.range().start < range.end)
    }

    pub(super) fn add(&self, problem: Problem) {
        self.found.borrow_mut().push(problem);
    }

    /// Adds something that is allowed but probably not meant.
    pub(super) fn warn(&self, span: Span, message: impl Into<String>) {
        self.warnings.borrow_mut().push(Problem::new(span, message));
    }

    /// How many problems were found so far.
    pub(super) fn count(&self) -> usize {
        self.found.borrow().len()
    }

    /// The line of a place, from 1.
    pub(super) fn line(&self, span: Span) -> usize {
        let sources = self.sources.borrow();
        sources.get(span.file as usize).map_or(1, |source| source.position(span.range().start).0)
    }

    /// The result: the warnings, or all errors, sorted by place.
    pub(super) fn finish(self) -> Result<Vec<String>, ConfigErrors> {
        let sources = self.sources.into_inner();
        let told = |mut problems: Vec<Problem>| -> (Vec<ConfigError>, usize) {
            problems.sort_by_key(|problem| problem.span);
            // What several jobs share is checked for each of them.
            let mut seen = HashSet::new();
            problems.retain(|problem| seen.insert((problem.span, problem.message.clone())));
            let left_out = problems.len().saturating_sub(MAX_TOLD);
            problems.truncate(MAX_TOLD);
            (problems.into_iter().filter_map(|problem| tell(&sources, problem)).collect(), left_out)
        };
        let (errors, left_out) = told(self.found.into_inner());
        if errors.is_empty() {
            let (warnings, _) = told(self.warnings.into_inner());
            return Ok(warnings.iter().map(ConfigError::headline).collect());
        }
        Err(ConfigErrors { errors, left_out })
    }
}

fn tell(sources: &[Source], problem: Problem) -> Option<ConfigError> {
    let source = sources.get(problem.span.file as usize)?;
    let (line, column) = source.position(problem.span.range().start);
    let hide = |text: String| source.without_masked(text, problem.span);
    Some(ConfigError {
        file: source.name.clone(),
        line: Some(line),
        column: Some(column),
        message: hide(problem.message),
        expected: problem.expected.map(hide),
        help: problem.help.map(hide),
        snippet: Some(source.snippet(problem.span.range())),
    })
}

impl Source {
    /// Line and column of a byte, both from 1, the column in characters.
    fn position(&self, byte: usize) -> (usize, usize) {
        let before = self.text.get(..byte.min(self.text.len())).unwrap_or(&self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        (line, column)
    }

    /// The line of a place with carets under it. A place that goes on below is marked to the line's end.
    fn snippet(&self, place: Range<usize>) -> String {
        let (line, column) = self.position(place.start);
        let start = self.text.get(..place.start).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1);
        let shown: String =
            self.text.get(start..).unwrap_or_default().lines().next().unwrap_or_default().into();
        let mut shown: Vec<char> =
            shown.char_indices().map(|(at, c)| if self.hides(start + at) { '*' } else { c }).collect();
        let mut before = column - 1;
        let marked = self.text.get(place).unwrap_or_default().lines().next().unwrap_or_default();
        let mut carets = marked.trim_end().chars().count().max(1);
        if shown.len() > SNIPPET_WIDTH {
            let cut = before.saturating_sub(SNIPPET_WIDTH / 3);
            before -= cut;
            shown = shown.into_iter().skip(cut).take(SNIPPET_WIDTH).collect();
            carets = carets.min(SNIPPET_WIDTH.saturating_sub(before).max(1));
        }
        let gap: String =
            (0..before).map(|at| if shown.get(at) == Some(&'\t') { '\t' } else { ' ' }).collect();
        let number = line.to_string();
        let margin = " ".repeat(number.len());
        let shown: String = shown.into_iter().collect();
        format!("{margin} |\n{number} | {}\n{margin} | {gap}{}", shown.trim_end(), "^".repeat(carets))
    }

    /// A message about a place, less what is masked there.
    fn without_masked(&self, message: String, place: Span) -> String {
        let overlapping = self
            .masked
            .iter()
            .filter(|range| range.start < place.range().end && place.range().start < range.end);
        overlapping
            .filter_map(|range| self.text.get(range.clone()))
            .map(|masked| masked.trim_matches(['"', '\'']))
            .filter(|masked| !masked.is_empty())
            .fold(message, |message, masked| message.replace(masked, "***"))
    }

    fn hides(&self, byte: usize) -> bool {
        self.masked.iter().any(|range| range.contains(&byte))
    }
}

/// One error of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConfigError {
    /// The file, as it was named.
    pub file: String,
    /// The line from 1; none where the file itself could not be read.
    pub line: Option<usize>,
    /// The column from 1, in characters.
    pub column: Option<usize>,
    /// What is wrong.
    pub message: String,
    /// What should stand there.
    pub expected: Option<String>,
    /// What to do about it.
    pub help: Option<String>,
    /// The source line with carets under the offending text.
    #[serde(skip)]
    pub snippet: Option<String>,
}

impl ConfigError {
    /// `jobs.yaml:12:5: message`.
    pub fn headline(&self) -> String {
        match (self.line, self.column) {
            (Some(line), Some(column)) => format!("{}:{line}:{column}: {}", self.file, self.message),
            _ => format!("{}: {}", self.file, self.message),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.headline())?;
        let margin = " ".repeat(self.line.unwrap_or(0).to_string().len());
        if let Some(snippet) = &self.snippet {
            write!(f, "\n{snippet}")?;
        }
        if let Some(expected) = &self.expected {
            write!(f, "\n{margin} = expected {expected}")?;
        }
        if let Some(help) = &self.help {
            write!(f, "\n{margin} = {help}")?;
        }
        Ok(())
    }
}

/// Everything that is wrong with a configuration, sorted by place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors {
    /// The errors; at least one.
    pub errors: Vec<ConfigError>,
    /// How many more there are.
    pub left_out: usize,
}

impl ConfigErrors {
    /// A file that could not be read at all.
    pub(super) fn unreadable(path: &Path, message: String, help: Option<String>) -> Self {
        let file = path.display().to_string();
        let error =
            ConfigError { file, line: None, column: None, message, expected: None, help, snippet: None };
        Self { errors: vec![error], left_out: 0 }
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for error in &self.errors {
            write!(f, "{error}\n\n")?;
        }
        match (self.errors.len(), self.left_out) {
            (1, 0) => f.write_str("1 error"),
            (count, 0) => write!(f, "{count} errors"),
            (count, more) => write!(f, "{count} errors, and {more} more that are not shown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelling_is_near_and_another_word_is_not() {
        let keys = ["lookback", "settle", "start", "every", "rate_limit", "Europe/Zagreb"];
        let cases = [
            ("lookbak", Some("lookback")),
            ("look_back", Some("lookback")),
            ("Lookback", Some("lookback")),
            ("evry", Some("every")),
            ("rate", Some("rate_limit")),
            ("rate-limit", Some("rate_limit")),
            ("Zagreb", Some("Europe/Zagreb")),
            ("concurrency", None),
            ("x", None),
            ("", None),
        ];
        for (wrong, expected) in cases {
            assert_eq!(nearest(wrong, keys), expected, "{wrong:?}");
        }
    }
}
