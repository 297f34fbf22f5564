//! A walk over pages that cannot be made to overlap (numbers, links, tokens), of a listing whose rows can
//! move between two requests: it is repeated until one walk holds every row of the walk before.
//!
//! A row is skipped where one in front of it goes away after it was read; if all that were read still stand
//! one walk later, none has. "A second walk brought nothing new" does not prove it, and neither do the first
//! pages of a walk. What remains is two rows that each came in front and went again, unread, at the same
//! place of two walks; connectors that can, sort newest first, page by keyset or by offset instead.

use std::collections::HashMap;

use super::{
    content::Hash,
    walk::{Mark, WalkError},
};

/// How many walks a run makes at most: one change can spoil the comparison with the walk before and with
/// the walk behind, and three of them are to be borne.
const MOST_WALKS: u32 = 8;

/// How many rows a walk may have that is compared with the next one; two of them take about 70 MB.
const MOST_ROWS: usize = 500_000;

/// A walk that may have to be repeated.
#[derive(Clone, Debug, Default)]
pub struct Repeated {
    earlier: u32,
    pages: u32,
    previous: HashMap<Hash, Hash>,
    current: HashMap<Hash, Hash>,
    /// How many rows of the walk before this one has not met yet.
    missing: usize,
}

impl Repeated {
    /// Which rows of a page are to be handed on: all that neither this walk nor the one before has read.
    pub fn fresh(&self, marks: &[Mark]) -> Vec<bool> {
        let known = |mark: &Mark| self.current.get(&mark.state).or_else(|| self.previous.get(&mark.state));
        marks.iter().map(|mark| known(mark) != Some(&mark.text)).collect()
    }

    /// Takes a page in.
    pub fn page(&mut self, marks: &[Mark]) -> Result<(), WalkError> {
        self.pages = self.pages.saturating_add(1);
        for mark in marks {
            let met = self.current.insert(mark.state, mark.text).is_some();
            if !met && self.previous.contains_key(&mark.state) {
                self.missing -= 1;
            }
        }
        if self.current.len() > MOST_ROWS {
            return Err(WalkError::TooLong(MOST_ROWS));
        }
        Ok(())
    }

    /// At the end of a walk: whether it has to be made once more. One page is a moment, in which nothing
    /// moves.
    pub fn is_to_repeat(&mut self) -> Result<bool, WalkError> {
        if self.pages <= 1 || (self.earlier > 0 && self.missing == 0) {
            return Ok(false);
        }
        self.earlier += 1;
        if self.earlier >= MOST_WALKS {
            let reason = format!("in each of {MOST_WALKS} walks rows of the one before were gone");
            return Err(WalkError::Shifting(reason));
        }
        self.pages = 0;
        self.previous = std::mem::take(&mut self.current);
        self.missing = self.previous.len();
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::walk::tests::mark, *};

    fn walk(walks: &mut Repeated, pages: &[&[u8]]) -> Result<bool, WalkError> {
        for page in pages {
            let page: Vec<_> = page.iter().map(|id| mark(*id, 1)).collect();
            walks.page(&page)?;
        }
        walks.is_to_repeat()
    }

    #[test]
    fn a_walk_of_one_page_is_complete_by_itself() {
        assert_eq!(walk(&mut Repeated::default(), &[&[1, 2]]), Ok(false));
        assert_eq!(walk(&mut Repeated::default(), &[&[]]), Ok(false));
        assert_eq!(walk(&mut Repeated::default(), &[&[1, 2], &[]]), Ok(true));
    }

    #[test]
    fn a_walk_is_repeated_until_it_holds_every_row_of_the_one_before() {
        let mut walks = Repeated::default();
        assert_eq!(walk(&mut walks, &[&[1, 2], &[4]]), Ok(true), "3 was skipped, since 1 went away");
        assert_eq!(walk(&mut walks, &[&[2, 3], &[4]]), Ok(true), "1 is not there any more");
        assert_eq!(walks.fresh(&[mark(2, 1), mark(3, 1), mark(2, 2)]), [false, false, true]);
        assert_eq!(walk(&mut walks, &[&[2, 3], &[4, 5]]), Ok(false));
    }

    #[test]
    fn a_listing_that_never_holds_still_fails() {
        let mut walks = Repeated::default();
        for number in 1..MOST_WALKS {
            let id = u8::try_from(number).unwrap();
            assert_eq!(walk(&mut walks, &[&[id], &[]]), Ok(true));
        }
        assert!(matches!(walk(&mut walks, &[&[99], &[]]), Err(WalkError::Shifting(_))));
    }

    #[test]
    fn a_walk_too_long_to_be_compared_fails() {
        let mut walks = Repeated::default();
        let marks = |from: usize, to: usize| -> Vec<Mark> {
            (from..to).map(|number| Mark::of_text(Hash((number as u128).to_be_bytes()))).collect()
        };
        assert_eq!(walks.page(&marks(0, MOST_ROWS)), Ok(()));
        assert_eq!(walks.page(&marks(MOST_ROWS, MOST_ROWS + 1)), Err(WalkError::TooLong(MOST_ROWS)));
    }
}
