//! One run: plan the window, fetch, decide, commit, advance. The engine holds no state of its own; what a
//! run knows is in the store or in the run itself.

mod accept;
mod books;
mod cut;
mod end;
mod errand;
mod identity;
mod report;
mod rules;
mod run;
mod sweep;
mod sync;
mod task;
mod walk;

pub use accept::Accepted;
pub use identity::{Answered, edited};
pub use report::RunReport;
pub use run::{Engine, Trigger};
