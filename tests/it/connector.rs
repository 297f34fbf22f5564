//! Pages: every kind of pagination against a source on a real socket, where they end and where they are
//! stalled, and what becomes of their records.

use onlynew::{
    config::stream::{Missing, PageKind, Place},
    domain::version::{Version, VersionFormat},
};
use serde_json::{Value, json};

use crate::{
    connector_job::{CountingClock, Draft, START, body},
    support::source::{Answer, Source},
};

fn items(ids: impl IntoIterator<Item = usize>) -> Value {
    ids.into_iter().map(|id| json!({"id": id})).collect()
}

fn page(ids: impl IntoIterator<Item = usize>) -> Answer {
    Answer::json(&json!({"items": items(ids)}))
}

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|id| id.to_string()).collect()
}

/// A source of so many rows that serves at most `most` of them from `offset` on.
async fn listing(rows: usize, most: usize, more: fn(usize, usize) -> Value) -> Source {
    Source::start(move |asked| {
        let from = asked.number("offset").min(rows);
        let to = (from + most).min(rows);
        let mut body = more(to, rows);
        body["items"] = items(from..to);
        Answer::json(&body)
    })
    .await
}

fn by_offset(source: &Source) -> Draft {
    Draft::new(&source.url())
        .query("limit", "1000")
        .query("offset", "{{ page.offset }}")
        .pages(PageKind::Offset)
}

#[tokio::test]
async fn c08_offset_strides_by_rows_received_and_ends_by_word_or_empty_page() {
    let source = listing(1_300, 500, |_, _| json!({})).await;
    let walk = by_offset(&source).read().await;
    assert_eq!(walk.keys(), numbers(0..1_300));
    assert_eq!(source.params("offset"), ["0", "500", "1000", "1300"]);
    assert_eq!(source.params("limit")[0], "1000");

    let source = listing(1_300, 500, |_, rows| json!({"total": rows.to_string()})).await;
    assert_eq!(by_offset(&source).total("total").read().await.keys(), numbers(0..1_300));
    assert_eq!(source.asked().len(), 3);

    let source = listing(1_300, 500, |to, rows| json!({"more": to < rows})).await;
    assert_eq!(by_offset(&source).has_more("more").read().await.keys(), numbers(0..1_300));
    assert_eq!(source.asked().len(), 3);
}

#[tokio::test]
async fn an_empty_page_that_promises_more_is_stalled_and_not_the_end() {
    let source = listing(4, 2, |_, _| json!({"more": true, "total": 9})).await;
    for draft in [by_offset(&source).has_more("more"), by_offset(&source).total("total")] {
        let walk = draft.read().await;
        assert_eq!(walk.read_keys().len(), 4);
        assert!(walk.failure().contains("stalled"), "{}", walk.failure());
    }
}

fn by_token(source: &Source) -> Draft {
    Draft::new(&source.url()).query("cursor", "{{ page.token }}").pages(PageKind::Token(body("$.meta.next")))
}

#[tokio::test]
async fn a_token_is_handed_on_until_there_is_none_also_behind_an_empty_page() {
    let source = Source::script([
        Answer::text(r#"{"items":[{"id":1}],"meta":{"next":9007199254740993}}"#),
        Answer::text(r#"{"items":[],"meta":{"next":"b/&?"}}"#),
        Answer::text(r#"{"items":[{"id":2}],"meta":{"next":""}}"#),
    ])
    .await;
    assert_eq!(by_token(&source).read().await.keys(), ["1", "2"]);
    assert_eq!(source.params("cursor"), ["-", "9007199254740993", "b/&?"]);
}

#[tokio::test]
async fn a_token_may_stand_in_a_header_and_has_more_ends_the_walk() {
    let source = Source::script([
        Answer::text(r#"{"items":[{"id":1}],"more":true}"#).header("X-Next", "a"),
        Answer::text(r#"{"items":[{"id":2}],"more":false}"#).header("X-Next", "b"),
    ])
    .await;
    let draft = by_token(&source).pages(PageKind::Token(Place::Header("x-next".into()))).has_more("more");
    assert_eq!(draft.read().await.keys(), ["1", "2"]);
    assert_eq!(source.params("cursor"), ["-", "a"]);
}

#[tokio::test]
async fn tokens_that_repeat_or_go_in_circles_are_stalled() {
    for tokens in [vec!["a", "a"], vec!["a", "b", "c", "a"]] {
        let answers = tokens.iter().enumerate();
        let answers: Vec<_> = answers
            .map(|(id, token)| Answer::json(&json!({"items": items([id]), "meta": {"next": token}})))
            .collect();
        let source = Source::script(answers).await;
        let walk = by_token(&source).read().await;
        assert_eq!(walk.pages.len(), tokens.len() - 1);
        assert!(walk.failure().contains("read before"), "{}", walk.failure());
    }
    let source = Source::script([Answer::text(r#"{"items":[{"id":1}],"more":true}"#)]).await;
    let walk = by_token(&source).has_more("more").read().await;
    assert!(walk.failure().contains("names no next page"), "{}", walk.failure());
}

#[tokio::test]
async fn a_source_that_ignores_the_page_parameter_is_stalled() {
    let source = Source::script([page([1, 2])]).await;
    let draft = Draft::new(&source.url()).pages(PageKind::PageNumber { base: 1, total_pages: None });
    let walk = draft.read().await;
    assert_eq!(source.asked().len(), 3);
    assert!(walk.failure().contains("the same rows"), "{}", walk.failure());
}

fn by_last_record(source: &Source) -> Draft {
    Draft::new(&source.url())
        .query("starting_after", "{{ page.token }}")
        .pages(PageKind::LastRecord("id".parse().unwrap()))
        .has_more("has_more")
}

#[tokio::test]
async fn the_next_page_starts_behind_the_last_record() {
    let source = Source::script([
        Answer::text(r#"{"items":[{"id":"x"},{"id":"y"}],"has_more":true}"#),
        Answer::text(r#"{"items":[{"id":"z"}],"has_more":false}"#),
    ])
    .await;
    assert_eq!(by_last_record(&source).read().await.keys(), ["x", "y", "z"]);
    assert_eq!(source.params("starting_after"), ["-", "y"]);

    let source = Source::script([
        Answer::text(r#"{"items":[{"id":"x"}],"has_more":true}"#),
        Answer::text(r#"{"items":[],"has_more":true}"#),
    ])
    .await;
    let walk = by_last_record(&source).read().await;
    assert!(walk.failure().contains("answers an empty page"), "{}", walk.failure());
}

#[tokio::test]
async fn page_numbers_grow_up_to_the_number_of_pages() {
    let source =
        Source::script([0, 1, 2].map(|id| Answer::json(&json!({"items": items([id]), "pages": 3})))).await;
    let kind = |total_pages| PageKind::PageNumber { base: 0, total_pages };
    let draft = |source: &Source| Draft::new(&source.url()).query("page", "{{ page.number }}");
    assert_eq!(draft(&source).pages(kind(Some(body("pages")))).read().await.keys(), ["0", "1", "2"]);
    assert_eq!(source.params("page"), ["0", "1", "2"]);

    let source = Source::script([page([1, 2]), page([3]), page([])]).await;
    assert_eq!(draft(&source).pages(kind(None)).read().await.keys(), ["1", "2", "3"]);
    assert_eq!(source.params("page"), ["0", "1", "2"]);
}

#[tokio::test]
async fn link_headers_and_next_urls_lead_on_as_given_and_on_the_same_origin_only() {
    let source = Source::start(|asked| match asked.param("after") {
        None => page([1]).header("Link", r#"</other?after=a%2Fb&x=1+2>; rel="next", <?last>; rel="last""#),
        Some("a/b") => {
            page([2]).header("Link", r#"<?prev>; rel="prev""#).header("Link", "<?after=c>;rel=next")
        }
        Some(_) => page([3]).header("Link", r#"<?prev>; rel="prev""#),
    })
    .await;
    let walk = Draft::new(&source.url()).query("per_page", "1").pages(PageKind::LinkHeader).read().await;
    assert_eq!(walk.keys(), ["1", "2", "3"]);
    let asked = source.asked();
    assert_eq!((asked[1].path.as_str(), asked[1].param("per_page")), ("/other", None));
    assert_eq!(asked[2].path, "/other");

    let source = Source::start(|asked| {
        let next = match asked.param("p") {
            None => json!("?p=2"),
            Some("2") => json!("http://evil.test/items?p=3"),
            Some(_) => json!(null),
        };
        Answer::json(&json!({"items": items([asked.number("p")]), "next": next}))
    })
    .await;
    let walk = Draft::new(&source.url()).pages(PageKind::NextUrl(body("next"))).read().await;
    assert_eq!(walk.read_keys(), ["0"]);
    assert!(walk.failure().contains("to http://evil.test"), "{}", walk.failure());
}

#[tokio::test]
async fn a_record_that_cannot_be_read_is_set_aside_and_the_rest_goes_on() {
    let text = r#"{"items":[{"id":1,"updated_at":5},{"id":"\ud800"},{"updated_at":9},{"id":3,"updated_at":"soon"},
        {"id":4.0,"updated_at":7,"gone":true},{"id":5,"updated_at":8,"skip":1},7]}"#;
    let source = Source::script([Answer::text(text)]).await;
    let walk = Draft::new(&source.url())
        .versions(VersionFormat::Integer)
        .filter("not record.skip")
        .deleted_when("record.gone")
        .read()
        .await;
    assert_eq!(walk.keys(), ["1", "4"]);
    let page = &walk.pages[0];
    assert_eq!((page.rows, page.max_version), (7, Some(Version(9))));
    assert_eq!(page.records.iter().map(|record| record.flagged).collect::<Vec<_>>(), [false, true]);
    assert_eq!(page.records[1].raw.get(), r#"{"id":4.0,"updated_at":7,"gone":true}"#);
    let raws: Vec<_> = page.quarantined.iter().map(|bad| bad.raw.as_str()).collect();
    let expected = [r#"{"id":"\ud800"}"#, r#"{"updated_at":9}"#, r#"{"id":3,"updated_at":"soon"}"#, "7"];
    assert_eq!(raws, expected);
    assert!(page.quarantined[1].reason.contains("primary key"));
}

#[tokio::test]
async fn too_many_bad_records_fail_the_run_on_one_page_or_over_many() {
    let bad = |count: usize, good: usize| {
        let rows = (0..count).map(|_| json!({"id": [1]}));
        let rows: Vec<_> = rows.chain((0..good).map(|id| json!({"id": id}))).collect();
        Answer::json(&json!({"items": rows}))
    };
    for (count, good, fails) in [(11, 1_088, true), (11, 1_089, false), (10, 0, false), (11, 0, true)] {
        let source = Source::script([bad(count, good)]).await;
        let walk = Draft::new(&source.url()).read().await;
        assert_eq!(walk.error.is_some(), fails, "{count} of {}", count + good);
    }
    let source = Source::start(move |_| bad(4, 0)).await;
    let walk = by_offset(&source).has_more("never").read().await;
    assert_eq!(source.asked().len(), 3);
    assert!(walk.failure().contains("12 of 12"), "{}", walk.failure());
}

#[tokio::test]
async fn what_has_no_key_anywhere_is_not_a_page_of_records() {
    for items in [json!([{"a": 1}, {"a": 2}]), json!({"message": "under maintenance"})] {
        let source = Source::script([Answer::json(&json!({"items": items}))]).await;
        let walk = Draft::new(&source.url()).read().await;
        assert!(walk.failure().contains("nothing at `$.items`"), "{}", walk.failure());
    }
    let source = Source::script([Answer::json(&json!({"items": [{"a": 1}]}))]).await;
    let walk = Draft::new(&source.url()).read().await;
    assert!(walk.error.is_none(), "one broken record is set aside");
}

#[tokio::test]
async fn c19_a_version_without_a_zone_fails_the_run_and_shows_the_value() {
    let source =
        Source::script([Answer::json(&json!({"items": [{"id": 1, "updated_at": "2024-01-01 00:00:00"}]}))])
            .await;
    let walk = Draft::new(&source.url()).versions(VersionFormat::Auto).read().await;
    assert!(walk.failure().contains("2024-01-01 00:00:00"), "{}", walk.failure());
}

#[tokio::test]
async fn a_list_that_may_be_missing_is_empty_and_an_object_is_one_record() {
    for (text, path, keys) in [
        (r#"{"items":null}"#, "$.items", vec![]),
        ("{}", "$.items", vec![]),
        (r#"{"items":{"id":7}}"#, "$.items", vec!["7"]),
        (r#"[{"id":1}]"#, "$", vec!["1"]),
    ] {
        let source = Source::script([Answer::text(text)]).await;
        let mut draft = Draft::new(&source.url()).records(path);
        draft.stream.records.missing = Missing::Empty;
        assert_eq!(draft.read().await.keys(), keys, "{text}");
    }
    let source = Source::script([Answer::text(r#"{"items":"none"}"#)]).await;
    let walk = Draft::new(&source.url()).read().await;
    assert!(walk.failure().contains("`$.items` is a text"), "{}", walk.failure());
}

#[tokio::test]
async fn the_window_and_the_clocks_of_a_page() {
    let source = Source::script([page([1]).header("Date", "Mon, 21 Sep 2026 14:20:00 GMT"), page([1])]).await;
    let clock = CountingClock::start();
    let draft = || {
        Draft::new(&source.url())
            .versions(VersionFormat::Iso8601)
            .query("since", "{{ window.start }}")
            .query("until", "{{ window.end }}")
    };
    let mut reader = draft().reader(Some(Version(START.micros())), &clock);
    let page = reader.next_page().await.unwrap().unwrap();
    assert_eq!(page.source_time.to_string(), "2026-09-21T14:20:00Z");
    assert_eq!((page.number, page.asked_at, page.answered_at), (1, START, START));
    assert!(reader.next_page().await.unwrap().is_none());
    assert_eq!(reader.requests(), 1);

    let page = draft().reader(None, &clock).next_page().await.unwrap().unwrap();
    assert_eq!(page.source_time.to_string(), "2026-09-21T14:12:20Z");
    assert_eq!(source.params("since"), ["2026-09-21T14:13:20Z", "-"]);
    assert_eq!(source.params("until"), ["-", "-"]);
}
