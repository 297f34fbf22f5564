//! `onlynew quarantine list|show|accept|skip JOB`: records that could not be read, and what a person makes of
//! them.

use std::sync::Arc;

use clap::Subcommand;
use serde_json::{Value, json};

use super::{Exit, Session, bad_input, find_job, table};
use crate::{
    app::App,
    config::job::Job,
    engine::Accepted,
    store::{JobRow, QuarantineView},
};

/// How much of an id a table shows, in characters.
const SHORT: usize = 12;

/// Subcommands of `quarantine`.
#[derive(Debug, Subcommand)]
pub(super) enum Quarantine {
    /// List the records of a job that could not be read.
    List {
        /// The job's name in the jobs file.
        job: String,
    },
    /// Show the text of such a record, as it came.
    Show {
        /// The job's name in the jobs file.
        job: String,
        /// The record's id, or its beginning.
        id: String,
    },
    /// Read a record again, after the jobs file was put right, and decide it as of the moment its page was
    /// asked for.
    Accept {
        /// The job's name in the jobs file.
        job: String,
        /// The record's id, or its beginning.
        id: String,
    },
    /// Take a record off the list for as long as its text stays the same.
    Skip {
        /// The job's name in the jobs file.
        job: String,
        /// The record's id, or its beginning.
        id: String,
    },
}

/// One job's list, under way.
struct List {
    app: App,
    job: Arc<Job>,
    row: JobRow,
    records: Vec<QuarantineView>,
}

impl Quarantine {
    pub(super) async fn run(&self, session: &Session) -> anyhow::Result<Exit> {
        let (Self::List { job } | Self::Show { job, .. } | Self::Accept { job, .. } | Self::Skip { job, .. }) =
            self;
        let app = session.open("warn").await?;
        let job = Arc::clone(find_job(&app.config, job)?);
        if matches!(self, Self::Accept { .. }) {
            app.engine.take_name_over(&job).await?;
        }
        let Some(row) = app.row_of(&job).await? else {
            return Err(bad_input(format!(
                "the job `{0}` has never run; `onlynew sync {0}` runs it once",
                job.name
            )));
        };
        let records = app.store.quarantined(row.id).await?;
        let list = List { app, job, row, records };
        let exit = match self {
            Self::List { .. } => Ok(list.all(session)),
            Self::Show { id, .. } => list.show(session, id).await,
            Self::Accept { id, .. } => list.accept(session, id).await,
            Self::Skip { id, .. } => list.skip(session, id).await,
        };
        list.app.store.close().await;
        exit
    }
}

impl List {
    fn all(&self, session: &Session) -> Exit {
        let records: Vec<Value> = self.records.iter().map(told).collect();
        session.answer(&json!({"job": self.job.name, "records": records}), || {
            if self.records.is_empty() {
                return format!("every record of `{}` could be read, or was settled", self.job.name);
            }
            let rows = self.records.iter().map(|record| {
                let id = record.id.hex().chars().take(SHORT).collect();
                let (first, last) = (record.first_seen_at, record.last_seen_at);
                [id, record.times.to_string(), first.to_string(), last.to_string(), record.reason.clone()]
            });
            table::table(["id", "times", "first seen", "last seen", "reason"], rows)
        });
        Exit::Good
    }

    async fn show(&self, session: &Session, id: &str) -> anyhow::Result<Exit> {
        let record = self.find(id)?;
        let Some(raw) = self.app.store.quarantined_text(self.row.id, record.id).await? else {
            return Err(self.unknown(id));
        };
        let mut answer = told(record);
        if let Some(answer) = answer.as_object_mut() {
            answer.insert("job".to_owned(), self.job.name.clone().into());
            answer.insert("raw".to_owned(), raw.clone().into());
        }
        session.answer(&answer, || raw);
        Ok(Exit::Good)
    }

    async fn accept(&self, session: &Session, id: &str) -> anyhow::Result<Exit> {
        let record = self.find(id)?;
        let accepted = self.app.engine.accept(&self.job, &self.row, record).await?;
        let (outcome, message, exit) = match &accepted {
            Accepted::Decided(counts) if counts.events > 0 => {
                ("decided", "read; its event waits to be delivered".to_owned(), Exit::Good)
            }
            Accepted::Decided(counts) if counts.stale > 0 => (
                "decided",
                "read; what is stored of its key is newer, so that nothing is sent".to_owned(),
                Exit::Good,
            ),
            Accepted::Decided(_) => {
                ("decided", "read and recorded; there is nothing to send".to_owned(), Exit::Good)
            }
            Accepted::LeftOut => {
                ("left_out", "read; the job leaves records like this one out".to_owned(), Exit::Good)
            }
            Accepted::Unreadable(reason) => {
                ("unreadable", format!("it still cannot be read: {reason}"), Exit::Failed)
            }
            Accepted::Gone => ("gone", "it is not listed any more".to_owned(), Exit::Failed),
            Accepted::Asks(question) => ("asks", question.clone(), Exit::Failed),
            Accepted::Busy => {
                ("busy", "a run of this job is under way: try again when it is over".to_owned(), Exit::Failed)
            }
        };
        let counts = match accepted {
            Accepted::Decided(counts) => Some(counts),
            _ => None,
        };
        let answer = json!({
            "job": self.job.name, "id": record.id.hex(), "outcome": outcome, "message": message, "counts": counts,
        });
        session.answer(&answer, || message.clone());
        Ok(exit)
    }

    async fn skip(&self, session: &Session, id: &str) -> anyhow::Result<Exit> {
        let record = self.find(id)?;
        if !self.app.store.skip_quarantined(self.row.id, record.id).await? {
            return Err(self.unknown(id));
        }
        let answer = json!({"job": self.job.name, "id": record.id.hex(), "outcome": "skipped"});
        session.answer(&answer, || "it will not be listed again unless its text changes".to_owned());
        Ok(Exit::Good)
    }

    /// The one record whose id begins so.
    fn find(&self, id: &str) -> anyhow::Result<&QuarantineView> {
        let beginning = id.trim().to_ascii_lowercase();
        let mut found = self.records.iter().filter(|record| record.id.hex().starts_with(&beginning));
        match (found.next(), found.next()) {
            (Some(record), None) if !beginning.is_empty() => Ok(record),
            (Some(_), _) => {
                Err(bad_input(format!("several records of the list begin with `{id}`: write more of the id")))
            }
            (None, _) => Err(self.unknown(id)),
        }
    }

    fn unknown(&self, id: &str) -> anyhow::Error {
        bad_input(format!(
            "no record of the list begins with `{id}`; `onlynew quarantine list {}` shows them",
            self.job.name
        ))
    }
}

/// A record as programs see it.
fn told(record: &QuarantineView) -> Value {
    json!({
        "id": record.id.hex(), "reason": record.reason, "times": record.times,
        "first_seen_at": record.first_seen_at, "last_seen_at": record.last_seen_at,
        "unread_since": record.unread_since, "run": record.run,
    })
}
