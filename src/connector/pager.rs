//! Where the next page is, decided from the last one. The end is the API's own word or an empty page,
//! never a short one (field case C08), and a walk that goes in circles fails instead of running for ever.
//!
//! The rules of walks over listings whose rows move between pages are `domain/`'s: anchors, repeated walks
//! and keyset; here they are joined with what the answers say.

use std::collections::HashSet;

use serde_json::Value;
use url::Url;

use super::{
    address::onward,
    clamp::{Clamp, Sizes},
    next::{Next, PageFacts, PagerError, next, stalled, word},
};
use crate::{
    config::stream::{PageKind, Pagination},
    domain::{
        anchor::{Anchored, Turn},
        bookmark::PageMark,
        content::Hash,
        instant::Instant,
        keyset::Keyset,
        order::{Ascent, RowOrder},
        repeat::Repeated,
        version::Version,
        walk::{Mark, Watch},
    },
};

/// How many tokens and URLs of a walk are remembered.
const REMEMBERED: usize = 100_000;

/// What templates see of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The token that the answer before named; null on the first page.
    pub token: Value,
    /// The rows in front of it: those received so far, less the overlap where rows can shift.
    pub offset: u64,
    /// The page's number, from the API's base.
    pub number: u64,
    /// Whether it is the first page.
    pub first: bool,
    /// The version that `window.start` stands for, where it is no longer the window's own.
    pub from: Option<Version>,
}

impl Default for Position {
    fn default() -> Self {
        Self { token: Value::Null, offset: 0, number: 1, first: true, from: None }
    }
}

/// The walk over the pages of a stream.
#[derive(Debug)]
pub struct Pager {
    pagination: Pagination,
    rule: Rule,
    /// The version below which a whole page ends the walk.
    start: Option<Version>,
    position: Position,
    url: Option<Url>,
    is_over: bool,
    /// Pages of this walk.
    pages: u32,
    order: RowOrder,
    /// How far a listing that is sorted by version, oldest first, has been read.
    ascent: Option<Ascent>,
    is_newly_broken: bool,
    /// No page held a row that is older than one before it, as far as rows have versions.
    are_pages_sorted: bool,
    seen: HashSet<Hash>,
    previous: Option<Hash>,
    watch: Watch,
    sizes: Sizes,
}

/// How the walk bears rows that move between its pages.
#[derive(Debug)]
enum Rule {
    /// They do not move, or their source takes care of it.
    Plain,
    Anchored(Anchored),
    Repeated(Repeated),
    Keyset(Keyset),
}

impl Pager {
    /// A walk that has not begun over rows in this order. It ends at a page whose rows all stand below `start`,
    /// where one is given.
    pub fn new(pagination: Pagination, order: RowOrder, start: Option<Version>) -> Self {
        let rule = match pagination.kind {
            PageKind::Keyset => Rule::Keyset(Keyset::default()),
            PageKind::Offset if pagination.shifts => Rule::Anchored(Anchored::default()),
            _ if pagination.shifts => Rule::Repeated(Repeated::default()),
            _ => Rule::Plain,
        };
        let is_rising = match rule {
            Rule::Keyset(_) => true,
            Rule::Plain => order == RowOrder::Asc,
            // Rows are met late on purpose.
            Rule::Anchored(_) | Rule::Repeated(_) => false,
        };
        Self {
            position: first_position(&pagination),
            pagination,
            rule,
            start,
            url: None,
            is_over: false,
            pages: 0,
            order,
            ascent: is_rising.then(Ascent::default),
            is_newly_broken: false,
            are_pages_sorted: true,
            seen: HashSet::new(),
            previous: None,
            watch: Watch::default(),
            sizes: Sizes::default(),
        }
    }

    /// Goes on at a page that a walk before this one had come to, where that has not ended.
    pub fn go_on_at(&mut self, mark: &PageMark) -> Result<(), PagerError> {
        self.url = match &mark.url {
            Some(url) => Some(Url::parse(url).map_err(|_| PagerError::NotScalar)?),
            None => None,
        };
        self.position = Position {
            token: mark.token.clone(),
            offset: mark.offset,
            number: mark.number,
            first: false,
            from: None,
        };
        self.ascent = self.ascent.map(|_| Ascent::from(mark.risen_to));
        Ok(())
    }

    /// The next page, where a later walk may go on there: nothing that this one remembers decides about it.
    pub fn mark(&self, sync_token: &Value, given_at: Instant) -> Option<PageMark> {
        let is_plain = matches!(self.rule, Rule::Plain) && !self.is_over && !self.position.first;
        is_plain.then(|| PageMark {
            token: self.position.token.clone(),
            url: self.url.as_ref().map(Url::to_string),
            offset: self.position.offset,
            number: self.position.number,
            risen_to: self.risen_to(),
            sync_token: sync_token.clone(),
            given_at,
        })
    }

    /// Whether the next page is the first one.
    pub const fn is_at_start(&self) -> bool {
        self.position.first
    }

    /// Whether the last page was read.
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    /// The version below which every row of the listing was read, where it is sorted by version.
    pub fn risen_to(&self) -> Option<Version> {
        self.ascent.and_then(Ascent::risen_to)
    }

    /// Whether the listing is sorted by version, oldest first, as far as it was read. Where rows move between pages,
    /// only the order within each can be seen.
    pub fn is_sorted(&self) -> bool {
        self.ascent.map_or(self.order == RowOrder::Asc && self.are_pages_sorted, |ascent| !ascent.is_broken())
    }

    /// Whether the page before showed that the rows are not in the order that the connector says; once.
    pub fn take_disorder(&mut self) -> bool {
        std::mem::take(&mut self.is_newly_broken)
    }

    /// The page to ask for and, where the answer before named it, its whole URL. `None` after the last one.
    pub fn ask(&self) -> Result<Option<(&Position, Option<&Url>)>, PagerError> {
        if self.is_over {
            return Ok(None);
        }
        match self.pagination.max_pages {
            Some(most) if self.pages >= most.get() => Err(PagerError::MaxPages(most)),
            _ => Ok(Some((&self.position, self.url.as_ref()))),
        }
    }

    /// Which rows of a page are to be read: those that no earlier page of this run brought as they are, where
    /// pages overlap; all of them where they do not.
    pub fn fresh(&self, marks: &[Mark]) -> Vec<bool> {
        match &self.rule {
            Rule::Plain => vec![true; marks.len()],
            Rule::Anchored(walk) => walk.fresh(marks),
            Rule::Repeated(walk) => walk.fresh(marks),
            Rule::Keyset(walk) => walk.fresh(marks),
        }
    }

    /// The server's clamp on the page size, once, as soon as it is known.
    pub fn take_clamp(&mut self) -> Option<Clamp> {
        self.sizes.take_clamp()
    }

    /// Moves on behind a page; stays where it is after an error.
    pub fn advance(&mut self, page: &PageFacts<'_>) -> Result<(), PagerError> {
        let is_last = page.stops || self.is_below_start(page.marks);
        let received = self.position.offset.saturating_add(page.rows.len() as u64);
        let is_fresh = self.fresh(page.marks);
        let fresh = is_fresh.iter().filter(|fresh| **fresh).count();
        let next = self.turn(page, is_last, received)?;
        self.cap(page, received)?;
        // Where pages overlap, rows of the page before come again, also older ones.
        let fresh_versions =
            || page.marks.iter().zip(&is_fresh).filter(|(_, fresh)| **fresh).map(|(mark, _)| mark.version);
        if let Some(ascent) = &mut self.ascent {
            self.is_newly_broken |= !ascent.page(fresh_versions());
        }
        self.are_pages_sorted &= page.marks.iter().filter_map(|mark| mark.version).is_sorted();
        self.sizes.note(page.url, page.rows.len(), fresh);
        self.pages = self.pages.saturating_add(1);
        if matches!(next, Next::None) {
            let again = match &mut self.rule {
                Rule::Repeated(walk) => walk.is_to_repeat()?,
                Rule::Plain | Rule::Anchored(_) | Rule::Keyset(_) => false,
            };
            if again {
                self.begin_again();
            } else {
                self.is_over = true;
            }
            return Ok(());
        }
        self.url = None;
        self.position = Position {
            token: Value::Null,
            offset: received,
            number: self.position.number.saturating_add(1),
            first: false,
            from: None,
        };
        match next {
            Next::None | Next::Number => {}
            Next::Token(token) => {
                self.remember(&token.to_string())?;
                self.position.token = token;
            }
            Next::Url(reference) => {
                let url = onward(page.url, &reference)?;
                self.seen.insert(Hash::of(page.url.as_str().as_bytes()));
                self.remember(url.as_str())?;
                self.url = Some(url);
            }
            Next::Offset(offset) => (self.position.offset, self.position.first) = (offset, offset == 0),
            Next::From(version) => self.position.from = Some(version),
        }
        Ok(())
    }

    /// Refuses a page after which rows may be missing: at its cap a source stops without a word, whatever it
    /// says of further pages. Only its number of rows in all is believed, and the window's start.
    fn cap(&self, page: &PageFacts<'_>, received: u64) -> Result<(), PagerError> {
        let Some(most) = self.pagination.max_rows else { return Ok(()) };
        let (_, total) = word(&self.pagination, page)?;
        let is_capped = total.unwrap_or(received) >= most.get();
        if is_capped && !self.is_below_start(page.marks) { Err(PagerError::MaxRows(most)) } else { Ok(()) }
    }

    /// The whole listing once more.
    fn begin_again(&mut self) {
        self.position = first_position(&self.pagination);
        self.url = None;
        self.pages = 0;
        self.seen.clear();
        self.previous = None;
        self.watch = Watch::default();
    }

    /// Whether a newest-first listing has been read down to the window's start. A row without a version
    /// proves nothing.
    fn is_below_start(&self, marks: &[Mark]) -> bool {
        let Some(start) = self.start else { return false };
        !marks.is_empty() && marks.iter().all(|mark| mark.version.is_some_and(|version| version < start))
    }

    fn turn(&mut self, page: &PageFacts<'_>, is_last: bool, received: u64) -> Result<Next, PagerError> {
        let (has_more, total) = word(&self.pagination, page)?;
        let number = self.position.number;
        match &mut self.rule {
            // What does not count says nothing about the end either.
            Rule::Anchored(walk) if is_last && walk.counts(page.marks) => Ok(Next::None),
            Rule::Anchored(walk) => Ok(match walk.page(page.marks, has_more, total)? {
                Turn::Ask(offset) => Next::Offset(offset),
                Turn::Over => Next::None,
            }),
            Rule::Keyset(_) if is_last => Ok(Next::None),
            Rule::Keyset(walk) => Ok(walk.page(page.marks, has_more, total)?.map_or(Next::None, Next::From)),
            Rule::Plain | Rule::Repeated(_) if matches!(self.pagination.kind, PageKind::Single) => {
                Ok(Next::None)
            }
            rule => {
                if let Rule::Repeated(walk) = rule {
                    walk.page(page.marks)?;
                }
                self.watch.page(page.marks)?;
                if is_last {
                    Ok(Next::None)
                } else {
                    next(&self.pagination, number, page, (has_more, total), received)
                }
            }
        }
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
}

fn first_position(pagination: &Pagination) -> Position {
    match pagination.kind {
        PageKind::PageNumber { base, .. } => Position { number: base, ..Position::default() },
        _ => Position::default(),
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderMap;
    use serde_json::{json, value::RawValue};

    use super::*;
    use crate::config::stream::Place;

    fn advance(pager: &mut Pager, url: &str, body: &Value) -> Result<(), PagerError> {
        let body: Box<RawValue> = serde_json::from_str(&body.to_string()).unwrap();
        let list = "$.items".parse::<crate::domain::json_path::JsonPath>().unwrap();
        let list = list.find(&body).unwrap().unwrap();
        let rows: Vec<&RawValue> = serde_json::from_str(list.get()).unwrap();
        let marks: Vec<_> = rows.iter().map(|row| Mark::of_text(Hash::of(row.get().as_bytes()))).collect();
        let (url, headers) = (Url::parse(url).unwrap(), HeaderMap::new());
        let (rows, marks) = (&rows, &marks);
        pager.advance(&PageFacts { url: &url, body: &body, headers: &headers, rows, marks, stops: false })
    }

    fn offset() -> Pager {
        let has_more = Some(Place::Body("more".parse().unwrap()));
        let total = Some(Place::Body("total".parse().unwrap()));
        Pager::new(
            Pagination { has_more, total, ..Pagination::plain(PageKind::Offset) },
            RowOrder::None,
            None,
        )
    }

    #[test]
    fn the_end_is_the_word_of_the_api_however_it_spells_it() {
        let cases = [
            (json!({"items": [1], "more": false}), true),
            (json!({"items": [1], "more": "false"}), true),
            (json!({"items": [1], "more": 0}), true),
            (json!({"items": [1], "more": ""}), true),
            (json!({"items": [1], "more": "/next"}), false),
            (json!({"items": [1], "more": null}), false),
            (json!({"items": [1]}), false),
            (json!({"items": []}), true),
            (json!({"items": [1], "total": 1}), true),
            (json!({"items": [1, 2], "total": "1"}), true),
            (json!({"items": [1], "total": 2}), false),
            (json!({"items": [1], "total": -1}), false),
            (json!({"items": [], "total": 0}), true),
        ];
        for (body, is_over) in cases {
            let mut pager = offset();
            advance(&mut pager, "https://a.test/", &body).unwrap();
            assert_eq!(pager.ask().unwrap().is_none(), is_over, "{body}");
        }
    }
}
