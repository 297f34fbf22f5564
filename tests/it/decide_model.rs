//! `decide` against the promise itself, exhaustively: every history of up to three states of one key, read
//! in every order of up to four sightings and then twice to its end, in all three modes.
//!
//! What is checked is stated over the events that come out, without the table: no event goes back behind
//! what was seen, nothing is told twice in a row, and who reads forwards ends with what the source holds.
//! A history's states share a version, get a new one or have none; hold one of two contents; and may be
//! flagged as deleted.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use onlynew::domain::{
    content::Hash,
    decide::{Decision, Detect, Seen, Stored, decide},
    instant::Instant,
    run::RunId,
    version::Version,
};

const MODES: [Detect; 3] = [Detect::Version, Detect::Content, Detect::Either];

/// One state of the key at the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    version: Option<i64>,
    content: char,
    flagged: bool,
}

/// One reading of the key: which state it found, and when its page was asked for and answered.
#[derive(Clone, Copy, Debug)]
struct Sighting {
    state: usize,
    asked_at: i64,
    answered_at: i64,
    run: i64,
}

/// One change that was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    decision: Decision,
    state: usize,
    position: usize,
}

/// When a reader may say that no later state can share a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Settling {
    /// At once: the source never changes a row twice under one version, or the reader believes so.
    Always,
    /// When it is true: no later state of the history has this version.
    WhenTrue,
    /// Never: the reader is always too early.
    Never,
}

/// Every history of up to `most` states in which no two neighbours are the same.
fn histories(most: usize) -> Vec<Vec<State>> {
    let mut all: Vec<Vec<State>> = Vec::new();
    let mut open: Vec<(Vec<State>, i64)> = vec![(Vec::new(), 0)];
    for _ in 0..most {
        let mut longer = Vec::new();
        for (history, last) in &open {
            for kind in ['n', 's', '0'] {
                let (version, last) = match kind {
                    'n' => (Some(last + 1), last + 1),
                    's' if *last > 0 => (Some(*last), *last),
                    's' => continue,
                    _ => (None, *last),
                };
                for (content, flagged) in [('A', false), ('B', false), ('A', true), ('B', true)] {
                    let state = State { version, content, flagged };
                    if history.last() != Some(&state) {
                        longer.push(([history.as_slice(), &[state]].concat(), last));
                    }
                }
            }
        }
        all.extend(longer.iter().map(|(history, _)| history.clone()));
        open = longer;
    }
    all
}

/// Every order of up to `most` readings of `states` states.
fn orders(states: usize, most: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    let mut from = 0;
    for _ in 0..most {
        let until = all.len();
        for at in from..until {
            for state in 0..states {
                all.push([all[at].as_slice(), &[state]].concat());
            }
        }
        from = until;
    }
    all
}

/// A reader that has one page under way at a time: each is asked for after the one before was answered.
fn one_after_another(order: &[usize]) -> Vec<Sighting> {
    let at = |position: usize| i64::try_from(position).unwrap() * 10;
    let sighting = |(position, &state)| Sighting {
        state,
        asked_at: at(position) + 1,
        answered_at: at(position) + 2,
        run: at(position),
    };
    order.iter().enumerate().map(sighting).collect()
}

/// The same, where all but the two readings at the end belong to one run.
fn in_one_run(order: &[usize]) -> Vec<Sighting> {
    let mut sightings = one_after_another(order);
    let last = sightings.len() - 2;
    sightings[..last].iter_mut().for_each(|sighting| sighting.run = 0);
    sightings
}

/// Readers side by side, of which some are slow: a reading that finds an older state than one decided
/// before it was asked for before that one was, and has been under way since.
fn some_of_them_slow(order: &[usize]) -> Vec<Sighting> {
    let mut sightings = one_after_another(order);
    for position in 0..order.len() {
        let overtaken_by = (0..position).find(|&before| order[before] > order[position]);
        if let Some(first) = overtaken_by {
            sightings[position].asked_at = sightings[first].asked_at - 1;
        }
    }
    sightings
}

/// What each sighting was decided to be.
fn decisions(
    history: &[State],
    sightings: &[Sighting],
    detect: Detect,
    settling: Settling,
    hashes: &BTreeMap<char, Hash>,
) -> Vec<Decision> {
    let at = |moment: i64| Instant::from_seconds(1_000).plus(Duration::from_secs(moment.unsigned_abs()));
    let mut stored: Option<Stored> = None;
    let mut all = Vec::with_capacity(sightings.len());
    for sighting in sightings {
        let state = history[sighting.state];
        let later = history.get(sighting.state + 1..).unwrap_or_default();
        let seen = Seen {
            version: state.version.map(Version),
            hash: hashes[&state.content],
            flagged: state.flagged,
            settled: match settling {
                Settling::Always => true,
                Settling::WhenTrue => later.iter().all(|later| later.version != state.version),
                Settling::Never => false,
            },
            asked_at: at(sighting.asked_at),
            answered_at: at(sighting.answered_at),
            decided_at: at(sighting.answered_at),
            tolerance: None,
            run: Some(RunId(sighting.run)),
        };
        let (decision, next) = decide(stored.as_ref(), &seen, detect);
        all.push(decision);
        stored = next.or(stored);
    }
    all
}

fn told(sightings: &[Sighting], decisions: &[Decision]) -> Vec<Told> {
    let all = decisions.iter().zip(sightings).enumerate();
    all.filter(|(_, (decision, _))| decision.is_change())
        .map(|(position, (&decision, sighting))| Told { decision, state: sighting.state, position })
        .collect()
}

/// The first promise that these events break.
fn broken_promise(
    history: &[State],
    sightings: &[Sighting],
    told: &[Told],
    detect: Detect,
    settling: Settling,
) -> Option<&'static str> {
    let versions: Vec<i64> = told.iter().filter_map(|told| history[told.state].version).collect();
    if versions.is_sorted() {
        let mut highest = 0;
        for (position, sighting) in sightings.iter().enumerate() {
            let Some(version) = history[sighting.state].version else { continue };
            if version < highest && told.iter().any(|told| told.position == position) {
                return Some("an event is older than what had been seen");
            }
            highest = highest.max(version);
        }
    } else {
        return Some("the version goes backwards");
    }
    let same = |pair: &[Told]| {
        let [before, after] = pair else { return false };
        let (a, b) = (history[before.state], history[after.state]);
        before.decision == after.decision && (a.version, a.content) == (b.version, b.content)
    };
    if told.windows(2).any(|pair| same(pair) && pair[0].decision != Decision::Restored) {
        return Some("the same event twice in a row");
    }
    let forwards = sightings.windows(2).all(|pair| pair[0].state <= pair[1].state);
    if forwards { broken_end(history, sightings, told, detect, settling) } else { None }
}

/// Who reads forwards, and twice at the end, holds what the source holds. The one limit, and it is the
/// documented one: by version alone, a second change under a version that counts as settled is not seen.
fn broken_end(
    history: &[State],
    sightings: &[Sighting],
    told: &[Told],
    detect: Detect,
    settling: Settling,
) -> Option<&'static str> {
    let last = history[sightings.last()?.state];
    let blind = detect == Detect::Version && settling == Settling::Always && last.version.is_some();
    let shares_version = |sighting: &&Sighting| {
        let state = history[sighting.state];
        state.version == last.version && state != last
    };
    let is_deleted = told.last().is_some_and(|told| told.decision == Decision::Deleted);
    if last.flagged != is_deleted {
        // A key that was never met alive has no event to end with.
        let never_alive = last.flagged && told.is_empty();
        let limit = blind && !last.flagged && sightings.iter().any(|sighting| shares_version(&sighting));
        return (!limit && !never_alive).then_some("it ends deleted or alive, and the source is not");
    }
    if last.flagged || told.last().is_none_or(|told| history[told.state].content == last.content) {
        return None;
    }
    let other = sightings.iter().rposition(|sighting| {
        let state = history[sighting.state];
        state.version == last.version && state.content != last.content
    });
    let limit = blind
        && other.is_some_and(|other| {
            !told.iter().any(|told| told.position > other && history[told.state].version.is_none())
        });
    (!limit).then_some("it ends with content that the source does not have")
}

/// Runs `check` over every history, order and mode, and fails with the shortest history that breaks.
fn for_all(
    most_sightings: usize,
    sightings_of: fn(&[usize]) -> Vec<Sighting>,
    settling: Settling,
    check: impl Fn(&[State], &[Sighting], &[Told], Detect) -> Option<&'static str>,
) -> usize {
    let hashes: BTreeMap<char, Hash> =
        ['A', 'B'].into_iter().map(|content| (content, Hash::of(content.to_string().as_bytes()))).collect();
    let orders: Vec<_> = (1..=3).map(|states| orders(states, most_sightings)).collect();
    let mut cases = 0;
    // Shorter histories come first, so that the first that breaks is a shortest one.
    for history in histories(3) {
        for order in &orders[history.len() - 1] {
            let order = [order.as_slice(), &[history.len() - 1; 2]].concat();
            let sightings = sightings_of(&order);
            for detect in MODES {
                cases += 1;
                let decisions = decisions(&history, &sightings, detect, settling, &hashes);
                let told = told(&sightings, &decisions);
                if let Some(broken) = check(&history, &sightings, &told, detect) {
                    panic!(
                        "{broken}, by {detect:?}, settling {settling:?}\n  history {history:?}\n  \
                         sightings {sightings:?}\n  decisions {decisions:?}"
                    );
                }
            }
        }
    }
    cases
}

#[test]
fn every_history_read_in_every_order_is_told_in_order_and_once() {
    for settling in [Settling::Always, Settling::WhenTrue] {
        let cases = for_all(4, one_after_another, settling, |history, sightings, told, detect| {
            broken_promise(history, sightings, told, detect, settling)
        });
        assert!(cases > 250_000, "only {cases} cases were tried");
    }
}

#[test]
fn a_reader_that_never_calls_a_version_settled_sees_every_content() {
    for_all(3, one_after_another, Settling::Never, |history, sightings, told, detect| {
        broken_promise(history, sightings, told, detect, Settling::Never)
    });
}

/// Histories whose states all have a version, or none of which has one: there, versions and read order
/// together say which of two states is the later one.
fn is_uniform(history: &[State]) -> bool {
    let with: HashSet<bool> = history.iter().map(|state| state.version.is_some()).collect();
    with.len() == 1
}

#[test]
fn a_slow_page_brings_nothing_old_back() {
    for settling in [Settling::Always, Settling::WhenTrue, Settling::Never] {
        for_all(4, some_of_them_slow, settling, |history, _, told, _| {
            let forwards = told.windows(2).all(|pair| pair[0].state <= pair[1].state);
            (is_uniform(history) && !forwards).then_some("an older state is told after a newer one")
        });
    }
}

#[test]
fn after_slow_pages_two_clean_readings_end_with_what_the_source_holds() {
    for_all(4, some_of_them_slow, Settling::WhenTrue, |history, sightings, told, detect| {
        // A slow page may be refused, but what is read cleanly after it counts: in the end the content told
        // last is the source's, whatever the page's order did in between.
        is_uniform(history)
            .then(|| broken_end(history, sightings, told, detect, Settling::WhenTrue))
            .flatten()
    });
}

/// The changes of the run numbered 0 that no version orders.
fn unordered(history: &[State], sightings: &[Sighting], told: &[Told]) -> usize {
    let is_unordered = |told: &&Told| {
        let before = &sightings[..told.position];
        let version = history[told.state].version;
        told.decision == Decision::Updated
            && sightings[told.position].run == 0
            && (version.is_none() || before.iter().any(|before| history[before.state].version >= version))
    };
    told.iter().filter(is_unordered).count()
}

#[test]
fn one_run_tells_of_one_change_that_no_version_orders_and_the_next_runs_lose_nothing() {
    for settling in [Settling::Always, Settling::WhenTrue, Settling::Never] {
        for_all(4, in_one_run, settling, |history, sightings, told, detect| {
            if unordered(history, sightings, told) > 1 {
                return Some("a second change of one run that no version orders");
            }
            broken_promise(history, sightings, told, detect, settling)
        });
    }
}
