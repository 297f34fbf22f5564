//! The keys of the gate in SQL. Whoever asks holds the key's row before it is decided, and draws its fence while it holds
//! it: of two that ask at one moment the second waits, and then finds what the first one did.
//!
//! Order of locks: keys bytewise, then the totals of their scope. The clock is read in a statement of its own behind
//! the locks, since PostgreSQL's tells when a statement began, which may have waited.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{Acquired, Acted, KeyAct, KeyAsk, KeyFilter, KeyView, Released, ScopeView, Totals};
use crate::{
    domain::{
        gate::{self, Act, Allowed, Answer, GateKey, GateState, ScopeRules},
        instant::Instant,
    },
    store::{
        Purge, StoreError, Taken, account,
        dialect::{Dialect, sql, without_nul},
        rows,
    },
};

/// The columns of a key.
macro_rules! columns {
    () => {
        "gate_key.scope, gate_key.key, gate_key.state, gate_key.fence, gate_key.lease_until, gate_key.takeover,
         gate_key.owner, gate_key.fingerprint, gate_key.correlation_id, gate_key.metadata, gate_key.result,
         gate_key.result_dropped, gate_key.reason, gate_key.first_seen_at, gate_key.last_seen_at,
         gate_key.changed_at, gate_key.asked, gate_key.started, gate_key.taken_over"
    };
}

fn view<DB: Dialect>(row: &DB::Row) -> Result<KeyView, StoreError> {
    let text = |column| rows::get::<DB, Option<String>>(row, column);
    let state: String = rows::get::<DB, _>(row, "state")?;
    let state = match state.as_str() {
        "new" => None,
        name => Some(GateState::from_name(name).ok_or_else(|| rows::unreadable("state", name))?),
    };
    Ok(KeyView {
        scope: rows::get::<DB, _>(row, "scope")?,
        key: GateKey::from_stored(rows::get::<DB, _>(row, "key")?),
        state,
        fence: rows::get::<DB, _>(row, "fence")?,
        lease_until: rows::instant::<DB>(row, "lease_until")?,
        takeover: rows::get::<DB, _>(row, "takeover")?,
        owner: text("owner")?,
        fingerprint: text("fingerprint")?,
        correlation_id: text("correlation_id")?,
        metadata: text("metadata")?,
        result: text("result")?,
        result_dropped: rows::get::<DB, _>(row, "result_dropped")?,
        reason: text("reason")?,
        first_seen: rows::instant::<DB>(row, "first_seen_at")?,
        last_seen: rows::instant::<DB>(row, "last_seen_at")?,
        changed_at: rows::instant::<DB>(row, "changed_at")?,
        times_seen: rows::count::<DB>(row, "asked")?,
        times_started: rows::count::<DB>(row, "started")?,
        times_taken_over: rows::count::<DB>(row, "taken_over")?,
    })
}

pub(in crate::store) async fn acquire<DB: Dialect>(
    db: &mut DB::Connection,
    scope: &str,
    rules: &ScopeRules,
    asks: &[KeyAsk],
) -> Result<Vec<Acquired>, StoreError> {
    let mut views = lock_all::<DB>(db, scope, asks).await?;
    let now = account::now::<DB>(db).await?;
    let mut forgotten = Totals::default();
    let mut answers = Vec::with_capacity(asks.len());
    let mut begun: BTreeSet<&GateKey> = BTreeSet::new();
    for ask in asks {
        let view = views.get_mut(&ask.key).ok_or_else(|| not_there(&ask.key))?;
        let held = view.held();
        let answer = gate::acquire(held.as_ref(), ask.fingerprint.as_deref(), rules, now);
        if held.is_some_and(|held| gate::is_forgotten(&held, rules, now)) {
            forgotten.add(view.totals());
            view.forget(now);
        }
        if let Answer::Started { takeover } = answer {
            view.start(ask, takeover, rules, now);
            begun.insert(&ask.key);
        }
        view.times_seen += 1;
        view.last_seen = now;
        answers.push(answer);
    }
    let fences = draw::<DB>(db, begun.len()).await?;
    for (key, fence) in begun.into_iter().zip(fences) {
        views.get_mut(key).ok_or_else(|| not_there(key))?.fence = fence;
    }
    write::<DB>(db, views.values()).await?;
    keep_totals::<DB>(db, scope, forgotten).await?;
    let acquired = asks.iter().zip(answers).map(|(ask, answer)| {
        let view = views.get(&ask.key).ok_or_else(|| not_there(&ask.key))?.clone();
        Ok(Acquired { answer, view, now })
    });
    acquired.collect()
}

fn not_there(key: &GateKey) -> StoreError {
    StoreError::Inconsistent(format!("the key {key} has no row"))
}

/// The rows of all keys that are asked for, made where there are none, and locked.
async fn lock_all<DB: Dialect>(
    db: &mut DB::Connection,
    scope: &str,
    asks: &[KeyAsk],
) -> Result<BTreeMap<GateKey, KeyView>, StoreError> {
    let keys: BTreeSet<&GateKey> = asks.iter().map(|ask| &ask.key).collect();
    let rows = sql::<DB>(concat!(
        "INSERT INTO gate_key (scope, key, state, fence, lease_until, first_seen_at, last_seen_at, changed_at)
         SELECT $1, asked.value, 'new', 0, 0, {now}, {now}, {now} FROM {each_text}($2{json}) AS asked WHERE TRUE
         ON CONFLICT (scope, key) DO UPDATE SET state = gate_key.state
         RETURNING ",
        columns!()
    ))
    .text(scope)
    .bind(serde_json::to_string(&keys)?)
    .all(db)
    .await?;
    rows.iter().map(|row| view::<DB>(row).map(|view| (view.key.clone(), view))).collect()
}

/// So many new fences, each greater than any that was drawn for a key whose row is held.
pub(in crate::store) async fn draw<DB: Dialect>(
    db: &mut DB::Connection,
    count: usize,
) -> Result<impl Iterator<Item = i64> + use<DB>, StoreError> {
    let wanted = i64::try_from(count).unwrap_or(i64::MAX);
    let drawn = if count == 0 { Vec::new() } else { sql::<DB>(DB::FENCES).bind(wanted).all(db).await? };
    let drawn = drawn.iter().map(|row| {
        let first = rows::get::<DB, i64>(row, "first")?;
        Ok(first..first.saturating_add(rows::get::<DB, i64>(row, "count")?))
    });
    Ok(drawn.collect::<Result<Vec<_>, StoreError>>()?.into_iter().flatten())
}

/// Writes keys as they are now; results only where they are taken away.
async fn write<DB: Dialect>(
    db: &mut DB::Connection,
    views: impl Iterator<Item = &KeyView>,
) -> Result<(), StoreError> {
    #[derive(Serialize)]
    struct Row<'a> {
        scope: &'a str,
        key: &'a str,
        state: &'static str,
        fence: i64,
        lease_until: i64,
        takeover: bool,
        owner: Option<String>,
        fingerprint: Option<String>,
        correlation_id: Option<String>,
        metadata: Option<&'a str>,
        result: Option<&'a str>,
        result_dropped: bool,
        reason: Option<&'a str>,
        first_seen_at: i64,
        last_seen_at: i64,
        changed_at: i64,
        asked: u64,
        started: u64,
        taken_over: u64,
    }
    let clean = |text: &Option<String>| text.as_deref().map(without_nul);
    let rows = views.map(|view| Row {
        scope: &view.scope,
        key: view.key.as_str(),
        state: view.state().name(),
        fence: view.fence,
        lease_until: view.lease_until.micros(),
        takeover: view.takeover,
        owner: clean(&view.owner),
        fingerprint: clean(&view.fingerprint),
        correlation_id: clean(&view.correlation_id),
        metadata: view.metadata.as_deref(),
        result: view.result.as_deref(),
        result_dropped: view.result_dropped,
        reason: view.reason.as_deref(),
        first_seen_at: view.first_seen.micros(),
        last_seen_at: view.last_seen.micros(),
        changed_at: view.changed_at.micros(),
        asked: view.times_seen,
        started: view.times_started,
        taken_over: view.times_taken_over,
    });
    sql::<DB>(
        "INSERT INTO gate_key (scope, key, state, fence, lease_until, takeover, owner, fingerprint, correlation_id,
                               metadata, result, result_dropped, reason, first_seen_at, last_seen_at, changed_at,
                               asked, started, taken_over)
         SELECT new.value ->> 'scope', new.value ->> 'key', new.value ->> 'state',
                CAST(new.value ->> 'fence' AS BIGINT), CAST(new.value ->> 'lease_until' AS BIGINT),
                CAST(new.value ->> 'takeover' AS BOOLEAN), new.value ->> 'owner', new.value ->> 'fingerprint',
                new.value ->> 'correlation_id', new.value ->> 'metadata', new.value ->> 'result',
                CAST(new.value ->> 'result_dropped' AS BOOLEAN), new.value ->> 'reason',
                CAST(new.value ->> 'first_seen_at' AS BIGINT), CAST(new.value ->> 'last_seen_at' AS BIGINT),
                CAST(new.value ->> 'changed_at' AS BIGINT), CAST(new.value ->> 'asked' AS BIGINT),
                CAST(new.value ->> 'started' AS BIGINT), CAST(new.value ->> 'taken_over' AS BIGINT)
         FROM {each}($1{json}) AS new WHERE TRUE
         ON CONFLICT (scope, key) DO UPDATE SET
            state = excluded.state, fence = excluded.fence, lease_until = excluded.lease_until,
            takeover = excluded.takeover, owner = excluded.owner, fingerprint = excluded.fingerprint,
            correlation_id = excluded.correlation_id, metadata = excluded.metadata, result = excluded.result,
            result_dropped = excluded.result_dropped, reason = excluded.reason,
            first_seen_at = excluded.first_seen_at, last_seen_at = excluded.last_seen_at,
            changed_at = excluded.changed_at, asked = excluded.asked, started = excluded.started,
            taken_over = excluded.taken_over",
    )
    .bind(serde_json::to_string(&rows.collect::<Vec<_>>())?)
    .run(db)
    .await?;
    Ok(())
}

/// Adds what keys counted that are known no more.
async fn keep_totals<DB: Dialect>(
    db: &mut DB::Connection,
    scope: &str,
    totals: Totals,
) -> Result<(), StoreError> {
    if totals == Totals::default() {
        return Ok(());
    }
    let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    sql::<DB>(
        "INSERT INTO gate_scope (scope, keys, asked, started, taken_over) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (scope) DO UPDATE SET
            keys = gate_scope.keys + excluded.keys, asked = gate_scope.asked + excluded.asked,
            started = gate_scope.started + excluded.started,
            taken_over = gate_scope.taken_over + excluded.taken_over",
    )
    .text(scope)
    .bind(signed(totals.keys))
    .bind(signed(totals.asked))
    .bind(signed(totals.started))
    .bind(signed(totals.taken_over))
    .run(db)
    .await?;
    Ok(())
}

async fn lock<DB: Dialect>(
    db: &mut DB::Connection,
    scope: &str,
    key: &GateKey,
) -> Result<Option<KeyView>, StoreError> {
    let row = sql::<DB>(concat!(
        "SELECT ",
        columns!(),
        " FROM gate_key WHERE scope = $1 AND key = $2 {for_update}"
    ));
    row.text(scope).text(key.as_str()).first(db).await?.map(|row| view::<DB>(&row)).transpose()
}

pub(in crate::store) async fn act<DB: Dialect>(
    db: &mut DB::Connection,
    scope: &str,
    what: &KeyAct,
) -> Result<Option<Acted>, StoreError> {
    let Some(mut view) = lock::<DB>(db, scope, &what.key).await? else { return Ok(None) };
    let now = account::now::<DB>(db).await?;
    let allowed = view.held().map_or(Allowed::Lost, |held| gate::act(&held, what.fence, what.act));
    if allowed == Allowed::Yes {
        match what.act {
            Act::Renew => view.lease_until = view.lease_until.max(now.plus(what.rules.lease)),
            Act::Complete => {
                let fits = |result: &&String| result.len() as u64 <= what.rules.max_result;
                view.state = Some(GateState::Done);
                view.result = what.result.as_ref().filter(fits).cloned();
                view.result_dropped = what.result.is_some() && view.result.is_none();
            }
            Act::Fail => {
                view.state = Some(GateState::Failed);
                view.reason = what.reason.as_deref().map(without_nul);
            }
        }
        view.changed_at = now;
        write::<DB>(db, std::iter::once(&view)).await?;
    }
    Ok(Some(Acted { allowed, view }))
}

pub(in crate::store) async fn key<DB: Dialect>(
    db: &mut DB::Connection,
    scope: &str,
    key: &GateKey,
) -> Result<Option<KeyView>, StoreError> {
    let row = sql::<DB>(concat!("SELECT ", columns!(), " FROM gate_key WHERE scope = $1 AND key = $2"));
    row.text(scope).text(key.as_str()).first(db).await?.map(|row| view::<DB>(&row)).transpose()
}

pub(in crate::store) async fn keys<DB: Dialect>(
    db: &mut DB::Connection,
    filter: &KeyFilter,
    limit: u32,
) -> Result<Vec<KeyView>, StoreError> {
    let states = if filter.states.is_empty() { &GateState::ALL[..] } else { &filter.states };
    let states: Vec<&str> = states.iter().map(|state| state.name()).collect();
    let rows = sql::<DB>(concat!(
        "SELECT ",
        columns!(),
        " FROM gate_key
         WHERE ($1 IS NULL OR scope = $1) AND state IN (SELECT value FROM {each_text}($2{json}))
           AND (NOT $3 OR asked > 1) AND (NOT $4 OR state = 'in_progress' AND lease_until <= {now})
         ORDER BY changed_at DESC, scope, key LIMIT $5"
    ))
    .bind(filter.scope.clone())
    .bind(serde_json::to_string(&states)?)
    .bind(filter.only_repeated)
    .bind(filter.only_stale)
    .bind(i64::from(limit))
    .all(db)
    .await?;
    rows.iter().map(view::<DB>).collect()
}

pub(in crate::store) async fn scopes<DB: Dialect>(
    db: &mut DB::Connection,
) -> Result<Vec<ScopeView>, StoreError> {
    let known = sql::<DB>(
        "SELECT scope, state, count(*) AS keys, CAST(sum(asked) AS BIGINT) AS asked,
                CAST(sum(started) AS BIGINT) AS started, CAST(sum(taken_over) AS BIGINT) AS taken_over
         FROM gate_key GROUP BY scope, state
         UNION ALL SELECT scope, 'forgotten', keys, asked, started, taken_over FROM gate_scope",
    );
    let mut scopes: BTreeMap<String, ScopeView> = BTreeMap::new();
    for row in known.all(db).await? {
        let scope: String = rows::get::<DB, _>(&row, "scope")?;
        let totals = totals::<DB>(&row)?;
        let view = scopes.entry(scope.clone()).or_insert_with(|| ScopeView { scope, ..ScopeView::default() });
        view.totals.add(totals);
        let state: String = rows::get::<DB, _>(&row, "state")?;
        match GateState::from_name(&state) {
            Some(GateState::InProgress) => view.in_progress = totals.keys,
            Some(GateState::Done) => view.done = totals.keys,
            Some(GateState::Failed) => view.failed = totals.keys,
            None => {}
        }
    }
    Ok(scopes.into_values().collect())
}

fn totals<DB: Dialect>(row: &DB::Row) -> Result<Totals, StoreError> {
    let count = |column| rows::count::<DB>(row, column);
    Ok(Totals {
        keys: count("keys")?,
        asked: count("asked")?,
        started: count("started")?,
        taken_over: count("taken_over")?,
    })
}

pub(in crate::store) async fn release<DB: Dialect>(
    db: &mut DB::Connection,
    scope: &str,
    key: &GateKey,
    even_held: bool,
) -> Result<Released, StoreError> {
    let Some(view) = lock::<DB>(db, scope, key).await? else { return Ok(Released::Unknown) };
    let now = account::now::<DB>(db).await?;
    if !even_held && view.state() == GateState::InProgress && now < view.lease_until {
        return Ok(Released::Held);
    }
    let forget = sql::<DB>("DELETE FROM gate_key WHERE scope = $1 AND key = $2");
    forget.text(scope).text(key.as_str()).run(db).await?;
    keep_totals::<DB>(db, scope, view.totals()).await?;
    Ok(Released::Done)
}

pub(in crate::store) async fn expire<DB: Dialect>(
    db: &mut DB::Connection,
    scope: &str,
    key: &GateKey,
) -> Result<bool, StoreError> {
    let ended = sql::<DB>(
        "UPDATE gate_key SET lease_until = {now}
         WHERE scope = $1 AND key = $2 AND state = 'in_progress' AND lease_until > {now}",
    );
    Ok(ended.text(scope).text(key.as_str()).run(db).await? > 0)
}

/// How many keys one bite of a purge takes.
const BITE: i64 = 500;

/// Forgets keys of a scope that have not changed since `before`, but for those that somebody has.
pub(in crate::store) async fn purge<DB: Dialect>(
    db: &mut DB::Connection,
    scope: &str,
    before: Instant,
) -> Result<Taken, StoreError> {
    let gone = sql::<DB>(
        "DELETE FROM gate_key WHERE scope = $1 AND key IN (
             SELECT key FROM gate_key
             WHERE scope = $1 AND changed_at <= $2 AND NOT (state = 'in_progress' AND lease_until > {now})
             ORDER BY changed_at LIMIT $3 {skip_locked})
         RETURNING CAST(1 AS BIGINT) AS keys, asked, started, taken_over",
    );
    let gone = gone.text(scope).bind(before.micros()).bind(BITE).all(db).await?;
    let mut forgotten = Totals::default();
    for row in &gone {
        forgotten.add(totals::<DB>(row)?);
    }
    keep_totals::<DB>(db, scope, forgotten).await?;
    let rows = gone.len() as u64;
    let is_full = rows >= BITE.unsigned_abs();
    let next = is_full.then(|| Purge::GateKeys { scope: scope.to_owned(), before });
    Ok(Taken { rows, next })
}

pub(in crate::store) async fn purgeable<DB: Dialect>(
    db: &mut DB::Connection,
    scope: &str,
    before: Instant,
) -> Result<u64, StoreError> {
    let found = sql::<DB>(
        "SELECT count(*) AS found FROM gate_key
         WHERE scope = $1 AND changed_at <= $2 AND NOT (state = 'in_progress' AND lease_until > {now})",
    );
    rows::count::<DB>(&found.text(scope).bind(before.micros()).one(db).await?, "found")
}
