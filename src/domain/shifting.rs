//! The walks asked the hardest question there is: over every listing of one to five rows, with up to three
//! changes between any two of its pages, is a row lost that stood from the first request to the last?
//!
//! A change is a row that goes away, comes, moves to either end in a new version, or changes in its place.
//! Every order of changes and requests is tried; those that begin alike share their beginning.

use super::{
    anchor::{Anchored, Turn},
    keyset::Keyset,
    repeat::Repeated,
    version::Version,
    walk::{Mark, tests::mark},
};

/// A row: its number and its version.
type Row = (u8, i64);

/// What a walk did with a page.
enum Went {
    On,
    Over,
    /// It failed, which is no loss: the watermark stays.
    GaveUp,
}

/// A walk over a listing in pages of `size` rows.
trait Reader: Clone {
    /// Asks for a page of `listing` and adds the rows that it hands on to `read`.
    fn ask(&mut self, listing: &[Row], size: usize, read: &mut Vec<Row>) -> Went;
}

fn marks(rows: &[Row]) -> Vec<Mark> {
    rows.iter().map(|(id, version)| mark(*id, *version)).collect()
}

fn cut(listing: &[Row], from: usize, size: usize) -> &[Row] {
    let from = from.min(listing.len());
    listing.get(from..(from + size).min(listing.len())).unwrap_or_default()
}

fn keep(rows: &[Row], fresh: &[bool], read: &mut Vec<Row>) {
    read.extend(rows.iter().zip(fresh).filter(|(_, fresh)| **fresh).map(|(row, _)| *row));
}

#[derive(Clone)]
struct ByOffset {
    walk: Anchored,
    tells_total: bool,
}

impl Reader for ByOffset {
    fn ask(&mut self, listing: &[Row], size: usize, read: &mut Vec<Row>) -> Went {
        let rows = cut(listing, usize::try_from(self.walk.position()).unwrap(), size);
        let marks = marks(rows);
        keep(rows, &self.walk.fresh(&marks), read);
        match self.walk.page(&marks, None, self.tells_total.then_some(listing.len() as u64)) {
            Ok(Turn::Ask(_)) => Went::On,
            Ok(Turn::Over) => Went::Over,
            Err(_) => Went::GaveUp,
        }
    }
}

#[derive(Clone)]
struct ByNumber {
    walk: Repeated,
    page: usize,
    tells_more: bool,
}

impl Reader for ByNumber {
    fn ask(&mut self, listing: &[Row], size: usize, read: &mut Vec<Row>) -> Went {
        let rows = cut(listing, self.page * size, size);
        let marks = marks(rows);
        keep(rows, &self.walk.fresh(&marks), read);
        self.page += 1;
        self.walk.page(&marks).unwrap();
        if !rows.is_empty() && !(self.tells_more && self.page * size >= listing.len()) {
            return Went::On;
        }
        self.page = 0;
        match self.walk.is_to_repeat() {
            Ok(true) => Went::On,
            Ok(false) => Went::Over,
            Err(_) => Went::GaveUp,
        }
    }
}

/// A listing sorted by version, asked for from a version on.
#[derive(Clone)]
struct ByVersion {
    walk: Keyset,
    from: i64,
}

impl Reader for ByVersion {
    fn ask(&mut self, listing: &[Row], size: usize, read: &mut Vec<Row>) -> Went {
        let mut rows: Vec<Row> =
            listing.iter().copied().filter(|(_, version)| *version >= self.from).collect();
        rows.sort_by_key(|(id, version)| (*version, *id));
        rows.truncate(size);
        let marks = marks(&rows);
        keep(&rows, &self.walk.fresh(&marks), read);
        match self.walk.page(&marks, None, None) {
            Ok(Some(Version(next))) => {
                self.from = next;
                Went::On
            }
            Ok(None) => Went::Over,
            Err(_) => Went::GaveUp,
        }
    }
}

/// A change of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edit {
    Remove,
    Insert,
    MoveToTop,
    MoveToEnd,
    Change,
}

const ALL: [Edit; 5] = [Edit::Remove, Edit::Insert, Edit::MoveToTop, Edit::MoveToEnd, Edit::Change];

/// A listing under way, and what has been asked of it.
#[derive(Clone)]
struct Story<R> {
    listing: Vec<Row>,
    /// The rows that have stood since the first request.
    stood: Vec<Row>,
    read: Vec<Row>,
    reader: R,
    edits: u8,
    requests: u32,
}

/// What came of all stories.
#[derive(Debug, Default)]
struct Tally {
    complete: u64,
    gave_up: u64,
    most_requests: u32,
    /// The first loss: what the listing was at the end, and the rows that were not read.
    lost: Option<(Vec<Row>, Vec<Row>)>,
}

impl<R: Reader> Story<R> {
    fn edited(&self, edit: Edit, at: usize) -> Self {
        let mut story = self.clone();
        story.edits += 1;
        // Newer than all there is, and no two alike.
        let version = i64::from(story.edits) + 10;
        if edit == Edit::Insert {
            story.listing.insert(at, (story.edits + 100, version));
            return story;
        }
        let (id, _) = story.listing.remove(at);
        match edit {
            Edit::MoveToTop => story.listing.insert(0, (id, version)),
            Edit::MoveToEnd => story.listing.push((id, version)),
            Edit::Change => story.listing.insert(at, (id, version)),
            Edit::Remove | Edit::Insert => {}
        }
        story.stood.retain(|row| story.listing.contains(row));
        story
    }

    /// Tells every way on from here, with at most `edits` changes in all.
    fn tell(mut self, size: usize, kinds: &[Edit], edits: u8, tally: &mut Tally) {
        if self.requests > 0 && self.edits < edits {
            for edit in kinds {
                let places = self.listing.len() + usize::from(*edit == Edit::Insert);
                for at in 0..places {
                    self.edited(*edit, at).tell(size, kinds, edits, tally);
                }
            }
        }
        self.requests += 1;
        assert!(self.requests < 200, "endless over {:?}", self.listing);
        match self.reader.ask(&self.listing, size, &mut self.read) {
            Went::On => return self.tell(size, kinds, edits, tally),
            Went::GaveUp => return tally.gave_up += 1,
            Went::Over => {}
        }
        tally.complete += 1;
        tally.most_requests = tally.most_requests.max(self.requests);
        let mut missing = self.stood;
        missing.retain(|row| !self.read.contains(row));
        if !missing.is_empty() && tally.lost.is_none() {
            tally.lost = Some((self.listing, missing));
        }
    }
}

/// Walks every listing of one to five rows, in pages of these sizes.
fn tally(
    reader: &impl Reader,
    sizes: &[usize],
    version_of: fn(u8) -> i64,
    kinds: &[Edit],
    edits: u8,
) -> Tally {
    let mut tally = Tally::default();
    for rows in 1..=5 {
        let listing: Vec<Row> = (0..rows).map(|id| (id, version_of(id))).collect();
        for size in sizes {
            let story = Story {
                listing: listing.clone(),
                stood: listing.clone(),
                read: Vec::new(),
                reader: reader.clone(),
                edits: 0,
                requests: 0,
            };
            story.tell(*size, kinds, edits, &mut tally);
        }
    }
    assert_eq!(tally.lost, None, "{tally:?}");
    assert!(tally.complete > 9_000, "{tally:?}");
    tally
}

/// Changes that can make rows of a listing move.
const SHIFTS: [Edit; 3] = [Edit::Remove, Edit::Insert, Edit::MoveToEnd];

#[test]
fn no_row_that_stood_throughout_is_lost_by_overlapping_offsets() {
    for tells_total in [false, true] {
        let reader = ByOffset { walk: Anchored::default(), tells_total };
        let tallies = [tally(&reader, &[2, 3], |_| 1, &ALL, 2), tally(&reader, &[2, 3], |_| 1, &SHIFTS, 3)];
        assert_eq!(tallies.map(|tally| tally.gave_up), [0, 0], "three changes are nothing");
    }
}

#[test]
fn no_row_that_stood_throughout_is_lost_by_repeated_walks() {
    let reader = |tells_more| ByNumber { walk: Repeated::default(), page: 0, tells_more };
    let tallies = [
        tally(&reader(false), &[2, 3], |_| 1, &ALL, 2),
        tally(&reader(true), &[2, 3], |_| 1, &ALL, 2),
        // The smallest pages shift the most, and there are a million stories of them.
        tally(&reader(true), &[2], |_| 1, &SHIFTS, 3),
    ];
    assert_eq!(tallies.map(|tally| tally.gave_up), [0, 0, 0], "three changes are nothing");
}

#[test]
fn no_row_that_stood_throughout_is_lost_by_keyset() {
    let reader = ByVersion { walk: Keyset::default(), from: 0 };
    for version_of in [|id| i64::from(id) + 1, |id| i64::from(id / 2) + 1, |id| i64::from(id / 4) + 1] {
        tally(&reader, &[2, 3], version_of, &SHIFTS, 3);
    }
}
