//! A sweep from its opening to the marking of what is gone. It reads as any task does; what it proves is judged by
//! [`domain::reconcile`](crate::domain::reconcile), and marked in batches that no page is committed beside.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{identity::edited, rules::event_source, run::Engine};
use crate::{
    config::job::Job,
    domain::{
        reconcile::{Absence, Next, Phase, passes_from, touched_since},
        task::{Plan, TaskId, TaskState},
    },
    store::{GoneBatch, JobLease, JobRow, NewSweep, StoreError, SweepOpened, SweepView},
};

/// How many keys are marked in one transaction at most.
const BATCH: usize = 500;
/// How many keys, or pages of sightings, are looked at in one statement.
const AT_ONCE: u32 = 2_000;

/// What the keys of a job were held against.
struct Held {
    absence: Absence,
    fence: i64,
}

impl Engine {
    /// Opens the sweep of a job where its schedule says so: by when the last one was opened, or before the first when
    /// the first live run was complete. `None` where none is due, or another process was quicker.
    pub async fn open_due_sweep(&self, job: &Job) -> Result<Option<TaskId>, StoreError> {
        let Some(rule) = &job.sweep else { return Ok(None) };
        let Some(row) = self.store.find_job(&job.name).await? else { return Ok(None) };
        if edited(job, &row).is_some() {
            return Ok(None);
        }
        let last = self.store.last_sweep(row.id).await?;
        if last.as_ref().is_some_and(|last| last.state == TaskState::Open && !last.asks()) {
            return Ok(None);
        }
        let since = match &last {
            Some(last) => Some(last.created_at),
            None => self.store.first_complete_run(row.id).await?,
        };
        let due = since.and_then(|since| rule.schedule.next(since));
        if due.is_none_or(|due| self.clock.now() < due) {
            return Ok(None);
        }
        match self.open_sweep(job, &row, last.as_ref()).await? {
            SweepOpened::Begun(task) => Ok(Some(task)),
            SweepOpened::Overtaken | SweepOpened::TooEarly => Ok(None),
        }
    }

    /// Opens a sweep on a person's word, or finds the one that is open; `None` where the job has not read yet what stood
    /// when it began.
    pub async fn ask_for_sweep(&self, job: &Job) -> Result<Option<TaskId>, StoreError> {
        let row = self.register(job).await?;
        loop {
            let last = self.store.last_sweep(row.id).await?;
            if let Some(open) = last.as_ref().filter(|last| last.state == TaskState::Open) {
                return Ok(Some(open.task));
            }
            match self.open_sweep(job, &row, last.as_ref()).await? {
                SweepOpened::Begun(task) => return Ok(Some(task)),
                SweepOpened::TooEarly => return Ok(None),
                SweepOpened::Overtaken => {}
            }
        }
    }

    /// Ends the sweep of a job that is swept no more.
    pub async fn end_unwanted_sweep(&self, job: &Job) -> Result<(), StoreError> {
        let Some(row) = self.store.find_job(&job.name).await? else { return Ok(()) };
        let last = self.store.last_sweep(row.id).await?;
        let Some(open) = last.filter(|last| last.state == TaskState::Open) else { return Ok(()) };
        let reason = "the job is swept no more: `deletes: {mode: reconcile}` was taken out";
        if self.store.cancel_task(open.task, Some(reason)).await? {
            tracing::info!(job = %job.name, "its sweep is ended: {reason}");
        }
        Ok(())
    }

    async fn open_sweep(
        &self,
        job: &Job,
        row: &JobRow,
        last: Option<&SweepView>,
    ) -> Result<SweepOpened, StoreError> {
        let new = NewSweep {
            plan: Plan { from: job.window.start, ..Plan::default() },
            fingerprint: job.fingerprint(),
            reach: job.window.lookback + job.window.settle,
            after: last.map(|last| last.task),
        };
        let opened = self.store.open_sweep(row.id, &new).await?;
        if let SweepOpened::Begun(TaskId(task)) = opened {
            tracing::info!(job = %job.name, task, "a sweep begins: everything is read, so that it shows what is gone");
        }
        Ok(opened)
    }

    /// Whether a sweep is to read on. One that began under another configuration, or without which the job is now, is
    /// ended: what it saw says nothing of what the job reads now.
    pub(super) async fn may_read(
        &self,
        job: &Job,
        row: &JobRow,
        lease: &JobLease,
    ) -> Result<bool, StoreError> {
        let Some(sweep) = self.store.last_sweep(row.id).await? else { return Ok(false) };
        if sweep.fingerprint != job.fingerprint() {
            let reason = "the job's configuration was changed while it ran, so that it proves nothing: the next sweep \
                          begins anew";
            tracing::warn!(job = %job.name, "{reason}");
            self.store.end_sweep(lease, TaskState::Failed, Some(reason)).await?;
            return Ok(false);
        }
        Ok(sweep.phase == Phase::Reading)
    }

    /// Brings a sweep that has read everything as far as it may go.
    pub(super) async fn reconcile(
        &self,
        job: &Arc<Job>,
        row: &JobRow,
        lease: &JobLease,
        stop: &CancellationToken,
    ) -> Result<(), StoreError> {
        let Some(sweep) = self.store.last_sweep(row.id).await? else { return Ok(()) };
        if sweep.state != TaskState::Open {
            return Ok(());
        }
        // One that proves nothing waits for nobody.
        let has_passed = sweep.has_passed || sweep.unread > 0;
        match sweep.phase.next(has_passed, sweep.is_accepted) {
            Next::Read | Next::Ask => Ok(()),
            Next::Wait => {
                let is_time =
                    sweep.read_at.is_some_and(|read_at| passes_from(read_at, sweep.reach) <= sweep.now);
                if is_time { self.store.read_afresh(row.id).await } else { Ok(()) }
            }
            Next::Judge => self.judge(job, row, lease, &sweep, stop).await,
            Next::Mark => self.mark(job, row, lease, &sweep, None, stop).await,
        }
    }

    /// Counts what is gone, and marks it where that is not too much.
    async fn judge(
        &self,
        job: &Arc<Job>,
        row: &JobRow,
        lease: &JobLease,
        sweep: &SweepView,
        stop: &CancellationToken,
    ) -> Result<(), StoreError> {
        if sweep.unread > 0 {
            let reason = format!(
                "{} records could not be read or have no version, and nobody knows which keys they are: nothing is \
                 called deleted",
                sweep.unread
            );
            tracing::warn!(job = %job.name, "{reason}");
            return self.store.end_sweep(lease, TaskState::Done, Some(&reason)).await;
        }
        let held = self.held_against(row, lease, sweep).await?;
        let (mut gone, mut of_keys, mut after) = (0, 0, String::new());
        loop {
            let standing = self.store.standing(row.id, sweep.plan.from, &after, AT_ONCE).await?;
            let Some(last) = standing.last() else { break };
            last.key.as_str().clone_into(&mut after);
            of_keys += standing.len() as u64;
            gone += standing.iter().filter(|standing| held.absence.is_gone(standing)).count() as u64;
        }
        let is_too_much = job.sweep.as_ref().is_none_or(|rule| rule.max_ratio.is_exceeded(gone, of_keys));
        if is_too_much {
            self.store.set_phase(lease, Phase::Asking, gone, of_keys).await?;
            tracing::warn!(
                job = %job.name, gone, of_keys,
                "a sweep found more keys gone than `deletes.max_ratio` allows: nothing is called deleted before \
                 `onlynew sweep {} --accept-deletes`", job.name
            );
            return Ok(());
        }
        self.store.set_phase(lease, Phase::Marking, gone, of_keys).await?;
        self.mark(job, row, lease, sweep, Some(held), stop).await
    }

    /// Marks what is gone, batch by batch, until `stop`. What was marked before a crash is deleted by now and is not met again.
    async fn mark(
        &self,
        job: &Arc<Job>,
        row: &JobRow,
        lease: &JobLease,
        sweep: &SweepView,
        held: Option<Held>,
        stop: &CancellationToken,
    ) -> Result<(), StoreError> {
        let mut held = match held {
            Some(held) => held,
            None => self.held_against(row, lease, sweep).await?,
        };
        let (mut deleted, mut after) = (0, String::new());
        loop {
            let standing = self.store.standing(row.id, sweep.plan.from, &after, AT_ONCE).await?;
            let Some(last) = standing.last() else { break };
            last.key.as_str().clone_into(&mut after);
            let gone: Vec<_> = standing
                .into_iter()
                .filter(|standing| held.absence.is_gone(standing))
                .map(|standing| standing.key)
                .collect();
            for keys in gone.chunks(BATCH) {
                if stop.is_cancelled() {
                    return Ok(());
                }
                let batch = GoneBatch {
                    keys: keys.to_vec(),
                    fence: held.fence,
                    since: held.absence.since(),
                    observed_at: self.clock.now(),
                    emit: job.emit.clone(),
                    source: event_source(job, row),
                    destination: job.destination.name.clone(),
                    order: job.destination.lanes.order,
                };
                let marked = self.store.mark_gone(lease, &batch).await?;
                deleted += marked.deleted;
                held.fence = marked.met.up_to;
                held.absence.touch(marked.met.marks);
                if marked.has_events {
                    self.fresh.send_modify(|count| *count += 1);
                }
            }
        }
        self.store.end_sweep(lease, TaskState::Done, None).await?;
        tracing::info!(job = %job.name, records = sweep.records, missed = sweep.missed, deleted, "the sweep is complete");
        if let Some(advice) = self.store.lateness(row.id).await?.advice(job.window.lookback) {
            tracing::warn!(job = %job.name, "{advice}");
        }
        Ok(())
    }

    /// What pages have met since D before the sweep began, the sweep's own pages among them.
    async fn held_against(
        &self,
        row: &JobRow,
        lease: &JobLease,
        sweep: &SweepView,
    ) -> Result<Held, StoreError> {
        let fence = self.store.sighting_fence(lease).await?;
        let since = touched_since(sweep.created_at, sweep.reach);
        let (mut absence, mut after) = (Absence::new(since), 0);
        loop {
            let touched = self.store.touched(row.id, since, after, fence, AT_ONCE).await?;
            if touched.is_all {
                return Ok(Held { absence, fence });
            }
            after = touched.up_to;
            absence.touch(touched.marks);
        }
    }
}
