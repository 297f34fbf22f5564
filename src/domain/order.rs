//! The order of a listing, and how far one that is sorted by version has been read.

use serde::{Deserialize, Serialize};

use super::version::Version;

/// How the source sorts the rows of a walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RowOrder {
    /// By version, oldest first.
    Asc,
    /// By version, newest first.
    Desc,
    /// In any way.
    #[default]
    None,
}

/// A walk over rows that are said to be sorted by version, oldest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ascent {
    risen_to: Option<Version>,
    is_broken: bool,
}

impl Ascent {
    /// A walk that goes on behind rows that have risen to `risen_to`.
    pub const fn from(risen_to: Option<Version>) -> Self {
        Self { risen_to, is_broken: false }
    }

    /// Takes the versions of a page in; `false` where they show, for the first time, that the listing is not
    /// sorted. Rows without a version show nothing.
    pub fn page(&mut self, versions: impl IntoIterator<Item = Option<Version>>) -> bool {
        let was_broken = self.is_broken;
        for version in versions.into_iter().flatten() {
            self.is_broken |= self.risen_to.is_some_and(|risen_to| version < risen_to);
            self.risen_to = self.risen_to.max(Some(version));
        }
        was_broken || !self.is_broken
    }

    /// The version below which every row was read, as long as the rows were sorted.
    pub fn risen_to(self) -> Option<Version> {
        self.risen_to.filter(|_| !self.is_broken)
    }

    /// Whether a row was older than one before it.
    pub const fn is_broken(self) -> bool {
        self.is_broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c30_an_order_that_is_broken_once_proves_nothing_any_more() {
        // pages of versions (0 is none) -> risen to, pages that are told of
        let cases: [(&[&[i64]], i64, usize); 6] = [
            (&[&[1, 2], &[2, 3]], 3, 0),
            (&[&[1, 0, 2], &[0]], 2, 0),
            (&[&[5, 1], &[3, 2]], 0, 1),
            (&[&[1, 2], &[1, 3], &[2, 9]], 0, 1),
            (&[&[0]], 0, 0),
            (&[], 0, 0),
        ];
        for (pages, risen_to, told) in cases {
            let mut ascent = Ascent::default();
            let versions = |page: &[i64]| -> Vec<_> {
                page.iter().map(|version| (*version != 0).then_some(Version(*version))).collect()
            };
            let broken = pages.iter().filter(|page| !ascent.page(versions(page))).count();
            assert_eq!(ascent.risen_to(), (risen_to != 0).then_some(Version(risen_to)), "{pages:?}");
            assert_eq!((broken, ascent.is_broken()), (told, told > 0), "{pages:?}");
        }
    }
}
