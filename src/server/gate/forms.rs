//! What is asked of the gate and what it answers, as JSON.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

use super::super::{body::Fence, problem::ErrorDetail};
use crate::{
    domain::{gate::GateState, instant::Instant},
    store::KeyView,
};

/// Somebody asks for a key.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Ask {
    /// What is meant by the key, such as a hash of the order: under another fingerprint the key is refused.
    #[schemars(length(max = 1024))]
    pub(super) fingerprint: Option<String>,
    /// Who asks, such as the workflow and its execution.
    #[schemars(length(max = 1024))]
    pub(super) owner: Option<String>,
    /// Where to look further.
    #[schemars(length(max = 1024))]
    pub(super) correlation_id: Option<String>,
    /// Anything to be kept with the key, up to 4,096 bytes of JSON.
    #[schemars(with = "Option<Value>")]
    pub(super) metadata: Option<Box<RawValue>>,
}

/// Somebody asks for many keys.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Asks {
    /// The keys, at most a thousand; of two that are the same the first counts.
    #[schemars(length(min = 1, max = 1000))]
    pub(super) items: Vec<AskOf>,
}

/// Somebody asks for one of many keys.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AskOf {
    /// The key.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^[^\u0000-\u001f\u007f-\u009f]+$"))]
    pub(super) key: String,
    /// What is meant by the key.
    #[schemars(length(max = 1024))]
    pub(super) fingerprint: Option<String>,
    /// Who asks.
    #[schemars(length(max = 1024))]
    pub(super) owner: Option<String>,
    /// Where to look further.
    #[schemars(length(max = 1024))]
    pub(super) correlation_id: Option<String>,
    /// Anything to be kept with the key, up to 4,096 bytes of JSON.
    #[schemars(with = "Option<Value>")]
    pub(super) metadata: Option<Box<RawValue>>,
}

/// It was done.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Completion {
    /// The number that the key was acquired with.
    pub(super) fence: Fence,
    /// What came of it: whoever asks for the key again is told.
    #[schemars(with = "Option<Value>")]
    pub(super) result: Option<Box<RawValue>>,
}

/// It was not done.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Failure {
    /// The number that the key was acquired with.
    pub(super) fence: Fence,
    /// Why.
    #[schemars(length(max = 1024))]
    pub(super) reason: Option<String>,
}

/// It takes longer.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Renewal {
    /// The number that the key was acquired with.
    pub(super) fence: Fence,
}

/// What is answered about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Standing {
    /// It is yours: do it, then complete or fail it under this `fence`.
    Started,
    /// Somebody has it.
    InProgress,
    /// It was done.
    Done,
    /// It was not done.
    Failed,
    /// The key was acquired for something else.
    Mismatch,
}

impl From<GateState> for Standing {
    fn from(state: GateState) -> Self {
        match state {
            GateState::InProgress => Self::InProgress,
            GateState::Done => Self::Done,
            GateState::Failed => Self::Failed,
        }
    }
}

/// What is known of a key.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Told {
    /// Where it stands for whoever asked.
    pub(super) state: Standing,
    /// The scope.
    pub(super) scope: String,
    /// The key.
    pub(super) key: GateKeyText,
    /// The number of its last acquisition: greater than all before, and never given twice.
    pub(super) fence: i64,
    /// It was taken over from one who was not heard of again: what that one did is not known.
    pub(super) takeover: bool,
    /// What it was completed with.
    #[schemars(with = "Value")]
    pub(super) result: Option<Box<RawValue>>,
    /// It was completed with more than is kept.
    pub(super) result_dropped: bool,
    /// Why it failed.
    pub(super) reason: Option<String>,
    /// When it was first asked for.
    #[schemars(with = "String")]
    pub(super) first_seen: Instant,
    /// When it was last asked for.
    #[schemars(with = "String")]
    pub(super) last_seen: Instant,
    /// How often it was asked for.
    pub(super) times_seen: u64,
    /// Until when whoever has it has it.
    #[schemars(with = "String")]
    pub(super) lease_until: Instant,
    /// Who acquired it.
    pub(super) owner: Option<String>,
    /// Where to look further.
    pub(super) correlation_id: Option<String>,
    /// What was given with it.
    #[schemars(with = "Value")]
    pub(super) metadata: Option<Box<RawValue>>,
    /// Why this is not what was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<ErrorDetail>,
}

/// A key.
pub(super) type GateKeyText = String;

/// What is answered about many keys.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ToldAll {
    /// In the order in which they were asked for.
    pub(super) items: Vec<ToldOf>,
}

/// What is answered about one of many keys.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ToldOf {
    /// The status that a request for this key alone would be answered with.
    pub(super) status: u16,
    /// What is known of it.
    #[serde(flatten)]
    pub(super) told: Told,
}

impl Told {
    pub(super) fn of(view: KeyView, state: Standing, error: Option<ErrorDetail>) -> Self {
        let json = |text: Option<String>| text.and_then(|text| RawValue::from_string(text).ok());
        Self {
            state,
            scope: view.scope,
            key: view.key.as_str().to_owned(),
            fence: view.fence,
            takeover: view.takeover,
            result: json(view.result),
            result_dropped: view.result_dropped,
            reason: view.reason,
            first_seen: view.first_seen,
            last_seen: view.last_seen,
            times_seen: view.times_seen,
            lease_until: view.lease_until,
            owner: view.owner,
            correlation_id: view.correlation_id,
            metadata: json(view.metadata),
            error,
        }
    }
}
