//! How the daemon starts, and how it declines to: everything wrong at once, the cure, and an exit code that says whether a
//! restart would help.

mod commands;
mod exit_codes;
mod schema;
mod secrets;
mod waits;

use crate::support::daemon::Daemon;
use crate::support::rig::{Base, Rig};
use crate::support::wait::secs;

/// One tier, so that there is something to run.
const NOW: &str = "[tier.now]\ntarget = { queue = \"now\" }\n";

/// Starts a daemon that must refuse to run over its configuration, and returns what it said.
#[track_caller]
fn misconfigured(rig: &Rig, base: &Base, tables: &str) -> String {
    let mut daemon = Daemon::start(rig, &format!("{}{tables}", base.render()));
    let code = daemon.wait_exit(secs(30));
    assert_eq!(code, 78, "{}", daemon.log());
    daemon.log()
}
