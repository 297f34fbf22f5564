//! Wrong input beyond the fixtures: files that cannot be read, parts for programs, hostile texts.

use std::{fmt::Write, fs, path::Path};

use onlynew::config::load;
use proptest::prelude::*;

use super::{config, env, read};

const GOOD: &str = r#"
accounts:
  acme: {connector: github, auth: {token: "${GITHUB_TOKEN}"}, with: {owner: acme}}
jobs:
  issues:
    account: acme
    with: {repo: shop}
    stream: issues
    schedule: {cron: "*/5 * * * *", timezone: Europe/Zagreb}
    window: {start: 2026-01-01, lookback: 15m}
    destination: {url: "https://n8n.example.com/webhook/x", auth: {name: X, value: "${N8N_TOKEN}"}}
  orders:
    source:
      base_url: "{{ inputs.root }}"
      inputs: {root: {type: url, required: true}}
      request: {path: /orders, query: {p: "{{ page.number }}"}}
      primary_key: [id]
      pagination: {type: page_number, base_page: 0}
    with: {root: http://localhost}
    auth: {username: u, password: "${STRIPE_KEY}"}
    every: 1m
    destination: http://localhost/webhook/y
"#;

#[test]
fn a_file_that_cannot_be_read_is_named_and_init_offered() {
    let errors = load(Path::new("no/such/jobs.yaml"), &env).expect_err("it does not exist");
    assert_eq!(
        errors.to_string(),
        "no/such/jobs.yaml: this file cannot be read: it does not exist\n  \
         = `onlynew init` writes a jobs.yaml to start from; `--config PATH` names another one\n\n1 error"
    );
    let folder = tempfile::tempdir().expect("a folder");
    let errors = load(folder.path(), &env).expect_err("it is a folder");
    assert!(errors.to_string().contains("it is a folder"), "{errors}");
    let path = folder.path().join("jobs.yaml");
    fs::write(&path, b"jobs: \xff\xfe").expect("written");
    let errors = load(&path, &env).expect_err("it is no text");
    assert!(errors.to_string().contains("it is not a UTF-8 text"), "{errors}");
    fs::write(&path, vec![b'#'; 5 << 20]).expect("written");
    let errors = load(&path, &env).expect_err("it is too large");
    assert!(errors.to_string().contains("it is larger than 4 MiB"), "{errors}");
}

#[test]
fn programs_get_the_parts_of_an_error() {
    let errors = read("jobs: {issues: {conector: github}}").expect_err("it is wrong").errors;
    let first = errors.iter().find(|error| error.message.contains("conector")).expect("it is told");
    let json = serde_json::to_value(first).expect("JSON");
    let expected = r#"{"file":"jobs.yaml","line":1,"column":17,
        "message":"`conector` is not a key that can stand under `issues`",
        "expected":"one of `account`, `auth`, `changes`, `connector`, `deletes`, `destination`, `every`, `first_run`, `rate_limit`, `renamed_from`, `schedule`, `source`, `stream`, `window`, `with`",
        "help":"did you mean `connector`?"}"#;
    assert_eq!(json, serde_json::from_str::<serde_json::Value>(expected).expect("JSON"));
}

#[test]
fn columns_count_characters_and_carets_stand_under_them() {
    let errors = read("jobs: {žaba: {'čvor': 1, evry: 5m}}").expect_err("it is wrong").to_string();
    let told = "jobs.yaml:1:26: `evry` is not a key that can stand under `žaba`\n  |\n\
                1 | jobs: {žaba: {'čvor': 1, evry: 5m}}\n  |                          ^^^^\n";
    assert!(errors.contains(told), "{errors}");
}

#[test]
fn a_configuration_does_not_print_its_secrets() {
    let shown = format!("{:?}", config(GOOD));
    assert!(shown.contains("Bearer") && !shown.contains("do-not-show-me"), "{shown}");
}

#[test]
fn aliases_that_multiply_are_bounded() {
    let mut yaml = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..30 {
        let below = vec![format!("*a{}", level - 1); 10].join(", ");
        let _ = writeln!(yaml, "a{level}: &a{level} [{below}]");
    }
    let errors = read(&yaml).expect_err("it is too large").to_string();
    assert!(
        errors.contains("the file holds more than 200000 values, counting what aliases repeat"),
        "{errors}"
    );
}

#[test]
fn a_flood_of_errors_is_cut_and_counted() {
    let mut yaml = "jobs: {}\n".to_owned();
    for number in 0..50_000 {
        let _ = writeln!(yaml, "key_{number}: 1");
    }
    let errors = read(&yaml).expect_err("it is wrong");
    assert_eq!((errors.errors.len(), errors.left_out), (200, 49_801));
    assert!(errors.to_string().ends_with("200 errors, and 49801 more that are not shown"));
}

#[test]
fn nesting_of_any_depth_is_an_error_and_not_a_crash() {
    for (open, close) in [("[", "]"), ("{a: ", "}"), ("- ", "")] {
        let yaml = format!("jobs: \n  {}x{}", open.repeat(50_000), close.repeat(50_000));
        assert!(read(&yaml).is_err());
    }
    let stairs: Vec<String> = (0..2_000).map(|depth| format!("{}a:", " ".repeat(depth))).collect();
    assert!(read(&stairs.join("\n")).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_damaged_file_never_panics(at in 0..GOOD.len(), cut in 0..40_usize, put in "[\\x00-\\x7fžß\u{1F980}]{0,6}") {
        let start = (0..=at).rev().find(|at| GOOD.is_char_boundary(*at)).unwrap_or(0);
        let end = (start + cut).min(GOOD.len());
        let yaml = format!("{}{put}{}", &GOOD[..start], &GOOD[end..]);
        if let Err(errors) = read(&yaml) {
            let text = errors.to_string();
            prop_assert!(!errors.errors.is_empty() && !text.contains("do-not-show-me"), "{}", text);
            prop_assert!(!text.contains("it cannot be used"), "{}", text);
        }
    }

    #[test]
    fn any_text_is_good_or_told_of(yaml in "[a-z:{}\\[\\]\"'$&*!|>%@,# \n\t-]{0,60}") {
        if let Err(errors) = read(&yaml) {
            prop_assert!(!errors.errors.is_empty());
            prop_assert!(!errors.to_string().contains("it cannot be used"), "{}", errors);
        }
    }
}
