//! The story of a key: everything that happened to it, in order of time, in sentences; and where it stands now.

mod standing;
mod words;

use serde::Serialize;

use super::{
    event::ChangeKind,
    facts::{EventFact, KeyFacts, Reading},
    instant::Instant,
    sighting::Finding,
    version::Version,
};

pub use standing::{Outlook, standing};
pub use words::found;

/// One line of a story.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// When it happened.
    pub at: Instant,
    /// The event that it tells of.
    pub event: Option<String>,
    /// What happened.
    pub text: String,
}

/// How versions are shown.
pub type Show<'a> = &'a dyn Fn(Version) -> String;

/// The whole story of a key. Where it is `folded`, runs that found the same again are told in one line.
pub fn story(facts: &KeyFacts, show: Show<'_>, folded: bool) -> Vec<Line> {
    let mut told = readings(&facts.readings, show, folded);
    for event in &facts.events {
        told.extend(event_lines(facts, event));
    }
    // Stable, so that what happened in one moment stays in the order in which it was done.
    told.sort_by_key(|(order, _)| *order);
    told.into_iter().map(|(_, line)| line).collect()
}

/// The story of one event and its redeliveries alone, with the reading that it came from.
pub fn story_of_event(facts: &KeyFacts, id: &str, show: Show<'_>) -> Vec<Line> {
    let mine = || facts.events.iter().filter(|event| event.id == id);
    // A page is decided just before its events are stored, in the same transaction.
    let origin = mine().find(|event| event.redelivery == 0).and_then(|event| {
        let is_before = |reading: &&Reading| reading.decided_at <= event.created_at;
        facts.readings.iter().rev().filter(is_before).find(|reading| words::makes_event(reading))
    });
    let at = origin.map(|reading| reading.decided_at);
    let all = readings(&facts.readings, show, false).into_iter();
    let mut told: Vec<_> = all
        .zip(&facts.readings)
        .filter(|(_, reading)| Some(reading.decided_at) == at)
        .map(|(line, _)| line)
        .collect();
    for event in mine() {
        told.extend(event_lines(facts, event));
    }
    told.sort_by_key(|(order, _)| *order);
    told.into_iter().map(|(_, line)| line).collect()
}

/// Where a line stands: by its moment, and in one moment readings, events and attempts as they follow from one another.
type Order = (Instant, u8);

fn readings(readings: &[Reading], show: Show<'_>, folded: bool) -> Vec<(Order, Line)> {
    let mut told = Vec::new();
    let mut version = None;
    let mut rest = readings;
    while let [reading, after @ ..] = rest {
        let stored = version;
        version = words::version_after(reading, version);
        told.push(at(reading.decided_at, 0, None, words::reading(reading, stored, show)));
        rest = after;
        let same = |next: &&Reading| next.finding == reading.finding && next.version == reading.version;
        let again = rest.iter().take_while(same).count();
        if !folded || !reading.finding.is_nothing_new() || again < 2 {
            continue;
        }
        let (repeated, after) = rest.split_at(again);
        if let Some(last) = repeated.last() {
            told.push(at(last.decided_at, 0, None, words::again(repeated, last)));
        }
        rest = after;
    }
    told
}

/// Whether an event tells of a deletion that no page had found: the last one that held the key found something else.
fn is_by_sweep(facts: &KeyFacts, event: &EventFact) -> bool {
    let is_deletion = event.redelivery == 0 && event.kind == ChangeKind::Deleted.event_type();
    let mut before = facts.readings.iter().rev().filter(|reading| reading.decided_at <= event.created_at);
    is_deletion && before.next().is_some_and(|last| last.finding != Finding::Deleted)
}

fn event_lines(facts: &KeyFacts, event: &EventFact) -> Vec<(Order, Line)> {
    let id = Some(event.id.clone());
    let stored = words::stored(event, is_by_sweep(facts, event));
    let mut told = vec![at(event.created_at, 1, id.clone(), stored)];
    told.extend(words::lost(event).map(|text| at(event.created_at, 2, id.clone(), text)));
    // The sender's clock is not the database's: nothing is told before what it followed from.
    let mut no_earlier = event.created_at;
    for (number, attempt) in event.attempts.iter().enumerate() {
        no_earlier = no_earlier.max(attempt.sent_at);
        let is_last = number + 1 == event.attempts.len();
        let line =
            Line { at: attempt.sent_at, event: id.clone(), text: words::attempt(event, attempt, is_last) };
        told.push(((no_earlier, 2), line));
    }
    if let Some((settled_at, text)) = event.settled_at.zip(words::settled(event)) {
        told.push(((no_earlier.max(settled_at), 3), Line { at: settled_at, event: id, text }));
    }
    told
}

fn at(at: Instant, rank: u8, event: Option<String>, text: String) -> (Order, Line) {
    ((at, rank), Line { at, event, text })
}

#[cfg(test)]
mod tests;
