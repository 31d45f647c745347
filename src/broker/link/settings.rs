//! What a link is told.

use crate::config::Topology;
use secrecy::SecretString;
use std::collections::BTreeSet;
use std::time::Duration;

/// Where a broker is.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// Host name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Virtual host.
    pub vhost: String,
    /// User.
    pub user: String,
    /// Password.
    pub password: SecretString,
}

/// What a link is told by the configuration.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Brokers, tried in turn.
    pub endpoints: Vec<Endpoint>,
    /// Heartbeat to ask for.
    pub heartbeat: Duration,
    /// Bound on a whole connect, and on each step of setting up a channel.
    pub connect_timeout: Duration,
    /// What is done about exchanges and queues that are missing.
    pub topology: Topology,
    /// How often the topology is checked.
    pub topology_check: Duration,
    /// Largest message body in bytes.
    pub max_message_bytes: usize,
    /// Queues that this daemon consumes itself; whether it does is told by whoever does it.
    pub consumed_here: BTreeSet<String>,
}

impl Settings {
    /// How long a link may be busy without a sign of life: one connect, or one step that has the same bound.
    pub(super) fn stall(&self) -> Duration {
        self.connect_timeout.saturating_mul(2) + REST
    }
}

/// What comes on top: closing the old connection, the wait before the next, and a machine under load.
const REST: Duration = Duration::from_secs(60);
