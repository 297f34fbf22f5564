//! What must have come out, said without the engine's own rules: by what the source held, what was served,
//! and what was committed in which order.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use onlynew::domain::{
    decide::Detect,
    run::{RunId, RunStatus},
    version::Version,
};

use super::{
    api::shown_of,
    log::{Fact, Log},
    plan::{Plan, SECOND},
    receiver::Attempt,
    world::{Shown, State, World, is_future},
};

/// An event as it must be: kind, version, content.
type Expected = (&'static str, Option<i64>, u32);

/// The highest version of each key that is stored.
fn stored(log: &Log, now: i64) -> HashMap<u32, i64> {
    let mut highest = HashMap::new();
    for fact in &log.facts {
        let Fact::Page { rows, .. } = fact else { continue };
        for row in rows {
            if let Some(version) = row.version.filter(|version| !is_future(*version, now)) {
                let known = highest.entry(row.key).or_insert(version);
                *known = (*known).max(version);
            }
        }
    }
    highest
}

/// Whether the rules promise that this state is met: it did not come later than lookback and settle.
fn is_promised(plan: &Plan, state: &State) -> bool {
    state.visible_at - state.made_at + plan.lag <= plan.lookback + plan.settle
}

/// What a watermark leaves behind it, at the moment it moves: a row below the next window that is not
/// stored, or a row that was there to be read; or a moment that the source had not finished.
pub fn passed_over(world: &World, log: &Log, Version(watermark): Version) -> Vec<String> {
    let moved = log.watermark.is_none_or(|Version(before)| before < watermark);
    let plan = &world.plan;
    let Some(first_at) = world.first_at() else {
        return vec![format!("the watermark moved to {watermark} and no page was read")];
    };
    let mut wrong = Vec::new();
    if plan.is_time() && watermark > first_at - plan.settle {
        wrong.push(format!("the watermark {watermark} is later than {first_at} less settle"));
    }
    let stored = stored(log, world.now);
    let below = watermark - plan.lookback - if plan.is_time() { plan.granule } else { 0 };
    for (&key, states) in &world.rows {
        let missing = |state: &State| {
            state.version.filter(|version| {
                !is_future(*version, world.now) && stored.get(&key).is_none_or(|known| known < version)
            })
        };
        let newest = states.last().filter(|state| !state.vanished && is_promised(plan, state));
        if let Some(version) = newest.and_then(missing).filter(|version| *version < below) {
            wrong.push(format!(
                "the watermark {watermark} has passed row {key} of version {version}, which is not stored"
            ));
        }
        let visible = World::state_at(states, first_at - plan.lag)
            .filter(|state| states.last() == Some(state) && !state.vanished);
        if let Some(version) = visible.and_then(missing).filter(|version| moved && *version < watermark) {
            wrong.push(format!(
                "row {key} of version {version} was there at {first_at}, the watermark is {watermark}, and it \
                 is not stored"
            ));
        }
    }
    wrong
}

/// Everything that is wrong with a history that has come to rest.
pub fn judge(world: &World, log: &Log) -> Vec<String> {
    let mut wrong = log.violations.clone();
    let (expected, decided) = expected(&world.plan, log);
    wrong.extend(met(world, log, &decided));
    wrong.extend(delivered(&world.plan, log, &expected));
    wrong.extend(baseline(&world.plan, log));
    wrong
}

/// What a run that called itself complete was served must be stored, and in the end so must be what the
/// source holds.
pub fn complete(world: &World, log: &Log, trip: usize) -> Vec<String> {
    if world.plan.shifts {
        // Pages that do not fit the walk are not taken, and what stood on them is read again.
        return Vec::new();
    }
    let committed: BTreeSet<Shown> = log
        .facts
        .iter()
        .filter_map(|fact| match fact {
            Fact::Page { trip: of, rows, .. } if *of == trip => Some(rows),
            _ => None,
        })
        .flatten()
        .copied()
        .collect();
    let missing = world.trips[trip].served.iter().filter(|row| !committed.contains(row));
    missing.map(|row| format!("a complete run was served {row:?} and did not store it")).collect()
}

fn met(world: &World, log: &Log, decided: &BTreeSet<Shown>) -> Vec<String> {
    let pages = log.facts.iter().filter_map(|fact| match fact {
        Fact::Page { rows, .. } => Some(rows),
        _ => None,
    });
    let met: BTreeSet<Shown> = pages.flatten().copied().collect();
    let mut wrong = Vec::new();
    for (&key, states) in &world.rows {
        let Some(last) = states.last().filter(|state| !state.vanished) else { continue };
        if !met.contains(&last.shown(key)) && is_promised(&world.plan, last) {
            wrong.push(format!("LOST row {key}: the source holds {last:?}, which was never stored"));
        } else if met.contains(&last.shown(key)) && !decided.contains(&last.shown(key)) {
            wrong.push(format!(
                "LOST row {key}: the source holds {last:?}, which was left undecided for good"
            ));
        }
    }
    wrong
}

/// The events that the committed pages must have made, by key. A change is a newer version (not by content
/// alone), or other content under no newer version; what is older is none. A second change in one run that no version
/// orders may be that of another record with the same key, and is left to the next run: the second part says which
/// sightings were not left so.
fn expected(plan: &Plan, log: &Log) -> (BTreeMap<u32, Vec<Expected>>, BTreeSet<Shown>) {
    struct Known {
        version: Option<i64>,
        content: u32,
        deleted: bool,
        from_future: bool,
        /// The run in which it last changed in a way that no version orders.
        unordered_in: Option<RunId>,
    }
    let mut known: HashMap<u32, Known> = HashMap::new();
    let mut events: BTreeMap<u32, Vec<Expected>> = BTreeMap::new();
    let mut decided = BTreeSet::new();
    let mut baseline = None;
    let mut is_open = plan.baseline;
    for fact in &log.facts {
        let (rows, at, run) = match fact {
            Fact::Page { rows, at, run, .. } => (one_of_each(rows), at, *run),
            Fact::Baseline { at, .. } => {
                baseline = Some(*at);
                continue;
            }
            Fact::Finish { status } => {
                is_open &= *status != RunStatus::Ok;
                continue;
            }
        };
        for row in rows {
            let before = decided.replace(row);
            let kind = match known.get(&row.key) {
                None if row.flagged => "none",
                None => "record.created",
                Some(known) if row.version.is_some() && row.version < known.version && !known.from_future => {
                    continue;
                }
                Some(known) => {
                    // A version from the future orders nothing: any other is a later state.
                    let newer = match row.version {
                        Some(_) if known.from_future => row.version != known.version,
                        version => version.is_some() && version > known.version,
                    };
                    match (known.deleted, row.flagged) {
                        (true, true) => "none",
                        (false, true) => "record.deleted",
                        (true, false) => "record.restored",
                        _ if row.content != known.content || (newer && plan.detect != Detect::Content) => {
                            "record.updated"
                        }
                        _ => "none",
                    }
                }
            };
            let is_ordered = match (known.get(&row.key).and_then(|known| known.version), row.version) {
                (_, None) => false,
                (None, Some(_)) => true,
                (Some(known), Some(version)) => {
                    version > known && !(plan.is_time() && is_future(version, *at))
                }
            };
            let mut unordered_in = known.get(&row.key).and_then(|known| known.unordered_in);
            if kind == "record.updated" && !is_ordered && unordered_in.replace(run) == Some(run) {
                if before.is_none() {
                    decided.remove(&row);
                }
                continue;
            }
            let silent = is_open
                && match (row.version, baseline) {
                    (Some(version), Some(at)) if plan.is_time() => version <= at,
                    _ => kind == "record.created",
                };
            if kind != "none" && !silent {
                events.entry(row.key).or_default().push((kind, row.version, row.content));
            }
            let version = row.version.or(known.get(&row.key).and_then(|known| known.version));
            let from_future = plan.is_time() && version.is_some_and(|version| is_future(version, *at));
            let (content, deleted) = (row.content, row.flagged);
            known.insert(row.key, Known { version, content, deleted, from_future, unordered_in });
        }
    }
    (events, decided)
}

/// Of several sightings of a key on one page the newest counts; of equals the last.
fn one_of_each(rows: &[Shown]) -> Vec<Shown> {
    let mut kept: BTreeMap<u32, Shown> = BTreeMap::new();
    for row in rows {
        if kept.get(&row.key).is_none_or(|known| known.version <= row.version) {
            kept.insert(row.key, *row);
        }
    }
    kept.into_values().collect()
}

/// What n8n was sent: each expected event once, in order, with its number; a repeat only where an answer
/// may have been lost, and then the same bytes.
fn delivered(plan: &Plan, log: &Log, expected: &BTreeMap<u32, Vec<Expected>>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut by_key: BTreeMap<u32, Vec<&Attempt>> = BTreeMap::new();
    let mut first_of: HashMap<&str, &Attempt> = HashMap::new();
    let mut accepted: HashMap<&str, Vec<u32>> = HashMap::new();
    for attempt in &log.attempts {
        let known = first_of.entry(&attempt.id).or_insert(attempt);
        if known.body != attempt.body || known.sequence != attempt.sequence || known.key != attempt.key {
            wrong.push(format!("event {} was sent with two bodies", attempt.id));
        }
        let of_key = by_key.entry(attempt.key).or_default();
        let next = of_key.last().map_or(1, |last| last.sequence + i64::from(last.accepted));
        let again = of_key.last().is_some_and(|last| last.id == attempt.id);
        if attempt.sequence != next && !again {
            wrong.push(format!("row {}: event {} came where {next} was due", attempt.key, attempt.sequence));
        }
        of_key.push(attempt);
        // A request that was under way when its sender died may arrive, and be accepted, after that.
        let before = accepted.entry(attempt.id.as_str()).or_default();
        if attempt.was_settled || before.contains(&attempt.number) || before.len() > attempt.deaths as usize {
            wrong.push(format!("event {} was sent again although it was accepted", attempt.id));
        }
        if attempt.accepted {
            before.push(attempt.number);
        }
    }
    let keys: BTreeSet<u32> = by_key.keys().chain(expected.keys()).copied().collect();
    for key in keys {
        let mut sent: Vec<&Attempt> =
            by_key.get(&key).into_iter().flatten().copied().filter(|attempt| attempt.accepted).collect();
        sent.dedup_by_key(|attempt| attempt.id.clone());
        let sent: Vec<(String, Option<i64>, u32)> = sent
            .iter()
            .map(|attempt| {
                let shown = shown_of(plan.versions, &attempt.body["data"]);
                (attempt.body["type"].as_str().unwrap().to_owned(), shown.version, shown.content)
            })
            .collect();
        let due: Vec<(String, Option<i64>, u32)> = expected
            .get(&key)
            .into_iter()
            .flatten()
            .map(|&(kind, version, content)| (kind.to_owned(), version, content))
            .collect();
        if sent != due {
            wrong.push(format!("row {key}: n8n got\n      {sent:?}\n    and should have got\n      {due:?}"));
        }
    }
    wrong
}

/// The baseline is one instant: what the source had finished when the first attempt began.
fn baseline(plan: &Plan, log: &Log) -> Vec<String> {
    let mut fixed = log.facts.iter().filter_map(|fact| match fact {
        Fact::Baseline { at, asked_at } => Some((*at, asked_at.unwrap_or_default())),
        _ => None,
    });
    let Some((first, asked_at)) = fixed.next() else { return Vec::new() };
    let mut wrong = Vec::new();
    if fixed.any(|(later, _)| later != first) {
        wrong.push("the baseline moved".to_owned());
    }
    let asked = asked_at - plan.settle;
    // A `Date` tells whole seconds; without one our clock counts, less a minute.
    let tolerance = if plan.date { SECOND } else { 60 * SECOND - plan.skew };
    if !(asked - tolerance..=asked).contains(&first) {
        wrong.push(format!("the baseline {first} is not what stood at {asked}"));
    }
    wrong
}
