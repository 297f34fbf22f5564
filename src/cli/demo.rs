//! `onlynew demo`: everything at work in one process, with nothing to set up.

use std::time::Duration;

use clap::Args;

use super::{Exit, Session, print_line, run::stop_on_signal};
use crate::{demo, domain::units::parse_duration, telemetry};

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub(super) struct Demo {
    /// How long the source goes on changing its records.
    #[arg(long = "for", value_name = "DURATION", default_value = "15s", value_parser = duration)]
    changes_for: Duration,
    /// Go on until Ctrl-C.
    #[arg(long, conflicts_with = "changes_for")]
    keep: bool,
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "a duration is written like 90s or 5m".to_owned())
}

impl Demo {
    pub(super) async fn run(&self, session: &Session) -> anyhow::Result<Exit> {
        telemetry::start(session.log, "off");
        let changes_for = (!self.keep).then_some(self.changes_for);
        let verdict = demo::run(changes_for, stop_on_signal()?).await?;
        print_line(&format!("check: {verdict}"));
        Ok(if verdict.is_good() { Exit::Good } else { Exit::Failed })
    }
}
