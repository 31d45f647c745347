//! The primary moves: nothing is published while no server takes writes, and the relay finds the one that does.

mod brokers;
mod read_only;
mod refused;
mod servers;
mod standby;

use crate::support::between::Between;
use crate::support::daemon::Daemon;
use crate::support::wait::{eventually, secs};

/// What is said of a server that takes no writes.
const READ_ONLY: &str = "the server takes no writes: it is a standby, or default_transaction_read_only is on there";

/// `/readyz` has this in a line of that part, soon after the next touch of an idle listener; the relay is alive.
#[track_caller]
fn assert_says(daemon: &Daemon, part: &str, text: &str) {
    eventually(&format!("/readyz: {part}{text}"), secs(30), || {
        let (_, body) = daemon.get("/readyz").unwrap_or_default();
        body.lines().any(|line| line.starts_with(part) && line.contains(text))
    });
    assert_eq!(daemon.get("/healthz").map(|(code, _)| code), Some(200), "an outage is not ill health");
}

/// Waits until the relay has tried for the database some more times.
#[track_caller]
fn tried_again(between: &Between, times: usize) {
    let tried = between.postgres.accepted() + times;
    eventually("it is tried again", secs(30), || between.postgres.accepted() >= tried);
}
