//! The n8n stand-in: it answers what the seed says, and remembers what it was sent.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use super::lane::Scene;
use crate::support::server::{Asked, Reply};

/// One attempt as it arrived.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub id: String,
    pub key: u32,
    pub sequence: i64,
    pub accepted: bool,
    /// The number that the sender gives it.
    pub number: u32,
    /// How often a sender had died before: its successor may not know of an answer.
    pub deaths: u32,
    /// The event's delivery was stored when it arrived.
    pub was_settled: bool,
    pub body: Value,
}

/// Receives one event.
pub fn receive(scene: &Scene, asked: &Asked) -> Reply {
    let body = asked.json();
    let id = asked.header("webhook-id").to_owned();
    let sequence = body["sequence"].as_i64().unwrap();
    let key: u32 = body["key"].as_str().unwrap().parse().unwrap();
    let (calm, seed, refusal) = {
        let world = scene.world();
        (world.is_calm, world.plan.seed, world.plan.refusal)
    };
    let mut log = scene.log();
    let times = log.attempts.iter().filter(|attempt| attempt.id == id).count();
    // Events of several keys arrive in no order that a seed could fix: what each is answered must not
    // depend on it.
    let mut hasher = DefaultHasher::new();
    (seed, key, sequence, times).hash(&mut hasher);
    let drawn = hasher.finish();
    #[expect(clippy::cast_precision_loss, reason = "a likelihood")]
    let refused = !calm && ((drawn >> 16) % 1_000) as f64 / 1_000.0 < refusal;
    let reply = match drawn % 4 {
        _ if !refused => Reply::status(200),
        0 => Reply::status(500),
        1 => Reply::status(503),
        2 => Reply::Status(404, Vec::new(), "The requested webhook is not registered.".to_owned()),
        _ => Reply::Status(429, vec![("retry-after", "1".to_owned())], String::new()),
    };
    let number = asked.header("x-onlynew-attempt").parse().unwrap();
    let (deaths, was_settled) = (log.era, log.settled.contains(&id));
    log.attempts.push(Attempt { id, key, sequence, accepted: !refused, number, deaths, was_settled, body });
    reply
}
