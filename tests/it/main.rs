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

mod boundaries;
mod closer;
mod config;
mod consumers;
mod delivery;
mod doorbell;
mod failover;
mod faults;
mod flat;
mod operator;
mod outages;
mod pooler;
mod resets;
mod rig;
mod sql;
mod sql_interface;
mod startup;
mod stopping;
mod support;
mod surface;
mod sweep;
mod systemd;
mod topologies;
mod tour;
mod verdicts;
