//! How a job is told that a record is gone: not at all, by the source's own marks, or by sweeps.

use std::time::Duration;

use super::{
    de::Spanned,
    error::{Problem, Problems},
    file::{DeleteMode, DeletesFile, ScheduleFile},
    job::SweepRule,
    values::{duration, unusable},
};
use crate::domain::{fires::Schedule, reconcile::Share, version_field::OnMissingVersion};

/// How often a job is swept where nothing else is said.
const EVERY: Duration = Duration::from_hours(24);

/// How a job is told that a record is gone.
#[derive(Debug)]
pub(super) struct Deletes {
    /// Whether the source's marks count.
    pub(super) by_flag: bool,
    /// When and how it is swept.
    pub(super) sweep: Option<SweepRule>,
}

/// What of a stream and a job decides how it can be told that a record is gone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    /// The source marks deleted records.
    pub(super) has_flags: bool,
    /// The source is asked by a token.
    pub(super) goes_by_token: bool,
    /// What a record without a version is.
    pub(super) on_missing_version: OnMissingVersion,
}

/// What a job says of deletes; `None` where it is wrong. `cron` reads a cron schedule.
pub(super) fn deletes(
    file: Option<&Spanned<DeletesFile>>,
    told: Told,
    cron: impl Fn(&ScheduleFile) -> Option<Schedule>,
    problems: &Problems,
) -> Option<Deletes> {
    let before = problems.count();
    let Some(file) = file else { return Some(Deletes { by_flag: true, sweep: None }) };
    let mode = file.mode.value;
    if mode != DeleteMode::Reconcile {
        let keys = [
            ("every", file.every.as_ref().map(|text| text.span)),
            ("schedule", file.schedule.as_ref().map(|schedule| schedule.span)),
            ("max_ratio", file.max_ratio.as_ref().map(|text| text.span)),
        ];
        for (key, span) in keys.into_iter().filter_map(|(key, span)| Some((key, span?))) {
            let problem =
                Problem::new(span, format!("`{key}` does nothing here: only `mode: reconcile` sweeps"));
            problems.add(problem);
        }
    }
    match mode {
        DeleteMode::Flag if !told.has_flags => {
            let problem = Problem::new(file.mode.span, "this stream marks no deleted records");
            problems.add(problem.help(
                "`deleted_when` in the source says which record is marked; `mode: reconcile` finds what is gone without marks",
            ));
        }
        DeleteMode::None | DeleteMode::Flag => {}
        DeleteMode::Reconcile => check_sweepable(file, told, problems),
    }
    let sweep =
        if mode == DeleteMode::Reconcile { sweep(file, cron, problems).map(Some) } else { Some(None) };
    if problems.count() > before {
        return None;
    }
    Some(Deletes { by_flag: mode != DeleteMode::None, sweep: sweep? })
}

/// A sweep needs a source that lists what there is, and keys of all that it lists.
fn check_sweepable(file: &Spanned<DeletesFile>, told: Told, problems: &Problems) {
    if told.goes_by_token {
        let message = "this stream cannot be swept: it goes on from a token, and never lists what there is";
        let problem = Problem::new(file.mode.span, message);
        problems
            .add(problem.help("such a source tells of deletes itself: `mode: flag`, with `deleted_when`"));
    }
    if told.on_missing_version == OnMissingVersion::Skip {
        let message = "`on_missing_version: skip` leaves records out, which a sweep cannot tell from those that are gone";
        let problem = Problem::new(file.mode.span, message);
        problems.add(problem.expected("`on_missing_version: include` beside `mode: reconcile`"));
    }
}

fn sweep(
    file: &DeletesFile,
    cron: impl Fn(&ScheduleFile) -> Option<Schedule>,
    problems: &Problems,
) -> Option<SweepRule> {
    let schedule = match (&file.every, &file.schedule) {
        (None, None) => Some(Schedule::Every(EVERY)),
        (None, Some(schedule)) => cron(schedule),
        (Some(every), None) => {
            let period = duration(every, problems);
            if period.is_some_and(|period| period.as_secs() < 1) {
                let problem = Problem::new(every.span, format!("{} is too short a period", every.quoted()));
                problems.add(problem.expected("`1s` or longer"));
            }
            period.map(Schedule::Every)
        }
        (Some(_), Some(schedule)) => {
            let problem = Problem::new(schedule.span, "`deletes` has both `every` and `schedule`");
            problems.add(problem.help("keep one of the two"));
            None
        }
    };
    let max_ratio = match &file.max_ratio {
        None => Some(Share::TENTH),
        Some(text) => {
            let share = Share::parse(text);
            if share.is_none() {
                let problem = unusable(text, format!("{} is not a share", text.quoted()));
                problems.add(problem.expected("a percentage such as `10%`, or a fraction such as `0.1`"));
            }
            share
        }
    };
    Some(SweepRule { schedule: schedule?, max_ratio: max_ratio? })
}
