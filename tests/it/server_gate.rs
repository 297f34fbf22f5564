//! The gate over HTTP, and the server's own manners.

use serde_json::{Value, json};

use crate::{
    both,
    support::{
        database::Database,
        gate::{GateServer, Said, said},
    },
};

both!(
    a_key_is_acquired_completed_and_replayed,
    what_a_holder_may_not_do_is_said_with_what_is_known,
    the_rules_of_a_scope_are_its_own,
    a_missing_key_is_refused_and_none_is_made_up,
    many_keys_are_asked_for_at_once,
    a_store_that_fails_is_no_answer,
    a_result_keeps_its_bytes,
);

const SCOPES: &str =
    "{scopes: {charge: {}, once: {after_done: reject, after_failure: keep}, small: {max_result: 4B}}}";

async fn gate(database: Database) -> GateServer {
    GateServer::start(database, "", SCOPES).await
}

fn header<'a>(said: &'a Said, name: &str) -> &'a str {
    said.headers.get(name).map_or("", |value| value.to_str().unwrap())
}

async fn a_key_is_acquired_completed_and_replayed(database: Database) {
    let gate = gate(database).await;
    let body =
        json!({"fingerprint": "9.90", "owner": "wf 7", "correlation_id": "c", "metadata": {"order": 17}});
    let first = gate.ask("17/acquire", body.clone()).await;
    assert_eq!(first.short(), (200, "started"));
    assert_eq!(first.body["takeover"], false);
    assert_eq!((&first.body["owner"], &first.body["metadata"]["order"]), (&json!("wf 7"), &json!(17)));
    let again = gate.ask("17/acquire", json!({})).await;
    assert_eq!((again.short(), header(&again, "retry-after")), ((409, "in_progress"), "900"));
    assert_eq!(again.body["error"]["code"], "in_progress");
    let other = gate.ask("17/acquire", json!({"fingerprint": "99.90"})).await;
    assert_eq!((other.short(), &other.body["error"]["code"]), ((422, "mismatch"), &json!("mismatch")));

    let renewed = gate.ask("17/renew", json!({"fence": first.fence()})).await;
    assert_eq!(renewed.short(), (200, "in_progress"));
    for _ in 0..2 {
        let done =
            gate.ask("17/complete", json!({"fence": first.fence(), "result": {"charge": "ch_1"}})).await;
        assert_eq!((done.short(), &done.body["result"]["charge"]), ((200, "done"), &json!("ch_1")));
        assert_eq!(header(&done, "idempotent-replayed"), "");
    }
    let replayed = said(gate.request("POST", "/v1/gate/charge/17/acquire")).await;
    assert_eq!((replayed.short(), header(&replayed, "idempotent-replayed")), ((200, "done"), "true"));
    assert_eq!(
        (&replayed.body["result"]["charge"], &replayed.body["times_seen"]),
        (&json!("ch_1"), &json!(4))
    );
    let read = said(gate.request("GET", "/v1/gate/charge/17")).await;
    assert_eq!((read.short(), &read.body["times_seen"]), ((200, "done"), &json!(4)), "a look does not count");
}

async fn what_a_holder_may_not_do_is_said_with_what_is_known(database: Database) {
    let gate = gate(database).await;
    let first = gate.ask("a b/acquire", json!({})).await;
    assert_eq!((first.status, &first.body["key"]), (200, &json!("a b")));
    gate.database.tamper("UPDATE gate_key SET lease_until = 5").await;
    let second = gate.ask("a%20b/acquire", json!({})).await;
    assert_eq!((second.short(), &second.body["takeover"]), ((200, "started"), &json!(true)));
    assert!(second.fence() > first.fence());
    for act in ["complete", "fail", "renew"] {
        let lost = gate.ask(&format!("a b/{act}"), json!({"fence": first.fence()})).await;
        assert_eq!((lost.short(), &lost.body["error"]["code"]), ((409, "in_progress"), &json!("lost")));
        assert_eq!(lost.fence(), second.fence());
        let unknown = gate.ask(&format!("b/{act}"), json!({"fence": 1})).await;
        assert_eq!(unknown.short(), (404, "unknown_key"));
    }
    let failed = gate.ask("a b/fail", json!({"fence": second.fence(), "reason": "declined"})).await;
    assert_eq!((failed.short(), &failed.body["reason"]), ((200, "failed"), &json!("declined")));
    let lost = gate.ask("a b/complete", json!({"fence": second.fence()})).await;
    assert_eq!((lost.short(), &lost.body["error"]["code"]), ((409, "failed"), &json!("lost")));
    assert_eq!(said(gate.request("GET", "/v1/gate/charge/b")).await.short(), (404, "unknown_key"));
}

async fn the_rules_of_a_scope_are_its_own(database: Database) {
    let gate = gate(database).await;
    let once = async |path: &str, body| gate.post(&format!("/v1/gate/once/{path}"), body).await;
    let first = once("1/acquire", json!({})).await;
    once("1/complete", json!({"fence": first.fence(), "result": 7})).await;
    let rejected = once("1/acquire", json!({})).await;
    assert_eq!((rejected.short(), &rejected.body["error"]["code"]), ((409, "done"), &json!("rejected")));
    assert_eq!((header(&rejected, "idempotent-replayed"), &rejected.body["result"]), ("", &json!(7)));
    let second = once("2/acquire", json!({})).await;
    once("2/fail", json!({"fence": second.fence()})).await;
    let failed = once("2/acquire", json!({})).await;
    assert_eq!((failed.short(), &failed.body["error"]["code"]), ((409, "failed"), &json!("failed")));

    let small = gate.post("/v1/gate/small/1/acquire", json!({})).await;
    let body = json!({"fence": small.fence(), "result": "long"});
    let done = gate.post("/v1/gate/small/1/complete", body).await;
    assert_eq!((&done.body["result"], &done.body["result_dropped"]), (&Value::Null, &json!(true)));

    let unknown = gate.post("/v1/gate/chrage/1/acquire", json!({})).await;
    assert_eq!(unknown.short(), (404, "unknown_scope"));
    assert!(unknown.body["error"]["message"].as_str().unwrap().ends_with("did you mean `charge`?"));
    let unknown = gate.post("/v1/gate/mail/1/acquire", json!({})).await;
    assert!(unknown.body["error"]["message"].as_str().unwrap().ends_with("there are: charge, once, small"));
}

async fn a_missing_key_is_refused_and_none_is_made_up(database: Database) {
    let gate = gate(database).await;
    for path in [
        "/acquire",
        "undefined/acquire",
        "null/acquire",
        "%20/acquire",
        "[object%20Object]/complete",
        "/complete",
    ] {
        let refused = gate.ask(path, json!({"fence": 1})).await;
        assert_eq!(refused.short(), (400, "missing_key"), "{path}");
        assert!(refused.body["error"]["message"].as_str().unwrap().contains("nobody can tell"));
    }
    assert_eq!(gate.ask("%01/acquire", json!({})).await.short(), (400, "bad_key"));
    assert_eq!(gate.ask("%ff/acquire", json!({})).await.short(), (400, "bad_path"));
    assert_eq!(
        gate.ask(&format!("{}/acquire", "k".repeat(1_025)), json!({})).await.short(),
        (400, "bad_key")
    );
    assert_eq!(
        gate.ask("acquire", json!({"items": [{"key": "1"}, {"key": ""}]})).await.short(),
        (400, "missing_key")
    );
    assert_eq!(gate.database.number("(SELECT count(*) FROM gate_key)").await, 0);
}

async fn many_keys_are_asked_for_at_once(database: Database) {
    let gate = gate(database).await;
    gate.ask("b/acquire", json!({})).await;
    let items = json!([{"key": "a", "owner": "wf"}, {"key": "b"}, {"key": "a"}, {"key": "x/y z"}]);
    let all = gate.ask("acquire", json!({"items": items})).await;
    let items = all.body["items"].as_array().unwrap();
    let short = |item: &Value| (item["status"].as_u64().unwrap(), item["state"].as_str().unwrap().to_owned());
    let short: Vec<_> = items.iter().map(short).collect();
    let expected = [(200, "started"), (409, "in_progress"), (409, "in_progress"), (200, "started")];
    assert_eq!(short, expected.map(|(status, state)| (status, state.to_owned())));
    assert_eq!((&items[0]["owner"], &items[3]["key"]), (&json!("wf"), &json!("x/y z")));
    assert_eq!(
        gate.ask("x%2Fy%20z/complete", json!({"fence": items[3]["fence"]})).await.short(),
        (200, "done")
    );
    for many in [0, 1_001] {
        let items: Vec<_> = (0..many).map(|key| json!({"key": key.to_string()})).collect();
        assert_eq!(gate.ask("acquire", json!({"items": items})).await.short(), (400, "bad_items"));
    }
}

async fn a_store_that_fails_is_no_answer(database: Database) {
    let gate = gate(database).await;
    assert_eq!(said(gate.request("GET", "/readyz")).await.status, 200);
    gate.database.break_on("gate_key", "INSERT", "NEW.fence = 0").await;
    let failed = gate.ask("1/acquire", json!({})).await;
    assert_eq!((failed.short(), header(&failed, "retry-after")), ((503, "store_unavailable"), "1"));
    assert!(!failed.body.to_string().contains("broken by the test"), "what failed is for the log");
    gate.database.mend("gate_key").await;
    assert_eq!(gate.ask("1/acquire", json!({})).await.short(), (200, "started"));
}

async fn a_result_keeps_its_bytes(database: Database) {
    let gate = gate(database).await;
    let fence = gate.ask("1/acquire", json!({})).await.fence();
    let result = r#"{"id": 12345678901234567890123, "price": 1.10, "text": "\u0000ž"}"#;
    let complete =
        gate.request("POST", "/v1/gate/charge/1/complete").header("content-type", "application/json");
    let body = format!("{{\"fence\":{fence},\"result\":{result}}}");
    let done = complete.body(body).send().await.unwrap().text().await.unwrap();
    let read = gate.request("GET", "/v1/gate/charge/1").send().await.unwrap().text().await.unwrap();
    for text in [done, read] {
        assert!(text.contains(&format!("\"result\":{result}")), "{text}");
    }
}

const TOKENS: &str =
    ", tokens: [{token: the-token-of-the-gate, may: [gate]}, {token: the-token-of-readers, may: [read]}]";

#[tokio::test]
async fn a_request_needs_a_token_that_may() {
    let gate = GateServer::start(Database::sqlite(), TOKENS, SCOPES).await;
    let path = "/v1/gate/charge/1/acquire";
    let missing = gate.post(path, json!({})).await;
    assert_eq!(
        (missing.short(), header(&missing, "www-authenticate")),
        ((401, "no_token"), "Bearer realm=\"onlynew\"")
    );
    let with = |method, path, token: &str| gate.request(method, path).bearer_auth(token);
    assert_eq!(said(with("POST", path, "another-token")).await.short(), (401, "unknown_token"));
    assert_eq!(said(with("POST", path, "the-token-of-readers")).await.short(), (403, "not_allowed"));
    assert_eq!(said(with("POST", path, "the-token-of-the-gate")).await.short(), (200, "started"));
    for token in ["the-token-of-readers", "the-token-of-the-gate"] {
        assert_eq!(said(with("GET", "/v1/gate/charge/1", token)).await.status, 200);
    }
    assert_eq!(said(gate.request("GET", "/healthz")).await.body, json!({"status": "ok"}));
    let document = said(gate.request("GET", "/openapi.json")).await.body;
    assert_eq!(document["components"]["securitySchemes"]["token"]["scheme"], "bearer");
    assert_eq!(
        said(gate.request("POST", path).header("host", "example.com").bearer_auth("the-token-of-the-gate"))
            .await
            .status,
        409
    );
}

#[tokio::test]
async fn a_request_is_refused_that_cannot_be_meant() {
    let gate = gate(Database::sqlite()).await;
    let path = "/v1/gate/charge/1/acquire";
    assert_eq!(
        said(gate.request("POST", path).header("host", "evil.example.com")).await.short(),
        (403, "foreign_host")
    );
    let body = |body: &str| {
        gate.request("POST", path).header("content-type", "application/json").body(body.to_owned())
    };
    for (text, hint) in [
        ("{", "EOF"),
        ("[]", "expected struct Ask"),
        ("{\"ower\": \"x\"}", "unknown field `ower`, expected one of `fingerprint`, `owner`"),
        ("{\"owner\": 7}", "expected a string"),
    ] {
        let refused = said(body(text)).await;
        assert_eq!(refused.short(), (400, "bad_body"), "{text}");
        assert!(refused.body["error"]["message"].as_str().unwrap().contains(hint), "{:?}", refused.body);
    }
    assert_eq!(said(body(&json!({"owner": "x".repeat(1_025)}).to_string())).await.short(), (400, "too_long"));
    assert_eq!(
        said(body(&json!({"metadata": "x".repeat(4_095)}).to_string())).await.short(),
        (400, "too_long")
    );
    assert_eq!(said(body(&format!("\"{}\"", "x".repeat(4_000_000)))).await.short(), (413, "too_large"));
    let form = gate.request("POST", path).header("content-type", "text/plain").body("{}");
    assert_eq!(said(form).await.short(), (415, "not_json"));
    let wrong = said(gate.request("PUT", path)).await;
    assert_eq!((wrong.short(), header(&wrong, "allow")), ((405, "wrong_method"), "POST"));
    assert_eq!(said(gate.request("GET", "/v2/nothing")).await.short(), (404, "no_such_path"));
    assert_eq!(gate.database.number("(SELECT count(*) FROM gate_key)").await, 0);
}

#[tokio::test]
async fn the_document_tells_of_every_operation() {
    let gate = gate(Database::sqlite()).await;
    let document = said(gate.request("GET", "/openapi.json")).await.body;
    let paths: Vec<_> = document["paths"].as_object().unwrap().keys().cloned().collect();
    let expected = [
        "/healthz",
        "/readyz",
        "/v1/gate/{scope}/acquire",
        "/v1/gate/{scope}/{key}",
        "/v1/gate/{scope}/{key}/acquire",
        "/v1/gate/{scope}/{key}/complete",
        "/v1/gate/{scope}/{key}/fail",
        "/v1/gate/{scope}/{key}/renew",
        "/v1/locks/{name}",
        "/v1/locks/{name}/acquire",
        "/v1/locks/{name}/expire",
        "/v1/locks/{name}/release",
        "/v1/locks/{name}/renew",
    ];
    assert_eq!(paths.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    let told = &document["components"]["schemas"]["Told"]["properties"];
    for member in ["state", "fence", "takeover", "result", "first_seen", "last_seen", "times_seen", "owner"] {
        assert!(told[member].is_object(), "{member}");
    }
}
