//! The tests of the whole: one binary, a module for each part of the house.

mod config;
