//! Which events a person asks for.

use std::time::Duration;

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};

use crate::{
    app::App,
    cli::bad_input,
    domain::{instant::Instant, units::parse_duration},
    store::{EventFilter, EventState},
};

/// The filters of `list`, `retry --all` and `discard --all`.
#[derive(Debug, Args)]
pub(in crate::cli) struct Filter {
    /// In this state; several are separated by commas. Default: pending,held,dead.
    #[arg(long, value_name = "STATE", value_delimiter = ',', value_parser = states())]
    pub(in crate::cli) state: Vec<EventState>,
    /// Of this job.
    #[arg(long)]
    pub(in crate::cli) job: Option<String>,
    /// For this destination.
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) destination: Option<String>,
    /// Of this record key.
    #[arg(long)]
    pub(in crate::cli) key: Option<String>,
    /// Whose last error holds this text.
    #[arg(long, value_name = "TEXT")]
    pub(in crate::cli) reason: Option<String>,
    /// Stored within this time (`2h`), or since this RFC 3339 timestamp.
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub(in crate::cli) since: Option<Since>,
}

/// From when on.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) enum Since {
    Ago(Duration),
    At(Instant),
}

fn states() -> impl TypedValueParser<Value = EventState> {
    PossibleValuesParser::new(EventState::ALL.map(EventState::name))
        .try_map(|name| EventState::from_name(&name).ok_or("no state has this name"))
}

pub(in crate::cli) fn since(text: &str) -> Result<Since, String> {
    let ago = parse_duration(text).map(Since::Ago);
    ago.or_else(|| text.parse().ok().map(Since::At))
        .ok_or_else(|| "a time is written like 2h or 2026-11-30T10:00:00Z".to_owned())
}

impl Filter {
    /// Nothing was asked for.
    pub(super) const fn is_empty(&self) -> bool {
        self.state.is_empty()
            && self.job.is_none()
            && self.destination.is_none()
            && self.key.is_none()
            && self.reason.is_none()
            && self.since.is_none()
    }

    /// The filter as the store knows it. Names must be of the jobs file or of the store.
    pub(super) async fn checked(&self, app: &App) -> anyhow::Result<EventFilter> {
        self.checked_until(app, None).await
    }

    /// The same for what was stored before a time.
    pub(in crate::cli) async fn checked_until(
        &self,
        app: &App,
        until: Option<Since>,
    ) -> anyhow::Result<EventFilter> {
        if let Some(name) = &self.job
            && app.store.find_job(name).await?.is_none()
        {
            crate::cli::find_job(&app.config, name)?;
        }
        if let Some(name) = &self.destination {
            super::destinations::find(app, name).await?;
        }
        let now = app.store.now().await?;
        let at = |since: Since| match since {
            Since::At(at) => at,
            Since::Ago(ago) => now.minus(ago),
        };
        let open = [EventState::Pending, EventState::Held, EventState::Dead];
        Ok(EventFilter {
            states: if self.state.is_empty() { open.to_vec() } else { self.state.clone() },
            job: self.job.clone(),
            destination: self.destination.clone(),
            key: self.key.clone(),
            reason: self.reason.clone(),
            since: self.since.map(at),
            until: until.map(at),
        })
    }

    /// An error where filters were given to a command that is told its events by id.
    pub(super) fn must_be_empty(&self) -> anyhow::Result<()> {
        if self.is_empty() { Ok(()) } else { Err(bad_input("filters go with `--all`, not with ids")) }
    }
}
