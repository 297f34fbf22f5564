//! Where a walk writes down what it does: in the store under its lease, or nowhere, where it only tries what a replay
//! would do.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Mutex, PoisonError},
};

use super::report::RunReport;
use crate::{
    domain::{coverage::Covered, page::SeenRecord, version::Version},
    store::{JobLease, NewRun, PageCommit, PageOutcome, Progress, RunEnd, RunId, Store, StoreError},
};

/// Where a walk writes down what it does.
#[derive(Clone, Copy)]
pub(super) enum Books<'a> {
    /// In the store, under this lease.
    Kept(&'a JobLease),
    /// Nowhere.
    Tried(&'a Trial<'a>),
}

/// A walk of which nothing stays.
pub(super) struct Trial<'a> {
    job: &'a str,
    /// Is told how far the walk has come, after each page.
    told: &'a (dyn Fn(&RunReport) + Send + Sync),
    /// The records that were met before, as hashes: pages overlap, and none of them is stored.
    met: Mutex<HashSet<u64>>,
}

impl<'a> Trial<'a> {
    pub(super) fn of(job: &'a str, told: &'a (dyn Fn(&RunReport) + Send + Sync)) -> Self {
        Self { job, told, met: Mutex::default() }
    }

    fn is_new(&self, record: &SeenRecord) -> bool {
        let mut hasher = DefaultHasher::new();
        (&record.key, record.fingerprint).hash(&mut hasher);
        self.met.lock().unwrap_or_else(PoisonError::into_inner).insert(hasher.finish())
    }
}

impl<'a> Books<'a> {
    /// The lease that is written under.
    pub(super) const fn lease(self) -> Option<&'a JobLease> {
        match self {
            Self::Kept(lease) => Some(lease),
            Self::Tried(_) => None,
        }
    }

    pub(super) async fn open(self, store: &dyn Store, baseline: bool) -> Result<Progress, StoreError> {
        match self {
            Self::Kept(lease) => store.open_progress(lease, baseline).await,
            Self::Tried(_) => Ok(Progress::default()),
        }
    }

    pub(super) async fn start(self, store: &dyn Store, run: &NewRun) -> Result<Option<RunId>, StoreError> {
        match self {
            Self::Kept(lease) => store.start_run(lease, run).await.map(Some),
            Self::Tried(_) => Ok(None),
        }
    }

    pub(super) async fn commit(
        self,
        store: &dyn Store,
        page: &PageCommit,
    ) -> Result<PageOutcome, StoreError> {
        let trial = match self {
            Self::Kept(lease) => return store.commit_page(lease, page).await,
            Self::Tried(trial) => trial,
        };
        let records = page.records.iter().filter(|record| trial.is_new(record)).cloned().collect();
        let fresh = PageCommit { records, ..page.clone() };
        let mut outcome = store.preview_page(trial.job, &fresh).await?;
        let repeats = (page.records.len() - fresh.records.len()) as u64;
        outcome.counts.records += repeats;
        outcome.counts.unchanged += repeats;
        Ok(outcome)
    }

    /// Tells whoever waits for a trial how far it has come.
    pub(super) fn tell(self, report: &RunReport) {
        if let Self::Tried(trial) = self {
            (trial.told)(report);
        }
    }

    pub(super) async fn advance(
        self,
        store: &dyn Store,
        run: RunId,
        watermark: Option<Version>,
        covered: Option<Covered>,
    ) -> Result<(), StoreError> {
        match self {
            Self::Kept(lease) => store.advance(lease, run, watermark, covered).await,
            Self::Tried(_) => Ok(()),
        }
    }

    pub(super) async fn finish(self, store: &dyn Store, run: RunId, end: &RunEnd) -> Result<(), StoreError> {
        match self {
            Self::Kept(lease) => store.finish_run(lease, run, end).await,
            Self::Tried(_) => Ok(()),
        }
    }
}
