//! A walk by offsets over a listing whose rows can move between two requests.
//!
//! Each page is asked for from the position of the last row received, so that it overlaps the one before,
//! and counts only where it holds a row of this walk. A plain stride loses a row whenever one in front of
//! it goes away; the rules here lose none, which `shifting.rs` asks of every small listing.

use super::walk::{Mark, Memory, WalkError, Word};

/// How many pages in a row may lead the walk no further, and how many more for each page that did: a walk
/// may have to go back to its beginning and read all of it again, but not for ever.
const FRUITLESS_PAGES: u64 = 20;
const FRUITLESS_PER_PAGE: u64 = 3;

/// How often a single first row may turn out to have something behind it, and still be a page by itself.
const LONE_ROWS: u32 = 3;

/// A walk by overlapping offsets.
#[derive(Clone, Debug, Default)]
pub struct Anchored {
    position: u64,
    /// The rows of the largest page: how far back one page is.
    largest: u64,
    /// The end of the last page that led the walk further, and how many did.
    furthest: u64,
    fruitful: u64,
    /// Pages since then, and how many of them did not count.
    fruitless: u64,
    lost: u64,
    lone: u32,
    known: Memory,
}

/// Where a walk goes from a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// To the page at this offset.
    Ask(u64),
    /// Nowhere: it is complete.
    Over,
}

impl Anchored {
    /// The offset of the page to ask for, in rows.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Whether a page belongs to the walk: it is the first one, or holds a row that was read in the same
    /// state. What stands on another page is read again later.
    pub fn counts(&self, marks: &[Mark]) -> bool {
        if self.is_behind_a_lone_row() && marks.len() <= 1 {
            return marks.is_empty();
        }
        self.position == 0 || marks.iter().any(|mark| self.known.holds(mark.state))
    }

    /// Which rows of a page are to be handed on: all that are not known by state and bytes.
    pub fn fresh(&self, marks: &[Mark]) -> Vec<bool> {
        let counts = self.counts(marks);
        marks.iter().map(|mark| counts && self.known.text(mark.state) != Some(mark.text)).collect()
    }

    /// Moves on behind a page. `has_more` and `total` are what its answer says.
    pub fn page(
        &mut self,
        marks: &[Mark],
        has_more: Option<bool>,
        total: Option<u64>,
    ) -> Result<Turn, WalkError> {
        let rows = marks.len() as u64;
        let end = self.position.saturating_add(rows);
        let word = Word::of(has_more, total, end);
        let behind_a_lone_row = self.is_behind_a_lone_row();
        let counts = self.counts(marks);
        self.largest = self.largest.max(rows);
        if !counts {
            self.lost += 1;
            self.bears_no_fruit()?;
            if behind_a_lone_row && rows == 1 {
                self.lone += 1;
                if self.lone >= LONE_ROWS {
                    return Err(WalkError::LoneRows);
                }
            }
            let page = self.largest.max(2) - 1;
            self.position = self.position.saturating_sub(page);
            return Ok(Turn::Ask(self.position));
        }
        let mut brings_new = false;
        for mark in marks {
            brings_new |= self.known.insert(mark.state, mark.text);
        }
        if word == Word::Over {
            return Ok(Turn::Over);
        }
        if brings_new && end > self.furthest {
            self.furthest = end;
            self.fruitful += 1;
            (self.fruitless, self.lost) = (0, 0);
        } else {
            self.bears_no_fruit()?;
        }
        match (word, rows) {
            // The only row of the first page cannot be overlapped, and a page of one row may be all that
            // the source ever serves: only what stands behind it can tell.
            (_, 1) if self.position == 0 && self.largest == 1 => self.position = 1,
            (Word::More, 0) => return Err(WalkError::contradiction("an empty page")),
            (Word::More, 1) => return Err(WalkError::contradiction("a page of known rows")),
            (_, 0 | 1) => return Ok(Turn::Over),
            _ => self.position = self.position.saturating_add(rows - 1),
        }
        Ok(Turn::Ask(self.position))
    }

    fn bears_no_fruit(&mut self) -> Result<(), WalkError> {
        self.fruitless += 1;
        let most = FRUITLESS_PAGES.saturating_add(self.fruitful.saturating_mul(FRUITLESS_PER_PAGE));
        if self.fruitless <= most {
            return Ok(());
        }
        if self.lost.saturating_mul(2) >= self.fruitless {
            let reason = format!("{} pages no longer held a row of the ones before", self.lost);
            return Err(WalkError::Shifting(reason));
        }
        Err(WalkError::Stalled(format!(
            "{} pages in a row brought no row that was not read before; does the source know the page \
             parameter?",
            self.fruitless
        )))
    }

    /// The page behind a first page of a single row, asked for without an overlap.
    fn is_behind_a_lone_row(&self) -> bool {
        self.position == 1 && self.largest == 1
    }
}

#[cfg(test)]
mod tests {
    use super::{super::walk::tests::mark, *};

    fn rows(ids: impl IntoIterator<Item = u8>) -> Vec<Mark> {
        ids.into_iter().map(|id| mark(id, 1)).collect()
    }

    /// Walks over these pages; returns the offsets that were asked for and how it ended.
    fn walk(pages: &[&[u8]], total: Option<u64>) -> (Vec<u64>, Result<Turn, WalkError>) {
        let mut walk = Anchored::default();
        let mut asked = Vec::new();
        let mut turn = Ok(Turn::Ask(0));
        for page in pages {
            asked.push(walk.position());
            turn = walk.page(&rows(page.iter().copied()), None, total);
        }
        (asked, turn)
    }

    #[test]
    fn each_page_starts_at_the_last_row_received() {
        let over = Ok(Turn::Over);
        // pages, total, offsets asked for
        let cases: [(&[&[u8]], Option<u64>, &[u64], &str); 7] = [
            (&[&[]], None, &[0], "an empty first page is the end"),
            (&[&[1, 2, 3], &[3]], None, &[0, 2], "the last row alone is the end"),
            (&[&[1, 2, 3], &[3, 4, 5], &[5, 6], &[6]], None, &[0, 2, 4, 5], "a short page is not"),
            (&[&[1, 2, 3], &[3, 4]], Some(4), &[0, 2], "a total that is reached"),
            (&[&[1]], Some(1), &[0], "a total that is reached at once"),
            (&[&[1], &[]], None, &[0, 1], "nothing behind a single row"),
            (&[&[1, 2, 3], &[], &[1, 2], &[2]], None, &[0, 2, 0, 1], "an empty page past 0 is lost"),
        ];
        for (pages, total, offsets, why) in cases {
            assert_eq!(walk(pages, total), (offsets.to_vec(), over.clone()), "{why}");
        }
        // Row 2 goes away: its place is taken by an unread row, and one page back the walk is found again.
        let (offsets, turn) = walk(&[&[1, 2, 3], &[4, 5, 6], &[1, 3, 4], &[4, 5, 6], &[6]], None);
        assert_eq!((offsets, turn), (vec![0, 2, 0, 2, 4], over.clone()));
    }

    #[test]
    fn a_row_that_came_back_changed_anchors_nothing() {
        let mut walk = Anchored::default();
        walk.page(&rows([1, 2, 3]), None, None).unwrap();
        assert!(walk.counts(&rows([3, 4])));
        assert!(!walk.counts(&[mark(3, 2), mark(4, 1)]));
        assert_eq!(walk.fresh(&[mark(3, 1), mark(4, 1)]), [false, true]);
        assert_eq!(walk.fresh(&[mark(3, 2), mark(4, 1)]), [false, false], "what does not count is not read");
        let edited = Mark { text: mark(9, 9).text, ..mark(3, 1) };
        assert_eq!(walk.fresh(&[edited, mark(4, 1)]), [true, true], "the same version with other bytes");
    }

    /// The error that ends a walk over a source that answers these pages, and how many it answered.
    fn failure(source: impl Fn(u8, u64) -> Vec<Mark>) -> (u8, WalkError) {
        let mut walk = Anchored::default();
        let mut answer = |number: u8| walk.page(&source(number, walk.position()), None, None).err();
        (1..=100).find_map(|number| Some((number, answer(number)?))).unwrap()
    }

    #[test]
    fn a_walk_that_does_not_get_on_is_bounded() {
        let (pages, error) = failure(|_, _| rows([1, 2]));
        assert_eq!((pages, matches!(error, WalkError::Stalled(_))), (25, true), "the offset is ignored");
        let (pages, error) =
            failure(|number, offset| if offset == 0 { rows([0, 1]) } else { rows([number + 2, number + 3]) });
        assert_eq!(
            (pages, matches!(error, WalkError::Shifting(_))),
            (25, true),
            "nothing stays in its place"
        );
    }

    #[test]
    fn pages_of_one_row_cannot_overlap() {
        let pages: [&[u8]; 6] = [&[1], &[2], &[1], &[2], &[1], &[2]];
        assert_eq!(walk(&pages, None), (vec![0, 1, 0, 1, 0, 1], Err(WalkError::LoneRows)));
        // One more row that came while the walk was under way is no such case.
        let (offsets, turn) = walk(&[&[1], &[2], &[1, 2], &[2]], None);
        assert_eq!((offsets, turn), (vec![0, 1, 0, 1], Ok(Turn::Over)));
    }

    #[test]
    fn a_source_that_contradicts_itself_is_stalled() {
        for pages in [&[&[1_u8, 2][..], &[2]][..], &[&[]]] {
            let (_, turn) = walk(pages, Some(9));
            assert!(matches!(turn, Err(WalkError::Stalled(_))), "{turn:?}");
        }
    }
}
