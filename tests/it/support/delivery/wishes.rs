//! What persons do.

use onlynew::store::{Granted, Wish};

use super::{Wrong, table::Row, world::World};

impl World {
    /// An event is no more of the message that it was sent in.
    pub(super) fn leave(&mut self, position: i64) {
        self.frozen.remove(&position);
        for frozen in self.frozen.values_mut().filter(|frozen| frozen.with.contains(&position)) {
            frozen.with.remove(&position);
            frozen.id = None;
        }
    }

    pub(super) async fn person(&mut self) -> Result<(), Wrong> {
        let place = self.rng.usize(..self.plan.destinations.len());
        let name = self.plan.destinations[place].clone();
        match self.rng.u8(..10) {
            0 => drop(self.store.pause_destination(&name, true).await.unwrap()),
            1 | 2 => drop(self.store.pause_destination(&name, false).await.unwrap()),
            3 => self.store.probe_destination(&name).await.unwrap(),
            4 => {
                let number = self.rng.usize(..self.jobs.len());
                self.places[number] = place;
                let job = self.jobs[number].row.id;
                self.story.push(format!("{}: {job:?} goes to {name}", self.clock));
                let of_job = |row: &Row| row.job == job.0 && row.destination != name;
                let moved: Vec<_> =
                    self.table.0.iter().filter(|(_, row)| of_job(row)).map(|(at, _)| *at).collect();
                self.store.readdress(job, &name).await.unwrap();
                for position in moved {
                    self.leave(position);
                }
                return self.look(|_, _| false).await;
            }
            _ if self.table.0.is_empty() => {}
            _ => {
                let index = self.rng.usize(..self.table.0.len());
                let position = *self.table.0.keys().nth(index).unwrap();
                let wish = [Wish::Retry, Wish::Redeliver, Wish::Discard][self.rng.usize(..3)];
                return self.wish(position, wish).await;
            }
        }
        Ok(())
    }

    pub(super) async fn wish(&mut self, position: i64, wish: Wish) -> Result<(), Wrong> {
        let was_pending = self.table.row(position)?.is_pending();
        let granted = self.store.grant(position, wish).await.unwrap();
        self.story.push(format!("{}: {wish:?} of {position}: {granted:?}", self.clock));
        if granted != Granted::Done {
            return self.look(|_, _| false).await;
        }
        self.made += u64::from(wish != Wish::Discard && !was_pending);
        self.look(|at, state| at == position && wish == Wish::Discard && state == "discarded").await?;
        if wish == Wish::Discard {
            let is_live = |live: &&(_, i64, i64)| live.2 == position && live.1 > self.clock;
            if self.live.iter().any(|live| is_live(&live)) {
                return Err(format!("{position} is discarded while it is being sent"));
            }
            self.leave(position);
        }
        Ok(())
    }
}
