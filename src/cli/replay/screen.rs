//! How far a replay has come: a bar on a terminal, else a line now and then.

use std::{
    io::IsTerminal,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use super::{answer::shown, say};
use crate::{
    cli::{Session, sync::counted},
    config::job::Job,
    domain::{run::Counts, task::Plan, version::Version},
    engine::RunReport,
    store::TaskView,
};

/// What lies between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// How many parts a bar has.
const PARTS: u64 = 1_000;

/// Shows how far a replay has come.
pub(super) struct Screen<'a> {
    job: &'a Job,
    /// The window, where it is closed.
    window: Option<(Version, Version)>,
    bar: Option<ProgressBar>,
    /// When the last line was written, and what it said.
    last: Mutex<(Instant, String)>,
}

impl<'a> Screen<'a> {
    pub(super) fn new(session: &Session, job: &'a Job, plan: &Plan) -> Self {
        let window = plan.from.zip(plan.to);
        let is_seen = !session.json && std::io::stderr().is_terminal();
        let bar = is_seen.then(|| {
            let bar = match (window, ProgressStyle::with_template("{spinner} {msg} [{bar:30}] {percent}%")) {
                (Some(_), Ok(style)) => ProgressBar::new(PARTS).with_style(style.progress_chars("=> ")),
                _ => ProgressBar::new_spinner(),
            };
            let bar = bar.with_message(format!("replaying {}", job.name));
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self { job, window, bar, last: Mutex::new((Instant::now(), String::new())) }
    }

    pub(super) fn show_task(&self, task: &TaskView) {
        self.show(task.pages, &task.counts, task.reached.max(task.read_to), task.reason.as_deref());
    }

    pub(super) fn show_run(&self, report: &RunReport) {
        self.show(report.pages, &report.counts, None, None);
    }

    pub(super) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn show(&self, pages: u64, counts: &Counts, reached: Option<Version>, trouble: Option<&str>) {
        let told = [
            Some(counted(pages, "page")),
            Some(counted(counts.records, "record")),
            Some(counted(counts.events, "event")),
            reached.map(|version| match shown(version, Some(self.job)) {
                Value::String(text) => format!("read to {text}"),
                other => format!("read to {other}"),
            }),
            trouble.map(|trouble| format!("its last run: {trouble}")),
        ];
        let told = told.into_iter().flatten().collect::<Vec<_>>().join(", ");
        if let Some(bar) = &self.bar {
            if let Some(part) = self.window.zip(reached).map(|(window, reached)| part(window, reached)) {
                bar.set_position(part);
            }
            bar.set_message(format!("replaying {}: {told}", self.job.name));
            return;
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.0.elapsed() >= LINE_EVERY && last.1 != told {
            say(&told);
            *last = (Instant::now(), told);
        }
    }
}

/// How much of a window lies below a version.
fn part((from, to): (Version, Version), reached: Version) -> u64 {
    let (whole, read) = (i128::from(to.0) - i128::from(from.0), i128::from(reached.0) - i128::from(from.0));
    let part = read.clamp(0, whole.max(0)) * i128::from(PARTS) / whole.max(1);
    u64::try_from(part).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_stands_where_the_window_is_read_to() {
        let cases = [
            (0, 10, 5, 500),
            (0, 10, 10, 1_000),
            (0, 10, 99, 1_000),
            (5, 10, 1, 0),
            (i64::MIN, i64::MAX, 0, 500),
        ];
        for (from, to, reached, expected) in cases {
            assert_eq!(
                part((Version(from), Version(to)), Version(reached)),
                expected,
                "{from} {to} {reached}"
            );
        }
    }
}
