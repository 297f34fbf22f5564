//! An event: one change, in the bytes that n8n receives. The body is made once, in the transaction that
//! stores the change, so that every attempt sends the same bytes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{
    content::Hash,
    decide::Decision,
    instant::Instant,
    key::RecordKey,
    numbers::Numbers,
    page::Replay,
    version::{Version, VersionFormat},
};

/// The kinds of change a job can send.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each is named as the decision it tells of")]
pub enum ChangeKind {
    Created,
    Updated,
    Deleted,
    Restored,
}

impl ChangeKind {
    /// All kinds: what a job sends by default.
    pub const ALL: [Self; 4] = [Self::Created, Self::Updated, Self::Deleted, Self::Restored];

    /// The kind of change a decision is, if it is one.
    pub const fn of(decision: Decision) -> Option<Self> {
        match decision {
            Decision::Created => Some(Self::Created),
            Decision::Updated => Some(Self::Updated),
            Decision::Deleted => Some(Self::Deleted),
            Decision::Restored => Some(Self::Restored),
            Decision::CreatedDeleted
            | Decision::Unchanged
            | Decision::Stale
            | Decision::StaleRead
            | Decision::Conflict
            | Decision::BelowFloor => None,
        }
    }

    /// The kind of this event's `type`.
    pub fn from_event_type(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.event_type() == name)
    }

    /// The `type` of the event.
    pub const fn event_type(self) -> &'static str {
        match self {
            Self::Created => "record.created",
            Self::Updated => "record.updated",
            Self::Deleted => "record.deleted",
            Self::Restored => "record.restored",
        }
    }
}

/// Whose records they are: the parts of an event that are the same for a whole job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSource {
    /// The job's internal id, which outlives renaming.
    pub job_uid: String,
    /// The job's name.
    pub job: String,
    /// The connector's name.
    pub connector: String,
    /// The stream's name.
    pub stream: String,
    /// How the job's versions are shown.
    pub format: VersionFormat,
    /// How large integers go out.
    pub numbers: Numbers,
}

/// The `type` of what came in by a webhook.
const RECEIVED: &str = "hook.received";

/// Whose webhooks they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookSource {
    /// The hook's internal id.
    pub uid: String,
    /// The hook's name.
    pub name: String,
}

/// An event ready to be stored in the outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `evt_` and 32 hexadecimal digits: the same for the same change after any crash.
    pub id: String,
    /// The record's key.
    pub key: RecordKey,
    /// The key's position: 1 for its first event.
    pub sequence: i64,
    /// What it tells of, as its `type`.
    pub event_type: &'static str,
    /// The request body, byte for byte.
    pub body: String,
}

/// One change, with all that its event tells.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the members of the body, as the README shows it")]
pub struct Change<'a> {
    pub kind: ChangeKind,
    pub key: &'a RecordKey,
    pub version: Option<Version>,
    pub previous_version: Option<Version>,
    pub sequence: i64,
    pub hash: Hash,
    /// The key was known, and what it was is forgotten: nobody can tell whether this was told before.
    pub re_seen: bool,
    pub observed_at: Instant,
    pub replay: Option<&'a Replay>,
    pub data: &'a RawValue,
}

#[derive(Serialize)]
struct Body<'a> {
    id: &'a str,
    r#type: &'static str,
    job: &'a str,
    connector: &'a str,
    stream: &'a str,
    partition: serde_json::Map<String, serde_json::Value>,
    key: &'a str,
    version: Option<serde_json::Value>,
    previous_version: Option<serde_json::Value>,
    sequence: i64,
    replay: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    re_seen: bool,
    observed_at: Instant,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<&'a BTreeMap<String, String>>,
    data: &'a RawValue,
}

impl Event {
    /// Makes the event of one change. Fails only where the record's own text is not JSON.
    pub fn new(source: &EventSource, change: &Change<'_>) -> Result<Self, serde_json::Error> {
        let id = event_id(source, change);
        let data = source.numbers.spelled(change.data);
        let body = serde_json::to_string(&Body {
            id: &id,
            r#type: change.kind.event_type(),
            job: &source.job,
            connector: &source.connector,
            stream: &source.stream,
            partition: serde_json::Map::new(),
            key: change.key.as_str(),
            version: change.version.map(|version| source.format.show(version)),
            previous_version: change.previous_version.map(|version| source.format.show(version)),
            sequence: change.sequence,
            replay: change.replay.map(|replay| replay.uid.as_str()),
            re_seen: change.re_seen,
            observed_at: change.observed_at,
            headers: None,
            data: serde_json::from_str(&data)?,
        })?;
        let event_type = change.kind.event_type();
        Ok(Self { id, key: change.key.clone(), sequence: change.sequence, event_type, body })
    }

    /// Makes the event of a webhook that came in. `headers` are those that go along.
    pub fn received(
        hook: &HookSource,
        key: &RecordKey,
        received_at: Instant,
        headers: &BTreeMap<String, String>,
        data: &RawValue,
    ) -> Result<Self, serde_json::Error> {
        let id = id_of([hook.uid.as_str(), key.as_str(), RECEIVED]);
        let body = serde_json::to_string(&Body {
            id: &id,
            r#type: RECEIVED,
            job: &hook.name,
            connector: "webhook",
            stream: &hook.name,
            partition: serde_json::Map::new(),
            key: key.as_str(),
            version: None,
            previous_version: None,
            sequence: 1,
            replay: None,
            re_seen: false,
            observed_at: received_at,
            headers: (!headers.is_empty()).then_some(headers),
            data,
        })?;
        Ok(Self { id, key: key.clone(), sequence: 1, event_type: RECEIVED, body })
    }
}

/// An event as the outbox names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentEvent {
    /// Its id.
    pub id: String,
    /// The kind of change.
    pub kind: ChangeKind,
    /// The key's position.
    pub sequence: i64,
}

impl SentEvent {
    /// Whether it told of this version with this content, whatever it called the change: under its own number and kind
    /// the change then has its id.
    pub fn told(&self, source: &EventSource, change: &Change<'_>) -> bool {
        event_id(source, &Change { kind: self.kind, sequence: self.sequence, ..*change }) == self.id
    }
}

/// The event's id, from what makes the change this change and no other. A replay that sends all again makes other events
/// of what was sent before.
fn event_id(source: &EventSource, change: &Change<'_>) -> String {
    let version = change.version.map_or_else(|| "-".to_owned(), |version| version.0.to_string());
    let sequence = change.sequence.to_string();
    let hash = change.hash.hex();
    let parts =
        [&source.job_uid, "", change.key.as_str(), &sequence, &version, &hash, change.kind.event_type()];
    let replay = change.replay.filter(|replay| replay.resends).map(|replay| replay.uid.as_str());
    id_of(parts.into_iter().chain(replay))
}

/// An id made of parts, so that no two lists of them make one.
fn id_of<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let mut text = String::new();
    for part in parts {
        text.push_str(&format!("{}:{part};", part.len()));
    }
    format!("evt_{}", Hash::of(text.as_bytes()).hex())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::task::TaskId;

    fn source() -> EventSource {
        EventSource {
            job_uid: "uid".into(),
            job: "issues".into(),
            connector: "github".into(),
            stream: "issues".into(),
            format: VersionFormat::Iso8601,
            numbers: Numbers::Safe,
        }
    }

    fn event(sequence: i64, data: &str) -> Event {
        replayed(sequence, data, None)
    }

    fn replayed(sequence: i64, data: &str, replay: Option<&Replay>) -> Event {
        let data: &RawValue = serde_json::from_str(data).unwrap();
        let key = RecordKey::from_stored("17".into());
        let change = Change {
            kind: ChangeKind::Updated,
            key: &key,
            version: Some(Version(1_000_000)),
            previous_version: None,
            sequence,
            hash: Hash::of(data.get().as_bytes()),
            re_seen: false,
            observed_at: Instant::from_seconds(2),
            replay,
            data,
        };
        Event::new(&source(), &change).unwrap()
    }

    #[test]
    fn the_body_is_what_the_readme_shows() {
        let event = event(3, r#"{"id": 17, "big": 9007199254740993}"#);
        let expected = format!(
            concat!(
                r#"{{"id":"{}","type":"record.updated","job":"issues","connector":"github","stream":"issues","#,
                r#""partition":{{}},"key":"17","version":"1970-01-01T00:00:01Z","previous_version":null,"#,
                r#""sequence":3,"replay":null,"observed_at":"1970-01-01T00:00:02Z","#,
                r#""data":{{"id": 17, "big": "9007199254740993"}}}}"#
            ),
            event.id
        );
        assert_eq!(event.body, expected);
    }

    #[test]
    fn a_webhook_goes_on_as_it_came() {
        let hook = HookSource { uid: "uid".into(), name: "paid".into() };
        let key = RecordKey::from_stored("evt_1".into());
        let data: &RawValue = serde_json::from_str(r#"{"id": 9007199254740993 }"#).unwrap();
        let none = BTreeMap::new();
        let event = |headers| Event::received(&hook, &key, Instant::from_seconds(2), headers, data).unwrap();
        let plain = event(&none);
        let expected = format!(
            concat!(
                r#"{{"id":"{}","type":"hook.received","job":"paid","connector":"webhook","stream":"paid","#,
                r#""partition":{{}},"key":"evt_1","version":null,"previous_version":null,"sequence":1,"#,
                r#""replay":null,"observed_at":"1970-01-01T00:00:02Z","data":{{"id": 9007199254740993 }}}}"#
            ),
            plain.id
        );
        assert_eq!(plain.body, expected);
        let headers = BTreeMap::from([("x-topic".to_owned(), "paid".to_owned())]);
        assert!(event(&headers).body.contains(r#""headers":{"x-topic":"paid"},"data""#));
        assert_eq!(event(&headers).id, plain.id, "the key alone makes it this one");
    }

    #[test]
    fn the_id_is_the_same_for_the_same_change_and_differs_for_another() {
        assert_eq!(event(1, "{}").id, event(1, "{}").id);
        assert_ne!(event(1, "{}").id, event(2, "{}").id);
        assert_ne!(event(1, "{}").id, event(1, "[]").id);
        let replay = |uid: &str, resends| Replay { task: TaskId(1), uid: uid.into(), resends };
        assert_eq!(
            replayed(1, "{}", Some(&replay("a", false))).id,
            event(1, "{}").id,
            "the change that was missed"
        );
        let all = |uid| replayed(1, "{}", Some(&replay(uid, true))).id;
        assert!(all("a") != event(1, "{}").id && all("a") != all("b") && all("a") == all("a"));
        let replay = replay("a", true);
        let sent = replayed(1, "{}", Some(&replay));
        let sent = SentEvent { id: sent.id, kind: ChangeKind::Updated, sequence: 1 };
        let told = |version, data: &str| {
            let data: &RawValue = serde_json::from_str(data).unwrap();
            let key = RecordKey::from_stored("17".into());
            let change = Change {
                kind: ChangeKind::Created,
                key: &key,
                version: Some(Version(version)),
                previous_version: Some(Version(7)),
                sequence: 9,
                hash: Hash::of(data.get().as_bytes()),
                re_seen: false,
                observed_at: Instant::from_seconds(9),
                replay: Some(&replay),
                data,
            };
            sent.told(&source(), &change)
        };
        assert!(told(1_000_000, "{}") && !told(1_000_000, "[]") && !told(2_000_000, "{}"));
        assert!(event(1, "{}").id.starts_with("evt_") && event(1, "{}").id.len() == 36);
    }
}
