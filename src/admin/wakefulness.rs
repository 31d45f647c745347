//! Whether the relay is awake: what `status` and the metrics say of the doorbell.

/// Where the relay is between awake and asleep.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Wakefulness {
    /// It cannot claim: one of the two servers is away, or it has not begun.
    #[default]
    Away,
    /// Claiming, or about to: producers need not ring.
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
    pub const NAMES: [&str; 5] = ["away", "awake", "leaving", "asleep", "polling"];

    /// One word for it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        let [away, awake, leaving, asleep, polling] = Self::NAMES;
        match self {
            Self::Away => away,
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
