//! `onlynew why JOB KEY`: where a record stands and all that happened to it.

use serde_json::{Value, json};

use super::Asked;
use crate::{
    cli::{
        Exit, Session, bad_input,
        outbox::{self, destinations::Known},
        table,
    },
    domain::{
        clock::machine_time,
        facts::{KeyFacts, Reading},
        key::RecordKey,
        story::{self, Line, Outlook},
    },
    engine::edited,
};

pub(super) async fn tell(
    session: &Session,
    asked: &Asked,
    key: Option<&str>,
    event: Option<&str>,
) -> anyhow::Result<Exit> {
    let event = match event {
        Some(id) => Some(outbox::find(&asked.app, id).await?),
        None => None,
    };
    let parts = asked.job.stream.primary_key.len();
    let keys = match (key, &event) {
        (Some(key), _) => RecordKey::typed(key, parts),
        (None, Some(event)) => vec![RecordKey::from_stored(event.key.clone())],
        (None, None) => Vec::new(),
    };
    let facts = asked.app.store.key_facts(asked.row.id, &keys, asked.limit).await?;
    if let Some(event) = &event
        && (event.job != asked.job.name || event.key != facts.key.as_str())
    {
        return Err(bad_input(format!(
            "the event {} is of the key {} of `{}`",
            event.event_id, event.key, event.job
        )));
    }
    let show = |version| asked.show(version);
    let story = match &event {
        Some(event) => story::story_of_event(&facts, &event.event_id, &show),
        None => story::story(&facts, &show, !session.json),
    };
    let outlook = outlook(asked, &facts).await?;
    let standing = story::standing(&facts, &asked.job.name, &outlook, &show);
    let answer = answer(asked, &facts, &outlook, &standing, &story);
    session.answer(&answer, || shown(asked, &facts, &standing, &story));
    Ok(if facts.is_known() { Exit::Good } else { Exit::Failed })
}

async fn outlook(asked: &Asked, facts: &KeyFacts) -> anyhow::Result<Outlook> {
    let waits_at = facts.events.iter().rev().find(|event| event.settled_at.is_none());
    let trouble = match waits_at {
        Some(event) => {
            let known = Known::all(&asked.app).await?;
            known.iter().find(|known| known.name() == event.destination).and_then(Known::trouble)
        }
        None => None,
    };
    let mut questions = Vec::new();
    let question = edited(&asked.job, &asked.row);
    if question.is_some() {
        let name = &asked.job.name;
        questions.push(format!("{name} was edited and reads nothing before it is told what that means: `onlynew status` tells how"));
    }
    let sweep = asked.app.store.last_sweep(asked.row.id).await?;
    if sweep.is_some_and(|sweep| sweep.asks()) {
        let name = &asked.job.name;
        questions.push(format!(
            "a sweep of {name} waits for a word before it calls anything deleted: `onlynew sweep {name} --accept-deletes`"
        ));
    }
    let next_run = asked.job.schedule.next(asked.row.last_fire.unwrap_or_else(machine_time));
    // An instant that has passed says nothing but that no process runs.
    let next_run = next_run.filter(|next| question.is_none() && *next > machine_time());
    Ok(Outlook { next_run, trouble, questions })
}

fn answer(asked: &Asked, facts: &KeyFacts, outlook: &Outlook, standing: &[String], story: &[Line]) -> Value {
    let record = facts.record.map(|record| {
        json!({
            "version": asked.value(record.version), "deleted": record.deleted.is_some(),
            "first_seen_at": record.first_seen_at, "changed_at": record.changed_at,
        })
    });
    let reading = |reading: &Reading| {
        json!({
            "run": reading.run, "page": reading.page, "asked_at": reading.asked_at, "decided_at": reading.decided_at,
            "version": asked.value(reading.version), "found": reading.finding, "silent": reading.silent,
        })
    };
    json!({
        "job": asked.job.name, "key": facts.key.as_str(), "known": facts.is_known(), "verdict": standing,
        "record": record, "quarantined": facts.quarantined, "near": facts.near, "next_run": outlook.next_run,
        "sightings": facts.readings.iter().map(reading).collect::<Vec<_>>(), "more_sightings": facts.more_readings,
        "events": facts.events, "more_events": facts.more_events, "story": story,
    })
}

fn shown(asked: &Asked, facts: &KeyFacts, standing: &[String], story: &[Line]) -> String {
    let mut shown = standing.join("\n");
    if !story.is_empty() {
        shown.push('\n');
    }
    for line in story {
        let at = table::to_the_second(line.at);
        let (day, time) = at.split_once('T').unwrap_or((&at, ""));
        shown.push_str(&format!("\n{day} {}  {}", time.trim_end_matches('Z'), line.text));
    }
    let left_out =
        [(facts.more_readings, "more readings that found nothing new"), (facts.more_events, "older events")];
    for (count, what) in left_out.into_iter().filter(|(count, _)| *count > 0) {
        shown.push_str(&format!(
            "\n({count} {what} are left out; --limit {} tells them too)",
            u64::from(asked.limit) + count
        ));
    }
    shown
}
