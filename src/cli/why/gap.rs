//! `onlynew why JOB --gap FROM TO`: which versions were read completely, by which runs, and which never.

use serde_json::{Value, json};

use super::Asked;
use crate::{
    cli::{Exit, Session, bad_input, table},
    domain::{
        coverage::{Part, Read, parts},
        instant::Instant,
        version::{Version, VersionFormat},
    },
    store::RunView,
};

/// How many parts and runs a person is shown.
const SHOWN: usize = 20;

pub(super) async fn tell(session: &Session, asked: &Asked, from: &str, to: &str) -> anyhow::Result<Exit> {
    let stream = &asked.job.stream;
    if stream.incremental.is_none() || stream.sync.is_some() {
        return Err(bad_input(format!(
            "`{0}` is not asked for by versions: every run of it that is complete has read everything; \
             `onlynew why {0} --run N` tells what one did",
            asked.job.name
        )));
    }
    let (from, to) = (version(asked, from)?, version(asked, to)?);
    if from >= to {
        return Err(bad_input("FROM has to be below TO".to_owned()));
    }
    // Where versions are instants, a run that began before one cannot have read it.
    let since = asked.job.window.is_time.then(|| Instant::from_micros(from.0));
    let coverage = asked.app.store.coverage(asked.row.id, (from, to), since).await?;
    let parts = parts(from, to, &coverage.covered);
    let never = parts.iter().filter(|part| part.read.is_none()).count();
    let left_out = parts.len().saturating_sub(usize::try_from(asked.limit).unwrap_or(usize::MAX));
    let told = parts.iter().skip(left_out).map(|part| part_json(asked, part));
    let answer = json!({
        "job": asked.job.name, "from": asked.value(Some(from)), "to": asked.value(Some(to)), "complete": never == 0,
        "parts": told.collect::<Vec<_>>(), "more_parts": left_out,
        "cut_off": coverage.cut_off, "more_cut_off": coverage.more_cut_off,
    });
    session.answer(&answer, || {
        let verdict = match never {
            0 => format!("{} has read all of it to the end", asked.job.name),
            1 => format!("a part of it was never read to the end by {}", asked.job.name),
            count => format!("{count} parts of it were never read to the end by {}", asked.job.name),
        };
        let cut_off = cut_off(&coverage.cut_off, coverage.more_cut_off);
        format!("{verdict}\n\n{}{cut_off}", parts_table(asked, &parts))
    });
    Ok(if never == 0 { Exit::Good } else { Exit::Failed })
}

/// A version as a person writes it: a number, a timestamp, or a day or time in the stream's zone.
fn version(asked: &Asked, text: &str) -> anyhow::Result<Version> {
    let incremental = asked.job.stream.incremental.as_ref();
    let declared = asked.job.version_format();
    let zone =
        incremental.and_then(|incremental| incremental.timezone.clone()).unwrap_or(jiff::tz::TimeZone::UTC);
    let formats =
        if declared.is_time() { vec![VersionFormat::Iso8601, VersionFormat::Date] } else { vec![declared] };
    let value = Value::from(text);
    let read = formats.iter().find_map(|format| format.read(&value, Some(&zone)).ok().flatten());
    read.ok_or_else(|| {
        let expected = if asked.job.window.is_time {
            "a day (2026-11-30) or a timestamp (2026-11-30T10:00:00Z)"
        } else {
            "a number, as the versions of this job are"
        };
        bad_input(format!("`{text}` is no version: write {expected}"))
    })
}

/// The parts that were never read, and of the others the first and the last.
fn parts_table(asked: &Asked, parts: &[Part]) -> String {
    let read = |read: Option<Read>| match read {
        Some(Read { at, run }) => format!("{} (run {})", table::to_the_second(at), run.0),
        None => "never".to_owned(),
    };
    let row = |part: &Part| {
        [
            asked.show(part.from),
            asked.show(part.to),
            read(part.read.map(|(first, _)| first)),
            part.read.map_or_else(String::new, |(_, last)| read(Some(last))),
        ]
    };
    let mut rows = Vec::new();
    let mut rest = parts;
    while let [part, ..] = rest {
        let run = rest.iter().take_while(|next| next.read.is_some() == part.read.is_some()).count();
        let (same, after) = rest.split_at(run);
        if let ([first, .., last], true) = (same, run > SHOWN) {
            rows.push(row(first));
            rows.push(["…".to_owned(), format!("{} more parts", run - 2), "read".to_owned(), String::new()]);
            rows.push(row(last));
        } else {
            rows.extend(same.iter().map(row));
        }
        rest = after;
    }
    table::table(["from", "up to", "first read", "last read"], rows)
}

fn cut_off(runs: &[RunView], more: u64) -> String {
    if runs.is_empty() {
        return String::new();
    }
    let hidden = more + runs.len().saturating_sub(SHOWN) as u64;
    let rows = runs.iter().skip(runs.len().saturating_sub(SHOWN)).map(|run| {
        [
            run.id.0.to_string(),
            table::to_the_second(run.started_at),
            run.status.name().to_owned(),
            table::or_dash(run.reason.as_ref()),
        ]
    });
    let table = table::table(["run", "began", "status", "reason"], rows);
    let older = if hidden > 0 { format!("\n({hidden} older ones are left out)") } else { String::new() };
    format!("\n\nruns that asked for a part of it and did not come to their end:\n{table}{older}")
}

fn part_json(asked: &Asked, part: &Part) -> Value {
    let read = |read: Option<Read>| read.map(|read| json!({"run": read.run, "at": read.at}));
    json!({
        "from": asked.value(Some(part.from)), "to": asked.value(Some(part.to)),
        "first_read": read(part.read.map(|(first, _)| first)), "last_read": read(part.read.map(|(_, last)| last)),
    })
}
