//! What becomes of an event, in the words of the store, of JSON and of the command line.

use serde::Serialize;

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventState {
    /// It waits, or is being sent.
    Pending,
    /// The receiver has it.
    Delivered,
    /// The receiver refused it for good.
    Dead,
    /// The receiver refused it for good, and later ones of its key wait for a person.
    Held,
    /// A person decided that it is not sent.
    Discarded,
    /// A newer one of its key was sent in its place.
    Superseded,
}

impl EventState {
    /// All states.
    pub const ALL: [Self; 6] =
        [Self::Pending, Self::Delivered, Self::Dead, Self::Held, Self::Discarded, Self::Superseded];

    /// The name in the store, in JSON and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
            Self::Held => "held",
            Self::Discarded => "discarded",
            Self::Superseded => "superseded",
        }
    }

    /// The state of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}
