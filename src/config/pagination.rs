//! How a connector says that the next page is found: its words read, and those that would do nothing or
//! never end told of.

use std::sync::Arc;

use super::{
    connector_file::{PaginationFile, PaginationType, RequestFile, StreamFile},
    de::Spanned,
    error::Problem,
    incremental_file::IncrementalFile,
    stream::{Incremental, PageKind, Pagination},
    streams::{Builder, Request},
    template::Scope,
    values::{expression, path, place, positive_duration},
};
use crate::domain::order::RowOrder;

impl Builder<'_> {
    pub(super) fn pagination(&self, file: Option<&Spanned<PaginationFile>>) -> Option<Pagination> {
        let Some(file) = file else {
            return Some(Pagination::plain(PageKind::Single));
        };
        let kind = file.r#type.value;
        let shifts = matches!(kind, PaginationType::Offset | PaginationType::PageNumber);
        let shifts = file.shifts.as_ref().map_or(shifts, |shifts| shifts.value);
        self.useless_keys(file);
        self.forgotten_places(file, shifts);
        let optional =
            |text: &Option<Spanned<String>>| text.as_ref().and_then(|text| place(text, self.problems));
        let kind = match kind {
            PaginationType::None => PageKind::Single,
            PaginationType::Offset => PageKind::Offset,
            PaginationType::Keyset => PageKind::Keyset,
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
        let scope = Scope::Answer { inputs: self.inputs };
        let stop = file.stop_condition.as_ref().and_then(|text| expression(text, scope, self.problems));
        Some(Pagination {
            kind,
            has_more: optional(&file.has_more_path),
            total: optional(&file.total_path),
            stop: stop.map(Arc::new),
            max_pages: file.max_pages.as_ref().map(|most| most.value),
            max_rows: file.max_rows.as_ref().map(|most| most.value),
            token_ttl: match &file.token_ttl {
                Some(text) => Some(positive_duration(text, "token_ttl", self.problems)?),
                None => None,
            },
            shifts,
        })
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
        use PaginationType::{Cursor, Keyset, NextUrl, None as Single, PageNumber};
        let kind = file.r#type.value;
        let keys = [
            (kind == PageNumber, "base_page", file.base_page.as_ref().map(|key| key.span)),
            (kind == PageNumber, "total_pages_path", file.total_pages_path.as_ref().map(|key| key.span)),
            (kind == Cursor, "token_path", file.token_path.as_ref().map(|key| key.span)),
            (kind == Cursor, "token_field", file.token_field.as_ref().map(|key| key.span)),
            (kind == NextUrl, "next_url_path", file.next_url_path.as_ref().map(|key| key.span)),
            (kind != Single, "has_more_path", file.has_more_path.as_ref().map(|key| key.span)),
            (kind != Single, "total_path", file.total_path.as_ref().map(|key| key.span)),
            (kind != Single, "stop_condition", file.stop_condition.as_ref().map(|key| key.span)),
            (kind != Single, "max_pages", file.max_pages.as_ref().map(|key| key.span)),
            (kind != Keyset, "max_rows", file.max_rows.as_ref().map(|key| key.span)),
            (!matches!(kind, Single | Keyset), "token_ttl", file.token_ttl.as_ref().map(|key| key.span)),
            (!matches!(kind, Single | Keyset), "shifts", file.shifts.as_ref().map(|key| key.span)),
        ];
        for (_, key, span) in keys.into_iter().filter(|(useful, ..)| !useful) {
            let Some(span) = span else { continue };
            let message = format!("`{key}` does nothing with pagination of the type `{}`", kind.name());
            self.problems.add(Problem::new(span, message));
        }
    }

    /// A walk that has to be compared with what it read before cannot go on in the middle.
    fn forgotten_places(&self, file: &PaginationFile, shifts: bool) {
        let Some(text) =
            file.token_ttl.as_ref().filter(|_| shifts && file.r#type.value != PaginationType::Keyset)
        else {
            return;
        };
        let message = "`token_ttl` does nothing where rows can move between pages";
        let problem = Problem::new(text.span, message);
        self.problems
            .add(problem.help("write `shifts: false` where they keep their places, or remove `token_ttl`"));
    }

    /// A keyset walk goes from version to version.
    pub(super) fn sorts_by_version(&self, file: &Spanned<PaginationFile>, stream: &Spanned<StreamFile>) {
        let order = stream.incremental.as_ref().and_then(|incremental| incremental.row_order.as_ref());
        if let Some(order) =
            order.filter(|order| file.r#type.value == PaginationType::Keyset && order.value != RowOrder::Asc)
        {
            let message = "pagination of the type `keyset` needs rows sorted by version, oldest first";
            self.problems.add(Problem::new(order.span, message).expected("`asc`, or nothing"));
        }
        if file.r#type.value == PaginationType::Keyset && stream.incremental.is_none() && stream.whole {
            let message = "pagination of the type `keyset` needs versions, and this stream has none";
            let help = "say where the version stands: `incremental: {field: updated_at}`";
            self.problems.add(Problem::new(file.r#type.span, message).help(help));
        }
    }

    /// The end of a listing that is newest first, where something else ends it already.
    pub(super) fn stops_at_start(
        &self,
        incremental: &IncrementalFile,
        pagination: Option<&Spanned<PaginationFile>>,
        request: &Request<'_>,
    ) {
        let Some(stop) = incremental.stop_at_start.as_ref().filter(|stop| stop.value) else { return };
        if let Some(order) = incremental.row_order.as_ref().filter(|order| order.value == RowOrder::Asc) {
            let message = "`stop_at_start` is for listings that are newest first";
            self.problems.add(Problem::new(order.span, message).expected("`desc`, or nothing"));
            return;
        }
        let kind = pagination.map_or(PaginationType::None, |file| file.r#type.value);
        let message = if kind == PaginationType::None {
            "`stop_at_start` does nothing here: there is one page"
        } else if request.uses("window.start") {
            "`stop_at_start` does nothing here: the request asks from `window.start` on"
        } else {
            return;
        };
        self.problems.add(Problem::new(stop.span, message));
    }

    /// Versions that are plain numbers are only known to be complete up to the first page, unless the listing
    /// is sorted.
    pub(super) fn creeps(
        &self,
        incremental: &Spanned<IncrementalFile>,
        rule: &Incremental,
        pages: &Pagination,
    ) {
        let is_sorted = rule.row_order == RowOrder::Asc || matches!(pages.kind, PageKind::Keyset);
        let is_creeping = !rule.format.is_time() && !is_sorted && incremental.row_order.is_none();
        if is_creeping && !matches!(pages.kind, PageKind::Single) && !rule.stop_at_start {
            self.problems.warn(
                incremental.span,
                "nothing says how the rows are sorted, so that after a walk of many pages the watermark moves no \
                 further than the first one: write `row_order: asc` where the request sorts by version, oldest first",
            );
        }
    }

    /// A request that never asks for another page would read the first one for ever.
    pub(super) fn uses_page(
        &self,
        file: &Spanned<PaginationFile>,
        own: &Spanned<RequestFile>,
        request: &Request<'_>,
    ) {
        let name = match file.r#type.value {
            PaginationType::Cursor => "page.token",
            PaginationType::Offset => "page.offset",
            PaginationType::PageNumber => "page.number",
            PaginationType::Keyset => "window.start",
            PaginationType::None | PaginationType::LinkHeader | PaginationType::NextUrl => return,
        };
        if own.whole && !request.uses(name) {
            let kind = file.r#type.value.name();
            let message =
                format!("pagination of the type `{kind}` needs `{name}`, which the request never uses");
            let help = format!(
                "add the parameter that asks for the next page, such as `after: \"{{{{ {name} }}}}\"`"
            );
            self.problems.add(Problem::new(file.r#type.span, message).help(help));
        }
    }
}

impl PaginationType {
    const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::PageNumber => "page_number",
            Self::Offset => "offset",
            Self::Keyset => "keyset",
            Self::Cursor => "cursor",
            Self::LinkHeader => "link_header",
            Self::NextUrl => "next_url",
        }
    }
}
