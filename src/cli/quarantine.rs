//! `onlynew quarantine list|show|accept|skip JOB`: records that could not be read, and what a person makes of
//! them.

use std::{collections::BTreeMap, sync::Arc};

use clap::Subcommand;
use serde_json::{Value, json, value::RawValue};

use super::{Exit, Session, bad_input, find_job, table};
use crate::{
    app::App,
    config::{hook::Hook, job::Job},
    domain::run::Counts,
    engine::Accepted,
    intake::{Arrived, delivery},
    store::{JobRow, QuarantineView, Received},
};

/// How much of an id a table shows, in characters.
const SHORT: usize = 12;

/// Subcommands of `quarantine`.
#[derive(Debug, Subcommand)]
pub(super) enum Quarantine {
    /// List the records of a job that could not be read, or the webhooks of a hook that have no key.
    List {
        /// The job's or the hook's name in the jobs file.
        job: String,
    },
    /// Show the text of such a record, as it came.
    Show {
        /// The job's or the hook's name in the jobs file.
        job: String,
        /// The record's id, or its beginning.
        id: String,
    },
    /// Read a record again, after the jobs file was put right, and decide it as of the moment its page was
    /// asked for.
    Accept {
        /// The job's or the hook's name in the jobs file.
        job: String,
        /// The record's id, or its beginning.
        id: String,
    },
    /// Take a record off the list for as long as its text stays the same.
    Skip {
        /// The job's or the hook's name in the jobs file.
        job: String,
        /// The record's id, or its beginning.
        id: String,
    },
}

/// Whose records they are.
enum Of {
    Job(Arc<Job>),
    Hook(Arc<Hook>),
}

impl Of {
    /// The job or the hook of this name.
    fn find(app: &App, name: &str) -> anyhow::Result<Self> {
        match app.config.hooks.get(name) {
            Some(hook) => Ok(Self::Hook(Arc::clone(hook))),
            None => find_job(&app.config, name).map(|job| Self::Job(Arc::clone(job))),
        }
    }

    async fn row(&self, app: &App) -> anyhow::Result<Option<JobRow>> {
        Ok(match self {
            Self::Job(job) => app.row_of(job).await?,
            Self::Hook(hook) => app.store.find_job(&hook.name).await?,
        })
    }
}

/// One list, under way.
struct List {
    app: App,
    name: String,
    of: Of,
    row: JobRow,
    records: Vec<QuarantineView>,
}

impl Quarantine {
    pub(super) async fn run(&self, session: &Session) -> anyhow::Result<Exit> {
        let (Self::List { job } | Self::Show { job, .. } | Self::Accept { job, .. } | Self::Skip { job, .. }) =
            self;
        let app = session.open("warn").await?;
        let of = Of::find(&app, job)?;
        if let (Of::Job(job), Self::Accept { .. }) = (&of, self) {
            app.engine.take_name_over(job).await?;
        }
        let Some(row) = of.row(&app).await? else {
            return Err(bad_input(match of {
                Of::Job(_) => format!("the job `{job}` has never run; `onlynew sync {job}` runs it once"),
                Of::Hook(_) => format!("the hook `{job}` has never listened; `onlynew run` has it listen"),
            }));
        };
        let records = app.store.quarantined(row.id).await?;
        let list = List { app, name: job.clone(), of, row, records };
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
        session.answer(&json!({"job": self.name, "records": records}), || {
            if self.records.is_empty() {
                return format!("every record of `{}` could be read, or was settled", self.name);
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
            answer.insert("job".to_owned(), self.name.clone().into());
            answer.insert("raw".to_owned(), raw.clone().into());
        }
        session.answer(&answer, || raw);
        Ok(Exit::Good)
    }

    async fn accept(&self, session: &Session, id: &str) -> anyhow::Result<Exit> {
        let record = self.find(id)?;
        let accepted = match &self.of {
            Of::Job(job) => self.app.engine.accept(job, &self.row, record).await?,
            Of::Hook(hook) => self.accept_webhook(hook, record).await?,
        };
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
            "job": self.name, "id": record.id.hex(), "outcome": outcome, "message": message, "counts": counts,
        });
        session.answer(&answer, || message.clone());
        Ok(exit)
    }

    /// Reads a webhook's key again. The headers it came with were not kept.
    async fn accept_webhook(&self, hook: &Hook, record: &QuarantineView) -> anyhow::Result<Accepted> {
        let Some(raw) = self.app.store.quarantined_text(self.row.id, record.id).await? else {
            return Ok(Accepted::Gone);
        };
        let data = RawValue::from_string(raw)?;
        let arrived = Arrived { headers: &BTreeMap::new(), data, at: record.answered_at };
        let delivery = delivery(hook, &self.row, arrived);
        if let Err(reason) = &delivery.key {
            return Ok(Accepted::Unreadable(reason.clone()));
        }
        Ok(match self.app.store.accept_hook(record.id, &delivery).await? {
            None => Accepted::Gone,
            Some(Received::Accepted { .. }) => {
                Accepted::Decided(Counts { records: 1, created: 1, events: 1, ..Counts::default() })
            }
            Some(_) => Accepted::Decided(Counts { records: 1, unchanged: 1, ..Counts::default() }),
        })
    }

    async fn skip(&self, session: &Session, id: &str) -> anyhow::Result<Exit> {
        let record = self.find(id)?;
        if !self.app.store.skip_quarantined(self.row.id, record.id).await? {
            return Err(self.unknown(id));
        }
        let answer = json!({"job": self.name, "id": record.id.hex(), "outcome": "skipped"});
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
            self.name
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
