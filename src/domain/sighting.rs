//! What a page decided of each of its keys, kept in a few bytes a key: the answer to why a record did or did
//! not become an event.
//!
//! A record whose bytes are known costs nine bytes and no version: it follows from the sighting that brought one.

use serde::Serialize;

use super::{
    content::Hash,
    decide::{Decision, Stored},
    key::RecordKey,
    version::Version,
};

/// Eight bytes of a key's hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyMark(pub [u8; 8]);

impl KeyMark {
    /// The mark of a key.
    pub fn of(key: &RecordKey) -> Self {
        let Hash(hash) = Hash::of(key.as_str().as_bytes());
        Self(hash.first_chunk().copied().unwrap_or_default())
    }
}

/// One key on one page, as it was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// Whose it is.
    pub key: KeyMark,
    /// What was found.
    pub finding: Finding,
    /// Why a change was recorded without an event, where it was.
    pub silent: Option<Silent>,
    /// The version that the record was read with; `None` where it has none, or where the bytes are known.
    pub version: Option<Version>,
}

macro_rules! findings {
    ($($(#[$doc:meta])+ $variant:ident = $code:literal, $name:literal;)+) => {
        /// What a page found a record to be: the decision, and what it was taken by.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Finding {
            $($(#[$doc])+ $variant,)+
        }

        impl Finding {
            /// All findings.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The name in JSON and for people.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            const fn code(self) -> u8 {
                match self { $(Self::$variant => $code),+ }
            }

            const fn of_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

findings! {
    /// The bytes are those that are stored.
    Known = 0, "known";
    /// The bytes differ, and nothing that counts.
    Unchanged = 1, "unchanged";
    /// A key not known before.
    Created = 2, "created";
    /// A key not known before, already deleted.
    CreatedDeleted = 3, "created_deleted";
    /// A newer version of a known key.
    UpdatedByVersion = 4, "updated_by_version";
    /// Other content of a known key, under no newer version.
    UpdatedByContent = 5, "updated_by_content";
    /// A known key became deleted.
    Deleted = 6, "deleted";
    /// A deleted key came back.
    Restored = 7, "restored";
    /// An older version than the one stored.
    Stale = 8, "stale";
    /// Other content, on a page asked for before the stored state was answered.
    StaleRead = 9, "stale_read";
    /// A second change by content alone in one run.
    Conflict = 10, "conflict";
    /// Another sighting of the key on the same page was taken.
    Outdone = 11, "outdone";
    /// An old version of a key that is not known, or was forgotten for its age.
    BelowFloor = 12, "below_floor";
    /// A key that is known and of which it is forgotten what it was, under a version that is below the floor.
    ReSeen = 13, "re_seen";
}

impl Finding {
    /// What a decision found, against the state that was stored of the key and the version read.
    pub fn of(decision: Decision, stored: Option<&Stored>, version: Option<Version>) -> Self {
        match decision {
            Decision::Created => Self::Created,
            Decision::CreatedDeleted => Self::CreatedDeleted,
            Decision::Updated if version > stored.and_then(|stored| stored.version) => Self::UpdatedByVersion,
            Decision::Updated => Self::UpdatedByContent,
            Decision::Deleted => Self::Deleted,
            Decision::Restored => Self::Restored,
            Decision::Unchanged => Self::Unchanged,
            Decision::Stale => Self::Stale,
            Decision::StaleRead => Self::StaleRead,
            Decision::Conflict => Self::Conflict,
            Decision::BelowFloor => Self::BelowFloor,
        }
    }

    /// Whether the record said nothing new.
    pub const fn is_nothing_new(self) -> bool {
        matches!(self, Self::Known | Self::Unchanged)
    }
}

/// Why a change was recorded without an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Silent {
    /// It was there when the baseline was taken.
    Baseline,
    /// The job does not send changes of its kind.
    NotSent,
}

/// Where the decision byte says that a version follows.
const HAS_VERSION: u8 = 0x80;
/// How far the silence stands from the right of the decision byte.
const SILENCE: u8 = 5;
/// The finding within the decision byte.
const FINDING: u8 = 0x1f;

/// The decision bytes of records that say nothing new.
pub const NOTHING_NEW: [u8; 3] =
    [Finding::Known.code(), Finding::Unchanged.code(), Finding::Unchanged.code() | HAS_VERSION];

/// The most bytes that a sighting takes.
pub const LONGEST: u8 = 17;

impl Sighting {
    /// A record whose bytes are known.
    pub fn known(key: &RecordKey) -> Self {
        Self { key: KeyMark::of(key), finding: Finding::Known, silent: None, version: None }
    }

    /// A record that another of its key on the same page was taken for.
    pub fn outdone(key: &RecordKey, version: Option<Version>) -> Self {
        Self { key: KeyMark::of(key), finding: Finding::Outdone, silent: None, version }
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        let silent = match self.silent {
            None => 0,
            Some(Silent::Baseline) => 1,
            Some(Silent::NotSent) => 2,
        };
        let has_version = if self.version.is_some() { HAS_VERSION } else { 0 };
        bytes.extend(self.key.0);
        bytes.push(self.finding.code() | silent << SILENCE | has_version);
        if let Some(Version(version)) = self.version {
            bytes.extend(version.to_be_bytes());
        }
    }

    /// The first sighting in `bytes`, and what follows it; `None` where they begin with none.
    fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (key, rest) = bytes.split_first_chunk::<8>()?;
        let (decision, rest) = rest.split_first()?;
        let (version, rest) = if decision & HAS_VERSION == 0 {
            (None, rest)
        } else {
            let (version, rest) = rest.split_first_chunk::<8>()?;
            (Some(Version(i64::from_be_bytes(*version))), rest)
        };
        let silent = match (decision & !HAS_VERSION) >> SILENCE {
            0 => None,
            1 => Some(Silent::Baseline),
            2 => Some(Silent::NotSent),
            _ => return None,
        };
        let finding = Finding::of_code(decision & FINDING)?;
        Some((Self { key: KeyMark(*key), finding, silent, version }, rest))
    }
}

/// The sightings of a page as they are stored.
pub fn encode(sightings: &[Sighting]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(sightings.len() * usize::from(LONGEST));
    for sighting in sightings {
        sighting.write(&mut bytes);
    }
    bytes
}

/// The first sighting in `bytes`, whatever follows it.
pub fn first(bytes: &[u8]) -> Option<Sighting> {
    Sighting::read(bytes).map(|(sighting, _)| sighting)
}

/// The sightings of a page, from what is stored; `None` where no release stored it.
pub fn decode(mut bytes: &[u8]) -> Option<Vec<Sighting>> {
    let mut sightings = Vec::new();
    while !bytes.is_empty() {
        let (sighting, rest) = Sighting::read(bytes)?;
        sightings.push(sighting);
        bytes = rest;
    }
    Some(sightings)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(text: &str) -> RecordKey {
        RecordKey::from_stored(text.to_owned())
    }

    fn any_sighting() -> impl Strategy<Value = Sighting> {
        let silences = [None, Some(Silent::Baseline), Some(Silent::NotSent)];
        let version = prop::option::of(any::<i64>().prop_map(Version));
        (any::<[u8; 8]>(), 0..Finding::ALL.len(), 0..silences.len(), version).prop_map(
            move |(key, finding, silent, version)| Sighting {
                key: KeyMark(key),
                finding: Finding::ALL[finding],
                silent: silences[silent],
                version,
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_stored_is_what_was_decided(sightings in prop::collection::vec(any_sighting(), 0..40)) {
            prop_assert_eq!(decode(&encode(&sightings)), Some(sightings));
        }

        #[test]
        fn bytes_of_no_release_are_no_sightings_and_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Some(sightings) = decode(&bytes) {
                prop_assert_eq!(encode(&sightings), bytes);
            }
        }
    }

    #[test]
    fn a_known_record_takes_nine_bytes_and_says_so_in_its_ninth() {
        let known = encode(&[Sighting::known(&key("1"))]);
        assert_eq!((known.len(), known[8]), (9, 0));
        for version in [None, Some(Version(-1))] {
            let unchanged = Sighting { finding: Finding::Unchanged, version, ..Sighting::known(&key("1")) };
            assert!(NOTHING_NEW.contains(&encode(&[unchanged])[8]));
        }
        assert_eq!(encode(&[Sighting::outdone(&key("1"), Some(Version(1)))]).len(), usize::from(LONGEST));
        assert!(!NOTHING_NEW.contains(&encode(&[Sighting::outdone(&key("1"), None)])[8]));
    }

    #[test]
    fn a_mark_is_the_first_half_of_the_hash_of_the_key() {
        assert_eq!(KeyMark::of(&key("17")).0, Hash::of(b"17").0[..8]);
        assert_ne!(KeyMark::of(&key("17")), KeyMark::of(&key("18")));
    }

    #[test]
    fn an_update_is_by_its_version_only_where_that_is_newer() {
        use crate::domain::instant::Instant;

        let stored = |version: Option<i64>| Stored {
            version: version.map(Version),
            hash: Hash::of(b""),
            deleted: None,
            provisional: false,
            versionless: false,
            answered_at: Instant::from_seconds(0),
            hash_run: None,
        };
        let cases = [
            (Some(1), Some(2), Finding::UpdatedByVersion),
            (None, Some(2), Finding::UpdatedByVersion),
            (Some(2), Some(2), Finding::UpdatedByContent),
            (Some(2), None, Finding::UpdatedByContent),
            (None, None, Finding::UpdatedByContent),
            (Some(3), Some(2), Finding::UpdatedByContent),
        ];
        for (known, seen, expected) in cases {
            let found = Finding::of(Decision::Updated, Some(&stored(known)), seen.map(Version));
            assert_eq!(found, expected, "{known:?} {seen:?}");
        }
    }
}
