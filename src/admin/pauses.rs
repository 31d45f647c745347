//! The pauses as `/readyz` and `/status` show them.

use crate::words::shown;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Something that an operator has paused, for all relays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paused {
    /// What, as `duebox resume` takes it: `relay`, `tier NAME`, ...
    pub what: String,
    /// Since when, in UTC.
    pub since: Option<String>,
    /// By whom, as far as they said.
    pub by: Option<String>,
    /// Why, if they said so.
    pub reason: Option<String>,
}

impl fmt::Display for Paused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |word: &str, part: &Option<String>| {
            part.as_ref().map_or_else(String::new, |part| format!("{word} {}", shown(part)))
        };
        let (since, by, reason) = (part(" since", &self.since), part(" by", &self.by), part(":", &self.reason));
        write!(f, "paused {}{since}{by}{reason}", shown(&self.what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_one_line_of_what_is_known_of_it() {
        let text = |text: &str| Some(text.to_owned());
        let (what, since) = ("rule unpaid".to_owned(), text("2026-01-02T03:04:05Z"));
        let paused = Paused { what, since, by: text("ann@shop"), reason: text("a\nrecount") };
        assert_eq!(paused.to_string(), "paused rule unpaid since 2026-01-02T03:04:05Z by ann@shop: a\\nrecount");
        let bare = Paused { what: "relay".to_owned(), since: None, by: None, reason: None };
        assert_eq!(bare.to_string(), "paused relay");
    }
}
