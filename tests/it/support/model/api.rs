//! The source as it is met over HTTP: pages of rows, late, repeated and out of order, and answers that are
//! no pages.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    lane::Scene,
    plan::{Pages, SECOND, Versions, chance},
    world::{Shown, World},
};
use crate::support::source::{Answer, Asked};

/// Answers one request.
pub fn answer(scene: &Scene, asked: &Asked) -> Answer {
    let mut world = scene.world();
    if asked.path != format!("/h{}/rows", world.plan.seed) {
        return Answer::status(410);
    }
    if let Some(left) = &mut world.dies_at {
        if *left == 0 {
            world.dies_at = None;
            scene.died.notify_one();
            return Answer::Hang;
        }
        *left -= 1;
    }
    let place = Place::of(asked);
    let asked_at = world.now;
    if place == Place::First {
        world.trip().walk_at = asked_at;
    }
    let trouble = !world.is_calm && {
        let trouble = world.plan.trouble;
        chance(&mut world.rng, trouble)
    };
    // The query runs over the rows as they were when it began; answering takes its time.
    let page = if trouble { None } else { Some(page(&mut world, asked, &place)) };
    let slow = chance(&mut world.rng, 0.1);
    let time = if slow { world.rng.i64(SECOND..=4 * SECOND) } else { world.rng.i64(1_000..=50_000) };
    world.pass(time);
    let reply = match page {
        Some(Page { body, link, rows }) => {
            world.trip().first_at.get_or_insert(asked_at);
            world.trip().served.extend(rows);
            let reply = Answer::json(&body);
            match link {
                Some(link) => reply.header("link", &format!("<{link}>; rel=\"next\"")),
                None => reply,
            }
        }
        None => no_page(&mut world),
    };
    if world.plan.date { reply.header("date", &http_date(world.now)) } else { reply }
}

/// Where a page stands.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    First,
    /// Behind this place in the order.
    After((i64, u32)),
    /// Behind so many rows.
    Offset(usize),
    /// The page of this number, from 1.
    Number(usize),
}

impl Place {
    fn of(asked: &Asked) -> Self {
        if let Some(after) = asked.param("after").filter(|after| !after.is_empty()) {
            let mut parts = after.split('_');
            let mut part = || parts.next().unwrap();
            return Self::After((part().parse().unwrap(), part().parse().unwrap()));
        }
        match (asked.number("offset"), asked.number("page")) {
            (0, 0 | 1) => Self::First,
            (0, number) => Self::Number(number),
            (offset, _) => Self::Offset(offset),
        }
    }
}

struct Page {
    body: Value,
    link: Option<String>,
    rows: Vec<Shown>,
}

fn page(world: &mut World, asked: &Asked, place: &Place) -> Page {
    let plan = world.plan.clone();
    let [since, until] =
        ["since", "until"].map(|name| asked.param(name).map(|text| bound(plan.versions, text)));
    let bounds = (since, until);
    let at = if plan.pages.by_row() || plan.shifts { world.now } else { world.trip().walk_at };
    let lag = if plan.pages.by_row() && plan.lag > 0 { world.rng.i64(0..=plan.lag) } else { plan.lag };
    let mut all = world.listing(at - lag, bounds);
    let total = all.len();
    all.truncate(plan.cap.unwrap_or(total));
    let start = match place {
        Place::First => 0,
        Place::After(after) => all.partition_point(|shown| world.place(*shown) <= *after),
        Place::Offset(offset) => *offset,
        Place::Number(number) => (number - 1) * plan.page_size,
    };
    let size = match plan.pages {
        Pages::Single => all.len(),
        Pages::Number => plan.page_size,
        // A page that starts again at the last row read and holds nothing else is the end.
        Pages::Offset { .. } if plan.shifts => world.rng.usize(2..=plan.page_size + 1),
        // The size that was asked for is a wish.
        _ => world.rng.usize(1..=plan.page_size),
    };
    let mut rows: Vec<Shown> = all.iter().skip(start).take(size).copied().collect();
    let last = rows.last().copied();
    let more = start + rows.len() < all.len();
    let token = match last {
        Some(last) if more => {
            let (first, second) = world.place(last);
            Some(format!("{first}_{second}"))
        }
        _ => None,
    };
    if plan.repeats {
        repeat(world, &mut rows, at - lag, bounds);
    }
    let next = token.map(|token| {
        if plan.pages == Pages::Cursor {
            return token;
        }
        let kept = ["since", "until"]
            .map(|name| asked.param(name).map_or(String::new(), |bound| format!("{name}={bound}&")));
        format!("?{}after={token}", kept.concat())
    });
    let items: Vec<Value> = rows.iter().map(|shown| record(plan.versions, *shown)).collect();
    let body = match plan.pages {
        Pages::Cursor | Pages::NextUrl => json!({"items": items, "next": next}),
        Pages::Offset { total: true } => json!({"items": items, "total": total}),
        Pages::Number => {
            json!({"items": items, "pages": all.len().div_ceil(plan.page_size)})
        }
        Pages::Link | Pages::Offset { total: false } | Pages::Single => json!({"items": items}),
    };
    Page { body, link: next.filter(|_| plan.pages == Pages::Link), rows }
}

/// Rows again that the page holds already, as they are or as they were, and rows of other pages.
fn repeat(world: &mut World, rows: &mut Vec<Shown>, at: i64, bounds: (Option<i64>, Option<i64>)) {
    for shown in rows.clone() {
        if chance(&mut world.rng, 0.1) {
            rows.insert(0, shown);
        }
        if chance(&mut world.rng, 0.2) {
            rows.extend(older(world, shown.key, at, bounds));
        }
    }
    // What an old replica still holds of a row that may have been read anew already.
    let any = world.rng.usize(0..world.rows.len().max(1));
    if let Some(&key) = world.rows.keys().nth(any)
        && chance(&mut world.rng, 0.2)
    {
        rows.extend(older(world, key, at, bounds));
    }
    let all = world.listing(at, bounds);
    if !all.is_empty() && chance(&mut world.rng, 0.1) {
        rows.push(all[world.rng.usize(..all.len())]);
    }
}

/// A state of a row before its latest one, of an older version.
fn older(world: &World, key: u32, at: i64, bounds: (Option<i64>, Option<i64>)) -> Option<Shown> {
    let states = &world.rows[&key];
    let latest = World::state_at(states, at)?.version?;
    let inside = |version: i64| version < latest && bounds.0.is_none_or(|since| version >= since);
    let older = states.iter().rev().filter(|state| state.visible_at <= at && !state.vanished);
    older.map(|state| state.shown(key)).find(|shown| shown.version.is_some_and(inside))
}

/// An answer that a reader must not take for a page.
fn no_page(world: &mut World) -> Answer {
    match world.rng.u32(0..10) {
        0 => Answer::status(429).header("retry-after", "2"),
        1 => Answer::status(429),
        2 => Answer::status(503).header("retry-after", "1"),
        3 => Answer::status(500),
        4 => Answer::text("<html><form>log in</form></html>").header("content-type", "text/html"),
        5 => Answer::text(""),
        6 => Answer::Cut { body: br#"{"items":[],"next":null}"#.to_vec(), missing: 10 },
        7 => Answer::json(&json!({"items": null})),
        8 => Answer::json(&json!({"message": "maintenance"})),
        _ => Answer::status(403),
    }
}

fn bound(versions: Versions, text: &str) -> i64 {
    match versions {
        Versions::Iso => text.parse::<Timestamp>().unwrap().as_microsecond(),
        Versions::Millis => text.parse::<i64>().unwrap() * 1_000,
        Versions::Counter | Versions::None => text.parse().unwrap(),
    }
}

fn record(versions: Versions, shown: Shown) -> Value {
    let at = shown.version.map(|version| match versions {
        Versions::Iso => json!(Timestamp::from_microsecond(version).unwrap().to_string()),
        Versions::Millis => json!(version / 1_000),
        Versions::Counter | Versions::None => json!(version),
    });
    json!({"id": shown.key, "at": at, "c": shown.content, "gone": shown.flagged})
}

/// What a record says, read back from its JSON.
pub fn shown_of(versions: Versions, record: &Value) -> Shown {
    let number = |name: &str| u32::try_from(record[name].as_u64().unwrap()).unwrap();
    let version = match (&record["at"], versions) {
        (Value::Null, _) => None,
        (Value::String(text), _) => Some(bound(Versions::Iso, text)),
        (number, Versions::Millis) => Some(number.as_i64().unwrap() * 1_000),
        (number, _) => Some(number.as_i64().unwrap()),
    };
    Shown { key: number("id"), version, content: number("c"), flagged: record["gone"].as_bool().unwrap() }
}

fn http_date(now: i64) -> String {
    Timestamp::from_microsecond(now).unwrap().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}
