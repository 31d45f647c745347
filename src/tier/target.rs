//! Where messages end.

/// Where a message ends, for every kind of tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A queue, reached through the default exchange.
    Queue(String),
    /// An exchange of the user's.
    Exchange {
        /// Its name.
        exchange: String,
        /// Declared with this type when it is missing; `None`: must exist.
        exchange_type: Option<String>,
        /// `None`: each row brings its own (`direct` tiers only).
        routing_key: Option<String>,
        /// Declared and bound, or verified, when named.
        queue: Option<String>,
    },
}

impl Target {
    /// The queue that messages are known to end in.
    #[must_use]
    pub fn queue(&self) -> Option<&str> {
        match self {
            Self::Queue(queue) => Some(queue),
            Self::Exchange { queue, .. } => queue.as_deref(),
        }
    }
}
