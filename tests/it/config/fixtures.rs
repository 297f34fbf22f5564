//! Paired fixtures: `CASE/jobs.yaml` is wrong and `CASE/error.txt` is what it says, byte for byte.
//! `UPDATE_FIXTURES=1 cargo test --test it config` writes the texts anew; read them before you commit them.

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use onlynew::config::load;

use super::env;

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/config");
    let entries = fs::read_dir(folder).expect("the fixtures are there");
    let mut cases: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    cases.sort();
    cases
}

/// What the case says, its own folder left out of the file names.
fn told(case: &Path) -> String {
    match load(&case.join("jobs.yaml"), &env) {
        Ok(config) => format!("it loads: {:?}\n", config.jobs.keys()),
        Err(errors) => format!("{errors}\n").replace(&format!("{}/", case.display()), ""),
    }
}

fn diff(expected: &str, told: &str) -> String {
    let mut text = String::new();
    let (expected, told): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), told.lines().collect());
    for line in expected.iter().filter(|line| !told.contains(line)) {
        let _ = writeln!(text, "  - {line}");
    }
    for line in told.iter().filter(|line| !expected.contains(line)) {
        let _ = writeln!(text, "  + {line}");
    }
    if text.is_empty() { "  the same lines in another order or number\n".to_owned() } else { text }
}

#[test]
fn every_wrong_configuration_says_exactly_what_is_wrong() {
    let update = std::env::var_os("UPDATE_FIXTURES").is_some();
    let mut failed = String::new();
    let cases = cases();
    for case in &cases {
        let told = told(case);
        let path = case.join("error.txt");
        if update {
            fs::write(&path, &told).expect("written");
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        if told != expected || told.starts_with("it loads") {
            let name = case.file_name().unwrap_or_default().display();
            let _ = writeln!(failed, "{name}\n{}", diff(&expected, &told));
        }
    }
    assert!(failed.is_empty(), "- expected, + said:\n{failed}UPDATE_FIXTURES=1 writes the texts anew");
    assert!(cases.len() >= 25, "{} cases", cases.len());
}

#[test]
fn no_message_shows_a_secret() {
    for case in cases() {
        let text = told(&case);
        assert!(!text.contains("do-not-show-me"), "{}\n{text}", case.display());
    }
}
