//! Random histories of a small source, polled and swept in random order: no key is called deleted that was there all
//! along, and in the end every key that is gone is told of.

use std::{collections::BTreeMap, time::Duration};

use onlynew::domain::{instant::Instant, run::RunStatus, task::TaskState};

use crate::{
    both,
    support::{
        database::Database,
        shop::{LOOKBACK, Row, SWEPT, Shop},
    },
};

both!(no_history_of_sweeps_tells_a_lie);

/// How many histories, and how many steps each. `ONLYNEW_SWEEPS=N` has more of them.
fn histories(database: &Database) -> u64 {
    let given = std::env::var("ONLYNEW_SWEEPS").ok().and_then(|text| text.parse().ok());
    given.unwrap_or(if database.url().starts_with("sqlite") { 10 } else { 3 })
}
const STEPS: u32 = 60;
const KEYS: u32 = 8;

/// What is known of the source beside what it shows.
#[derive(Default)]
struct Truth {
    /// Since when each key has been there without a break.
    held_since: BTreeMap<u32, Instant>,
    /// When the open sweep began.
    began: Option<Instant>,
    /// Deletions told of so far.
    deleted: usize,
    story: Vec<String>,
}

async fn no_history_of_sweeps_tells_a_lie(database: Database) {
    for seed in 0..histories(&database) {
        let other = if database.url().starts_with("sqlite") {
            Database::sqlite()
        } else {
            Database::postgres().await.unwrap()
        };
        history(other, seed).await;
    }
}

async fn history(database: Database, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let shop = Shop::new(database, SWEPT, 0..KEYS / 2).await;
    let mut truth = Truth::default();
    let put_at = shop.shelf.lock().unwrap().now.minus(LOOKBACK * 5);
    truth.held_since.extend((0..KEYS / 2).map(|id| (id, put_at)));
    shop.poll_well().await;
    for _ in 0..STEPS {
        step(&shop, &mut truth, &mut random, seed).await;
    }
    // What is done is done: from here on the source rests.
    shop.change(|shelf| shelf.restless.clear());
    for _ in 0..3 {
        shop.pass(LOOKBACK * 3).await;
        shop.poll_well().await;
        sweep(&shop, &mut truth, seed).await;
        shop.pass(LOOKBACK).await;
        shop.poll_well().await;
        sweep(&shop, &mut truth, seed).await;
    }
    let mut told: BTreeMap<String, String> = BTreeMap::new();
    for event in shop.told().await {
        let (key, kind) = event.split_once(' ').unwrap();
        told.insert(key.to_owned(), kind.to_owned());
    }
    let alive: Vec<_> =
        told.iter().filter(|(_, kind)| *kind != "record.deleted").map(|(key, _)| key.clone()).collect();
    let there: Vec<_> = shop.shelf.lock().unwrap().rows.keys().map(ToString::to_string).collect();
    assert_eq!(alive, there, "seed {seed}: {:#?}", truth.story);
}

async fn step(shop: &Shop, truth: &mut Truth, random: &mut fastrand::Rng, seed: u64) {
    let id = random.u32(0..KEYS);
    let now = shop.shelf.lock().unwrap().now;
    match random.u32(0..12) {
        0..3 => {
            // Every change may take nearly as long as the lookback to be shown.
            let delay = Duration::from_secs(if random.bool() { 0 } else { random.u64(0..55) });
            truth.story.push(format!("{now} {id} is put, shown after {delay:?}"));
            truth.held_since.entry(id).or_insert(now);
            shop.change(|shelf| {
                let content = shelf.rows.get(&id).map_or(0, |row| row.content + 1);
                shelf.rows.insert(id, Row { version: now, content, shown_from: now.plus(delay) });
            });
        }
        3..5 => {
            truth.story.push(format!("{now} {id} is gone"));
            truth.held_since.remove(&id);
            shop.change(|shelf| shelf.take(id));
        }
        5 => shop.change(|shelf| shelf.restless.push(id)),
        6..8 => {
            let by = Duration::from_secs(random.u64(1..150));
            shop.pass(by).await;
        }
        8..10 => {
            truth.story.push(format!("{now} polled"));
            shop.poll_well().await;
        }
        _ => sweep(shop, truth, seed).await,
    }
}

/// Opens a sweep or brings the open one further, and looks at what it says.
async fn sweep(shop: &Shop, truth: &mut Truth, seed: u64) {
    let now = shop.shelf.lock().unwrap().now;
    let began = *truth.began.get_or_insert(now);
    if let Some(report) = shop.sweep().await {
        assert_eq!(report.status, RunStatus::Ok, "seed {seed}: {report:?}");
    }
    let sweep = shop.newest().await;
    truth.story.push(format!("{now} swept: {:?} {:?}, {} deleted", sweep.state, sweep.phase, sweep.deleted));
    let deleted = shop.deleted().await;
    for key in &deleted[truth.deleted..] {
        let held_since = truth.held_since.get(&key.parse().unwrap());
        let was_there = held_since.is_some_and(|since| *since <= began.minus(LOOKBACK));
        assert!(!was_there, "seed {seed}: {key} was there all along: {:#?}", truth.story);
    }
    truth.deleted = deleted.len();
    if sweep.state != TaskState::Open {
        truth.began = None;
    }
}
