//! A walk by keyset: the next page is the window from the last row's version on, that version included.
//! Nothing depends on positions, so that rows may come, go and move between pages; all it needs is a
//! listing sorted by version, oldest first.
//!
//! Rows of one version are never left out by it: where they fill a whole page, the walk says so and fails.

use super::{
    version::Version,
    walk::{Mark, Memory, WalkError, Word},
};

/// A walk by keyset.
#[derive(Clone, Debug, Default)]
pub struct Keyset {
    known: Memory,
    largest: usize,
}

impl Keyset {
    /// Which rows of a page are to be handed on: all that are not known by state and bytes.
    pub fn fresh(&self, marks: &[Mark]) -> Vec<bool> {
        marks.iter().map(|mark| self.known.text(mark.state) != Some(mark.text)).collect()
    }

    /// Moves on behind a page: the version from which the next one is asked for, `None` at the end.
    pub fn page(
        &mut self,
        marks: &[Mark],
        has_more: Option<bool>,
        total: Option<u64>,
    ) -> Result<Option<Version>, WalkError> {
        let rows = marks.len();
        let versions: Vec<Version> = marks.iter().filter_map(|mark| mark.version).collect();
        if !versions.is_sorted() {
            return Err(WalkError::Unsorted);
        }
        let mut brings_new = false;
        for mark in marks {
            brings_new |= self.known.insert(mark.state, mark.text);
        }
        let is_short = rows < self.largest;
        self.largest = self.largest.max(rows);
        match Word::of(has_more, total, rows as u64) {
            Word::Over => Ok(None),
            _ if brings_new => versions.last().copied().map(Some).ok_or(WalkError::NoVersion),
            Word::More if rows == 0 => Err(WalkError::contradiction("an empty page")),
            // A row that was read and stands alone has nothing behind it; so has a page that is shorter
            // than the source's pages are.
            Word::Silent if is_short || rows <= 1 => Ok(None),
            _ => Err(WalkError::Stalled(format!(
                "the page from the last row's version on holds the same {rows} rows again, so that it cannot be \
                 known whether more rows share that version; ask for larger pages, or say by `has_more_path`, \
                 `total_path` or `stop_condition` where the listing ends"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::walk::tests::mark, *};

    type Page<'a> = &'a [(u8, i64)];

    /// Walks over these pages of (id, version); returns the bounds that were asked for and how it ended.
    fn walk(pages: &[Page<'_>]) -> (Vec<i64>, Result<Option<Version>, WalkError>) {
        let mut walk = Keyset::default();
        let mut asked = Vec::new();
        let mut next = Ok(None);
        for page in pages {
            asked.extend(next.ok().flatten().map(|Version(version)| version));
            let marks: Vec<_> = page.iter().map(|(id, version)| mark(*id, *version)).collect();
            next = walk.page(&marks, None, None);
        }
        (asked, next)
    }

    #[test]
    fn each_page_starts_at_the_last_rows_version() {
        let cases: [(&[Page<'_>], &[i64], &str); 5] = [
            (&[&[]], &[], "nothing"),
            (&[&[(1, 5)], &[(1, 5)]], &[5], "one row"),
            (&[&[(1, 5), (2, 6)], &[(2, 6), (3, 7)], &[(3, 7)]], &[6, 7], "pages of two"),
            (&[&[(1, 5), (2, 6)], &[]], &[6], "the last row went away"),
            (&[&[(1, 5), (2, 6), (3, 6)], &[(2, 6), (3, 6)]], &[6], "ties at the end"),
        ];
        for (pages, bounds, why) in cases {
            assert_eq!(walk(pages), (bounds.to_vec(), Ok(None)), "{why}");
        }
    }

    #[test]
    fn what_a_keyset_cannot_know_it_does_not_pretend() {
        let stalled = |pages: &[Page<'_>]| matches!(walk(pages).1, Err(WalkError::Stalled(_)));
        let ties: Page<'_> = &[(1, 5), (2, 5)];
        assert!(stalled(&[ties, ties]), "a whole page of one version");
        assert!(!stalled(&[&[(1, 4), (2, 5), (3, 5)], &[(2, 5), (3, 5)]]));
        assert_eq!(walk(&[&[(1, 5), (2, 4)]]).1, Err(WalkError::Unsorted));
        let mut keyset = Keyset::default();
        let plain = Mark { version: None, ..mark(1, 1) };
        assert_eq!(keyset.page(&[plain], None, None), Err(WalkError::NoVersion));
        assert_eq!(keyset.page(&[plain], Some(false), None), Ok(None), "unless nothing has to be asked for");
    }

    #[test]
    fn the_source_may_say_where_the_listing_ends() {
        let ties = [mark(1, 5), mark(2, 5)];
        let mut keyset = Keyset::default();
        assert_eq!(keyset.page(&ties, None, Some(2)), Ok(None));
        let mut keyset = Keyset::default();
        assert_eq!(keyset.page(&ties, Some(true), None), Ok(Some(Version(5))));
        assert!(matches!(keyset.page(&[], Some(true), None), Err(WalkError::Stalled(_))));
        assert!(matches!(keyset.page(&ties, Some(true), None), Err(WalkError::Stalled(_))));
    }
}
