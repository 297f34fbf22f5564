//! How a connector says where versions stand and how its source is asked for what is new, as it is written.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    de::{Entries, Spanned},
    text::{DurationForm, Literal, PathsForm, PlaceForm, TemplateForm, VersionFormatForm},
};
use crate::domain::order::RowOrder;

/// The version of a record, and how the source is asked for what is new.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct IncrementalFile {
    /// The path of the version in a record, or several: the first that holds something counts. Only where
    /// `state` is not `window` may records have none.
    #[schemars(with = "Option<PathsForm>")]
    pub(super) field: Option<Spanned<Literal>>,
    /// How the source is asked for what is new.
    #[schemars(with = "Option<StateKind>", extend("default" = "window"))]
    pub(super) state: Option<Spanned<StateKind>>,
    /// Where the last page holds what the next run goes on from, for `token` and `url`.
    #[schemars(with = "Option<PlaceForm>")]
    pub(super) token_path: Option<Spanned<String>>,
    /// Where the first token comes from, for sources that do not list what there is. Default: the first run
    /// reads everything, without a token.
    pub(super) token_start: Option<Spanned<TokenStartFile>>,
    /// How long the source knows a token: with an older one a run begins anew without asking.
    #[schemars(with = "Option<DurationForm>")]
    pub(super) retention: Option<Spanned<String>>,
    /// How the source spells versions: a name, or a pattern of strftime.
    #[schemars(with = "Option<VersionFormatForm>", extend("default" = "auto"))]
    pub(super) format: Option<Spanned<String>>,
    /// How requests spell versions. Default: like `format`.
    #[schemars(with = "Option<VersionFormatForm>")]
    pub(super) request_format: Option<Spanned<String>>,
    /// The time zone of versions that name none, and of bounds. A template over `inputs`.
    pub(super) timezone: Option<Spanned<String>>,
    /// The step between two versions of the source. Default: the finest step that `format` spells, and `1s`
    /// for `auto` and `iso8601`.
    #[schemars(with = "Option<DurationForm>")]
    pub(super) granularity: Option<Spanned<String>>,
    /// Whether the source returns rows that stand exactly at the lower bound (`closed`) or not (`open`).
    #[schemars(extend("default" = "closed"))]
    pub(super) range_start: Option<RangeEnd>,
    /// Whether the source returns rows that stand exactly at the upper bound (`closed`) or not (`open`).
    #[schemars(extend("default" = "closed"))]
    pub(super) range_end: Option<RangeEnd>,
    /// How the source sorts the rows. Where it is `asc`, a run that was cut off goes on at the last row it read
    /// instead of reading its window again.
    #[schemars(with = "Option<RowOrder>", extend("default" = "none"))]
    pub(super) row_order: Option<Spanned<RowOrder>>,
    /// For a listing that is newest first and cannot be filtered: a page whose rows all stand below the window's
    /// start ends the walk.
    #[schemars(with = "Option<bool>", extend("default" = false))]
    pub(super) stop_at_start: Option<Spanned<bool>>,
}

/// How a source is asked for what is new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum StateKind {
    /// By versions: `window.start` and `window.end`.
    #[default]
    Window,
    /// By a token that the last page gives: `window.token`.
    Token,
    /// By a whole URL that the last page gives.
    Url,
}

/// Where the first token comes from.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TokenStartFile {
    /// The path behind the root that answers a token.
    pub(super) path: Spanned<String>,
    /// Query parameters; a null is left out, a list repeats its name.
    #[schemars(with = "Option<Entries<Option<TemplateForm>>>")]
    pub(super) query: Option<Entries<Option<Spanned<String>>>>,
    /// Where the answer holds it.
    #[schemars(with = "PlaceForm")]
    pub(super) token_path: Spanned<String>,
}

impl IncrementalFile {
    /// Whether the source is asked by what it gave, and not by versions.
    pub(super) fn goes_by_token(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.value != StateKind::Window)
    }
}

/// What a source does at a bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum RangeEnd {
    /// Rows at the bound are left out.
    Open,
    /// Rows at the bound are returned.
    #[default]
    Closed,
}
