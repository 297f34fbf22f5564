//! `onlynew accept JOB baseline|emit|keep`: what becomes of what is stored of a job that was edited.

use std::sync::Arc;

use clap::{Args, ValueEnum};
use serde_json::json;

use super::{Exit, Session, bad_input, find_job};
use crate::{
    domain::identity::{Answer, Question},
    engine::Answered,
    store::Begun,
};

/// Arguments of `accept`.
#[derive(Debug, Args)]
pub(super) struct Accept {
    /// The job's name in the jobs file.
    job: String,
    /// What becomes of what is stored of it.
    #[arg(value_enum)]
    answer: Word,
    /// Begin anew although nothing was edited.
    #[arg(long)]
    anyway: bool,
}

/// What a person types.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Word {
    /// Forget it; record silently what stands, and send what is newer.
    Baseline,
    /// Forget it, and send everything that is read.
    Emit,
    /// Go on with it: its keys and versions mean the same as before.
    Keep,
}

impl From<Word> for Answer {
    fn from(word: Word) -> Self {
        match word {
            Word::Baseline => Self::Baseline,
            Word::Emit => Self::Emit,
            Word::Keep => Self::Keep,
        }
    }
}

impl Accept {
    pub(super) async fn run(&self, session: &Session) -> anyhow::Result<Exit> {
        let answer = Answer::from(self.answer);
        if self.anyway && answer == Answer::Keep {
            return Err(bad_input("`keep` changes nothing where nothing was edited: leave `--anyway` out"));
        }
        let app = session.open("warn").await?;
        let job = Arc::clone(find_job(&app.config, &self.job)?);
        app.engine.take_name_over(&job).await?;
        let Some(row) = app.store.find_job(&job.name).await? else {
            return Err(bad_input(format!(
                "the job `{0}` has never run; `onlynew sync {0}` runs it once",
                job.name
            )));
        };
        let answered = app.engine.answer(&job, &row, answer, self.anyway).await?;
        let pending = app.store.job_view(&job.name).await?.map_or(0, |view| view.pending);
        app.store.close().await;
        let (outcome, told, exit) = match &answered {
            Answered::Unedited => {
                return Err(bad_input(format!(
                    "nothing was edited that what is stored of `{0}` rests on; `onlynew accept {0} baseline --anyway` or \
                     `emit --anyway` forgets it all the same and begins anew",
                    job.name
                )));
            }
            Answered::Busy => {
                let told = "a run of this job is under way: try again when it is over".to_owned();
                ("busy", told, Exit::Failed)
            }
            Answered::Kept(question) => {
                let told = format!(
                    "{}: {} accepted; the next run goes on with what is stored",
                    job.name,
                    question.parts()
                );
                ("kept", told, Exit::Good)
            }
            Answered::Begun(question, begun) => {
                ("begun", told_of(&job.name, question.as_ref(), *begun, answer, pending), Exit::Good)
            }
        };
        let (question, begun) = match &answered {
            Answered::Kept(question) => (Some(question), None),
            Answered::Begun(question, begun) => (question.as_ref(), Some(begun)),
            Answered::Unedited | Answered::Busy => (None, None),
        };
        let line = json!({
            "job": job.name, "answer": answer.name(), "outcome": outcome, "message": told,
            "edited": question.map(|question| &question.edited),
            "forgotten": begun.map(|begun| json!({"records": begun.records, "quarantined": begun.quarantined})),
            "cancelled_tasks": begun.map(|begun| begun.tasks), "pending": pending,
        });
        session.answer(&line, || told.clone());
        Ok(exit)
    }
}

fn told_of(job: &str, question: Option<&Question>, begun: Begun, answer: Answer, pending: u64) -> String {
    let Begun { records, quarantined, tasks } = begun;
    let why = question.map_or_else(
        || "begins anew".to_owned(),
        |question| format!("{} accepted; the job begins anew", question.parts()),
    );
    let mut lines = vec![format!("{job}: {why}")];
    lines.push(format!("forgotten: {records} records, {quarantined} that could not be read"));
    if tasks > 0 {
        lines.push(format!("cancelled: {tasks} replays and sweeps"));
    }
    if pending > 0 {
        lines.push(format!("{pending} events that wait still go out, before later ones of their keys"));
    }
    lines.push(match answer {
        Answer::Emit => "the next run sends everything that it reads".to_owned(),
        _ => "the next run records what stands silently; what is newer than it is sent. What changed since the last run \
              before is not"
            .to_owned(),
    });
    lines.push(
        "processes that were started with the jobs file as it was before have to be started again".to_owned(),
    );
    lines.join("\n")
}
