//! Random schedules of the delivery of events, over real stores: whatever dies, stands still, is refused or comes late,
//! nothing is lost, lanes keep their order, what may have been received is repeated as it was, and no good event dies
//! for another's sake.
//!
//! A failure prints its seed and its story. `ONLYNEW_HISTORY=SEED` lives through that one again, and
//! `ONLYNEW_HISTORIES=FIRST..LAST` through others than those of every run.

use std::ops::Range;

use crate::support::{
    database::{Database, unsound},
    delivery::{Counted, live},
};

fn seeds(default: Range<u64>) -> Range<u64> {
    let number = |text: &str| -> u64 { text.trim().parse().expect("a seed is a number") };
    if let Ok(seed) = std::env::var("ONLYNEW_HISTORY") {
        return number(&seed)..number(&seed) + 1;
    }
    let Ok(range) = std::env::var("ONLYNEW_HISTORIES") else { return default };
    let (first, last) = range.split_once("..").expect("ONLYNEW_HISTORIES is FIRST..LAST");
    number(first)..number(last)
}

/// Lives through the histories of these seeds.
async fn live_all(database: Database, seeds: Range<u64>) {
    let store = database.open().await;
    let mut all = Counted::default();
    let histories = seeds.end - seeds.start;
    for seed in seeds {
        match live(seed, &database, &store).await {
            Ok(counted) => all.add(counted),
            Err(wrong) => panic!("ONLYNEW_HISTORY={seed} goes through this again: {wrong}"),
        }
    }
    assert_eq!(unsound(&store).await, None);
    println!("{histories} histories: {all:?}");
    if histories >= 100 {
        let Counted { executed, repeated, split, dead, superseded, void } = all;
        let rarest = [executed / 10, repeated, split, dead, superseded, void].into_iter().min();
        assert!(rarest > Some(histories / 10), "hardly anything happened: {all:?}");
    }
}

mod sqlite {
    use super::*;

    #[tokio::test]
    async fn random_deliveries_lose_nothing_and_keep_their_order() {
        live_all(Database::sqlite_in_memory(), seeds(0..100)).await;
    }
}

mod postgres {
    use super::*;

    #[tokio::test]
    async fn random_deliveries_lose_nothing_and_keep_their_order() {
        if let Some(database) = Database::postgres().await {
            live_all(database, seeds(1_000..1_040)).await;
        }
    }
}
