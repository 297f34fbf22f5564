//! Lanes: which events of a destination wait for one another.

use schemars::JsonSchema;
use serde::Deserialize;

/// How the events of a destination wait for one another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lanes {
    /// What goes in order.
    pub order: Order,
    /// What becomes of a lane whose first event is refused for good.
    pub on_dead: OnDead,
    /// Of several events that wait in a lane, whether only the newest is sent.
    pub coalesces: bool,
}

/// What goes in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// The events of one key.
    #[default]
    Key,
    /// Nothing.
    None,
}

/// What becomes of a lane whose first event is refused for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnDead {
    /// It goes on with the next.
    #[default]
    Skip,
    /// It waits for a person.
    Hold,
}
