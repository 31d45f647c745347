//! What became of one order that was to be closed.

use std::time::{Duration, SystemTime};
use uuid::Uuid;

/// What became of one order.
#[derive(Debug, Clone, PartialEq)]
pub enum Closing {
    /// It was closed.
    Closed(Closed),
    /// It was left as it is.
    Kept(Kept),
}

/// One order that was closed.
#[derive(Debug, Clone, PartialEq)]
pub struct Closed {
    /// Its id.
    pub id: String,
    /// The status that it had.
    pub was: String,
    /// The status that it has now, unless it is gone.
    pub is: Option<String>,
    /// The event's id, if the rule has an event.
    pub message_id: Option<Uuid>,
    /// How long after it was overdue.
    pub late: Duration,
}

/// Why an order was left as it is.
#[derive(Debug, Clone, PartialEq)]
pub enum Kept {
    /// There is no such order.
    Unknown,
    /// Its status, which is none of `from`.
    Status(String),
    /// It is not overdue yet.
    Early {
        /// In so long it is, by the database's clock.
        left: Duration,
        /// At that moment.
        due_at: SystemTime,
    },
    /// It is due at no finite time.
    Undated,
    /// The rule is paused.
    Paused,
    /// Whoever asks is paused: the sweep, or the closer.
    AskerPaused,
    /// The guard forbids it, or does not know.
    Guarded,
    /// It was overdue before `not_before`.
    NotBefore,
    /// The rule only observes.
    Observed,
    /// Somebody else has it locked, or something that closing it takes.
    Locked,
    /// Closing it would have made a payment wait for too long: it is slow, or waits for several locks one after the other.
    Slow,
    /// The rule's function said no.
    Declined,
    /// The rule could not be applied: its table is locked as a whole, or does not fit.
    Unready,
}

impl Kept {
    /// Every reason there is, as metrics and the log have it.
    pub const REASONS: [&str; 13] = [
        "unknown",
        "status",
        "early",
        "undated",
        "paused",
        "asker_paused",
        "guard",
        "not_before",
        "observe",
        "locked",
        "slow",
        "function",
        "unready",
    ];

    /// Its name among [`Self::REASONS`].
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Status(_) => "status",
            Self::Early { .. } => "early",
            Self::Undated => "undated",
            Self::Paused => "paused",
            Self::AskerPaused => "asker_paused",
            Self::Guarded => "guard",
            Self::NotBefore => "not_before",
            Self::Observed => "observe",
            Self::Locked => "locked",
            Self::Slow => "slow",
            Self::Declined => "function",
            Self::Unready => "unready",
        }
    }

    /// What the statement that closes says of an order with status `was` that is overdue since `late` seconds, which was
    /// at `due_at`.
    pub(super) fn of(reason: &str, was: &str, late: f64, due_at: Option<SystemTime>) -> Option<Self> {
        Some(match reason {
            "status" => Self::Status(was.to_owned()),
            "early" => Self::Early { left: seconds(-late), due_at: due_at? },
            "undated" => Self::Undated,
            "paused" => Self::Paused,
            "asker_paused" => Self::AskerPaused,
            "guard" => Self::Guarded,
            "not_before" => Self::NotBefore,
            _ => return None,
        })
    }
}

impl std::fmt::Display for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown => write!(f, "there is no such order"),
            Self::Status(status) => write!(f, "its status is {status}"),
            Self::Early { left, .. } => write!(f, "it is overdue in {left:.0?}"),
            Self::Undated => write!(f, "it is due at no finite time"),
            Self::Paused => write!(f, "the rule is paused"),
            Self::AskerPaused => write!(f, "whoever closes is paused"),
            Self::Guarded => write!(f, "the guard forbids it"),
            Self::NotBefore => write!(f, "it was overdue before not_before"),
            Self::Observed => write!(f, "the rule only observes"),
            Self::Locked => write!(f, "somebody else has it locked, or something that closing it takes"),
            Self::Slow => write!(f, "closing it takes longer than a payment may wait"),
            Self::Declined => write!(f, "the rule's function said no"),
            Self::Unready => write!(f, "the rule cannot be applied now, /readyz says why"),
        }
    }
}

/// Nothing below zero.
pub(super) fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_read_back_as_itself() {
        let due_at = SystemTime::UNIX_EPOCH;
        let read = |reason| Kept::of(reason, "paid", -1.5, Some(due_at));
        let all: Vec<_> = Kept::REASONS.iter().filter_map(|reason| read(reason)).collect();
        let early = Kept::Early { left: Duration::from_millis(1500), due_at };
        assert!(all.contains(&Kept::Status("paid".into())) && all.contains(&early));
        // Those that no statement says: it has no row for them.
        assert_eq!(all.len() + 6, Kept::REASONS.len());
        assert!(all.iter().all(|kept| read(kept.reason()).as_ref() == Some(kept)));
    }
}
