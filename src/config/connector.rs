//! A connector, read and checked: from its file, or from a job's `source:`.

use super::{
    account::RateLimit,
    connector_file::{
        AuthFile, ConnectorFile, ErrorRuleFile, InputFile, RequestFile, SourceFile, StreamFile,
    },
    credentials::check_alternatives,
    de::{Entries, Spanned},
    error::{Problem, Problems, Span},
    inputs, rate_limit,
    rules::{check_changes, check_window},
    streams,
    text::OneOrMany,
    values::check_name,
};

/// How to read one vendor's API.
#[derive(Debug)]
pub(super) struct Connector {
    pub(super) name: String,
    pub(super) base_url: Spanned<String>,
    pub(super) inputs: Entries<Spanned<InputFile>>,
    /// The ways of signing; none where the credentials alone decide.
    pub(super) auth: Option<Vec<AuthFile>>,
    /// Merged into the request of every stream.
    pub(super) request: Option<RequestFile>,
    pub(super) errors: Vec<Spanned<ErrorRuleFile>>,
    pub(super) rate_limit: Option<RateLimit>,
    pub(super) streams: Entries<Spanned<StreamFile>>,
    /// Whether it stands in a job as `source:`.
    pub(super) inline: bool,
    /// Nothing in it is wrong.
    pub(super) usable: bool,
}

impl Connector {
    pub(super) fn from_file(name: &str, file: Spanned<ConnectorFile>, problems: &Problems) -> Self {
        let before = problems.count();
        let (whole, span) = (file.whole, file.span);
        let file = file.value;
        let inputs = file.inputs.unwrap_or_default();
        let connector = Self {
            name: name.to_owned(),
            base_url: file.base_url,
            rate_limit: file.rate_limit.and_then(|limit| rate_limit::build(&limit, None, &inputs, problems)),
            inputs,
            auth: Some(file.auth.map_or_else(Vec::new, |OneOrMany(auth)| auth)),
            request: file.defaults.and_then(|defaults| defaults.request).map(|request| request.value),
            errors: file.errors.unwrap_or_default(),
            streams: file.streams,
            inline: false,
            usable: false,
        };
        connector.checked(before, whole, span, problems)
    }

    pub(super) fn from_source(
        job: &Spanned<String>,
        source: Spanned<SourceFile>,
        problems: &Problems,
    ) -> Self {
        let before = problems.count();
        let (whole, span) = (source.whole, source.span);
        let source = source.value;
        let name = source.name.unwrap_or_else(|| job.clone());
        let stream = StreamFile {
            description: None,
            request: source.request,
            records: source.records,
            primary_key: source.primary_key,
            key_type: source.key_type,
            incremental: source.incremental,
            pagination: source.pagination,
            deleted_when: source.deleted_when,
            rate_limit: None,
            defaults: None,
        };
        let stream = Spanned { value: stream, span, whole, source: None };
        let connector = Self {
            name: name.value.clone(),
            base_url: source.base_url,
            inputs: source.inputs.unwrap_or_default(),
            auth: source.auth.map(|OneOrMany(auth)| auth),
            request: None,
            errors: source.errors.unwrap_or_default(),
            rate_limit: None,
            streams: Entries(vec![(name, stream)]),
            inline: true,
            usable: false,
        };
        connector.checked(before, whole, span, problems)
    }

    /// What messages call it.
    pub(super) fn title(&self) -> String {
        if self.inline { "this source".to_owned() } else { format!("the connector `{}`", self.name) }
    }

    fn checked(mut self, before: usize, whole: bool, span: Span, problems: &Problems) -> Self {
        inputs::check_declared(&self.inputs, problems);
        if let Some(auth) = &self.auth {
            check_alternatives(auth, problems);
        }
        if self.streams.0.is_empty() && whole {
            problems.add(Problem::new(span, "the connector has no streams"));
        }
        for (name, stream) in self.streams.iter() {
            check_name(name, problems);
            streams::build(&self, stream, None, problems);
            let Some(defaults) = &stream.defaults else { continue };
            if let Some(window) = &defaults.window {
                check_window(window, stream.incremental.as_ref(), problems);
            }
            if let Some(changes) = &defaults.changes {
                check_changes(changes, stream.versions().is_some(), problems);
            }
        }
        self.usable = whole && problems.count() == before;
        self
    }
}
