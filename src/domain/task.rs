//! Walks beside the live one: a replay that a person asks for, or a sweep. A task lives until its window is read whole,
//! over as many runs as that takes; it never moves the watermark.

use serde::{Deserialize, Serialize};

use super::{page::SeenRecord, rate::Rate, run::stored_names, version::Version};

/// A task's number in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct TaskId(pub i64);

/// What a task is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskKind {
    /// A window is read again and what was missed is sent.
    Replay,
    /// Everything is read, so that it shows what is gone.
    Reconcile,
}

stored_names!(TaskKind { Self::Replay => "replay", Self::Reconcile => "reconcile" });

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// Its window is not read whole yet.
    Open,
    /// Its window was read whole.
    Done,
    /// So many of its runs failed at one place that it waits for a person.
    Failed,
    /// A person ended it.
    Cancelled,
}

stored_names!(TaskState {
    Self::Open => "open",
    Self::Done => "done",
    Self::Failed => "failed",
    Self::Cancelled => "cancelled",
});

/// So many failures at one place end a task's own attempts: after three of them less is asked for at once.
const MOST_FAILURES: u32 = 6;

impl TaskState {
    /// The state after `failures` runs that failed one after another.
    pub const fn after_failures(failures: u32) -> Self {
        if failures >= MOST_FAILURES { Self::Failed } else { Self::Open }
    }
}

/// What a replay sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resend {
    /// What the job did not know yet.
    #[default]
    Changed,
    /// All that it reads, under new event ids.
    All,
    /// Nothing: what it reads is recorded only.
    None,
}

/// What a task reads and sends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The first version; `None` is where the listing begins.
    pub from: Option<Version>,
    /// The version after the last; `None` is where the listing ends.
    pub to: Option<Version>,
    /// The keys of interest, sorted; none for all.
    pub keys: Vec<String>,
    /// What is sent.
    pub resend: Resend,
    /// How often the source is asked at most, beside its own limits.
    pub rate: Option<Rate>,
}

impl Plan {
    /// Whether a record is one of those that are asked for. One without a version belongs to every window.
    pub fn wants(&self, record: &SeenRecord) -> bool {
        let in_window = record.version.is_none_or(|version| {
            self.from.is_none_or(|from| from <= version) && self.to.is_none_or(|to| version < to)
        });
        in_window && (self.keys.is_empty() || self.has_key(record.key.as_str()))
    }

    fn has_key(&self, key: &str) -> bool {
        self.keys.binary_search_by(|known| known.as_str().cmp(key)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;
    use crate::domain::{content::Hash, key::RecordKey};

    fn record(key: &str, version: Option<i64>) -> SeenRecord {
        SeenRecord {
            key: RecordKey::from_stored(key.into()),
            version: version.map(Version),
            fingerprint: Hash::of(b""),
            flagged: false,
            raw: RawValue::from_string("{}".into()).unwrap(),
        }
    }

    #[test]
    fn a_plan_wants_the_keys_and_the_versions_of_its_window() {
        let plan = |from: Option<i64>, to: Option<i64>, keys: &[&str]| Plan {
            from: from.map(Version),
            to: to.map(Version),
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            ..Plan::default()
        };
        // from, to, keys, key, version -> wanted
        let cases: [(_, _, &[&str], _, _, _); 9] = [
            (None, None, &[], "1", Some(5), true),
            (Some(5), Some(6), &[], "1", Some(5), true),
            (Some(5), Some(6), &[], "1", Some(6), false),
            (Some(5), None, &[], "1", Some(4), false),
            (None, Some(6), &[], "1", Some(-9), true),
            (Some(5), Some(6), &[], "1", None, true),
            (None, None, &["1", "2"], "2", None, true),
            (None, None, &["1", "2"], "3", None, false),
            (Some(5), None, &["1", "2"], "2", Some(4), false),
        ];
        for (from, to, keys, key, version, expected) in cases {
            let wanted = plan(from, to, keys).wants(&record(key, version));
            assert_eq!(wanted, expected, "{from:?} {to:?} {keys:?} {key} {version:?}");
        }
    }

    #[test]
    fn a_task_fails_for_good_after_less_was_asked_for_too() {
        let states: Vec<_> =
            [0, 1, 5, 6, 7].map(|failures| TaskState::after_failures(failures).name()).into();
        assert_eq!(states, ["open", "open", "open", "failed", "failed"]);
    }

    #[test]
    fn it_reads_back_what_it_wrote() {
        let plan =
            Plan { to: Some(Version(7)), keys: vec!["a".into()], resend: Resend::All, ..Plan::default() };
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
    }
}
