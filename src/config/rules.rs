//! What a job asks for and what it calls a change: the stream's defaults with the job's own keys on top.

use std::time::Duration;

use super::{
    connector_file::StreamDefaultsFile,
    de::Spanned,
    error::{Problem, Problems},
    file::{ChangesFile, WindowFile},
    incremental_file::{IncrementalFile, RangeEnd},
    values::{duration, path, paths},
};
use crate::domain::{
    decide::Detect,
    event::ChangeKind,
    instant::Instant,
    json_path::JsonPath,
    numbers::Numbers,
    version::{Version, VersionFormat},
    version_field::OnMissingVersion,
    window::WindowRule,
};

/// How far behind the watermark a run reads where nothing else is said.
const LOOKBACK: Duration = Duration::from_mins(5);

/// Checks the window of a stream or job. A stream without versions has none.
pub(super) fn check_window(
    window: &Spanned<WindowFile>,
    incremental: Option<&Spanned<IncrementalFile>>,
    problems: &Problems,
) {
    let useful = incremental.filter(|incremental| !incremental.goes_by_token());
    let Some(incremental) = useful else {
        let (why, help) = match incremental {
            None => (
                "the records of this stream have no versions",
                "each run of this stream reads everything and compares contents: remove the window",
            ),
            Some(_) => (
                "this stream goes on from a token, which knows no times",
                "the source itself says what is new: remove the window",
            ),
        };
        let keys = [
            ("start", &window.start),
            ("lookback", &window.lookback),
            ("settle", &window.settle),
            ("step", &window.step),
        ];
        for (key, value) in keys.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?))) {
            let message = format!("`{key}` does nothing here: {why}");
            problems.add(Problem::new(value.span, message).help(help));
        }
        return;
    };
    // A format that cannot be read is told of where the stream is built.
    let format = format_of(Some(incremental));
    if let Some(text) = &window.start {
        start(text, &format, problems);
    }
    for (key, text) in [("lookback", &window.lookback), ("settle", &window.settle), ("step", &window.step)] {
        let Some(text) = text else { continue };
        duration(text, problems);
        if !format.is_time() {
            let message = format!("`{key}` does nothing here: the versions of this stream are plain numbers");
            problems.add(Problem::new(text.span, message));
        }
    }
}

/// Checks what can be checked of a window while its stream is not known.
pub(super) fn check_form(window: &WindowFile, problems: &Problems) {
    for text in [&window.lookback, &window.settle, &window.step].into_iter().flatten() {
        duration(text, problems);
    }
    if let Some(text) = window.start.as_ref().filter(|text| text.trim().parse::<i64>().is_err()) {
        start(text, &VersionFormat::Auto, problems);
    }
}

/// How a stream spells its versions; `auto` where it has none or spells them in a way that is told of
/// elsewhere.
fn format_of(incremental: Option<&Spanned<IncrementalFile>>) -> VersionFormat {
    let written = incremental.and_then(|incremental| incremental.format.as_ref());
    written.and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// The window of a job.
pub(super) fn window(
    job: Option<&Spanned<WindowFile>>,
    defaults: Option<&StreamDefaultsFile>,
    incremental: Option<&Spanned<IncrementalFile>>,
    problems: &Problems,
) -> Option<WindowRule> {
    let before = problems.count();
    if let Some(job) = job {
        check_window(job, incremental, problems);
    }
    let defaults = defaults.and_then(|defaults| defaults.window.as_ref());
    let of = |key: fn(&WindowFile) -> &Option<Spanned<String>>| {
        let own = job.and_then(|window| key(window).as_ref());
        own.or_else(|| defaults.and_then(|window| key(window).as_ref()))
    };
    let format = format_of(incremental);
    let request_format = incremental
        .and_then(|incremental| incremental.request_format.as_ref())
        .and_then(|text| text.parse::<VersionFormat>().ok());
    let length =
        |text: Option<&Spanned<String>>, default| text.map_or(Some(default), |text| duration(text, problems));
    let lookback = of(|window| &window.lookback);
    let rule = WindowRule {
        start: match of(|window| &window.start) {
            Some(text) => Some(start(text, &format, problems)?),
            None => None,
        },
        lookback: length(lookback, LOOKBACK)?,
        settle: length(of(|window| &window.settle), Duration::ZERO)?,
        step: match of(|window| &window.step) {
            Some(text) => Some(step(text, of(|window| &window.start), problems)?),
            None => None,
        },
        granularity: match incremental.and_then(|incremental| incremental.granularity.as_ref()) {
            Some(text) => duration(text, problems)?,
            None => granularity(&format),
        },
        precision: request_format.as_ref().unwrap_or(&format).precision(),
        open_start: incremental.and_then(|incremental| incremental.range_start) == Some(RangeEnd::Open),
        open_end: incremental.and_then(|incremental| incremental.range_end) == Some(RangeEnd::Open),
        is_time: format.is_time(),
    };
    if let Some(text) = lookback.filter(|_| rule.lookback.is_zero() && rule.is_time && incremental.is_some())
    {
        problems.warn(
            text.span,
            "with a lookback of 0 a row that shows up late at the source is never met; `5m` is the default",
        );
    }
    (problems.count() == before).then_some(rule)
}

/// How much is asked for at once: something, from a beginning.
fn step(text: &Spanned<String>, start: Option<&Spanned<String>>, problems: &Problems) -> Option<Duration> {
    let length = duration(text, problems)?;
    let problem = if start.is_none() {
        Problem::new(text.span, "`step` needs a beginning").help("add `start: 2026-01-01` to the window")
    } else if length.is_zero() {
        Problem::new(text.span, "a step of no length never gets anywhere").expected("a duration such as `1d`")
    } else {
        return Some(length);
    };
    problems.add(problem);
    None
}

/// Checks that a stream whose window has steps can be asked for an end.
pub(super) fn check_steps(
    job: Option<&Spanned<WindowFile>>,
    defaults: Option<&StreamDefaultsFile>,
    bounded: bool,
    problems: &Problems,
) {
    let defaults = defaults.and_then(|defaults| defaults.window.as_ref());
    let step =
        job.and_then(|window| window.step.as_ref()).or(defaults.and_then(|window| window.step.as_ref()));
    if let Some(step) = step.filter(|_| !bounded) {
        let message = "`step` does nothing here: the requests of this stream never use `window.end`";
        let help = "a source that cannot be asked for an end is read in one walk: remove `step`";
        problems.add(Problem::new(step.span, message).help(help));
    }
}

/// The step between two versions that a format can spell, where the connector says nothing else: many
/// sources cut their timestamps to the second whatever they print.
fn granularity(format: &VersionFormat) -> Duration {
    if !format.is_time() {
        return Duration::ZERO;
    }
    Duration::from_micros(u64::try_from(format.precision()).unwrap_or(1))
}

fn start(text: &Spanned<String>, format: &VersionFormat, problems: &Problems) -> Option<Version> {
    if !format.is_time() {
        let number = format.read(&text.value.as_str().into(), None).ok().flatten();
        if number.is_none() {
            let problem =
                Problem::new(text.span, format!("{} is not a version of this stream", text.quoted()));
            problems.add(problem.expected("a number: the versions of this stream are plain numbers"));
        }
        return number;
    }
    let written = text.trim();
    let instant = match written.parse::<jiff::civil::Date>() {
        Ok(date) if written.len() == 10 => jiff::tz::TimeZone::UTC
            .to_timestamp(date.to_datetime(jiff::civil::Time::midnight()))
            .ok()
            .map(Instant::from),
        _ => written.parse::<Instant>().ok(),
    };
    if instant.is_none() {
        let problem = Problem::new(text.span, format!("{} is neither a date nor a timestamp", text.quoted()));
        problems.add(problem.expected(
            "a date such as `2026-01-01` (in UTC), or a timestamp with its offset such as `2026-01-01T12:00:00+01:00`",
        ));
    }
    instant.map(|instant| Version(instant.micros()))
}

/// What a job calls a change.
#[derive(Debug)]
pub(super) struct Changes {
    pub(super) detect: Detect,
    pub(super) ignored: Vec<JsonPath>,
    pub(super) on_missing_version: OnMissingVersion,
    pub(super) numbers: Numbers,
    pub(super) emit: Vec<ChangeKind>,
}

/// Checks what a stream or job says about changes.
pub(super) fn check_changes(changes: &Spanned<ChangesFile>, has_versions: bool, problems: &Problems) {
    if let Some(detect) =
        changes.detect.as_ref().filter(|detect| detect.value != Detect::Content && !has_versions)
    {
        let message = "the records of this stream have no versions to detect changes by";
        problems.add(Problem::new(detect.span, message).expected("`content`, which is the default here"));
    }
    if let Some(rule) = changes.on_missing_version.as_ref().filter(|_| !has_versions) {
        let message = "`on_missing_version` does nothing here: the records of this stream have no versions";
        problems.add(Problem::new(rule.span, message));
    }
    for text in changes.ignore_fields.iter().flatten() {
        path(text, problems);
    }
    let Some(emit) = &changes.emit else { return };
    if emit.is_empty() && emit.whole {
        let problem = Problem::new(emit.span, "`emit` is empty, so the job would never send anything");
        problems.add(problem.expected("some of `created`, `updated`, `deleted`, `restored`"));
    }
}

/// What a job calls a change, the stream's defaults below its own keys.
pub(super) fn changes(
    job: Option<&Spanned<ChangesFile>>,
    defaults: Option<&StreamDefaultsFile>,
    incremental: Option<&Spanned<IncrementalFile>>,
    problems: &Problems,
) -> Option<Changes> {
    let before = problems.count();
    if let Some(job) = job {
        check_changes(job, incremental.is_some(), problems);
    }
    let given = [job, defaults.and_then(|defaults| defaults.changes.as_ref())];
    let given: Vec<&ChangesFile> = given.into_iter().flatten().map(|changes| &changes.value).collect();
    let detect = given.iter().find_map(|changes| changes.detect.as_ref()).map(|detect| detect.value);
    let ignore = given.iter().find_map(|changes| changes.ignore_fields.as_ref());
    let missing = given.iter().find_map(|changes| changes.on_missing_version.as_ref());
    let numbers = given.iter().find_map(|changes| changes.numbers);
    let emit = given.iter().find_map(|changes| changes.emit.as_ref());
    // The version's own fields differ with every version: they are no content.
    let fields = match incremental.and_then(|incremental| incremental.field.as_ref()) {
        Some(field) => paths(field, problems),
        None => Some(Vec::new()),
    };
    let ignore: Option<Vec<JsonPath>> =
        ignore.into_iter().flatten().map(|text| path(text, problems)).collect();
    let ignored = fields.zip(ignore).map(|(fields, ignore)| [fields, ignore].concat());
    let mut kinds = match emit {
        Some(emit) => emit.iter().map(|kind| kind.value).collect(),
        None => ChangeKind::ALL.to_vec(),
    };
    kinds.sort_unstable();
    kinds.dedup();
    let detect = detect.unwrap_or(if incremental.is_some() { Detect::Version } else { Detect::Content });
    let changes = Changes {
        detect,
        ignored: ignored?,
        on_missing_version: missing.map_or_else(OnMissingVersion::default, |missing| missing.value),
        numbers: numbers.unwrap_or_default(),
        emit: kinds,
    };
    (problems.count() == before).then_some(changes)
}
