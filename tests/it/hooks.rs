//! Webhooks that come in: over HTTP, into the store, and on to n8n.

use std::{sync::Arc, time::Duration};

use onlynew::domain::{clock::machine_time, mac::hmac_sha256};
use serde_json::{Value, json};

use crate::{
    both,
    support::{
        database::{Database, unsound},
        gate::{GateServer, Said, said},
        rig::{Job, Rig},
        server::Reply,
    },
};

both!(
    a_webhook_goes_on_once_however_often_it_comes,
    of_many_that_come_at_once_one_goes_on,
    one_without_a_key_is_kept_or_refused_and_no_key_is_made_up,
    a_state_in_the_key_tells_one_change_from_the_next,
    a_store_that_fails_refuses_and_keeps_nothing,
    what_comes_in_goes_out_to_n8n_and_people_see_it,
);

const PLAIN: &str = r#"
hooks:
  paid:
    path: /in/paid
    verify: {scheme: none}
    key: "{{ body.id }}"
    headers: [X-Topic]
    destination: http://localhost/webhook/paid
"#;

async fn hooks(database: Database, rest: &str) -> GateServer {
    GateServer::start_with(database, "", rest).await
}

async fn events(server: &GateServer) -> Vec<Value> {
    let bodies = server.database.texts("SELECT body FROM event ORDER BY position").await;
    bodies.iter().map(|body| serde_json::from_str(body).unwrap()).collect()
}

fn status(said: &Said) -> (u16, &str) {
    let status = said.body["status"].as_str().or_else(|| said.body["error"]["code"].as_str());
    (said.status, status.unwrap_or_default())
}

async fn a_webhook_goes_on_once_however_often_it_comes(database: Database) {
    let server = hooks(database, PLAIN).await;
    let body = r#"{ "id": "evt_1",  "amount": 9007199254740993 }"#;
    let post =
        || server.request("POST", "/in/paid").header("content-type", "application/json; charset=utf-8");
    let first = said(post().header("x-topic", "orders").header("x-other", "no").body(body)).await;
    assert_eq!(status(&first), (200, "accepted"));
    let again = said(post().body(body)).await;
    assert_eq!(status(&again), (200, "duplicate"));
    assert_eq!((&again.body["event"], again.body["first_seen"].is_string()), (&first.body["event"], true));
    let other = said(post().body(r#"{"id": "evt_1", "amount": 1}"#)).await;
    assert_eq!(status(&other), (200, "duplicate"), "its key says what it is");
    let events = events(&server).await;
    assert_eq!(events.len(), 1);
    let event = &events[0];
    assert_eq!(
        (&event["type"], &event["job"], &event["key"]),
        (&json!("hook.received"), &json!("paid"), &json!("evt_1"))
    );
    assert_eq!((&event["headers"], &event["id"]), (&json!({"x-topic": "orders"}), &first.body["event"]));
    let stored = server.database.texts("SELECT body FROM event").await.remove(0);
    assert!(stored.contains(body), "as it came, byte for byte: {stored}");
    let store = server.database.open().await;
    let row = store.find_job("paid").await.unwrap().unwrap();
    let totals = store.hook_totals().await.unwrap()[&row.id];
    assert_eq!((totals.accepted, totals.duplicates, totals.quarantined), (1, 2, 0));
    let key = onlynew::domain::key::RecordKey::from_stored("evt_1".into());
    let known = store.hook_key(row.id, &key).await.unwrap().unwrap();
    assert_eq!((known.times, known.differing), (3, 1));
    assert_eq!(unsound(&store).await, None);
}

async fn of_many_that_come_at_once_one_goes_on(database: Database) {
    let one = Arc::new(hooks(database, PLAIN).await);
    let posts: Vec<_> = (0..60)
        .map(|number| {
            let server = Arc::clone(&one);
            tokio::spawn(async move {
                server.post("/in/paid", json!({"id": format!("evt_{}", number % 6)})).await
            })
        })
        .collect();
    let (mut accepted, mut duplicates) = (0, 0);
    for post in posts {
        match status(&post.await.unwrap()) {
            (200, "accepted") => accepted += 1,
            (200, "duplicate") => duplicates += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((accepted, duplicates), (6, 54));
    assert_eq!(one.database.number("(SELECT count(*) FROM event)").await, 6);
    assert_eq!(one.database.number("(SELECT sum(times) FROM hook_key)").await, 60);
}

async fn one_without_a_key_is_kept_or_refused_and_no_key_is_made_up(database: Database) {
    let rest = format!(
        "{PLAIN}  strict: {{path: /in/strict, verify: {{scheme: none}}, key_fields: [type, object.id], on_missing_key: reject, destination: \"http://localhost/webhook/x\"}}\n"
    );
    let server = hooks(database, &rest).await;
    for body in [
        json!({}),
        json!({"id": null}),
        json!({"id": ""}),
        json!({"id": "undefined"}),
        json!([1]),
        json!({"id": {"a": 1}}),
    ] {
        let kept = server.post("/in/paid", body.clone()).await;
        let expected = if body["id"].is_object() { (200, "accepted") } else { (202, "quarantined") };
        if !body["id"].is_object() {
            assert_eq!(status(&kept), expected, "{body}");
            assert!(kept.body["id"].as_str().unwrap().len() == 32);
        }
    }
    for body in [json!({"type": "paid"}), json!({"type": "paid", "object": {"id": null}})] {
        assert_eq!(status(&server.post("/in/strict", body).await), (422, "missing_key"));
    }
    assert_eq!(
        status(&server.post("/in/strict", json!({"type": "paid", "object": {"id": 7}})).await),
        (200, "accepted")
    );
    let keys = server.database.texts("SELECT key FROM event WHERE key LIKE 'h_%'").await;
    assert!(keys.len() == 1 && keys[0].len() == 34, "{keys:?}");
    assert_eq!(server.database.number("(SELECT count(*) FROM quarantine)").await, 5);
}

async fn a_state_in_the_key_tells_one_change_from_the_next(database: Database) {
    let rest = PLAIN.replace("{{ body.id }}", "{{ body.id }}-{{ body.status }}");
    let server = hooks(database, &rest).await;
    for (state, expected) in
        [("open", "accepted"), ("paid", "accepted"), ("open", "duplicate"), ("paid", "duplicate")]
    {
        let told = server.post("/in/paid", json!({"id": 7, "status": state})).await;
        assert_eq!(status(&told), (200, expected), "{state}");
    }
    let told = server.post("/in/paid", json!({"id": 7})).await;
    assert_eq!(status(&told), (202, "quarantined"), "half a key is none");
    let keys: Vec<_> = events(&server).await.iter().map(|event| event["key"].clone()).collect();
    assert_eq!(keys, ["7-open", "7-paid"]);
}

async fn a_store_that_fails_refuses_and_keeps_nothing(database: Database) {
    let server = Arc::new(hooks(database, PLAIN).await);
    server.database.break_on("hook_key", "INSERT", "NEW.key = 'evt_3'").await;
    let posts: Vec<_> = (0..6)
        .map(|number| {
            let server = Arc::clone(&server);
            tokio::spawn(async move { server.post("/in/paid", json!({"id": format!("evt_{number}")})).await })
        })
        .collect();
    for (number, post) in posts.into_iter().enumerate() {
        let told = post.await.unwrap();
        let expected = if number == 3 { (503, "store_unavailable") } else { (200, "accepted") };
        assert_eq!(status(&told), expected, "none is refused for another's sake");
        assert_eq!(told.headers.contains_key("retry-after"), number == 3);
    }
    server.database.mend("hook_key").await;
    assert_eq!(status(&server.post("/in/paid", json!({"id": "evt_3"})).await), (200, "accepted"));
    assert_eq!(server.database.number("(SELECT count(*) FROM event)").await, 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_webhook_is_checked_before_it_is_believed() {
    let rest = r#"
hooks:
  stripe:
    path: /in/stripe
    verify: {scheme: stripe, secrets: [whsec_of_before, whsec_of_now]}
    key: "{{ body.id }}"
    max_body: 200B
    duplicate_status: 202
    destination: http://localhost/webhook/paid
  github:
    path: /in/github
    verify: {scheme: github, secrets: the-secret}
    key: "{{ headers['x-github-delivery'] }}"
    content_types: [application/json, application/x-www-form-urlencoded]
    destination: http://localhost/webhook/paid
  fenced:
    path: /in/fenced
    verify: {scheme: none}
    key: "{{ body.id }}"
    allow: [203.0.113.0/24]
    rate_limit: {requests: 2, per: 1h}
    destination: http://localhost/webhook/paid
"#;
    let server = GateServer::start_with(Database::sqlite(), ", trusted_proxies: [127.0.0.1]", rest).await;
    let hex = |bytes: Vec<u8>| bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    let stripe = |at: i64, secret: &str, body: &'static str| {
        let tag = hmac_sha256(secret.as_bytes(), &[format!("{at}.").as_bytes(), body.as_bytes()]);
        let post = server.request("POST", "/in/stripe").header("content-type", "application/json");
        said(post.header("stripe-signature", format!("t={at},v1={}", hex(tag))).body(body))
    };
    let now = machine_time().seconds();
    assert_eq!(status(&stripe(now, "whsec_of_now", r#"{"id":"evt_1"}"#).await), (200, "accepted"));
    assert_eq!(status(&stripe(now, "whsec_of_before", r#"{"id":"evt_1"}"#).await), (202, "duplicate"));
    assert_eq!(status(&stripe(now, "whsec_of_nobody", r#"{"id":"evt_2"}"#).await), (401, "bad_signature"));
    let old = stripe(now - 301, "whsec_of_now", r#"{"id":"evt_2"}"#).await;
    assert!(
        old.status == 401 && old.body["error"]["message"].as_str().unwrap().contains("tolerance"),
        "{old:?}"
    );
    assert_eq!(status(&stripe(now, "whsec_of_now", "{").await), (400, "bad_body"));
    let unsigned = server.post("/in/stripe", json!({"id": "evt_2"})).await;
    assert_eq!(status(&unsigned), (401, "bad_signature"));
    assert_eq!(status(&server.post("/in/stripe", json!({"id": "x".repeat(300)})).await), (413, "too_large"));
    let text = server.request("POST", "/in/stripe").header("content-type", "text/plain").body("x");
    assert_eq!(status(&said(text).await), (415, "bad_type"));
    let wrong = said(server.request("GET", "/in/stripe")).await;
    assert_eq!((status(&wrong), &wrong.headers["allow"]), ((405, "wrong_method"), &"POST".parse().unwrap()));
    assert_eq!(status(&said(server.request("POST", "/in/nothing")).await), (404, "no_such_path"));

    let form = "a=1&b=%C5%BE";
    let github = |id: Option<&str>| {
        let post =
            server.request("POST", "/in/github").header("content-type", "application/x-www-form-urlencoded");
        let tag = hex(hmac_sha256(b"the-secret", &[form.as_bytes()]));
        let post = post.header("x-hub-signature-256", format!("sha256={tag}")).body(form);
        said(id.iter().fold(post, |post, id| post.header("x-github-delivery", *id)))
    };
    assert_eq!(status(&github(Some("d-1")).await), (200, "accepted"));
    assert_eq!(status(&github(Some("d-1")).await), (200, "duplicate"));
    assert_eq!(status(&github(None).await), (202, "quarantined"));
    let events = events(&server).await;
    assert_eq!(
        (&events[1]["key"], &events[1]["data"]),
        (&json!("d-1"), &json!(form)),
        "others than JSON are texts"
    );

    let fenced = |from: &str, id: u32| {
        let post = server.request("POST", "/in/fenced").header("content-type", "application/json");
        said(post.header("x-forwarded-for", from).body(json!({"id": id}).to_string()))
    };
    assert_eq!(status(&fenced("198.51.100.7", 1).await), (403, "not_allowed"));
    assert_eq!(
        status(&fenced("203.0.113.7, 198.51.100.7", 1).await),
        (403, "not_allowed"),
        "the last one counts"
    );
    for id in [1, 2] {
        assert_eq!(status(&fenced("198.51.100.7, 203.0.113.7", id).await), (200, "accepted"));
    }
    let many = fenced("203.0.113.7", 3).await;
    assert_eq!((status(&many), &many.headers["retry-after"]), ((429, "too_many"), &"1".parse().unwrap()));
}

async fn what_comes_in_goes_out_to_n8n_and_people_see_it(database: Database) {
    let rig = Rig::new(database, Job::default(), |_| Reply::status(404)).await;
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let text = format!(
        "store: \"{}\"\nserver: {{listen: \"127.0.0.1:{port}\"}}\ndestinations: {{n8n: {{url: \"{}/webhook/paid\"}}}}\n{}",
        rig.database.url(),
        rig.receiver.url,
        PLAIN
            .replace("http://localhost/webhook/paid", "n8n")
            .replace("verify:", "retention: 1d\n    verify:"),
    );
    rig.configure_with(text.clone());
    let app = rig.real_time_app().await;
    let client = reqwest::Client::new();
    let url = format!("http://127.0.0.1:{port}/in/paid");
    let post = async |body: Value| {
        loop {
            match client.post(&url).json(&body).send().await {
                Ok(answer) => break answer.json::<Value>().await.unwrap(),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    super::cases_running::run_app_until(app, async {
        for _ in 0..2 {
            post(json!({"id": "evt_1"})).await;
        }
        post(json!({"ident": "evt_2"})).await;
        rig.receiver.wait_until(|asked| asked.len() == 1).await;
    })
    .await;
    let sent = rig.receiver.asked()[0].json();
    assert_eq!((&sent["type"], &sent["data"]), (&json!("hook.received"), &json!({"id": "evt_1"})));

    let (_, told, _) = rig.command(&["hooks", "--json"]).await;
    let hook = &told["hooks"][0];
    assert_eq!(
        (&hook["accepted"], &hook["duplicates"], &hook["unsettled"]),
        (&json!(1), &json!(1), &json!(1))
    );
    let (code, told, _) = rig.command(&["why", "paid", "evt_1", "--json"]).await;
    assert_eq!((code, &told["times"], &told["events"][0]["state"]), (0, &json!(2), &json!("delivered")));
    let verdict = told["verdict"][0].as_str().unwrap();
    assert!(
        verdict.starts_with("evt_1 came to paid 2 times, first ")
            && verdict.ends_with("answered `duplicate`"),
        "{verdict}"
    );
    let (code, told, _) = rig.command(&["why", "paid", "evt_9", "--json"]).await;
    assert_eq!((code, &told["known"]), (1, &json!(false)));
    let (code, told, _) = rig.command(&["why", "paid", "--run", "1", "--json"]).await;
    assert!(code == 2 && told["error"].as_str().unwrap().contains("is a hook"), "{told}");

    let (_, listed, _) = rig.command(&["quarantine", "list", "paid", "--json"]).await;
    let id = listed["records"][0]["id"].as_str().unwrap().to_owned();
    let (code, told, _) = rig.command(&["quarantine", "accept", "paid", &id, "--json"]).await;
    assert_eq!((code, &told["outcome"]), (1, &json!("unreadable")));
    rig.rewrite("{{ body.id }}", "{{ body.id | default(body.ident) }}");
    let (code, told, _) = rig.command(&["quarantine", "accept", "paid", &id, "--json"]).await;
    assert_eq!(
        (code, &told["outcome"], &told["counts"]["events"]),
        (0, &json!("decided"), &json!(1)),
        "{told}"
    );
    assert_eq!(rig.database.texts("SELECT key FROM event ORDER BY position").await, ["evt_1", "evt_2"]);
    rig.database.tamper("UPDATE hook_key SET last_seen_at = 5 WHERE key = 'evt_1'").await;
    let (_, told, _) = rig.command(&["state", "purge", "--json"]).await;
    assert_eq!(told["hook_keys"], json!(1));
    let (_, told, _) = rig.command(&["why", "paid", "evt_1", "--json"]).await;
    assert!(told["verdict"][0].as_str().unwrap().contains("is forgotten"), "{told}");
    let store = rig.database.open().await;
    assert_eq!(unsound(&store).await, None);
}
