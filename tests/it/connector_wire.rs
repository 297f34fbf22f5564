//! The wire: what a request carries, where it may go, and in which shapes an answer may come.

use std::sync::{Arc, Mutex};

use onlynew::config::{
    account::{Auth, KeyPlace},
    stream::PageKind,
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::{
    connector_job::{Draft, body},
    support::source::{Answer, Asked, Source},
};

fn good() -> Answer {
    Answer::json(&json!({"items": [{"id": 1}]}))
}

fn api_key(place: KeyPlace, name: &str, prefix: &str) -> Auth {
    Auth::ApiKey { place, name: name.into(), prefix: prefix.into(), key: "s3cret&1".into() }
}

async fn asked_with(draft: impl FnOnce(Draft) -> Draft) -> Asked {
    let source = Source::script([good()]).await;
    assert_eq!(draft(Draft::new(&source.url())).read().await.keys(), ["1"]);
    source.asked().remove(0)
}

#[tokio::test]
async fn every_credential_goes_where_it_belongs() {
    let asked = asked_with(|draft| draft.auth(Auth::Bearer { token: "t0ken".into() })).await;
    assert_eq!(asked.header("authorization"), Some("Bearer t0ken"));
    let basic = Auth::Basic { username: "sk_test_12345".into(), password: "".into() };
    let asked = asked_with(|draft| draft.auth(basic)).await;
    assert_eq!(asked.header("authorization"), Some("Basic c2tfdGVzdF8xMjM0NTo="));
    let asked = asked_with(|draft| draft.auth(api_key(KeyPlace::Header, "Authorization", "Token "))).await;
    assert_eq!(asked.header("authorization"), Some("Token s3cret&1"));
    let asked = asked_with(|draft| draft.auth(api_key(KeyPlace::Query, "api_key", ""))).await;
    assert_eq!(asked.param("api_key"), Some("s3cret&1"));
    let asked =
        asked_with(|draft| draft.header("Cookie", "a=b").auth(api_key(KeyPlace::Cookie, "session", "")))
            .await;
    assert_eq!(asked.header("cookie"), Some("a=b; session=s3cret&1"));
    let asked = asked_with(|draft| draft).await;
    assert_eq!((asked.header("authorization"), asked.header("accept")), (None, Some("application/json")));
    assert_eq!(asked.header("user-agent"), Some(concat!("onlynew/", env!("CARGO_PKG_VERSION"))));
    assert_eq!(asked.method, "GET");
}

#[tokio::test]
async fn values_keep_their_place_and_their_digits() {
    let asked = asked_with(|draft| {
        draft
            .path("/repos/{{ inputs.repo }}/items")
            .query("labels", "{{ inputs.labels }}")
            .query("token", "{{ page.token }}")
            .query("first", "{{ page.first }}")
            .header("X-First", "{{ page.first }}")
            .header("X-Token", "{{ page.token }}")
            .input("repo", json!("a/../b?x#y ž"))
            .input("labels", serde_json::from_str(r#"["a b", 9007199254740993, null]"#).unwrap())
    })
    .await;
    assert_eq!(asked.path, "/repos/a%2F..%2Fb%3Fx%23y%20%C5%BE/items");
    let pairs: Vec<_> = asked.query.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(pairs, [("labels", "a b"), ("labels", "9007199254740993"), ("first", "true")]);
    assert_eq!((asked.header("x-first"), asked.header("x-token")), (Some("true"), None));
}

#[tokio::test]
async fn a_request_that_cannot_be_made_fails_before_it_is_sent() {
    let source = Source::script([good()]).await;
    let draft = || Draft::new(&source.url());
    let cases = [
        (draft().path("/repos/{{ inputs.repo }}/x").input("repo", json!("..")), "segment of dots"),
        (draft().path("/repos/{{ inputs.repo }}/x").input("repo", json!(null)), "empty segment"),
        (draft().header("X-Repo", "{{ inputs.repo }}").input("repo", json!("a\r\nb: c")), "`X-Repo`"),
        (draft().header("X Repo", "a"), "`X Repo`"),
        (draft().query("q", "{{ inputs.repo }}").input("repo", json!({"a": 1})), "`q`"),
        (draft().auth(Auth::Bearer { token: "a\nb".into() }), "`authorization`"),
        (Draft::new("ftp://api.test"), "http://"),
    ];
    for (draft, expected) in cases {
        let walk = draft.read().await;
        assert!(walk.failure().contains(expected), "{expected}: {}", walk.failure());
    }
    assert!(source.asked().is_empty());
}

#[tokio::test]
async fn c34_a_redirect_to_another_host_carries_no_credential() {
    let thief = Source::script([good()]).await;
    let stolen = format!("{}/items", thief.url());
    let source = Source::start(move |_| Answer::status(302).header("Location", &stolen)).await;
    for auth in [
        Auth::Bearer { token: "t0ken".into() },
        api_key(KeyPlace::Header, "X-Api-Key", ""),
        api_key(KeyPlace::Query, "api_key", ""),
    ] {
        let walk = Draft::new(&source.url()).auth(auth).read().await;
        let reason = walk.failure();
        assert!(reason.contains("302") && reason.contains(&thief.url()), "{reason}");
        assert!(!reason.contains("s3cret") && !reason.contains("t0ken"), "{reason}");
    }
    assert!(thief.asked().is_empty());
    assert_eq!(source.asked().len(), 3);
}

#[tokio::test]
async fn c34_redirects_on_the_same_origin_are_followed_with_the_credential_and_not_for_ever() {
    let source = Source::start(|asked| match asked.path.as_str() {
        "/items" => Answer::status(301).header("Location", "/v2/items?a=1"),
        _ => good(),
    })
    .await;
    let walk = Draft::new(&source.url()).auth(api_key(KeyPlace::Query, "api_key", "")).read().await;
    assert_eq!((walk.keys(), walk.requests), (vec!["1"], 2));
    let asked = source.asked();
    assert_eq!((asked[1].param("a"), asked[1].param("api_key")), (Some("1"), Some("s3cret&1")));

    let source = Source::start(|_| Answer::status(307).header("Location", "/items")).await;
    let walk = Draft::new(&source.url()).read().await;
    assert!(walk.failure().contains("sixth"), "{}", walk.failure());
    assert_eq!((source.asked().len(), walk.requests), (6, 6));

    let source = Source::script([Answer::status(302)]).await;
    assert!(Draft::new(&source.url()).read().await.failure().contains("names no place"));
}

#[tokio::test]
async fn c34_a_redirect_to_https_on_the_same_host_is_followed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap();
    // The beginning of what each connection was sent; a TLS handshake is answered by hanging up.
    let begun = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&begun);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut first = [0; 2_048];
            let length = stream.read(&mut first).await.unwrap();
            kept.lock().unwrap().push(first[..length].to_vec());
            let moved = format!(
                "HTTP/1.1 301 X\r\nlocation: https://{host}/items\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
            if first.starts_with(b"GET ") {
                stream.write_all(moved.as_bytes()).await.unwrap();
            }
        }
    });
    let walk =
        Draft::new(&format!("http://{host}")).auth(api_key(KeyPlace::Header, "X-Api-Key", "")).read().await;
    assert!(walk.failure().contains("no connection"), "no redirect that is refused: {}", walk.failure());
    let begun = begun.lock().unwrap();
    assert_eq!(begun.len(), 10, "five tries, each by http and then by https");
    for pair in begun.chunks(2) {
        assert!(String::from_utf8_lossy(&pair[0]).contains("s3cret&1"));
        assert_eq!(pair[1][..2], [0x16, 0x03], "a TLS handshake, and the key is nowhere to be read");
        assert!(!String::from_utf8_lossy(&pair[1]).contains("s3cret"));
    }
}

#[tokio::test]
async fn a_next_url_gets_the_query_key_only_where_it_has_none() {
    let source = Source::start(|asked| {
        let next = match asked.param("p") {
            None => json!("/items?p=2"),
            Some("2") => json!("/items?p=3&api_key=theirs"),
            Some(_) => json!(null),
        };
        Answer::json(&json!({"items": [{"id": asked.number("p")}], "next": next}))
    })
    .await;
    let draft = Draft::new(&source.url()).pages(PageKind::NextUrl(body("next")));
    draft.auth(api_key(KeyPlace::Query, "api_key", "")).read().await.keys();
    assert_eq!(source.params("api_key"), ["s3cret&1", "s3cret&1", "theirs"]);
    assert_eq!(source.asked()[2].query.len(), 2);
}

#[tokio::test]
async fn secrets_stay_out_of_reasons() {
    let body = br#"{"error":"bad key s3cret&1"}"#.to_vec();
    let source = Source::script([Answer::Whole { status: 401, headers: vec![], body }]).await;
    let draft = Draft::new(&source.url()).query("page_token", "abc").query("n", "1");
    let walk = draft.auth(api_key(KeyPlace::Query, "k", "")).read().await;
    let reason = walk.failure();
    assert!(!reason.contains("s3cret") && !reason.contains("abc"), "{reason}");
    assert!(reason.contains("bad key ***") && reason.contains("n=1"), "{reason}");
}

#[tokio::test]
async fn bodies_come_with_marks_charsets_and_bad_bytes() {
    let bytes = |body: &[u8], content_type: &str| Answer::Whole {
        status: 200,
        headers: vec![("content-type".into(), content_type.into())],
        body: body.to_vec(),
    };
    let latin = bytes(b"{\"items\":[{\"id\":\"caf\xe9\"}]}", "application/json; charset=ISO-8859-1");
    let marked = bytes(b"\xef\xbb\xbf{\"items\":[{\"id\":\"caf\xc3\xa9\"}]}", "application/json");
    for answer in [latin, marked] {
        let source = Source::script([answer]).await;
        assert_eq!(Draft::new(&source.url()).read().await.keys(), ["café"]);
    }
    let source =
        Source::script([bytes(b"{\"items\":[{\"id\":\"caf\xe9\"},{\"id\":2}]}", "application/json")]).await;
    let walk = Draft::new(&source.url()).read().await;
    assert_eq!(walk.keys(), ["2"]);
    assert!(walk.pages[0].quarantined[0].reason.contains("UTF-8"));
}

#[tokio::test]
async fn a_body_that_is_too_large_or_wrongly_labelled_as_packed_says_so() {
    let source = Source::script([Answer::text(&format!("[{}]", "1,".repeat(600)))]).await;
    let mut draft = Draft::new(&source.url());
    draft.options.max_body = 1_000;
    let walk = draft.read().await;
    assert!(walk.failure().contains("larger than 1000 bytes"), "{}", walk.failure());
    assert_eq!(source.asked().len(), 1);

    let source = Source::start(|asked| match asked.header("accept-encoding") {
        Some("identity") => good(),
        _ => good().header("Content-Encoding", "gzip"),
    })
    .await;
    assert_eq!(Draft::new(&source.url()).read().await.keys(), ["1"]);
    assert_eq!(source.asked().len(), 2);
}
