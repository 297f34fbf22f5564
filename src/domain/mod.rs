//! The pure core: types and decisions, without I/O, clock or runtime.
//!
//! Every rule of the product is a function here with its table of cases beside it; the floors above
//! only carry the answers out. This floor imports nothing of ours.

pub mod address_kind;
pub mod allow_private;
pub mod anchor;
pub mod backoff;
pub mod batch;
pub mod bookmark;
pub mod clock;
pub mod content;
pub mod coverage;
pub mod decide;
pub mod delivery;
pub mod event;
pub mod event_state;
pub mod facts;
pub mod fires;
pub mod fixed_point;
pub mod gate;
pub mod health;
pub mod hook;
pub mod identity;
pub mod instant;
pub mod json;
pub mod json_path;
pub mod jwt;
pub mod key;
pub mod keyset;
pub mod lane;
pub mod lateness;
pub mod lock;
pub mod mac;
pub mod numbers;
pub mod order;
pub mod page;
pub mod rate;
pub mod reconcile;
pub mod repeat;
pub mod retention;
pub mod retry_after;
pub mod run;
pub mod sighting;
pub mod signature;
pub mod steps;
pub mod story;
pub mod sync_token;
pub mod task;
pub mod token;
pub mod trace;
pub mod units;
pub mod version;
pub mod version_field;
pub mod version_format;
pub mod version_pattern;
mod version_typed;
pub mod walk;
pub mod wall;
pub mod watermark;
pub mod webhook;
pub mod window;

#[cfg(test)]
mod shifting;
