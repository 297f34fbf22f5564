//! Webhooks that came in: each key once, with its event, in one transaction for all that came at about one moment.
//!
//! Order of locks: hooks by number; of each its keys bytewise, then the heads of its events by lane, then its totals. A
//! hook's name is a row of `job`, which is never locked here.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    JobId, QuarantinedRecord, StoreError, Taken,
    dialect::{Dialect, sql},
    outbox,
    quarantine::{self, Place},
    rows,
    sql_store::SqlStore,
};
use crate::domain::{
    content::Hash,
    event::{Event, HookSource},
    instant::Instant,
    key::RecordKey,
    lane::Order,
};

/// What hooks ask of a database.
#[async_trait]
pub trait Hooks: Send + Sync {
    /// Stores webhooks, all in one transaction, and says of each what it was, in their order: of two with one key the first
    /// counts.
    async fn receive(&self, deliveries: Arc<[HookDelivery]>) -> Result<Vec<Received>, StoreError>;

    /// What hooks counted, by their numbers.
    async fn hook_totals(&self) -> Result<BTreeMap<JobId, HookTotals>, StoreError>;

    /// What is known of the webhooks of a key.
    async fn hook_key(&self, hook: JobId, key: &RecordKey) -> Result<Option<HookKey>, StoreError>;

    /// Stores a webhook that a person has made good, and takes it off the list of those without a key; `None` where it is
    /// not listed any more.
    async fn accept_hook(&self, id: Hash, delivery: &HookDelivery) -> Result<Option<Received>, StoreError>;
}

/// A webhook that came in.
#[derive(Clone, Debug)]
pub struct HookDelivery {
    /// The hook's number.
    pub hook: JobId,
    /// Whose it is.
    pub source: HookSource,
    /// Its key, or why it has none.
    pub key: Result<RecordKey, String>,
    /// Its body as JSON.
    pub data: Box<RawValue>,
    /// The headers that go along.
    pub headers: BTreeMap<String, String>,
    /// Where it goes.
    pub destination: String,
    /// What goes in order there.
    pub order: Order,
    /// When it came.
    pub received_at: Instant,
}

/// What a webhook was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// The first of its key: this event goes on.
    Accepted {
        /// The event's id.
        event: String,
    },
    /// Its key came before.
    Duplicate {
        /// The event that went on then.
        event: String,
        /// When that was.
        first_seen: Instant,
    },
    /// It has no key, and waits for a person.
    Quarantined {
        /// Its number on the list.
        id: Hash,
    },
}

/// What a hook counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HookTotals {
    /// How many went on.
    pub accepted: u64,
    /// How many came again.
    pub duplicates: u64,
    /// How many had no key.
    pub quarantined: u64,
    /// When the last one came.
    pub last_at: Option<Instant>,
}

/// What is known of the webhooks of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookKey {
    /// The event that went on.
    pub event: String,
    /// How often it came.
    pub times: u64,
    /// How often with another body than at first.
    pub differing: u64,
    /// When it came first.
    pub first_seen: Instant,
    /// When it came last.
    pub last_seen: Instant,
}

async fn receive<DB: Dialect>(
    db: &mut DB::Connection,
    deliveries: &[HookDelivery],
) -> Result<Vec<Received>, StoreError> {
    let mut by_hook: BTreeMap<JobId, Vec<usize>> = BTreeMap::new();
    for (at, delivery) in deliveries.iter().enumerate() {
        by_hook.entry(delivery.hook).or_default().push(at);
    }
    let mut received: Vec<Option<Received>> = vec![None; deliveries.len()];
    for (hook, places) in by_hook {
        let of_hook = places.iter().filter_map(|at| Some((*at, deliveries.get(*at)?)));
        for (at, what) in receive_one::<DB>(db, hook, &of_hook.collect::<Vec<_>>()).await? {
            if let Some(slot) = received.get_mut(at) {
                *slot = Some(what);
            }
        }
    }
    let missing = || StoreError::Inconsistent("a webhook was neither stored nor refused".to_owned());
    received.into_iter().map(|received| received.ok_or_else(missing)).collect()
}

/// One key among those that come at one moment.
struct Arriving<'a> {
    first: &'a HookDelivery,
    hash: Hash,
    places: Vec<usize>,
    /// How many have another body than the first of them; as the database sees it, it is told by its hash.
    hashes: Vec<Hash>,
}

async fn receive_one<DB: Dialect>(
    db: &mut DB::Connection,
    hook: JobId,
    deliveries: &[(usize, &HookDelivery)],
) -> Result<Vec<(usize, Received)>, StoreError> {
    let mut arriving: BTreeMap<&RecordKey, Arriving<'_>> = BTreeMap::new();
    let mut received = Vec::with_capacity(deliveries.len());
    let mut broken = Vec::new();
    for (at, delivery) in deliveries {
        let raw = delivery.data.get();
        let hash = Hash::of(raw.as_bytes());
        match &delivery.key {
            Ok(key) => {
                let known = || Arriving { first: delivery, hash, places: Vec::new(), hashes: Vec::new() };
                let one = arriving.entry(key).or_insert_with(known);
                one.places.push(*at);
                one.hashes.push(hash);
            }
            Err(reason) => {
                broken.push(QuarantinedRecord {
                    raw: raw.to_owned(),
                    reason: reason.clone(),
                    unread_since: delivery.received_at,
                });
                received.push((*at, Received::Quarantined { id: hash }));
            }
        }
    }
    let mut totals = HookTotals { quarantined: broken.len() as u64, ..HookTotals::default() };
    let (mut events, mut to) = (Vec::new(), None);
    for (event, known) in store_keys::<DB>(db, hook, &arriving).await? {
        let Some(one) = arriving.get(&event.key) else { continue };
        let is_new = known.times == one.places.len() as u64;
        for (number, at) in one.places.iter().enumerate() {
            let what = if is_new && number == 0 {
                totals.accepted += 1;
                Received::Accepted { event: event.id.clone() }
            } else {
                totals.duplicates += 1;
                Received::Duplicate { event: known.event.clone(), first_seen: known.first_seen }
            };
            received.push((*at, what));
        }
        if is_new {
            to = Some((&one.first.destination, one.first.order));
            events.push(event);
        }
    }
    if let Some((destination, order)) = to {
        outbox::insert_to::<DB>(db, hook, destination, order, None, &events).await?;
    }
    if let Some((_, last)) = deliveries.last() {
        let place = Place {
            job: hook,
            run: 0,
            asked_at: last.received_at,
            answered_at: last.received_at,
            in_baseline: false,
        };
        quarantine::keep::<DB>(db, &place, &broken).await?;
    }
    count::<DB>(db, hook, totals).await?;
    Ok(received)
}

/// Stores keys with what came of them; returns the event of each as it would be now, and what is known of it then.
async fn store_keys<DB: Dialect>(
    db: &mut DB::Connection,
    hook: JobId,
    arriving: &BTreeMap<&RecordKey, Arriving<'_>>,
) -> Result<Vec<(Event, HookKey)>, StoreError> {
    #[derive(Serialize)]
    struct Row<'a> {
        key: &'a str,
        event_id: &'a str,
        body_hash: String,
        times: usize,
        /// Of those that come now, how many are like the first of them and how many are not.
        differing: usize,
    }
    if arriving.is_empty() {
        return Ok(Vec::new());
    }
    let event = |(key, one): (&&RecordKey, &Arriving<'_>)| {
        let first = one.first;
        Event::received(&first.source, key, first.received_at, &first.headers, &first.data)
    };
    let events = arriving.iter().map(event).collect::<Result<Vec<_>, _>>()?;
    let rows = events.iter().zip(arriving.values()).map(|(event, one)| Row {
        key: event.key.as_str(),
        event_id: &event.id,
        body_hash: one.hash.hex(),
        times: one.places.len(),
        differing: one.hashes.iter().filter(|hash| **hash != one.hash).count(),
    });
    let stored = sql::<DB>(
        "INSERT INTO hook_key (job, key, event_id, body_hash, times, differing, first_seen_at, last_seen_at)
         SELECT $1, new.value ->> 'key', new.value ->> 'event_id', {unhex}(new.value ->> 'body_hash'{hex}),
                CAST(new.value ->> 'times' AS BIGINT), CAST(new.value ->> 'differing' AS BIGINT), {now}, {now}
         FROM {each}($2{json}) AS new WHERE TRUE
         ON CONFLICT (job, key) DO UPDATE SET
            times = hook_key.times + excluded.times, last_seen_at = excluded.last_seen_at,
            differing = hook_key.differing
                + CASE WHEN excluded.body_hash = hook_key.body_hash THEN excluded.differing ELSE excluded.times END
         RETURNING key, event_id, times, differing, first_seen_at, last_seen_at",
    )
    .bind(hook.0)
    .bind(serde_json::to_string(&rows.collect::<Vec<_>>())?)
    .all(db)
    .await?;
    let mut known: BTreeMap<String, HookKey> = BTreeMap::new();
    for row in &stored {
        known.insert(rows::get::<DB, _>(row, "key")?, hook_key::<DB>(row)?);
    }
    let of_event = |event: Event| {
        let known = known.get(event.key.as_str()).cloned();
        let known =
            known.ok_or_else(|| StoreError::Inconsistent(format!("the key {} has no row", event.key)))?;
        Ok((event, known))
    };
    events.into_iter().map(of_event).collect()
}

fn hook_key<DB: Dialect>(row: &DB::Row) -> Result<HookKey, StoreError> {
    Ok(HookKey {
        event: rows::get::<DB, _>(row, "event_id")?,
        times: rows::count::<DB>(row, "times")?,
        differing: rows::count::<DB>(row, "differing")?,
        first_seen: rows::instant::<DB>(row, "first_seen_at")?,
        last_seen: rows::instant::<DB>(row, "last_seen_at")?,
    })
}

async fn count<DB: Dialect>(
    db: &mut DB::Connection,
    hook: JobId,
    totals: HookTotals,
) -> Result<(), StoreError> {
    let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    sql::<DB>(
        "INSERT INTO hook_total (job, accepted, duplicates, quarantined, last_at) VALUES ($1, $2, $3, $4, {now})
         ON CONFLICT (job) DO UPDATE SET
            accepted = hook_total.accepted + excluded.accepted,
            duplicates = hook_total.duplicates + excluded.duplicates,
            quarantined = hook_total.quarantined + excluded.quarantined, last_at = excluded.last_at",
    )
    .bind(hook.0)
    .bind(signed(totals.accepted))
    .bind(signed(totals.duplicates))
    .bind(signed(totals.quarantined))
    .run(db)
    .await?;
    Ok(())
}

async fn totals<DB: Dialect>(db: &mut DB::Connection) -> Result<BTreeMap<JobId, HookTotals>, StoreError> {
    let stored =
        sql::<DB>("SELECT job, accepted, duplicates, quarantined, last_at FROM hook_total").all(db).await?;
    let of_row = |row: &DB::Row| {
        let totals = HookTotals {
            accepted: rows::count::<DB>(row, "accepted")?,
            duplicates: rows::count::<DB>(row, "duplicates")?,
            quarantined: rows::count::<DB>(row, "quarantined")?,
            last_at: Some(rows::instant::<DB>(row, "last_at")?),
        };
        Ok((JobId(rows::get::<DB, _>(row, "job")?), totals))
    };
    stored.iter().map(of_row).collect()
}

async fn accept<DB: Dialect>(
    db: &mut DB::Connection,
    id: Hash,
    delivery: &HookDelivery,
) -> Result<Option<Received>, StoreError> {
    if !quarantine::remove::<DB>(db, delivery.hook, id).await? {
        return Ok(None);
    }
    Ok(receive::<DB>(db, std::slice::from_ref(delivery)).await?.pop())
}

/// How many keys one bite of a purge takes.
const BITE: i64 = 500;

/// Forgets keys that last came before: one that comes again then goes on again.
pub(super) async fn forget<DB: Dialect>(
    db: &mut DB::Connection,
    hook: JobId,
    before: Instant,
) -> Result<Taken, StoreError> {
    let gone = sql::<DB>(
        "DELETE FROM hook_key WHERE job = $1 AND key IN (
             SELECT key FROM hook_key WHERE job = $1 AND last_seen_at < $2
             ORDER BY last_seen_at LIMIT $3 {skip_locked})",
    );
    let rows = gone.bind(hook.0).bind(before.micros()).bind(BITE).run(db).await?;
    let next = (rows >= BITE.unsigned_abs()).then_some(super::Purge::HookKeys { hook, before });
    Ok(Taken { rows, next })
}

pub(super) async fn forgettable<DB: Dialect>(
    db: &mut DB::Connection,
    hook: JobId,
    before: Instant,
) -> Result<u64, StoreError> {
    let found = sql::<DB>("SELECT count(*) AS found FROM hook_key WHERE job = $1 AND last_seen_at < $2");
    rows::count::<DB>(&found.bind(hook.0).bind(before.micros()).one(db).await?, "found")
}

#[async_trait]
impl<DB: Dialect> Hooks for SqlStore<DB> {
    async fn receive(&self, deliveries: Arc<[HookDelivery]>) -> Result<Vec<Received>, StoreError> {
        self.write(deliveries, |db, deliveries| Box::pin(receive::<DB>(db, deliveries))).await
    }

    async fn hook_totals(&self) -> Result<BTreeMap<JobId, HookTotals>, StoreError> {
        totals::<DB>(&mut *self.reader().await?).await
    }

    async fn hook_key(&self, hook: JobId, key: &RecordKey) -> Result<Option<HookKey>, StoreError> {
        let row = sql::<DB>(
            "SELECT event_id, times, differing, first_seen_at, last_seen_at FROM hook_key WHERE job = $1 AND key = $2",
        );
        let row = row.bind(hook.0).text(key.as_str()).first(&mut *self.reader().await?).await?;
        row.map(|row| self::hook_key::<DB>(&row)).transpose()
    }

    async fn accept_hook(&self, id: Hash, delivery: &HookDelivery) -> Result<Option<Received>, StoreError> {
        self.write((id, delivery.clone()), |db, (id, delivery)| Box::pin(accept::<DB>(db, *id, delivery)))
            .await
    }
}
