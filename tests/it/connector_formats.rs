//! Formats of answers: NDJSON, CSV, XML, maps of records and rows with their columns elsewhere, also such as
//! no server should send.

use onlynew::{
    config::stream::{Missing, PageKind, RecordFormat, Shape},
    domain::version::VersionFormat,
};
use serde_json::{Value, json};

use crate::{
    connector_job::{Draft, Walk, body},
    support::source::{Answer, Source},
};

const CSV: RecordFormat = RecordFormat::Csv { delimiter: b',' };

fn typed(body: &str, content_type: &str) -> Answer {
    Answer::text(body).header("content-type", content_type)
}

fn draft(source: &Source, format: RecordFormat, path: &str) -> Draft {
    let mut draft = Draft::new(&source.url()).records(path);
    draft.stream.records.format = format;
    draft
}

async fn read(answer: Answer, format: RecordFormat, path: &str) -> Walk {
    let source = Source::script([answer]).await;
    draft(&source, format, path).read().await
}

/// The records that were read, as JSON.
fn records(walk: &Walk) -> Vec<Value> {
    assert_eq!(walk.error, None);
    let records = walk.pages.iter().flat_map(|page| &page.records);
    records.map(|record| serde_json::from_str(record.raw.get()).unwrap()).collect()
}

#[tokio::test]
async fn ndjson_is_read_line_by_line_and_a_bad_line_is_set_aside() {
    let text = "{\"id\":9007199254740993}\r\n\n{\"id\":2,\n{\"id\":3}\n{\"id\":4";
    let walk = read(typed(text, "application/json"), RecordFormat::Ndjson, "$").await;
    assert_eq!(walk.keys(), ["9007199254740993", "3"]);
    let quarantined = &walk.pages[0].quarantined;
    assert_eq!(
        quarantined.iter().map(|bad| bad.raw.as_str()).collect::<Vec<_>>(),
        [r#"{"id":2,"#, r#"{"id":4"#]
    );
    assert!(quarantined[0].reason.contains("not JSON"), "{}", quarantined[0].reason);
    assert_eq!(walk.pages[0].rows, 4, "an offset counts the bad lines too");
}

#[tokio::test]
async fn csv_is_read_by_its_header_row_and_a_row_of_another_width_is_set_aside() {
    let text = "id,name,updated_at\n007,\"a, b\",2026-09-21T10:00:00Z\n8,\"x\ny\",\n9,z\n";
    let source = Source::script([typed(text, "text/csv")]).await;
    let walk = draft(&source, CSV, "$").versions(VersionFormat::Iso8601).read().await;
    assert_eq!(
        records(&walk),
        [
            json!({"id": "007", "name": "a, b", "updated_at": "2026-09-21T10:00:00Z"}),
            json!({"id": "8", "name": "x\ny", "updated_at": ""}),
        ]
    );
    assert_eq!(walk.keys(), ["007", "8"]);
    assert!(walk.pages[0].records[1].version.is_none());
    assert_eq!(walk.pages[0].quarantined[0].raw, "9,z");
    assert!(source.asked()[0].header("accept").unwrap().starts_with("text/csv"));

    let semicolons = RecordFormat::Csv { delimiter: b';' };
    assert_eq!(read(typed("id;n\n1;a,b\n", "text/csv"), semicolons, "$").await.keys(), ["1"]);
    assert!(read(typed("id,n\n", "text/csv"), CSV, "$").await.keys().is_empty());
}

const RSS: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<rss version="2.0" xmlns:dc="http://purl.org/dc/elements/1.1/"><channel><title>News</title>
  <item><guid isPermaLink="false">a1</guid><title>T&amp;C &#8211; ž</title><dc:creator>Ana</dc:creator>
    <category>x</category><category>y</category><pubDate>Mon, 21 Sep 2026 10:00:00 GMT</pubDate>
    <description><![CDATA[<p>Hi &amp; bye</p>]]></description></item>
  <item><guid isPermaLink="false">a2</guid><pubDate>Mon, 21 Sep 2026 11:00:00 GMT</pubDate></item>
</channel></rss>"#;

#[tokio::test]
async fn rss_is_read_with_its_attributes_entities_and_lists() {
    let source = Source::script([typed(RSS, "application/rss+xml")]).await;
    let mut draft = draft(&source, RecordFormat::Xml, "$.rss.channel.item").versions(VersionFormat::Rfc2822);
    draft.stream.primary_key = vec!["guid['#text']".parse().unwrap()];
    draft.stream.incremental.as_mut().unwrap().field = "pubDate".parse().unwrap();
    let walk = draft.read().await;
    assert_eq!(walk.keys(), ["a1", "a2"]);
    let records = records(&walk);
    assert_eq!(records[0]["title"], json!("T&C \u{2013} ž"));
    assert_eq!(records[0]["dc:creator"], json!("Ana"));
    assert_eq!(records[0]["category"], json!(["x", "y"]));
    assert_eq!(records[0]["guid"], json!({"@isPermaLink": "false", "#text": "a1"}));
    assert_eq!(records[0]["description"], json!("<p>Hi &amp; bye</p>"));
    assert!(walk.pages[0].records.iter().all(|record| record.version.is_some()));
}

#[tokio::test]
async fn of_xml_one_element_is_a_list_and_so_is_none() {
    let atom =
        |entries: &str| format!("<feed xmlns=\"http://www.w3.org/2005/Atom\"><title/>{entries}</feed>");
    let one = "<entry><id>urn:1</id><link rel=\"self\" href=\"x\"/></entry>";
    let walk = read(typed(&atom(one), "text/xml"), RecordFormat::Xml, "$.feed.entry").await;
    assert_eq!(walk.keys(), ["urn:1"]);
    assert_eq!(records(&walk)[0]["link"], json!({"@rel": "self", "@href": "x"}));
    let none = read(typed(&atom(""), "text/xml"), RecordFormat::Xml, "$.feed.entry").await;
    assert!(none.keys().is_empty() && none.pages.len() == 1);
    let empty = read(typed("<items/>", "text/xml"), RecordFormat::Xml, "$.items.item").await;
    assert!(empty.keys().is_empty());
    // An error in the place of the feed is no empty feed.
    for (other, path) in [("<error><code>9</code></error>", "$.feed.entry"), ("<error/>", "$.feed")] {
        let walk = read(typed(other, "text/xml"), RecordFormat::Xml, path).await;
        assert!(walk.failure().contains("is missing or null"), "{}", walk.failure());
    }
}

#[tokio::test]
async fn xml_says_in_which_encoding_it_is_written() {
    let bytes = b"<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><a><b><id>caf\xe9</id></b></a>".to_vec();
    let answer = Answer::Whole { status: 200, headers: vec![], body: bytes };
    assert_eq!(read(answer, RecordFormat::Xml, "$.a.b").await.keys(), ["café"]);
}

#[tokio::test]
async fn a_map_of_records_gives_each_its_key() {
    let shape = Shape::Entries { key_as: "id".to_owned() };
    let with = |body: Value| {
        let shape = shape.clone();
        async move {
            let source = Source::script([Answer::json(&body)]).await;
            let mut draft = Draft::new(&source.url()).records("$.rates");
            draft.stream.records.shape = shape;
            draft.read().await
        }
    };
    let walk = with(json!({"rates": {"a": {"n": 1}, "b\"c": {}, "d": 1.5, "e": {"id": "other"}}})).await;
    assert_eq!(walk.keys(), ["a", "b\"c", "d", "e"]);
    assert_eq!(records(&walk)[0], json!({"id": "a", "n": 1}));
    assert_eq!(records(&walk)[2], json!({"id": "d", "value": 1.5}));
    assert!(with(json!({"rates": {}})).await.keys().is_empty());
    assert!(with(json!({"rates": [{"id": 1}]})).await.failure().contains("a map of ids"));
}

#[tokio::test]
async fn rows_of_values_get_the_names_of_their_columns() {
    let with = |path: &'static str, columns: &'static str, body: Value| async move {
        let source = Source::script([Answer::json(&body)]).await;
        let mut draft = Draft::new(&source.url()).records(path);
        draft.stream.records.shape = Shape::Columns(columns.parse().unwrap());
        draft.read().await
    };
    let rows = json!([["1", "a"], ["2"], ["3", "b", "c"], 4]);
    let walk = with("$.rows", "$.columns", json!({"columns": ["id", {"name": "n"}], "rows": rows})).await;
    assert_eq!(records(&walk), [json!({"id": "1", "n": "a"}), json!({"id": "2", "n": null})]);
    let raws: Vec<_> = walk.pages[0].quarantined.iter().map(|bad| bad.raw.as_str()).collect();
    assert_eq!(raws, [r#"["3","b","c"]"#, "4"]);
    // The header row may be the first of the rows.
    let sheet = json!({"values": [["id", "n"], ["1", "a"]]});
    assert_eq!(with("$.values", "$.values[0]", sheet).await.keys(), ["1"]);
    for body in [json!({"rows": []}), json!({"columns": [1], "rows": []}), json!({"columns": {}, "rows": []})]
    {
        let walk = with("$.rows", "$.columns", body).await;
        assert!(walk.failure().contains("names of the columns"), "{}", walk.failure());
    }
}

#[tokio::test]
async fn what_is_not_the_declared_format_is_asked_for_again_and_then_fails() {
    let long = "x\n".repeat(200_000);
    let deep = "<a>".repeat(200_000);
    let cases = [
        (RecordFormat::Ndjson, typed("<html>\n</html>", "text/html"), "web page"),
        (RecordFormat::Ndjson, typed("oops", "text/plain"), "not NDJSON"),
        (RecordFormat::Ndjson, typed(&long, "text/plain"), "cannot be read"),
        (RecordFormat::Ndjson, typed("", "text/plain"), "empty body"),
        (CSV, typed("", "text/csv"), "empty body"),
        (CSV, typed("<html></html>", "text/html"), "header row of the answer names no `id`"),
        (CSV, typed("rate limited, try later\n", "text/plain"), "header row of the answer names no `id`"),
        (CSV, typed("id,n\n1,\"a\n2,b\n", "text/csv"), "never closed"),
        (CSV, typed("id,id\n1,2\n", "text/csv"), "twice"),
        (CSV, typed("{\"error\":\"limit\"}", "application/json"), "CSV should be"),
        (RecordFormat::Xml, typed("<html><body>", "text/html"), "web page"),
        (RecordFormat::Xml, typed("<a><b>", "text/xml"), "breaks off"),
        (RecordFormat::Xml, typed("{\"a\":1}", "application/json"), "XML should be"),
        (RecordFormat::Xml, typed(&deep, "text/xml"), "deep"),
    ];
    for (format, answer, expected) in cases {
        let source = Source::script([answer]).await;
        let path = if format == RecordFormat::Xml { "$.a.b" } else { "$" };
        let walk = draft(&source, format, path).read().await;
        assert!(walk.failure().contains(expected), "{expected}: {}", walk.failure());
    }
    for format in [RecordFormat::Ndjson, CSV] {
        let source = Source::script([typed("", "text/plain")]).await;
        let mut draft = draft(&source, format, "$");
        draft.stream.records.missing = Missing::Empty;
        assert!(draft.read().await.keys().is_empty());
    }
}

#[tokio::test]
async fn errors_and_rules_are_read_whatever_the_format() {
    use onlynew::config::stream::ErrorAction;
    for format in [CSV, RecordFormat::Xml, RecordFormat::Ndjson] {
        let body = "{\n  \"error\": {\"code\": 7}\n}";
        let limited = Answer::Whole {
            status: 400,
            headers: vec![("content-type".into(), "application/json".into())],
            body: body.as_bytes().to_vec(),
        };
        let good = match format {
            RecordFormat::Xml => typed("<a><b><id>1</id></b></a>", "text/xml"),
            RecordFormat::Ndjson => typed("{\"id\":1}", "text/plain"),
            _ => typed("id\n1\n", "text/csv"),
        };
        let source = Source::script([limited, good]).await;
        let path = if format == RecordFormat::Xml { "$.a.b" } else { "$" };
        let draft = draft(&source, format, path);
        let draft = draft.error(Some(400), "response.error.code == 7", ErrorAction::Retry, None);
        assert_eq!(draft.read().await.keys(), ["1"]);
    }
}

#[tokio::test]
async fn pages_of_xml_are_followed_by_what_they_say() {
    let source = Source::start(|asked| match asked.param("token") {
        None => typed("<r><next>2</next><row><id>1</id></row></r>", "text/xml"),
        Some(_) => typed("<r><next/><row><id>2</id></row></r>", "text/xml"),
    })
    .await;
    let draft = draft(&source, RecordFormat::Xml, "$.r.row").query("token", "{{ page.token }}");
    assert_eq!(draft.pages(PageKind::Token(body("$.r.next"))).read().await.keys(), ["1", "2"]);
}
