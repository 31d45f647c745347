//! Whether the relay is awake: what `status` and the metrics say of the doorbell.

use std::fmt;

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

impl fmt::Display for Wakefulness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if let [_, ..] = self.waits_for() {
            let pids: Vec<String> = self.waits_for().iter().map(i32::to_string).collect();
            write!(f, ", waits for open transactions that have inserted: pid {}", pids.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_whom_it_waits_for() {
        let leaving = Wakefulness::Leaving { waits_for: vec![7, 9] };
        assert_eq!(leaving.to_string(), "leaving, waits for open transactions that have inserted: pid 7, 9");
        assert_eq!(Wakefulness::Asleep.to_string(), "asleep");
    }
}
