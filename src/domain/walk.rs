//! What a walk over the pages of a listing knows of the rows it has read, and when it must give up: the
//! listing repeats itself, or changes faster than it can be read.
//!
//! Rows are remembered as 16-byte hashes, and never more of them than a bound, so that the length of a
//! listing is no matter of memory.

use std::collections::HashMap;

use super::{content::Hash, version::Version};

/// How many rows one half of a [`Memory`] holds: 200,000 in all, about 15 MB.
const HALF: usize = 100_000;

/// How many empty pages in a row may promise another one.
const EMPTY_PAGES: u32 = 100;

/// How many pages in a row may hold the very same rows. Twice may be rows that moved by exactly one page;
/// a third time the page parameter is being ignored.
const SAME_PAGES: u32 = 3;

/// How many pages in a row may hold nothing but rows of this walk: rows that are put in front of a listing
/// while it is read push the others back by whole pages, a listing that goes in circles does it for ever.
const KNOWN_PAGES: u32 = 10;

/// How a walk tells rows apart, before any filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The key with the version; where there is no version, the key alone.
    pub name: Hash,
    /// The key with the version; where there is no version, with the content less what is ignored.
    pub state: Hash,
    /// The bytes.
    pub text: Hash,
    /// The version.
    pub version: Option<Version>,
}

impl Mark {
    /// The mark of a row that has a key. `content` is asked for where there is no version.
    pub fn new(key: &str, version: Option<Version>, content: impl FnOnce() -> Hash, text: Hash) -> Self {
        // No key holds a NUL, so that none can be read as another one with a version.
        let named = |bytes: &[u8]| Hash::of(&[key.as_bytes(), b"\0", bytes].concat());
        match version {
            Some(version) => {
                let name = named(&version.0.to_be_bytes());
                Self { name, state: name, text, version: Some(version) }
            }
            None => Self { name: named(b""), state: named(&content().0), text, version },
        }
    }

    /// The mark of a row that cannot be read: its bytes are all that is known of it.
    pub fn of_text(text: Hash) -> Self {
        Self { name: text, state: text, text, version: None }
    }
}

/// What the source itself says about the rows behind a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Nothing.
    Silent,
    /// There are more.
    More,
    /// There are none.
    Over,
}

impl Word {
    /// The word of an answer that may hold a flag and a number of rows in all, once `reached` rows lie in
    /// front of the next page. Either may end the listing.
    pub fn of(has_more: Option<bool>, total: Option<u64>, reached: u64) -> Self {
        if has_more == Some(false) || total.is_some_and(|total| reached >= total) {
            Self::Over
        } else if has_more.is_some() || total.is_some() {
            Self::More
        } else {
            Self::Silent
        }
    }
}

/// Why a walk cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WalkError {
    /// The walk does not get on.
    #[error("the listing is stalled: {0}")]
    Stalled(String),
    /// Rows move between pages faster than they are read.
    #[error(
        "the listing changes faster than its pages can be read ({0}): sort it so that changed rows do not move \
         others, leave fields that always differ out by `changes.ignore_fields`, or write `shifts: false` \
         where its rows keep their places"
    )]
    Shifting(String),
    /// Pages of one row cannot overlap.
    #[error(
        "every page holds a single row, so that no two can overlap: ask for larger pages, or write \
         `shifts: false` where rows keep their places"
    )]
    LoneRows,
    /// The rows of a walk that has to be repeated do not fit into memory.
    #[error(
        "the listing has more than {0} rows and has to be walked twice: narrow it by `window.start`, or write \
         `shifts: false` where its rows keep their places"
    )]
    TooLong(usize),
    /// A keyset walk over a listing that is not sorted by version.
    #[error(
        "a row is older than the one before it, and `keyset` needs the oldest first: does the request sort by \
         the version's field?"
    )]
    Unsorted,
    /// A keyset walk over rows without versions.
    #[error("no row of the page has a version, from which the next page should start")]
    NoVersion,
}

impl WalkError {
    pub(super) fn contradiction(what: &str) -> Self {
        Self::Stalled(format!("the source says that there is more and answers {what}"))
    }
}

/// Rows read so far, the latest 100,000 at least.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    recent: HashMap<Hash, Hash>,
    older: HashMap<Hash, Hash>,
}

impl Memory {
    /// The bytes that a row was last read with.
    pub fn text(&self, row: Hash) -> Option<Hash> {
        self.recent.get(&row).or_else(|| self.older.get(&row)).copied()
    }

    /// Whether a row was read.
    pub fn holds(&self, row: Hash) -> bool {
        self.text(row).is_some()
    }

    /// Remembers a row; returns whether it was not known.
    pub fn insert(&mut self, row: Hash, text: Hash) -> bool {
        let is_new = !self.holds(row);
        if self.recent.len() >= HALF {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(row, text);
        is_new
    }
}

/// Notices a walk that brings nothing new.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    names: Memory,
    ends: Option<(usize, Hash, Hash)>,
    same: u32,
    empty: u32,
    known: u32,
}

impl Watch {
    /// Looks at a page; fails where too many in a row were empty, the same or known.
    pub fn page(&mut self, marks: &[Mark]) -> Result<(), WalkError> {
        let (Some(first), Some(last)) = (marks.first(), marks.last()) else {
            self.empty += 1;
            return if self.empty > EMPTY_PAGES {
                let reason = format!("{EMPTY_PAGES} pages in a row were empty and promised another one");
                Err(WalkError::Stalled(reason))
            } else {
                Ok(())
            };
        };
        self.empty = 0;
        let ends = Some((marks.len(), first.text, last.text));
        self.same = if ends == self.ends { self.same + 1 } else { 1 };
        self.ends = ends;
        if self.same >= SAME_PAGES {
            return Err(WalkError::Stalled(format!(
                "{SAME_PAGES} pages in a row held the same rows; does the source know the page parameter?"
            )));
        }
        let mut brings_new = false;
        for mark in marks {
            brings_new |= self.names.insert(mark.name, mark.text);
        }
        self.known = if brings_new { 0 } else { self.known + 1 };
        if self.known >= KNOWN_PAGES {
            let reason = format!("{KNOWN_PAGES} pages in a row brought no row that was not read before");
            return Err(WalkError::Stalled(reason));
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The mark of row `id` in its state number `version`.
    pub(in crate::domain) fn mark(id: u8, version: i64) -> Mark {
        let mut bytes = [0; 16];
        bytes[0] = id;
        bytes[1] = u8::try_from(version).unwrap();
        let hash = Hash(bytes);
        Mark { name: hash, state: hash, text: hash, version: Some(Version(version)) }
    }

    #[test]
    fn a_row_is_its_key_and_version_or_its_key_and_content() {
        let hash = |text: &str| Hash::of(text.as_bytes());
        let versioned = |key, version, text| Mark::new(key, Some(Version(version)), || hash("c"), hash(text));
        let plain = |key, content| Mark::new(key, None, || hash(content), hash(content));
        assert_eq!(versioned("1", 5, "a").state, versioned("1", 5, "b").state);
        assert_ne!(versioned("1", 5, "a").state, versioned("1", 6, "a").state);
        assert_ne!(versioned("1", 5, "a").state, versioned("2", 5, "a").state);
        assert_ne!(plain("1", "a").state, plain("1", "b").state);
        assert_eq!(plain("1", "a").name, plain("1", "b").name);
        assert_ne!(plain("1", "a").name, plain("2", "a").name);
    }

    #[test]
    fn the_word_of_the_source() {
        let cases = [
            (None, None, 5, Word::Silent),
            (Some(true), None, 5, Word::More),
            (Some(false), None, 5, Word::Over),
            (None, Some(5), 5, Word::Over),
            (None, Some(6), 5, Word::More),
            (Some(true), Some(5), 5, Word::Over),
            (Some(false), Some(6), 5, Word::Over),
        ];
        for (has_more, total, reached, word) in cases {
            assert_eq!(Word::of(has_more, total, reached), word, "{has_more:?} {total:?} {reached}");
        }
    }

    #[test]
    fn the_memory_of_a_walk_is_bounded_and_keeps_the_latest_rows() {
        let mut memory = Memory::default();
        let row = |number: usize| Hash((number as u128).to_be_bytes());
        for number in 0..HALF * 5 / 2 {
            assert!(memory.insert(row(number), row(0)));
        }
        assert!(memory.recent.len() + memory.older.len() <= 2 * HALF);
        assert!(!memory.holds(row(0)));
        assert!(memory.holds(row(HALF * 5 / 2 - 1)) && memory.holds(row(HALF * 3 / 2)));
    }

    #[test]
    fn pages_that_bring_nothing_new_are_a_stall() {
        let pages_until_stalled = |page: &dyn Fn(u8) -> Vec<Mark>| {
            let mut watch = Watch::default();
            (1..=200).find(|number| watch.page(&page(*number)).is_err())
        };
        let fresh = |number: u8| vec![mark(number, 1)];
        assert_eq!(pages_until_stalled(&fresh), None);
        assert_eq!(pages_until_stalled(&|_| Vec::new()), Some(101));
        assert_eq!(pages_until_stalled(&|_| vec![mark(1, 1), mark(2, 1)]), Some(3), "the same page");
        assert_eq!(pages_until_stalled(&|number| vec![mark(number % 3, 1)]), Some(13), "in circles");
        assert_eq!(pages_until_stalled(&|number| vec![mark(number % 3, i64::from(number))]), None);
        let now_and_then = |number: u8| vec![mark(if number % 9 == 0 { number } else { number % 2 }, 1)];
        assert_eq!(pages_until_stalled(&now_and_then), None);
        let sparse = |number: u8| if number % 100 == 0 { vec![mark(number, 1)] } else { Vec::new() };
        assert_eq!(pages_until_stalled(&sparse), None);
    }
}
