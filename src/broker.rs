//! The RabbitMQ side: a connection for whoever publishes, one for the closer, a channel for each worker, and the topology
//! behind the tiers.
//!
//! ```text
//! Link (supervised: connect ─▶ topology ─▶ up ─▶ lost ─▶ wait ─▶ connect ...)
//!   ├─ Publisher (a channel in confirm mode, one task, one batch in flight)
//!   └─ Consumer (a channel with one queue, acked by whoever takes its deliveries)
//! ```
//!
//! lapin's own recovery is off: what it keeps pending over a reconnect, and the states in between, cannot be told
//! apart from outside. A lost connection is simply made again, and every outcome in flight is unknown.

pub mod consume;
pub mod error;
pub mod headers;
pub mod judge;
pub mod link;
pub mod management;
pub mod probe;
pub mod publish;
pub mod socket;
pub mod topology;

use crate::relay::Lane;
use link::Link;
use publish::Publisher;
use std::sync::Arc;

/// Both connections of the relay; the closer has its own.
#[derive(Debug, Clone)]
pub struct Broker {
    /// The one for everybody who publishes.
    pub shared: Arc<Link>,
    /// The one for batches that may be what breaks connections; made when it is asked for.
    pub isolated: Arc<Link>,
}

impl crate::relay::Broker for Broker {
    type Publisher = Publisher;

    async fn publisher(&self, lane: Lane) -> Publisher {
        match lane {
            Lane::Shared => publish::open(&self.shared).await,
            Lane::Isolated => publish::open(&self.isolated).await,
        }
    }

    fn check_topology(&self) {
        self.shared.check.notify_one();
    }

    fn closed(&self, tier: &str) -> bool {
        self.shared.closed(tier)
    }
}
