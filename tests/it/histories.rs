//! Random histories of a small source, through the real engine, over real files and sockets: rows that
//! change, come late, come back and repeat; answers that are no pages; clocks that are wrong; processes
//! that die, freeze and lose their database between any two steps; a receiver that refuses. After the dust
//! has settled each change that the rules promise has arrived once and in order, and at no moment had the
//! watermark passed a row that was missing.
//!
//! A failure prints its seed and its whole story. `ONLYNEW_HISTORY=SEED` lives through that one again, and
//! `ONLYNEW_HISTORIES=FIRST..LAST` through others than the seeds that every run of the suite goes through.

use std::{
    ops::Range,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::support::{database::Database, model::Lane};

/// The seeds that every run of the suite goes through.
const ALWAYS: Range<u64> = 0..2_000;

/// The seeds of the sample that is gone through on `PostgreSQL`.
const SAMPLE: Range<u64> = 2_000..2_060;

/// How many histories share one store before another is opened.
const A_STORE: u64 = 20;

/// Which database.
#[derive(Clone, Copy, Debug)]
enum On {
    Sqlite,
    Postgres,
}

impl On {
    async fn open(self) -> Option<Database> {
        match self {
            Self::Sqlite => Some(Database::sqlite_in_memory()),
            Self::Postgres => Database::postgres().await,
        }
    }
}

fn seeds(default: Range<u64>) -> Range<u64> {
    let number = |text: &str| -> u64 { text.trim().parse().expect("a seed is a number") };
    if let Ok(seed) = std::env::var("ONLYNEW_HISTORY") {
        let seed = number(&seed);
        return seed..seed + 1;
    }
    match std::env::var("ONLYNEW_HISTORIES") {
        Ok(range) => {
            let (first, last) = range.split_once("..").expect("ONLYNEW_HISTORIES is FIRST..LAST");
            number(first)..number(last)
        }
        Err(_) => default,
    }
}

/// So many histories that failed are enough to see what is wrong.
const ENOUGH: usize = 20;

/// What came of all of them.
#[derive(Default)]
struct All {
    histories: u64,
    runs: u64,
    resumed: u64,
    events: u64,
    deaths: u64,
    wrong: Vec<(u64, String)>,
}

/// Says which seed it was, also where a history ends in a panic.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in the history of seed {0}: ONLYNEW_HISTORY={0} goes through it again", self.0);
        }
    }
}

/// Lives through all these histories on as many lanes as there are processors.
fn live(seeds: Range<u64>, on: On) {
    let next = AtomicU64::new(seeds.start);
    let all = Mutex::new(All::default());
    let lanes = std::thread::available_parallelism().map_or(2, std::num::NonZero::get).min(8);
    std::thread::scope(|scope| {
        for _ in 0..lanes {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    loop {
                        let first = next.fetch_add(A_STORE, Ordering::SeqCst);
                        if first >= seeds.end {
                            return;
                        }
                        let Some(database) = on.open().await else { return };
                        let mut lane = Lane::new(database).await;
                        let these = first..seeds.end.min(first + A_STORE);
                        for seed in these.clone() {
                            let _seed = Seed(seed);
                            let verdict = lane.live(seed).await;
                            let mut all = all.lock().unwrap();
                            if !verdict.wrong.is_empty() {
                                all.wrong.push((seed, verdict.wrong));
                            }
                            all.histories += 1;
                            all.runs += verdict.runs;
                            all.resumed += verdict.resumed;
                            all.events += verdict.events;
                            all.deaths += verdict.deaths;
                            if all.wrong.len() >= ENOUGH {
                                return;
                            }
                        }
                        if let Some(unsound) = lane.unsound().await {
                            let story = format!("the store of {these:?} is not sound: {unsound}");
                            all.lock().unwrap().wrong.push((first, story));
                        }
                    }
                });
            });
        }
    });
    let mut all = all.into_inner().unwrap();
    let All { histories, runs, resumed, events, deaths, .. } = all;
    println!("{histories} histories: {runs} runs, {resumed} resumed, {events} events, {deaths} deaths");
    // The shortest story is the easiest to read.
    all.wrong.sort_by_key(|(_, story)| story.len());
    let failed: Vec<u64> = all.wrong.iter().map(|(seed, _)| *seed).collect();
    if let Some((seed, story)) = all.wrong.first() {
        panic!(
            "ONLYNEW_HISTORY={seed} goes through this again:\n  {story}\n  \
             {} of {histories} histories failed; by the length of their stories: {failed:?}",
            failed.len()
        );
    }
    if histories == 0 && matches!(on, On::Postgres) {
        // There is no cluster, and that is said already.
        return;
    }
    assert_eq!(histories, seeds.end - seeds.start);
    if histories >= 100 {
        assert!(events > 2 * histories, "hardly anything happened");
        assert!(deaths > histories / 2, "hardly anybody died");
        assert!(resumed > histories / 100, "hardly any run went on");
    }
}

#[test]
fn two_thousand_random_histories_are_told_once_in_order_and_without_a_gap() {
    live(seeds(ALWAYS), On::Sqlite);
}

#[test]
fn a_sample_of_the_histories_is_told_the_same_way_by_postgres() {
    live(seeds(SAMPLE), On::Postgres);
}
