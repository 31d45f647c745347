//! An outage of either end costs time and nothing else, whatever way it begins and ends.

mod blocked;
mod broker;
mod held;
mod poison;
mod postgres;
mod relays;
mod silent;
mod unanswered;
mod waiting;

use crate::support::daemon::Daemon;
use crate::support::proxy::Proxy;
use crate::support::wait::{eventually, secs};
use std::time::{Duration, Instant};

/// Looks for three seconds of an outage at what a relay does meanwhile: not much.
#[track_caller]
fn calm(daemon: &Daemon, away: &Proxy) {
    const LOOK: Duration = secs(3);
    let begun = Instant::now();
    let (lines, tried, cpu) = (daemon.log().lines().count(), away.accepted(), daemon.cpu());
    eventually("three seconds of the outage have passed", secs(10), || begun.elapsed() >= LOOK);
    let (lines, tried, cpu) =
        (daemon.log().lines().count() - lines, away.accepted() - tried, daemon.cpu().saturating_sub(cpu));
    assert!(lines <= 6, "{lines} log lines in {LOOK:?}: {}", daemon.log());
    // The pool and the listener try, each at most twice a second.
    assert!(tried <= 12, "{tried} connections in {LOOK:?}");
    assert!(cpu <= LOOK / 20, "{cpu:?} of CPU in {LOOK:?}");
    assert_eq!(daemon.get("/healthz").unwrap().0, 200, "an outage is not ill health");
}
