//! Where a walk that has not reached its end stands, kept with every page, so that the next run goes on
//! there instead of reading the window again.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{instant::Instant, version::Version, watermark::Seen, window::Step};

/// A walk that has not reached its end. What its first answer fixed holds for the runs that go on with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bookmark {
    /// The hash of everything that shapes requests, keys and versions: under another one it is void.
    pub fingerprint: String,
    /// How many runs had failed at the watermark when it was made.
    pub failures: u32,
    /// The highest version that may be called complete.
    pub hi: Option<Version>,
    /// What the walk is complete through once it ends.
    pub complete_through: Instant,
    /// Where the window ends, as far as that was known beforehand.
    pub planned: Option<Version>,
    /// The step that is being walked over.
    pub step: Step,
    /// The versions that it has met.
    pub seen: Seen,
    /// The next page, where the listing names it.
    pub page: Option<PageMark>,
    /// The version below which every row of the step was read.
    pub risen_to: Option<Version>,
}

/// The next page of a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageMark {
    /// Its token.
    pub token: Value,
    /// Its whole URL.
    pub url: Option<String>,
    /// The rows in front of it.
    pub offset: u64,
    /// Its number, from the API's base.
    pub number: u64,
    /// The version that the rows in front of it have risen to, where they were sorted.
    pub risen_to: Option<Version>,
    /// The sync token that its walk goes with.
    pub sync_token: Value,
    /// When the answer that named it came, by our clock.
    pub given_at: Instant,
}

/// Where a run goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// At a page of the listing.
    Page(PageMark),
    /// At a version, with a listing of its own from there on.
    From(Version),
}

impl Bookmark {
    /// Where a run may go on that begins at `now`; `None` where it has to read the window from its beginning.
    ///
    /// A page is asked for again while `ttl` lasts and no run has failed since: it may be what they failed
    /// at. A version is good for ever: rows below it that appear later are the next window's.
    pub fn place(
        &self,
        fingerprint: &str,
        failures: u32,
        ttl: Option<Duration>,
        now: Instant,
    ) -> Option<Place> {
        if self.fingerprint != fingerprint {
            return None;
        }
        let is_fresh =
            |page: &&PageMark| ttl.is_some_and(|ttl| page.given_at <= now && now.since(page.given_at) < ttl);
        match self.page.as_ref().filter(|_| failures == self.failures).filter(is_fresh) {
            Some(page) => Some(Place::Page(page.clone())),
            None => self.risen_to.map(Place::From),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn bookmark() -> Bookmark {
        Bookmark {
            fingerprint: "f".into(),
            failures: 1,
            hi: Some(Version(900)),
            complete_through: Instant::from_micros(900),
            planned: None,
            step: Step { from: Some(Version(1)), to: None },
            seen: Seen::default(),
            page: Some(PageMark {
                token: Value::from("t"),
                url: None,
                offset: 2,
                number: 2,
                risen_to: None,
                sync_token: Value::Null,
                given_at: Instant::from_seconds(60),
            }),
            risen_to: None,
        }
    }

    #[test]
    fn a_page_is_used_again_while_its_token_lasts_and_a_version_for_ever() {
        let both = Bookmark { risen_to: Some(Version(7)), ..bookmark() };
        let neither = Bookmark { page: None, ..bookmark() };
        // bookmark, fingerprint, failures, ttl, now in seconds -> page, version or nothing
        let cases = [
            (bookmark(), "f", 1, Some(MINUTE), 60, "page"),
            (bookmark(), "f", 1, Some(MINUTE), 119, "page"),
            (bookmark(), "f", 1, Some(MINUTE), 120, "nothing"),
            (bookmark(), "f", 1, Some(MINUTE), 59, "nothing"),
            (bookmark(), "f", 1, None, 60, "nothing"),
            (bookmark(), "g", 1, Some(MINUTE), 60, "nothing"),
            (bookmark(), "f", 2, Some(MINUTE), 60, "nothing"),
            (both.clone(), "f", 1, Some(MINUTE), 60, "page"),
            (both.clone(), "f", 2, Some(MINUTE), 60, "version"),
            (both.clone(), "f", 1, None, 9_999, "version"),
            (both, "g", 1, None, 60, "nothing"),
            (neither, "f", 1, Some(MINUTE), 60, "nothing"),
        ];
        for (bookmark, fingerprint, failures, ttl, now, expected) in cases {
            let place = bookmark.place(fingerprint, failures, ttl, Instant::from_seconds(now));
            let kind = match place {
                Some(Place::Page(_)) => "page",
                Some(Place::From(_)) => "version",
                None => "nothing",
            };
            assert_eq!(kind, expected, "{fingerprint} {failures} {ttl:?} {now}");
        }
    }

    #[test]
    fn it_reads_back_what_it_wrote() {
        let mark = PageMark {
            token: serde_json::from_str("12345678901234567890123").unwrap(),
            url: Some("https://a.test/?p=2".into()),
            ..bookmark().page.unwrap()
        };
        let bookmark = Bookmark { page: Some(mark), risen_to: Some(Version(i64::MIN)), ..bookmark() };
        let text = serde_json::to_string(&bookmark).unwrap();
        assert_eq!(serde_json::from_str::<Bookmark>(&text).unwrap(), bookmark);
    }
}
