//! Where the next page is, decided from the last one. The end is the API's own word or an empty page,
//! never a short one (field case C08), and a walk that goes in circles fails instead of running for ever.

use std::collections::HashSet;

use reqwest::header::{HeaderMap, LINK};
use serde_json::{Value, value::RawValue};
use url::Url;

use super::{
    address::{AddressError, onward},
    link::next_of,
    place::{PlaceError, find},
};
use crate::{
    config::stream::{PageKind, Pagination, Place},
    domain::content::Hash,
};

/// How many tokens and URLs of a walk are remembered.
const REMEMBERED: usize = 100_000;

/// How many empty pages in a row may promise another one.
const EMPTY_PAGES: u32 = 100;

/// How many pages in a row may hold the very same rows.
const SAME_PAGES: u32 = 3;

/// Query parameters that mean the size of a page, in lower case.
const SIZE_NAMES: [&str; 12] = [
    "limit",
    "per_page",
    "perpage",
    "page_size",
    "pagesize",
    "page[size]",
    "size",
    "first",
    "top",
    "$top",
    "max_results",
    "maxresults",
];

/// Why there is no next page to ask for although the walk is not over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PagerError {
    /// The walk does not get on.
    #[error("the listing is stalled: {0}")]
    Stalled(String),
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
}

/// What templates see of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The token that the answer before named; null on the first page.
    pub token: Value,
    /// The rows received so far.
    pub offset: u64,
    /// The page's number, from the API's base.
    pub number: u64,
    /// Whether it is the first page.
    pub first: bool,
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
}

/// A server that gives smaller pages than it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clamp {
    /// The rows asked for.
    pub asked: u64,
    /// The rows of the first page.
    pub received: u64,
}

/// The walk over the pages of a stream.
#[derive(Debug)]
pub struct Pager {
    pagination: Pagination,
    position: Position,
    url: Option<Url>,
    is_over: bool,
    seen: HashSet<Hash>,
    previous: Option<Hash>,
    ends: Option<(usize, Hash, Hash)>,
    same_pages: u32,
    empty_pages: u32,
    first_page: Option<Clamp>,
    clamp: Option<Clamp>,
}

/// Where the next page is.
enum Next {
    None,
    Number,
    Token(Value),
    Url(String),
}

impl Pager {
    /// A walk that has not begun.
    pub fn new(pagination: Pagination) -> Self {
        let number = match pagination.kind {
            PageKind::PageNumber { base, .. } => base,
            _ => 1,
        };
        Self {
            pagination,
            position: Position { token: Value::Null, offset: 0, number, first: true },
            url: None,
            is_over: false,
            seen: HashSet::new(),
            previous: None,
            ends: None,
            same_pages: 1,
            empty_pages: 0,
            first_page: None,
            clamp: None,
        }
    }

    /// The page to ask for and, where the answer before named it, its whole URL. `None` after the last one.
    pub fn ask(&self) -> Option<(&Position, Option<&Url>)> {
        (!self.is_over).then_some((&self.position, self.url.as_ref()))
    }

    /// The server's clamp on the page size, once, as soon as it is known.
    pub fn take_clamp(&mut self) -> Option<Clamp> {
        self.clamp.take()
    }

    /// Moves on behind a page; stays where it is after an error.
    pub fn advance(&mut self, page: &PageFacts<'_>) -> Result<(), PagerError> {
        let rows = u64::try_from(page.rows.len()).unwrap_or(u64::MAX);
        self.watch(page)?;
        let received = self.position.offset.saturating_add(rows);
        let (next, url) = match self.next(page, received)? {
            Next::None => {
                self.is_over = true;
                return Ok(());
            }
            Next::Number => (Value::Null, None),
            Next::Token(token) => {
                self.remember(&token.to_string())?;
                (token, None)
            }
            Next::Url(reference) => {
                let url = onward(page.url, &reference)?;
                self.seen.insert(Hash::of(page.url.as_str().as_bytes()));
                self.remember(url.as_str())?;
                (Value::Null, Some(url))
            }
        };
        self.note_size(page.url, rows);
        self.position = Position {
            token: next,
            offset: received,
            number: self.position.number.saturating_add(1),
            first: false,
        };
        self.url = url;
        Ok(())
    }

    fn next(&self, page: &PageFacts<'_>, received: u64) -> Result<Next, PagerError> {
        if matches!(self.pagination.kind, PageKind::Single) {
            return Ok(Next::None);
        }
        let place = |place: &Option<Place>| match place {
            Some(place) => find(place, page.body, page.headers),
            None => Ok(None),
        };
        let has_more = place(&self.pagination.has_more)?.map(|value| is_true(&value));
        let total = place(&self.pagination.total)?.as_ref().and_then(whole_number);
        if has_more == Some(false) || total.is_some_and(|total| received >= total) {
            return Ok(Next::None);
        }
        let named = match &self.pagination.kind {
            PageKind::Token(place) | PageKind::NextUrl(place) => {
                find(place, page.body, page.headers)?.filter(is_true)
            }
            PageKind::LinkHeader => next_of(
                page.headers.get_all(LINK).iter().filter_map(|value| str::from_utf8(value.as_bytes()).ok()),
            )
            .map(Value::from),
            PageKind::PageNumber { base, total_pages } => {
                let pages = place(total_pages)?.as_ref().and_then(whole_number);
                let walked = self.position.number.saturating_sub(*base).saturating_add(1);
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
            PageKind::Single | PageKind::Offset => return Ok(Next::Number),
            PageKind::LastRecord(path) => {
                let missing = || PagerError::NoField(path.to_string());
                let last = page.rows.last().ok_or_else(missing)?;
                Some(find(&Place::Body(path.clone()), last, page.headers)?.ok_or_else(missing)?)
            }
        };
        let is_url = matches!(self.pagination.kind, PageKind::NextUrl(_) | PageKind::LinkHeader);
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

    /// Notices a walk that brings nothing new.
    fn watch(&mut self, page: &PageFacts<'_>) -> Result<(), PagerError> {
        let (Some(first), Some(last)) = (page.rows.first(), page.rows.last()) else {
            self.empty_pages += 1;
            return if self.empty_pages > EMPTY_PAGES {
                Err(stalled(&format!("{EMPTY_PAGES} pages in a row were empty and promised another one")))
            } else {
                Ok(())
            };
        };
        self.empty_pages = 0;
        let hash = |row: &RawValue| Hash::of(row.get().as_bytes());
        let ends = Some((page.rows.len(), hash(first), hash(last)));
        // Twice may be rows that moved by exactly one page; a third time the parameter is being ignored.
        self.same_pages = if ends == self.ends { self.same_pages + 1 } else { 1 };
        self.ends = ends;
        if self.same_pages >= SAME_PAGES && !matches!(self.pagination.kind, PageKind::Single) {
            return Err(stalled(&format!(
                "{SAME_PAGES} pages in a row held the same rows; does the source know the page parameter?"
            )));
        }
        Ok(())
    }

    fn remember(&mut self, mark: &str) -> Result<(), PagerError> {
        let hash = Hash::of(mark.as_bytes());
        let again = self.seen.contains(&hash) || self.previous == Some(hash);
        if again {
            return Err(stalled("the next page is one that was read before"));
        }
        self.previous = Some(hash);
        if self.seen.len() < REMEMBERED {
            self.seen.insert(hash);
        }
        Ok(())
    }

    /// Compares the rows of the first page with the size asked for. A short page alone says nothing: only
    /// rows behind it do.
    fn note_size(&mut self, url: &Url, rows: u64) {
        if self.position.first {
            let asked = url.query_pairs().find_map(|(name, value)| {
                SIZE_NAMES.contains(&name.to_ascii_lowercase().as_str()).then(|| value.parse().ok())?
            });
            self.first_page =
                asked.filter(|asked| *asked > rows && rows > 0).map(|asked| Clamp { asked, received: rows });
        } else if rows > 0 {
            self.clamp = self.first_page.take();
        }
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

fn stalled(reason: &str) -> PagerError {
    PagerError::Stalled(reason.to_owned())
}

/// Truth as APIs spell it.
fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !matches!(text.trim().to_ascii_lowercase().as_str(), "" | "false" | "0"),
        Value::Array(elements) => !elements.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}

fn whole_number(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}
