//! What may be connected to, told over real sockets: names by the machine's own DNS, addresses as they are.

use onlynew::domain::run::RunStatus;

use crate::support::{
    database::Database,
    rig::{Job, Rig, page_of},
    server::{Reply, Server},
};

/// A rig whose source and receiver are called by the name `localhost` where `by_name` says so. `rules` are
/// the keys at the top of the file, `own` one of the destination.
async fn rig(by_name: bool, rules: &str, own: &str) -> Rig {
    let row = [(1, "2026-09-21T10:00:00Z")];
    let rig = Rig::new(Database::sqlite(), Job::default(), move |asked| page_of(&row, asked, 10)).await;
    if by_name {
        rig.rewrite("//127.0.0.1:", "//localhost:");
    }
    rig.rewrite("\ndestinations:", &format!("\n{rules}\ndestinations:"));
    rig.rewrite("concurrency: 8", own);
    rig
}

#[tokio::test]
async fn hosts_that_are_plainly_local_are_reached() {
    for by_name in [false, true] {
        let synced = rig(by_name, "", "concurrency: 8").await.sync().await;
        assert_eq!(
            (synced.report.status, synced.delivered),
            (RunStatus::Ok, 1),
            "{:?}",
            synced.report.reason
        );
    }
}

#[tokio::test]
async fn a_source_at_a_forbidden_address_fails_the_run_at_once() {
    for (by_name, said) in
        [(true, "`localhost` leads to "), (false, "`127.0.0.1` is an address of this machine")]
    {
        let rig = rig(by_name, "allow_private: false", "concurrency: 8").await;
        let report = rig.sync().await.report;
        assert_eq!(report.status, RunStatus::Failed);
        let reason = report.reason.unwrap();
        assert!(reason.contains(said) && reason.contains("it says `allow_private: false`"), "{reason}");
        assert!(rig.source.asked().is_empty() && rig.clock.waits.lock().unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_destination_at_a_forbidden_address_is_tried_again_later() {
    for (by_name, said) in
        [(true, "`localhost` leads to "), (false, "`127.0.0.1` is an address of this machine")]
    {
        let rig = rig(by_name, "", "allow_private: false").await;
        let synced = rig.sync().await;
        assert_eq!((synced.delivered, synced.pending, synced.dead), (0, 1, 0));
        let error = synced.delivery_error.unwrap();
        assert!(error.contains(said), "{error}");
        assert!(rig.receiver.asked().is_empty());

        rig.rewrite("allow_private: false", "allow_private: [127.0.0.0/8, ::1]");
        rig.leases_run_out().await;
        assert_eq!(rig.sync().await.delivered, 1);
    }
}

#[tokio::test]
async fn a_destination_s_own_rule_comes_before_the_file_s() {
    let rig = rig(true, "allow_private: true", "allow_private: false").await;
    let synced = rig.sync().await;
    assert_eq!((synced.report.status, synced.delivered, synced.pending), (RunStatus::Ok, 0, 1));

    rig.rewrite("allow_private: false, ", "");
    rig.leases_run_out().await;
    assert_eq!(rig.sync().await.delivered, 1);
}

#[tokio::test]
async fn metadata_of_clouds_is_not_asked_because_a_url_names_it() {
    let rig = rig(false, "", "concurrency: 8").await;
    let written = rig.source.url.clone();
    rig.rewrite(&format!("base_url: \"{written}\""), "base_url: \"http://169.254.169.254\"");
    let reason = rig.sync().await.report.reason.unwrap();
    assert!(reason.contains("write `allow_private: [\"169.254.169.254\"]` at its top"), "{reason}");
}

#[tokio::test]
async fn logins_are_held_to_the_rule_too() {
    for (by_name, said) in [(true, "`localhost` leads to "), (false, "`127.0.0.1` is ")] {
        let provider = Server::new(|_| Reply::Json(r#"{"access_token":"t"}"#.into())).await;
        let rig = rig(by_name, "allow_private: false", "concurrency: 8").await;
        let host = if by_name { "localhost" } else { "127.0.0.1" };
        let token_url = provider.url.replace("127.0.0.1", host);
        let auth = format!("auth: {{client_id: me, client_secret: hush, token_url: \"{token_url}\"}}");
        rig.rewrite("    every: 1s", &format!("    {auth}\n    every: 1s"));
        let reason = rig.sync().await.report.reason.unwrap();
        assert!(reason.contains(&token_url) && reason.contains(said), "{reason}");
        assert!(provider.asked().is_empty());
    }
}
