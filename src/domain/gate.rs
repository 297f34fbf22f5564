//! The gate: whether a side effect may happen now, by what is stored of its key and nothing else.
//!
//! *Seen* is not *done*. A key that was acquired is in progress until it is completed or failed under the fence that
//! its holder was given, or until its lease has run out and another takes it over. Only the database's clock counts.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use super::{instant::Instant, run::stored_names};

/// What holds for the keys of one scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScopeRules {
    /// How long a key is its holder's before another may take it over.
    pub lease: Duration,
    /// How long a key is known after it last changed; `None` is for ever.
    pub retention: Option<Duration>,
    /// What a key that is done answers.
    pub after_done: AfterDone,
    /// What a key that failed answers.
    pub after_failure: AfterFailure,
    /// The largest result that is kept, in bytes of JSON.
    pub max_result: u64,
}

impl Default for ScopeRules {
    fn default() -> Self {
        Self {
            lease: Duration::from_mins(15),
            retention: Some(Duration::from_hours(90 * 24)),
            after_done: AfterDone::Replay,
            after_failure: AfterFailure::Retry,
            max_result: 64_000,
        }
    }
}

/// What a key answers that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AfterDone {
    /// The stored result.
    Replay,
    /// That it must not be done again.
    Reject,
    /// That it may be done again.
    Rerun,
}

/// What a key answers that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AfterFailure {
    /// That it may be tried again.
    Retry,
    /// That it failed.
    Keep,
}

/// Where a key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GateState {
    /// Somebody has it, or had it and was never heard of again.
    InProgress,
    /// What it stands for was done.
    Done,
    /// What it stands for was tried, and its holder says that it was not done.
    Failed,
}

stored_names!(GateState { Self::InProgress => "in_progress", Self::Done => "done", Self::Failed => "failed" });

impl GateState {
    /// All states.
    pub const ALL: [Self; 3] = [Self::InProgress, Self::Done, Self::Failed];
}

/// What is stored of a key, as far as it decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Where it stands.
    pub state: GateState,
    /// The number of its last acquisition, greater than all before.
    pub fence: i64,
    /// What its holder meant by it.
    pub fingerprint: Option<String>,
    /// Until when its holder has it.
    pub lease_until: Instant,
    /// When it was last acquired, renewed, completed or failed.
    pub changed_at: Instant,
}

/// What an acquisition is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is the asker's now.
    Started {
        /// From a holder whose lease ran out: what it did is not known.
        takeover: bool,
    },
    /// Another has it.
    InProgress,
    /// It was acquired for something else.
    Mismatch,
    /// It is done: here is its result.
    Done,
    /// It is done and must not be done again.
    Rejected,
    /// It failed and is not tried again.
    Failed,
}

/// Answers whoever asks for a key, `held` being what is stored of it. Who asked first is not asked again who he is: a
/// holder that asks twice is a duplicate, too.
pub fn acquire(held: Option<&Held>, fingerprint: Option<&str>, rules: &ScopeRules, now: Instant) -> Answer {
    let Some(held) = held.filter(|held| !is_forgotten(held, rules, now)) else {
        return Answer::Started { takeover: false };
    };
    let begins_anew = held.state == GateState::Done && rules.after_done == AfterDone::Rerun;
    let differs =
        fingerprint.is_some_and(|asked| held.fingerprint.as_deref().is_some_and(|held| held != asked));
    if differs && !begins_anew {
        return Answer::Mismatch;
    }
    match (held.state, rules.after_done, rules.after_failure) {
        (GateState::InProgress, _, _) if now < held.lease_until => Answer::InProgress,
        (GateState::InProgress, _, _) => Answer::Started { takeover: true },
        (GateState::Done, AfterDone::Replay, _) => Answer::Done,
        (GateState::Done, AfterDone::Reject, _) => Answer::Rejected,
        (GateState::Done, AfterDone::Rerun, _) | (GateState::Failed, _, AfterFailure::Retry) => {
            Answer::Started { takeover: false }
        }
        (GateState::Failed, _, AfterFailure::Keep) => Answer::Failed,
    }
}

/// Whether a key is as good as never seen, though its row may still be there: its answer must not hang on when the janitor
/// came by.
pub fn is_forgotten(held: &Held, rules: &ScopeRules, now: Instant) -> bool {
    let is_held = held.state == GateState::InProgress && now < held.lease_until;
    !is_held && rules.retention.is_some_and(|retention| held.changed_at.plus(retention) <= now)
}

/// What the holder of a key does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Says that it is done.
    Complete,
    /// Says that it was not done.
    Fail,
    /// Keeps it for longer.
    Renew,
}

/// Whether a holder may do what it wants to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// It may: the key is its own.
    Yes,
    /// It has done so before.
    Repeated,
    /// The key is another's by now, or was ended in another way.
    Lost,
}

/// Judges an act under `fence`. A lease that ran out takes nothing away as long as nobody has taken the key over: what
/// was done was done.
pub fn act(held: &Held, fence: i64, act: Act) -> Allowed {
    match (held.state, act) {
        _ if held.fence != fence => Allowed::Lost,
        (GateState::InProgress, _) => Allowed::Yes,
        (GateState::Done, Act::Complete) | (GateState::Failed, Act::Fail) => Allowed::Repeated,
        (GateState::Done | GateState::Failed, _) => Allowed::Lost,
    }
}

/// A key of the gate: 1 to 1,024 bytes without control characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct GateKey(String);

/// The longest key, in bytes.
pub const LONGEST_KEY: usize = 1_024;

/// What JavaScript and templates write where a value is missing.
const MISSING: [&str; 5] = ["undefined", "null", "NaN", "None", "[object Object]"];

/// Why a text is no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoKey {
    /// Nothing stands there, or what is written in place of nothing.
    #[error("the key is missing{}: without one nobody can tell whether this was done before, and none is made up here", shown(.0))]
    Missing(String),
    /// It cannot be kept.
    #[error("the key is {0} bytes long; {LONGEST_KEY} is the most: hash what it is made of")]
    TooLong(usize),
    /// It holds what nobody sees.
    #[error("the key holds a control character")]
    Control,
}

fn shown(text: &str) -> String {
    if text.trim().is_empty() { String::new() } else { format!(" (it is the text `{text}`)") }
}

impl GateKey {
    /// Reads a key.
    pub fn parse(text: &str) -> Result<Self, NoKey> {
        let is_missing = text.trim().is_empty() || MISSING.contains(&text.trim());
        if is_missing {
            Err(NoKey::Missing(text.to_owned()))
        } else if text.len() > LONGEST_KEY {
            Err(NoKey::TooLong(text.len()))
        } else if text.chars().any(char::is_control) {
            Err(NoKey::Control)
        } else {
            Ok(Self(text.to_owned()))
        }
    }

    /// A key that comes from the store.
    pub const fn from_stored(text: String) -> Self {
        Self(text)
    }

    /// The key's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How many seconds somebody should wait until a lease has run out: at least one.
pub fn retry_after(lease_until: Instant, now: Instant) -> u64 {
    lease_until.since(now).as_micros().div_ceil(1_000_000).max(1).try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
