//! What the tests share: fresh databases and pages to commit.

pub mod database;
pub mod pages;
