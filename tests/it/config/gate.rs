//! Good configurations of the gate, the hooks and the server.

use std::time::Duration;

use onlynew::{
    config::{hook::KeyRule, server::May},
    domain::{
        gate::{AfterDone, AfterFailure, ScopeRules},
        hook::{KeyField, OnMissingKey},
        webhook::Scheme,
    },
};
use secrecy::ExposeSecret;

use super::config;

#[test]
fn a_gate_needs_no_jobs_and_is_served_to_this_machine() {
    let config = config("gate: {scopes: {charge: {}}}");
    let server = config.server.unwrap();
    assert_eq!((server.listen.to_string(), server.tokens.len()), ("127.0.0.1:8080".to_owned(), 0));
    assert_eq!(config.scopes["charge"], ScopeRules::default());
    assert!(config.jobs.is_empty());
}

#[test]
fn the_rules_of_a_scope_are_what_is_written() {
    let config = config(
        "gate: {scopes: {charge: {lease: 1m, retention: never, after_done: rerun, after_failure: keep, max_result: 0B}}}",
    );
    let expected = ScopeRules {
        lease: Duration::from_mins(1),
        retention: None,
        after_done: AfterDone::Rerun,
        after_failure: AfterFailure::Keep,
        max_result: 0,
    };
    assert_eq!(config.scopes["charge"], expected);
}

#[test]
fn a_server_that_others_reach_has_tokens() {
    let text = r#"
server: {listen: "[::]:9000", tokens: [{token: "${GITHUB_TOKEN}-and-more-of-it", may: [gate, read]}]}
gate: {scopes: {charge: {}}}
"#;
    let server = config(text).server.unwrap();
    assert_eq!(server.listen.to_string(), "[::]:9000");
    assert!(server.tokens[0].secret.expose_secret().ends_with("-and-more-of-it"));
    assert_eq!(server.tokens[0].may, [May::Gate, May::Read]);
    let local = config("server: {listen: \"localhost:9000\"}").server.unwrap();
    assert_eq!(local.listen.to_string(), "127.0.0.1:9000");
}

#[test]
fn jobs_alone_are_served_by_nobody() {
    let text = "jobs: {a: {connector: github, auth: {token: t}, with: {owner: o, repo: r}, stream: issues, every: 1m, \
                destination: \"http://localhost/webhook/a\"}}";
    assert!(config(text).server.is_none());
}

#[test]
fn a_hook_has_what_is_written_and_defaults_for_the_rest() {
    let config = config(
        r#"
hooks:
  paid:
    path: /in/orders
    verify: {scheme: stripe, secrets: ["${STRIPE_KEY}"]}
    key: "{{ body.id }}"
    destination: http://localhost/webhook/paid
  slack:
    path: /in/slack
    verify:
      {scheme: hmac, secrets: s, header: X-Slack-Signature, prefix: v0=, timestamp: X-Slack-Request-Timestamp,
       message: "v0:{timestamp}:{body}", tolerance: 1m}
    key_fields: [type, event.id, {time: event_time, round: 10s}]
    on_missing_key: reject
    retention: 30d
    destination: {url: http://localhost/webhook/slack, order: none}
"#,
    );
    assert!(config.server.is_some() && config.warnings.is_empty());
    let paid = &config.hooks["paid"];
    assert_eq!(
        (paid.tolerance, paid.max_body, paid.duplicate_status),
        (Duration::from_mins(5), 1_000_000, 200)
    );
    assert_eq!((paid.on_missing_key, paid.retention), (OnMissingKey::Quarantine, None));
    assert_eq!(
        (paid.content_types.as_slice(), paid.destination.url.path()),
        (&["application/json".to_owned()][..], "/webhook/paid")
    );
    let slack = &config.hooks["slack"];
    let Scheme::Hmac(hmac) = &slack.scheme else { panic!("{:?}", slack.scheme) };
    assert_eq!(
        (hmac.header.as_str(), hmac.timestamp.as_deref()),
        ("x-slack-signature", Some("x-slack-request-timestamp"))
    );
    let KeyRule::Fields(fields) = &slack.key else { panic!("{:?}", slack.key) };
    assert!(matches!(fields[2], KeyField::Time(_, round) if round == Duration::from_secs(10)));
    assert_eq!(
        (slack.on_missing_key, slack.retention),
        (OnMissingKey::Reject, Some(Duration::from_hours(720)))
    );
}
