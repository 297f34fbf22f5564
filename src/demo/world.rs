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
    served: bool,
}

/// All orders.
#[derive(Debug)]
pub(super) struct World {
    states: BTreeMap<u32, Vec<State>>,
    changes: usize,
    rests: bool,
}

impl World {
    /// A world of orders that were all made at `now`.
    pub(super) fn new(now: Instant) -> Self {
        let mut world = Self { states: BTreeMap::new(), changes: 0, rests: false };
        for _ in 0..ORDERS {
            world.change(now);
        }
        world
    }

    /// From now on nothing changes: what came after could not arrive before the end.
    pub(super) fn rest(&mut self) {
        self.rests = true;
    }

    /// Changes the next order, in turn, whose last state was served: a state that is overwritten before
    /// anyone could read it is nothing that polling can promise.
    pub(super) fn change(&mut self, now: Instant) {
        if self.rests {
            return;
        }
        let turn = u32::try_from(self.changes).unwrap_or_default();
        let unread = |order: &u32| {
            self.states.get(order).and_then(|states| states.last()).is_some_and(|last| !last.served)
        };
        let Some(order) = (0..ORDERS).map(|at| 1_000 + (turn + at) % ORDERS).find(|order| !unread(order))
        else {
            return;
        };
        let late = self.changes % LATE_EVERY == LATE_EVERY - 1;
        let total = 10 + u32::try_from(self.changes).unwrap_or_default();
        let visible_at = if late { now.plus(LATE_BY) } else { now };
        self.states.entry(order).or_default().push(State {
            order,
            version: now,
            total,
            visible_at,
            served: false,
        });
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

    /// Notes that a state was served.
    pub(super) fn serve(&mut self, served: &[State]) {
        for state in served {
            let states = self.states.entry(state.order).or_default();
            states
                .iter_mut()
                .filter(|known| known.version == state.version)
                .for_each(|known| known.served = true);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_overwritten_only_once_it_was_served_and_never_at_rest() {
        let made = |world: &World| world.history().map(|(_, states)| states.len()).sum::<usize>();
        let orders = usize::try_from(ORDERS).unwrap();
        let at = Instant::from_seconds;
        let mut world = World::new(at(1));
        world.change(at(2));
        assert_eq!(made(&world), orders);
        let listed = world.listing(at(10), None);
        world.serve(&listed);
        world.change(at(11));
        assert_eq!(made(&world), orders + 1);
        world.rest();
        world.change(at(12));
        assert_eq!(made(&world), orders + 1);
    }
}
