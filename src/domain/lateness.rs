//! How late records show up at their source: how far below the watermark a change lay that a run found. It is what the
//! lookback has to cover, measured.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;

use super::{
    sighting::{Finding, Sighting},
    units::format_duration,
    version::Version,
};

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// The upper bounds of the buckets, in seconds; one more bucket takes what is beyond the last.
const BOUNDS: [u64; 25] = [
    0,
    1,
    2,
    5,
    10,
    15,
    30,
    MINUTE,
    2 * MINUTE,
    3 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    15 * MINUTE,
    20 * MINUTE,
    30 * MINUTE,
    45 * MINUTE,
    HOUR,
    90 * MINUTE,
    2 * HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    7 * DAY,
];

/// So many changes are enough to say what one in a thousand is.
pub const EVIDENCE: u64 = 1_000;

/// The number of the bucket of a lateness.
pub fn bucket_of(lateness: Duration) -> usize {
    BOUNDS.iter().position(|bound| lateness <= Duration::from_secs(*bound)).unwrap_or(BOUNDS.len())
}

/// The upper bound of a bucket; `None` for the last one.
pub fn bound_of(bucket: usize) -> Option<Duration> {
    BOUNDS.get(bucket).copied().map(Duration::from_secs)
}

/// How a page tells late changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// A page of a live run, by the watermark that held when the run began.
    Live(Version),
    /// A page of a walk beside it, by the watermark that holds when the page is decided.
    Beside(Passed),
}

/// What polling has passed: what lies below this will not be asked for again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// How far behind the watermark a live run reads again; `None` where there are no versions, so that a live run reads
    /// everything and has passed whatever it does not know.
    pub lookback: Option<i64>,
    /// The first version of interest.
    pub start: Option<Version>,
    /// Whether versions are points in time, so that a lateness is a duration.
    pub is_time: bool,
}

impl Passed {
    /// How far below the watermark a change lies that polling has passed; `None` where it has not. Zero where that is
    /// no duration.
    fn by(self, version: Option<Version>, watermark: Option<Version>) -> Option<Duration> {
        let Some(lookback) = self.lookback else { return Some(Duration::ZERO) };
        let (Version(version), Version(watermark)) = version.zip(watermark)?;
        let is_asked_for = self.start.is_none_or(|Version(start)| start <= version);
        let has_passed = is_asked_for && version < watermark.saturating_sub(lookback);
        has_passed.then(|| if self.is_time { below(version, watermark) } else { Duration::ZERO })
    }
}

fn below(version: i64, watermark: i64) -> Duration {
    Duration::from_micros(u64::try_from(watermark.saturating_sub(version)).unwrap_or(0))
}

/// What a page adds to a bucket, or what a bucket holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Changes that live runs found.
    pub live: u64,
    /// Changes that polling had passed, which a sweep or a replay found.
    pub missed: u64,
    /// The longest lateness among them.
    #[serde(skip)]
    pub longest: Duration,
}

/// What a page measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// What it adds to each bucket.
    pub buckets: BTreeMap<usize, Tally>,
    /// How many changes polling had passed, those among them that have no lateness.
    pub missed: u64,
    /// How late the latest of these was.
    pub longest_missed: Duration,
}

/// Measures a page by what it found of each key. `watermark` is the live one as it is now.
///
/// A change by content alone and a key that is back have a version that says nothing of when they happened.
pub fn measure(sightings: &[Sighting], measure: Measure, watermark: Option<Version>) -> Measured {
    let mut measured = Measured::default();
    for sighting in sightings {
        let is_change = matches!(
            sighting.finding,
            Finding::Created
                | Finding::UpdatedByVersion
                | Finding::UpdatedByContent
                | Finding::Deleted
                | Finding::Restored
        );
        let has_lateness = matches!(sighting.finding, Finding::Created | Finding::UpdatedByVersion);
        match (measure, sighting.version) {
            _ if !is_change => {}
            (Measure::Live(Version(watermark)), Some(Version(version))) if has_lateness => {
                let lateness = below(version, watermark);
                let tally = measured.buckets.entry(bucket_of(lateness)).or_default();
                (tally.live, tally.longest) = (tally.live + 1, tally.longest.max(lateness));
            }
            (Measure::Live(_), _) => {}
            (Measure::Beside(passed), version) => {
                let Some(lateness) = passed.by(version, watermark) else { continue };
                measured.missed += 1;
                if has_lateness && passed.is_time && passed.lookback.is_some() {
                    measured.longest_missed = measured.longest_missed.max(lateness);
                    let tally = measured.buckets.entry(bucket_of(lateness)).or_default();
                    (tally.missed, tally.longest) = (tally.missed + 1, tally.longest.max(lateness));
                }
            }
        }
    }
    measured
}

/// What is known of a job's late changes, by bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram(pub BTreeMap<usize, Tally>);

impl Histogram {
    /// How many changes were measured.
    pub fn changes(&self) -> u64 {
        self.0.values().map(|tally| tally.live + tally.missed).sum()
    }

    /// How late all but one in a thousand changes are at most; `None` where too few were measured to say.
    pub fn p999(&self) -> Option<Duration> {
        let changes = self.changes();
        if changes < EVIDENCE {
            return None;
        }
        let enough = changes - changes / 1_000;
        let mut count = 0;
        self.0.values().find_map(|tally| {
            count += tally.live + tally.missed;
            (count >= enough).then_some(tally.longest)
        })
    }

    /// What a person should know where the lookback does not reach as far as records are late.
    pub fn advice(&self, lookback: Duration) -> Option<String> {
        let p999 = self.p999().filter(|p999| *p999 > lookback)?;
        let advice = match bound_of(bucket_of(p999)) {
            Some(bound) => format!("set lookback: {}", format_duration(bound)),
            None => "no lookback covers that: look at how the source numbers its versions".to_owned(),
        };
        // Rounded up, as a bound is.
        let told = Duration::from_secs(p999.as_secs() + u64::from(p999.subsec_nanos() > 0));
        Some(format!(
            "p99.9 lateness {} exceeds lookback {}: {advice}",
            format_duration(told),
            format_duration(lookback)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{key::RecordKey, sighting::Sighting};

    fn sighting(finding: Finding, version: Option<i64>) -> Sighting {
        let known = Sighting::known(&RecordKey::from_stored("1".into()));
        Sighting { finding, version: version.map(|seconds| Version(seconds * 1_000_000)), ..known }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_lateness_is_in_the_first_bucket_that_holds_it() {
        let cases = [
            (0, 0),
            (1, 1),
            (999_999, 1),
            (1_000_000, 1),
            (1_000_001, 2),
            (60_000_000, 7),
            (22 * 60_000_000, 14),
            (i64::MAX.unsigned_abs(), 25),
        ];
        for (micros, expected) in cases {
            assert_eq!(bucket_of(Duration::from_micros(micros)), expected, "{micros}");
        }
        assert!(BOUNDS.is_sorted());
        assert_eq!((bound_of(14), bound_of(25)), (Some(seconds(1_800)), None));
    }

    #[test]
    fn a_live_change_is_as_late_as_it_lies_below_the_watermark() {
        let watermark = Version(100_000_000);
        // finding, version -> lateness in seconds
        let cases = [
            (Finding::Created, Some(100), Some(0)),
            (Finding::Created, Some(130), Some(0)),
            (Finding::UpdatedByVersion, Some(40), Some(60)),
            (Finding::UpdatedByContent, Some(40), None),
            (Finding::Restored, Some(40), None),
            (Finding::Created, None, None),
            (Finding::Unchanged, Some(40), None),
            (Finding::Known, None, None),
        ];
        for (finding, version, expected) in cases {
            let found = measure(&[sighting(finding, version)], Measure::Live(watermark), None);
            let lateness = found.buckets.values().next().map(|tally| tally.longest.as_secs());
            assert_eq!(lateness, expected, "{finding:?} {version:?}");
            assert_eq!(found.missed, 0);
        }
    }

    #[test]
    fn a_change_is_missed_that_polling_had_passed() {
        let times = Passed { lookback: Some(10_000_000), start: None, is_time: true };
        let numbers = Passed { lookback: Some(0), is_time: false, ..times };
        let none = Passed { lookback: None, ..times };
        let started = Passed { start: Some(Version(50_000_000)), ..times };
        let w = Some(Version(100_000_000));
        // passed, watermark, finding, version -> missed, lateness in seconds
        let cases = [
            (times, w, Finding::Created, Some(89), 1, Some(11)),
            (times, w, Finding::Created, Some(90), 0, None),
            (times, w, Finding::Created, Some(101), 0, None),
            (times, None, Finding::Created, Some(89), 0, None),
            (times, w, Finding::Created, None, 0, None),
            (times, w, Finding::UpdatedByContent, Some(89), 1, None),
            (times, w, Finding::Unchanged, Some(89), 0, None),
            (started, w, Finding::Created, Some(49), 0, None),
            (started, w, Finding::Created, Some(50), 1, Some(50)),
            (numbers, w, Finding::Created, Some(99), 1, None),
            (none, None, Finding::Created, None, 1, None),
            (none, None, Finding::Known, None, 0, None),
        ];
        for (passed, watermark, finding, version, missed, lateness) in cases {
            let found = measure(&[sighting(finding, version)], Measure::Beside(passed), watermark);
            let longest = found.buckets.values().next().map(|tally| tally.longest.as_secs());
            assert_eq!((found.missed, longest), (missed, lateness), "{passed:?} {finding:?} {version:?}");
        }
    }

    #[test]
    fn one_in_a_thousand_is_told_of_with_enough_evidence() {
        let histogram = |live: u64, missed: u64, longest: u64| {
            let late = Tally { live: 0, missed, longest: seconds(longest) };
            Histogram(BTreeMap::from([
                (0, Tally { live, missed: 0, longest: Duration::ZERO }),
                (bucket_of(seconds(longest)), late),
            ]))
        };
        let minute = 60;
        // on time, late, how late -> p99.9, the bound that covers it
        let cases = [
            (900, 99, 22 * minute, None, None),
            (999, 1, 22 * minute, Some(0), None),
            (998, 2, 22 * minute, Some(22 * minute), Some("30m")),
            (998, 2, 15 * minute, Some(15 * minute), None),
            (998, 2, 15 * minute + 1, Some(15 * minute + 1), Some("20m")),
            (998, 2, 30 * 24 * 60 * minute, Some(30 * 24 * 60 * minute), Some("no lookback")),
        ];
        for (live, missed, longest, p999, advice) in cases {
            let histogram = histogram(live, missed, longest);
            assert_eq!(histogram.p999().map(|p999| p999.as_secs()), p999, "{live} {missed} {longest}");
            let told = histogram.advice(seconds(15 * minute));
            assert_eq!(told.is_some(), advice.is_some(), "{told:?}");
            assert!(told.unwrap_or_default().contains(advice.unwrap_or_default()));
        }
        assert_eq!(
            histogram(998, 2, 22 * minute).advice(seconds(15 * minute)).unwrap(),
            "p99.9 lateness 22m exceeds lookback 15m: set lookback: 30m"
        );
        assert_eq!(Histogram::default().p999(), None);
    }
}
