//! Tiers: the named ways to be delayed, and the rule that says which way a message takes.
//!
//! Pure: no I/O, no clock. Times are microseconds since the Unix epoch as read from the database, so that
//! every comparison uses one clock, the database's.

mod nearest;
mod route;
mod target;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

pub use nearest::{hint, nearest};
pub use route::{Route, RowTimes, Way};
pub use target::Target;

/// Longest `x-message-ttl` that RabbitMQ takes: ten years. Above it a declare is refused with 406.
pub const MAX_DELAY: Duration = Duration::from_millis(315_360_000_000);

/// Longest delay that the plugin takes: it counts milliseconds in 32 bits. A row with more left waits in Postgres.
pub const MAX_PLUGIN_DELAY: Duration = Duration::from_millis(u32::MAX as u64);

/// Shortest delay: the broker counts in whole milliseconds, and 0 means "drop unless deliverable at once".
pub const MIN_DELAY: Duration = Duration::from_millis(1);

/// The exchange and routing key that a message is handed to: what can be in trouble.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hop {
    /// Exchange name; empty is the default exchange, which routes by queue name and cannot be unbound.
    pub exchange: String,
    /// Routing key; for the default exchange, the queue's name.
    pub routing_key: String,
}

impl Hop {
    /// The hop that reaches `queue` through the default exchange.
    #[must_use]
    pub fn queue(queue: &str) -> Self {
        Self { exchange: String::new(), routing_key: queue.to_owned() }
    }
}

impl fmt::Display for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.exchange.is_empty() {
            write!(f, "queue '{}'", self.routing_key.escape_debug())
        } else {
            write!(f, "exchange '{}' with key '{}'", self.exchange, self.routing_key.escape_debug())
        }
    }
}

/// A value in a queue's argument table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Argument {
    /// A whole number.
    Int(i64),
    /// A text.
    Text(String),
    /// A truth value.
    Bool(bool),
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(value) => write!(f, "{value}"),
            Self::Text(value) => write!(f, "{value}"),
            Self::Bool(value) => write!(f, "{value}"),
        }
    }
}

/// The arguments of a queue, in a fixed order so that their hash is stable.
pub type Arguments = BTreeMap<String, Argument>;

/// The delay queue of a `queue` tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelayQueue {
    /// Its name: ours carries the TTL and a hash of all arguments, the user's is taken as it is.
    pub name: String,
    /// All arguments it is declared with.
    pub arguments: Arguments,
    /// What publishes go to: the queue itself, or the user's exchange in front of it.
    pub hop: Hop,
}

/// How a tier delays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Straight to the target.
    Direct,
    /// A delay queue of one fixed TTL in front of the target.
    Queue {
        /// The delay.
        delay: Duration,
        /// How far behind its tier a row may be and still take the delay queue.
        late_tolerance: Duration,
        /// The queue that holds messages meanwhile.
        queue: DelayQueue,
    },
    /// In Postgres until due, then straight to the target.
    Hold {
        /// The delay of rows without a `due_at` of their own; `None`: each row must bring one.
        delay: Option<Duration>,
    },
    /// In an exchange of type `x-delayed-message`, which keeps each message for a time of its own.
    Plugin {
        /// The delay of rows without a `due_at` of their own; `None`: each row must bring one.
        delay: Option<Duration>,
        /// The exchange; the target behind it is bound to it.
        exchange: String,
    },
}

/// One `[tier.NAME]` of `relay.toml`, checked and complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tier {
    /// The name that rows carry.
    pub name: String,
    /// How it delays.
    pub kind: Kind,
    /// Where its messages end.
    pub target: Target,
    /// Publish with the `mandatory` flag, so that an unroutable message comes back instead of vanishing.
    pub mandatory: bool,
}

/// How far behind its tier a row may be by default: 1 s or 1 % of the delay, the larger, at most 10 s and at most half
/// the delay.
#[must_use]
pub fn default_late_tolerance(delay: Duration) -> Duration {
    (delay / 100).max(Duration::from_secs(1)).min(Duration::from_secs(10)).min(delay / 2)
}

/// The name of a delay queue of ours: tier, TTL in milliseconds, and a hash of all its arguments.
///
/// A changed delay or target thus makes a new queue while the old one drains; a redeclare of the same name with other
/// arguments would be a 406.
#[must_use]
pub fn delay_queue_name(tier: &str, delay: Duration, arguments: &Arguments) -> String {
    let mut text = String::new();
    for (key, value) in arguments {
        // The type is part of it: 1 and "1" are different arguments to the broker.
        let tag = match value {
            Argument::Int(_) => 'i',
            Argument::Text(_) => 't',
            Argument::Bool(_) => 'b',
        };
        text.push_str(&format!("{key}\0{tag}{value}\0"));
    }
    let hash = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, text.as_bytes()).simple().to_string();
    format!("duebox.{tier}.{}.{}", delay.as_millis(), &hash[..6])
}

/// Microseconds of a duration, saturating.
fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_late_tolerance_follows_its_four_bounds() {
        for (delay_ms, tolerance_ms) in
            [(1, 0), (1_000, 500), (2_000, 1_000), (10_000, 1_000), (200_000, 2_000), (1_800_000, 10_000)]
        {
            let got = default_late_tolerance(Duration::from_millis(delay_ms)).as_millis();
            assert_eq!(got, tolerance_ms, "delay {delay_ms} ms");
        }
    }

    #[test]
    fn a_queue_name_changes_with_every_argument() {
        let delay = Duration::from_secs(1800);
        let name = |pairs: &[(&str, Argument)]| {
            delay_queue_name("order-30m", delay, &pairs.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect())
        };
        let plain = name(&[("a", Argument::Int(1))]);
        assert!(plain.starts_with("duebox.order-30m.1800000."), "{plain}");
        assert_eq!(plain, name(&[("a", Argument::Int(1))]));
        assert_ne!(plain, name(&[("a", Argument::Int(2))]));
        assert_ne!(plain, name(&[("a", Argument::Text("1".into()))]));
    }
}
