//! What a delivery shows of itself and of its sender, as the receiver's own libraries read it.

use std::{fs, path::Path};

use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode};
use onlynew::domain::{clock::machine_time, instant::Instant};
use serde_json::{Value, json};
use standardwebhooks::Webhook;

use crate::support::{
    database::Database,
    rig::{Job, Rig, SECRET, page_of},
    server::{Asked, Reply},
};

const OLD: &str = "whsec_b2xkLXNlY3JldC1vZi10aGlydHktdHdvLWJ5dGVzISE=";
const NEW: &str = "bmV3LXNlY3JldC1vZi10aGlydHktdHdvLWJ5dGVzISE=";

/// A rig with one row, whose destination has these keys as well.
async fn rig(keys: &str) -> Rig {
    let row = [(1, "2026-09-21T10:00:00Z")];
    let rig = Rig::new(Database::sqlite(), Job::default(), move |asked| page_of(&row, asked, 10)).await;
    rig.rewrite("concurrency: 8", keys);
    rig
}

/// The first attempt is refused, the last one is a minute later. A slow machine makes others between them.
async fn two_attempts(rig: &Rig) -> [Asked; 2] {
    let begun = machine_time();
    rig.clock.stand_at(begun);
    rig.receiver.now_answers(|_| Reply::status(500));
    assert_eq!(rig.sync().await.pending, 1);
    rig.leases_run_out().await;
    rig.clock.stand_at(Instant::from_seconds(begun.seconds() + 60));
    rig.receiver.now_answers(|_| Reply::status(200));
    assert_eq!(rig.sync().await.delivered, 1);
    let mut asked = rig.receiver.asked();
    [asked.remove(0), asked.pop().unwrap()]
}

fn verified_by(secret: &str, asked: &Asked) -> bool {
    Webhook::new(secret).unwrap().verify(asked.body.as_bytes(), &asked.headers).is_ok()
}

#[tokio::test]
async fn each_of_two_secrets_verifies_every_attempt() {
    let attempts = two_attempts(&rig(&format!("signing_secret: [{OLD}, {NEW}]")).await).await;
    for asked in &attempts {
        assert_eq!(asked.header("webhook-signature").split(' ').count(), 2);
        assert!(verified_by(OLD, asked) && verified_by(NEW, asked), "{:?}", asked.headers);
        assert!(!verified_by("b3RoZXItc2VjcmV0LW9mLXRoaXJ0eS10d28tYnl0ZXM=", asked));
        let tampered = Asked { body: asked.body.replace("created", "deleted"), ..asked.clone() };
        assert!(!verified_by(NEW, &tampered));
    }
    let [first, second] = attempts;
    let timestamp = |asked: &Asked| asked.header("webhook-timestamp").parse::<i64>().unwrap();
    assert_eq!(timestamp(&second) - timestamp(&first), 60);
    assert_eq!((first.header("webhook-id"), &first.body), (second.header("webhook-id"), &second.body));
    assert_ne!(first.header("webhook-signature"), second.header("webhook-signature"));
}

#[tokio::test]
async fn one_secret_makes_one_signature_and_none_makes_none() {
    let signed = rig(&format!("signing_secret: {NEW}")).await;
    signed.sync().await;
    let asked = &signed.receiver.asked()[0];
    assert!(asked.header("webhook-signature").starts_with("v1,"));
    assert!(verified_by(NEW, asked) && !verified_by(OLD, asked));

    let plain = rig("concurrency: 1").await;
    plain.sync().await;
    let asked = &plain.receiver.asked()[0];
    assert_eq!(asked.header("webhook-signature"), "");
    assert!(asked.header("webhook-timestamp").parse::<i64>().is_ok());
}

#[tokio::test]
async fn the_attempts_of_an_event_share_a_trace_and_no_span() {
    let attempts = two_attempts(&rig("concurrency: 1").await).await;
    let parts = attempts.each_ref().map(|asked| {
        let parts: Vec<&str> = asked.header("traceparent").split('-').collect();
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [2, 32, 16, 2]);
        (parts[1], parts[2])
    });
    assert_eq!(parts[0].0, parts[1].0);
    assert_ne!(parts[0].1, parts[1].1);
}

#[tokio::test]
async fn each_attempt_shows_a_token_that_n8n_s_rules_verify() {
    for (written, algorithm) in [
        ("", Algorithm::HS256),
        (", algorithm: HS384", Algorithm::HS384),
        (", algorithm: HS512", Algorithm::HS512),
    ] {
        let claims = "claims: {iss: onlynew, level: 3, roles: [a, b], live: true}";
        let rig = rig(&format!("auth: {{secret: \"${{SECRET}}\"{written}, {claims}}}")).await;
        let tokens = two_attempts(&rig)
            .await
            .map(|asked| asked.header("authorization").strip_prefix("Bearer ").unwrap().to_owned());
        let shown = tokens.each_ref().map(|token| {
            let rules = Validation::new(algorithm);
            let key = |secret: &[u8]| DecodingKey::from_secret(secret).unwrap();
            assert!(decode::<Value>(token, &key(b"another"), &rules).is_err());
            decode::<Value>(token, &key(SECRET.as_bytes()), &rules).unwrap().claims
        });
        for claims in &shown {
            let life = claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap();
            assert_eq!(life, 300);
            let others = ["iss", "level", "roles", "live"].map(|name| &claims[name]);
            assert_eq!(others, [&json!("onlynew"), &json!(3), &json!(["a", "b"]), &json!(true)]);
        }
        let issued = shown.map(|claims| claims["iat"].as_i64().unwrap());
        assert_eq!(issued[1] - issued[0], 60);
    }
}

#[tokio::test]
async fn a_token_of_a_private_key_is_verified_by_its_public_key() {
    let keys = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/keys");
    let public = |name: &str| {
        let pem = fs::read(keys.join(name)).unwrap();
        let read = if name.starts_with("rsa") { DecodingKey::from_rsa_pem } else { DecodingKey::from_ec_pem };
        read(&pem).unwrap()
    };
    for (algorithm, private, verifier, another) in [
        (Algorithm::RS256, "rsa.pem", "rsa.pub.pem", "p256.pub.pem"),
        (Algorithm::RS512, "rsa-pkcs1.pem", "rsa.pub.pem", "p256.pub.pem"),
        (Algorithm::PS384, "rsa.pem", "rsa.pub.pem", "p384.pub.pem"),
        (Algorithm::ES256, "p256.pem", "p256.pub.pem", "p384.pub.pem"),
        (Algorithm::ES384, "p384.pem", "p384.pub.pem", "p256.pub.pem"),
    ] {
        let path = keys.join(private);
        let auth = format!(
            "auth: {{algorithm: {algorithm:?}, private_key: \"${{file:{}}}\", claims: {{iss: onlynew}}}}",
            path.display()
        );
        let rig = rig(&auth).await;
        assert_eq!(rig.sync().await.delivered, 1);
        let asked = rig.receiver.asked().remove(0);
        let token = asked.header("authorization").strip_prefix("Bearer ").unwrap();
        let rules = Validation::new(algorithm);
        let claims = decode::<Value>(token, &public(verifier), &rules).unwrap().claims;
        assert_eq!(claims["iss"], "onlynew");
        assert!(decode::<Value>(token, &public(another), &rules).is_err(), "{algorithm:?}");
    }
}

/// `me:` and [`SECRET`], as Basic authentication shows them.
const PAIR: &str = "bWU6czNjcjN0LW9mLXRoZS1lbnZpcm9ubWVudA==";

#[tokio::test]
async fn what_a_receiver_repeats_of_a_credential_is_not_told() {
    let auths = [
        ("{type: basic, username: me, password: \"${SECRET}\"}", "Basic ", &[SECRET, PAIR][..]),
        ("{name: X-Token, value: \"${SECRET}\"}", "", &[SECRET]),
        ("{token: \"${SECRET}\"}", "Bearer ", &[SECRET]),
        ("{secret: \"${SECRET}\"}", "Bearer ey", &["ey"]),
    ];
    for (auth, scheme, secrets) in auths {
        let rig = rig(&format!("auth: {auth}")).await;
        rig.receiver.now_answers(|asked| {
            let shown = [asked.header("authorization"), asked.header("x-token")].concat();
            let shown = shown.rsplit(' ').next().unwrap();
            Reply::Status(
                500,
                Vec::new(),
                format!("it was {shown}. {}", if shown == PAIR { SECRET } else { "" }),
            )
        });
        let error = rig.sync().await.delivery_error.unwrap();
        assert!(error.contains("it was ***."), "{error}");
        let asked = &rig.receiver.asked()[0];
        assert!(asked.header("authorization").starts_with(scheme));
        for secret in secrets {
            assert!(!error.contains(secret), "{error}");
        }
    }
}

#[tokio::test]
async fn a_credential_that_an_answer_is_cut_off_in_is_not_told() {
    let rig = rig("auth: {token: \"${SECRET}\"}").await;
    rig.receiver.now_answers(|_| {
        let body = format!("{SECRET}{}{SECRET}{}", "x".repeat(2_010), "y".repeat(900));
        Reply::Status(500, Vec::new(), body)
    });
    rig.sync().await;
    let answer = rig.database.texts("SELECT answer FROM attempt").await.remove(0);
    assert!(answer.len() <= 2_048, "{}", answer.len());
    assert!(answer.starts_with("***xxx") && !answer.contains("s3"), "{answer}");
}

#[tokio::test]
async fn where_a_redirect_points_is_told_without_its_secrets() {
    let rig = rig("auth: {token: \"${SECRET}\"}").await;
    for (location, told) in [
        (format!("https://me:pass@example.com/{SECRET}/rows?key=abc#part"), "https://example.com/***/rows,"),
        ("//me@example.com?key=abc".into(), "http://example.com/,"),
    ] {
        rig.receiver
            .now_answers(move |_| Reply::Status(302, vec![("location", location.clone())], String::new()));
        let error = rig.sync().await.delivery_error.unwrap();
        rig.leases_run_out().await;
        assert!(error.contains(&format!("it points to {told}")), "{error}");
    }
}
