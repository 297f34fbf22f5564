//! Where an answer says that the next page is, or that there is none.

use std::num::{NonZeroU32, NonZeroU64};

use reqwest::header::{HeaderMap, LINK};
use serde_json::{Value, value::RawValue};
use url::Url;

use super::{
    address::AddressError,
    link::next_of,
    place::{PlaceError, find, is_true, whole_number},
};
use crate::{
    config::stream::{PageKind, Pagination, Place},
    domain::{
        version::Version,
        walk::{Mark, WalkError},
    },
};

/// Why there is no next page to ask for although the walk is not over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PagerError {
    /// The walk cannot go on.
    #[error(transparent)]
    Walk(#[from] WalkError),
    /// The answer's word on the next page cannot be read.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The next page's URL leads away.
    #[error("the next page's URL {0}")]
    Address(#[from] AddressError),
    /// The last record has no token.
    #[error("the last record has no `{0}`, from which the next page should start")]
    NoField(String),
    /// The token or URL is no scalar.
    #[error("the next page's token or URL is neither a text nor a number")]
    NotScalar,
    /// The source gives no more rows of one listing than these.
    #[error(
        "the source gives no more than {0} rows of a listing, which is `max_rows`, and this one reaches them"
    )]
    MaxRows(NonZeroU64),
    /// The connector allows no further page.
    #[error(
        "the listing goes on behind page {0}, which is `max_pages`: what was read is kept, but the window is not \
         complete; raise `max_pages`, or narrow the listing by a later `window.start`"
    )]
    MaxPages(NonZeroU32),
}

/// A page that was received.
#[derive(Debug)]
pub struct PageFacts<'a> {
    /// Where it came from, not signed.
    pub url: &'a Url,
    /// Its body.
    pub body: &'a RawValue,
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// Its rows, before any filter.
    pub rows: &'a [&'a RawValue],
    /// The marks of its rows.
    pub marks: &'a [Mark],
    /// Whether the connector's `stop_condition` holds for it.
    pub stops: bool,
}

/// Where the next page is.
#[derive(Debug)]
pub enum Next {
    /// There is none.
    None,
    /// The next number, and the offset behind the rows received.
    Number,
    /// Behind this token.
    Token(Value),
    /// At this URL, which may be relative.
    Url(String),
    /// At this offset.
    Offset(u64),
    /// From this version on.
    From(Version),
}

/// What the answer says of the whole listing: whether there is more, and how many rows there are.
pub fn word(
    pagination: &Pagination,
    page: &PageFacts<'_>,
) -> Result<(Option<bool>, Option<u64>), PlaceError> {
    let place = |place: &Option<Place>| match place {
        Some(place) => find(place, page.body, page.headers),
        None => Ok(None),
    };
    let has_more = place(&pagination.has_more)?.map(|value| is_true(&value));
    let total = place(&pagination.total)?.as_ref().and_then(whole_number);
    Ok((has_more, total))
}

/// The next page of a walk where its place follows from the answer alone: from page `number`, with what the
/// answer says and the rows received so far.
pub fn next(
    pagination: &Pagination,
    number: u64,
    page: &PageFacts<'_>,
    (has_more, total): (Option<bool>, Option<u64>),
    received: u64,
) -> Result<Next, PagerError> {
    if has_more == Some(false) || total.is_some_and(|total| received >= total) {
        return Ok(Next::None);
    }
    let named = match &pagination.kind {
        PageKind::Token(place) | PageKind::NextUrl(place) => {
            find(place, page.body, page.headers)?.filter(is_true)
        }
        PageKind::LinkHeader => next_of(
            page.headers.get_all(LINK).iter().filter_map(|value| str::from_utf8(value.as_bytes()).ok()),
        )
        .map(Value::from),
        PageKind::PageNumber { base, total_pages } => {
            let pages = match total_pages {
                Some(place) => find(place, page.body, page.headers)?.as_ref().and_then(whole_number),
                None => None,
            };
            let walked = number.saturating_sub(*base).saturating_add(1);
            return match (pages, page.rows.is_empty()) {
                (Some(pages), _) if walked >= pages => Ok(Next::None),
                (Some(_), _) | (None, false) => Ok(Next::Number),
                (None, true) if has_more == Some(true) => Ok(Next::Number),
                (None, true) => after_nothing(has_more, total, received),
            };
        }
        PageKind::Offset | PageKind::LastRecord(_) if page.rows.is_empty() => {
            return after_nothing(has_more, total, received);
        }
        PageKind::Offset => return Ok(Next::Number),
        PageKind::Single | PageKind::Keyset => return Ok(Next::None),
        PageKind::LastRecord(path) => {
            let missing = || PagerError::NoField(path.to_string());
            let last = page.rows.last().ok_or_else(missing)?;
            Some(find(&Place::Body(path.clone()), last, page.headers)?.ok_or_else(missing)?)
        }
    };
    let is_url = matches!(pagination.kind, PageKind::NextUrl(_) | PageKind::LinkHeader);
    match named {
        None if has_more == Some(true) => {
            Err(stalled("the source says that there is more and names no next page"))
        }
        None => Ok(Next::None),
        Some(Value::String(url)) if is_url => Ok(Next::Url(url)),
        Some(token @ (Value::String(_) | Value::Number(_))) if !is_url => Ok(Next::Token(token)),
        Some(_) => Err(PagerError::NotScalar),
    }
}

/// What an empty page means where nothing names the next one: the end, unless the source itself says that
/// there is more.
fn after_nothing(has_more: Option<bool>, total: Option<u64>, received: u64) -> Result<Next, PagerError> {
    match total {
        _ if has_more == Some(true) => {
            Err(stalled("the source says that there is more and answers an empty page"))
        }
        Some(total) => Err(stalled(&format!(
            "the source says that there are {total} rows and answers an empty page after {received}"
        ))),
        None => Ok(Next::None),
    }
}

pub(super) fn stalled(reason: &str) -> PagerError {
    WalkError::Stalled(reason.to_owned()).into()
}
