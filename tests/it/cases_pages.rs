//! Pages told through the whole engine on both databases: what a person writes, what arrives, what is
//! counted and where the watermark stands.

use std::sync::{Arc, Mutex};

use onlynew::domain::run::RunStatus;
use serde_json::{Value, json};

use crate::{
    both,
    support::{
        database::Database,
        rig::{Job, Rig},
        server::{Asked, Reply},
    },
};

/// The instant `seconds` after 10:00:00.
fn at(seconds: u32) -> String {
    format!("2026-09-21T10:{:02}:{:02}Z", seconds / 60, seconds % 60)
}

/// A listing that a story can change between two requests.
#[derive(Clone, Default)]
struct Listing(Arc<Mutex<Vec<(u32, u32)>>>);

impl Listing {
    fn of(rows: impl IntoIterator<Item = (u32, u32)>) -> Self {
        Self(Arc::new(Mutex::new(rows.into_iter().collect())))
    }

    fn edit(&self, edit: impl FnOnce(&mut Vec<(u32, u32)>)) {
        edit(&mut self.0.lock().unwrap());
    }

    /// The page from `offset`, or of the number `page` (from 1), which `since` bounds.
    fn page(&self, asked: &Asked, size: usize) -> Reply {
        let number = |name| asked.param(name).parse::<usize>().ok();
        let from = number("offset").or(number("page").map(|page| (page - 1) * size)).unwrap_or(0);
        let since = asked.param("since");
        let rows = self.0.lock().unwrap();
        let rows: Vec<_> = rows.iter().filter(|(_, seconds)| at(*seconds).as_str() >= since).collect();
        let items: Vec<Value> = rows
            .iter()
            .skip(from)
            .take(size)
            .map(|(id, seconds)| json!({"id": id, "updated_at": at(*seconds)}))
            .collect();
        let (more, total) = (from + size < rows.len(), rows.len());
        Reply::Json(json!({"items": items, "more": more, "total": total}).to_string())
    }
}

fn asked(rig: &Rig, name: &str) -> Vec<String> {
    rig.source.asked().iter().map(|asked| asked.param(name).to_owned()).collect()
}

const OFFSET: &str = r#"{offset: "{{ page.offset }}"}"#;
const NUMBER: &str = r#"{page: "{{ page.number }}"}"#;

async fn a_row_that_goes_away_in_the_middle_of_an_offset_walk_hides_no_other(database: Database) {
    let listing = Listing::of((1..=9).map(|id| (id, id)));
    let job = Job { query: OFFSET, pagination: "{type: offset}", ..Job::default() };
    let shown = listing.clone();
    let rig = Rig::new(database, job, move |asked| {
        if asked.param("offset") == "4" {
            shown.edit(|rows| rows.retain(|(id, _)| *id != 1));
        }
        shown.page(asked, 3)
    })
    .await;
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.counts.records, report.counts.events), (RunStatus::Ok, 9, 9));
    assert_eq!(rig.sent_keys(), ["1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    assert!(rig.has_watermark().await);

    let report = rig.sync().await.report;
    assert_eq!((report.counts.records, report.counts.unchanged, report.counts.events), (8, 8, 0));
}

async fn a_row_that_slips_through_one_walk_by_page_numbers_is_met_in_the_next(database: Database) {
    let listing = Listing::of((1..=5).map(|id| (id, id)));
    let job =
        Job { query: NUMBER, pagination: "{type: page_number, has_more_path: $.more}", ..Job::default() };
    let shown = listing.clone();
    let rig = Rig::new(database, job, move |asked| {
        if asked.param("page") == "2" {
            shown.edit(|rows| rows.retain(|(id, _)| *id != 1));
        }
        shown.page(asked, 2)
    })
    .await;
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.requests, report.pages), (RunStatus::Ok, 6, 6));
    assert_eq!((report.counts.records, report.counts.created, report.counts.unchanged), (5, 5, 0));
    assert_eq!(rig.sent_keys(), ["1", "2", "3", "4", "5"]);

    // Nothing moves any more: two walks that agree, and not an event.
    let report = rig.sync().await.report;
    assert_eq!((report.requests, report.counts.records, report.counts.events), (4, 4, 0));
    rig.configure(Job { pagination: "{type: page_number, has_more_path: $.more, shifts: false}", ..job });
    assert_eq!(rig.sync().await.report.requests, 2);
}

async fn a_listing_that_never_holds_still_fails_and_keeps_the_watermark(database: Database) {
    let listing = Listing::of((1..=6).map(|id| (id, id)));
    let job = Job { query: OFFSET, pagination: "{type: offset}", ..Job::default() };
    let rig = Rig::new(database, job, {
        let listing = listing.clone();
        move |asked| listing.page(asked, 3)
    })
    .await;
    let before = rig.sync().await.report;
    assert_eq!(before.status, RunStatus::Ok);

    let seconds = Arc::new(Mutex::new(100));
    let shown = listing.clone();
    rig.source.now_answers(move |asked| {
        // Before every page but the first all rows change and are listed anew.
        if asked.param("offset") != "0" {
            let mut seconds = seconds.lock().unwrap();
            *seconds += 1;
            shown.edit(|rows| rows.iter_mut().for_each(|row| row.1 = *seconds));
        }
        shown.page(asked, 3)
    });
    let report = rig.sync().await.report;
    assert_eq!((report.status, &report.watermark), (RunStatus::Failed, &before.watermark));
    assert!(report.reason.as_ref().unwrap().contains("changes faster"), "{:?}", report.reason);
    assert!(report.requests < 100, "{}", report.requests);

    rig.source.now_answers(move |asked| listing.page(asked, 3));
    let report = rig.sync().await.report;
    assert_eq!(report.status, RunStatus::Ok);
    assert!(report.watermark != before.watermark);
}

async fn keyset_pages_move_the_start_of_the_window(database: Database) {
    let rows = [(1, 1), (2, 2), (3, 2), (4, 3), (5, 4)];
    let job = Job {
        query: r#"{since: "{{ window.start }}"}"#,
        pagination: "{type: keyset}",
        rest: "window: {lookback: 1s}",
        ..Job::default()
    };
    let listing = Listing::of(rows);
    let shown = listing.clone();
    let rig = Rig::new(database, job, move |asked| shown.page(asked, 3)).await;
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.counts.records, report.counts.events), (RunStatus::Ok, 5, 5));
    assert_eq!(asked(&rig, "since"), ["", &at(2), &at(3), &at(4)]);

    listing.edit(|rows| rows.push((6, 5)));
    let report = rig.sync().await.report;
    assert_eq!(
        (report.counts.events, report.counts.unchanged),
        (1, 4),
        "from the watermark less the lookback"
    );
    assert_eq!(asked(&rig, "since")[4..], [at(2), at(3), at(5)]);
}

async fn a_newest_first_listing_is_read_no_further_than_it_has_to_be(database: Database) {
    let job = Job {
        query: OFFSET,
        pagination: "{type: offset, shifts: false}",
        source: "incremental: {field: updated_at, stop_at_start: true}",
        rest: "window: {lookback: 2s}",
    };
    let listing = Listing::of((1..=20).rev().map(|id| (id, id)));
    let shown = listing.clone();
    let rig = Rig::new(database, job, move |asked| shown.page(asked, 2)).await;
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.requests, report.counts.events), (RunStatus::Ok, 11, 20));

    listing.edit(|rows| rows.insert(0, (21, 21)));
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.counts.events), (RunStatus::Ok, 1));
    // 21 20 | 19 18 | 17 16 | 15: the watermark is 20, and 17 its start.
    assert_eq!(asked(&rig, "offset")[11..], ["0", "2", "4", "6"]);
}

async fn max_pages_fails_the_run_and_keeps_what_was_read(database: Database) {
    let job =
        Job { query: OFFSET, pagination: "{type: offset, shifts: false, max_pages: 2}", ..Job::default() };
    let listing = Listing::of((1..=7).map(|id| (id, id)));
    let rig = Rig::new(database, job, move |asked| listing.page(asked, 2)).await;
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.pages, report.counts.events), (RunStatus::Failed, 2, 4));
    assert!(report.reason.as_ref().unwrap().contains("raise `max_pages`"), "{:?}", report.reason);
    assert!(!rig.has_watermark().await);
    assert_eq!(rig.sent_keys(), ["1", "2", "3", "4"]);

    rig.configure(Job { pagination: "{type: offset, shifts: false, max_pages: 5}", ..job });
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.counts.unchanged, report.counts.events), (RunStatus::Ok, 4, 3));
    assert!(rig.has_watermark().await);
}

async fn a_stop_condition_is_an_end_like_any_other(database: Database) {
    let pagination = r#"{type: page_number, shifts: false, stop_condition: "response['items']|length < 3"}"#;
    let job = Job { query: NUMBER, pagination, ..Job::default() };
    let listing = Listing::of((1..=5).map(|id| (id, id)));
    let rig = Rig::new(database, job, move |asked| listing.page(asked, 3)).await;
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.requests, report.counts.events), (RunStatus::Ok, 2, 5));
    assert!(rig.has_watermark().await);
}

async fn a_listing_that_goes_in_circles_fails_and_moves_nothing(database: Database) {
    let job = Job { query: NUMBER, pagination: "{type: page_number}", ..Job::default() };
    let rig = Rig::new(database, job, |asked| {
        let id = asked.param("page").parse::<u32>().unwrap() % 4;
        Reply::Json(json!({"items": [{"id": id, "updated_at": at(id)}]}).to_string())
    })
    .await;
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.counts.records), (RunStatus::Failed, 4));
    assert!(report.reason.as_ref().unwrap().contains("stalled"), "{:?}", report.reason);
    assert!(!rig.has_watermark().await);
    assert_eq!(rig.sent_keys(), ["0", "1", "2", "3"]);
}

both!(
    a_row_that_goes_away_in_the_middle_of_an_offset_walk_hides_no_other,
    a_row_that_slips_through_one_walk_by_page_numbers_is_met_in_the_next,
    a_listing_that_never_holds_still_fails_and_keeps_the_watermark,
    keyset_pages_move_the_start_of_the_window,
    a_newest_first_listing_is_read_no_further_than_it_has_to_be,
    max_pages_fails_the_run_and_keeps_what_was_read,
    a_stop_condition_is_an_end_like_any_other,
    a_listing_that_goes_in_circles_fails_and_moves_nothing,
);
