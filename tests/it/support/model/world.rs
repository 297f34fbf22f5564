//! The source's rows through time: every state that each row has had, when it was made and when it became
//! visible, and what was served of it to whom.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::plan::{Order, Plan, SECOND, Versions, chance};

/// When every history begins, 2023-11-14T22:13:20Z: an even number of the coarsest granule, and by any
/// database's clock long past.
const BEGINNING: i64 = 1_700_000_000 * SECOND;

/// More rows make a history longer and no richer.
const MOST_ROWS: usize = 20;

/// How far in the future a row from the future is dated.
const FUTURE: i64 = 50_000 * SECOND;

/// Whether a version is one from the future.
pub const fn is_future(version: i64, now: i64) -> bool {
    version > now + FUTURE / 2
}

/// One state of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub version: Option<i64>,
    pub content: u32,
    /// The row is marked as deleted.
    pub flagged: bool,
    /// The row is not listed any more.
    pub vanished: bool,
    pub made_at: i64,
    pub visible_at: i64,
}

/// A state as a page shows it, and as the engine takes it in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shown {
    pub key: u32,
    pub version: Option<i64>,
    pub content: u32,
    pub flagged: bool,
}

/// What one run or one delivery, from its beginning to its end or its death, saw of the source.
#[derive(Clone, Debug, Default)]
pub struct Trip {
    /// When the first page that was data was asked for: what was visible then may not be missed.
    pub first_at: Option<i64>,
    /// When the first page of the walk was asked for that this one goes on with: what became visible since
    /// then is the next window's.
    pub walk_began_at: Option<i64>,
    /// When the latest first page was asked for: where rows are counted, the listing stands still then.
    pub walk_at: i64,
    /// The rows of all pages that were data.
    pub served: Vec<Shown>,
}

/// The source.
#[derive(Debug)]
pub struct World {
    pub plan: Plan,
    pub rng: Rng,
    /// The true time, by the source's own clock.
    pub now: i64,
    pub rows: BTreeMap<u32, Vec<State>>,
    pub trips: Vec<Trip>,
    /// Which of them is under way.
    pub current: usize,
    /// Nothing goes wrong and nothing changes any more.
    pub is_calm: bool,
    /// How many requests of this trip are answered before the process dies in the middle of one.
    pub dies_at: Option<u32>,
    counter: i64,
    contents: u32,
}

impl World {
    pub fn new(plan: Plan) -> Self {
        let rng = Rng::with_seed(plan.seed ^ 0x5EED);
        let (before, seed) = (plan.before, plan.seed);
        let mut world = Self {
            plan,
            rng,
            now: BEGINNING + i64::try_from(seed % 10).unwrap() * SECOND,
            rows: BTreeMap::new(),
            trips: Vec::new(),
            current: 0,
            is_calm: false,
            dies_at: None,
            counter: 0,
            contents: 0,
        };
        for _ in 0..before {
            world.change();
            world.now += world.rng.i64(0..=5 * SECOND);
        }
        world
    }

    /// Lets time go by, in which a row may change; sooner in a longer time.
    pub fn pass(&mut self, time: i64) {
        self.now += time;
        let likelihood = if time > SECOND { 0.6 } else { 0.3 };
        if !self.is_calm && chance(&mut self.rng, likelihood) {
            self.change();
        }
    }

    /// When the walk under way had asked for its first page; `None` where it has not.
    pub fn first_at(&self) -> Option<i64> {
        let trip = &self.trips[self.current];
        trip.walk_began_at.or(trip.first_at)
    }

    /// The trip under way.
    pub fn trip(&mut self) -> &mut Trip {
        &mut self.trips[self.current]
    }

    /// The state of a row as it stood at an instant.
    pub fn state_at(states: &[State], at: i64) -> Option<&State> {
        states.iter().rev().find(|state| state.visible_at <= at)
    }

    /// The rows as they stood at an instant, between these bounds, in the source's order.
    pub fn listing(&self, at: i64, (since, until): (Option<i64>, Option<i64>)) -> Vec<Shown> {
        let mut listed: Vec<Shown> = Vec::new();
        for (&key, states) in &self.rows {
            let Some(state) = Self::state_at(states, at).filter(|state| !state.vanished) else { continue };
            let inside = match (state.version, since) {
                (Some(version), Some(since)) if self.plan.open_start => version > since,
                (Some(version), Some(since)) => version >= since,
                _ => true,
            };
            let before_end = match (state.version, until) {
                (Some(version), Some(until)) if self.plan.open_end => version < until,
                (Some(version), Some(until)) => version <= until,
                _ => true,
            };
            if inside && before_end {
                listed.push(state.shown(key));
            }
        }
        listed.sort_by_key(|shown| self.place(*shown));
        listed
    }

    /// Where a row stands in the source's order.
    pub fn place(&self, shown: Shown) -> (i64, u32) {
        match self.plan.order {
            Order::Oldest => (shown.version.unwrap_or(i64::MIN), shown.key),
            Order::Newest => (shown.version.map_or(i64::MAX, |version| -version), shown.key),
            Order::None => (i64::from(shown.key.wrapping_mul(2_654_435_761) >> 8), shown.key),
        }
    }

    /// The version of a change that is made now.
    fn version_now(&mut self) -> Option<i64> {
        match self.plan.versions {
            Versions::None => None,
            Versions::Counter => {
                self.counter += 1;
                Some(self.counter)
            }
            Versions::Iso | Versions::Millis => Some(self.now - self.now.rem_euclid(self.plan.granule)),
        }
    }

    /// One row is made, changed, marked, taken away or brought back.
    fn change(&mut self) {
        let now = self.now;
        let settled: Vec<u32> = self
            .rows
            .iter()
            .filter(|(_, states)| states.last().is_some_and(|state| state.visible_at <= now))
            .map(|(&key, _)| key)
            .collect();
        let may_grow = self.rows.len() < MOST_ROWS;
        if settled.is_empty() && !may_grow {
            return;
        }
        if settled.is_empty() || (may_grow && chance(&mut self.rng, 0.35)) {
            return self.make();
        }
        let key = settled[self.rng.usize(..settled.len())];
        let last = self.rows[&key].last().unwrap().clone();
        let from_future = last.version.is_some_and(|version| self.plan.is_time() && is_future(version, now));
        let granule = self.plan.granule;
        let same = self.plan.is_time()
            && !from_future
            && last.version.is_some_and(|version| version.div_euclid(granule) >= now.div_euclid(granule));
        // Who reads old replicas cannot tell a row from the future from one that was put right since.
        if (from_future && self.plan.lag > 0)
            || (same && (!self.plan.same_granule || last.vanished || last.flagged))
        {
            return;
        }
        let likes = self.rng.f64();
        let (vanished, flagged) = match last {
            _ if last.vanished => (false, false),
            _ if self.plan.deletes && likes < 0.15 => (true, false),
            _ if self.plan.flags && likes < 0.4 => (false, !last.flagged),
            _ => (false, last.flagged),
        };
        let version = if last.version.is_none() && self.plan.versions != Versions::None {
            None
        } else {
            self.version_now()
        };
        let content = self.content();
        // A row is gone at once. One without a version is decided by read order alone, so that it cannot
        // be late in a way that anybody could tell.
        let late = if vanished || version.is_none() { 0 } else { self.late() };
        let state = State { version, content, flagged, vanished, made_at: now, visible_at: now + late };
        self.rows.get_mut(&key).unwrap().push(state);
    }

    fn make(&mut self) {
        let key = u32::try_from(self.rows.len()).unwrap() + 1;
        let versionless = self.plan.versionless && chance(&mut self.rng, 0.3);
        let future = self.plan.future && chance(&mut self.rng, 0.2);
        let version = if versionless { None } else { self.version_now() };
        let version = version.map(|version| if future { version + FUTURE } else { version });
        let late = if version.is_none() { 0 } else { self.late() };
        let state = State {
            version,
            content: self.content(),
            flagged: self.plan.flags && chance(&mut self.rng, 0.1),
            vanished: false,
            made_at: self.now,
            visible_at: self.now + late,
        };
        self.rows.insert(key, vec![state]);
    }

    fn late(&mut self) -> i64 {
        if self.plan.lateness == 0 || chance(&mut self.rng, 0.6) {
            return 0;
        }
        self.rng.i64(0..=self.plan.lateness)
    }

    /// Few contents, so that a row often goes back to what it was; where one version may be shared, each
    /// is used once, so that it is known which state was told.
    fn content(&mut self) -> u32 {
        self.contents += 1;
        if self.plan.same_granule { self.contents } else { self.rng.u32(0..4) }
    }
}

impl State {
    pub const fn shown(&self, key: u32) -> Shown {
        Shown { key, version: self.version, content: self.content, flagged: self.flagged }
    }
}
