//! The janitor: takes away what is kept no longer, in small bites with pauses between them, so that nobody waits for
//! more than one. What it leaves behind, for a stop or a store that fails, it finds again the next time.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::{
    config::{Config, hook::Hook, job::Job},
    domain::{gate::ScopeRules, retention::Retention, version::Version},
    store::{Purge, Store, StoreError},
};

/// How long after the start it begins, and how long it rests.
const FIRST_REST: Duration = Duration::from_secs(5);
const REST: Duration = Duration::from_mins(10);

/// How long others have the store for themselves between two bites.
const PAUSE: Duration = Duration::from_millis(20);

/// How long a lock is known whose holder may still come back to it.
const LOCKS_KEPT: Duration = Duration::from_hours(24);

/// Keeps a store as small as its retention says.
#[derive(Debug)]
pub struct Janitor {
    store: Arc<dyn Store>,
    retention: Retention,
    jobs: Vec<Arc<Job>>,
    scopes: BTreeMap<String, ScopeRules>,
    /// Hooks that forget, and when.
    hooks: Vec<(String, Duration)>,
    /// Below which version the keys of a job were all looked at.
    forgotten: HashMap<String, Version>,
}

/// What went, or would go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Swept {
    /// Bodies of events.
    pub payloads: u64,
    /// Events and attempts.
    pub attempts: u64,
    /// Runs, each with what its pages left.
    pub pages: u64,
    /// Keys whose versions and contents are forgotten.
    pub keys: u64,
    /// Keys of the gate.
    pub gate_keys: u64,
    /// Keys of hooks.
    pub hook_keys: u64,
    /// Locks.
    pub locks: u64,
}

impl Janitor {
    /// A janitor of this store, by the rules of a configuration.
    pub fn new(store: Arc<dyn Store>, config: &Config) -> Self {
        let forgetful = |hook: &Arc<Hook>| Some((hook.name.clone(), hook.retention?));
        Self {
            store,
            retention: config.retention,
            jobs: config.jobs.values().cloned().collect(),
            scopes: config.scopes.clone(),
            hooks: config.hooks.values().filter_map(forgetful).collect(),
            forgotten: HashMap::new(),
        }
    }

    /// Sweeps soon after the start and every ten minutes, until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut rest = FIRST_REST;
        while stop.run_until_cancelled(tokio::time::sleep(rest)).await.is_some() {
            match self.sweep(&stop).await {
                Ok(swept) => swept.log(),
                Err(error) => {
                    tracing::error!(%error, "what is kept no longer could not be purged; it is tried again");
                }
            }
            rest = REST;
        }
    }

    /// Takes away all that is kept no longer, or as much as it comes to before `stop`.
    pub async fn sweep(&mut self, stop: &CancellationToken) -> Result<Swept, StoreError> {
        let mut swept = Swept::default();
        for (purge, of_job) in self.purges().await? {
            let mut next = Some(purge);
            while let Some(purge) = next {
                if stop.is_cancelled() {
                    return Ok(swept);
                }
                let taken = self.store.purge(&purge).await?;
                swept.add(&purge, taken.rows);
                next = taken.next;
                tokio::time::sleep(PAUSE).await;
            }
            self.forgotten.extend(of_job);
        }
        while !stop.is_cancelled() && self.store.tidy().await? {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(swept)
    }

    /// What would go now.
    pub async fn preview(&self) -> Result<Swept, StoreError> {
        let mut swept = Swept::default();
        for (purge, _) in self.purges().await? {
            swept.add(&purge, self.store.purgeable(&purge).await?);
        }
        Ok(swept)
    }

    /// What there is to do, bodies before the events that they belong to; keys of a job that were all looked at today
    /// are not looked at again.
    async fn purges(&self) -> Result<Vec<(Purge, Option<(String, Version)>)>, StoreError> {
        let now = self.store.now().await?;
        let cutoffs = self.retention.cutoffs(now);
        let of_all = [
            cutoffs.payloads.map(Purge::Payloads),
            cutoffs.attempts.map(Purge::Attempts),
            cutoffs.pages.map(Purge::Pages),
        ];
        let of_scopes = self.scopes.iter().filter_map(|(scope, rules)| {
            let before = now.minus(rules.retention?);
            Some(Purge::GateKeys { scope: scope.clone(), before })
        });
        let locks = Purge::Locks(now.minus(LOCKS_KEPT));
        let mut purges: Vec<_> =
            of_all.into_iter().flatten().chain(of_scopes).chain([locks]).map(|purge| (purge, None)).collect();
        for (name, retention) in &self.hooks {
            if let Some(row) = self.store.find_job(name).await? {
                purges.push((Purge::HookKeys { hook: row.id, before: now.minus(*retention) }, None));
            }
        }
        let Some(before) = cutoffs.keys else { return Ok(purges) };
        for job in self.jobs.iter().filter(|job| job.forgets_keys()) {
            if self.forgotten.get(&job.name) == Some(&before) {
                continue;
            }
            if let Some(row) = self.store.find_job(&job.name).await? {
                let purge = Purge::Keys { job: row.id, window: job.window, before, from: String::new() };
                purges.push((purge, Some((job.name.clone(), before))));
            }
        }
        Ok(purges)
    }
}

impl Swept {
    fn add(&mut self, purge: &Purge, rows: u64) {
        let count = match purge {
            Purge::Payloads(_) => &mut self.payloads,
            Purge::Attempts(_) => &mut self.attempts,
            Purge::Pages(_) => &mut self.pages,
            Purge::Keys { .. } => &mut self.keys,
            Purge::GateKeys { .. } => &mut self.gate_keys,
            Purge::HookKeys { .. } => &mut self.hook_keys,
            Purge::Locks(_) => &mut self.locks,
        };
        *count += rows;
    }

    fn log(self) {
        let Self { payloads, attempts, pages, keys, gate_keys, hook_keys, locks } = self;
        if self != Self::default() {
            tracing::info!(
                payloads,
                attempts,
                pages,
                keys,
                gate_keys,
                hook_keys,
                locks,
                "purged what is kept no longer"
            );
        }
    }
}
