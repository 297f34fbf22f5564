//! What a run is for: the window at the watermark, or a task beside it.

use std::time::Duration;

use crate::{
    config::job::Job,
    domain::{
        event::ChangeKind,
        page::{Replay, SeenRecord},
        run::RunKind,
        task::{Resend, TaskKind},
        version::Version,
        window::WindowRule,
    },
    store::TaskView,
};

/// What a run is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Errand<'a> {
    /// The window at the watermark.
    Live,
    /// A task.
    Task(&'a TaskView),
}

impl Errand<'_> {
    /// The kind of its runs.
    pub(super) fn kind(self) -> RunKind {
        match self {
            Self::Live => RunKind::Live,
            Self::Task(task) => task.kind.into(),
        }
    }

    /// From where on it reads, with its own watermark.
    pub(super) fn window(self, job: &Job) -> WindowRule {
        match self {
            Self::Live => job.window,
            // It looks back behind nothing: what it has read before, it has read in this task.
            Self::Task(task) => WindowRule { start: task.plan.from, lookback: Duration::ZERO, ..job.window },
        }
    }

    /// Where its window ends; `None` where it is open.
    pub(super) const fn end(self) -> Option<Version> {
        match self {
            Self::Live => None,
            Self::Task(task) => task.plan.to,
        }
    }

    /// Whether it decides a record that the source returned.
    pub(super) fn wants(self, record: &SeenRecord) -> bool {
        match self {
            Self::Live => true,
            // Whatever a sweep is shown is there.
            Self::Task(task) => task.kind == TaskKind::Reconcile || task.plan.wants(record),
        }
    }

    /// Whether it decides every record of its window.
    pub(super) fn takes_all(self) -> bool {
        match self {
            Self::Live => true,
            Self::Task(task) => task.plan.keys.is_empty(),
        }
    }

    /// The kinds of change that it sends.
    pub(super) fn emit(self, job: &Job) -> Vec<ChangeKind> {
        match self {
            Self::Task(task) if task.plan.resend == Resend::None => Vec::new(),
            Self::Live | Self::Task(_) => job.emit.clone(),
        }
    }

    /// How its events are marked.
    pub(super) fn replay(self) -> Option<Replay> {
        match self {
            Self::Task(task) if task.kind == TaskKind::Replay => Some(Replay {
                task: task.id,
                uid: task.uid.clone(),
                resends: task.plan.resend == Resend::All,
            }),
            Self::Live | Self::Task(_) => None,
        }
    }
}
