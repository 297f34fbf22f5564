//! `onlynew demo`: everything at work in one process, with nothing to set up.

use clap::Args;

use super::{Exit, Session, print_line, run::stop_on_signal};
use crate::{demo, telemetry};

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub(super) struct Demo {
    /// Go on until Ctrl-C.
    #[arg(long)]
    keep: bool,
}

impl Demo {
    pub(super) async fn run(&self, session: &Session) -> anyhow::Result<Exit> {
        telemetry::start(session.log, "off");
        let verdict = demo::run(self.keep, stop_on_signal()?).await?;
        print_line(&format!("check: {verdict}"));
        Ok(if verdict.is_good() { Exit::Good } else { Exit::Failed })
    }
}
