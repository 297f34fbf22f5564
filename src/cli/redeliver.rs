//! `onlynew redeliver`: events go to n8n again, under their own ids, as they were.

use clap::{Args, builder::PossibleValuesParser};

use super::{
    Exit, Session, bad_input,
    outbox::{
        filter::{Filter, Since, since},
        wishes,
    },
};
use crate::store::EventState;

/// What `redeliver --help` says at its end.
const HELP: &str = "\
A workflow that keeps the ids of what it has done refuses what it has done already. `onlynew replay` asks the source again
instead, and with `--emit all` sends under new ids.";

/// Arguments of `redeliver`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Redeliver {
    /// The events' ids, or their beginnings.
    #[arg(value_name = "EVENT", conflicts_with_all = ["job", "destination", "key", "from", "to", "state"])]
    events: Vec<String>,
    /// All events of this job.
    #[arg(long)]
    job: Option<String>,
    /// All events for this destination.
    #[arg(long, value_name = "NAME")]
    destination: Option<String>,
    /// All events of this record key.
    #[arg(long)]
    key: Option<String>,
    /// Stored within this time (`2h`), or since this RFC 3339 timestamp.
    #[arg(long, value_name = "TIME", value_parser = since)]
    from: Option<Since>,
    /// Stored before that.
    #[arg(long, value_name = "TIME", value_parser = since)]
    to: Option<Since>,
    /// In this state.
    #[arg(long, value_name = "STATE", default_value = "delivered", value_parser = PossibleValuesParser::new(["delivered", "dead"]))]
    state: String,
    /// Show which events it would be, and do nothing.
    #[arg(long)]
    dry_run: bool,
}

impl Redeliver {
    pub(super) async fn run(&self, session: &Session) -> anyhow::Result<Exit> {
        let app = session.open("warn").await?;
        let exit = async {
            if !self.events.is_empty() {
                let events = wishes::named(&app, &self.events).await?;
                return wishes::send_again(session, &app, events, self.dry_run, true).await;
            }
            let (job, destination, key) = (self.job.clone(), self.destination.clone(), self.key.clone());
            let state = EventState::from_name(&self.state).into_iter().collect();
            let filter = Filter { state, job, destination, key, reason: None, since: self.from };
            if self.job.is_none() && self.destination.is_none() && self.key.is_none() && self.from.is_none() {
                return Err(bad_input(
                    "name events, or say which: `--job JOB`, `--from 2h`, `--key KEY`, `--destination NAME`",
                ));
            }
            let filter = filter.checked_until(&app, self.to).await?;
            let events = app.store.events(&filter, u32::MAX).await?;
            wishes::send_again(session, &app, events, self.dry_run, false).await
        };
        let exit = exit.await;
        app.store.close().await;
        exit
    }
}
