//! Requests for access tokens: what they say, and what is made of answers that are none.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use onlynew::{
    config::account::{Auth, ClientAuth, Grant, OAuth2},
    connector::ReadError,
    domain::clock::Clock,
};
use serde_json::json;

use crate::{
    connector_job::CountingClock,
    connector_oauth::{client, form, oauth2, page, paged, provider, read, refresh},
    support::server::{Reply, Server},
};

#[tokio::test]
async fn what_a_request_for_a_token_says() {
    let provider = provider(json!({})).await;
    let source = Server::new(|asked| page(asked, 1)).await;
    let clock = CountingClock::start();
    let full = OAuth2 {
        client_auth: ClientAuth::Basic,
        scope: Some("read:orders read:items".into()),
        extra: vec![("audience".into(), "https://api.test/".into())],
        ..oauth2(&provider, Grant::ClientCredentials)
    };
    let public = OAuth2 {
        client_secret: String::new().into(),
        ..oauth2(&provider, Grant::RefreshToken { refresh_token: "r".into() })
    };
    for oauth2 in [full, public] {
        let auth = Auth::OAuth2(Box::new(oauth2));
        assert_eq!(read(paged(&source, auth), &clock, &Arc::default()).await.keys(), ["1"]);
    }
    let asked = provider.asked();
    assert_eq!(asked[0].header("authorization"), "Basic YXBwOmNsaWVudC1zM2NyZXQ=");
    assert_eq!(asked[0].header("accept"), "application/json");
    let pairs = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let expected: HashMap<_, _> = pairs(&[
        ("grant_type", "client_credentials"),
        ("scope", "read:orders read:items"),
        ("audience", "https://api.test/"),
    ]);
    assert_eq!(form(&asked[0]), expected);
    let expected: HashMap<_, _> =
        pairs(&[("grant_type", "refresh_token"), ("refresh_token", "r"), ("client_id", "app")]);
    assert_eq!((form(&asked[1]), asked[1].header("authorization")), (expected, ""));
}

#[tokio::test]
async fn a_provider_that_gives_no_token_is_told_of_without_secrets() {
    let echo = r#"{"error":"invalid_client","error_description":"no client app with client-s3cret"}"#;
    let html = vec![("content-type", "text/html".to_owned())];
    let elsewhere = vec![("location", "http://127.0.0.1:1/steal".to_owned())];
    let cases = [
        (Reply::Status(401, Vec::new(), echo.into()), "check `client_id` and `client_secret`", 1),
        (Reply::Status(400, Vec::new(), r#"{"error":"invalid_grant"}"#.into()), "allow access anew", 1),
        (Reply::Status(302, elsewhere, String::new()), "write the address it leads to into `token_url`", 1),
        (
            Reply::Status(200, html, "<html>client-s3cret</html>".into()),
            "a web page where a token should be",
            5,
        ),
        (Reply::Status(500, Vec::new(), "client-s3cret".into()), "500", 5),
    ];
    for (reply, expected, tries) in cases {
        let provider = Server::new(move |_| reply.clone()).await;
        let source = Server::new(|asked| page(asked, 1)).await;
        let walk = read(paged(&source, client(&provider)), &CountingClock::start(), &Arc::default()).await;
        let reason = walk.failure();
        assert!(reason.contains("no access token") && reason.contains(expected), "{reason}");
        assert!(reason.contains(&provider.url) && !reason.contains("s3cret"), "{reason}");
        assert_eq!((provider.asked().len(), source.asked().len()), (tries, 0), "{reason}");
    }
    let source = Server::new(|asked| page(asked, 1)).await;
    let gone = OAuth2 {
        token_url: "http://127.0.0.1:1".parse().unwrap(),
        ..oauth2(&source, Grant::ClientCredentials)
    };
    let draft = paged(&source, Auth::OAuth2(Box::new(gone)));
    let walk = read(draft, &CountingClock::start(), &Arc::default()).await;
    assert!(walk.failure().contains("no connection"), "{}", walk.failure());
}

#[tokio::test]
async fn a_provider_that_refuses_is_not_asked_by_every_job() {
    let (clock, tokens) = (CountingClock::start(), Arc::default());
    let provider =
        Server::new(|_| Reply::Status(400, Vec::new(), r#"{"error":"invalid_grant"}"#.into())).await;
    let source = Server::new(|asked| page(asked, 1)).await;
    for _ in 0..60 {
        read(paged(&source, refresh(&provider, "r")), &clock, &tokens).await.failure();
        clock.sleep(Duration::from_secs(10)).await;
    }
    assert_eq!(provider.asked().len(), 4, "after 0, 1, 3 and 7 minutes");
}

#[tokio::test]
async fn a_provider_that_asks_for_patience_is_waited_for() {
    let busy = |wait: &'static str| {
        let tries = AtomicUsize::new(0);
        Server::new(move |_| match tries.fetch_add(1, Ordering::SeqCst) {
            0 => Reply::Status(429, vec![("retry-after", wait.into())], String::new()),
            _ => Reply::Json(r#"{"access_token":"t1"}"#.into()),
        })
    };
    let source = Server::new(|asked| page(asked, 1)).await;
    let (clock, provider) = (CountingClock::start(), busy("30").await);
    assert_eq!(read(paged(&source, client(&provider)), &clock, &Arc::default()).await.keys(), ["1"]);
    assert_eq!(clock.waits(), [30]);

    let (clock, provider) = (CountingClock::start(), busy("3600").await);
    let walk = read(paged(&source, client(&provider)), &clock, &Arc::default()).await;
    assert!(matches!(walk.error, Some(ReadError::RateLimited { .. })), "{:?}", walk.error);
    assert!(clock.waits().is_empty());
}
