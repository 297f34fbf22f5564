//! The receiver: what it does with a request that reaches it, and what it answers.

use fastrand::Rng;
use onlynew::domain::delivery::{Answer, Says};

use super::plan::{Plan, chance};

/// How a receiver answers for a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    #[default]
    Well,
    Down,
    Failing,
    NotRegistered,
    Busy,
    /// It refuses everything.
    Storm,
}

impl Mood {
    pub fn any(rng: &mut Rng) -> Self {
        [Self::Well, Self::Down, Self::Failing, Self::NotRegistered, Self::Busy, Self::Storm][rng.usize(..6)]
    }
}

/// What became of a request.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    pub answer: Answer,
    /// How many of its events it acted on, from the first.
    pub executed: usize,
    /// It was an event in it that it answers for, not its own state.
    pub of_event: bool,
}

pub fn status(code: u16) -> Answer {
    Answer::Status { code, retry_after: None, says: Says::Nothing }
}

/// Receives events of these poisons.
pub fn receive(mood: Mood, plan: &Plan, rng: &mut Rng, calm: bool, poisons: &[Option<&str>]) -> Received {
    let own = |answer, executed| Received { answer, executed, of_event: false };
    let event = |answer, executed| Received { answer, executed, of_event: true };
    let says = Says::NotRegistered;
    match mood {
        Mood::Down => return own(Answer::Unreached, 0),
        Mood::Failing => return own(status(500), 0),
        Mood::NotRegistered => return own(Answer::Status { code: 404, retry_after: None, says }, 0),
        Mood::Busy => return own(status(429), 0),
        Mood::Storm => return own(status(400), 0),
        Mood::Well => {}
    }
    let all = poisons.len();
    if all > plan.most || poisons.contains(&Some("p413")) {
        return event(status(413), 0);
    }
    if let Some(place) = poisons.iter().position(|poison| *poison == Some("p400")) {
        return event(status(400), if chance(rng, plan.partial) { place } else { 0 });
    }
    if poisons.contains(&Some("p500")) {
        return event(status(500), 0);
    }
    if !calm && chance(rng, plan.flaky) {
        return match rng.u8(..5) {
            0 => own(Answer::Lost, 0),
            1 => own(Answer::Lost, all),
            2 => own(status(504), all),
            3 => own(status(504), 0),
            _ => own(status(500), 0),
        };
    }
    own(status(200), all)
}
