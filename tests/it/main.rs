#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    missing_docs,
    reason = "tests stop at the first surprise and say what it was"
)]
//! One binary; the module list is the list of promises.

mod config;
mod delivery;
mod flat;
mod rig;
mod sql_interface;
mod support;
