//! Streams that go on from a token or a URL which the source gave, and what cannot stand beside that.

use super::{
    connector_file::{PaginationFile, PaginationType, StreamFile},
    de::{Entries, Spanned},
    error::{Problem, Span},
    incremental_file::{IncrementalFile, StateKind},
    stream::{SyncState, TokenStart},
    streams::{Builder, Request},
    values::{place, positive_duration},
};

impl Builder<'_> {
    /// What runs go on from that is no version; `None` where nothing is, or where it cannot be used.
    pub(super) fn sync(&self, stream: &Spanned<StreamFile>, request: &Request<'_>) -> Option<SyncState> {
        let file = stream.incremental.as_ref()?;
        let state = file.state.as_ref().map_or(StateKind::Window, |state| state.value);
        self.useless_beside(state, file, request);
        if state == StateKind::Window {
            return None;
        }
        self.uses_token(state, file, stream.pagination.as_ref(), request);
        let Some(token_path) = &file.token_path else {
            if file.whole {
                let problem = Problem::new(file.span, "`incremental` lacks the key `token_path`");
                self.problems.add(
                    problem.help("`token_path`: where the last page holds what the next run goes on from"),
                );
            }
            return None;
        };
        let retention = file.retention.as_ref();
        Some(SyncState {
            place: place(token_path, self.problems)?,
            is_url: state == StateKind::Url,
            start: match &file.token_start {
                Some(start) => {
                    let query: Vec<_> = start
                        .query
                        .iter()
                        .flat_map(Entries::iter)
                        .filter_map(|(name, value)| Some((name, value.as_ref()?)))
                        .collect();
                    Some(TokenStart {
                        path: self.path(&start.path)?,
                        query: self.pairs(&query, |_| true),
                        token: place(&start.token_path, self.problems)?,
                    })
                }
                None => None,
            },
            retention: match retention {
                Some(text) => Some(positive_duration(text, "retention", self.problems)?),
                None => None,
            },
        })
    }

    /// Keys that do nothing with this kind of state.
    fn useless_beside(&self, state: StateKind, file: &IncrementalFile, request: &Request<'_>) {
        let by_window = state == StateKind::Window;
        let keys: [(bool, &str, Option<Span>); 7] = [
            (!by_window, "token_path", file.token_path.as_ref().map(|key| key.span)),
            (state == StateKind::Token, "token_start", file.token_start.as_ref().map(|key| key.span)),
            (!by_window, "retention", file.retention.as_ref().map(|key| key.span)),
            (by_window, "request_format", file.request_format.as_ref().map(|key| key.span)),
            (by_window, "row_order", file.row_order.as_ref().map(|key| key.span)),
            (by_window, "stop_at_start", file.stop_at_start.as_ref().map(|key| key.span)),
            (by_window || file.field.is_some(), "format", file.format.as_ref().map(|key| key.span)),
        ];
        for (_, key, span) in keys.into_iter().filter(|(useful, ..)| !useful) {
            let Some(span) = span else { continue };
            let message = format!("`{key}` does nothing with the state `{}`", state.name());
            self.problems.add(Problem::new(span, message));
        }
        let names: &[&str] = match state {
            StateKind::Window => &["window.token"],
            StateKind::Token => &["window.start", "window.end"],
            StateKind::Url => &["window.start", "window.end", "window.token"],
        };
        for text in request.texts().filter(|text| text.contains("{{")) {
            let Some(name) = names.iter().find(|name| text.contains(**name)) else { continue };
            let message = format!("`{name}` is always empty with the state `{}`", state.name());
            self.problems.add(Problem::new(text.span, message));
        }
    }

    fn uses_token(
        &self,
        state: StateKind,
        file: &Spanned<IncrementalFile>,
        pagination: Option<&Spanned<PaginationFile>>,
        request: &Request<'_>,
    ) {
        if state == StateKind::Token && file.whole && !request.uses("window.token") {
            let message = "the state `token` needs `window.token`, which the request never uses";
            let help = "add the parameter that takes the token, such as `syncToken: \"{{ window.token }}\"`";
            self.problems.add(Problem::new(file.span, message).help(help));
        }
        if let Some(keyset) = pagination.filter(|file| file.r#type.value == PaginationType::Keyset) {
            let message = "pagination of the type `keyset` goes from version to version, and this stream goes on \
                           from a token";
            self.problems.add(Problem::new(keyset.r#type.span, message));
        }
    }
}

impl StateKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::Token => "token",
            Self::Url => "url",
        }
    }
}
