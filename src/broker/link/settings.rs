//! What a link is told.

use secrecy::SecretString;
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
    /// How often the topology is checked.
    pub topology_check: Duration,
    /// Largest message body in bytes.
    pub max_message_bytes: usize,
}
