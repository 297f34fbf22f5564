//! What the tests share: fresh databases, pages to commit, servers to ask, and the whole put together.

pub mod database;
pub mod delivery;
pub mod gate;
pub mod hostile;
pub mod messages;
pub mod model;
pub mod pages;
pub mod purges;
pub mod rig;
pub mod server;
pub mod shop;
pub mod source;
