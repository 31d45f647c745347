//! A rig with the schema applied and a daemon that runs with the rights of a relay and no more.

use super::daemon::Daemon;
use super::rig::{Base, Rig};
use std::time::Duration;

/// How long a daemon may take to be ready on a machine under load.
pub(crate) const START: Duration = Duration::from_secs(30);

impl Rig {
    /// The opening tables for a daemon with that role.
    pub(crate) fn relay_base(&self, relay: &str) -> Base {
        Base { role: relay.to_owned(), ..self.base() }
    }

    /// Applies the schema and starts a daemon with these tables beside the opening ones; waits until it is ready.
    pub(crate) fn relay(&self, tables: &str) -> Daemon {
        let relay = self.migrated();
        let daemon = self.daemon(&relay, tables);
        daemon.wait_ready(START);
        daemon
    }

    /// Applies the schema and returns the role for a daemon, for a test that writes rows before it starts one.
    #[track_caller]
    pub(crate) fn migrated(&self) -> String {
        let relay = self.create_role("relay");
        self.migrate(&["--grant-relay", &relay]);
        relay
    }

    /// Starts a daemon as that role; does not wait until it is ready.
    #[track_caller]
    pub(crate) fn daemon(&self, relay: &str, tables: &str) -> Daemon {
        Daemon::start(self, &format!("{}{tables}", self.relay_base(relay).render()))
    }
}
