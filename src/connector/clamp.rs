//! A source that gives smaller pages than it is asked for, noticed once (field case C08).

use url::Url;

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

/// A server that gives smaller pages than it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clamp {
    /// The rows asked for.
    pub asked: u64,
    /// The rows of the first page.
    pub received: u64,
}

/// The sizes of a walk's pages so far.
#[derive(Debug, Default)]
pub struct Sizes {
    /// What the first page was short of; the outer `None` before it came.
    first: Option<Option<Clamp>>,
    clamp: Option<Clamp>,
}

impl Sizes {
    /// Compares the rows of the first page with the size asked for. A short page alone says nothing: only
    /// `fresh` rows on a page behind it do.
    pub fn note(&mut self, url: &Url, rows: usize, fresh: usize) {
        let received = rows as u64;
        match &mut self.first {
            None => {
                let asked = url.query_pairs().find_map(|(name, value)| {
                    SIZE_NAMES.contains(&name.to_ascii_lowercase().as_str()).then(|| value.parse().ok())?
                });
                let is_smaller = |asked: &u64| *asked > received && received > 0;
                self.first = Some(asked.filter(is_smaller).map(|asked| Clamp { asked, received }));
            }
            Some(clamp) if fresh > 0 => self.clamp = clamp.take(),
            Some(_) => {}
        }
    }

    /// The server's clamp on the page size, once, as soon as it is known.
    pub fn take_clamp(&mut self) -> Option<Clamp> {
        self.clamp.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c08_the_clamp_is_told_once_and_only_where_more_rows_follow() {
        let url = Url::parse("https://a.test/?Page_Size=1000").unwrap();
        let clamp = Some(Clamp { asked: 1_000, received: 2 });
        // rows and rows that were not known, page by page -> what is told
        for (pages, told) in [
            (vec![(2, 2), (1, 1), (1, 1)], vec![None, clamp, None]),
            (vec![(2, 2), (0, 0)], vec![None, None]),
            (vec![(2, 2), (1, 0)], vec![None, None]),
            (vec![(1_000, 1_000), (1, 1)], vec![None, None]),
        ] {
            let mut sizes = Sizes::default();
            for ((rows, fresh), told) in pages.into_iter().zip(told) {
                sizes.note(&url, rows, fresh);
                assert_eq!(sizes.take_clamp(), told);
            }
        }
    }
}
