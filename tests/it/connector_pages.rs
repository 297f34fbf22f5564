//! Walks over listings whose rows move, and the ends that a connector can declare, page by page against a
//! source on a real socket.

use std::sync::{Arc, Mutex};

use onlynew::{
    config::stream::{PageKind, Place},
    domain::version::{Version, VersionFormat},
};
use serde_json::{Value, json};

use crate::{
    connector_job::{CountingClock, Draft, Walk, body},
    support::source::{Answer, Source},
};

/// A row of `{id, updated_at}`.
type Row = (u32, i64);

fn items(rows: &[Row]) -> Value {
    rows.iter().map(|(id, at)| json!({"id": id, "updated_at": at})).collect()
}

fn page(rows: &[Row]) -> Answer {
    Answer::json(&json!({"items": items(rows)}))
}

fn plain(ids: impl IntoIterator<Item = u32>) -> Vec<Row> {
    ids.into_iter().map(|id| (id, 1)).collect()
}

/// A listing in pages of `size` from `offset` or page number `page` (from 0) on, which `edit` changes before
/// each request but the first, whose number it is given.
async fn moving(
    rows: Vec<Row>,
    size: usize,
    edit: impl Fn(usize, &mut Vec<Row>) + Send + Sync + 'static,
) -> Source {
    let state = Mutex::new((0, rows));
    Source::start(move |asked| {
        let (requests, rows) = &mut *state.lock().unwrap();
        *requests += 1;
        if *requests > 1 {
            edit(*requests, rows);
        }
        let from = asked.number("offset") + asked.number("page") * size;
        let shown: Vec<Row> = rows.iter().skip(from).take(size).copied().collect();
        Answer::json(&json!({"items": items(&shown), "more": from + size < rows.len()}))
    })
    .await
}

/// How many rows the pages brought, before and after those that were known were left out.
fn counted(walk: &Walk) -> (usize, usize) {
    let rows = walk.pages.iter().map(|page| page.rows).sum();
    (rows, walk.pages.iter().map(|page| page.records.len()).sum())
}

fn by_offset(source: &Source) -> Draft {
    Draft::new(&source.url()).versions(VersionFormat::Integer).query("offset", "{{ page.offset }}")
}

fn by_number(source: &Source) -> Draft {
    Draft::new(&source.url()).versions(VersionFormat::Integer).query("page", "{{ page.number }}")
}

const NUMBERS: PageKind = PageKind::PageNumber { base: 0, total_pages: None };

#[tokio::test]
async fn a_row_that_moves_up_between_two_pages_is_met_all_the_same() {
    // Row 1 goes away before the second page, and row 4 moves up to where the first page ended.
    let edit = |request: usize, rows: &mut Vec<Row>| {
        if request == 2 {
            rows.remove(0);
        }
    };
    let source = moving(plain(1..=7), 3, edit).await;
    let walk = by_offset(&source).shifting(PageKind::Offset).read().await;
    assert_eq!(walk.keys(), ["1", "2", "3", "4", "5", "6", "7"]);
    assert_eq!(source.params("offset"), ["0", "2", "0", "2", "4", "5"]);
    assert_eq!(counted(&walk).1, 7, "what was read twice is one record");

    let source = moving(plain(1..=7), 3, edit).await;
    let walk = by_offset(&source).pages(PageKind::Offset).read().await;
    assert_eq!(walk.keys(), ["1", "2", "3", "5", "6", "7"], "a plain stride would lose it");
    assert_eq!(source.params("offset"), ["0", "3", "6"]);
}

#[tokio::test]
async fn a_row_of_this_walk_that_came_back_changed_is_no_anchor() {
    // Row 3 changes and moves to the end: its place is taken by row 4, and the page from there on begins
    // with row 5 and holds row 3 again, but not as it was.
    let edit = |request: usize, rows: &mut Vec<Row>| {
        if request == 2 {
            rows.remove(0);
            rows.remove(1);
            rows.insert(3, (3, 2));
        }
    };
    let source = moving(plain(1..=8), 3, edit).await;
    let walk = by_offset(&source).shifting(PageKind::Offset).read().await;
    let mut keys = walk.keys();
    keys.sort_unstable();
    assert_eq!(keys, ["1", "2", "3", "3", "4", "5", "6", "7", "8"]);
}

#[tokio::test]
async fn a_row_read_twice_is_handed_on_twice_only_where_its_bytes_differ() {
    let row = |id: u32, seen: u32| json!({"id": id, "updated_at": 1, "seen": seen});
    let pages = [vec![row(1, 1), row(2, 1)], vec![row(2, 1), row(3, 1)], vec![row(3, 2)]];
    let source = Source::script(pages.map(|items| Answer::json(&json!({"items": items})))).await;
    let walk = by_offset(&source).shifting(PageKind::Offset).read().await;
    assert_eq!(walk.keys(), ["1", "2", "3", "3"]);
    assert_eq!(walk.pages[2].records[0].raw.get(), row(3, 2).to_string());
}

#[tokio::test]
async fn rows_without_versions_are_anchored_by_their_content_less_what_is_ignored() {
    let row = |id: u32, name: &str, views: u32| json!({"id": id, "name": name, "views": views});
    let walk = |names: [&'static str; 2]| async move {
        let views = Arc::new(Mutex::new(0));
        let source = Source::start(move |asked| {
            *views.lock().unwrap() += 1;
            let (views, [first, second]) = (*views.lock().unwrap(), names);
            let rows = match asked.number("offset") {
                0 => vec![row(1, "a", views), row(2, first, views)],
                1 => vec![row(2, second, views), row(3, "c", views)],
                _ => vec![row(3, "c", views)],
            };
            Answer::json(&json!({"items": rows}))
        })
        .await;
        let draft = Draft::new(&source.url()).query("offset", "{{ page.offset }}").shifting(PageKind::Offset);
        let mut reader = draft.ignore("views").reader(None, &CountingClock::start());
        let mut failed = None;
        while failed.is_none() {
            match reader.next_page().await {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => failed = Some(error.to_string()),
            }
        }
        (source.params("offset"), failed)
    };
    assert_eq!(walk(["b", "b"]).await, (vec!["0".into(), "1".into(), "2".into()], None));
    let (offsets, failed) = walk(["b", "B"]).await;
    assert_eq!(offsets[..3], ["0", "1", "0"]);
    assert!(failed.unwrap().contains("changes faster"), "row 2 differs every time");
}

#[tokio::test]
async fn a_single_row_is_followed_by_one_look_behind_it() {
    let source = moving(plain([1]), 3, |_, _| {}).await;
    assert_eq!(by_offset(&source).shifting(PageKind::Offset).read().await.keys(), ["1"]);
    assert_eq!(source.params("offset"), ["0", "1"]);

    let source = moving(plain(1..=3), 1, |_, _| {}).await;
    let walk = by_offset(&source).shifting(PageKind::Offset).read().await;
    assert!(walk.failure().contains("a single row"), "{}", walk.failure());
    let source = moving(plain(1..=3), 1, |_, _| {}).await;
    assert_eq!(by_offset(&source).pages(PageKind::Offset).read().await.keys(), ["1", "2", "3"]);
}

#[tokio::test]
async fn an_offset_that_is_ignored_does_not_run_for_ever() {
    let source = Source::script([page(&plain(1..=3))]).await;
    let walk = by_offset(&source).shifting(PageKind::Offset).read().await;
    assert!(walk.failure().contains("does the source know the page parameter"), "{}", walk.failure());
    assert_eq!(source.asked().len(), 25);
}

#[tokio::test]
async fn page_numbers_are_walked_again_until_a_walk_holds_every_row_of_the_one_before() {
    let edit = |request: usize, rows: &mut Vec<Row>| {
        if request == 2 {
            rows.remove(0);
        }
    };
    let source = moving(plain(1..=5), 2, edit).await;
    let walk = by_number(&source).shifting(NUMBERS).has_more("more").read().await;
    assert_eq!(walk.keys(), ["1", "2", "4", "5", "3"], "3 slipped through the first walk");
    assert_eq!(source.params("page"), ["0", "1", "0", "1", "0", "1"], "1 was missing from the second");
    assert_eq!(counted(&walk), (12, 5));

    let source = moving(plain(1..=5), 2, edit).await;
    let walk = by_number(&source).pages(NUMBERS).has_more("more").read().await;
    assert_eq!(walk.keys(), ["1", "2", "4", "5"], "without `shifts` it is walked once");
}

#[tokio::test]
async fn a_walk_of_one_page_is_not_repeated() {
    let source = moving(plain([1, 2]), 3, |_, _| {}).await;
    assert_eq!(by_number(&source).shifting(NUMBERS).has_more("more").read().await.keys(), ["1", "2"]);
    assert_eq!(source.params("page"), ["0"]);
    let source = moving(plain([1, 2]), 3, |_, _| {}).await;
    assert_eq!(by_number(&source).shifting(NUMBERS).read().await.keys(), ["1", "2"]);
    assert_eq!(source.params("page"), ["0", "1", "0", "1"], "a second one, also where it was empty");
}

#[tokio::test]
async fn a_listing_that_never_holds_still_fails_and_says_what_to_do() {
    let source = moving(plain(1..=4), 2, |request, rows| {
        let row = rows.remove(0);
        rows.push((row.0, i64::try_from(request).unwrap()));
    })
    .await;
    let walk = by_number(&source).shifting(NUMBERS).has_more("more").read().await;
    assert_eq!(source.params("page").iter().filter(|page| *page == "0").count(), 8);
    assert!(walk.failure().contains("changes faster") && walk.failure().contains("shifts: false"));
}

#[tokio::test]
async fn links_and_tokens_are_walked_again_where_rows_shift() {
    let gone = Arc::new(Mutex::new(false));
    let source = Source::start(move |asked| {
        let mut gone = gone.lock().unwrap();
        match (asked.param("after"), *gone) {
            (None, false) => page(&plain([1, 2])).header("Link", "<?after=x>; rel=next"),
            (None, true) => page(&plain([2, 3])).header("Link", "<?after=x>; rel=next"),
            (Some(_), _) => {
                *gone = true;
                page(&plain([4]))
            }
        }
    })
    .await;
    let draft = Draft::new(&source.url()).versions(VersionFormat::Integer);
    assert_eq!(draft.shifting(PageKind::LinkHeader).read().await.keys(), ["1", "2", "4", "3"]);
    assert_eq!(source.params("after"), ["-", "x", "-", "x", "-", "x"]);
}

fn by_version(source: &Source) -> Draft {
    Draft::new(&source.url())
        .versions(VersionFormat::Integer)
        .query("since", "{{ window.start }}")
        .pages(PageKind::Keyset)
}

/// A listing sorted by version, from `since` on (or behind it where `open` says so).
async fn sorted(rows: Vec<Row>, size: usize, open: bool) -> Source {
    Source::start(move |asked| {
        let since = asked.param("since").map(|since| since.parse::<i64>().unwrap());
        let after = |at: i64| since.is_none_or(|since| if open { at > since } else { at >= since });
        let mut rows: Vec<Row> = rows.iter().copied().filter(|(_, at)| after(*at)).collect();
        rows.sort_by_key(|(id, at)| (*at, *id));
        rows.truncate(size);
        page(&rows)
    })
    .await
}

#[tokio::test]
async fn keyset_goes_on_from_the_last_rows_version_with_that_version_included() {
    let rows = vec![(1, 10), (2, 20), (3, 20), (4, 30), (5, 40)];
    let source = sorted(rows.clone(), 3, false).await;
    let walk = by_version(&source).read().await;
    assert_eq!(walk.keys(), ["1", "2", "3", "4", "5"]);
    assert_eq!(source.params("since"), ["-", "20", "30", "40"]);
    assert_eq!(counted(&walk), (9, 5));

    let source = sorted(rows, 3, true).await;
    let mut reader = by_version(&source).open_start().reader(Some(Version(9)), &CountingClock::start());
    let mut keys = Vec::new();
    while let Some(page) = reader.next_page().await.unwrap() {
        keys.extend(page.records.into_iter().map(|record| record.key.to_string()));
    }
    assert_eq!(keys, ["1", "2", "3", "4", "5"], "a source that leaves the bound out is asked one step lower");
    assert_eq!(source.params("since"), ["9", "19", "29", "39"]);
}

#[tokio::test]
async fn keyset_fails_where_it_cannot_know_that_nothing_is_left_out() {
    let source = sorted(vec![(1, 10), (2, 20), (3, 20), (4, 20), (5, 20)], 3, false).await;
    let walk = by_version(&source).read().await;
    assert_eq!(walk.read_keys(), ["1", "2", "3", "4"]);
    assert!(walk.failure().contains("the same 3 rows again"), "{}", walk.failure());

    let source = Source::script([page(&[(1, 30), (2, 20)])]).await;
    let walk = by_version(&source).read().await;
    assert!(walk.failure().contains("oldest first"), "{}", walk.failure());
}

#[tokio::test]
async fn a_stop_condition_ends_a_walk_behind_the_page_it_holds_for() {
    let answers = || {
        [(1, "no"), (2, "yes"), (3, "no")].map(|(id, last)| {
            Answer::json(&json!({"items": items(&[(id, 1)]), "last": last == "yes"})).header("X-Last", last)
        })
    };
    for (rule, kind) in [
        ("response.last", NUMBERS),
        ("headers['x-last'] == 'yes'", NUMBERS),
        ("response['items'][0].id == 2", PageKind::Offset),
    ] {
        let source = Source::script(answers()).await;
        let walk = by_number(&source).pages(kind).stop_condition(rule).read().await;
        assert_eq!(walk.keys(), ["1", "2"], "{rule}");
    }
    // Where pages overlap, a page that does not count is not the last one either.
    let source =
        Source::script([page(&plain([1, 2])), page(&plain([8, 9])), page(&plain([1, 2, 8, 9]))]).await;
    let draft = by_offset(&source).shifting(PageKind::Offset).stop_condition("9 == response['items'][-1].id");
    assert_eq!(draft.read().await.keys(), ["1", "2", "8", "9"]);
    // A walk that is repeated ends each time.
    let source = Source::script(answers().into_iter().take(2).chain(answers())).await;
    let walk = by_number(&source).shifting(NUMBERS).stop_condition("response.last").read().await;
    assert_eq!(
        (walk.keys(), source.params("page")),
        (vec!["1", "2"], vec!["0".into(), "1".into(), "0".into(), "1".into()])
    );
}

#[tokio::test]
async fn max_pages_is_a_failure_and_never_the_end() {
    let source = moving(plain(1..=9), 2, |_, _| {}).await;
    let walk = by_offset(&source).pages(PageKind::Offset).max_pages(2).read().await;
    assert_eq!((walk.read_keys().len(), source.asked().len()), (4, 2), "what was read is handed on");
    assert!(
        walk.failure().contains("`max_pages`") && walk.failure().contains("page 2"),
        "{}",
        walk.failure()
    );
    let source = moving(plain(1..=4), 2, |_, _| {}).await;
    let draft = by_number(&source).shifting(NUMBERS).has_more("more").max_pages(2);
    assert_eq!(draft.read().await.keys().len(), 4, "each walk has them for itself");
    assert_eq!(source.asked().len(), 4);
}

#[tokio::test]
async fn a_newest_first_listing_is_read_down_to_the_windows_start() {
    let rows = vec![(9, 90), (8, 80), (7, 30), (6, 60), (5, 50), (4, 40), (3, 30), (2, 20)];
    let read = |rows: Vec<Row>, filter: &'static str| async move {
        let source = moving(rows, 2, |_, _| {}).await;
        let draft = by_offset(&source).newest_first(VersionFormat::Integer).pages(PageKind::Offset);
        let mut reader = draft.filter(filter).reader(Some(Version(60)), &CountingClock::start());
        let mut keys = Vec::new();
        while let Some(page) = reader.next_page().await.unwrap() {
            keys.extend(page.records.into_iter().map(|record| record.key.to_string()));
        }
        (keys.join(" "), source.params("offset"))
    };
    let asked = ["0", "2", "4"].map(str::to_owned).to_vec();
    let (keys, offsets) = read(rows.clone(), "true").await;
    assert_eq!((keys.as_str(), &offsets), ("9 8 7 6 5 4", &asked), "one old row on a page is not the end");
    let (keys, offsets) = read(rows.clone(), "record.id not in [6, 5, 4]").await;
    assert_eq!((keys.as_str(), &offsets), ("9 8 7", &asked), "rows count before the filter");

    let source = moving(rows, 2, |_, _| {}).await;
    let walk = by_offset(&source).newest_first(VersionFormat::Integer).pages(PageKind::Offset).read().await;
    assert_eq!(walk.keys().len(), 8, "without a start all of it is read");

    let source = Source::script([
        Answer::text(r#"{"items":[{"id":1,"updated_at":1},{"id":2,"updated_at":null}]}"#),
        Answer::text(r#"{"items":[{"id":3,"updated_at":2}]}"#),
    ])
    .await;
    let draft = by_offset(&source).newest_first(VersionFormat::Integer).pages(PageKind::Offset);
    let mut reader = draft.reader(Some(Version(60)), &CountingClock::start());
    while reader.next_page().await.unwrap().is_some() {}
    assert_eq!(source.asked().len(), 2, "a row without a version does not stand below");
}

#[tokio::test]
async fn empty_pages_and_pages_emptied_by_a_filter_are_not_the_end() {
    let token = |rows: &[Row], next: Option<&str>| Answer::json(&json!({"items": items(rows), "next": next}));
    let source = Source::script([
        token(&[(1, 1)], Some("a")),
        token(&[], Some("b")),
        token(&[(2, 1)], Some("c")),
        token(&[(3, 1)], None),
    ])
    .await;
    let draft = Draft::new(&source.url()).query("c", "{{ page.token }}").pages(PageKind::Token(body("next")));
    assert_eq!(draft.filter("record.id != 2").read().await.keys(), ["1", "3"]);
    assert_eq!(source.params("c"), ["-", "a", "b", "c"]);

    for kind in [PageKind::Offset, NUMBERS] {
        let source = moving(plain(1..=6), 2, |_, _| {}).await;
        let by_place = if matches!(kind, PageKind::Offset) { by_offset } else { by_number };
        let draft = by_place(&source);
        let walk = draft.pages(kind).filter("record.id > 4").read().await;
        assert_eq!(walk.keys(), ["5", "6"]);
    }
}

#[tokio::test]
async fn pages_that_bring_no_new_row_are_stalled_also_where_each_differs_from_the_one_before() {
    // A source that goes round: behind the last page comes the first.
    let source =
        Source::start(|asked| page(&plain([1 + u32::try_from(asked.number("page") % 4).unwrap()]))).await;
    let walk = by_number(&source).pages(NUMBERS).read().await;
    assert!(walk.failure().contains("10 pages in a row brought no row"), "{}", walk.failure());
    assert_eq!(source.asked().len(), 14);
}

#[tokio::test]
async fn the_numbers_of_rows_and_pages_may_stand_in_headers() {
    let source = Source::script([
        page(&plain([1, 2])).header("X-Total", "3").header("X-Pages", "2"),
        page(&plain([2, 3])).header("X-Total", "3").header("X-Pages", "2"),
    ])
    .await;
    let mut draft = by_offset(&source).shifting(PageKind::Offset);
    draft.stream.pagination.total = Some(Place::Header("x-total".into()));
    assert_eq!(draft.read().await.keys(), ["1", "2", "3"]);
    assert_eq!(source.params("offset"), ["0", "1"]);

    let source = Source::script([1, 2].map(|id| page(&plain([id])).header("X-Pages", "2"))).await;
    let kind = PageKind::PageNumber { base: 1, total_pages: Some(Place::Header("x-pages".into())) };
    assert_eq!(by_number(&source).pages(kind).read().await.keys(), ["1", "2"]);
    assert_eq!(source.params("page"), ["1", "2"]);
}
