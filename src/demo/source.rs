//! The demo's source: pages that repeat rows, serve older versions after newer ones and move rows between
//! them, and answers that are a 429, a 502 or a login page.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};

use axum::{
    Json, Router,
    extract::{Query, State as Shared},
    http::{StatusCode, header},
    response::{Html, IntoResponse, Response},
    routing::get,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    lock,
    world::{State, World},
};
use crate::domain::{clock::Clock, instant::Instant};

const PAGE: usize = 4;

/// How often each bad habit was shown.
#[derive(Debug, Default)]
pub(super) struct Habits {
    pub(super) requests: AtomicU64,
    pub(super) repeated: AtomicU64,
    pub(super) older: AtomicU64,
    pub(super) moved: AtomicU64,
    pub(super) too_many: AtomicU64,
    pub(super) broken: AtomicU64,
}

#[derive(Clone)]
struct Source {
    world: Arc<Mutex<World>>,
    habits: Arc<Habits>,
    clock: Arc<dyn Clock>,
}

#[derive(Deserialize)]
struct Ask {
    since: Option<Instant>,
    page: usize,
}

pub(super) fn routes(world: Arc<Mutex<World>>, habits: Arc<Habits>, clock: Arc<dyn Clock>) -> Router {
    Router::new().route("/orders", get(orders)).with_state(Source { world, habits, clock })
}

async fn orders(Shared(source): Shared<Source>, Query(ask): Query<Ask>) -> Response {
    let habits = &source.habits;
    let number = habits.requests.fetch_add(1, Ordering::Relaxed) + 1;
    if number.is_multiple_of(9) {
        habits.too_many.fetch_add(1, Ordering::Relaxed);
        return (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, "1")], "slow down").into_response();
    }
    if number.is_multiple_of(13) {
        habits.broken.fetch_add(1, Ordering::Relaxed);
        return StatusCode::BAD_GATEWAY.into_response();
    }
    if number.is_multiple_of(17) {
        habits.broken.fetch_add(1, Ordering::Relaxed);
        return Html("<html><form>please log in</form></html>").into_response();
    }
    let mut world = lock(&source.world);
    if ask.page > 1 && number.is_multiple_of(5) {
        // A row changes in the middle of the walk: it moves to the end, and all behind it move up.
        world.change(source.clock.now());
        habits.moved.fetch_add(1, Ordering::Relaxed);
    }
    let rows = world.listing(source.clock.now(), ask.since);
    let start = ask.page.saturating_sub(1).saturating_mul(PAGE);
    let mut page: Vec<State> = rows.iter().skip(start).take(PAGE).copied().collect();
    if number.is_multiple_of(2)
        && let Some(first) = page.first().copied()
    {
        habits.repeated.fetch_add(1, Ordering::Relaxed);
        page.push(first);
    }
    if number.is_multiple_of(3)
        && let Some(older) = page.first().and_then(|state| world.older(*state))
    {
        habits.older.fetch_add(1, Ordering::Relaxed);
        page.push(older);
    }
    world.serve(&page);
    let has_more = rows.len() > start + PAGE;
    Json(json!({"orders": page.iter().map(row).collect::<Vec<Value>>(), "has_more": has_more}))
        .into_response()
}

fn row(state: &State) -> Value {
    json!({"id": state.order, "updated_at": state.version, "total": state.total})
}
