//! `onlynew verify`: whether everything holds in the store that must hold at every moment.

use serde_json::{Value, json};

use super::{Exit, Session, table};
use crate::store::Checked;

/// How many violations of a check a person is shown.
const SHOWN: usize = 3;
/// And how many a program.
const TOLD: usize = 20;

pub(super) async fn run(session: &Session) -> anyhow::Result<Exit> {
    let app = session.open("warn").await?;
    let checked = app.store.verify().await;
    app.store.close().await;
    let checked = checked?;
    let is_sound = checked.iter().all(|checked| checked.found.is_empty());
    let checks: Vec<Value> = checked.iter().map(json).collect();
    session.answer(&json!({"ok": is_sound, "checks": checks}), || shown(&checked, is_sound));
    Ok(if is_sound { Exit::Good } else { Exit::Failed })
}

fn json(checked: &Checked) -> Value {
    let examples: Vec<&String> = checked.found.iter().take(TOLD).collect();
    json!({
        "check": checked.check.name, "holds": checked.check.holds, "ok": checked.found.is_empty(),
        "found": checked.found.len(), "more": checked.is_capped, "examples": examples,
        "advice": (!checked.found.is_empty()).then_some(checked.check.advice),
    })
}

fn shown(checked: &[Checked], is_sound: bool) -> String {
    let rows = checked.iter().map(|checked| {
        let result = match (checked.found.len(), checked.is_capped) {
            (0, _) => "ok".to_owned(),
            (count, true) => format!("more than {count} found"),
            (count, false) => format!("{count} found"),
        };
        [checked.check.name.to_owned(), result, checked.check.holds.to_owned()]
    });
    let mut shown = table::table(["check", "result", "what must hold"], rows);
    for checked in checked.iter().filter(|checked| !checked.found.is_empty()) {
        shown.push_str(&format!("\n\n{}: {}", checked.check.name, checked.check.advice));
        for found in checked.found.iter().take(SHOWN) {
            shown.push_str(&format!("\n  {found}"));
        }
        if checked.found.len() > SHOWN {
            shown.push_str("\n  … (--json tells more)");
        }
    }
    shown.push_str(if is_sound { "\n\nthe store is sound" } else { "\n\nthe store is not sound" });
    shown
}
