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
    /// How long an event waits for others.
    pub linger: Duration,
}

/// What a body has around its events: its names, an id, and the longest name that a job can have.
const ENVELOPE: u64 = 256;

/// An event that may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting<T> {
    /// Which one.
    pub of: T,
    /// The job it came from: a batch is of one job.
    pub job: i64,
    /// How many bytes its body has.
    pub bytes: u64,
    /// For how long it has been stored.
    pub waited: Duration,
}

impl BatchRules {
    /// The batches that go now, at most `most`, of events that come the longest due first. One that is not full goes
    /// once one of its events has lingered, also behind an earlier one of its key.
    pub fn pack<T>(&self, waiting: impl IntoIterator<Item = Waiting<T>>, most: usize) -> Vec<Vec<T>> {
        let mut open: Vec<Open<T>> = Vec::new();
        let mut packed: Vec<Open<T>> = Vec::new();
        for (place, Waiting { of, job, bytes, waited }) in waiting.into_iter().enumerate() {
            let known = open.iter().position(|batch| batch.job == job).map(|place| open.remove(place));
            let fits = |batch: &Open<T>| batch.bytes.saturating_add(bytes) <= self.room();
            let mut batch = match known {
                Some(batch) if fits(&batch) => batch,
                full => {
                    packed.extend(full);
                    Open { place, job, waited, bytes: 0, events: Vec::new() }
                }
            };
            batch.events.push(of);
            batch.waited = batch.waited.max(waited);
            // With the comma behind it.
            batch.bytes = batch.bytes.saturating_add(bytes).saturating_add(1);
            let is_full = batch.events.len() >= self.max_events.get() as usize || batch.bytes > self.room();
            if is_full { packed.push(batch) } else { open.push(batch) }
        }
        packed.extend(open.into_iter().filter(|batch| batch.waited >= self.linger));
        packed.sort_unstable_by_key(|batch| batch.place);
        packed.into_iter().take(most).map(|batch| batch.events).collect()
    }

    fn room(&self) -> u64 {
        self.max_bytes.saturating_sub(ENVELOPE)
    }
}

/// A batch that may take more.
struct Open<T> {
    /// The place of its first event among those that wait.
    place: usize,
    job: i64,
    /// For how long one of its events has been stored.
    waited: Duration,
    bytes: u64,
    events: Vec<T>,
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

    /// What waits, most events, most bytes, most batches, and the batches of it.
    type Case<'c> = (&'c [(i64, u64, Duration)], u32, u64, usize, &'c [&'c [usize]]);

    fn rules(max_events: u32, max_bytes: u64) -> BatchRules {
        let max_events = NonZeroU32::new(max_events).unwrap();
        BatchRules { max_events, max_bytes: max_bytes + ENVELOPE, linger: SECOND }
    }

    /// Events of this job, bytes and time, named by their index.
    fn pack(rules: BatchRules, waits: &[(i64, u64, Duration)], most: usize) -> Vec<Vec<usize>> {
        let waits = waits.iter().enumerate();
        rules.pack(waits.map(|(of, &(job, bytes, waited))| Waiting { of, job, bytes, waited }), most)
    }

    #[test]
    fn batches_are_full_or_have_lingered() {
        let long = |job: i64, bytes: u64| (job, bytes, SECOND);
        let fresh = |job: i64, bytes: u64| (job, bytes, Duration::ZERO);
        let cases: [Case<'_>; 11] = [
            (&[], 2, 100, 9, &[]),
            (&[fresh(1, 10)], 2, 100, 9, &[]),
            (&[long(1, 10)], 2, 100, 9, &[&[0]]),
            (&[fresh(1, 10), fresh(1, 10)], 2, 100, 9, &[&[0, 1]]),
            (&[fresh(1, 10), fresh(1, 10), fresh(1, 10)], 2, 100, 9, &[&[0, 1]]),
            (&[long(1, 10), fresh(1, 10), fresh(1, 10)], 2, 100, 9, &[&[0, 1]]),
            (&[long(1, 10), long(2, 10), fresh(1, 10)], 3, 100, 9, &[&[0, 2], &[1]]),
            (&[fresh(1, 60), fresh(1, 60)], 9, 100, 9, &[&[0]]),
            (&[long(1, 60), long(1, 39), long(1, 1)], 9, 100, 9, &[&[0, 1], &[2]]),
            (&[fresh(1, 10), fresh(1, 900), long(1, 10)], 9, 100, 9, &[&[0], &[1], &[2]]),
            (&[long(1, 60), long(1, 60), long(1, 60)], 9, 100, 2, &[&[0], &[1]]),
        ];
        for (waits, max_events, max_bytes, most, expected) in cases {
            assert_eq!(pack(rules(max_events, max_bytes), waits, most), expected, "{waits:?}");
        }
    }

    #[test]
    fn a_body_keeps_to_the_bytes_of_its_rules() {
        let event = format!(r#"{{"job":"{}","data":"ž"}}"#, "j".repeat(64));
        let bytes = event.len() as u64;
        let packed = pack(rules(99, 10 * bytes), &[(1, bytes, SECOND); 30], 99);
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
