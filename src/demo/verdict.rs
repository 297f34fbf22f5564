//! The demo's check: the source's own history against what arrived.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
};

use super::{receiver::Received, world::World};
use crate::domain::instant::Instant;

/// What the check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Changes that the source made.
    pub made: usize,
    /// Changes of them that arrived, each once.
    pub arrived: usize,
    /// Changes that did not arrive.
    pub missing: usize,
    /// Arrivals of a change that had arrived before, or of one that was never made.
    pub extra: usize,
    /// Orders whose changes arrived in another order than they were made.
    pub disordered: usize,
}

impl Verdict {
    pub(super) fn of(world: &World, received: &Received) -> Self {
        let mut arrived: BTreeMap<&str, Vec<Instant>> = BTreeMap::new();
        let mut ids = HashSet::new();
        let mut verdict = Self::default();
        for event in &received.arrived {
            let versions = arrived.entry(&event.key).or_default();
            let expected = u64::try_from(versions.len()).unwrap_or_default() + 1;
            if !ids.insert(&event.id) || event.sequence != expected {
                verdict.extra += 1;
            }
            versions.push(event.version);
        }
        for (order, states) in world.history() {
            let seen = arrived.remove(order.to_string().as_str()).unwrap_or_default();
            let made: Vec<Instant> = states.iter().map(|state| state.version).collect();
            let once: HashSet<_> = seen.iter().filter(|version| made.contains(version)).collect();
            verdict.made += made.len();
            verdict.arrived += once.len();
            verdict.missing += made.len() - once.len();
            verdict.extra += seen.len() - once.len();
            verdict.disordered += usize::from(!seen.is_sorted());
        }
        verdict.extra += arrived.values().map(Vec::len).sum::<usize>();
        verdict
    }

    /// Whether each change arrived once and in order.
    pub fn is_good(&self) -> bool {
        self.made == self.arrived && self.missing == 0 && self.extra == 0 && self.disordered == 0
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { made, arrived, missing, extra, disordered } = self;
        if self.is_good() {
            return write!(
                f,
                "{made} changes made, {arrived} arrived: each once, each order's in the order they were made"
            );
        }
        write!(
            f,
            "{made} changes made, {arrived} arrived, {missing} missing, {extra} arrived more than once, {disordered} orders out of order"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{super::receiver::Arrived, *};

    fn world() -> World {
        World::new(Instant::from_seconds(1))
    }

    fn everything(world: &World) -> Received {
        let mut received = Received::default();
        for (order, states) in world.history() {
            for (state, sequence) in states.iter().zip(1..) {
                let id = format!("{order}-{sequence}");
                received.arrived.push(Arrived {
                    id,
                    key: order.to_string(),
                    version: state.version,
                    sequence,
                });
            }
        }
        received
    }

    #[test]
    fn the_check_sees_what_is_missing_repeated_or_out_of_order() {
        let mut world = world();
        for second in 2..40 {
            let now = Instant::from_seconds(second);
            let listed = world.listing(now, None);
            world.serve(&listed);
            world.change(now);
        }
        let good = everything(&world);
        assert!(Verdict::of(&world, &good).is_good());

        let mut missing = everything(&world);
        missing.arrived.pop();
        assert_eq!(Verdict::of(&world, &missing).missing, 1);

        let mut repeated = everything(&world);
        repeated.arrived.extend(good.arrived.first().cloned());
        assert!(Verdict::of(&world, &repeated).extra > 0);

        let mut disordered = everything(&world);
        disordered.arrived.swap(0, 1);
        assert!(!Verdict::of(&world, &disordered).is_good());
    }
}
