//! What the gate asks of a database, and what it is told.

pub(super) mod keys;

use async_trait::async_trait;

use super::StoreError;
use crate::domain::{
    gate::{Act, Allowed, Answer, GateKey, GateState, Held, ScopeRules},
    instant::Instant,
};

/// What the gate asks of a database.
#[async_trait]
pub trait Gates: Send + Sync {
    /// Answers each of `asks`, in their order and all in one transaction: of two that ask for one key the first counts.
    async fn acquire_keys(
        &self,
        scope: &str,
        rules: &ScopeRules,
        asks: &[KeyAsk],
    ) -> Result<Vec<Acquired>, StoreError>;

    /// Ends a key, or keeps it for longer, under the fence that it was acquired with; `None` where it is not known.
    async fn act_on_key(&self, scope: &str, act: &KeyAct) -> Result<Option<Acted>, StoreError>;

    /// What is known of a key.
    async fn gate_key(&self, scope: &str, key: &GateKey) -> Result<Option<KeyView>, StoreError>;

    /// What is known of at most `limit` keys that pass the filter, those that changed last first.
    async fn gate_keys(&self, filter: &KeyFilter, limit: u32) -> Result<Vec<KeyView>, StoreError>;

    /// What is known of all scopes, by name.
    async fn gate_scopes(&self) -> Result<Vec<ScopeView>, StoreError>;

    /// Forgets a key, so that it may be acquired as if it had never been; one that somebody has only where `even_held`.
    async fn release_key(&self, scope: &str, key: &GateKey, even_held: bool) -> Result<Released, StoreError>;

    /// Ends the lease of a key, so that the next who asks takes it over; `false` where nobody has it.
    async fn expire_key(&self, scope: &str, key: &GateKey) -> Result<bool, StoreError>;
}

/// Somebody asks for a key.
#[derive(Clone, Debug)]
pub struct KeyAsk {
    /// The key.
    pub key: GateKey,
    /// What is meant by it.
    pub fingerprint: Option<String>,
    /// Who asks.
    pub owner: Option<String>,
    /// Where to look further.
    pub correlation_id: Option<String>,
    /// JSON to be kept with the key.
    pub metadata: Option<String>,
}

/// What came of asking for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquired {
    /// The answer.
    pub answer: Answer,
    /// What is known of the key now.
    pub view: KeyView,
    /// The database's time of day.
    pub now: Instant,
}

/// A holder does something with its key.
#[derive(Clone, Debug)]
pub struct KeyAct {
    /// The key.
    pub key: GateKey,
    /// The number it was acquired with.
    pub fence: i64,
    /// What it does.
    pub act: Act,
    /// JSON to be kept as its result.
    pub result: Option<String>,
    /// Why it failed.
    pub reason: Option<String>,
    /// What holds for its scope.
    pub rules: ScopeRules,
}

/// What came of an act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acted {
    /// Whether it was done.
    pub allowed: Allowed,
    /// What is known of the key now.
    pub view: KeyView,
}

/// What is known of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyView {
    /// Its scope.
    pub scope: String,
    /// The key.
    pub key: GateKey,
    /// Where it stands; `None` inside the transaction that meets it first.
    state: Option<GateState>,
    /// The number of its last acquisition.
    pub fence: i64,
    /// Until when its holder has it.
    pub lease_until: Instant,
    /// It was taken over from a holder that was never heard of again.
    pub takeover: bool,
    /// Who acquired it.
    pub owner: Option<String>,
    /// What its holder meant by it.
    pub fingerprint: Option<String>,
    /// Where to look further.
    pub correlation_id: Option<String>,
    /// JSON that was given with it.
    pub metadata: Option<String>,
    /// JSON that it was completed with.
    pub result: Option<String>,
    /// There was a result, and it was too large to keep.
    pub result_dropped: bool,
    /// Why it failed.
    pub reason: Option<String>,
    /// When it was first asked for.
    pub first_seen: Instant,
    /// When it was last asked for.
    pub last_seen: Instant,
    /// When it was last acquired, renewed, completed or failed.
    pub changed_at: Instant,
    /// How often it was asked for.
    pub times_seen: u64,
    /// How often somebody was let through.
    pub times_started: u64,
    /// How often for one who was not heard of again.
    pub times_taken_over: u64,
}

impl KeyView {
    /// Where it stands.
    pub fn state(&self) -> GateState {
        self.state.unwrap_or(GateState::InProgress)
    }

    /// What of it decides; `None` inside the transaction that meets it first.
    pub fn held(&self) -> Option<Held> {
        Some(Held {
            state: self.state?,
            fence: self.fence,
            fingerprint: self.fingerprint.clone(),
            lease_until: self.lease_until,
            changed_at: self.changed_at,
        })
    }

    fn totals(&self) -> Totals {
        Totals {
            keys: 1,
            asked: self.times_seen,
            started: self.times_started,
            taken_over: self.times_taken_over,
        }
    }

    /// Makes it a key that was never seen; what it counted is kept elsewhere.
    fn forget(&mut self, now: Instant) {
        self.state = None;
        (self.times_seen, self.times_started, self.times_taken_over) = (0, 0, 0);
        self.first_seen = now;
    }

    /// Gives the key to whoever asks; its fence is drawn later.
    fn start(&mut self, ask: &KeyAsk, takeover: bool, rules: &ScopeRules, now: Instant) {
        let begins_anew = self.state.is_none_or(|state| state == GateState::Done);
        self.state = Some(GateState::InProgress);
        self.lease_until = now.plus(rules.lease);
        self.takeover = takeover;
        self.owner.clone_from(&ask.owner);
        if ask.fingerprint.is_some() || begins_anew {
            self.fingerprint.clone_from(&ask.fingerprint);
        }
        self.correlation_id.clone_from(&ask.correlation_id);
        self.metadata.clone_from(&ask.metadata);
        (self.result, self.result_dropped, self.reason) = (None, false, None);
        self.changed_at = now;
        self.times_started += 1;
        self.times_taken_over += u64::from(takeover);
    }
}

/// Which keys are listed.
#[derive(Clone, Debug, Default)]
pub struct KeyFilter {
    /// Only of this scope.
    pub scope: Option<String>,
    /// Only those that stand so; all where none is named.
    pub states: Vec<GateState>,
    /// Only those that were asked for more than once.
    pub only_repeated: bool,
    /// Only those whose lease has run out while they are in progress.
    pub only_stale: bool,
}

/// What is known of a scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeView {
    /// Its name.
    pub scope: String,
    /// How many of its keys are known and in progress, done, failed.
    pub in_progress: u64,
    /// See there.
    pub done: u64,
    /// See there.
    pub failed: u64,
    /// What was counted since it was first asked for anything, keys that are known no more among it.
    pub totals: Totals,
}

/// What keys count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// How many keys.
    pub keys: u64,
    /// How often they were asked for.
    pub asked: u64,
    /// How often somebody was let through.
    pub started: u64,
    /// How often for one who was not heard of again.
    pub taken_over: u64,
}

impl Totals {
    /// How often nobody was let through: what would have been done twice.
    pub const fn duplicates(&self) -> u64 {
        self.asked.saturating_sub(self.started)
    }

    fn add(&mut self, other: Self) {
        self.keys += other.keys;
        self.asked += other.asked;
        self.started += other.started;
        self.taken_over += other.taken_over;
    }
}

/// What came of forgetting a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// It is forgotten.
    Done,
    /// Somebody has it.
    Held,
    /// It is not known.
    Unknown,
}
