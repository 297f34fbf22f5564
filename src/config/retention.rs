//! `retention`: how long what is stored is kept, and whether that is long enough for the jobs.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{
    de::Spanned,
    error::{Problem, Problems},
    file::RetentionFile,
    job::Job,
};
use crate::domain::{
    retention::{Retention, shortest_for_keys},
    units::{format_duration, parse_duration},
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
    let or = |given: &Option<Spanned<String>>, default: Option<Duration>| {
        given.as_ref().map_or(default, |given| lifetime(given, problems))
    };
    let (pages, keys) = (or(&file.pages, default.pages), or(&file.keys, default.keys));
    let (mut payloads, mut attempts) =
        (or(&file.payloads, default.payloads), or(&file.attempts, default.attempts));
    if problems.count() > before {
        return None;
    }
    let is_longer = attempts.is_some_and(|attempts| payloads.is_none_or(|payloads| payloads > attempts));
    match (&file.payloads, &file.attempts) {
        _ if !is_longer => {}
        (None, _) => payloads = attempts,
        (_, None) => attempts = payloads,
        (Some(body), Some(row)) => {
            let message = format!(
                "`attempts` ({}) is shorter than `payloads` ({}), but a body goes with its event at the latest",
                row.shown(),
                body.shown(),
            );
            let problem = Problem::new(row.span, message);
            problems.add(problem.help("make `attempts` as long as `payloads`, or longer"));
        }
    }
    if let (Some(kept), Some(given)) = (pages, &file.pages)
        && kept < SHORTEST_FOR_PAGES
    {
        let problem = Problem::new(given.span, format!("`pages` cannot be {}", given.quoted()));
        problems.add(problem.expected("`1d` or longer, or `never`"));
    }
    if let (Some(kept), Some(given)) = (pages, &file.pages) {
        check_pages(kept, given, jobs, problems);
    }
    if let (Some(kept), Some(given)) = (keys, &file.keys) {
        check_keys(kept, given, jobs, problems);
    }
    (problems.count() == before).then_some(Retention { payloads, attempts, pages, keys })
}

/// How long something is kept; `None` for ever, and where it cannot be read.
pub(super) fn lifetime(text: &Spanned<String>, problems: &Problems) -> Option<Duration> {
    if text.trim() == NEVER {
        return None;
    }
    let lifetime = parse_duration(text);
    if lifetime.is_none() {
        let problem = Problem::new(text.span, format!("{} is not a time to keep things for", text.quoted()));
        problems.add(problem.expected("a duration such as `30d`, or `never`"));
    }
    lifetime
}

/// A sweep goes by all that was met for as long as the source may take to show a change.
fn check_pages(
    pages: Duration,
    given: &Spanned<String>,
    jobs: &BTreeMap<String, Arc<Job>>,
    problems: &Problems,
) {
    let reach = |job: &Arc<Job>| job.window.lookback + job.window.settle;
    let farthest = jobs.values().filter(|job| job.sweep.is_some()).max_by_key(|job| reach(job));
    let Some(job) = farthest.filter(|job| reach(job) > pages) else { return };
    let problem = Problem::new(given.span, format!("`pages` cannot be {}", given.quoted()));
    problems.add(problem.expected(format!("`{}` or longer, or `never`", format_duration(reach(job)))).help(
        format!(
            "a sweep of the job `{}` goes by what was met that long before it (`lookback` and `settle`)",
            job.name
        ),
    ));
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
