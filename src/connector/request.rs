//! One request made from a stream's templates: its address and its headers, before it is signed.

use minijinja::Value as Slot;
use reqwest::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value, json};
use url::Url;

use super::{
    address::{self, AddressError, add_query, encoded, texts_of},
    pager::Position,
};
use crate::config::{
    stream::{Stream, TokenStart},
    template::{Template, TemplateError, template_value},
};

/// Why a request cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// A template failed.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The address cannot be used.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The path or the base URL is no text.
    #[error("{0} is empty or no text once its values are filled in")]
    NotText(&'static str),
    /// A request was to be signed before its account had a token.
    #[error("the request has no access token to be signed with")]
    NoToken,
    /// A header's name cannot be sent.
    #[error("`{name}` cannot be the name of a header")]
    HeaderName {
        /// The name.
        name: String,
    },
    /// A header's value cannot be sent.
    #[error(
        "the value of the header `{name}` holds a line break or another character that no header may hold"
    )]
    HeaderValue {
        /// The header's name.
        name: String,
    },
}

/// What a walk asks for, as the API spells it; null where there is nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// The lower bound.
    pub start: Value,
    /// The upper bound.
    pub end: Value,
    /// What the source gave to go on from.
    pub token: Value,
}

/// What the templates of a request are filled in from.
#[derive(Debug)]
pub struct Values {
    plain: Slot,
    in_path: Slot,
}

impl Values {
    /// The inputs, the window, and the page.
    pub fn new(inputs: &Map<String, Value>, window: &Window, page: &Position) -> Self {
        let values = json!({
            "inputs": inputs,
            "window": {"start": window.start, "end": window.end, "token": window.token},
            "page": {
                "token": page.token,
                "offset": page.offset,
                "number": page.number,
                "first": page.first,
            },
        });
        Self { plain: template_value(&values), in_path: template_value(&encoded_texts(values)) }
    }
}

/// The values with every text percent-encoded, so that none can leave its segment of a path, and every
/// null empty, so that a missing one cannot pass as the word `none`.
fn encoded_texts(value: Value) -> Value {
    match value {
        Value::Null => Value::from(""),
        Value::String(text) => Value::from(encoded(&text)),
        Value::Array(elements) => elements.into_iter().map(encoded_texts).collect(),
        Value::Object(members) => {
            members.into_iter().map(|(name, member)| (name, encoded_texts(member))).collect()
        }
        other => other,
    }
}

/// The address of a page, not signed yet.
pub fn url_of(stream: &Stream, values: &Values) -> Result<Url, RequestError> {
    address_of(&stream.base_url, &stream.path, &stream.query, values)
}

/// The address that answers the first token, not signed yet.
pub fn start_url_of(stream: &Stream, start: &TokenStart, values: &Values) -> Result<Url, RequestError> {
    address_of(&stream.base_url, &start.path, &start.query, values)
}

fn address_of(
    base_url: &Template,
    path: &Template,
    query: &[(String, Template)],
    values: &Values,
) -> Result<Url, RequestError> {
    let root = text(&base_url.render(&values.plain)?, "the base URL")?;
    let path = text(&path.render(&values.in_path)?, "the path")?;
    let mut url = address::below(&root, &path)?;
    for (name, template) in query {
        add_query(&mut url, name, &template.render(&values.plain)?)?;
    }
    Ok(url)
}

fn text(value: &Value, what: &'static str) -> Result<String, RequestError> {
    match value {
        Value::String(_) | Value::Number(_) | Value::Bool(_) => texts_of(value).unwrap_or_default().pop(),
        _ => None,
    }
    .ok_or(RequestError::NotText(what))
}

/// The headers of a request, not signed yet.
pub fn headers_of(stream: &Stream, values: &Values) -> Result<HeaderMap, RequestError> {
    let mut headers = HeaderMap::new();
    for (name, template) in &stream.headers {
        let header: HeaderName = name.parse().map_err(|_| RequestError::HeaderName { name: name.clone() })?;
        let refused = || RequestError::HeaderValue { name: name.clone() };
        for value in texts_of(&template.render(&values.plain)?).ok_or_else(refused)? {
            headers.append(&header, HeaderValue::from_str(&value).map_err(|_| refused())?);
        }
    }
    headers.entry(ACCEPT).or_insert(HeaderValue::from_static(stream.records.format.accept()));
    Ok(headers)
}
