//! How late changes are found, and what is said where the lookback does not cover it.

use std::time::Duration;

use crate::{
    both,
    support::{
        database::Database,
        shop::{LOOKBACK, Row, SWEPT, Shop},
    },
};

both!(
    live_changes_are_counted_by_how_late_they_are,
    a_baseline_measures_nothing,
    a_change_that_polling_had_passed_is_counted_as_missed,
    a_lookback_that_is_too_short_is_told_of,
);

/// The buckets as `up to: live, missed`.
async fn buckets(shop: &Shop) -> Vec<String> {
    let (code, answer, error) = shop.rig.command(&["state", "lateness", "rows", "--json"]).await;
    assert_eq!(code, 0, "{error}");
    let told = answer["buckets"].as_array().unwrap().iter();
    told.map(|bucket| format!("{}: {}, {}", bucket["up_to_seconds"], bucket["live"], bucket["missed"]))
        .collect()
}

fn late(shop: &Shop, id: u32, by: u64) {
    shop.change(|shelf| {
        let version = shelf.now.minus(Duration::from_secs(by));
        shelf.rows.insert(id, Row { version, content: 0, shown_from: shelf.now });
    });
}

async fn live_changes_are_counted_by_how_late_they_are(database: Database) {
    let shop = Shop::new(database, SWEPT, [1]).await;
    shop.poll_well().await;
    assert!(buckets(&shop).await.is_empty(), "there was no watermark to be late by");
    shop.pass(LOOKBACK).await;
    shop.change(|shelf| shelf.put(2));
    shop.poll_well().await;
    assert_eq!(buckets(&shop).await, ["0: 1, 0"]);
    late(&shop, 3, 12);
    late(&shop, 4, 40);
    shop.poll_well().await;
    assert_eq!(buckets(&shop).await, ["0: 1, 0", "15: 1, 0", "60: 1, 0"]);
    shop.poll_well().await;
    assert_eq!(buckets(&shop).await.len(), 3, "what is known is not counted again");
}

async fn a_baseline_measures_nothing(database: Database) {
    let mut shop = Shop::new(database, SWEPT, [1, 2, 3]).await;
    shop.rig.configure_baseline();
    shop.restart().await;
    shop.poll_well().await;
    assert!(buckets(&shop).await.is_empty());
}

async fn a_change_that_polling_had_passed_is_counted_as_missed(database: Database) {
    let shop = Shop::new(database, SWEPT, [1]).await;
    shop.poll_well().await;
    shop.pass(Duration::from_mins(30)).await;
    shop.change(|shelf| shelf.put(2));
    shop.poll_well().await;
    late(&shop, 3, 22 * 60);
    shop.sweep().await.unwrap();
    assert_eq!(buckets(&shop).await, ["0: 1, 0", "1800: 0, 1"]);
}

async fn a_lookback_that_is_too_short_is_told_of(database: Database) {
    let shop = Shop::new(database, SWEPT, [1]).await;
    shop.poll_well().await;
    let advice = async || {
        let (_, status, _) = shop.rig.command(&["status", "--json"]).await;
        status["jobs"][0]["lateness"]["advice"].clone()
    };
    let row = "INSERT INTO lateness (job, bucket, live, missed, longest) SELECT id";
    shop.rig.database.tamper(&format!("{row}, 0, 900, 0, 0 FROM job")).await;
    shop.rig.database.tamper(&format!("{row}, 14, 0, 2, 1320000000 FROM job")).await;
    assert!(advice().await.is_null(), "too few to say");
    shop.rig.database.tamper("UPDATE lateness SET live = 998 WHERE bucket = 0").await;
    assert_eq!(advice().await, "p99.9 lateness 22m exceeds lookback 1m: set lookback: 30m");
    shop.rig.database.tamper("UPDATE lateness SET live = 3000 WHERE bucket = 0").await;
    assert!(advice().await.is_null(), "fewer than one in a thousand");
}
