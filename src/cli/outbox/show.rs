//! `onlynew outbox show EVENT`: one event with all that is known of it.

use serde_json::{Value, json};

use super::{events_table, find, state_of};
use crate::{
    app::App,
    cli::{Exit, Session, bad_input, table},
    outbox::naming,
    store::{AttemptView, EventState, EventView},
};

pub(super) async fn run(session: &Session, app: &App, id: &str) -> anyhow::Result<Exit> {
    if id.starts_with("bat_") {
        return batch(session, app, id).await;
    }
    let event = find(app, id).await?;
    let Some(story) = app.store.event_story(&event.event_id).await? else {
        return Err(bad_input(format!("the event `{}` is not kept any more", event.event_id)));
    };
    let headers = next_headers(app, &event);
    let mut answer = serde_json::to_value(&event)?;
    if let Some(answer) = answer.as_object_mut() {
        let headers =
            headers.iter().flatten().map(|(name, value)| ((*name).to_owned(), value.clone().into()));
        answer.insert("headers".to_owned(), Value::Object(headers.collect()));
        answer.insert("body".to_owned(), story.body.clone().into());
        answer.insert("attempts".to_owned(), story.attempts.iter().map(told).collect());
    }
    session.answer(&answer, || {
        let facts = table::pairs([
            ("event", event.event_id.clone()),
            ("type", event.kind.clone()),
            ("job", event.job.clone()),
            ("key", event.key.clone()),
            ("sequence", event.sequence.to_string()),
            ("destination", event.destination.clone()),
            ("state", state_of(&event)),
            ("tries", event.tries.to_string()),
            ("last error", table::or_dash(event.last_error.as_ref())),
            ("created", event.created_at.to_string()),
            ("settled", table::or_dash(event.settled_at)),
            ("next attempt", table::or_dash(event.next_attempt_at)),
            ("batch", table::or_dash(event.batch.as_ref())),
            (
                "next headers",
                headers.map_or_else(
                    || "those of the batch that it will go in".to_owned(),
                    |headers| headers.map(|(name, value)| format!("{name}: {value}")).join("\n"),
                ),
            ),
            (
                "body",
                match (&story.body, event.purged_at) {
                    (Some(body), _) => indented(body),
                    (None, at) => format!("purged at {}", table::or_dash(at)),
                },
            ),
        ]);
        if story.attempts.is_empty() {
            return format!("{facts}\n\nit was never tried");
        }
        format!("{facts}\n\n{}", attempts_table(&story.attempts))
    });
    Ok(Exit::Good)
}

/// The events of a batch. Each tells its own attempts.
async fn batch(session: &Session, app: &App, id: &str) -> anyhow::Result<Exit> {
    let events = app.store.batch_events(id).await?;
    if events.is_empty() {
        return Err(bad_input(format!("no batch that is being sent or was tried begins with `{id}`")));
    }
    session.answer(&json!({"batch": id, "events": events}), || {
        format!(
            "{}

`onlynew outbox show EVENT` tells what each of them met",
            events_table(events.iter())
        )
    });
    Ok(Exit::Good)
}

/// The headers of its next attempt; `None` where they will be those of a batch that is still to be made.
fn next_headers(app: &App, event: &EventView) -> Option<[(&'static str, String); 3]> {
    let tries = if event.state == EventState::Pending { event.tries } else { 0 };
    let goes_in_batches = app
        .config
        .jobs
        .values()
        .any(|job| job.destination.name == event.destination && job.destination.batch.is_some());
    match &event.batch {
        Some(batch) => Some(naming(batch, tries.saturating_add(1))),
        None if goes_in_batches => None,
        None => Some(naming(&event.event_id, tries.saturating_add(1))),
    }
}

fn told(attempt: &AttemptView) -> Value {
    json!({
        "redelivery": attempt.redelivery, "outcome": attempt.outcome, "class": attempt.class, "batch": attempt.batch, "ambiguous": attempt.ambiguous,
        "status": attempt.status, "error": attempt.error, "answer": attempt.answer, "sent_at": attempt.sent_at,
        "took_seconds": attempt.took.as_secs_f64(),
    })
}

fn attempts_table(attempts: &[AttemptView]) -> String {
    table::table(
        ["sent", "took", "status", "outcome", "error", "answer"],
        attempts.iter().map(|attempt| {
            let notes = [
                (attempt.redelivery > 0, " (sent again)"),
                (attempt.batch.is_some(), " (in a batch)"),
                (attempt.ambiguous, " (ambiguous)"),
            ];
            let notes: String = notes.into_iter().filter_map(|(holds, note)| holds.then_some(note)).collect();
            [
                attempt.sent_at.to_string(),
                format!("{} ms", attempt.took.as_millis()),
                table::or_dash(attempt.status),
                format!("{}{notes}", attempt.outcome),
                table::or_dash(attempt.error.as_ref()),
                attempt.answer.clone(),
            ]
        }),
    )
}

/// JSON text on indented lines. Only white space changes: numbers and texts stay as they are sent.
fn indented(json: &str) -> String {
    let mut out = String::new();
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    let mut characters = json.chars().peekable();
    while let Some(character) = characters.next() {
        if in_text {
            in_text = escaped || character != '"';
            escaped = !escaped && character == '\\';
            out.push(character);
            continue;
        }
        match character {
            _ if character.is_whitespace() => {}
            '{' | '[' => {
                out.push(character);
                while characters.next_if(|next| next.is_whitespace()).is_some() {}
                if let Some(end) = characters.next_if(|next| matches!(next, '}' | ']')) {
                    out.push(end);
                } else {
                    depth += 1;
                    new_line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut out, depth);
                out.push(character);
            }
            ',' => {
                out.push(character);
                new_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            _ => {
                in_text = character == '"';
                out.push(character);
            }
        }
    }
    out
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.push_str(&"  ".repeat(depth));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_indented_and_nothing_else_of_it_changes() {
        let cases = [
            ("{}", "{}"),
            (r#"{ "a":[ ], "b" : [1.0,-2e5]}"#, "{\n  \"a\": [],\n  \"b\": [\n    1.0,\n    -2e5\n  ]\n}"),
            (
                r#"{"t":"{a\\\": [,]}","n":90071992547409931}"#,
                "{\n  \"t\": \"{a\\\\\\\": [,]}\",\n  \"n\": 90071992547409931\n}",
            ),
        ];
        for (json, expected) in cases {
            assert_eq!(indented(json), expected, "{json}");
        }
    }
}
