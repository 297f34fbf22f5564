//! The house stands: a floor imports only what stands below it.

use std::{fs, path::Path};

/// From the top down. `telemetry` stands beside the stairs: any floor may use it, it uses only `domain`.
const FLOORS: [&str; 13] = [
    "cli",
    "demo",
    "app",
    "schedule",
    "server",
    "engine",
    "intake",
    "outbox",
    "connector",
    "limit",
    "store",
    "config",
    "domain",
];

/// Floors of one height, which may not import one another though one is listed above the other.
const SIDE_BY_SIDE: [(&str, &str); 4] =
    [("engine", "outbox"), ("engine", "intake"), ("intake", "outbox"), ("schedule", "server")];

#[test]
fn a_floor_imports_only_what_stands_below_it() {
    let mut wrong = Vec::new();
    let mut files = 0;
    walk(Path::new("src"), &mut |path| {
        files += 1;
        let Some(here) = floor_of(path) else { return };
        let text = fs::read_to_string(path).unwrap();
        for there in imports(&text) {
            let allowed = match (here.as_str(), there.as_str()) {
                (here, there) if here == there => true,
                ("telemetry", there) => there == "domain",
                (_, "telemetry") => true,
                (here, there) if SIDE_BY_SIDE.contains(&(here, there)) => false,
                (here, there) => height(here) < height(there),
            };
            if !allowed {
                wrong.push(format!("{}: {here} imports {there}", path.display()));
            }
        }
    });
    assert!(files > 30, "the source was found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_domain_knows_no_runtime_no_database_and_no_network() {
    walk(Path::new("src/domain"), &mut |path| {
        let text = fs::read_to_string(path).unwrap();
        for word in ["tokio", "sqlx", "reqwest", "axum", "std::fs", "std::net", "std::env"] {
            assert!(!text.contains(&format!("{word}::")), "{} uses {word}", path.display());
        }
    });
}

fn walk(folder: &Path, visit: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, visit);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            visit(&path);
        }
    }
}

/// `src/store/page.rs` and `src/store.rs` are both of the floor `store`; the two roots are of none.
fn floor_of(path: &Path) -> Option<String> {
    let first = path.strip_prefix("src").unwrap().components().next()?.as_os_str().to_str()?;
    let name = first.trim_end_matches(".rs");
    (!matches!(name, "main" | "lib")).then(|| name.to_owned())
}

/// The floors named by `crate::name` and by the members of `use crate::{...}`.
fn imports(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            Some(group) => found.extend(members(group)),
            None => found.push(first_word(rest)),
        }
    }
    found.retain(|name| !name.is_empty());
    found
}

/// The first word of each member of a group, up to its closing brace.
fn members(group: &str) -> Vec<String> {
    let mut depth = 0;
    let mut at_start = true;
    let mut found = Vec::new();
    for (at, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => at_start = true,
            c if depth == 0 && at_start && !c.is_whitespace() => {
                found.push(first_word(&group[at..]));
                at_start = false;
            }
            _ => {}
        }
    }
    found
}

fn first_word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

fn height(floor: &str) -> usize {
    FLOORS
        .iter()
        .position(|name| *name == floor)
        .unwrap_or_else(|| panic!("`{floor}` is no floor of the house"))
}

#[test]
fn imports_are_found_in_every_form() {
    let text = "use crate::domain::x;\nuse crate::{\n    config::{a, b},\n    store::{C, d::E},\n};\nlet x = crate::limit::y();";
    assert_eq!(imports(text), ["domain", "config", "store", "limit"]);
}
