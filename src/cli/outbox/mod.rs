//! `onlynew outbox …`: what waits, what is dead, and what a person does about it.

pub(super) mod destinations;
pub(super) mod filter;
mod list;
mod show;
pub(super) mod wishes;

use clap::Subcommand;

use super::{Exit, Session, bad_input, table};
use crate::{
    app::App,
    store::{EventView, Wish},
};

/// How much of an id a table shows, in characters.
const SHORT: usize = 16;

/// Subcommands of `outbox`.
#[derive(Debug, Subcommand)]
pub(super) enum Outbox {
    /// List events, newest last: those that are not delivered, unless states are named.
    List(list::List),
    /// Show an event: its headers, its body and every attempt to deliver it.
    Show {
        /// The event's id, or its beginning; of a batch (`bat_…`), its events are listed.
        event: String,
    },
    /// Send dead events again, and try those that wait at once.
    Retry(wishes::Choice),
    /// Never send events that wait or are dead. They are kept.
    Discard(wishes::Choice),
    /// Send delivered events again, under the same id.
    Redeliver {
        /// The events' ids, or their beginnings.
        #[arg(required = true, value_name = "EVENT")]
        events: Vec<String>,
    },
    /// Send a destination nothing until it is resumed.
    Pause {
        /// The destination's name.
        destination: String,
    },
    /// Let a paused destination go on, and ask one that was given up at once.
    Resume {
        /// The destination's name.
        destination: String,
    },
    /// Show every destination: whether it takes events, since when, and what waits for it.
    Destinations,
}

impl Outbox {
    pub(super) async fn run(&self, session: &Session) -> anyhow::Result<Exit> {
        let app = session.open("warn").await?;
        let exit = match self {
            Self::List(list) => list.run(session, &app).await,
            Self::Show { event } => show::run(session, &app, event).await,
            Self::Retry(choice) => choice.run(session, &app, Wish::Retry).await,
            Self::Discard(choice) => choice.run(session, &app, Wish::Discard).await,
            Self::Redeliver { events } => wishes::redeliver(session, &app, events).await,
            Self::Pause { destination } => destinations::pause(session, &app, destination).await,
            Self::Resume { destination } => destinations::resume(session, &app, destination).await,
            Self::Destinations => destinations::run(session, &app).await,
        };
        app.store.close().await;
        exit
    }
}

/// The one event whose id begins so, with or without `evt_`.
pub(in crate::cli) async fn find(app: &App, id: &str) -> anyhow::Result<EventView> {
    let id = id.trim().to_ascii_lowercase();
    let digits = id.strip_prefix("evt_").unwrap_or(&id);
    let found = app.store.find_events(&format!("evt_{digits}")).await?;
    let mut found = found.into_iter();
    match (found.next(), found.next()) {
        (Some(event), None) if !digits.is_empty() => Ok(event),
        (Some(_), _) => Err(bad_input(format!("several events begin with `{id}`: write more of the id"))),
        (None, _) => Err(bad_input(format!(
            "no event begins with `{id}`; `onlynew outbox list` shows those that wait"
        ))),
    }
}

fn short(event_id: &str) -> String {
    event_id.chars().take(SHORT).collect()
}

/// What became of an event, for people.
fn state_of(event: &EventView) -> String {
    let notes = [
        (event.redelivery > 0, "sent again"),
        (event.leased, "leased"),
        (event.ambiguous, "ambiguous"),
        (event.blocked, "behind another"),
    ];
    let notes: Vec<&str> = notes.into_iter().filter_map(|(holds, note)| holds.then_some(note)).collect();
    if notes.is_empty() {
        event.state.name().to_owned()
    } else {
        format!("{} ({})", event.state.name(), notes.join(", "))
    }
}

/// Events as a table, each on one line.
fn events_table<'e>(events: impl Iterator<Item = &'e EventView>) -> String {
    let one_line = |error: &String| error.split_whitespace().collect::<Vec<_>>().join(" ");
    table::table(
        ["event", "job", "key", "type", "state", "tries", "last error", "created", "next attempt"],
        events.map(|event| {
            [
                short(&event.event_id),
                event.job.clone(),
                event.key.clone(),
                event.kind.clone(),
                state_of(event),
                event.tries.to_string(),
                table::or_dash(event.last_error.as_ref().map(one_line)),
                table::to_the_second(event.created_at),
                table::or_dash(event.next_attempt_at.map(table::to_the_second)),
            ]
        }),
    )
}
