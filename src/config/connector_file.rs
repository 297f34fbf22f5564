//! Connector files as they are written: the vocabulary that says how to read one vendor's API. A job's
//! `source:` is made of the same types, with one stream's keys beside the connector's.

use std::{
    borrow::Cow,
    num::{NonZeroU32, NonZeroU64},
};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use super::{
    account::{ClientAuth, KeyPlace},
    de::{Entries, Spanned},
    file::{AuthType, ChangesFile, WindowFile},
    incremental_file::IncrementalFile,
    records::RecordsFile,
    stream::{ErrorAction, WaitUnit},
    text::{DurationForm, Literal, OneOrMany, PathForm, PlaceForm, TemplateForm, TextOr},
};
use crate::domain::key::KeyType;

/// How to read one vendor's API.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ConnectorFile {
    /// What the API is, for a person.
    pub(super) description: Option<String>,
    /// The API's root, such as `https://api.example.com/v1`. A template over `inputs`.
    pub(super) base_url: Spanned<String>,
    /// What a job fills in by `with`, by name.
    pub(super) inputs: Option<Entries<Spanned<InputFile>>>,
    /// How requests are signed; a list gives alternatives. Default: not at all.
    pub(super) auth: Option<OneOrMany<AuthFile>>,
    /// What all streams share.
    pub(super) defaults: Option<ConnectorDefaultsFile>,
    /// What answers mean that are not data; the first rule that fits counts.
    pub(super) errors: Option<Vec<Spanned<ErrorRuleFile>>>,
    /// How often the API may be asked.
    pub(super) rate_limit: Option<RateLimitFile>,
    /// The kinds of records, by name.
    pub(super) streams: Entries<Spanned<StreamFile>>,
}

/// What all streams share.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ConnectorDefaultsFile {
    /// Merged into the request of every stream, whose own keys win.
    pub(super) request: Option<Spanned<RequestFile>>,
}

/// What a job fills in by `with`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct InputFile {
    /// What kind of value it takes.
    #[schemars(extend("default" = "string"))]
    pub(super) r#type: Option<InputType>,
    /// Whether a job must give it.
    #[schemars(with = "Option<bool>", extend("default" = false))]
    pub(super) required: Option<Spanned<bool>>,
    /// The value where a job gives none. Default: null, which leaves a parameter out.
    pub(super) default: Option<Spanned<Literal>>,
    /// A regular expression that the value must match.
    pub(super) pattern: Option<Spanned<String>>,
    /// What it is, for a person.
    pub(super) description: Option<String>,
}

/// What kind of value an input takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum InputType {
    /// A text.
    #[default]
    String,
    /// A whole number.
    Integer,
    /// `true` or `false`.
    Boolean,
    /// A list of texts.
    List,
    /// An IANA time zone.
    Timezone,
    /// An `http` or `https` URL.
    Url,
}

/// A way of signing requests.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AuthFile {
    /// Which one.
    pub(super) r#type: Spanned<AuthType>,
    /// The header's, parameter's or cookie's name of `api_key`.
    pub(super) name: Option<Spanned<String>>,
    /// Where the key of `api_key` goes.
    #[schemars(with = "Option<KeyPlace>", extend("default" = "header"))]
    pub(super) r#in: Option<Spanned<KeyPlace>>,
    /// A text in front of the key of `api_key`.
    pub(super) prefix: Option<Spanned<String>>,
    /// Where the types of OAuth2 get their access tokens: an `https` URL.
    pub(super) token_url: Option<Spanned<String>>,
    /// What the tokens of OAuth2 may be used for, as the provider spells it.
    pub(super) scope: Option<Spanned<String>>,
    /// Where OAuth2's client id and secret go: into the form, or into a header.
    #[schemars(with = "Option<ClientAuth>", extend("default" = "body"))]
    pub(super) client_auth: Option<Spanned<ClientAuth>>,
    /// Further parameters of a request for a token of OAuth2, such as `audience`.
    pub(super) extra: Option<Spanned<Entries<Spanned<String>>>>,
}

/// One kind of record.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamFile {
    /// What the records are, for a person.
    pub(super) description: Option<String>,
    /// The request for a page.
    pub(super) request: Spanned<RequestFile>,
    /// Where the records stand in a page.
    pub(super) records: Option<Spanned<RecordsFile>>,
    /// The parts of a record's key: paths in the record.
    #[schemars(with = "Vec<PathForm>")]
    pub(super) primary_key: Spanned<Vec<Spanned<String>>>,
    /// Whether 123 and "123" are one key.
    #[schemars(extend("default" = "loose"))]
    pub(super) key_type: Option<KeyType>,
    /// The version of a record. Without it each run reads everything and compares contents.
    pub(super) incremental: Option<Spanned<IncrementalFile>>,
    /// How the next page is found. Default: there is one page.
    pub(super) pagination: Option<Spanned<PaginationFile>>,
    /// Holds for records that the source marks as deleted; an expression over `record`.
    pub(super) deleted_when: Option<Spanned<String>>,
    /// How often this stream may be asked, where the API limits it beside the account.
    pub(super) rate_limit: Option<RateLimitFile>,
    /// What jobs on this stream start from.
    pub(super) defaults: Option<StreamDefaultsFile>,
}

/// What jobs on a stream start from; a job's own keys win one by one.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamDefaultsFile {
    /// Which versions a run asks for.
    pub(super) window: Option<Spanned<WindowFile>>,
    /// What counts as a change.
    pub(super) changes: Option<Spanned<ChangesFile>>,
}

/// The request for a page. Values are templates over `inputs`, `window` and `page`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestFile {
    /// The path behind the root.
    pub(super) path: Option<Spanned<String>>,
    /// Query parameters; a null is left out, a list repeats its name.
    #[schemars(with = "Option<Entries<Option<TemplateForm>>>")]
    pub(super) query: Option<Entries<Option<Spanned<String>>>>,
    /// Request headers; a null is left out.
    #[schemars(with = "Option<Entries<Option<TemplateForm>>>")]
    pub(super) headers: Option<Entries<Option<Spanned<String>>>>,
    /// Whether the source answers 304 to the `ETag` of its answer before (`If-None-Match`). Listings of one page
    /// are then read only where they have changed.
    #[schemars(extend("default" = false))]
    pub(super) conditional: Option<bool>,
}

impl StreamFile {
    /// Where the records' versions stand; `None` where they have none.
    pub(super) fn versions(&self) -> Option<&Spanned<IncrementalFile>> {
        self.incremental.as_ref().filter(|rule| rule.field.is_some() || !rule.goes_by_token())
    }
}

/// How the next page is found.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PaginationFile {
    /// Which way.
    pub(super) r#type: Spanned<PaginationType>,
    /// The number of the first page of `page_number`.
    #[schemars(with = "Option<u64>", extend("default" = 1))]
    pub(super) base_page: Option<Spanned<u64>>,
    /// Where the answer says how many pages there are, for `page_number`.
    #[schemars(with = "Option<PlaceForm>")]
    pub(super) total_pages_path: Option<Spanned<String>>,
    /// Where the answer holds the token of the next page, for `cursor`.
    #[schemars(with = "Option<PlaceForm>")]
    pub(super) token_path: Option<Spanned<String>>,
    /// The field of the last record that is the token of the next page, for `cursor`.
    #[schemars(with = "Option<PathForm>")]
    pub(super) token_field: Option<Spanned<String>>,
    /// Where the answer holds the URL of the next page, for `next_url`.
    #[schemars(with = "Option<PlaceForm>")]
    pub(super) next_url_path: Option<Spanned<String>>,
    /// Where the answer says whether there are more pages.
    #[schemars(with = "Option<PlaceForm>")]
    pub(super) has_more_path: Option<Spanned<String>>,
    /// Where the answer says how many rows there are.
    #[schemars(with = "Option<PlaceForm>")]
    pub(super) total_path: Option<Spanned<String>>,
    /// Holds for the answer that is the last page; an expression over `response`, `headers` (their names in
    /// lower case) and `status`.
    pub(super) stop_condition: Option<Spanned<String>>,
    /// How many pages a walk may have: one that needs more fails, and is never taken for complete. Default: any
    /// number.
    #[schemars(with = "Option<NonZeroU32>")]
    pub(super) max_pages: Option<Spanned<NonZeroU32>>,
    /// How many rows the source gives of one listing, however many there are: a listing that reaches it is asked
    /// for again in two halves of its window. Default: any number.
    #[schemars(with = "Option<NonZeroU64>")]
    pub(super) max_rows: Option<Spanned<NonZeroU64>>,
    /// How long the place of a next page stays good: within it, a run that was cut off goes on at the page it
    /// had come to. Default: its window is read from the beginning.
    #[schemars(with = "Option<DurationForm>")]
    pub(super) token_ttl: Option<Spanned<String>>,
    /// Whether rows can move between two requests, because the listing is sorted by what changes or rows can go
    /// away. Offset pages overlap then, and walks of other types are repeated until two agree. Default: true
    /// for `offset` and `page_number`, false for the others.
    #[schemars(with = "Option<bool>")]
    pub(super) shifts: Option<Spanned<bool>>,
}

/// A way to the next page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum PaginationType {
    /// There is one page.
    None,
    /// `page.number` grows by one.
    PageNumber,
    /// `page.offset` grows by the rows received.
    Offset,
    /// `window.start` becomes the version of the last row: for listings sorted by version, oldest first.
    Keyset,
    /// `page.token` comes from the answer or its last record.
    Cursor,
    /// The `Link` header's `next`.
    LinkHeader,
    /// The answer holds the next page's URL.
    NextUrl,
}

/// What an answer means that is not data.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ErrorRuleFile {
    /// The status it is about. Default: any.
    #[schemars(range(min = 100, max = 599))]
    pub(super) status: Option<u16>,
    /// Holds for the answers it is about; an expression over `status`, `response` and `headers` (their
    /// names in lower case).
    pub(super) when: Option<Spanned<String>>,
    /// What to do.
    pub(super) action: Spanned<ErrorAction>,
    /// How long to wait first: a duration, or where the answer says it.
    pub(super) wait: Option<Spanned<TextOr<WaitFile>>>,
}

/// Where an answer says how long to wait.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WaitFile {
    /// The place.
    #[schemars(with = "PlaceForm")]
    pub(super) from: Spanned<String>,
    /// The unit of the number there.
    #[schemars(extend("default" = "seconds"))]
    pub(super) unit: Option<WaitUnit>,
    /// A regular expression whose first group is the number.
    pub(super) pattern: Option<Spanned<String>>,
}

/// A quota: never more than `requests` in any period of `per`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RateLimitFile {
    /// How many requests.
    pub(super) requests: NonZeroU32,
    /// In how long.
    #[schemars(with = "DurationForm")]
    pub(super) per: Spanned<String>,
    /// Where an answer says how many requests are left; at 0 the next one waits.
    #[schemars(with = "Option<PlaceForm>")]
    pub(super) remaining: Option<Spanned<String>>,
    /// Where the answer says until when. Default: for `per`.
    pub(super) reset: Option<Spanned<WaitFile>>,
    /// How many seconds to pause after an answer; an expression over `status`, `response` and `headers`
    /// (their names in lower case). For limits that count points or costs.
    pub(super) pause: Option<Spanned<String>>,
}

/// A source described inside a job: a connector's keys and one stream's.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SourceFile {
    /// What events call the connector and the stream. Default: the job's name.
    pub(super) name: Option<Spanned<String>>,
    /// The API's root, such as `https://api.example.com/v1`. A template over `inputs`.
    pub(super) base_url: Spanned<String>,
    /// What the job fills in by `with`, by name.
    pub(super) inputs: Option<Entries<Spanned<InputFile>>>,
    /// How requests are signed; a list gives alternatives. Default: as the job's credentials say.
    pub(super) auth: Option<OneOrMany<AuthFile>>,
    /// What answers mean that are not data; the first rule that fits counts.
    pub(super) errors: Option<Vec<Spanned<ErrorRuleFile>>>,
    /// The request for a page.
    pub(super) request: Spanned<RequestFile>,
    /// Where the records stand in a page.
    pub(super) records: Option<Spanned<RecordsFile>>,
    /// The parts of a record's key: paths in the record.
    #[schemars(with = "Vec<PathForm>")]
    pub(super) primary_key: Spanned<Vec<Spanned<String>>>,
    /// Whether 123 and "123" are one key.
    #[schemars(extend("default" = "loose"))]
    pub(super) key_type: Option<KeyType>,
    /// The version of a record. Without it each run reads everything and compares contents.
    pub(super) incremental: Option<Spanned<IncrementalFile>>,
    /// How the next page is found. Default: there is one page.
    pub(super) pagination: Option<Spanned<PaginationFile>>,
    /// Holds for records that the source marks as deleted; an expression over `record`.
    pub(super) deleted_when: Option<Spanned<String>>,
}

impl JsonSchema for TextOr<WaitFile> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Wait".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let from = generator.subschema_for::<WaitFile>();
        let fixed = DurationForm::json_schema(generator);
        json_schema!({ "anyOf": [fixed, from] })
    }
}
