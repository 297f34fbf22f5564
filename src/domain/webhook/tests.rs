use super::*;
use crate::domain::mac::hmac_sha256;

const BODY: &[u8] = br#"{"id": "evt_1"}"#;
const NOW: Instant = Instant::from_seconds(1_700_000_000);
const TOLERANCE: Duration = Duration::from_mins(5);

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

fn sign(secret: &str, parts: &[&[u8]]) -> Vec<u8> {
    hmac_sha256(secret.as_bytes(), parts)
}

fn verify(scheme: &Scheme, given: &[(&str, String)], body: &[u8]) -> Result<(), Refusal> {
    let find = |name: &str| given.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str());
    scheme.verify(&find, body, NOW, TOLERANCE)
}

fn secrets() -> Vec<SecretString> {
    vec!["the-next-one".into(), "the-secret".into()]
}

#[test]
fn github_signs_the_body() {
    // The example of GitHub's own document.
    let scheme = Scheme::Github(vec!["It's a Secret to Everybody".into()]);
    let given = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17".to_owned();
    let headers = [("x-hub-signature-256", given)];
    assert_eq!(verify(&scheme, &headers, b"Hello, World!"), Ok(()));
    assert_eq!(verify(&scheme, &headers, b"Hello, World?"), Err(Refusal::Wrong));
    assert_eq!(verify(&scheme, &[], BODY), Err(Refusal::Missing("x-hub-signature-256".into())));
    for unreadable in ["757107", "sha1=00", "sha256=7", "sha256=zz"] {
        let headers = [("x-hub-signature-256", unreadable.to_owned())];
        assert_eq!(verify(&scheme, &headers, BODY), Err(Refusal::Unreadable("x-hub-signature-256".into())));
    }
}

#[test]
fn stripe_signs_the_moment_and_the_body() {
    let scheme = Scheme::Stripe(secrets());
    let header = |at: i64, secret: &str| {
        let tag = hex(&sign(secret, &[at.to_string().as_bytes(), b".", BODY]));
        [("stripe-signature", format!("t={at},v1=00ff,v1={tag},v0=aa"))]
    };
    for secret in ["the-secret", "the-next-one"] {
        assert_eq!(verify(&scheme, &header(NOW.seconds() - 300, secret), BODY), Ok(()));
    }
    assert_eq!(verify(&scheme, &header(NOW.seconds(), "another"), BODY), Err(Refusal::Wrong));
    assert_eq!(verify(&scheme, &header(NOW.seconds() - 301, "the-secret"), BODY), Err(Refusal::Old(301)));
    assert_eq!(verify(&scheme, &header(NOW.seconds() + 301, "the-secret"), BODY), Err(Refusal::Old(-301)));
    for (text, refusal) in [
        ("v1=00", Refusal::Unreadable("stripe-signature".into())),
        ("t=x,v1=00", Refusal::Unreadable("stripe-signature".into())),
        ("t=1700000000", Refusal::Wrong),
        ("t=1700000000,v1=", Refusal::Wrong),
        ("t=9223372036854775807,v1=00", Refusal::Old(1_700_000_000 - i64::MAX)),
    ] {
        assert_eq!(verify(&scheme, &[("stripe-signature", text.to_owned())], BODY), Err(refusal), "{text}");
    }
}

#[test]
fn shopify_signs_the_body_in_base64() {
    let scheme = Scheme::Shopify(secrets());
    let headers = [("x-shopify-hmac-sha256", STANDARD.encode(sign("the-secret", &[BODY])))];
    assert_eq!(verify(&scheme, &headers, BODY), Ok(()));
    assert_eq!(verify(&scheme, &headers, b"{}"), Err(Refusal::Wrong));
    let headers = [("x-shopify-hmac-sha256", "%".to_owned())];
    assert_eq!(verify(&scheme, &headers, BODY), Err(Refusal::Unreadable("x-shopify-hmac-sha256".into())));
}

#[test]
fn standard_webhooks_sign_id_moment_and_body() {
    // The vector of the libraries that the specification's authors publish.
    let key: SigningKey = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD".parse().unwrap();
    let scheme = Scheme::StandardWebhooks(vec![key]);
    let body = br#"{"email":"test@example.com","username":"test_user"}"#;
    let headers = |id: &str, at: &str| {
        [
            ("webhook-id", id.to_owned()),
            ("webhook-timestamp", at.to_owned()),
            ("webhook-signature", "v1,AAAA v2,x v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=".to_owned()),
        ]
    };
    let at = |now: i64, headers: &[(&str, String)]| {
        let find =
            |name: &str| headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str());
        scheme.verify(&find, body, Instant::from_seconds(now), TOLERANCE)
    };
    let good = headers("msg_27UH4WbU6Z5A5EzD8u03UvzRbpk", "1649367553");
    assert_eq!(at(1_649_367_553, &good), Ok(()));
    assert_eq!(at(1_649_367_999, &good), Err(Refusal::Old(446)));
    assert_eq!(at(1_649_367_553, &headers("msg_other", "1649367553")), Err(Refusal::Wrong));
    assert_eq!(
        at(1_649_367_554, &headers("msg_27UH4WbU6Z5A5EzD8u03UvzRbpk", "1649367554")),
        Err(Refusal::Wrong)
    );
}

#[test]
fn other_providers_sign_in_ways_that_can_be_described() {
    // Slack: `v0=` and the hexadecimal HMAC of `v0:TIMESTAMP:BODY`.
    let slack = Scheme::Hmac(HmacScheme {
        header: "x-slack-signature".into(),
        prefix: "v0=".into(),
        encoding: Encoding::Hex,
        algorithm: Algorithm::Sha256,
        timestamp: Some("x-slack-request-timestamp".into()),
        message: "v0:{timestamp}:{body}".into(),
        secrets: secrets(),
    });
    let tag = hex(&sign("the-secret", &[b"v0:1700000000:", BODY]));
    let headers =
        |at: &str| [("x-slack-signature", format!("v0={tag}")), ("x-slack-request-timestamp", at.to_owned())];
    assert_eq!(verify(&slack, &headers("1700000000"), BODY), Ok(()));
    assert_eq!(verify(&slack, &headers("1700000001"), BODY), Err(Refusal::Wrong));
    assert_eq!(verify(&slack, &headers("1600000000"), BODY), Err(Refusal::Old(100_000_000)));
    assert_eq!(
        verify(&slack, &headers("1700000000")[..1], BODY),
        Err(Refusal::Missing("x-slack-request-timestamp".into()))
    );
    assert_eq!(verify(&Scheme::None, &[], BODY), Ok(()));
}
