//! A stream as the reader sees it: one kind of record of a vendor's API, with every template compiled and
//! every rule checked.

use std::{
    num::{NonZeroU32, NonZeroU64},
    sync::Arc,
    time::Duration,
};

use jiff::tz::TimeZone;

use super::{
    account::RateLimit,
    template::{Expression, Template},
};
use crate::domain::{
    json_path::JsonPath, key::KeyType, order::RowOrder, version::VersionFormat, version_field::VersionField,
};

/// How one kind of record is read.
#[derive(Debug)]
pub struct Stream {
    /// The API's root, `https://api.example.com/v1`.
    pub base_url: Template,
    /// The path behind the root.
    pub path: Template,
    /// Query parameters, in order; a null is left out, a list repeats its name.
    pub query: Vec<(String, Template)>,
    /// Request headers; a null is left out.
    pub headers: Vec<(String, Template)>,
    /// Where the records stand in a page.
    pub records: Records,
    /// The parts of a record's key.
    pub primary_key: Vec<JsonPath>,
    /// Whether `123` and `"123"` are one key.
    pub key_type: KeyType,
    /// The version of a record; `None` where records have none and each run is a full walk.
    pub incremental: Option<Incremental>,
    /// What runs go on from that is no version.
    pub sync: Option<SyncState>,
    /// Whether the source is told which answer it gave last.
    pub conditional: bool,
    /// Whether requests name `window.end`, so that a part of the window can be asked for.
    pub bounded: bool,
    /// How the next page is found.
    pub pagination: Pagination,
    /// What answers mean that are not data, first match wins.
    pub errors: Vec<ErrorRule>,
    /// How often it may be asked, where the vendor limits it beside the account.
    pub rate_limit: Option<RateLimit>,
    /// Marks a record as deleted.
    pub deleted_when: Option<Expression>,
}

/// Where the records stand in a page.
#[derive(Debug)]
pub struct Records {
    /// The list.
    pub path: JsonPath,
    /// Keeps the records for which it holds.
    pub filter: Option<Expression>,
    /// What a missing or null list means.
    pub missing: Missing,
    /// How a body is written.
    pub format: RecordFormat,
    /// What stands at the path.
    pub shape: Shape,
}

/// How a body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordFormat {
    /// One JSON document.
    Json,
    /// One JSON value a line.
    Ndjson,
    /// A table with a header row.
    Csv {
        /// What separates the values.
        delimiter: u8,
    },
    /// One XML document.
    Xml,
}

impl RecordFormat {
    /// What people call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Json => "JSON",
            Self::Ndjson => "NDJSON",
            Self::Csv { .. } => "CSV",
            Self::Xml => "XML",
        }
    }

    /// What a request says it accepts.
    pub const fn accept(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Ndjson => "application/x-ndjson, application/json;q=0.9",
            Self::Csv { .. } => "text/csv, */*;q=0.1",
            Self::Xml => "application/xml, text/xml, application/rss+xml, application/atom+xml, */*;q=0.1",
        }
    }
}

/// What stands at the path of the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A list of records, or one record.
    List,
    /// A map of ids to records.
    Entries {
        /// The member of the record that the id becomes.
        key_as: String,
    },
    /// A list of rows; the names of their values stand at this path.
    Columns(JsonPath),
}

/// What a missing or null record list means.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// An answer that is not data: the run fails.
    #[default]
    Fail,
    /// No records, where the vendor documents it so.
    Empty,
}

/// The version of a record.
#[derive(Debug)]
pub struct Incremental {
    /// Where it stands in a record.
    pub field: VersionField,
    /// How the source spells it.
    pub format: VersionFormat,
    /// How requests spell it.
    pub request_format: VersionFormat,
    /// The zone of values that name none, and of bounds.
    pub timezone: Option<TimeZone>,
    /// How the source sorts the rows.
    pub row_order: RowOrder,
    /// The listing is newest first and not filtered: a page that stands below the window's start as a whole
    /// ends the walk.
    pub stop_at_start: bool,
}

/// How runs go on from what the last page of the run before held.
#[derive(Debug)]
pub struct SyncState {
    /// Where the last page holds it.
    pub place: Place,
    /// It is the URL of the next run's first page; else a token for the request.
    pub is_url: bool,
    /// Where the first token comes from; `None` where the first run reads everything.
    pub start: Option<TokenStart>,
    /// How long the source knows it.
    pub retention: Option<Duration>,
}

/// The request for the first token.
#[derive(Debug)]
pub struct TokenStart {
    /// The path behind the root.
    pub path: Template,
    /// Query parameters, in order.
    pub query: Vec<(String, Template)>,
    /// Where the answer holds the token.
    pub token: Place,
}

/// A place in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the body.
    Body(JsonPath),
    /// A header, its name in lower case.
    Header(String),
}

/// How the next page is found, and where the answer says whether there is one.
#[derive(Clone, Debug)]
pub struct Pagination {
    /// How the next page is asked for.
    pub kind: PageKind,
    /// A flag that is false on the last page.
    pub has_more: Option<Place>,
    /// The number of rows in all.
    pub total: Option<Place>,
    /// Holds for the answer that is the last page.
    pub stop: Option<Arc<Expression>>,
    /// A walk that needs more pages fails.
    pub max_pages: Option<NonZeroU32>,
    /// A listing of as many rows may have lost the rest.
    pub max_rows: Option<NonZeroU64>,
    /// How long the place of a next page stays good.
    pub token_ttl: Option<Duration>,
    /// Rows can move between two requests. Offset pages overlap then, and other walks are repeated.
    pub shifts: bool,
}

impl Pagination {
    /// Pages of a kind over rows that keep their places, without further rules.
    pub fn plain(kind: PageKind) -> Self {
        Self {
            kind,
            has_more: None,
            total: None,
            stop: None,
            max_pages: None,
            max_rows: None,
            token_ttl: None,
            shifts: false,
        }
    }
}

/// How the next page is asked for.
#[derive(Clone, Debug)]
pub enum PageKind {
    /// There is one page.
    Single,
    /// `page.number` grows by one.
    PageNumber {
        /// The number of the first page.
        base: u64,
        /// The number of pages in all.
        total_pages: Option<Place>,
    },
    /// `page.offset` grows by the rows received.
    Offset,
    /// `window.start` becomes the version of the last row, which the next page brings again.
    Keyset,
    /// `page.token` is what the answer says.
    Token(Place),
    /// `page.token` is a field of the last record of the page.
    LastRecord(JsonPath),
    /// The `Link` header's `next` (RFC 8288).
    LinkHeader,
    /// The answer holds the next page's URL.
    NextUrl(Place),
}

/// What an answer means that is not data.
#[derive(Debug)]
pub struct ErrorRule {
    /// The status it is about; `None` is any.
    pub status: Option<u16>,
    /// Holds for the answers it is about.
    pub when: Option<Expression>,
    /// What to do.
    pub action: ErrorAction,
    /// How long to wait first.
    pub wait: Option<WaitRule>,
}

/// What to do about an answer that is not data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorAction {
    /// Ask for the same page again, a bounded number of times.
    Retry,
    /// The source is out of patience: wait as it says, then ask for the same page again.
    RateLimited,
    /// Fail the run at once.
    Fail,
    /// The access token is no longer good: renew it, then ask for the same page again, once.
    RefreshAuth,
    /// There are no records, as the vendor documents it: the page counts as empty.
    Empty,
    /// The place of the next page is not good any more: read this part of the window from its first page.
    RestartWindow,
    /// The listing is too long for the source: ask for this part of the window in two halves.
    SplitWindow,
    /// The source does not know the token of the run before any more: begin anew without it.
    ResetToken,
}

/// How long to wait.
#[derive(Debug)]
pub enum WaitRule {
    /// Always this long.
    Fixed(Duration),
    /// What the answer says.
    From {
        /// Where it says so.
        place: Place,
        /// The unit of a plain number.
        unit: WaitUnit,
        /// Picks the number out of a text, by its first group.
        pattern: Option<regex_lite::Regex>,
    },
}

impl ErrorAction {
    /// The name in the file.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::RateLimited => "rate_limited",
            Self::Fail => "fail",
            Self::RefreshAuth => "refresh_auth",
            Self::Empty => "empty",
            Self::RestartWindow => "restart_window",
            Self::SplitWindow => "split_window",
            Self::ResetToken => "reset_token",
        }
    }

    /// Whether it waits before it asks again.
    pub(super) const fn waits(self) -> bool {
        matches!(self, Self::Retry | Self::RateLimited)
    }
}

impl PartialEq for WaitRule {
    fn eq(&self, other: &Self) -> bool {
        let text =
            |pattern: &Option<regex_lite::Regex>| pattern.as_ref().map(|regex| regex.as_str().to_owned());
        match (self, other) {
            (Self::Fixed(one), Self::Fixed(other)) => one == other,
            (Self::From { place, unit, pattern }, Self::From { place: p, unit: u, pattern: other }) => {
                place == p && unit == u && text(pattern) == text(other)
            }
            _ => false,
        }
    }
}

/// The unit of a wait that an answer names.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum WaitUnit {
    /// Seconds from now.
    #[default]
    Seconds,
    /// The instant to wait for, in seconds since 1970.
    EpochS,
    /// The instant to wait for, in milliseconds since 1970.
    EpochMs,
    /// The instant to wait for, as an ISO 8601 timestamp.
    Iso8601,
}
