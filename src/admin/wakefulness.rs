//! Whether the relay is awake: what `status` and the metrics say of the doorbell.

/// Where the relay is between awake and asleep.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Wakefulness {
    /// Claiming, or about to: producers need not ring.
    #[default]
    Awake,
    /// Going to sleep; these server processes have open transactions that may have inserted without ringing.
    Leaving {
        /// Their pids.
        waits_for: Vec<i32>,
    },
    /// Nothing to do: producers ring.
    Asleep,
    /// Producers are not heard, or `wake = "poll"`.
    Polling,
}

impl Wakefulness {
    /// Every name there is, for the metric.
    pub const NAMES: [&str; 4] = ["awake", "leaving", "asleep", "polling"];

    /// One word for it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        let [awake, leaving, asleep, polling] = Self::NAMES;
        match self {
            Self::Awake => awake,
            Self::Leaving { .. } => leaving,
            Self::Asleep => asleep,
            Self::Polling => polling,
        }
    }

    /// The server processes whose transactions are waited for.
    #[must_use]
    pub fn waits_for(&self) -> &[i32] {
        if let Self::Leaving { waits_for } = self { waits_for } else { &[] }
    }
}
