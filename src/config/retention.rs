//! `retention`: how long what is stored is kept, and whether that is long enough for the jobs.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{
    de::Spanned,
    error::{Problem, Problems},
    file::RetentionFile,
    job::Job,
    values::duration,
};
use crate::domain::{
    retention::{Retention, shortest_for_keys},
    units::format_duration,
};

/// What is never purged.
const NEVER: &str = "never";

/// Runs younger than this may still be asked about.
const SHORTEST_FOR_PAGES: Duration = Duration::from_hours(24);

/// How long things are kept; `None` where something in it is wrong.
pub(super) fn retention(
    file: Option<&Spanned<RetentionFile>>,
    jobs: &BTreeMap<String, Arc<Job>>,
    problems: &Problems,
) -> Option<Retention> {
    let default = Retention::default();
    let Some(file) = file else { return Some(default) };
    let before = problems.count();
    let kept = |given: &Option<Spanned<String>>, default| match given {
        None => default,
        Some(text) if text.trim() == NEVER => None,
        Some(text) => duration(text, problems),
    };
    let retention = Retention {
        payloads: kept(&file.payloads, default.payloads),
        attempts: kept(&file.attempts, default.attempts),
        pages: kept(&file.pages, default.pages),
        keys: kept(&file.keys, default.keys),
    };
    if problems.count() > before {
        return None;
    }
    check_attempts(file, &retention, problems);
    if let (Some(pages), Some(given)) = (retention.pages, &file.pages)
        && pages < SHORTEST_FOR_PAGES
    {
        let problem = Problem::new(given.span, format!("`pages` cannot be {}", given.quoted()));
        problems.add(problem.expected("`1d` or longer, or `never`"));
    }
    if let (Some(keys), Some(given)) = (retention.keys, &file.keys) {
        check_keys(keys, given, jobs, problems);
    }
    (problems.count() == before).then_some(retention)
}

/// An event's row goes with its body, if that is still there.
fn check_attempts(file: &Spanned<RetentionFile>, retention: &Retention, problems: &Problems) {
    let Some(attempts) = retention.attempts else { return };
    if retention.payloads.is_some_and(|payloads| payloads <= attempts) {
        return;
    }
    let shown = |kept: Option<Duration>| kept.map_or_else(|| NEVER.to_owned(), format_duration);
    let span = [&file.attempts, &file.payloads].into_iter().flatten().map(|text| text.span).next();
    let message = format!(
        "`attempts` ({}) is shorter than `payloads` ({}), but an event's body goes with its row at the latest",
        shown(retention.attempts),
        shown(retention.payloads),
    );
    let problem = Problem::new(span.unwrap_or(file.span), message);
    problems.add(problem.help("make `attempts` as long as `payloads`, or longer"));
}

/// What a job reads again has to be known still.
fn check_keys(
    keys: Duration,
    given: &Spanned<String>,
    jobs: &BTreeMap<String, Arc<Job>>,
    problems: &Problems,
) {
    let forgetful: Vec<&Arc<Job>> = jobs.values().filter(|job| job.forgets_keys()).collect();
    if forgetful.is_empty() && !jobs.is_empty() {
        let message = "`keys` does nothing: no job has versions that are instants, or asks by them";
        problems.warn(given.span, message);
    }
    let read_again = |job: &Arc<Job>| {
        let window = &job.window;
        window.lookback + window.settle + window.granularity + window.step.unwrap_or_default()
    };
    let longest = forgetful.into_iter().max_by_key(|job| read_again(job));
    let shortest = shortest_for_keys(longest.map(read_again).unwrap_or_default());
    if keys >= shortest {
        return;
    }
    let problem = Problem::new(given.span, format!("`keys` cannot be {}", given.quoted()))
        .expected(format!("`{}` or longer, or `never`", format_duration(shortest)));
    problems.add(match longest {
        Some(job) => problem.help(format!(
            "the job `{}` reads {} again (`lookback`, `settle` and `step`); what it meets there must still be known",
            job.name,
            format_duration(read_again(job)),
        )),
        None => problem,
    });
}
