//! The truth behind the demo's source: orders, every state each has ever had, and when each state becomes
//! visible to readers.

use std::{collections::BTreeMap, time::Duration};

use crate::domain::instant::Instant;

const ORDERS: u32 = 12;
/// Every so many changes one becomes visible late, as rows of a lagging replica do.
const LATE_EVERY: usize = 4;
const LATE_BY: Duration = Duration::from_millis(1_500);

/// One state of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) order: u32,
    pub(super) version: Instant,
    pub(super) total: u32,
    visible_at: Instant,
}

/// All orders.
#[derive(Debug)]
pub(super) struct World {
    states: BTreeMap<u32, Vec<State>>,
    changes: usize,
}

impl World {
    /// A world of orders that were all made at `now`.
    pub(super) fn new(now: Instant) -> Self {
        let mut world = Self { states: BTreeMap::new(), changes: 0 };
        for _ in 0..ORDERS {
            world.change(now);
        }
        world
    }

    /// Changes the next order, in turn: no order changes twice before a poll can have seen it.
    pub(super) fn change(&mut self, now: Instant) {
        let order = 1_000 + u32::try_from(self.changes).unwrap_or_default() % ORDERS;
        let late = self.changes % LATE_EVERY == LATE_EVERY - 1;
        let total = 10 + u32::try_from(self.changes).unwrap_or_default();
        let visible_at = if late { now.plus(LATE_BY) } else { now };
        self.states.entry(order).or_default().push(State { order, version: now, total, visible_at });
        self.changes += 1;
    }

    /// The visible state of each order at or after `since`, oldest change first.
    pub(super) fn listing(&self, now: Instant, since: Option<Instant>) -> Vec<State> {
        let visible =
            |states: &Vec<State>| states.iter().rev().find(|state| state.visible_at <= now).copied();
        let mut rows: Vec<State> = self.states.values().filter_map(visible).collect();
        rows.retain(|state| since.is_none_or(|since| state.version >= since));
        rows.sort_by_key(|state| (state.version, state.order));
        rows
    }

    /// The state before this one, which a forgetful replica might still serve.
    pub(super) fn older(&self, than: State) -> Option<State> {
        let states = self.states.get(&than.order)?;
        states.iter().rev().find(|state| state.version < than.version).copied()
    }

    /// Every state that was ever made, by order, oldest first.
    pub(super) fn history(&self) -> impl Iterator<Item = (u32, &[State])> {
        self.states.iter().map(|(order, states)| (*order, states.as_slice()))
    }
}
