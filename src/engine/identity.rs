//! Whether a job means by its stored state what that meant when it was read, and what a person decides where it does
//! not: until then nothing of the job is read, decided or written.

use std::sync::Arc;

use super::{
    report::RunReport,
    run::{Engine, LEASE},
};
use crate::{
    config::job::Job,
    domain::{
        identity::{Answer, Question},
        run::RunStatus,
    },
    store::{Begun, JobLease, JobRow, Renamed, StoreError},
};

/// What came of a person's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    /// What is stored stays, under the new identity.
    Kept(Question),
    /// The job begins anew.
    Begun(Option<Question>, Begun),
    /// Nothing was edited, so that there is nothing to answer.
    Unedited,
    /// A run of the job is under way.
    Busy,
}

/// What a job asks that was edited. One of which nothing is stored yet, or not what that rests on, asks nothing.
pub fn edited(job: &Job, row: &JobRow) -> Option<Question> {
    if row.is_blank {
        return None;
    }
    let parts = job.identity().edited_since(row.identity.as_ref()?);
    Question::about(&job.name, parts)
}

/// The report of a run that does not begin because the job was edited.
pub(super) fn asks(job: &Job, row: &JobRow) -> Option<RunReport> {
    let question = edited(job, row)?;
    Some(RunReport::not_begun(job, RunStatus::Asks, question.to_string()))
}

impl Engine {
    /// Keeps what the state rests on that a run is about to store. The job must not ask.
    pub(super) async fn keep_identity(
        &self,
        job: &Job,
        row: &JobRow,
        lease: &JobLease,
    ) -> Result<(), StoreError> {
        let identity = job.identity();
        if row.identity.as_ref() == Some(&identity) {
            Ok(())
        } else {
            self.store.keep_identity(lease, &identity).await
        }
    }

    /// Does what a person says of what is stored of an edited job. Where nothing was edited, the job begins anew only
    /// `anyway`.
    pub async fn answer(
        &self,
        job: &Arc<Job>,
        row: &JobRow,
        answer: Answer,
        anyway: bool,
    ) -> Result<Answered, StoreError> {
        let Some(lease) = self.store.lease_job(row.id, &self.owner, LEASE).await? else {
            return Ok(Answered::Busy);
        };
        let answered = self.answer_leased(job, &lease, answer, anyway).await;
        self.give_back(job, &lease).await;
        answered
    }

    async fn answer_leased(
        &self,
        job: &Job,
        lease: &JobLease,
        answer: Answer,
        anyway: bool,
    ) -> Result<Answered, StoreError> {
        let Some(row) = self.store.find_job(&job.name).await? else { return Ok(Answered::Unedited) };
        let (question, identity) = (edited(job, &row), job.identity());
        let baseline = match (answer, question.is_some() || anyway) {
            (_, false) => return Ok(Answered::Unedited),
            (Answer::Keep, true) => {
                let Some(question) = question else { return Ok(Answered::Unedited) };
                self.store.keep_identity(lease, &identity).await?;
                return Ok(Answered::Kept(question));
            }
            (Answer::Baseline, true) => true,
            (Answer::Emit, true) => false,
        };
        let begun = self.store.begin_anew(lease, &identity, baseline).await?;
        Ok(Answered::Begun(question, begun))
    }

    /// Takes over what is stored under the name that the job had before, where there is nothing under its own. A run that
    /// is under way meanwhile goes on: it holds the job by its id, and so does everything that it writes.
    pub async fn take_name_over(&self, job: &Job) -> Result<(), StoreError> {
        let Some(before) = self.name_to_take_over(job).await? else { return Ok(()) };
        if self.store.rename_job(before, &job.name, true).await? == Renamed::Done {
            tracing::info!(job = %job.name, renamed_from = %before, "the job goes on under its new name");
        }
        Ok(())
    }

    /// The name that the job had before, where something is stored under it and nothing under its own.
    pub async fn name_to_take_over<'j>(&self, job: &'j Job) -> Result<Option<&'j str>, StoreError> {
        let Some(before) = job.renamed_from.as_deref() else { return Ok(None) };
        let is_taken = self.store.find_job(&job.name).await?.is_some();
        Ok(if is_taken || self.store.find_job(before).await?.is_none() { None } else { Some(before) })
    }
}
