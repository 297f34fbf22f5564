//! Makes the stream that the reader sees out of a connector's words: templates compiled, paths read, every
//! rule checked.

use jiff::tz::TimeZone;
use serde_json::{Map, Value as Json};

use super::{
    connector::Connector,
    connector_file::{AuthFile, ErrorRuleFile, RequestFile, StreamFile},
    de::{Entries, Spanned},
    error::{Problem, Problems},
    incremental_file::IncrementalFile,
    rate_limit::{self, wait_from},
    records::records,
    stream::{ErrorAction, ErrorRule, Incremental, Stream, WaitRule},
    template::{Scope, Template, template_value},
    text::{TextOr, spanned},
    values::{duration, expression, is_token, paths, template, version_format, web_url, zone},
};
use crate::domain::{json_path::JsonPath, order::RowOrder, version_field::VersionField};

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
    let incremental = stream.versions().map(|incremental| builder.incremental(incremental));
    let sync = builder.sync(stream, &request);
    let pagination = builder.pagination(stream.pagination.as_ref());
    if let Some(file) = &stream.pagination {
        builder.uses_page(file, &stream.request, &request);
        builder.sorts_by_version(file, stream);
    }
    if let Some(file) = &stream.incremental {
        builder.stops_at_start(file, stream.pagination.as_ref(), &request);
        if let (Some(Some(rule)), Some(pages)) = (&incremental, &pagination) {
            builder.creeps(file, rule, pages);
        }
    }
    if stream.incremental.is_none() && stream.whole {
        builder.uses_no_window(&request);
    }
    let bounded = request.uses("window.end");
    let errors = builder.errors(&connector.errors, connector.auth.as_deref());
    let rate_limit = stream
        .rate_limit
        .as_ref()
        .and_then(|limit| rate_limit::build(limit, None, &connector.inputs, problems));
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
        sync,
        conditional: request.conditional,
        bounded,
        pagination: pagination?,
        errors,
        rate_limit,
        deleted_when,
    })
}

type Pair<'a> = (&'a Spanned<String>, &'a Spanned<String>);

/// The connector's default request with the stream's own keys on top.
#[derive(Default)]
pub(super) struct Request<'a> {
    path: Option<&'a Spanned<String>>,
    query: Vec<Pair<'a>>,
    headers: Vec<Pair<'a>>,
    conditional: bool,
}

impl<'a> Request<'a> {
    /// Every text that may hold a template.
    pub(super) fn texts(&self) -> impl Iterator<Item = &'a Spanned<String>> {
        self.query.iter().chain(&self.headers).map(|(_, value)| *value).chain(self.path)
    }

    /// Whether a name stands in one of its templates.
    pub(super) fn uses(&self, name: &str) -> bool {
        self.texts().any(|text| text.contains(name))
    }
}

fn merged<'a>(defaults: Option<&'a RequestFile>, own: &'a RequestFile) -> Request<'a> {
    let mut request = Request::default();
    for part in [defaults, Some(own)].into_iter().flatten() {
        request.path = part.path.as_ref().or(request.path);
        request.conditional = part.conditional.unwrap_or(request.conditional);
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

pub(super) struct Builder<'a> {
    pub(super) inputs: &'a [String],
    values: Option<&'a Map<String, Json>>,
    pub(super) problems: &'a Problems,
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
        self.path(text)
    }

    pub(super) fn path(&self, text: &Spanned<String>) -> Option<Template> {
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

    pub(super) fn pairs(&self, pairs: &[Pair<'_>], good: impl Fn(&str) -> bool) -> Vec<(String, Template)> {
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

    fn incremental(&self, file: &Spanned<IncrementalFile>) -> Option<Incremental> {
        let Some(field) = &file.field else {
            if file.whole {
                let problem = Problem::new(file.span, "`incremental` lacks the key `field`");
                self.problems
                    .add(problem.help("`field`: the path of the version in a record, such as `updated_at`"));
            }
            return None;
        };
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
        let field = VersionField::new(paths(field, self.problems)?);
        let stop_at_start = file.stop_at_start.as_ref().is_some_and(|stop| stop.value);
        let row_order = file.row_order.as_ref().map_or_else(RowOrder::default, |order| order.value);
        Some(Incremental { field, format, request_format, timezone, row_order, stop_at_start })
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

    /// Without versions there is no window, and a bound that is always empty is a mistake.
    fn uses_no_window(&self, request: &Request<'_>) {
        for text in request.texts().filter(|text| text.contains("{{") && text.contains("window.")) {
            let message = "the window is always empty here: the records of this stream have no versions";
            let help = "say where the version stands: `incremental: {field: updated_at}`";
            self.problems.add(Problem::new(text.span, message).help(help));
        }
    }

    /// The rules about answers that are no data. `auth` lists the ways of signing, where the connector does.
    fn errors(&self, files: &[Spanned<ErrorRuleFile>], auth: Option<&[AuthFile]>) -> Vec<ErrorRule> {
        let has_tokens = auth.is_none_or(|ways| ways.iter().any(|way| way.r#type.has_tokens()));
        let mut rules: Vec<ErrorRule> = Vec::new();
        for file in files {
            if file.action.value == ErrorAction::RefreshAuth && !has_tokens {
                let message = "`refresh_auth` does nothing here: no way of signing has a token to renew";
                let problem = Problem::new(file.action.span, message);
                self.problems.add(problem.expected("`auth` of a type of OAuth2, or another action"));
            }
            if let Some(wait) = &file.wait
                && !file.action.value.waits()
            {
                let action = file.action.value.name();
                let message = format!("`wait` does nothing with the action `{action}`");
                self.problems.add(Problem::new(wait.span, message));
            }
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
            TextOr::Map(file) => wait_from(file, self.problems),
        }
    }
}
