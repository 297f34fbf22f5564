//! `onlynew gate …` and `onlynew run` with a gate, by the real binary.

use onlynew::domain::gate::Act;
use serde_json::{Value, json};

use crate::{
    both,
    support::{
        database::Database,
        gate::{acquire, act, ask, key},
        rig::{Job, Rig},
        server::Reply,
    },
};

both!(
    a_person_sees_what_was_let_through_and_why_not,
    a_person_ends_a_lease_and_forgets_a_key,
    a_process_that_runs_serves_the_gate_until_it_is_stopped,
    the_janitor_forgets_keys_by_the_rule_of_their_scope,
);

const GATE: &str = "gate: {scopes: {charge: {retention: 1h}, mail: {after_done: reject}}}\n";

/// A rig with a jobs file of nothing but a gate.
async fn gate(database: Database) -> Rig {
    let rig = Rig::new(database, Job::default(), |_| Reply::status(404)).await;
    rig.configure_with(format!(
        "store: \"{}\"\nserver: {{listen: \"127.0.0.1:0\"}}\n{GATE}",
        rig.database.url()
    ));
    rig
}

async fn command(rig: &Rig, arguments: &[&str]) -> (i32, Value) {
    let (code, answer, errors) = rig.command(&[&["gate"], arguments, &["--json"]].concat()).await;
    assert!(code < 3, "{errors}");
    (code, answer)
}

/// What a person reads.
async fn read(rig: &Rig, arguments: &[&str]) -> String {
    let output = rig.spawn(&[&["gate"], arguments].concat()).wait_with_output().await.unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

async fn a_person_sees_what_was_let_through_and_why_not(database: Database) {
    let rig = gate(database).await;
    let (code, empty) = command(&rig, &["list"]).await;
    assert_eq!(
        (code, &empty["scopes"][1]["scope"], &empty["scopes"][1]["asked"]),
        (0, &json!("mail"), &json!(0))
    );
    let store = rig.database.open().await;
    let rules = rig.app().await.config.scopes["charge"];
    for (name, what) in [("done", Some(Act::Complete)), ("failed", Some(Act::Fail)), ("open", None)] {
        let fence = acquire(&store, &rules, &ask(name)).await.view.fence;
        acquire(&store, &rules, &ask(name)).await;
        if let Some(what) = what {
            act(&store, &rules, name, fence, what).await.unwrap();
        }
    }
    let (_, told) = command(&rig, &["list"]).await;
    let charge = &told["scopes"][0];
    assert_eq!(
        (&charge["in_progress"], &charge["done"], &charge["failed"]),
        (&json!(1), &json!(1), &json!(1))
    );
    assert_eq!(
        (&charge["asked"], &charge["let_through"], &charge["duplicates"]),
        (&json!(6), &json!(3), &json!(3))
    );
    assert!(read(&rig, &["list"]).await.contains("DUPLICATES"));

    for (name, why) in [
        ("done", "it was done: whoever asks is given its result and does nothing"),
        ("failed", "it failed, and `after_failure: retry` lets the next that asks through"),
    ] {
        let (code, told) = command(&rig, &["get", "charge", name]).await;
        assert_eq!((code, &told["why"]), (0, &json!(why)));
    }
    let told = read(&rig, &["get", "charge", "open"]).await;
    assert!(told.contains("somebody has it until") && told.contains("2 times, 1 let through"), "{told}");
    rig.database.tamper("UPDATE gate_key SET lease_until = 5 WHERE key = 'open'").await;
    assert!(read(&rig, &["get", "charge", "open"]).await.contains("the next that asks takes it over"));
    let keys = |told: &Value| {
        told["keys"].as_array().unwrap().iter().map(|key| key["key"].clone()).collect::<Vec<_>>()
    };
    let (_, stale) = command(&rig, &["list", "charge", "--stale"]).await;
    assert_eq!(keys(&stale), ["open"]);
    let (_, some) = command(&rig, &["list", "charge", "--state", "done,failed", "--limit", "1"]).await;
    assert_eq!((keys(&some), &some["more"]), (vec![json!("failed")], &json!(true)));
    rig.database.tamper("UPDATE gate_key SET changed_at = 5 WHERE key = 'done'").await;
    assert!(read(&rig, &["get", "charge", "done"]).await.contains("its `retention` is over"));
    for (arguments, hint) in [
        (["get", "chrage", "1"], "did you mean `charge`?"),
        (["get", "charge", "1"], "nothing is known of the key `1`"),
        (["get", "charge", "undefined"], "the key is missing"),
    ] {
        let (code, told) = command(&rig, &arguments).await;
        assert_eq!(code, 2);
        assert!(told["error"].as_str().unwrap().contains(hint), "{told}");
    }
}

async fn a_person_ends_a_lease_and_forgets_a_key(database: Database) {
    let rig = gate(database).await;
    let store = rig.database.open().await;
    let rules = rig.app().await.config.scopes["charge"];
    acquire(&store, &rules, &ask("1")).await;
    let (code, told) = command(&rig, &["release", "charge", "1"]).await;
    assert_eq!((code, &told["ok"]), (1, &json!(false)));
    assert!(told["message"].as_str().unwrap().contains("--even-held"));
    assert_eq!(command(&rig, &["expire", "charge", "1"]).await.0, 0);
    assert_eq!(command(&rig, &["expire", "charge", "1"]).await.1["message"], "nobody has it");
    assert!(acquire(&store, &rules, &ask("1")).await.view.takeover);
    assert_eq!(command(&rig, &["release", "charge", "1", "--even-held"]).await.0, 0);
    assert_eq!(store.gate_key("charge", &key("1")).await.unwrap(), None);
    assert_eq!(command(&rig, &["release", "charge", "1"]).await.0, 2);
    assert_eq!(command(&rig, &["expire", "charge", "1"]).await.0, 2);
}

async fn a_process_that_runs_serves_the_gate_until_it_is_stopped(database: Database) {
    use tokio::io::{AsyncBufReadExt, BufReader};

    let rig = gate(database).await;
    let mut running = rig.spawn(&["--log", "json", "run"]);
    let mut lines = BufReader::new(running.stderr.take().unwrap()).lines();
    let url = loop {
        let line = lines.next_line().await.unwrap().expect("it says where it listens");
        let line: Value = serde_json::from_str(&line).unwrap();
        if let Some(address) = line["address"].as_str().or(line["fields"]["address"].as_str()) {
            break format!("http://{address}");
        }
    };
    let asked = reqwest::Client::new().post(format!("{url}/v1/gate/charge/1/acquire")).send().await.unwrap();
    assert_eq!(asked.status(), 200);
    assert!(running.try_wait().unwrap().is_none(), "it goes on though there are neither jobs nor hooks");
    let id = running.id().unwrap();
    std::process::Command::new("kill").arg(id.to_string()).status().unwrap();
    assert!(running.wait().await.unwrap().success());
    let (_, told) = command(&rig, &["get", "charge", "1"]).await;
    assert_eq!((&told["state"], &told["times_seen"]), (&json!("in_progress"), &json!(1)));
}

async fn the_janitor_forgets_keys_by_the_rule_of_their_scope(database: Database) {
    let rig = gate(database).await;
    let store = rig.database.open().await;
    let rules = rig.app().await.config.scopes["charge"];
    for name in ["1", "2"] {
        acquire(&store, &rules, &ask(name)).await;
    }
    rig.database.tamper("UPDATE gate_key SET lease_until = 5, changed_at = changed_at - 3700000000").await;
    acquire(&store, &onlynew::domain::gate::ScopeRules { retention: None, ..rules }, &ask("2")).await;
    rig.database.tamper("INSERT INTO gate_key (scope, key, state, fence, lease_until, first_seen_at, last_seen_at, changed_at)
         VALUES ('mail', '1', 'done', 9, 5, 5, 5, 5), ('undeclared', '1', 'done', 10, 5, 5, 5, 5)").await;
    let (code, told, errors) = rig.command(&["state", "purge", "--dry-run", "--json"]).await;
    assert_eq!((code, &told["gate_keys"]), (0, &json!(2)), "{told} {errors}");
    let (code, told, _) = rig.command(&["state", "purge", "--json"]).await;
    assert_eq!((code, &told["gate_keys"]), (0, &json!(2)));
    let left = rig.database.texts("SELECT scope || ' ' || key FROM gate_key ORDER BY scope, key").await;
    assert_eq!(left, ["charge 2", "undeclared 1"], "what nobody declares stays");
}
