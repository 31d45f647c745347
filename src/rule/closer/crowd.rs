//! Orders that stay locked, or slow, in such numbers that their messages go back to the outbox. Each comes back as a new message,
//! so that none of them has waited for long; together they have.

use crate::rule::{Kept, holders};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often a rule is warned of.
const EVERY: Duration = Duration::from_secs(60);

/// When each rule was warned of.
#[derive(Debug, Default)]
pub(super) struct Crowd(Mutex<BTreeMap<String, Instant>>);

impl Crowd {
    /// A message of the rule goes back for this.
    pub(super) fn one(&self, rule: &str, table: &str, kept: &Kept) {
        let (now, mut warned) = (Instant::now(), self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let is_known = warned.get(rule).is_some_and(|at| now.duration_since(*at) < EVERY);
        if is_known || !matches!(kept, Kept::Locked | Kept::Slow) {
            return;
        }
        warned.insert(rule.to_owned(), now);
        let (reason, who) = (kept.reason(), holders(table));
        tracing::warn!(
            rule,
            reason,
            "rule {rule}: so many orders cannot be closed that their messages go back to the outbox for half a minute, again \
             and again: {kept}; {who}"
        );
    }
}
