//! Makes the stream that the reader sees out of a connector's words: templates compiled, paths read, every
//! rule checked.

use jiff::tz::TimeZone;
use serde_json::{Map, Value as Json};

use super::{
    connector::Connector,
    connector_file::{
        ErrorRuleFile, IncrementalFile, PaginationFile, PaginationType, RequestFile, StreamFile,
    },
    de::{Entries, Spanned},
    error::{Problem, Problems},
    records::records,
    stream::{ErrorRule, Incremental, PageKind, Pagination, Stream, WaitRule},
    template::{Scope, Template, template_value},
    text::{TextOr, spanned},
    values::{
        duration, expression, is_token, path, paths, pattern, place, template, version_format, web_url, zone,
    },
};
use crate::domain::{json_path::JsonPath, version_field::VersionField};

/// Builds a stream. `values` are the job's inputs; without them the stream is only checked.
pub(super) fn build(
    connector: &Connector,
    stream: &Spanned<StreamFile>,
    values: Option<&Map<String, Json>>,
    problems: &Problems,
) -> Option<Stream> {
    let before = problems.count();
    let inputs: Vec<String> = connector.inputs.names().map(str::to_owned).collect();
    let builder = Builder { inputs: &inputs, values, problems };
    let base_url = builder.base_url(&connector.base_url);
    let request = merged(connector.request.as_ref(), &stream.request);
    let path = builder.request_path(&stream.request, request.path);
    let query = builder.pairs(&request.query, |_| true);
    let headers = builder.pairs(&request.headers, is_token);
    let records = records(stream.records.as_ref(), &inputs, problems);
    if stream.primary_key.is_empty() && stream.primary_key.whole {
        let problem = Problem::new(stream.primary_key.span, "`primary_key` is empty");
        problems.add(problem.expected("a list of paths in the record, such as `[id]`"));
    }
    let primary_key: Vec<JsonPath> =
        stream.primary_key.iter().filter_map(|text| super::values::path(text, problems)).collect();
    let incremental = stream.incremental.as_ref().map(|incremental| builder.incremental(incremental));
    let pagination = builder.pagination(stream.pagination.as_ref());
    if let Some(file) = &stream.pagination {
        builder.uses_page(file, &stream.request, &request);
    }
    if stream.incremental.is_none() && stream.whole {
        builder.uses_no_window(&request);
    }
    let bounded = request.texts().any(|text| text.contains("window.end"));
    let errors = builder.errors(&connector.errors);
    let deleted_when = stream
        .deleted_when
        .as_ref()
        .and_then(|text| expression(text, Scope::Record { inputs: &inputs }, problems));
    if problems.count() > before {
        return None;
    }
    Some(Stream {
        base_url: base_url?,
        path: path?,
        query,
        headers,
        records: records?,
        primary_key,
        key_type: stream.key_type.unwrap_or_default(),
        incremental: match incremental {
            Some(incremental) => Some(incremental?),
            None => None,
        },
        bounded,
        pagination: pagination?,
        errors,
        deleted_when,
    })
}

type Pair<'a> = (&'a Spanned<String>, &'a Spanned<String>);

/// The connector's default request with the stream's own keys on top.
#[derive(Default)]
struct Request<'a> {
    path: Option<&'a Spanned<String>>,
    query: Vec<Pair<'a>>,
    headers: Vec<Pair<'a>>,
}

impl<'a> Request<'a> {
    /// Every text that may hold a template.
    fn texts(&self) -> impl Iterator<Item = &'a Spanned<String>> {
        self.query.iter().chain(&self.headers).map(|(_, value)| *value).chain(self.path)
    }
}

fn merged<'a>(defaults: Option<&'a RequestFile>, own: &'a RequestFile) -> Request<'a> {
    let mut request = Request::default();
    for part in [defaults, Some(own)].into_iter().flatten() {
        request.path = part.path.as_ref().or(request.path);
        let lists = [(&part.query, &mut request.query), (&part.headers, &mut request.headers)];
        for (given, list) in lists {
            for (name, value) in given.iter().flat_map(Entries::iter) {
                // A null of the stream's own takes a default away.
                list.retain(|(known, _): &Pair<'_>| known.as_str() != name.as_str());
                list.extend(value.as_ref().map(|value| (name, value)));
            }
        }
    }
    request
}

struct Builder<'a> {
    inputs: &'a [String],
    values: Option<&'a Map<String, Json>>,
    problems: &'a Problems,
}

impl Builder<'_> {
    fn request_scope(&self) -> Scope<'_> {
        Scope::Request { inputs: self.inputs }
    }

    fn base_url(&self, text: &Spanned<String>) -> Option<Template> {
        let root = template(text, self.request_scope(), self.problems)?;
        if let Template::Literal(literal) = &root {
            web_url(text, self.problems)?;
            return Some(Template::Literal(literal.trim_end_matches('/').to_owned()));
        }
        Some(root)
    }

    fn request_path(
        &self,
        request: &Spanned<RequestFile>,
        text: Option<&Spanned<String>>,
    ) -> Option<Template> {
        let Some(text) = text else {
            if request.whole {
                let problem = Problem::new(request.span, "`request` lacks the key `path`");
                self.problems.add(problem.help("`path`: the path behind `base_url`, such as `/issues`"));
            }
            return None;
        };
        if !text.starts_with(['/', '{']) && !text.is_empty() {
            let problem =
                Problem::new(text.span, format!("the path `{}` does not start with `/`", text.shown()));
            self.problems.add(problem);
        } else if text.split("{{").next().is_some_and(|literal| literal.contains('?')) {
            let problem = Problem::new(text.span, format!("the path `{}` holds a `?`", text.shown()));
            self.problems.add(problem.help("write query parameters under `query`"));
        }
        template(text, self.request_scope(), self.problems)
    }

    fn pairs(&self, pairs: &[Pair<'_>], good: impl Fn(&str) -> bool) -> Vec<(String, Template)> {
        let mut built = Vec::new();
        for (name, value) in pairs {
            if name.is_empty() || !good(name) {
                let message = format!("{} cannot be the name of a header or parameter", name.quoted());
                self.problems.add(Problem::new(name.span, message));
            }
            if let Some(value) = template(value, self.request_scope(), self.problems) {
                built.push((name.value.clone(), value));
            }
        }
        built
    }

    fn incremental(&self, file: &IncrementalFile) -> Option<Incremental> {
        let format = version_format(file.format.as_ref(), self.problems);
        let request_format = match &file.request_format {
            Some(text) => version_format(Some(text), self.problems),
            None => format.clone(),
        };
        let (format, request_format) = (format?, request_format?);
        if let Some(text) =
            file.request_format.as_ref().filter(|_| !format.can_be_asked_for_as(&request_format))
        {
            let message = format!(
                "versions of the format `{}` cannot be asked for as `{}`",
                format.name(),
                request_format.name()
            );
            self.problems.add(Problem::new(text.span, message));
        }
        if let Some(text) = &file.granularity {
            duration(text, self.problems);
            if !format.is_time() {
                let message = format!("`granularity` does nothing with the format `{}`", format.name());
                self.problems.add(Problem::new(text.span, message));
            }
        }
        let timezone = match &file.timezone {
            Some(text) if !format.is_time() => {
                let message = format!("`timezone` does nothing with the format `{}`", format.name());
                self.problems.add(Problem::new(text.span, message));
                None
            }
            Some(text) => self.zone(text),
            None => None,
        };
        let field = VersionField::new(paths(&file.field, self.problems)?);
        Some(Incremental { field, format, request_format, timezone })
    }

    /// A zone, which may be a template over the inputs; a null is none.
    fn zone(&self, text: &Spanned<String>) -> Option<TimeZone> {
        let name = match template(text, self.request_scope(), self.problems)? {
            Template::Literal(_) => return zone(text, self.problems),
            name => name,
        };
        let context =
            Json::Object(Map::from_iter([("inputs".to_owned(), Json::Object(self.values?.clone()))]));
        match name.render(&template_value(&context)) {
            Ok(Json::String(name)) => {
                zone(&spanned(&name, text.span, Some(text.shown().to_owned())), self.problems)
            }
            Ok(_) => None,
            Err(error) => {
                self.problems.add(Problem::new(text.span, error.to_string()));
                None
            }
        }
    }

    fn pagination(&self, file: Option<&Spanned<PaginationFile>>) -> Option<Pagination> {
        let Some(file) = file else {
            return Some(Pagination { kind: PageKind::Single, has_more: None, total: None });
        };
        let kind = file.r#type.value;
        self.useless_keys(file);
        let optional =
            |text: &Option<Spanned<String>>| text.as_ref().and_then(|text| place(text, self.problems));
        let kind = match kind {
            PaginationType::None => PageKind::Single,
            PaginationType::Offset => PageKind::Offset,
            PaginationType::LinkHeader => PageKind::LinkHeader,
            PaginationType::PageNumber => PageKind::PageNumber {
                base: file.base_page.as_ref().map_or(1, |base| base.value),
                total_pages: optional(&file.total_pages_path),
            },
            PaginationType::NextUrl => match &file.next_url_path {
                Some(text) => PageKind::NextUrl(place(text, self.problems)?),
                None => return self.lacks(file, "`next_url_path`"),
            },
            PaginationType::Cursor => match (&file.token_path, &file.token_field) {
                (Some(text), None) => PageKind::Token(place(text, self.problems)?),
                (None, Some(text)) => PageKind::LastRecord(path(text, self.problems)?),
                (Some(_), Some(text)) => {
                    let message = "`token_path` and `token_field` both name the next page's token";
                    self.problems.add(Problem::new(text.span, message).help("keep one of the two"));
                    return None;
                }
                (None, None) => return self.lacks(file, "`token_path` or `token_field`"),
            },
        };
        Some(Pagination { kind, has_more: optional(&file.has_more_path), total: optional(&file.total_path) })
    }

    fn lacks<T>(&self, file: &Spanned<PaginationFile>, key: &str) -> Option<T> {
        if file.whole {
            let kind = file.r#type.value.name();
            let message = format!("pagination of the type `{kind}` lacks the key {key}");
            self.problems.add(Problem::new(file.r#type.span, message));
        }
        None
    }

    fn useless_keys(&self, file: &PaginationFile) {
        use PaginationType::{Cursor, NextUrl, None as Single, PageNumber};
        let kind = file.r#type.value;
        let keys = [
            (kind == PageNumber, "base_page", file.base_page.as_ref().map(|key| key.span)),
            (kind == PageNumber, "total_pages_path", file.total_pages_path.as_ref().map(|key| key.span)),
            (kind == Cursor, "token_path", file.token_path.as_ref().map(|key| key.span)),
            (kind == Cursor, "token_field", file.token_field.as_ref().map(|key| key.span)),
            (kind == NextUrl, "next_url_path", file.next_url_path.as_ref().map(|key| key.span)),
            (kind != Single, "has_more_path", file.has_more_path.as_ref().map(|key| key.span)),
            (kind != Single, "total_path", file.total_path.as_ref().map(|key| key.span)),
        ];
        for (_, key, span) in keys.into_iter().filter(|(useful, ..)| !useful) {
            let Some(span) = span else { continue };
            let message = format!("`{key}` does nothing with pagination of the type `{}`", kind.name());
            self.problems.add(Problem::new(span, message));
        }
    }

    /// Without versions there is no window, and a bound that is always empty is a mistake.
    fn uses_no_window(&self, request: &Request<'_>) {
        for text in request.texts().filter(|text| text.contains("{{") && text.contains("window.")) {
            let message = "the window is always empty here: the records of this stream have no versions";
            let help = "say where the version stands: `incremental: {field: updated_at}`";
            self.problems.add(Problem::new(text.span, message).help(help));
        }
    }

    /// A request that never asks for another page would read the first one for ever.
    fn uses_page(&self, file: &Spanned<PaginationFile>, own: &Spanned<RequestFile>, request: &Request<'_>) {
        let name = match file.r#type.value {
            PaginationType::Cursor => "page.token",
            PaginationType::Offset => "page.offset",
            PaginationType::PageNumber => "page.number",
            PaginationType::None | PaginationType::LinkHeader | PaginationType::NextUrl => return,
        };
        if own.whole && !request.texts().any(|text| text.contains(name)) {
            let kind = file.r#type.value.name();
            let message =
                format!("pagination of the type `{kind}` needs `{name}`, which the request never uses");
            let help = format!(
                "add the parameter that asks for the next page, such as `after: \"{{{{ {name} }}}}\"`"
            );
            self.problems.add(Problem::new(file.r#type.span, message).help(help));
        }
    }

    fn errors(&self, files: &[Spanned<ErrorRuleFile>]) -> Vec<ErrorRule> {
        let mut rules: Vec<ErrorRule> = Vec::new();
        for file in files {
            let scope = Scope::Answer { inputs: self.inputs };
            let when = file.when.as_ref().and_then(|text| expression(text, scope, self.problems));
            if file.status.is_none() && file.when.is_none() && file.whole {
                let problem = Problem::new(file.span, "this rule fits every answer, good ones too");
                self.problems.add(problem.help("say which answers it is about by `status` or `when`"));
            }
            let hidden =
                |rule: &ErrorRule| rule.when.is_none() && rule.status.is_some() && rule.status == file.status;
            if rules.iter().any(hidden) {
                let problem =
                    Problem::new(file.span, "this rule is never reached: a rule above fits the same answers");
                self.problems
                    .add(problem.help("the first rule that fits counts: put the narrower one first"));
            }
            let wait = file.wait.as_ref().and_then(|wait| self.wait(wait));
            rules.push(ErrorRule { status: file.status, when, action: file.action.value, wait });
        }
        rules
    }

    fn wait(&self, wait: &Spanned<TextOr<super::connector_file::WaitFile>>) -> Option<WaitRule> {
        match &wait.value {
            TextOr::Text(text) => {
                let text = spanned(text, wait.span, wait.source.clone());
                duration(&text, self.problems).map(WaitRule::Fixed)
            }
            TextOr::Map(file) => Some(WaitRule::From {
                place: place(&file.from, self.problems)?,
                unit: file.unit.unwrap_or_default(),
                pattern: match &file.pattern {
                    Some(text) => {
                        let regex = pattern(text, self.problems)?;
                        if regex.captures_len() < 2 {
                            let problem =
                                Problem::new(text.span, "the pattern has no group to take the number from");
                            self.problems.add(
                                problem.help("put parentheses around the number: `after ([0-9]+) seconds`"),
                            );
                        }
                        Some(regex)
                    }
                    None => None,
                },
            }),
        }
    }
}

impl PaginationType {
    const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::PageNumber => "page_number",
            Self::Offset => "offset",
            Self::Cursor => "cursor",
            Self::LinkHeader => "link_header",
            Self::NextUrl => "next_url",
        }
    }
}
