//! `onlynew init`: a jobs.yaml to start from.

use std::{fs::OpenOptions, io::Write};

use anyhow::Context;
use clap::Args;
use serde_json::json;

use super::{Exit, Session, bad_input};

/// What a new jobs file holds.
const STARTER: &str = include_str!("starter.yaml");

/// Arguments of `init`.
#[derive(Debug, Args)]
pub(super) struct Init {}

impl Init {
    #[expect(clippy::unused_self, reason = "the same shape as every other command")]
    pub(super) fn run(&self, session: &Session) -> anyhow::Result<Exit> {
        let path = session.path.display();
        let mut file = match OpenOptions::new().write(true).create_new(true).open(&session.path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(bad_input(format!("{path} is there already and was left as it is")));
            }
            Err(error) => return Err(error).with_context(|| format!("cannot write {path}")),
        };
        file.write_all(STARTER.as_bytes()).with_context(|| format!("cannot write {path}"))?;
        session.answer(&json!({"written": session.path}), || {
            format!("wrote {path}\nnext: edit it, then `onlynew check`, `onlynew sync issues`, `onlynew run`")
        });
        Ok(Exit::Good)
    }
}
