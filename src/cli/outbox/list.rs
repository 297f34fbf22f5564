//! `onlynew outbox list`.

use clap::Args;
use serde_json::json;

use super::{events_table, filter::Filter};
use crate::{
    app::App,
    cli::{Exit, Session},
};

/// Arguments of `outbox list`.
#[derive(Debug, Args)]
pub(in crate::cli) struct List {
    #[command(flatten)]
    filter: Filter,
    /// How many to show at most: the newest.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
}

impl List {
    pub(super) async fn run(&self, session: &Session, app: &App) -> anyhow::Result<Exit> {
        let filter = self.filter.checked(app).await?;
        let mut events = app.store.events(&filter, self.limit + 1).await?;
        let has_more = events.len() > usize::try_from(self.limit)?;
        if has_more {
            events.remove(0);
        }
        session.answer(&json!({"events": events, "more": has_more}), || {
            let states: Vec<&str> = filter.states.iter().map(|state| state.name()).collect();
            let states = match &*states {
                [states @ .., last] if !states.is_empty() => format!("{} or {last}", states.join(", ")),
                states => states.concat(),
            };
            match (events.is_empty(), has_more) {
                (true, _) => format!("no event is {states} here"),
                (false, false) => events_table(events.iter()),
                (false, true) => format!(
                    "{}\nthere are more, older than these {}: `--limit` shows them",
                    events_table(events.iter()),
                    self.limit
                ),
            }
        });
        Ok(Exit::Good)
    }
}
