//! What the demo shows while it runs: counters that are drawn over one another on a terminal, and a line
//! now and then elsewhere.

use std::{
    io::IsTerminal,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use indicatif::{ProgressBar, ProgressStyle};
use tokio::sync::broadcast::{self, error::TryRecvError};

use super::{lock, receiver::Received, source::Habits};
use crate::{domain::run::RunStatus, engine::RunReport};

/// Elsewhere than on a terminal one of so many drawings becomes a line.
const LINE_EVERY: u64 = 10;

/// Draws what is going on.
#[derive(Debug)]
pub(super) struct Screen {
    bar: Option<ProgressBar>,
    drawn: AtomicU64,
    reports: Mutex<broadcast::Receiver<RunReport>>,
    totals: Mutex<Totals>,
    habits: Arc<Habits>,
    received: Arc<Mutex<Received>>,
}

#[derive(Debug, Default)]
struct Totals {
    runs: u64,
    failed: u64,
    seen: u64,
    dropped: u64,
}

impl Screen {
    pub(super) fn new(
        reports: broadcast::Receiver<RunReport>,
        habits: Arc<Habits>,
        received: Arc<Mutex<Received>>,
    ) -> Self {
        println!(
            "A source with every bad habit is polled once a second; a moody receiver stands where n8n would.\n"
        );
        let style = ProgressStyle::with_template("{spinner} {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_spinner());
        let bar = std::io::stderr().is_terminal().then(|| ProgressBar::new_spinner().with_style(style));
        Self {
            bar,
            drawn: AtomicU64::new(0),
            reports: Mutex::new(reports),
            totals: Mutex::new(Totals::default()),
            habits,
            received,
        }
    }

    /// Draws the counters as they stand.
    pub(super) fn draw(&self) {
        let text = self.text();
        let drawn = self.drawn.fetch_add(1, Relaxed);
        match &self.bar {
            Some(bar) => {
                bar.set_message(text.join("\n  "));
                bar.tick();
            }
            None if drawn.is_multiple_of(LINE_EVERY) => {
                println!("{}", text.last().map_or("", String::as_str));
            }
            None => {}
        }
    }

    /// Leaves the last counters standing.
    pub(super) fn close(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        println!("{}\n", self.text().join("\n"));
    }

    fn text(&self) -> [String; 4] {
        let mut totals = lock(&self.totals);
        let mut reports = lock(&self.reports);
        loop {
            match reports.try_recv() {
                Ok(report) => totals.add(&report),
                Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        let habits = &self.habits;
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        let received = lock(&self.received);
        [
            format!(
                "source    {} requests: {} rows again, {} older versions after newer, {} moved mid-walk, {} times 429, {} broken answers",
                count(&habits.requests),
                count(&habits.repeated),
                count(&habits.older),
                count(&habits.moved),
                count(&habits.too_many),
                count(&habits.broken),
            ),
            format!("polled    {} runs, {} failed and made good", totals.runs, totals.failed),
            format!("dropped   {} of {} rows: known already", totals.dropped, totals.seen),
            format!(
                "sent      {} changes arrived; the receiver refused {} times and was asked again",
                received.arrived.len(),
                received.refused,
            ),
        ]
    }
}

impl Totals {
    fn add(&mut self, report: &RunReport) {
        self.runs += 1;
        self.failed += u64::from(report.status == RunStatus::Failed);
        self.seen += report.counts.records;
        self.dropped += report.counts.unchanged + report.counts.stale;
    }
}
