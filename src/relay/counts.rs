//! What a decided batch adds to the metrics: counted from what the broker said, and sent and parked from what is written.

use super::Fate;
use crate::verdict::{Attempt, Outcome};

/// What a decided batch adds to the metrics.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    /// The broker answered for at least one message.
    pub(super) answered: bool,
    pub(super) sent: usize,
    pub(super) returned: usize,
    pub(super) nacked: usize,
    pub(super) parked: usize,
}

impl Counts {
    pub(super) fn of(attempts: &[Attempt<'_>], fates: &[(i64, Fate)]) -> Self {
        let count = |wanted: fn(&Outcome) -> bool| attempts.iter().filter(|a| wanted(&a.outcome)).count();
        Self {
            answered: count(|outcome| !matches!(outcome, Outcome::Invalid(_))) > 0,
            sent: fates.iter().filter(|(_, fate)| *fate == Fate::Sent).count(),
            returned: count(|outcome| matches!(outcome, Outcome::Returned(_))),
            nacked: count(|outcome| matches!(outcome, Outcome::Nacked)),
            parked: fates.iter().filter(|(_, fate)| matches!(fate, Fate::Parked { .. })).count(),
        }
    }
}
