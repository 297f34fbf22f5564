//! `onlynew why HOOK KEY`: what came in under a key, and what became of it.

use serde_json::json;

use crate::{
    app::App,
    cli::{Exit, Session, bad_input, table},
    config::hook::Hook,
    domain::{
        facts::KeyFacts,
        key::RecordKey,
        story::{self, Line},
    },
    store::HookKey,
};

pub(super) async fn tell(
    session: &Session,
    app: &App,
    hook: &Hook,
    key: Option<&str>,
    limit: u32,
) -> anyhow::Result<Exit> {
    let Some(key) = key else {
        return Err(bad_input(format!(
            "`{0}` is a hook: `onlynew why {0} KEY` tells of the webhooks of a key; it has no runs and reads no versions",
            hook.name
        )));
    };
    let Some(row) = app.store.find_job(&hook.name).await? else {
        return Err(bad_input(format!(
            "the hook `{}` has never listened; `onlynew run` has it listen",
            hook.name
        )));
    };
    let key = RecordKey::from_stored(key.to_owned());
    let known = app.store.hook_key(row.id, &key).await?;
    let facts = app.store.key_facts(row.id, std::slice::from_ref(&key), limit).await?;
    let verdict = verdict(hook, &facts, known.as_ref());
    let story = story::story(&facts, &|version| version.0.to_string(), !session.json);
    let answer = json!({
        "hook": hook.name, "key": key.as_str(), "known": known.is_some() || facts.is_known(), "verdict": verdict,
        "event": known.as_ref().map(|known| &known.event), "times": known.as_ref().map_or(0, |known| known.times),
        "differing": known.as_ref().map_or(0, |known| known.differing),
        "first_seen": known.as_ref().map(|known| known.first_seen),
        "last_seen": known.as_ref().map(|known| known.last_seen), "quarantined": facts.quarantined,
        "events": facts.events, "story": story,
    });
    session.answer(&answer, || {
        let told = story.iter().map(|Line { at, text, .. }| format!("{}  {text}", table::to_the_second(*at)));
        [verdict.join("\n")].into_iter().chain(told).collect::<Vec<_>>().join("\n")
    });
    Ok(if known.is_some() || facts.is_known() { Exit::Good } else { Exit::Failed })
}

fn verdict(hook: &Hook, facts: &KeyFacts, known: Option<&HookKey>) -> Vec<String> {
    let (name, key) = (&hook.name, facts.key.as_str());
    let mut told = Vec::new();
    match known {
        Some(known) => {
            let (first, last) = (table::to_the_second(known.first_seen), table::to_the_second(known.last_seen));
            told.push(match known.times {
                1 => format!("{key} came to {name} once, {first}: it went on as {}", known.event),
                times => format!(
                    "{key} came to {name} {times} times, first {first} and last {last}: the first went on as {}, the others \
                     were answered `duplicate`",
                    known.event
                ),
            });
            if known.differing > 0 {
                told.push(format!(
                    "{} of them had another body than the first: where that is news, its state belongs in the `key` of the hook",
                    known.differing
                ));
            }
        }
        None if facts.is_known() => told.push(format!(
            "{key} came to {name}, and when is forgotten (`retention` of the hook): one that comes again goes on again"
        )),
        None => told.push(format!("no webhook of the key {key} ever came to {name}")),
    }
    if facts.quarantined > 0 {
        told.push(format!(
            "{} webhooks of {name} have no key, and this may be among them: `onlynew quarantine list {name}`",
            facts.quarantined
        ));
    }
    told
}
