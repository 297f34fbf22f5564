//! Field cases about versions, keys and numbers, told through the whole engine on both databases.

use std::sync::{Arc, Mutex};

use onlynew::domain::run::{Counts, RunStatus};
use serde_json::{Value, json};

use crate::{
    both,
    support::{
        database::Database,
        rig::{Job, Rig},
        server::{Asked, Reply},
    },
};

/// One page without parameters.
const PLAIN: Job<'_> =
    Job { query: "{}", pagination: "{type: none}", source: "incremental: {field: updated_at}", rest: "" };

/// A rig whose source shows what the second part holds, as the text of the list.
async fn shown(database: Database, job: Job<'_>, items: &str) -> (Rig, Arc<Mutex<String>>) {
    let items = Arc::new(Mutex::new(items.to_owned()));
    let now = Arc::clone(&items);
    let rig =
        Rig::new(database, job, move |_| Reply::Json(format!(r#"{{"items":{}}}"#, now.lock().unwrap())))
            .await;
    (rig, items)
}

fn show(items: &Mutex<String>, now: &str) {
    now.clone_into(&mut items.lock().unwrap());
}

/// The events so far, as (key, version).
fn versions(rig: &Rig) -> Vec<(String, Value)> {
    let told = rig.receiver.asked();
    let told = told.iter().map(Asked::json);
    let mut told: Vec<_> =
        told.map(|event| (event["key"].as_str().unwrap().to_owned(), event["version"].clone())).collect();
    told.sort_by_key(|(key, _)| key.clone());
    told
}

async fn c19_every_spelling_of_a_timestamp_is_read(database: Database) {
    let spellings = [
        (json!("2024-11-01T10:59:29+00:00"), json!("2024-11-01T10:59:29Z")),
        (json!("2024-11-01T10:59:29.000000+00:00"), json!("2024-11-01T10:59:29Z")),
        (json!("2024-01-01T00:00:00+0000"), json!("2024-01-01T00:00:00Z")),
        (json!("2024-01-01T00:00:00,5Z"), json!("2024-01-01T00:00:00.5Z")),
        (json!("2024-01-01T00:00Z"), json!("2024-01-01T00:00:00Z")),
        (json!("2016-12-31T23:59:60Z"), json!("2016-12-31T23:59:59Z")),
        (json!("Mon, 01 Jan 2024 00:00:00 GMT"), json!("2024-01-01T00:00:00Z")),
        (json!(1_704_067_200), json!("2024-01-01T00:00:00Z")),
        (json!("1704067200"), json!("2024-01-01T00:00:00Z")),
        (json!(1_704_067_200_000_i64), json!("2024-01-01T00:00:00Z")),
        (serde_json::from_str("1704067200.25").unwrap(), json!("2024-01-01T00:00:00.25Z")),
        (json!("2024-01-01T00:00:33.6149999Z"), json!("2024-01-01T00:00:33.614999Z")),
        (json!("0000-00-00 00:00:00"), json!(null)),
    ];
    let items: Vec<Value> = spellings
        .iter()
        .enumerate()
        .map(|(index, (spelled, _))| json!({"id": format!("{index:02}"), "updated_at": spelled}))
        .chain([json!({"id": "bad", "updated_at": "not a date"})])
        .collect();
    let (rig, _) = shown(database, PLAIN, &Value::from(items).to_string()).await;
    let report = rig.sync().await.report;
    assert_eq!(report.status, RunStatus::Ok, "{:?}", report.reason);
    assert_eq!((report.counts.created, report.counts.quarantined, report.counts.records), (13, 1, 14));
    assert_eq!(report.watermark, Some(json!("2024-11-01T10:59:29Z")));
    let expected: Vec<Value> = spellings.iter().map(|(_, expected)| expected.clone()).collect();
    let read: Vec<Value> = versions(&rig).into_iter().map(|(_, version)| version).collect();
    assert_eq!(read, expected);
    assert_eq!(rig.database.number("(SELECT count(*) FROM quarantine)").await, 1);
}

async fn c19_a_timestamp_without_a_zone_needs_one_declared(database: Database) {
    let items =
        r#"[{"id":1,"updated_at":"2024-01-01T00:00:00Z"},{"id":2,"updated_at":"2024-07-01 02:00:00"}]"#;
    let (rig, _) = shown(database, PLAIN, items).await;
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.counts.records), (RunStatus::Failed, 0));
    let reason = report.reason.unwrap();
    assert!(reason.contains("2024-07-01 02:00:00") && reason.contains("incremental.timezone"), "{reason}");
    assert!(!rig.has_watermark().await);
    rig.configure(Job { source: "incremental: {field: updated_at, timezone: Europe/Zagreb}", ..PLAIN });
    assert_eq!(rig.sync().await.report.status, RunStatus::Ok);
    assert_eq!(versions(&rig)[1], ("2".into(), json!("2024-07-01T00:00:00Z")));
}

async fn c20_versions_are_compared_as_what_they_stand_for(database: Database) {
    let cases = [
        ("integer", "9", "10"),
        ("auto, timezone: UTC", "2026-07-29T10:06:55.172Z", "2026-07-29 10:11:21"),
        ("iso8601", "2026-07-29T10:06:35Z", "2026-07-29T10:06:35.063Z"),
        ("auto", "2025-04-17T01:00:00+02:00", "2025-04-17T00:30:00+00:00"),
        ("decimal", "1512085950.000216", "1512085950.000217"),
        ("decimal", "9.75", "10.25"),
        ("\"%d.%m.%Y %H:%M%z\"", "31.01.2026 23:00+0000", "01.02.2026 00:30+0100"),
    ];
    let (rig, items) = shown(database, PLAIN, "[]").await;
    for (index, (format, older, newer)) in cases.into_iter().enumerate() {
        rig.configure(Job {
            source: &format!("incremental: {{field: updated_at, format: {format}}}"),
            ..PLAIN
        });
        rig.keep().await;
        let row = |version: &str| json!([{"id": index, "updated_at": version}]).to_string();
        for (version, decided) in [
            (older, Counts { created: 1, ..Counts::default() }),
            (newer, Counts { updated: 1, ..Counts::default() }),
            (older, Counts { stale: 1, ..Counts::default() }),
        ] {
            show(&items, &row(version));
            let counts = rig.sync().await.report.counts;
            let told = (counts.created, counts.updated, counts.stale);
            assert_eq!(told, (decided.created, decided.updated, decided.stale), "{format}: {version}");
        }
    }
}

async fn c20_the_watermark_is_the_largest_number_and_garbage_never_orders(database: Database) {
    let items = r#"[{"id":1,"updated_at":1},{"id":2,"updated_at":"9"},{"id":3,"updated_at":10},
        {"id":4,"updated_at":"11"},{"id":5,"updated_at":"ZmZmZg=="}]"#;
    let job = Job { source: "incremental: {field: updated_at, format: integer}", ..PLAIN };
    let (rig, _) = shown(database, job, items).await;
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.watermark), (RunStatus::Ok, Some(json!(11))));
    assert_eq!((report.counts.created, report.counts.quarantined), (4, 1));
}

async fn a_decimal_is_asked_for_and_sent_to_its_last_digit(database: Database) {
    let job = Job {
        query: r#"{since: "{{ window.start }}"}"#,
        source: "incremental: {field: ts, format: decimal}",
        ..PLAIN
    };
    let (rig, _) = shown(database, job, r#"[{"id":1,"ts":"1512085950.000216"}]"#).await;
    assert_eq!(rig.sync().await.report.watermark, Some(json!("1512085950.000216")));
    rig.sync().await;
    assert_eq!(rig.source.asked()[1].param("since"), "1512085950.000216");
    assert_eq!(versions(&rig), [("1".into(), json!("1512085950.000216"))]);
}

async fn a_pattern_is_asked_for_as_it_is_read(database: Database) {
    let job = Job {
        query: r#"{since: "{{ window.start }}"}"#,
        source: r#"incremental: {field: at, format: "%d.%m.%Y %H:%M", timezone: Europe/Zagreb}"#,
        rest: "window: {lookback: 1m}",
        ..PLAIN
    };
    let (rig, _) = shown(database, job, r#"[{"id":1,"at":"01.07.2024 02:30"}]"#).await;
    assert_eq!(rig.sync().await.report.watermark, Some(json!("2024-07-01T00:30:00Z")));
    rig.sync().await;
    // A minute of lookback, and a minute because the pattern tells no seconds.
    assert_eq!(rig.source.asked()[1].param("since"), "01.07.2024 02:28");
}

async fn of_several_fields_the_first_that_holds_something_counts(database: Database) {
    let job = Job { source: "incremental: {field: [updated_at, $.meta.created_at]}", ..PLAIN };
    let first = r#"[{"id":1,"updated_at":null,"meta":{"created_at":"2026-01-01T00:00:00Z"}},
        {"id":2,"updated_at":"2026-01-02T00:00:00Z","meta":{"created_at":"2027-01-01T00:00:00Z"}},{"id":3}]"#;
    let (rig, items) = shown(database, job, first).await;
    let report = rig.sync().await.report;
    assert_eq!((report.counts.created, report.watermark), (3, Some(json!("2026-01-02T00:00:00Z"))));
    // The fields of the version are no content.
    show(&items, &first.replace("2027-01-01", "2028-01-01"));
    assert_eq!(rig.sync().await.report.counts.events, 0);
    show(&items, &first.replace("null", "\"2026-01-03T00:00:00Z\""));
    assert_eq!(rig.sync().await.report.counts.updated, 1);
}

const C22: &str = r#"[{"id":1,"updated_at":"2026-09-21T10:00:00Z"},{"id":2,"updated_at":null,"name":"a"},
    {"id":3},{"id":4,"updated_at":""}]"#;

async fn c22_records_without_a_version_are_records(database: Database) {
    let (rig, items) = shown(database, PLAIN, C22).await;
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.counts.events), (RunStatus::Ok, 4), "{:?}", report.reason);
    assert_eq!(report.watermark, Some(json!("2026-09-21T10:00:00Z")), "from row 1 alone");
    assert_eq!(rig.sync().await.report.counts.events, 0);
    show(&items, &C22.replace(r#""a""#, r#""b""#));
    let counts = rig.sync().await.report.counts;
    assert_eq!((counts.events, counts.updated), (1, 1), "the hash decides");
}

async fn c22_a_version_that_comes_is_one_change_and_one_that_goes_overwrites_nothing(database: Database) {
    let row = |version: &str, name: &str| format!(r#"[{{"id":2,"updated_at":{version},"name":"{name}"}}]"#);
    let t2 = "\"2026-09-21T10:00:02Z\"";
    let (rig, items) = shown(database, PLAIN, &row("null", "a")).await;
    assert_eq!(rig.sync().await.report.counts.created, 1);
    show(&items, &row(t2, "a"));
    assert_eq!(rig.sync().await.report.counts.updated, 1);
    assert_eq!(rig.sync().await.report.counts.events, 0);
    show(&items, &row("null", "a"));
    assert_eq!(rig.sync().await.report.counts.events, 0, "the same content is no change");
    show(&items, &row("null", "b"));
    assert_eq!(rig.sync().await.report.counts.updated, 1, "another content is one, and is told");
    let last = rig.receiver.asked().pop().unwrap().json();
    assert_eq!((&last["version"], &last["data"]["name"]), (&json!("2026-09-21T10:00:02Z"), &json!("b")));
    show(&items, &row("\"2026-09-21T10:00:01Z\"", "old"));
    let counts = rig.sync().await.report.counts;
    assert_eq!((counts.events, counts.stale), (0, 1), "what is older than T2 stays older");
}

async fn c22_a_job_may_fail_on_records_without_a_version(database: Database) {
    let (rig, _) = shown(database, Job { rest: "changes: {on_missing_version: fail}", ..PLAIN }, C22).await;
    let report = rig.sync().await.report;
    assert_eq!((report.status, report.counts.records), (RunStatus::Failed, 0));
    let reason = report.reason.unwrap();
    assert!(reason.contains("the record `2` has no version at `updated_at`"), "{reason}");
    assert!(rig.sent().is_empty() && !rig.has_watermark().await);
}

async fn c22_a_job_may_do_without_records_without_a_version_and_counts_them(database: Database) {
    let (rig, _) = shown(database, Job { rest: "changes: {on_missing_version: skip}", ..PLAIN }, C22).await;
    let counts = rig.sync().await.report.counts;
    assert_eq!((counts.records, counts.created, counts.skipped), (4, 1, 3));
    assert_eq!(rig.database.number("(SELECT skipped FROM run)").await, 3);
    let (_, told, _) = rig.command(&["sync", "rows", "--json"]).await;
    assert_eq!((&told["skipped"], &told["unchanged"]), (&json!(3), &json!(1)));
    assert_eq!(rig.sent_keys(), ["1"]);
}

const CONTENT: Job<'_> = Job { source: "", ..PLAIN };

async fn c23_ids_are_told_apart_by_their_digits(database: Database) {
    let items = r#"[{"id":9007199254740992},{"id":9007199254740993},{"id":18446744073709551616},
        {"id":"007"},{"id":7},{"id":7.0}]"#;
    let (rig, items) = shown(database, CONTENT, items).await;
    let counts = rig.sync().await.report.counts;
    assert_eq!((counts.records, counts.created, counts.unchanged), (6, 5, 1), "7.0 and 7 are one");
    let expected = ["007", "18446744073709551616", "7", "9007199254740992", "9007199254740993"];
    assert_eq!(rig.sent_keys(), expected);
    show(&items, r#"[{"id":"9007199254740993"}]"#);
    let counts = rig.sync().await.report.counts;
    assert_eq!((counts.unchanged, counts.events), (1, 0), "the spelling of a key is no content");
    assert_eq!(rig.database.number("(SELECT count(*) FROM record)").await, 5);
}

async fn c23_a_number_that_becomes_a_text_is_no_change_where_content_decides(database: Database) {
    let row = |id: &str, name: &str| format!(r#"[{{"id":{id},"name":"{name}"}}]"#);
    let (rig, items) = shown(database, CONTENT, &row("123", "a")).await;
    assert_eq!(rig.sync().await.report.counts.created, 1);
    for (job, id, name, events) in [
        (CONTENT, "\"123\"", "a", 0),
        (CONTENT, "123", "a", 0),
        (CONTENT, "\"123\"", "b", 1),
        // The same where a version could be there and is not.
        (PLAIN, "123", "b", 0),
        (PLAIN, "\"123\"", "c", 1),
    ] {
        rig.configure(job);
        rig.keep().await;
        show(&items, &row(id, name));
        assert_eq!(rig.sync().await.report.counts.events, events, "{id} {name}");
    }
    assert_eq!(rig.database.number("(SELECT count(*) FROM record)").await, 1);
}

async fn c23_a_number_that_becomes_a_text_is_the_same_record_unless_keys_are_strict(database: Database) {
    let row = |id: &str| format!(r#"[{{"id":{id},"updated_at":"2026-09-21T10:00:00Z"}}]"#);
    let (rig, items) = shown(database, PLAIN, &row("123")).await;
    assert_eq!(rig.sync().await.report.counts.created, 1);
    show(&items, &row("\"123\""));
    let counts = rig.sync().await.report.counts;
    assert_eq!((counts.events, counts.unchanged), (0, 1));
    let strict = "key_type: strict\n      incremental: {field: updated_at}";
    rig.configure(Job { source: strict, ..PLAIN });
    rig.keep().await;
    assert_eq!(rig.sync().await.report.counts.created, 1, "the text is another key");
    show(&items, &row("123"));
    assert_eq!(rig.sync().await.report.counts.unchanged, 1, "the number is the old one");
    assert_eq!(rig.sent_keys(), ["\"123\"", "123"]);
}

async fn c23_large_integers_go_out_as_texts_unless_they_are_wanted_raw(database: Database) {
    let row = |n: u64| {
        format!(
            r#"[{{"id":{n},"big":9007199254740993,"safe":9007199254740991,"list":[-7615917337495251231,0.10]}}]"#
        )
    };
    let (rig, items) = shown(database, CONTENT, &row(1)).await;
    rig.sync().await;
    rig.configure(Job { rest: "changes: {numbers: raw}", ..CONTENT });
    show(&items, &row(2));
    rig.sync().await;
    let bodies: Vec<String> = rig.receiver.asked().into_iter().map(|asked| asked.body).collect();
    let safe = r#""big":"9007199254740993","safe":9007199254740991,"list":["-7615917337495251231",0.10]"#;
    let raw = r#""big":9007199254740993,"safe":9007199254740991,"list":[-7615917337495251231,0.10]"#;
    assert!(bodies[0].contains(safe), "{}", bodies[0]);
    assert!(bodies[1].contains(raw), "{}", bodies[1]);
}

both!(
    c19_every_spelling_of_a_timestamp_is_read,
    c19_a_timestamp_without_a_zone_needs_one_declared,
    c20_versions_are_compared_as_what_they_stand_for,
    c20_the_watermark_is_the_largest_number_and_garbage_never_orders,
    a_decimal_is_asked_for_and_sent_to_its_last_digit,
    a_pattern_is_asked_for_as_it_is_read,
    of_several_fields_the_first_that_holds_something_counts,
    c22_records_without_a_version_are_records,
    c22_a_version_that_comes_is_one_change_and_one_that_goes_overwrites_nothing,
    c22_a_job_may_fail_on_records_without_a_version,
    c22_a_job_may_do_without_records_without_a_version_and_counts_them,
    c23_ids_are_told_apart_by_their_digits,
    c23_a_number_that_becomes_a_text_is_the_same_record_unless_keys_are_strict,
    c23_a_number_that_becomes_a_text_is_no_change_where_content_decides,
    c23_large_integers_go_out_as_texts_unless_they_are_wanted_raw,
);
