//! `onlynew why JOB --run N`: what a run asked for, what its pages decided, how it ended and what it covered.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Asked;
use crate::{
    cli::{Exit, Session, table},
    domain::{
        coverage::Covered,
        facts::{PageFact, RunFacts},
        run::{RunId, RunStatus},
        sighting::{Finding, Silent},
    },
    store::RunView,
};

pub(super) async fn tell(session: &Session, asked: &Asked, run: i64) -> anyhow::Result<Exit> {
    let Some((view, facts)) = asked.app.store.run_facts(asked.row.id, RunId(run)).await? else {
        let error = format!("the job `{}` has no run {run}", asked.job.name);
        let last = asked.app.view_of(&asked.job).await?.and_then(|view| view.last_run);
        let last = last.map(|last| format!("; its last one is {}", last.id.0)).unwrap_or_default();
        session.answer(&json!({"ok": false, "error": error}), || format!("{error}{last}"));
        return Ok(Exit::Failed);
    };
    let answer = json!({
        "job": asked.job.name, "run": view, "from": asked.value(facts.from),
        "pages": facts.pages.iter().map(page_json).collect::<Vec<_>>(),
        "covered": facts.covered.iter().map(|covered| covered_json(asked, covered)).collect::<Vec<_>>(),
    });
    session.answer(&answer, || shown(asked, &view, &facts));
    Ok(Exit::Good)
}

fn shown(asked: &Asked, view: &RunView, facts: &RunFacts) -> String {
    let counts = view.counts;
    let ended = match (view.status, view.ended_at) {
        (RunStatus::Running, _) => "not yet, or cut off by a crash".to_owned(),
        (_, ended) => table::or_dash(ended.map(table::to_the_second)),
    };
    let status = match &view.reason {
        Some(reason) => format!("{}: {reason}", view.status.name()),
        None => view.status.name().to_owned(),
    };
    let covered: Vec<String> = facts.covered.iter().map(|covered| covered_text(asked, covered)).collect();
    let resumed = if view.resumed { ", went on where one before it was cut off" } else { "" };
    let facts_told = table::pairs([
        ("run", format!("{} of {}, {}{resumed}", view.id.0, asked.job.name, view.kind.name())),
        ("began", table::to_the_second(view.started_at)),
        ("ended", ended),
        ("status", status),
        ("asked from", facts.from.map_or_else(|| "no lower bound".to_owned(), |from| asked.show(from))),
        ("covered", if covered.is_empty() { "nothing to its end".to_owned() } else { covered.join("\n") }),
        ("read", format!("{} requests, {} pages, {} records", view.requests, view.pages, counts.records)),
        (
            "left",
            format!(
                "{} events, {} quarantined, {} skipped",
                counts.events, counts.quarantined, counts.skipped
            ),
        ),
    ]);
    if facts.pages.is_empty() {
        return format!("{facts_told}\n\nno page of it held a record");
    }
    let rows = facts.pages.iter().map(|page| {
        [
            if page.page == 0 { "accepted".to_owned() } else { page.page.to_string() },
            table::to_the_second(page.asked_at),
            format!("{} ms", page.answered_at.since(page.asked_at).as_millis()),
            page.found.values().sum::<u64>().to_string(),
            decided(&page.found),
        ]
    });
    format!("{facts_told}\n\n{}", table::table(["page", "asked", "took", "records", "decided"], rows))
}

/// `3 created, 1 updated_by_version (not sent), 96 known`.
fn decided(found: &BTreeMap<(Finding, Option<Silent>), u64>) -> String {
    let told = found.iter().map(|((finding, silent), count)| {
        let silence = match silent {
            None => "",
            Some(Silent::Baseline) => " (baseline)",
            Some(Silent::NotSent) => " (not sent)",
        };
        format!("{count} {}{silence}", finding.name())
    });
    told.collect::<Vec<_>>().join(", ")
}

fn page_json(page: &PageFact) -> Value {
    let found = page
        .found
        .iter()
        .map(|((finding, silent), count)| json!({"found": finding, "silent": silent, "records": count}));
    json!({
        "page": page.page, "asked_at": page.asked_at, "answered_at": page.answered_at,
        "decided": found.collect::<Vec<_>>(),
    })
}

fn covered_json(asked: &Asked, covered: &Covered) -> Value {
    json!({"from": asked.value(covered.from), "to": asked.value(covered.to), "read_at": covered.read_at})
}

fn covered_text(asked: &Asked, covered: &Covered) -> String {
    match (covered.from, covered.to) {
        (None, None) => "everything".to_owned(),
        (from, to) => {
            let from = from.map_or_else(|| "the beginning".to_owned(), |from| asked.show(from));
            let to = to.map_or_else(|| "the end".to_owned(), |to| asked.show(to));
            format!("from {from} up to {to}")
        }
    }
}
