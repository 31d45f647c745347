//! The daemon's own view of itself, as JSON: what `/status` answers and `duebox status` prints.

use super::health::Health;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The daemon's view of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Daemon {
    /// The daemon's version.
    pub version: String,
    /// Both ends are usable.
    pub ready: bool,
    /// What is unwell, and why.
    pub problems: BTreeMap<String, String>,
    /// What has reported that it works.
    pub works: Vec<String>,
    /// Loops that are overdue.
    pub stalled: Vec<String>,
}

/// The view of a daemon with this health.
#[must_use]
pub fn daemon(health: &Health) -> Daemon {
    let parts = health.parts();
    Daemon {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ready: health.ready(),
        problems: health.problems().into_iter().map(|(part, reason)| (part.to_string(), reason)).collect(),
        works: parts.iter().filter(|(_, problem)| problem.is_none()).map(|(part, _)| part.to_string()).collect(),
        stalled: health.stalled(),
    }
}
