//! Batches: several events in one request, at most one of each key. What a batch holds names it: the same events
//! make the same id and the same bytes.

use std::{num::NonZeroU32, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::content::Hash;

/// How many events go in one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchRules {
    /// The most events.
    pub max_events: NonZeroU32,
    /// The most bytes of the body. An event that is larger goes alone.
    pub max_bytes: u64,
    /// How long the first event waits for others.
    pub linger: Duration,
}

/// What a body has around its events: its names, an id, and the longest name that a job can have.
const ENVELOPE: u64 = 256;

/// An event that may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The job it came from: a batch is of one job.
    pub job: i64,
    /// How many bytes its body has.
    pub bytes: u64,
    /// For how long it has been due.
    pub waited: Duration,
}

impl BatchRules {
    /// The batches that go now, at most `most`, as indexes into `waiting`, which has the longest due first. One that
    /// is not full goes once its first event has lingered.
    pub fn pack(&self, waiting: &[Waiting], most: usize) -> Vec<Vec<usize>> {
        let mut open: Vec<Open> = Vec::new();
        let mut packed = Vec::new();
        for (index, event) in waiting.iter().enumerate() {
            let place = open.iter().position(|batch| waiting[batch.events[0]].job == event.job);
            let mut batch = place.map_or_else(Open::default, |place| open.remove(place));
            if !batch.events.is_empty() && batch.bytes.saturating_add(event.bytes) > self.room() {
                packed.push(std::mem::take(&mut batch).events);
            }
            batch.events.push(index);
            batch.bytes = batch.bytes.saturating_add(event.bytes).saturating_add(1);
            if batch.events.len() >= self.max_events.get() as usize || batch.bytes > self.room() {
                packed.push(batch.events);
            } else {
                open.push(batch);
            }
        }
        let lingered = |batch: &Open| waiting[batch.events[0]].waited >= self.linger;
        packed.extend(open.into_iter().filter(lingered).map(|batch| batch.events));
        packed.sort_unstable_by_key(|events| events[0]);
        packed.truncate(most);
        packed
    }

    fn room(&self) -> u64 {
        self.max_bytes.saturating_sub(ENVELOPE)
    }
}

/// A batch that may take more.
#[derive(Debug, Default)]
struct Open {
    events: Vec<usize>,
    bytes: u64,
}

/// The id of a batch of these events, in their order: `bat_` and 32 hexadecimal digits.
pub fn batch_id<'a>(events: impl IntoIterator<Item = &'a str>) -> String {
    let mut text = String::new();
    for event in events {
        text.push_str(event);
        text.push(';');
    }
    format!("bat_{}", Hash::of(text.as_bytes()).hex())
}

/// The body of a batch with these events' bodies. It names the job that the first of them names. Fails only where a
/// body is not that of an event.
pub fn batch_body(id: &str, bodies: &[&str]) -> Result<String, serde_json::Error> {
    #[derive(Deserialize)]
    struct Named<'a> {
        #[serde(borrow)]
        job: &'a RawValue,
    }
    #[derive(Serialize)]
    struct Body<'a> {
        batch_id: &'a str,
        job: Option<&'a RawValue>,
        events: Vec<&'a RawValue>,
    }
    let first = bodies.first().map(|body| serde_json::from_str::<Named<'_>>(body)).transpose()?;
    let events = bodies.iter().map(|body| serde_json::from_str(body)).collect::<Result<_, _>>()?;
    serde_json::to_string(&Body { batch_id: id, job: first.map(|named| named.job), events })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn rules(max_events: u32, max_bytes: u64) -> BatchRules {
        let max_events = NonZeroU32::new(max_events).unwrap();
        BatchRules { max_events, max_bytes: max_bytes + ENVELOPE, linger: SECOND }
    }

    fn waiting(job: i64, bytes: u64, waited: Duration) -> Waiting {
        Waiting { job, bytes, waited }
    }

    #[test]
    fn batches_are_full_or_have_lingered() {
        let long = |job, bytes| waiting(job, bytes, SECOND);
        let fresh = |job, bytes| waiting(job, bytes, Duration::ZERO);
        // what waits, most events, most bytes, most batches -> batches
        let cases: [(Vec<Waiting>, u32, u64, usize, Vec<Vec<usize>>); 11] = [
            (vec![], 2, 100, 9, vec![]),
            (vec![fresh(1, 10)], 2, 100, 9, vec![]),
            (vec![long(1, 10)], 2, 100, 9, vec![vec![0]]),
            (vec![fresh(1, 10), fresh(1, 10)], 2, 100, 9, vec![vec![0, 1]]),
            (vec![fresh(1, 10), fresh(1, 10), fresh(1, 10)], 2, 100, 9, vec![vec![0, 1]]),
            (vec![long(1, 10), fresh(1, 10), fresh(1, 10)], 2, 100, 9, vec![vec![0, 1]]),
            (vec![long(1, 10), long(2, 10), fresh(1, 10)], 3, 100, 9, vec![vec![0, 2], vec![1]]),
            (vec![fresh(1, 60), fresh(1, 60)], 9, 100, 9, vec![vec![0]]),
            (vec![long(1, 60), long(1, 39), long(1, 1)], 9, 100, 9, vec![vec![0, 1], vec![2]]),
            (vec![fresh(1, 10), fresh(1, 900), long(1, 10)], 9, 100, 9, vec![vec![0], vec![1], vec![2]]),
            (vec![long(1, 60), long(1, 60), long(1, 60)], 9, 100, 2, vec![vec![0], vec![1]]),
        ];
        for (waits, max_events, max_bytes, most, expected) in cases {
            assert_eq!(rules(max_events, max_bytes).pack(&waits, most), expected, "{waits:?}");
        }
    }

    #[test]
    fn a_body_keeps_to_the_bytes_of_its_rules() {
        let event = format!(r#"{{"job":"{}","data":"ž"}}"#, "j".repeat(64));
        let bytes = event.len() as u64;
        let packed = rules(99, 10 * bytes).pack(&[waiting(1, bytes, SECOND); 30], 99);
        let bodies = vec![event.as_str(); packed[0].len()];
        let body = batch_body(&batch_id(["evt_1"]), &bodies).unwrap();
        assert!(body.len() as u64 <= 10 * bytes + ENVELOPE && body.len() as u64 > 9 * bytes);
    }

    #[test]
    fn a_batch_is_named_by_what_it_holds() {
        let (one, other) = (batch_id(["evt_1", "evt_2"]), batch_id(["evt_2", "evt_1"]));
        assert_ne!(one, other);
        assert_ne!(one, batch_id(["evt_1"]));
        assert_eq!(one, batch_id(["evt_1", "evt_2"]));
        assert!(one.starts_with("bat_") && one.len() == 36);
    }

    #[test]
    fn a_body_holds_its_events_byte_for_byte() {
        let one = r#"{"id":"evt_1","job":"or\"ders","data":{"n":1.50}}"#;
        let body = batch_body("bat_1", &[one, r#"{"id":"evt_2","job":"orders","data":1e3}"#]).unwrap();
        let expected = r#"{"batch_id":"bat_1","job":"or\"ders","events":[{"id":"evt_1","job":"or\"ders","data":{"n":1.50}},{"id":"evt_2","job":"orders","data":1e3}]}"#;
        assert_eq!(body, expected);
        assert!(batch_body("bat_1", &["{"]).is_err());
    }
}
