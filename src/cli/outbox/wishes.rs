//! `onlynew outbox retry|discard|redeliver`: each event is a transaction of its own, so that what others send meanwhile
//! waits for none of it.

use std::collections::BTreeSet;

use clap::Args;
use serde_json::{Value, json};

use super::{destinations::Known, events_table, filter::Filter, find, short};
use crate::{
    app::App,
    cli::{Exit, Session, bad_input},
    store::{EventState, EventView, Granted, Wish},
};

/// Arguments of `outbox retry` and `outbox discard`.
#[derive(Debug, Args)]
pub(in crate::cli) struct Choice {
    /// The events' ids, or their beginnings.
    #[arg(value_name = "EVENT", required_unless_present = "all", conflicts_with = "all")]
    events: Vec<String>,
    /// All events that pass the filters, of which there must be one at least.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    filter: Filter,
    /// Show which events it would be, and do nothing.
    #[arg(long)]
    dry_run: bool,
}

impl Choice {
    pub(super) async fn run(&self, session: &Session, app: &App, wish: Wish) -> anyhow::Result<Exit> {
        let events = self.chosen(app).await?;
        if self.dry_run {
            return Ok(would_be(session, &events));
        }
        let done = Done::to(app, events, wish).await?;
        Ok(done.tell(session, wish, !self.all, &done.troubles(app, wish).await?))
    }

    async fn chosen(&self, app: &App) -> anyhow::Result<Vec<EventView>> {
        if !self.all {
            self.filter.must_be_empty()?;
            return named(app, &self.events).await;
        }
        if self.filter.is_empty() {
            return Err(bad_input(
                "`--all` needs a filter, such as `--job JOB`; `--state dead` takes every dead event",
            ));
        }
        Ok(app.store.events(&self.filter.checked(app).await?, u32::MAX).await?)
    }
}

/// Tells which events it would be.
fn would_be(session: &Session, events: &[EventView]) -> Exit {
    let answer = json!({"dry_run": true, "count": events.len(), "events": events});
    session.answer(&answer, || match events.len() {
        0 => "it would be no event".to_owned(),
        count => format!("{}\nit would be {}", events_table(events.iter()), counted(count)),
    });
    Exit::Good
}

/// Sends events again, delivered and dead ones.
pub(in crate::cli) async fn send_again(
    session: &Session,
    app: &App,
    events: Vec<EventView>,
    dry_run: bool,
    each: bool,
) -> anyhow::Result<Exit> {
    if dry_run {
        return Ok(would_be(session, &events));
    }
    let mut done = Done(Vec::new());
    for event in events {
        let wish = if event.state == EventState::Dead { Wish::Retry } else { Wish::Redeliver };
        let granted = app.store.grant(event.position, wish).await?;
        done.0.push((event, granted));
    }
    Ok(done.tell(session, Wish::Redeliver, each, &done.troubles(app, Wish::Redeliver).await?))
}

/// Sends delivered events again.
pub(super) async fn redeliver(session: &Session, app: &App, ids: &[String]) -> anyhow::Result<Exit> {
    let events = named(app, ids).await?;
    let done = Done::to(app, events, Wish::Redeliver).await?;
    Ok(done.tell(session, Wish::Redeliver, true, &done.troubles(app, Wish::Redeliver).await?))
}

/// The events of these ids, each once. Where one is wrong nothing is done to any.
pub(in crate::cli) async fn named(app: &App, ids: &[String]) -> anyhow::Result<Vec<EventView>> {
    let mut events: Vec<EventView> = Vec::new();
    for id in ids {
        let event = find(app, id).await?;
        if events.iter().all(|other| other.position != event.position) {
            events.push(event);
        }
    }
    Ok(events)
}

/// What came of a wish for each event.
struct Done(Vec<(EventView, Granted)>);

impl Done {
    async fn to(app: &App, events: Vec<EventView>, wish: Wish) -> anyhow::Result<Self> {
        let mut done = Vec::new();
        for event in events {
            let granted = app.store.grant(event.position, wish).await?;
            done.push((event, granted));
        }
        Ok(Self(done))
    }

    /// What keeps their destinations from taking what is due now.
    async fn troubles(&self, app: &App, wish: Wish) -> anyhow::Result<Vec<String>> {
        if wish == Wish::Discard {
            return Ok(Vec::new());
        }
        let destinations: BTreeSet<&str> = self
            .0
            .iter()
            .filter(|(_, granted)| is_good(*granted))
            .map(|(event, _)| &*event.destination)
            .collect();
        let all = Known::all(app).await?;
        Ok(all
            .iter()
            .filter(|known| destinations.contains(known.name()))
            .filter_map(Known::trouble)
            .collect())
    }

    /// Tells of each event, or only of those to which it was not done and how many there were.
    fn tell(&self, session: &Session, wish: Wish, each: bool, troubles: &[String]) -> Exit {
        let good = self.0.iter().filter(|(_, granted)| is_good(*granted)).count();
        let bad = self.0.len() - good;
        let events: Vec<Value> = self
            .0
            .iter()
            .map(|(event, granted)| {
                json!({
                    "event": event.event_id, "job": event.job, "key": event.key, "done": is_good(*granted),
                    "message": message(wish, event.state, *granted),
                })
            })
            .collect();
        session.answer(
            &json!({"done": good, "not_done": bad, "events": events, "in_the_way": troubles}),
            || {
                let told = self.0.iter().filter(|(_, granted)| each || !is_good(*granted));
                let mut lines: Vec<String> = told
                    .map(|(event, granted)| {
                        format!("{}: {}", short(&event.event_id), message(wish, event.state, *granted))
                    })
                    .collect();
                if !each {
                    let left = if bad == 0 { String::new() } else { format!("; {bad} left as they are") };
                    lines.push(format!("{} {}{left}", counted(good), past(wish)));
                }
                lines.extend_from_slice(troubles);
                lines.join("\n")
            },
        );
        match (good, bad) {
            (_, 0) => Exit::Good,
            (0, _) => Exit::Failed,
            _ => Exit::Partly,
        }
    }
}

const fn is_good(granted: Granted) -> bool {
    matches!(granted, Granted::Done | Granted::Blocked)
}

fn counted(count: usize) -> String {
    if count == 1 { "1 event".to_owned() } else { format!("{count} events") }
}

const fn past(wish: Wish) -> &'static str {
    match wish {
        Wish::Retry => "retried",
        Wish::Redeliver => "redelivered",
        Wish::Discard => "discarded",
    }
}

/// What came of it, for a person; `before` is the state in which the event was found.
const fn message(wish: Wish, before: EventState, granted: Granted) -> &'static str {
    match (granted, wish) {
        (Granted::Done, Wish::Discard) => "discarded: it is kept and never sent",
        (Granted::Done, _) if matches!(before, EventState::Pending | EventState::Held) => "due at once",
        (Granted::Done, _) => "stored to be sent again, behind what waits of its key",
        (Granted::Blocked, _) => "it waits behind an earlier event of its key: retry or discard that one",
        (Granted::BeingSent, _) => "left as it is: it is being sent; try again when its answer has come",
        (Granted::JustSettled, _) => {
            "left as it is: it was settled in this moment; `onlynew outbox show` tells how"
        }
        (Granted::SentAgain, _) => "left as it is: it was sent again meanwhile",
        (Granted::Purged, _) => "left as it is: its body is kept no longer (`retention.payloads`)",
        (Granted::Not(EventState::Delivered), Wish::Retry) => {
            "left as it is: it is delivered; `onlynew outbox redeliver` sends it again"
        }
        (Granted::Not(EventState::Delivered), _) => "left as it is: it is delivered",
        (Granted::Not(EventState::Discarded), _) => "left as it is: it was discarded",
        (Granted::Not(EventState::Superseded), _) => {
            "left as it is: a newer event of its key was sent in its place"
        }
        (Granted::Not(EventState::Pending | EventState::Held), _) => {
            "left as it is: it waits to be sent anyway"
        }
        (Granted::Not(EventState::Dead), _) => {
            "left as it is: it is dead; `onlynew outbox retry` sends it again"
        }
    }
}
